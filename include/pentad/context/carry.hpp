// What a recurrent layer carries along a sequence that is dealt to the ranks of cp, and cut into slices: from the state
// that each stretch's tokens leave from zero, the state before them. For linear attention and state-space models alike.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/context/detail/carried_states.hpp>
#include <pentad/context/detail/route.hpp>
#include <pentad/kernels/dry.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/stretches.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::context {

using namespace ml;

/// How states go along the ranks.
enum class Carrying {
    passed,  ///< from one to the next (LASP: Sun et al. 2024, arXiv 2404.02882): least bytes, one after the other
    gathered ///< all to all, which merge them (LASP-2: Sun et al. 2025, arXiv 2502.07563)
};

/// States of heads, one for each stretch, and what they decay by.
template <class A>
using HeadStates = Layout<A, Dims<Dim<batch, dynamic, dp>, Dim<stretch, dynamic, cp>, Dim<heads, dynamic, tp>,
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

/// With S_i the state that the tokens of stretch i leave from zero and a_i their total log decay, the state before
/// these tokens is
///
///     H_i = sum over j < i of exp(a_{j+1} + ... + a_{i-1}) S_j
///
/// States are `[batch, stretch@cp, rows, ...]`, with the stretches of each rank (layout/stretches.hpp); decays have the
/// first three dimensions of these. An empty tensor of decays: nothing decays. A decay of -infinity: the state is that
/// of the stretch before alone. The recurrence is evaluated in the same order on all ranks, whichever way states go.
/// Where ranks do not hold one stretch each that follows that of the rank before, and in slices, states are gathered.
/// @tparam State a layout, in accumulators, such as HeadStates
template <class State, class Exec>
class Carry {
  public:
    using A = typename State::element;
    using Decay = typename detail::StateDecays<State>::type;
    using Gathered = unsharded_t<State, cp>;
    /// What the forward pass leaves for the backward pass.
    struct Saved {
        Tensor<State, Exec> before;
        Tensor<Decay, Exec> decay;
        Tensor<unsharded_t<Decay, cp>, Exec> decays; ///< of all ranks, where they are gathered
    };
    struct Gradients {
        Tensor<dual_t<State>, Exec> state;
        Tensor<dual_t<Decay>, Exec> decay; ///< empty where nothing decays
    };
    /// The memory of sequences that are cut: the state behind each slice, which every rank of cp has, and this rank's
    /// summand of the gradient of the state behind the slice whose backward pass is next.
    struct Slices {
        std::vector<Tensor<Gathered, Exec>> behind;
        Tensor<dual_t<Gathered>, Exec> d_behind;
    };

    explicit Carry(Carrying carrying) : carrying_(carrying) {}
    /// As the setup's attention has keys and values: gathered, or from rank to rank.
    explicit Carry(LayerSetup<Exec> const& setup)
        : Carry(setup.block.context == ContextStrategy::all_gather ? Carrying::gathered : Carrying::passed) {}

    /// The state before each of this rank's stretches; zero before the first. Collective over cp, as the backward pass.
    Tensor<State, Exec> forward(Tensor<State, Exec> const& state, Tensor<Decay, Exec> const& decay,
                                Stretches const& stretches, AtSlice<Slices> const& slices, Saved& saved) const {
        saved = {{state.context(), state.extents()}, decay, {}};
        if (passes(stretches, slices))
            pass(along(state.context()), 1, state, decay, saved.before);
        else
            merge(state, decay, stretches, slices, saved);
        return saved.before;
    }

    /// The gradients of the states that the tokens leave, and of their decays, from those of the states before tokens.
    ///
    /// The gradient of a stretch's state is that of the state behind its tokens: a scan whose backward pass takes it as
    /// that of its final state, with H_i as the initial one, includes in its own gradient of decays what `decay` is
    /// here.
    Gradients backward(Tensor<dual_t<State>, Exec> const& d_before, Stretches const& stretches,
                       AtSlice<Slices> const& slices, Saved& saved) const {
        auto const& context = d_before.context();
        Gradients gradients;
        if (passes(stretches, slices)) {
            gradients.state = {context, d_before.extents()};
            pass(along(context), -1, d_before, saved.decay, gradients.state);
        } else {
            gradients.state = spread(d_before, stretches, slices, saved);
        }
        if (!saved.decay.empty()) {
            gradients.decay = {context, saved.decay.extents()};
            if (!kernels::dry("decay_gradient", saved.before.flat(), gradients.state.flat(), saved.decay.flat(),
                              gradients.decay.flat()))
                detail::decay_gradient<A>(context.exec(), saved.decay.size(), sizes(saved.before).width,
                                          saved.before.data(), saved.decay.data(), gradients.state.data(),
                                          gradients.decay.data());
        }
        saved = {};
        return gradients;
    }

