// What a recurrent layer carries along a sequence that is sharded over cp: from the state that each rank's tokens leave
// from zero, the state before them. For linear attention and state-space models alike.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/context/detail/carried_states.hpp>
#include <pentad/context/detail/route.hpp>
#include <pentad/kernels/dry.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace pentad::context {

/// How states go along the ranks.
enum class Carrying {
    passed,  ///< from one to the next (LASP: Sun et al. 2024, arXiv 2404.02882): least bytes, one after the other
    gathered ///< all to all, which merge them (LASP-2: Sun et al. 2025, arXiv 2502.07563)
};

/// States of heads, one for each rank of cp, and what they decay by.
template <class A>
using HeadStates = Layout<A, Dims<Dim<batch, dynamic, dp, ep>, Dim<stretch, dynamic, cp>, Dim<heads, dynamic, tp>,
                                  Dim<state_dim>, Dim<head_dim>>>;

namespace detail {

template <class L>
struct StateDecays;
template <class A, class Batch, class Stretch, class Rows, class... Rest, class... Axes>
struct StateDecays<Layout<A, Dims<Batch, Stretch, Rows, Rest...>, Axes...>> {
    static_assert(std::is_same_v<Stretch, Dim<stretch, dynamic, cp>>,
                  "states that are carried have Dim<stretch, dynamic, cp> as their second dimension");
    using type = Layout<A, Dims<Batch, Stretch, Rows>, Axes...>;
};

} // namespace detail

/// With S_r the state that rank r's tokens leave from zero and a_r their total log decay, the state before its tokens
/// is
///
///     H_r = sum over j < r of exp(a_{j+1} + ... + a_{r-1}) S_j
///
/// States are `[batch, stretch@cp, rows, ...]` with as many stretches as ranks of cp; decays have the first three
/// dimensions of these. An empty tensor of decays: nothing decays. A decay of -infinity: the state is the rank
/// before's. The recurrence is evaluated in the same order on all ranks, whichever way states go.
/// @tparam State a layout, in accumulators, such as HeadStates
template <class State, class Exec>
class Carry {
  public:
    using A = typename State::element;
    using Decay = typename detail::StateDecays<State>::type;
    /// What the forward pass leaves for the backward pass.
    struct Saved {
        Tensor<State, Exec> initial;
        Tensor<Decay, Exec> decay;
        Tensor<unsharded_t<Decay, cp>, Exec> decays; ///< of all ranks, where they are gathered
    };
    struct Gradients {
        Tensor<dual_t<State>, Exec> state;
        Tensor<dual_t<Decay>, Exec> decay; ///< empty where nothing decays
    };

    /// @throws std::invalid_argument where the ranks of cp do not hold one contiguous part of the sequence each
    Carry(LayerSetup<Exec> const& setup, Carrying carrying) : carrying_(carrying) {
        if (setup.slices != 1 || !setup.partition().is_contiguous())
            throw std::invalid_argument("states are carried along sequences that lie contiguous over cp, in one slice");
    }
    /// As the setup's attention has keys and values: gathered, or from rank to rank.
    explicit Carry(LayerSetup<Exec> const& setup)
        : Carry(setup, setup.context_strategy == ContextStrategy::all_gather ? Carrying::gathered : Carrying::passed) {}

    /// The state before each rank's tokens; zero on the first. Collective over cp, as the backward pass.
    Tensor<State, Exec> forward(Tensor<State, Exec> const& state, Tensor<Decay, Exec> const& decay,
                                Saved& saved) const {
        saved = {{state.context(), state.extents()}, decay, {}};
        if (carrying_ == Carrying::passed)
            pass(along(state.context()), 1, state, decay, saved.initial);
        else
            merge(state, decay, saved);
        return saved.initial;
    }

