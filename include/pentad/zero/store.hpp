// The parameters of this rank: sorted into buckets by the axes over which their gradients are partial,
// drawn, synchronised, clipped, updated. The axes come from the parameters' layouts; nothing here names one. A model of
// several stages has buckets for each of them.
#pragma once

#include <pentad/observe/trace.hpp>
#include <pentad/zero/bucket.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::zero {

template <class T, class Exec>
class ParameterStore {
  public:
    using A = accumulator_t<T>;

    /// Gives memory to the parameters of `model`, which it must not outlive, and draws them. A bucket is closed when it
    /// holds `bucket_elements` or more.
    /// @param zero_stage 0 or 1
    /// @param versions of the weights that are kept, the newest included
    /// @param holders which ranks hold which stages
    /// @throws std::invalid_argument when there is no such stage of ZeRO
    template <class Model>
    ParameterStore(Context<Exec> const& context, Model& model, std::uint64_t seed, int zero_stage,
                   std::size_t bucket_elements, std::size_t versions = 1, Holders const& holders = {})
        : context_(&context), zero_stage_(zero_stage), versions_(versions), holders_(holders), norm_(context, {}),
          norm_plan_(plan_of_norm(context)) {
        if (zero_stage != 0 && zero_stage != 1)
            throw std::invalid_argument("ZeRO stage " + std::to_string(zero_stage) + ": stages 0 and 1 exist");
        struct Place {
            Bucket<T, Exec>* bucket;
            std::size_t offset;
        };
        std::vector<Place> places;
        for_each_parameter(model, [&](int stage, auto& parameter) {
            auto& bucket = bucket_for(stage, parameter, bucket_elements);
            places.push_back({&bucket, bucket.reserve(parameter.size(), parameter.users())});
        });
        for (auto const& entry : buckets_) entry.bucket->allocate(versions);
        place_ = [places, &model](int stage, std::size_t updates) {
            std::size_t next = 0;
            for_each_parameter(model, [&](int of, auto& parameter) {
                auto const [bucket, offset] = places[next++];
                if (stage == every_stage || of == stage)
                    parameter.place(bucket->values(updates) + offset, bucket->gradients() + offset, bucket);
            });
        };
        place_newest();
        for_each_parameter(model,
                           [&](int, auto& parameter) { parameter.draw(seed, parameter.flat_gradient().data()); });
        for (auto const& entry : buckets_) entry.bucket->start_from_gradients();
        pentad::detail::prepare(context, norm_plan_);
        context.exec().fence("pentad: parameters drawn");
    }

    void clear_gradients() {
        for (auto const& entry : buckets_) entry.bucket->clear_gradients();
    }
    /// Reduces the gradients over exactly the axes over which they are partial, and returns their global norm: each
    /// element counted once. A bucket whose gradients were all complete before has begun. Collective.
    double reduce_gradients() {
        for (auto const& entry : buckets_) entry.bucket->start_reduction();
        for (auto const& entry : buckets_) entry.bucket->reduce();
        norm_.clear();
        for (auto const& entry : buckets_) entry.bucket->add_squares(norm_);
        return norm();
    }
    /// The name of the last parameter, which backward passes come to first, with a gradient on this rank that is not
    /// finite; empty where there is none. After reduce_gradients(). Fences.
    template <class Model>
    std::string not_finite(Model& model) const {
        std::string name;
        for_each_parameter(model, [&](int, auto const& parameter) {
            if (!std::isfinite(kernels::sum_of_squares<A>(context_->exec(), parameter.flat_gradient())))
                name = parameter.name();
        });
        return name;
    }
    /// Forgets the reduced gradients instead.
    void skip_update() {
        for (auto const& entry : buckets_) entry.bucket->skip_update();
    }
    /// One update with the reduced gradients. What is sharded is gathered by gather().
    void update(std::int64_t step, kernels::AdamWSettings const& settings) {
        observe::Scope const scope("update", "compute");
        for (auto const& entry : buckets_) entry.bucket->update(step, settings);
        if (versions_ > 1) place_newest();
    }
    /// Gathers the newest weights where that has not been done. Collective where optimizer state is sharded.
    void gather() {
        for (auto const& entry : buckets_) entry.bucket->gather();
        if (versions_ > 1) place_newest();
    }

