// The last tokens of the rank before, along a sequence that is sharded over cp: what a causal convolution looks back
// at. A halo of one side.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/context/detail/route.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

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

/// Sends per rank: forward the last tokens to the next rank, backward their gradients to the rank before.
/// @tparam X a layout [batch, seq@cp, channels]; its halo is [batch, stretch@cp, tokens, channels], with as many
/// stretches as ranks of cp
template <class X, class Exec>
class Halo {
  public:
    using T = typename X::element;
    using layout = typename detail::HaloOf<X>::type;
    template <class E>
    using Gradient = Tensor<with_element_t<dual_t<layout>, E>, Exec>;

    /// @param tokens of the halo
    /// @throws std::invalid_argument where the ranks of cp do not hold one contiguous part of the sequence each, of so
    /// many tokens at least
    Halo(LayerSetup<Exec> const& setup, std::size_t tokens) : tokens_(tokens) {
        auto const ranks = static_cast<std::size_t>(setup.context.communicators().extent("cp"));
        if (setup.slices != 1 || !setup.partition().is_contiguous())
            throw std::invalid_argument("halos are along sequences that lie contiguous over cp, in one slice");
        if (setup.seq / ranks < tokens)
            throw std::invalid_argument("a halo of " + std::to_string(tokens) + " tokens, where a rank of cp has " +
                                        std::to_string(setup.seq / ranks) + " of them: use fewer ranks of cp");
    }

    /// The tokens in front of this rank's; zeros on the first. Collective over cp, as the backward pass.
    Tensor<layout, Exec> forward(Tensor<X, Exec> const& x) const {
        auto const& context = x.context();
        auto const ranks = static_cast<std::size_t>(along(context).size());
        typename Tensor<layout, Exec>::extents_type const extents{x.extents()[0], ranks, tokens_, x.extents()[2]};
        Tensor<layout, Exec> const last(context, extents), before(context, extents);
        auto const [sequences, length, channels] = x.local();
        View<T, 3, Exec> const to(last.data(), sequences, tokens_, channels);
        auto const from =
            Kokkos::subview(x.view(), Kokkos::ALL, std::pair(length - tokens_, length), Kokkos::ALL);
        memory::copy("halo", context.exec(), memory::runs_between(to, from), to.data(), from.data());
        shift(along(context), 1, last, before);
        return before;
    }
    /// The gradients that the tokens of the next rank give the last of this rank's: the adjoint.
    template <class E>
    Gradient<E> backward(Gradient<E> const& d_before) const {
        Gradient<E> const after(d_before.context(), d_before.extents());
        shift(along(d_before.context()), -1, d_before, after);
        return after;
    }

  private:
    static comm::Communicator const& along(Context<Exec> const& context) {
        return context.communicators().along(AxisNames(cp::name));
    }
    template <class L>
    static void shift(comm::Communicator const& comm, int direction, Tensor<L, Exec> const& leaving,
                      Tensor<L, Exec> const& arriving) {
        auto const& exec = leaving.context().exec();
        int const from = comm.rank() - direction, to = comm.rank() + direction;
        if (auto* const run = detail::run_for_all()) {
            double const share = (comm.size() - 1.0) / comm.size();
            if (comm.size() > 1)
                comm::detail::dry_send(*run, comm,
                                       share * static_cast<double>(leaving.size() * sizeof(typename L::element)),
                                       !comm.nodes().is_here((comm.rank() + 1) % comm.size()));
            return;
        }
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
