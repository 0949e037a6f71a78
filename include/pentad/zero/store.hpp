// The parameters of this rank: sorted into buckets by the axes over which their gradients are partial, drawn,
// synchronised, clipped, updated. The axes come from the parameters' layouts; nothing here names one. A model of
// several stages has buckets for each of them; where gradients are temporary or parameters sharded, for each unit.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/comm/first_failure.hpp>
#include <pentad/io/file.hpp>
#include <pentad/layers/unit.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/trace.hpp>
#include <pentad/zero/bucket.hpp>
#include <pentad/zero/offload.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::zero {

using namespace ml;

template <class T, class Exec>
class ParameterStore {
  public:
    using A = accumulator_t<T>;

    /// Gives memory to the parameters of `model`, which it must not outlive, and draws them. A bucket is closed when it
    /// holds `bucket_elements` or more, and at the end of a unit where gradients or parameters are sharded, or
    /// released.
    /// @param versions of the weights that are kept, the newest included
    /// @param holders which ranks hold which stages
    /// @param optimizer of all of them @param offload of its state @param precision of it, and of what travels
    /// @throws std::invalid_argument when there is no such sharding, or `model` has no units that it needs
    /// @throws io::FileError on all ranks where the file of one cannot be made
    template <class Model>
    ParameterStore(Context<Exec> const& context, Model& model, std::uint64_t seed, ZeroSharding const& sharding,
                   std::size_t bucket_elements, std::size_t versions = 1, Holders const& holders = {},
                   model::Optimizer const& optimizer = {}, model::Offload const& offload = {},
                   model::Precision const& precision = {})
        : context_(&context), sharding_(sharding), versions_(versions), holders_(holders), optimizer_(optimizer),
          precision_(precision), norm_(context, {}), norm_plan_(plan_of_norm(context, holders.local)) {
        for (auto const& refused : {sharding.refusal(), holders.local.refusal()})
            if (refused) throw std::invalid_argument(refused->why);
        if (holders.local.is_on()) check_local_steps();
        if (offload.optimizer) offloaded_ = std::make_unique<OffloadedStates<Exec>>(context, offload);
        if (sharding.ranks > 0 && context.communicators().extent(inner<dp>::name) != sharding.ranks)
            throw std::invalid_argument("ZeRO over " + std::to_string(sharding.ranks) +
                                        " ranks wants another mesh: make it with split<dp>(" +
                                        std::to_string(sharding.ranks) + ")");
        if constexpr (requires { model.stages(); }) {
            for (int const stage : model.stages())
                model.for_each_unit_of(stage, [&](Unit<T, Exec>& unit) { add_unit(stage, unit, bucket_elements); });
        } else {
            if (sharding.has_temporary_gradients())
                throw std::invalid_argument("this model has no units, which say when parameters are used: "
                                            "ZeRO stages 2 and 3 and the release of gradients need them");
            Unit<T, Exec> whole;
            whole.add_parameters_of(model);
            add_unit(0, whole, bucket_elements);
        }
        for (auto const& entry : buckets_) entry.bucket->allocate(versions, offloaded_.get(), seed);
        if (offloaded_) on_all_ranks(context.communicators().world(), [&] { offloaded_->open(); });
        for_each_imported(
            [&](AnyParameter<T, Exec> const& parameter) { parameter.draw(seed, parameter.flat_gradient().data()); });
        pentad::detail::prepare(context, norm_plan_);
        context.exec().fence("pentad: parameters drawn");
    }
    ParameterStore(ParameterStore const&) = delete;
    ParameterStore& operator=(ParameterStore const&) = delete;

