// Room: zero. The parameters of this rank: sorted into buckets by the axes over which their gradients are partial,
// drawn, synchronised, clipped, updated. The axes come from the parameters' types; nothing here names one.
#pragma once

#include <pentad/observe/trace.hpp>
#include <pentad/zero/bucket.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

namespace pentad::zero {

template <class T, class Exec>
class ParameterStore {
  public:
    using A = accumulator_t<T>;

    /// Gives memory to the parameters of `model` and draws them. A bucket is closed when it holds `bucket_elements` or
    /// more. @param stage of ZeRO: 0 or 1
    /// @throws std::invalid_argument when there is no such stage
    template <class Model>
    ParameterStore(Context<Exec> const& context, Model& model, std::uint64_t seed, int stage,
                   std::size_t bucket_elements)
        : context_(&context), stage_(stage), norm_(context, {}) {
        if (stage != 0 && stage != 1)
            throw std::invalid_argument("ZeRO stage " + std::to_string(stage) + ": stages 0 and 1 exist");
        struct Place {
            BucketBase<T, Exec>* bucket;
            std::size_t offset;
        };
        std::vector<Place> places;
        model.for_each_parameter([&](auto& parameter) {
            auto& bucket = bucket_for(parameter, bucket_elements);
            places.push_back({&bucket, bucket.reserve(parameter.value().size())});
        });
        for (auto const& [bucket, key, is_open] : buckets_) bucket->allocate();
        std::size_t next = 0;
        model.for_each_parameter([&](auto& parameter) {
            auto const [bucket, offset] = places[next++];
            parameter.place(bucket->values() + offset, bucket->gradients() + offset, bucket);
            parameter.draw(seed, bucket->gradients() + offset);
        });
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
        norm_ = redistribute<invariant_t<SquareSum>>(std::move(norm_)).template as<SquareSum>();
        double squares = 0;
        norm_.get(&squares);
        return std::sqrt(squares);
    }
    /// One update with the reduced gradients. Collective where optimizer state is sharded.
    void update(std::int64_t step, kernels::AdamWSettings const& settings) {
        observe::Scope const scope("update", "compute");
        for (auto const& entry : buckets_) entry.bucket->update(step, settings);
    }
    /// Puts the weights (bf16: their masters) into the gradients' memory, in accumulators. Collective.
    void export_weights() {
        for (auto const& entry : buckets_) entry.bucket->export_to_gradients();
        context_->exec().fence("pentad: weights exported");
    }

  private:
    struct Entry {
        std::unique_ptr<BucketBase<T, Exec>> bucket;
        std::pair<std::type_index, bool> key;
        bool is_open;
    };

    template <class P>
    BucketBase<T, Exec>& bucket_for(P const&, std::size_t bucket_elements) {
        using Sync = replicated_axes_t<typename P::used>;
        using Sharded = sharded_axes_t<typename P::stored>;
        std::pair<std::type_index, bool> const key(typeid(std::pair<Sync, Sharded>), P::decays);
        for (auto& entry : buckets_)
            if (entry.key == key && entry.is_open) {
                if (entry.bucket->size() < bucket_elements) return *entry.bucket;
                entry.is_open = false;
            }
        auto const add = [&]<class Zero>(Zero) {
            buckets_.push_back(
                {std::make_unique<Bucket<T, Exec, Zero, Sync, Sharded>>(*context_, P::decays), key, true});
        };
        if (stage_ == 0)
            add(Stage<0>());
        else
            add(Stage<1>());
        return *buckets_.back().bucket;
    }

    Context<Exec> const* context_;
    int stage_;
    std::vector<Entry> buckets_;
    Tensor<SquareSum, Exec> norm_;
};

} // namespace pentad::zero
