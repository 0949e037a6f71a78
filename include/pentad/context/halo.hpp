// The tokens in front of each stretch of a sequence that is dealt to the ranks of cp, and cut into slices: what a
// causal convolution looks back at. A halo of one side.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/context/detail/route.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/stretches.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::context {

namespace detail {

template <class L>
struct HaloOf;
template <class T, class Batch, class Seq, class Channel, class... Axes>
struct HaloOf<Layout<T, Dims<Batch, Seq, Channel>, Axes...>> {
    static_assert(std::is_same_v<Seq, Dim<seq, dynamic, cp>>,
                  "a halo along cp is of a layout with Dim<seq, dynamic, cp> as its second dimension");
    using type = Layout<T, Dims<Batch, Dim<stretch, dynamic, cp>, Dim<slot>, Channel>, Axes...>;
};

} // namespace detail

/// Where each rank of cp has one stretch, which follows that of the rank before, its last tokens go to the next rank,
/// and their gradients back. Otherwise, and in slices, the last tokens of all stretches are gathered.
/// @tparam X a layout [batch, seq@cp, channels]; its halo is [batch, stretch@cp, tokens, channels]
template <class X, class Exec>
class Halo {
  public:
    using T = typename X::element;
    using A = accumulator_t<T>;
    using layout = typename detail::HaloOf<X>::type;
    using Gathered = unsharded_t<layout, cp>;
    using Gradient = Tensor<with_element_t<dual_t<layout>, A>, Exec>;
    using GatheredGradient = with_element_t<dual_t<Gathered>, A>;

    /// Of sequences that are cut: the last tokens of each slice, which every rank of cp has, and this rank's summand of
    /// the gradients of those of the slice whose backward pass is next.
    struct Slices {
        std::vector<Tensor<Gathered, Exec>> last;
        Tensor<GatheredGradient, Exec> d_last;
    };

    explicit Halo(std::size_t tokens) : tokens_(tokens) {}

    /// The tokens in front of each of this rank's stretches; zeros before the first. Collective over cp, as the
    /// backward pass.
    /// @throws std::invalid_argument where a stretch has fewer tokens than the halo
    Tensor<layout, Exec> forward(Tensor<X, Exec> const& x, Stretches const& stretches,
                                 AtSlice<Slices> const& slices) const {
        if (stretches.length < tokens_)
            throw std::invalid_argument("a halo of " + std::to_string(tokens_) +
                                        " tokens, where the stretches of a sequence over cp have " +
                                        std::to_string(stretches.length) + ": use fewer ranks of cp, or slices");
        auto const& context = x.context();
        Tensor<layout, Exec> const last(context,
                                        {x.extents()[0], stretches.order.size(), tokens_, x.extents()[2]});
        Tensor<layout, Exec> const before(context, last.extents());
        std::size_t const all = x.local()[0] * stretches.here, channels = x.local()[2];
        View<T, 3, Exec> const to(last.data(), all, tokens_, channels), whole(x.data(), all, stretches.length, channels);
        copy(context, to, of_tokens(whole, stretches.length - tokens_));
        if (passes(stretches, slices)) {
            shift(along(context), 1, last, before);
            return before;
        }
        auto const gathered = redistribute<Gathered>(last);
        auto const mine = static_cast<std::size_t>(along(context).rank());
        for (std::size_t i = 0; i < stretches.order.size(); ++i) {
            if (stretches.order[i] / stretches.here != mine) continue;
            auto const own = stretch_of(before, stretches.order[i] % stretches.here);
            if (i > 0)
                copy(context, own, stretch_of(gathered, stretches.order[i - 1]));
            else if (!slices.is_first())
                copy(context, own, stretch_of(slices.memory->last[slices.index - 1], 0));
            else
                clear(context, own);
        }
        if (slices.is_cut()) {
            auto& kept = slices.memory->last;
            kept.resize(std::max(kept.size(), slices.index + 1));
            kept[slices.index] = of_one<Gathered>(context, last.extents());
            copy(context, stretch_of(kept[slices.index], 0), stretch_of(gathered, stretches.order.back()));
        }
        return before;
    }
    /// The gradients that the tokens behind each stretch give its last ones: the adjoint.
    Gradient backward(Gradient const& d_before, Stretches const& stretches,
                                 AtSlice<Slices> const& slices) const {
        auto const& context = d_before.context();
        if (passes(stretches, slices)) {
            Gradient const after(context, d_before.extents());
            shift(along(context), -1, d_before, after);
            return after;
        }
        Tensor<GatheredGradient, Exec> d_gathered(context, d_before.extents());
        d_gathered.clear();
        auto const mine = static_cast<std::size_t>(along(context).rank());
        if (slices.is_cut())
            if (auto const d_last = std::exchange(slices.memory->d_last, {}); !d_last.empty())
                copy(context, stretch_of(d_gathered, stretches.order.back()), stretch_of(d_last, 0));
        for (std::size_t i = 0; i < stretches.order.size(); ++i) {
            if (stretches.order[i] / stretches.here != mine) continue;
            auto const own = stretch_of(d_before, stretches.order[i] % stretches.here);
            if (i > 0) {
                copy(context, stretch_of(d_gathered, stretches.order[i - 1]), own);
            } else if (!slices.is_first()) {
                slices.memory->d_last = of_one<GatheredGradient>(context, d_before.extents());
                copy(context, stretch_of(slices.memory->d_last, 0), own);
            }
        }
        return redistribute<with_element_t<dual_t<layout>, A>>(std::move(d_gathered));
    }