    /// To be called before a step.
    void clear_gradients() {
        started_.clear();
        late_.clear();
        for (auto const& entry : buckets_) entry.bucket->clear_gradients();
    }
    /// Reduces the gradients over exactly the axes over which they are partial, and returns their global norm: each
    /// element counted once. What was complete before has begun. Collective.
    double reduce_gradients() {
        finish_started();
        for (auto const& entry : buckets_) entry.bucket->start_reduction();
        for (auto const& entry : buckets_) entry.bucket->reduce();
        norm_.clear();
        for (auto const& entry : buckets_) entry.bucket->add_squares(norm_);
        return norm();
    }
    /// The name of a parameter whose reduced gradient has elements on this rank that are not finite: the last such
    /// parameter, which backward passes reach first; empty if there is none. After reduce_gradients(). Fences.
    [[nodiscard]] std::string not_finite() const {
        std::vector<AnyParameter<T, Exec> const*> found;
        for (auto const& entry : buckets_)
            entry.bucket->for_each_not_finite([&](auto const& parameter) { found.push_back(&parameter); });
        std::string name;
        for (auto const& unit : units_)
            for (auto const* const parameter : unit->parameters)
                if (std::find(found.begin(), found.end(), parameter) != found.end()) name = parameter->name();
        return name;
    }
    /// Forgets the reduced gradients instead.
    void skip_update() {
        for (auto const& entry : buckets_) entry.bucket->skip_update();
    }
    /// One update with the reduced gradients.
    void update(std::int64_t step, UpdateSettings const& settings) {
        observe::Scope const scope("update", "compute");
        for (auto const& entry : buckets_) entry.bucket->update(step, settings);
        note_updates();
        use_newest();
    }
    /// Local steps: the weights of the groups along outer(dp), which have trained apart, become the same. Collective.
    void average() {
        observe::Scope const scope("average", "communication");
        for (auto const& entry : buckets_) entry.bucket->average();
        is_apart_ = false;
        use_newest();
    }
    /// Whether there have been updates since the last average, so that each group has weights of its own.
    [[nodiscard]] bool is_apart() const { return is_apart_; }
    /// Brings the newest weights to the layout in which they are stored where that has not been done. Collective where
    /// optimizer state is sharded.
    void gather() {
        for (auto const& entry : buckets_) entry.bucket->store();
        use_newest();
    }
    /// Forgets parameters that were gathered for a pass: to be called after each run of a schedule.
    void drop_gathered() {
        for (auto const& entry : buckets_) entry.bucket->drop_values();
    }

    // For one stage of the model:

    /// gathers its weights,
    void gather(int stage) {
        for_each_bucket(stage, [](auto& bucket) { bucket.store(); });
    }
    /// reduces its gradients, updates its weights, gathers them, and clears the gradients for the next update,
    void update(int stage, std::int64_t step, UpdateSettings const& settings) {
        observe::Scope const scope("update", "compute");
        finish_started();
        for_each_bucket(stage, [](auto& bucket) { bucket.start_reduction(); });
        for_each_bucket(stage, [&](auto& bucket) {
            update_released(bucket, step, settings);
            bucket.store();
            bucket.clear_gradients();
        });
    }
    /// and lets its layers see the weights as they were `updates` updates after begin_updates().
    void use_version(int stage, std::size_t updates) {
        for_each_bucket(stage, [&](auto& bucket) { bucket.use_version(first_version_ + updates); });
    }

    // For updates during a run:

    /// To be called before it, when all stages have had as many updates.
    /// @param step of the update for which gradients are released, and its settings
    void begin_updates(std::int64_t step, UpdateSettings const& settings) {
        if (!buckets_.empty()) first_version_ = buckets_.front().bucket->updates();
        norm_.clear();
        release_step_ = step;
        release_settings_ = settings;
    }
    /// Waits for the last of these updates. Collective.
    void finish_updates() {
        finish_started();
        for (auto* const bucket : late_) update_released(*bucket, release_step_, release_settings_);
        late_.clear();
        note_updates();
        use_newest();
    }
    /// The norm of the gradients of all updates since begin_updates(), as of one vector. Collective.
    double norm() {
        auto shard = pentad::detail::shard_of(norm_);
        norm_ = {};
        shard = pentad::detail::carry_out(*context_, norm_plan_, std::move(shard));
        norm_ = Tensor<NormSquare, Exec>::unchecked(*context_, {}, std::move(shard.block), shard.data);
        double squares = 0;
        norm_.get(&squares);
        return std::sqrt(squares);
    }