  private:
    static comm::Communicator const& along(Context<Exec> const& context) {
        return context.communicators().along(AxisNames(cp::name));
    }
    [[nodiscard]] bool passes(Stretches const& stretches, AtSlice<Slices> const& slices) const {
        return carrying_ == Carrying::passed && !slices.is_cut() && stretches.is_contiguous();
    }
    template <class L>
    static detail::CarriedSizes sizes(Tensor<L, Exec> const& states) {
        auto const& local = states.local();
        std::size_t const rows = local[2], outer = local[0] * local[1] * rows;
        return {local[0], rows, outer == 0 ? 0 : states.size() / outer};
    }

    /// What arrives from the rank before, in the direction, goes on decayed, with what is this rank's own.
    template <class L>
    static void pass(comm::Communicator const& comm, int direction, Tensor<L, Exec> const& own,
                     Tensor<Decay, Exec> const& decay, Tensor<L, Exec> const& arriving) {
        auto const& exec = own.context().exec();
        int const from = comm.rank() - direction, to = comm.rank() + direction;
        if (auto* const run = observe::dry_run_for_all()) {
            auto const bytes = static_cast<double>(own.size() * sizeof(A));
            Tensor<L, Exec> const leaving(own.context(), own.extents());
            run->pass("pass_states", 3 * bytes * (comm.size() - 1.0) / comm.size());
            return detail::dry_pass_on(*run, comm, bytes);
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

    /// A state of one stretch, of these extents but for that: a copy of what is given, or zeros.
    template <class L>
    static Tensor<L, Exec> running(Context<Exec> const& context, typename Tensor<L, Exec>::extents_type extents,
                                   Tensor<L, Exec> const& given) {
        extents[1] = 1;
        Tensor<L, Exec> const run(context, extents);
        if (given.empty())
            run.clear();
        else
            memory::copy(context.exec(), run.array_data(), given.array_data(), run.size() * sizeof(A));
        return run;
    }

    static void merge(Tensor<State, Exec> const& state, Tensor<Decay, Exec> const& decay, Stretches const& stretches,
                      AtSlice<Slices> const& slices, Saved& saved) {
        auto const& context = state.context();
        auto const mine = static_cast<std::size_t>(along(context).rank());
        auto const run =
            running<Gathered>(context, state.extents(),
                              slices.is_first() ? Tensor<Gathered, Exec>() : slices.memory->behind[slices.index - 1]);
        auto const gathered = redistribute<Gathered>(state);
        if (!decay.empty()) saved.decays = redistribute<unsharded_t<Decay, cp>>(decay);
        std::size_t end = stretches.order.size(); // without slices, nobody here needs what is behind this rank's last
        while (!slices.is_cut() && stretches.order[end - 1] / stretches.here != mine) --end;
        auto const count = static_cast<i64>(stretches.order.size());
        if (!kernels::dry("merge_states", gathered.flat(), saved.before.flat()))
            for (std::size_t i = 0; i < end; ++i) {
                std::size_t const at = stretches.order[i];
                bool const is_own = at / stretches.here == mine;
                detail::advance<A>(context.exec(), sizes(run), gathered.data(), saved.decays.data(),
                                   {static_cast<i64>(at), count}, run.data(), is_own ? saved.before.data() : nullptr,
                                   {static_cast<i64>(at % stretches.here), static_cast<i64>(stretches.here)});
            }
        if (slices.is_cut()) {
            slices.memory->behind.resize(std::max(slices.memory->behind.size(), slices.index + 1));
            slices.memory->behind[slices.index] = run;
        }
    }
    /// The adjoint: of the gather by its plan.
    static Tensor<dual_t<State>, Exec> spread(Tensor<dual_t<State>, Exec> const& d_before, Stretches const& stretches,
                                              AtSlice<Slices> const& slices, Saved const& saved) {
        auto const& context = d_before.context();
        auto const mine = static_cast<std::size_t>(along(context).rank());
        auto const run = running<dual_t<Gathered>>(
            context, d_before.extents(), slices.is_cut() ? slices.memory->d_behind : Tensor<dual_t<Gathered>, Exec>());
        Tensor<dual_t<Gathered>, Exec> d_gathered(context, d_before.extents());
        auto const count = static_cast<i64>(stretches.order.size());
        if (!kernels::dry("spread_gradient", d_before.flat(), d_gathered.array_flat()))
            for (std::size_t i = stretches.order.size(); i-- > 0;) {
                std::size_t const at = stretches.order[i];
                bool const is_own = at / stretches.here == mine;
                detail::retreat<A>(context.exec(), sizes(run), saved.decays.data(), {static_cast<i64>(at), count},
                                   run.array_data(), d_gathered.array_data(), is_own ? d_before.data() : nullptr,
                                   {static_cast<i64>(at % stretches.here), static_cast<i64>(stretches.here)});
            }
        if (slices.is_cut() && slices.is_first())
            *slices.memory = {};
        else if (slices.is_cut())
            slices.memory->d_behind = run;
        return redistribute<dual_t<State>>(std::move(d_gathered));
    }

    Carrying carrying_;
};

} // namespace pentad::context
