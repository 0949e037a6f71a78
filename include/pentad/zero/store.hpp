// The parameters of this rank: sorted into buckets by the axes over which their gradients are partial,
// drawn, synchronised, clipped, updated. The axes come from the parameters' types; nothing here names one. A model of
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
#include <tuple>
#include <typeindex>
#include <utility>
#include <vector>

namespace pentad::zero {

/// @tparam Holders the axes along which ranks hold the same parameters and see other micro-batches
template <class T, class Exec, class Holders = AxisSet<>>
class ParameterStore {
  public:
    using A = accumulator_t<T>;

    /// Gives memory to the parameters of `model`, which it must not outlive, and draws them. A bucket is closed when it
    /// holds `bucket_elements` or more.
    /// @param zero_stage 0 or 1
    /// @param versions of the weights that are kept, the newest included
    /// @throws std::invalid_argument when there is no such stage of ZeRO
    template <class Model>
    ParameterStore(Context<Exec> const& context, Model& model, std::uint64_t seed, int zero_stage,
                   std::size_t bucket_elements, std::size_t versions = 1)
        : context_(&context), zero_stage_(zero_stage), versions_(versions), norm_(context, {}) {
        if (zero_stage != 0 && zero_stage != 1)
            throw std::invalid_argument("ZeRO stage " + std::to_string(zero_stage) + ": stages 0 and 1 exist");
        struct Place {
            BucketBase<T, Exec>* bucket;
            std::size_t offset;
        };
        std::vector<Place> places;
        for_each_parameter(model, [&](int stage, auto& parameter) {
            auto& bucket = bucket_for(stage, parameter, bucket_elements);
            places.push_back({&bucket, bucket.reserve(parameter.value().size(), parameter.users())});
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
        for_each_parameter(model, [&](int, auto& parameter) { parameter.draw(seed, parameter.gradient().data()); });
        for (auto const& entry : buckets_) entry.bucket->start_from_gradients();
        prepare_redistribution<SquareSum, invariant_t<SquareSum>>(context);
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
            if (!std::isfinite(kernels::sum_of_squares<A>(context_->exec(), parameter.gradient().flat())))
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
        norm_ = redistribute<invariant_t<SquareSum>>(std::move(norm_)).template as<SquareSum>();
        double squares = 0;
        norm_.get(&squares);
        return std::sqrt(squares);
    }
    /// Puts the weights (bf16: their masters) into the gradients' memory, in accumulators. Collective.
    void export_weights() {
        for (auto const& entry : buckets_) entry.bucket->export_to_gradients();
        context_->exec().fence("pentad: weights exported");
    }

  private:
    static constexpr int every_stage = -1;

    struct Entry {
        std::unique_ptr<BucketBase<T, Exec>> bucket;
        std::tuple<int, std::type_index, bool> key; ///< the stage, the axes, whether it decays
        bool is_open;
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
            if (std::get<0>(entry.key) == stage) f(*entry.bucket);
    }
    /// Where all stages have had as many updates.
    void place_newest() {
        if (!buckets_.empty()) place_(every_stage, buckets_.front().bucket->updates());
    }

    template <class P>
    BucketBase<T, Exec>& bucket_for(int stage, P const&, std::size_t bucket_elements) {
        using Sync = union_t<replicated_axes_t<typename P::used>, Holders>;
        using Sharded = sharded_axes_t<typename P::stored>;
        std::tuple<int, std::type_index, bool> const key(stage, typeid(std::pair<Sync, Sharded>), P::decays);
        for (auto& entry : buckets_)
            if (entry.key == key && entry.is_open) {
                if (entry.bucket->size() < bucket_elements) return *entry.bucket;
                entry.is_open = false;
            }
        auto const add = [&]<class Zero>(Zero) {
            buckets_.push_back(
                {std::make_unique<Bucket<T, Exec, Zero, Sync, Sharded>>(*context_, P::decays), key, true});
        };
        if (zero_stage_ == 0)
            add(Stage<0>());
        else
            add(Stage<1>());
        return *buckets_.back().bucket;
    }

    Context<Exec> const* context_;
    int zero_stage_;
    std::size_t versions_, first_version_ = 0;
    std::vector<Entry> buckets_;
    std::function<void(int, std::size_t)> place_; ///< where the parameters of a stage are after so many updates
    Tensor<SquareSum, Exec> norm_;
};

} // namespace pentad::zero