    /// Calls f(state, parameter, first, elements) for what this rank holds of each state that an update reads or
    /// writes: "weight" (bf16: the masters), and those of the optimizer. `elements` are those of its shard of the
    /// parameter from `first` on, in memory until f returns. Not during a step.
    /// @param once a part that several ranks hold is shown to one of them, so that all ranks together see all of it
    /// once
    /// @param writes whether f writes them: then also states that no update has made yet
    /// @throws io::FileError where the state is offloaded and cannot be read
    template <class F>
    void for_each_state(bool once, bool writes, F&& f) {
        require_one_state();
        auto const show = [&](auto const&... arguments) {
            if (offloaded_)
                if (auto const failure = offloaded_->file().failure(); !failure.empty()) throw io::FileError(failure);
            f(arguments...);
        };
        for (auto const& entry : buckets_)
            if (!once || entry.bucket->holds_state_first()) entry.bucket->for_each_state(writes, show);
        expect_updates();
    }
    /// Calls f(state, parameter, first, count) for what for_each_state(true, ...) shows once updates have made all
    /// states. Nothing is read.
    template <class F>
    void for_each_planned_state(F&& f) const {
        require_one_state();
        for (auto const& entry : buckets_)
            if (entry.bucket->holds_state_first()) entry.bucket->for_each_planned_state(f);
    }
    /// To be called when for_each_state() has written all states. Collective.
    /// @throws io::FileError on all ranks, as require_offloaded()
    void restore() {
        for (auto const& entry : buckets_) entry.bucket->restore();
        expect_updates();
        gather();
        (void)require_offloaded();
    }

    /// Moves the matrices of stacks whose order changes (AnyParameter::stack_order), with their optimizer state. Not
    /// during a step. Collective. Returns and throws as require_offloaded(), also where a state could not be read: the
    /// weights are of no use then.
    double move_stacks() {
        observe::Scope const scope("move experts", "communication");
        for (auto const& entry : buckets_)
            if (entry.bucket->move_stacks()) entry.bucket->restore();
        expect_updates();
        gather();
        return require_offloaded();
    }

    /// The seconds for which updates have waited for offloaded state since the last call, on the rank where they waited
    /// longest. Collective. @throws io::FileError on all ranks where the file of one has failed
    double require_offloaded() {
        return offloaded_ ? offloaded_->file().require(context_->communicators().world()) : 0;
    }
    /// What offload has done on this rank; none where nothing is offloaded.
    [[nodiscard]] std::optional<model::OffloadReport> offload_report() const {
        return offloaded_ ? std::optional(offloaded_->report()) : std::nullopt;
    }

    /// Calls f(parameter), which writes whole weights into parameter.flat_gradient(), and takes them for the weights
    /// (and their masters). Not during a step.
    template <class F>
    void for_each_imported(F&& f) {
        for_each_in_gradients([](auto&) {}, std::forward<F>(f), [](auto& bucket) { bucket.import_from_gradients(); });
        is_apart_ = false;
        expect_updates();
        context_->exec().fence("pentad: weights imported");
    }
    /// Calls f(parameter) with the weights (bf16: their masters) in parameter.flat_gradient(), which f may not keep.
    /// Not during a step. Collective.
    /// @param after is called when all have been shown here. What other ranks wait for until they have shown theirs,
    /// such as the other side of messages that their f sends, belongs there: what follows is collective over all ranks
    /// @throws std::logic_error between averages of local steps, where there is no one model
    /// @throws io::FileError on all ranks where the state of one is offloaded and could not be read
    template <class F>
    void for_each_exported(F&& f, std::function<void()> const& after = [] {}) {
        if (is_apart_) throw std::logic_error("between averages each group has weights of its own: average() first");
        for_each_in_gradients([](auto& bucket) { bucket.export_to_gradients(); }, std::forward<F>(f),
                              [](auto& bucket) { bucket.clear_gradients(); });
        expect_updates();
        context_->exec().fence("pentad: weights exported");
        after();
        (void)require_offloaded();
    }