    /// The same for one stage of the model: gathers its weights,
    void gather(int stage) {
        for_each_bucket(stage, [](auto& bucket) { bucket.gather(); });
    }
    /// reduces its gradients, updates its weights, gathers them, and clears the gradients for the next update,
    void update(int stage, std::int64_t step, kernels::AdamWSettings const& settings) {
        observe::Scope const scope("update", "compute");
        for_each_bucket(stage, [](auto& bucket) { bucket.start_reduction(); });
        for_each_bucket(stage, [&](auto& bucket) {
            bucket.reduce();
            bucket.add_squares(norm_);
            bucket.update(step, settings);
            bucket.gather();
            bucket.clear_gradients();
        });
    }
    /// and lets its layers see the weights as they were `updates` updates after begin_updates().
    void use_version(int stage, std::size_t updates) { place_(stage, first_version_ + updates); }
    /// To be called before a run of a schedule, when all stages have had as many updates.
    void begin_updates() {
        if (!buckets_.empty()) first_version_ = buckets_.front().bucket->updates();
        norm_.clear();
    }
    /// The norm of the gradients of all updates since then, as of one vector. Collective.
    double norm() {
        auto shard = pentad::detail::shard_of(norm_);
        norm_ = {};
        shard = pentad::detail::carry_out(*context_, norm_plan_, std::move(shard));
        norm_ = Tensor<NormSquare, Exec>(*context_, {}, std::move(shard.block), shard.data);
        double squares = 0;
        norm_.get(&squares);
        return std::sqrt(squares);
    }
    /// Takes what lies in the gradients' memory, in accumulators, for the weights (and their masters). Clears it.
    void import_weights() {
        for (auto const& entry : buckets_) entry.bucket->start_from_gradients();
        context_->exec().fence("pentad: weights imported");
    }
    /// Puts the weights (bf16: their masters) into the gradients' memory, in accumulators. Collective.
    void export_weights() {
        for (auto const& entry : buckets_) entry.bucket->export_to_gradients();
        context_->exec().fence("pentad: weights exported");
    }

  private:
    static constexpr int every_stage = -1;

    struct Entry {
        std::unique_ptr<Bucket<T, Exec>> bucket;
        int stage;
        LayoutValue stored; ///< of its parameters, of which the axes count
        AxisNames synchronised;
        bool decays, is_open;
    };

    /// f(stage, parameter) for a model of stages; any other is one.
    template <class Model, class F>
    static void for_each_parameter(Model& model, F&& f) {
        if constexpr (requires { model.stages(); }) {
            for (int const stage : model.stages())
                model.for_each_parameter_of(stage, [&](auto& parameter) { f(stage, parameter); });
        } else {
            model.for_each_parameter([&](auto& parameter) { f(0, parameter); });
        }
    }
    template <class F>
    void for_each_bucket(int stage, F&& f) {
        for (auto const& entry : buckets_)
            if (entry.stage == stage) f(*entry.bucket);
    }
    /// Where all stages have had as many updates.
    void place_newest() {
        if (!buckets_.empty()) place_(every_stage, buckets_.front().bucket->updates());
    }

    Bucket<T, Exec>& bucket_for(int stage, AnyParameter<T, Exec> const& parameter, std::size_t bucket_elements) {
        auto const& stored = parameter.stored_layout();
        for (auto& entry : buckets_)
            if (entry.is_open && entry.stage == stage && entry.decays == parameter.decays() &&
                entry.synchronised == parameter.synchronised_axes() && is_sharded_alike(entry.stored, stored)) {
                if (entry.bucket->size() < bucket_elements) return *entry.bucket;
                entry.is_open = false;
            }
        auto const layouts =
            bucket_layouts<A>(context_->communicators(), stored, parameter.synchronised_axes(), holders_, zero_stage_);
        buckets_.push_back({std::make_unique<Bucket<T, Exec>>(*context_, layouts, parameter.decays()), stage, stored,
                            parameter.synchronised_axes(), parameter.decays(), true});
        return *buckets_.back().bucket;
    }
    /// Whether the same axes shard both, in the same order.
    static bool is_sharded_alike(LayoutValue const& a, LayoutValue const& b) {
        auto const shards = [](LayoutValue const& layout) {
            AxisNames axes;
            for (std::size_t d = 0; d < layout.rank; ++d)
                for (auto const axis : layout.dimensions[d].axes) axes.push(axis);
            return axes;
        };
        return shards(a) == shards(b);
    }
    /// From summands on all ranks to their sum.
    static PlanValue plan_of_norm(Context<Exec> const& context) {
        LayoutValue summands = NormSquare::value;
        for (auto const& axis : context.communicators().mesh()) summands.partial.push(axis.name);
        return make_plan(summands, NormSquare::value);
    }

    Context<Exec> const* context_;
    int zero_stage_;
    std::size_t versions_, first_version_ = 0;
    std::vector<Entry> buckets_;
    std::function<void(int, std::size_t)> place_; ///< where the parameters of a stage are after so many updates
    Holders holders_;
    Tensor<NormSquare, Exec> norm_; ///< of which the ranks hold summands
    PlanValue norm_plan_;
};

} // namespace pentad::zero
