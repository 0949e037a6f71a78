// Buckets: parameters that are synchronised alike, flat and in one piece, with their gradients and optimizer state.
// What a bucket sends are the plans between its layouts, which follow from those of its parameters, whatever axes these
// name.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/zero/layouts.hpp>
#include <pentad/zero/local_average.hpp>
#include <pentad/zero/optimizer.hpp>
#include <pentad/zero/reduction.hpp>
#include <pentad/zero/stack_moves.hpp>
#include <pentad/zero/weight_bucket.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace pentad::zero {

using namespace ml;

template <class T, class Exec>
class Bucket : public WeightBucket<T, Exec> {
    using Base = WeightBucket<T, Exec>;
    using Base::context_, Base::layouts_, Base::pieces_, Base::size_, Base::extent_, Base::stored_, Base::updates_,
        Base::versions_, Base::exact_;
    using Base::range, Base::newest;
    using typename Base::Piece, typename Base::Range;

  public:
    using A = accumulator_t<T>;
    using Base::drop_values;

    /// Collective over the ranks of its plans.
    /// @param optimizer of its parameters; where it works on whole matrices, all of them are such
    /// @param is_own whether its parameters have this optimizer of their own
    Bucket(Context<Exec> const& context, BucketLayouts const& layouts, ZeroSharding const& sharding,
           model::Optimizer const& optimizer, LocalSteps const& local = {}, model::Precision const& precision = {},
           bool is_own = false)
        : Base(context, layouts, is_own, sharding.keeps_parameters), sharding_(sharding), is_own_(is_own),
          optimizer_settings_(optimizer), precision_(is_own ? model::Precision{} : precision) {
        if (local.is_on()) {
            int const groups = context.communicators().extent(outer<dp>::name);
            auto how = local;
            if (is_own) how.outer_learning_rate = 1, how.outer_momentum = 0; // the mean
            if (groups > 1) average_.emplace(how, layouts_.averaging, groups);
        }
        // Not a list in the loop: nvcc garbles one of dependent names.
        std::array<PlanValue const*, 5> const plans{&layouts_.accumulation, &layouts_.reduction, &layouts_.storing,
                                                    &layouts_.exporting, &layouts_.averaging};
        for (auto const* const plan : plans) pentad::detail::prepare(context, *plan);
    }
    /// Parts of the model that add to its gradients, once for each micro-batch.
    void add_users(std::size_t users) { users_ += users; }
    /// To be called when it has all of its parameters. @param versions of the weights that are kept, the newest
    /// included @param offloaded where the optimizer's state is; null: in memory @param seed of stochastic rounding
    void allocate(std::size_t versions, OffloadedStates<Exec>* offloaded = nullptr, std::uint64_t seed = 0) {
        this->allocate_values(versions);
        decaying_ = 0;
        for (auto const& piece : pieces_)
            if (piece.parameter->decays()) decaying_ = piece.offset + piece.parameter->size();
        state_ = range(layouts_.state);
        sum_range_ = range(layouts_.sum);
        if (!sharding_.has_temporary_gradients()) bring_gradients();
        optimizer_ = Optimizer<Whole<A>, T, Exec>(*context_, state_.extent, optimizer_settings_, precision_,
                                                  weight_rounding(seed), offloaded);
        if (auto const* const muon = std::get_if<model::Muon>(&optimizer_settings_)) {
            matrices_.emplace(*context_, layouts_, *muon);
            for (auto const& piece : pieces_) matrices_->add(*piece.parameter, piece.offset);
            matrices_->deal();
        }
    }

    // The gradients of a step.

