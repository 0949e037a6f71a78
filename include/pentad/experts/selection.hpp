// Experts select tokens among those of all ranks: each takes the candidates with the largest keys, the leading bits of
// their scores (kernels::key_of), ties going to the token of the lowest number.
#pragma once

#include <pentad/kernels/select_tokens.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/algebra.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/host_array.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace pentad::experts {

using namespace ml;

/// A radix selection over the candidates of all ranks that share out the tokens of a Stream.
template <class Stream, class Exec>
class Selection {
  public:
    using A = accumulator_t<typename Stream::element>;
    using Limit = kernels::SelectionLimit;
    using Candidates = kernels::SelectionCandidates<A, Exec>;
    /// Candidates of each expert with each value of a digit.
    using Counts = summed_t<i64, Dims<Dim<expert>, Dim<slot>>, Stream>;

    /// @param tokens numbers of tokens are below it
    Selection(Context<Exec> const& context, std::size_t experts, std::size_t tokens)
        : experts_(experts), number_bits_(static_cast<int>(std::bit_width(tokens))) {
        prepare_redistribution<Counts, invariant_t<Counts>>(context);
    }

    /// The limits [experts] up to which each expert selects `most` candidates, or all where it has fewer. Collective
    /// over the ranks that share out the tokens; waits.
    memory::Buffer<typename Exec::memory_space> limits(Context<Exec> const& context, Candidates const& candidates,
                                                       std::size_t most) const {
        constexpr i64 every = std::numeric_limits<i64>::max();
        State state{memory::HostArray<Limit>(experts_, Limit{0, 0}),
                    memory::HostArray<i64>(experts_, static_cast<i64>(most)), memory::HostArray<bool>(experts_, false),
                    context.take(experts_ * sizeof(Limit))};
        bool const has_keys = candidates.scores.extent(1) != 0;
        constexpr int key_end = 64 - kernels::key_digits<A> * kernels::digit_bits;
        // All digits, also where the limits are known before: so what is sent does not depend on the data.
        for (int shift = 64 - kernels::digit_bits; has_keys && shift >= key_end; shift -= kernels::digit_bits)
            find_digit(context, candidates, {true, shift}, state);
        int const highest = (number_bits_ + kernels::digit_bits - 1) / kernels::digit_bits * kernels::digit_bits;
        for (int shift = highest - kernels::digit_bits; shift >= 0; shift -= kernels::digit_bits)
            find_digit(context, candidates, {false, shift}, state);
        for (std::size_t e = 0; e < experts_; ++e)
            if (state.is_done[e] && state.limit[e].number < 0) state.limit[e].number = every;
        upload(context, state);
        return state.on_device;
    }
    [[nodiscard]] static View<Limit, 1, Exec> view(memory::Buffer<typename Exec::memory_space> const& limits,
                                                   std::size_t experts) {
        return View<Limit, 1, Exec>(static_cast<Limit*>(limits.data()), experts);
    }

  private:
    struct State {
        memory::HostArray<Limit> limit; ///< what has been found of it; a number below 0: any
        memory::HostArray<i64> left;    ///< candidates that an expert takes of those that fit what has been found
        memory::HostArray<bool> is_done;
        memory::Buffer<typename Exec::memory_space> on_device;
    };

    void upload(Context<Exec> const& context, State const& state) const {
        memory::copy_from_host(context.exec(), state.on_device.data(), state.limit.data(), experts_ * sizeof(Limit));
    }
    /// Counts a digit and finds it for each expert.
    void find_digit(Context<Exec> const& context, Candidates const& candidates, kernels::SelectionDigit const& digit,
                    State& state) const {
        upload(context, state);
        Tensor<Counts, Exec> counts(context, {experts_, std::size_t{kernels::digits}});
        kernels::count_digits<A>(context.exec(), candidates, digit, view(state.on_device, experts_), counts.array());
        auto const total = redistribute<invariant_t<Counts>>(std::move(counts));
        memory::HostArray<i64> const host(total.size());
        total.get(host.data());
        if (observe::dry_run() != nullptr) return;
        for (std::size_t e = 0; e < experts_; ++e)
            if (!state.is_done[e]) find(host.data() + e * kernels::digits, digit, e, state);
    }
    /// The digit of expert e: of keys the largest come first, of numbers the smallest.
    static void find(i64 const* counts, kernels::SelectionDigit const& digit, std::size_t e, State& state) {
        for (int i = 0; i < kernels::digits; ++i) {
            int const value = digit.of_key ? kernels::digits - 1 - i : i;
            i64 const here = counts[value];
            if (here < state.left[e]) {
                state.left[e] -= here;
                continue;
            }
            auto const bits = static_cast<std::uint64_t>(value) << digit.shift;
            state.is_done[e] = here == state.left[e]; // it takes all that are left
            if (digit.of_key) {
                state.limit[e].key |= bits;
                if (state.is_done[e]) state.limit[e].number = -1;
            } else {
                state.limit[e].number |= static_cast<i64>(bits);
                if (state.is_done[e]) state.limit[e].number |= (i64{1} << digit.shift) - 1;
            }
            return;
        }
        // Fewer than it takes: only the first digit that is counted can say so.
        state.limit[e] = {0, -1};
        state.is_done[e] = true;
    }

    std::size_t experts_ = 0;
    int number_bits_ = 0;
};

} // namespace pentad::experts
