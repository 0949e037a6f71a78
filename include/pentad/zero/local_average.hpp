// The average of a bucket's parameters over groups of ranks that have trained apart: a redistribution from summands to
// the same on all, and with an outer optimizer what becomes of it.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layout/local_steps.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <cstddef>
#include <utility>

namespace pentad::zero {

/// @tparam StateLayout of this rank's shard of the parameters, in accumulators
template <class StateLayout, class Exec>
class LocalAverage {
  public:
    using A = typename StateLayout::element;
    using Shard = Tensor<StateLayout, Exec>;

    LocalAverage() = default;
    /// @param plan from summands over the groups to their sum
    LocalAverage(LocalSteps const& local, PlanValue const& plan, int groups)
        : local_(local), plan_(plan), share_(A(1) / static_cast<A>(groups)) {}

    /// To be called before parameters that all groups share are changed: notes them for the outer optimizer.
    void begin(Shard const& parameters) {
        if (!local_.has_outer_optimizer() || !anchor_.empty()) return;
        anchor_ = copy_of(parameters);
    }
    /// Forgets them: the parameters are others.
    void forget() { anchor_ = {}; }
    /// The parameters of the groups, in accumulators, become the same. Collective.
    void average(Shard const& parameters) {
        auto const& exec = parameters.context().exec();
        if (!local_.has_outer_optimizer()) {
            auto own = copy_of(parameters);
            copy(parameters, mean(std::move(own)));
            return;
        }
        // Reddi et al. 2021, algorithm 1, with Nesterov momentum: the pseudo-gradient is where the groups began less
        // where they are.
        auto step = copy_of(parameters);
        kernels::scale<A>(exec, step.flat(), A(-1));
        kernels::add<A>(exec, anchor_.flat(), step.flat());
        step = mean(std::move(step));
        if (local_.outer_momentum != 0) {
            auto const decay = static_cast<A>(local_.outer_momentum);
            if (momentum_.empty()) {
                momentum_ = Shard(parameters.context(), {parameters.size()}, observe::Memory::optimizer);
                momentum_.clear();
            }
            kernels::scale<A>(exec, momentum_.flat(), decay);
            kernels::add<A>(exec, step.flat(), momentum_.flat());
            auto const ahead = copy_of(momentum_);
            kernels::scale<A>(exec, ahead.flat(), decay);
            kernels::add<A>(exec, ahead.flat(), step.flat());
        }
        kernels::scale<A>(exec, step.flat(), static_cast<A>(-local_.outer_learning_rate));
        kernels::add<A>(exec, step.flat(), anchor_.flat());
        copy(parameters, anchor_);
    }

  private:
    static void copy(Shard const& to, Shard const& from) {
        memory::copy(to.context().exec(), to.data(), from.data(), from.size() * sizeof(A));
    }
    static Shard copy_of(Shard const& x) {
        Shard own(x.context(), {x.size()}, observe::Memory::optimizer);
        copy(own, x);
        return own;
    }
    /// Over the groups. Takes the only handle.
    Shard mean(Shard own) const {
        auto const& context = own.context();
        kernels::scale<A>(context.exec(), own.flat(), share_);
        auto shard = pentad::detail::shard_of(own);
        own = {};
        shard = pentad::detail::carry_out(context, plan_, std::move(shard));
        return Shard::unchecked(context, {shard.local[0]}, std::move(shard.block), shard.data);
    }

    LocalSteps local_;
    PlanValue plan_;
    A share_ = 1;
    Shard anchor_, momentum_; ///< of the outer optimizer: where the groups began, and its momentum
};

} // namespace pentad::zero