  private:
    static comm::Communicator const& along(Context<Exec> const& context) {
        return context.communicators().along(AxisNames(cp::name));
    }
    static bool passes(Stretches const& stretches, AtSlice<Slices> const& slices) {
        return !slices.is_cut() && stretches.is_contiguous();
    }
    /// Of these extents but for the stretches, of which it has one.
    template <class L>
    static Tensor<L, Exec> of_one(Context<Exec> const& context, std::array<std::size_t, 4> extents) {
        extents[1] = 1;
        return {context, extents};
    }
    template <class V>
    auto of_tokens(V const& view, std::size_t first) const {
        return Kokkos::subview(view, Kokkos::ALL, std::pair(first, first + tokens_), Kokkos::ALL);
    }
    template <class L>
    static auto stretch_of(Tensor<L, Exec> const& tensor, std::size_t i) {
        return Kokkos::subview(tensor.view(), Kokkos::ALL, i, Kokkos::ALL, Kokkos::ALL);
    }
    template <class To, class From>
    static void copy(Context<Exec> const& context, To const& to, From const& from) {
        memory::copy("halo", context.exec(), memory::runs_between(to, from), to.data(), from.data());
    }
    template <class To>
    static void clear(Context<Exec> const& context, To const& to) {
        if (!kernels::dry("clear", to)) Kokkos::deep_copy(context.exec(), to, typename To::value_type(0));
    }
    template <class L>
    static void shift(comm::Communicator const& comm, int direction, Tensor<L, Exec> const& leaving,
                      Tensor<L, Exec> const& arriving) {
        auto const& exec = leaving.context().exec();
        if (auto* const run = detail::run_for_all()) { // all but the last rank do this
            double const share = (comm.size() - 1.0) / comm.size();
            if (comm.size() > 1)
                comm::detail::dry_send(*run, comm,
                                       share * static_cast<double>(leaving.size() * sizeof(typename L::element)),
                                       !comm.nodes().is_here((comm.rank() + 1) % comm.size()));
            return;
        }
        int const from = comm.rank() - direction, to = comm.rank() + direction;
        auto const is_rank = [&](int rank) { return rank >= 0 && rank < comm.size(); };
        using Receive = decltype(comm::start_receive(exec, comm, arriving.flat(), 0));
        std::optional<Receive> receiving;
        if (is_rank(from)) receiving.emplace(comm::start_receive(exec, comm, arriving.flat(), from));
        if (is_rank(to)) comm::send(exec, comm, leaving.flat(), to);
        if (receiving)
            receiving->wait();
        else
            arriving.clear();
    }

    std::size_t tokens_;
};

} // namespace pentad::context