    void acquire_gradients() {
        if (gradient_.empty()) bring_gradients();
    }
    /// One user has added to them. Whether it is time to start().
    bool release_gradients(bool complete) {
        ++pending_;
        if (complete) ++complete_users_;
        return complete_users_ == users_ || (sharding_.reduces_each_micro_batch() && pending_ == users_);
    }
    /// Begins to reduce what has been added. What an earlier call began has been waited for by advance().
    void start() {
        is_complete_ = complete_users_ == users_;
        if (!sharding_.reduces_each_micro_batch()) {
            start_reduction();
            return;
        }
        accumulate();
    }
    /// Whether its reduction ends with ranks of other stages, or of copies of this one, which begin theirs later.
    [[nodiscard]] bool meets_stages() const { return layouts_.meets_stages; }
    /// Whether start() began with the last gradients of the step.
    [[nodiscard]] bool is_complete() const { return is_complete_; }
    /// Waits for what start() began, and begins what follows where those were the last gradients.
    void advance() {
        if (reduction_ && !layouts_.meets_stages) reduction_->advance();
        finish_accumulation();
        if (is_complete_) start_reduction();
    }
    void start_reduction() {
        if (reduction_) return;
        finish_accumulation();
        // If one of two users of a tied table here has no micro-batch, the gradient that the other has added is still
        // whole.
        if (sharding_.reduces_each_micro_batch() && pending_ > 0) {
            accumulate();
            finish_accumulation();
        }
        reduced_ = {}; // of a reduction that nobody has used
        auto sum = sharding_.reduces_each_micro_batch() ? take_sum() : take_gradients();
        // Scattered sums that are made once a step come when activations have gone: they use the same memory.
        reduction_.emplace(*context_, layouts_.reduction, std::move(sum), precision_.reduce, reduction_errors_);
    }
    /// Waits until they are reduced.
    void reduce() {
        start_reduction();
        auto shard = reduction_->wait();
        reduction_.reset();
        reduced_ = Tensor<Whole<A>, Exec>::unchecked(*context_, {state_.extent}, std::move(shard.block), shard.data);
        if (gradient_.empty() && !sharding_.has_temporary_gradients()) gradient_ = reduced_;
    }
    /// Adds this rank's summand of the squared norm of the reduced gradient; each element counts once.
    void add_squares(Tensor<NormSquare, Exec> const& total) const {
        if (is_own_ || !layouts_.counts_squares_here) return;
        Tensor<NormSquare, Exec> const own(*context_, {});
        kernels::sum_of_squares<A>(context_->exec(), reduced_.flat(), own.array());
        kernels::add<f64>(context_->exec(), own.flat(), total.flat());
    }
    /// f(parameter) for those of whose reduced gradient this rank has elements that are not finite. Fences.
    template <class F>
    void for_each_not_finite(F&& f) const {
        if (reduced_.empty()) return;
        for (auto const& piece : pieces_) {
            std::size_t const begin = std::max(piece.offset, state_.first),
                              end = std::min(piece.offset + piece.parameter->size(), state_.first + state_.extent);
            if (begin >= end) continue;
            View<A, 1, Exec> const part(reduced_.data() + (begin - state_.first), end - begin);
            if (!std::isfinite(kernels::host_sum_of_squares<A>(context_->exec(), part))) f(*piece.parameter);
        }
    }
    /// Forgets the reduced gradients.
    void skip_update() { reduced_ = {}; }
    /// Updates this rank's shard of the weights.
    void update(std::int64_t step, UpdateSettings const& settings) {
        if (average_) optimizer_.with_master(state_part(), false, [&](auto const& master) { average_->begin(master); });
        auto const older = state_part();
        ++updates_;
        if (versions_.size() > 1)
            memory::copy(context_->exec(), state_part().data(), older.data(), state_.extent * sizeof(T));
        std::size_t const decaying = decaying_ > state_.first ? std::min(decaying_ - state_.first, state_.extent) : 0;
        optimizer_.update(state_part(), std::move(reduced_), step, settings, decaying,
                          matrices_ ? &*matrices_ : nullptr);
        is_stored_ = false;
        drop_values();
    }
    /// The weights of groups that train apart become the same. Collective.
    void average() {
        if (!average_) return;
        optimizer_.with_master(state_part(), true, [&](auto const& master) {
            average_->average(master);
            if (optimizer_.keeps_masters())
                kernels::convert<A, T>(context_->exec(), master.flat(), state_part().flat());
        });
        is_stored_ = false;
        drop_values();
    }
    /// Brings the updated weights to the layout in which they are stored, if that has not been done.
    void store() {
        if (std::exchange(is_stored_, true)) return;
        pentad::detail::carry_out_into(*context_, layouts_.storing, pentad::detail::shard_of(state_part()),
                                       newest().flat());
        if (!exact_.empty()) gather_masters(exact_[updates_ % exact_.size()]);
    }
    void clear_gradients() {
        if (accumulation_) finish_accumulation(); // it owns the memory; nobody wants what comes of it
        if (reduction_) reduce();
        reduced_ = {};
        sum_ = {};
        pending_ = complete_users_ = 0;
        is_complete_ = false;
        if (sharding_.has_temporary_gradients())
            drop_gradients();
        else
            gradient_.clear();
    }

    // The state, for checkpoints.

