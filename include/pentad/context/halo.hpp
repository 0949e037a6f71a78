// The tokens in front of each stretch of a sequence that is dealt to the ranks of cp, and cut into slices: what a
// causal convolution looks back at. A halo of one side.
#pragma once

#include <pentad/comm/ring.hpp>
#include <pentad/context/detail/route.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/stretches.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::context {

using namespace ml;

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
/// @tparam X a layout `[batch, seq@cp, channels]`; its halo is `[batch, stretch@cp, tokens, channels]`
template <class X, class Exec>
class Halo {
  public:
    using T = typename X::element;
    using A = accumulator_t<T>;
    using layout = typename detail::HaloOf<X>::type;
    using Gathered = unsharded_t<layout, cp>;
    using Gradient = Tensor<with_element_t<dual_t<layout>, A>, Exec>;
    using GatheredGradient = with_element_t<dual_t<Gathered>, A>;

    /// The memory of sequences that are cut: the last tokens up to each slice, which every rank of cp has, and this
    /// rank's summand of the gradients of the last tokens up to the slice whose backward pass is next.
    struct Slices {
        std::vector<Tensor<Gathered, Exec>> last;
        Tensor<GatheredGradient, Exec> d_last;
    };

    explicit Halo(std::size_t tokens) : tokens_(tokens) {}

    /// The tokens in front of each of this rank's stretches; zeros where there are none. Collective over cp, as the
    /// backward pass.
    Tensor<layout, Exec> forward(Tensor<X, Exec> const& x, Stretches const& stretches,
                                 AtSlice<Slices> const& slices) const {
        auto const& context = x.context();
        std::size_t const kept = std::min(tokens_, stretches.length), all = x.local()[0] * stretches.here;
        std::array<std::size_t, 4> extents{x.extents()[0], stretches.order.size(), kept, x.extents()[2]};
        Tensor<layout, Exec> const last(context, extents);
        View<T, 3, Exec> const to(last.data(), all, kept, x.local()[2]),
            whole(x.data(), all, stretches.length, x.local()[2]);
        copy(context, to,
             Kokkos::subview(whole, Kokkos::ALL, std::pair(stretches.length - kept, stretches.length), Kokkos::ALL));
        extents[2] = tokens_;
        Tensor<layout, Exec> const before(context, extents);
        if (passes(stretches, slices)) {
            shift(along(context), 1, last, before);
            return before;
        }
        auto const gathered = redistribute<Gathered>(last);
        auto const fill = [&](auto const& target, std::size_t stretch, std::size_t place) {
            for_each_source(stretches, slices, place, [&](Source const& source) {
                auto const part = tokens_of(target, stretch, source.to, source.count);
                if (source.kind == Source::none)
                    clear(context, part);
                else if (source.kind == Source::slice)
                    copy(context, part, tokens_of(slices.memory->last[slices.index - 1], 0, source.from, source.count));
                else
                    copy(context, part, tokens_of(gathered, source.stretch, source.from, source.count));
            });
        };
        for_each_own(context, stretches, [&](std::size_t place, std::size_t stretch) { fill(before, stretch, place); });
        if (slices.is_cut()) {
            auto& up_to = slices.memory->last;
            up_to.resize(std::max(up_to.size(), slices.index + 1));
            up_to[slices.index] = of_one<Gathered>(context, extents);
            fill(up_to[slices.index], 0, stretches.order.size());
        }
        return before;
    }
    /// The gradients that the tokens behind each stretch give its last ones, min(tokens, those of a stretch): the
    /// adjoint.
    Gradient backward(Gradient const& d_before, Stretches const& stretches, AtSlice<Slices> const& slices) const {
        auto const& context = d_before.context();
        auto extents = d_before.extents();
        extents[2] = std::min(tokens_, stretches.length);
        if (passes(stretches, slices)) {
            Gradient const after(context, extents);
            shift(along(context), -1, d_before, after);
            return after;
        }
        Tensor<GatheredGradient, Exec> d_gathered(context, extents);
        d_gathered.clear();
        Tensor<GatheredGradient, Exec> d_last, d_earlier; // up to this slice, and to the one before
        if (slices.is_cut()) d_last = std::exchange(slices.memory->d_last, {});
        if (!slices.is_first()) {
            d_earlier = of_one<GatheredGradient>(context, d_before.extents());
            d_earlier.clear();
        }
        auto const add_back = [&](auto const& gradient, std::size_t stretch, std::size_t place) {
            for_each_source(stretches, slices, place, [&](Source const& source) {
                auto const part = tokens_of(gradient, stretch, source.to, source.count);
                if (source.kind == Source::slice)
                    add(context, tokens_of(d_earlier, 0, source.from, source.count), part);
                else if (source.kind == Source::own)
                    add(context, tokens_of(d_gathered, source.stretch, source.from, source.count), part);
            });
        };
        if (!d_last.empty()) add_back(d_last, 0, stretches.order.size());
        for_each_own(context, stretches,
                     [&](std::size_t place, std::size_t stretch) { add_back(d_before, stretch, place); });
        if (slices.is_cut() && slices.is_first())
            *slices.memory = {};
        else if (slices.is_cut())
            slices.memory->d_last = d_earlier;
        return redistribute<with_element_t<dual_t<layout>, A>>(std::move(d_gathered));
    }