  private:
    struct Entry {
        std::unique_ptr<Bucket<T, Exec>> bucket;
        Context<Exec> const* context; ///< of its parameters
        int stage;
        LayoutValue stored; ///< of its parameters, of which the axes count
        AxisNames synchronised;
        std::optional<AxisNames> matrix_axes; ///< that shard rows or columns, where the optimizer works on matrices
        std::optional<model::Optimizer> own_optimizer;
        bool is_open;
    };
    struct StoredUnit final : UnitMemory {
        ParameterStore* store;
        std::vector<AnyParameter<T, Exec>*> parameters;
        std::vector<Bucket<T, Exec>*> buckets{};

        StoredUnit(ParameterStore* its_store, std::vector<AnyParameter<T, Exec>*> its_parameters)
            : store(its_store), parameters(std::move(its_parameters)) {}
        void prefetch_values() override {
            for (auto* const bucket : buckets) bucket->prefetch_values();
        }
        void acquire_values() override {
            prefetch_values(); // all are under way before one is waited for
            for (auto* const bucket : buckets) bucket->acquire_values();
        }
        void release_values() override {
            for (auto* const bucket : buckets) bucket->release_values();
        }
        void acquire_gradients() override {
            for (auto* const bucket : buckets) bucket->acquire_gradients();
        }
        void release_gradients(bool complete) override { store->release_gradients(*this, complete); }
    };

    void require_one_state() const {
        if (holders_.local.is_on())
            throw std::invalid_argument("with local steps each group of ranks has an optimizer state of its own, which "
                                        "is not saved");
    }
    void expect_updates() {
        if (offloaded_) offloaded_->expect_updates();
    }

    void add_unit(int stage, Unit<T, Exec>& unit, std::size_t bucket_elements) {
        auto& stored = *units_.emplace_back(std::make_unique<StoredUnit>(this, unit.parameters()));
        unit.set_memory(&stored);
        for (auto* const parameter : stored.parameters) {
            auto& bucket = bucket_for(stage, *parameter, bucket_elements);
            bucket.add(parameter);
            if (std::find(stored.buckets.begin(), stored.buckets.end(), &bucket) == stored.buckets.end()) {
                stored.buckets.push_back(&bucket);
                bucket.add_users(unit.users());
            }
        }
        if (sharding_.has_temporary_gradients())
            for (auto& entry : buckets_) entry.is_open = false;
    }
    Bucket<T, Exec>& bucket_for(int stage, AnyParameter<T, Exec> const& parameter, std::size_t bucket_elements) {
        auto const& stored = parameter.stored_layout();
        std::optional<AxisNames> matrix_axes;
        auto const& own = parameter.own_optimizer();
        if (!own && model::needs_matrices(optimizer_))
            if (auto const matrices = matrices_of(parameter); matrices.count > 0) matrix_axes = matrices.axes;
        for (auto& entry : buckets_)
            if (entry.is_open && entry.stage == stage && entry.context == &parameter.context() &&
                entry.synchronised == parameter.synchronised_axes() && entry.matrix_axes == matrix_axes &&
                entry.own_optimizer == parameter.own_optimizer() && is_sharded_alike(entry.stored, stored)) {
                if (sharding_.has_temporary_gradients() || entry.bucket->size() < bucket_elements) return *entry.bucket;
                entry.is_open = false;
            }
        auto const& context = parameter.context();
        auto const layouts =
            bucket_layouts<A>(context.communicators(), stored, parameter.synchronised_axes(), holders_, sharding_);
        auto const optimizer = own ? *own : model::optimizer_for(optimizer_, matrix_axes.has_value());
        buckets_.push_back({std::make_unique<Bucket<T, Exec>>(context, layouts, sharding_, optimizer, holders_.local,
                                                              precision_, own.has_value()),
                            &context, stage, stored, parameter.synchronised_axes(), matrix_axes, own, true});
        return *buckets_.back().bucket;
    }
    template <class F>
    void for_each_bucket(int stage, F&& f) {
        for (auto const& entry : buckets_)
            if (entry.stage == stage) f(*entry.bucket);
    }
    /// Where all stages have had as many updates.
    void use_newest() {
        if (versions_ > 1)
            for (auto const& entry : buckets_) entry.bucket->use_version(entry.bucket->updates());
    }