    /// One of the ranks that hold the same part of the state; together these ranks hold all of it, once.
    [[nodiscard]] bool holds_state_first() const { return layouts_.counts_squares_here; }
    /// Calls f(state, parameter, first, elements) for this rank's part of each state: elements [first, first + extent)
    /// of its shard of the parameter. @param writes whether f writes them: then those too that no update has made yet
    template <class F>
    void for_each_state(bool writes, F&& f) {
        optimizer_.for_each_state(state_part(), writes, [&](std::string_view state, auto const& tensor) {
            for_each_part([&](auto const& parameter, std::size_t first, std::size_t place, std::size_t count) {
                f(state, parameter, first, View<A, 1, Exec>(tensor.data() + place, count));
            });
        });
    }
    /// Calls f(state, parameter, first, count) for what for_each_state() shows once updates have made all states, which
    /// are neither read nor made.
    template <class F>
    void for_each_planned_state(F&& f) const {
        optimizer_.for_each_state_name([&](std::string_view state) {
            for_each_part([&](auto const& parameter, std::size_t first, std::size_t, std::size_t count) {
                f(state, parameter, first, count);
            });
        });
    }
    /// Moves the matrices of stacks whose order changes, with all of their state; forgets what rounding took from
    /// gradients. Call restore() afterwards. Collective over the ranks that share the stacks and the state. Returns
    /// whether anything moves.
    bool move_stacks() {
        std::vector<StackMoves::Stack> stacks;
        AxisNames parts;
        for (auto const& [parameter, offset] : pieces_) {
            auto const* const order = parameter->stack_order();
            if (order == nullptr || !order->moves()) continue;
            parts = parameter->stored_layout().dimensions[0].axes;
            std::size_t const matrices = parameter->local_extents()[0];
            stacks.push_back({order, offset, matrices, parameter->size() / matrices});
        }
        if (stacks.empty()) return false;
        auto& communicators = context_->communicators();
        auto const& shards = layouts_.state.dimensions[0].axes;
        auto const axes = detail::joined(parts, shards);
        std::vector<StackMoves::Holder> holders;
        for (int const rank : members_along(communicators.mesh(), axes, communicators.world().rank()))
            holders.push_back(
                {place_along(communicators.mesh(), parts, rank), place_along(communicators.mesh(), shards, rank)});
        auto const& comm = communicators.along(axes);
        StackMoves const moves(std::move(holders), static_cast<std::size_t>(comm.rank()), state_.extent, stacks);
        optimizer_.for_each_state(state_part(), true, [&](std::string_view, auto const& state) {
            moves.carry_out<A, Exec>(*context_, comm, state.flat());
        });
        accumulation_errors_ = reduction_errors_ = {};
        return true;
    }
    /// To be called when all states have been written: the weights follow their masters.
    void restore() {
        auto const weights = state_part();
        if (optimizer_.keeps_masters())
            optimizer_.with_master(weights, false, [&](auto const& master) {
                kernels::convert<A, T>(context_->exec(), master.flat(), weights.flat());
            });
        is_stored_ = false;
        drop_values();
    }

    // Weights as accumulators, in the gradients' memory.

    /// Weights and masters become what lies there.
    void import_from_gradients() {
        View<A, 1, Exec> const stored(gradient_.data() + stored_.first, stored_.extent);
        kernels::convert<A, T>(context_->exec(), stored, newest().flat());
        if (optimizer_.keeps_masters())
            optimizer_.with_master(state_part(), true, [&](auto const& master) {
                memory::copy(context_->exec(), master.data(), gradient_.data() + state_.first,
                             state_.extent * sizeof(A));
            });
        if (average_) average_->forget();
        if (!exact_.empty())
            memory::copy(context_->exec(), exact_[updates_ % exact_.size()].data(), gradient_.data(),
                         extent_ * sizeof(A));
        drop_values();
        clear_gradients();
    }
    /// The whole weights are gathered there. Collective.
    void export_to_gradients() { gather_masters(gradient_); }
    void drop_gradients() {
        gradient_ = {};
        place_gradients(nullptr);
    }