    /// The gradients of the states that the tokens leave, and of their decays, from those of the states before tokens.
    ///
    /// The gradient of a rank's state is that of the state behind its tokens: a scan whose backward pass takes it as
    /// that of its final state, with H_r as the initial one, includes in its own gradient of decays what `decay` is
    /// here.
    Gradients backward(Tensor<dual_t<State>, Exec> const& d_initial, Saved& saved) const {
        auto const& context = d_initial.context();
        Gradients gradients;
        if (carrying_ == Carrying::passed) {
            gradients.state = {context, d_initial.extents()};
            pass(along(context), -1, d_initial, saved.decay, gradients.state);
        } else {
            gradients.state = spread(d_initial, saved);
        }
        if (!saved.decay.empty()) {
            gradients.decay = {context, saved.decay.extents()};
            if (!kernels::dry("decay_gradient", saved.initial.flat(), gradients.state.flat(), saved.decay.flat(),
                              gradients.decay.flat()))
                detail::decay_gradient<A>(context.exec(), sizes(saved.initial), saved.initial.data(),
                                          saved.decay.data(), gradients.state.data(), gradients.decay.data());
        }
        saved = {};
        return gradients;
    }

  private:
    using Gathered = unsharded_t<State, cp>;

    static comm::Communicator const& along(Context<Exec> const& context) {
        return context.communicators().along(AxisNames(cp::name));
    }
    template <class L>
    static detail::CarriedSizes sizes(Tensor<L, Exec> const& states) {
        auto const& local = states.local();
        std::size_t const rows = local[2];
        return {local[0], rows, states.size() / (local[0] * local[1] * rows)};
    }

    /// What arrives from the rank before, in the direction, goes on decayed, with what is this rank's own.
    template <class L>
    static void pass(comm::Communicator const& comm, int direction, Tensor<L, Exec> const& own,
                     Tensor<Decay, Exec> const& decay, Tensor<L, Exec> const& arriving) {
        auto const& exec = own.context().exec();
        int const from = comm.rank() - direction, to = comm.rank() + direction;
        if (auto* const run = detail::run_for_all()) { // all but the last rank do this
            double const share = (comm.size() - 1.0) / comm.size();
            Tensor<L, Exec> const leaving(own.context(), own.extents());
            run->pass("pass_states", share * 3 * static_cast<double>(own.size() * sizeof(A)));
            if (comm.size() > 1)
                comm::detail::dry_send(*run, comm, share * static_cast<double>(own.size() * sizeof(A)),
                                       !comm.nodes().is_here((comm.rank() + 1) % comm.size()));
            return;
        }
        auto const is_rank = [&](int rank) { return rank >= 0 && rank < comm.size(); };
        if (is_rank(from))
            comm::receive(exec, comm, arriving.flat(), from);
        else
            arriving.clear();
        if (!is_rank(to)) return;
        Tensor<L, Exec> const leaving(own.context(), own.extents());
        if (!kernels::dry("pass_states", own.flat(), arriving.flat(), leaving.flat()))
            detail::pass_states<A>(exec, sizes(own), own.data(), decay.data(), arriving.data(), leaving.data());
        comm::send(exec, comm, leaving.flat(), to);
    }

    static void merge(Tensor<State, Exec> const& state, Tensor<Decay, Exec> const& decay, Saved& saved) {
        auto const& context = state.context();
        auto const gathered = redistribute<Gathered>(state);
        if (!decay.empty()) saved.decays = redistribute<unsharded_t<Decay, cp>>(decay);
        if (kernels::dry("merge_states", gathered.flat(), saved.initial.flat())) return;
        detail::merge_states<A>(context.exec(), sizes(gathered), static_cast<i64>(gathered.local()[1]),
                                along(context).rank(), gathered.data(), saved.decays.data(), saved.initial.data());
    }
    /// The adjoint: of the gather by its plan.
    static Tensor<dual_t<State>, Exec> spread(Tensor<dual_t<State>, Exec> const& d_initial, Saved const& saved) {
        auto const& context = d_initial.context();
        Tensor<dual_t<Gathered>, Exec> d_gathered(context, d_initial.extents());
        if (!kernels::dry("spread_gradient", d_initial.flat(), d_gathered.flat()))
            detail::spread_gradient<A>(context.exec(), sizes(d_gathered), static_cast<i64>(d_gathered.local()[1]),
                                       along(context).rank(), d_initial.data(), saved.decays.data(), d_gathered.data());
        return redistribute<dual_t<State>>(std::move(d_gathered));
    }

    Carrying carrying_;
};

} // namespace pentad::context