    void release_gradients(StoredUnit const& unit, bool complete) {
        bool is_first = true;
        for (auto* const bucket : unit.buckets) {
            if (!bucket->release_gradients(complete)) continue;
            if (sharding_.has_temporary_gradients() ||
                (precision_.reduce != Compact::none && !bucket->meets_stages())) {
                if (std::exchange(is_first, false)) finish_started(); // of another unit: its memory is used again
                started_.push_back(bucket);
            }
            bucket->start();
        }
    }
    /// Waits for the reductions that go on, and updates what is released.
    void finish_started() {
        for (auto* const bucket : started_) {
            bucket->advance();
            if (!sharding_.releases_gradients || !bucket->is_complete()) continue;
            if (bucket->meets_stages())
                late_.push_back(bucket);
            else
                update_released(*bucket, release_step_, release_settings_);
        }
        started_.clear();
    }
    void update_released(Bucket<T, Exec>& bucket, std::int64_t step, UpdateSettings const& settings) {
        bucket.reduce();
        bucket.add_squares(norm_);
        bucket.update(step, settings);
    }

    /// prepare(bucket), f(parameter) and finish(bucket) for all; a unit at a time where gradients are temporary.
    template <class Prepare, class F, class Finish>
    void for_each_in_gradients(Prepare&& prepare, F&& f, Finish&& finish) {
        bool const is_whole = !sharding_.has_temporary_gradients();
        if (is_whole)
            for (auto const& entry : buckets_) prepare(*entry.bucket);
        for (auto const& unit : units_) {
            if (!is_whole)
                for (auto* const bucket : unit->buckets) {
                    bucket->acquire_gradients();
                    prepare(*bucket);
                }
            for (auto* const parameter : unit->parameters) f(*parameter);
            if (!is_whole)
                for (auto* const bucket : unit->buckets) finish(*bucket);
        }
        if (is_whole)
            for (auto const& entry : buckets_) finish(*entry.bucket);
    }
    /// From summands on all ranks, or those of a group that trains apart, to their sum.
    static PlanValue plan_of_norm(Context<Exec> const& context, LocalSteps const& local) {
        AxisNames const axes = axes_of_view(context.communicators().mesh());
        LayoutValue summands = NormSquare::value;
        summands.partial = local.together(axes);
        return make_plan(summands, NormSquare::value);
    }
    void check_local_steps() const {
        int const ranks = holders_.local.ranks;
        if (sharding_.ranks > 0)
            throw std::invalid_argument(
                "with local steps ZeRO shards over the " + std::to_string(ranks) +
                " ranks along dp that share every step: leave out the ranks of hybrid sharding");
        if (context_->communicators().extent(inner<dp>::name) != ranks)
            throw std::invalid_argument("local steps of " + std::to_string(ranks) +
                                        " ranks want another mesh: make it with split<dp>(" + std::to_string(ranks) +
                                        ")");
        if (versions_ > 1)
            throw std::invalid_argument("local steps go with synchronous schedules: the weights have versions here");
    }
    /// Groups that train apart have weights of their own from now on.
    void note_updates() { is_apart_ = holders_.local.is_on() && context_->communicators().extent(outer<dp>::name) > 1; }

    Context<Exec> const* context_;
    ZeroSharding sharding_;
    std::size_t versions_, first_version_ = 0;
    Holders holders_;
    model::Optimizer optimizer_;
    model::Precision precision_;
    std::unique_ptr<OffloadedStates<Exec>> offloaded_; ///< null: the optimizer's state is in memory
    std::vector<Entry> buckets_;
    std::vector<std::unique_ptr<StoredUnit>> units_;
    std::vector<Bucket<T, Exec>*> started_; ///< those of the unit that was released last, where others use their memory
    std::vector<Bucket<T, Exec>*> late_;    ///< to be updated at the end of the run
    std::int64_t release_step_ = 0;
    UpdateSettings release_settings_{};
    Tensor<NormSquare, Exec> norm_; ///< of which the ranks hold summands
    PlanValue norm_plan_;
    bool is_apart_ = false;
};

} // namespace pentad::zero