  private:
    /// Calls f(parameter, first, place, count) for this rank's part of the state: elements [first, first + count) of
    /// its shard of the parameter, from `place` on in the state.
    template <class F>
    void for_each_part(F&& f) const {
        for (auto const& piece : pieces_) {
            std::size_t const begin = std::max(piece.offset, state_.first),
                              end = std::min(piece.offset + piece.parameter->size(), state_.first + state_.extent);
            if (begin < end)
                f(std::as_const(*piece.parameter), begin - piece.offset, begin - state_.first, end - begin);
        }
    }
    /// The whole weights in accumulators.
    void gather_masters(Tensor<Whole<A>, Exec> const& whole) {
        auto* const own = whole.data() + state_.first;
        optimizer_.with_master(state_part(), false, [&](auto const& master) {
            memory::copy(context_->exec(), own, master.data(), state_.extent * sizeof(A));
        });
        pentad::detail::Shard<A, Exec> const shard{{{state_.extent}, 1}, whole.block(), own};
        pentad::detail::carry_out_into(*context_, layouts_.exporting, shard, whole.flat());
    }
    void place_gradients(A* whole) {
        for (auto const& piece : pieces_)
            piece.parameter->place_gradient(whole == nullptr ? nullptr : whole + piece.offset);
    }
    /// Memory for them, zeros.
    void bring_gradients() {
        gradient_ = Tensor<Whole<A>, Exec>(*context_, {extent_}, observe::Memory::gradients);
        gradient_.clear();
        place_gradients(gradient_.data());
    }
    /// What has been added, in the only handle of its memory where it is temporary or reduced in place.
    pentad::detail::Shard<A, Exec> take_gradients() {
        acquire_gradients();
        auto shard = pentad::detail::shard_of(gradient_);
        if (sharding_.has_temporary_gradients())
            drop_gradients();
        else if (layouts_.state.dimensions[0].axes.empty())
            gradient_ = {};
        return shard;
    }
    pentad::detail::Shard<A, Exec> take_sum() {
        if (sum_.empty()) { // nothing has been added
            sum_ = Tensor<Whole<A>, Exec>(*context_, {sum_range_.extent}, observe::Memory::gradients);
            sum_.clear();
        }
        auto shard = pentad::detail::shard_of(sum_);
        sum_ = {};
        return shard;
    }
    void accumulate() {
        pending_ = 0;
        accumulation_.emplace(*context_, layouts_.accumulation, take_gradients(), precision_.reduce,
                              accumulation_errors_, observe::Memory::gradients);
    }
    void finish_accumulation() {
        if (!accumulation_) return;
        auto shard = accumulation_->wait();
        accumulation_.reset();
        if (sum_.empty())
            sum_ =
                Tensor<Whole<A>, Exec>::unchecked(*context_, {sum_range_.extent}, std::move(shard.block), shard.data);
        else
            kernels::add<A>(context_->exec(), shard.flat(), sum_.flat());
    }
    [[nodiscard]] WeightRounding weight_rounding(std::uint64_t seed) const {
        WeightRounding rounding{seed, state_.first, {}};
        for_each_part([&](auto const& parameter, std::size_t first, std::size_t place, std::size_t count) {
            std::uint64_t stream = random::stream(parameter.name());
            auto const& stored = parameter.stored_layout();
            for (std::size_t d = 0; d < stored.rank; ++d) // ranks along these axes hold other elements
                stream = stream * 0x100000001b3u + context_->communicators().shard_index(stored.dimensions[d].axes);
            rounding.parts.push_back({place, place + count, first, stream});
        });
        return rounding;
    }
    /// The part of the newest weights that this rank updates, as a tensor of its own.
    [[nodiscard]] Tensor<Whole<T>, Exec> state_part() const {
        return Tensor<Whole<T>, Exec>::unchecked(*context_, {state_.extent}, newest().block(),
                                                 newest().data() + (state_.first - stored_.first));
    }

    ZeroSharding sharding_;
    bool is_own_ = false;      ///< its optimizer is that of its parameters alone
    std::size_t decaying_ = 0; ///< elements subject to weight decay
    Range state_, sum_range_;  ///< this rank's
    std::size_t users_ = 0, complete_users_ = 0;
    std::size_t pending_ = 0; ///< additions of users since the last accumulation
    bool is_complete_ = false;

    bool is_stored_ = true;

    Tensor<Whole<A>, Exec> gradient_; ///< of which the ranks hold summands
    Tensor<Whole<A>, Exec> sum_;      ///< over the micro-batches of this step
    Tensor<Whole<A>, Exec> reduced_;  ///< this rank's part
    RoundingErrors<A, Exec> accumulation_errors_, reduction_errors_;
    std::optional<StartedReduction<A, Exec>> accumulation_, reduction_; ///< while they are under way
    model::Optimizer optimizer_settings_;
    model::Precision precision_;
    Optimizer<Whole<A>, T, Exec> optimizer_;
    std::optional<BucketMatrices<T, Exec>> matrices_;     ///< where the optimizer works on whole matrices
    std::optional<LocalAverage<Whole<A>, Exec>> average_; ///< where groups train apart
};

} // namespace pentad::zero