  private:
    /// Where some tokens of a halo come from: tokens [from, from + count) of the last ones of a stretch, or of those up
    /// to the slice before, or nothing.
    struct Source {
        enum Kind { own, slice, none } kind;
        std::size_t stretch, from, to, count;
    };

    static comm::Communicator const& along(Context<Exec> const& context) {
        return context.communicators().along(AxisNames(cp::name));
    }
    [[nodiscard]] bool passes(Stretches const& stretches, AtSlice<Slices> const& slices) const {
        return !slices.is_cut() && stretches.is_contiguous() && stretches.length >= tokens_;
    }
    /// f(place in the order, stretch of this rank)
    template <class F>
    static void for_each_own(Context<Exec> const& context, Stretches const& stretches, F&& f) {
        auto const mine = static_cast<std::size_t>(along(context).rank());
        for (std::size_t i = 0; i < stretches.order.size(); ++i)
            if (stretches.order[i] / stretches.here == mine) f(i, stretches.order[i] % stretches.here);
    }
    /// The sources of the tokens in front of place `place` of the order, from the nearest on.
    template <class F>
    void for_each_source(Stretches const& stretches, AtSlice<Slices> const& slices, std::size_t place, F&& f) const {
        std::size_t const kept = std::min(tokens_, stretches.length);
        std::size_t left = tokens_;
        while (left > 0 && place > 0) {
            std::size_t const count = std::min(left, kept);
            f(Source{Source::own, stretches.order[--place], kept - count, left - count, count});
            left -= count;
        }
        if (left > 0) f(Source{slices.is_first() ? Source::none : Source::slice, 0, tokens_ - left, 0, left});
    }
    /// A tensor of these extents, but with one stretch.
    template <class L>
    static Tensor<L, Exec> of_one(Context<Exec> const& context, std::array<std::size_t, 4> extents) {
        extents[1] = 1;
        return {context, extents};
    }
    template <class L>
    static auto tokens_of(Tensor<L, Exec> const& tensor, std::size_t stretch, std::size_t first, std::size_t count) {
        return Kokkos::subview(tensor.array(), Kokkos::ALL, stretch, std::pair(first, first + count), Kokkos::ALL);
    }
    template <class To, class From>
    static void copy(Context<Exec> const& context, To const& to, From const& from) {
        memory::copy("halo", context.exec(), memory::runs_between(to, from), to.data(), from.data());
    }
    template <class To>
    static void clear(Context<Exec> const& context, To const& to) {
        if (!kernels::dry("clear", to)) comm::detail::clear(context.exec(), to);
    }
    template <class To, class From>
    static void add(Context<Exec> const& context, To const& to, From const& from) {
        comm::detail::add(context.exec(), to, from);
    }
    template <class L>
    static void shift(comm::Communicator const& comm, int direction, Tensor<L, Exec> const& leaving,
                      Tensor<L, Exec> const& arriving) {
        auto const& exec = leaving.context().exec();
        if (auto* const run = observe::dry_run_for_all())
            return detail::dry_pass_on(*run, comm, static_cast<double>(leaving.size() * sizeof(typename L::element)));
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
