// The weights of this rank's stages, without gradients and without an optimizer: for what computes and does not learn.
#pragma once

#include <pentad/layers/unit.hpp>
#include <pentad/zero/layouts.hpp>
#include <pentad/zero/weight_bucket.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::zero {

template <class T, class Exec>
class Weights {
  public:
    using A = accumulator_t<T>;

    /// Gives memory to the parameters of `model`, which it must not outlive, and draws them.
    /// @param sharding in stage 3 a unit's values are sharded, and gathered for each use; in the others they are whole
    /// @param holders which ranks hold which stages
    template <class Model>
    Weights(Context<Exec> const& context, Model& model, std::uint64_t seed, ZeroSharding const& sharding = {},
            Holders const& holders = {})
        : context_(&context) {
        for (int const stage : model.stages())
            model.for_each_unit_of(stage, [&](Unit<T, Exec>& unit) { add_unit(unit, sharding, holders); });
        for (auto const& unit : units_)
            for (auto const& bucket : unit->buckets) bucket->allocate_values(1);
        for_each_imported(
            [&](AnyParameter<T, Exec> const& parameter) { parameter.draw(seed, parameter.flat_gradient().data()); });
    }
    Weights(Weights const&) = delete;
    Weights& operator=(Weights const&) = delete;

    /// Calls f(parameter), which writes the whole weights of this rank into parameter.flat_gradient(), and takes them.
    /// One parameter's are in memory at a time, zeros before f. Not while the model computes.
    template <class F>
    void for_each_imported(F&& f) {
        for (auto const& unit : units_)
            for (std::size_t i = 0; i < unit->parameters.size(); ++i)
                with_accumulators(*unit->parameters[i], [&](auto& parameter, auto const& values) {
                    values.clear();
                    f(parameter);
                    unit->bucket_of[i]->set_value(parameter, values.flat());
                });
        context_->exec().fence("pentad: weights imported");
    }
    /// Calls f(parameter) with the whole weights of this rank in parameter.flat_gradient(), which f may not keep.
    /// Collective. @param after is called when all have been shown here, as ParameterStore::for_each_exported() has it
    template <class F>
    void for_each_exported(F&& f, std::function<void()> const& after = [] {}) {
        for (auto const& unit : units_) {
            unit->acquire_values();
            for (auto* const each : unit->parameters)
                with_accumulators(*each, [&](auto& parameter, auto const& values) {
                    if (parameter.own_optimizer())
                        memory::copy(context_->exec(), values.data(), parameter.exact_value().data(),
                                     parameter.size() * sizeof(A));
                    else
                        kernels::convert<T, A>(context_->exec(), View<T const, 1, Exec>(parameter.flat_value()),
                                               values.flat());
                    f(parameter);
                });
            unit->release_values();
        }
        context_->exec().fence("pentad: weights exported");
        after();
    }
    /// What a checkpoint has of them: calls f("weight", parameter, 0, elements), which writes the elements.
    template <class F>
    void for_each_state(bool, bool, F&& f) {
        for_each_imported([&](auto const& parameter) {
            f(std::string_view("weight"), std::as_const(parameter), std::size_t{0}, parameter.flat_gradient());
        });
    }
    /// All states have been written.
    void restore() {}
    /// Forgets parameters that were gathered for a pass: to be called after each run of a schedule.
    void drop_gathered() {
        for (auto const& unit : units_)
            for (auto const& bucket : unit->buckets) bucket->drop_values();
    }

  private:
    using Values = WeightBucket<T, Exec>;

    struct StoredUnit final : UnitMemory {
        std::vector<AnyParameter<T, Exec>*> parameters;
        std::vector<Values*> bucket_of; ///< each of them
        std::vector<std::unique_ptr<Values>> buckets;

        void prefetch_values() override {
            for (auto const& bucket : buckets) bucket->prefetch_values();
        }
        void acquire_values() override {
            prefetch_values(); // all are under way before one is waited for
            for (auto const& bucket : buckets) bucket->acquire_values();
        }
        void release_values() override {
            for (auto const& bucket : buckets) bucket->release_values();
        }
        void acquire_gradients() override { throw std::logic_error("weights without gradients: nothing learns here"); }
        void release_gradients(bool) override {}
    };

    /// Calls f(parameter, values) with memory for its values where gradients would be.
    template <class F>
    void with_accumulators(AnyParameter<T, Exec>& parameter, F&& f) {
        Tensor<Whole<A>, Exec> const values(*context_, {parameter.size()}, observe::Memory::parameters);
        parameter.place_gradient(values.data());
        f(parameter, values);
        parameter.place_gradient(nullptr);
    }
    void add_unit(Unit<T, Exec>& unit, ZeroSharding const& sharding, Holders const& holders) {
        auto& stored = *units_.emplace_back(std::make_unique<StoredUnit>());
        stored.parameters = unit.parameters();
        unit.set_memory(&stored);
        std::vector<AnyParameter<T, Exec> const*> first; // of each bucket
        for (auto* const parameter : stored.parameters) {
            auto const alike = std::find_if(first.begin(), first.end(), [&](auto const* other) {
                return &other->context() == &parameter->context() &&
                       is_sharded_alike(other->stored_layout(), parameter->stored_layout()) &&
                       other->synchronised_axes() == parameter->synchronised_axes() &&
                       other->own_optimizer().has_value() == parameter->own_optimizer().has_value();
            });
            if (alike == first.end()) {
                auto const& context = parameter->context();
                auto const layouts = bucket_layouts<A>(context.communicators(), parameter->stored_layout(),
                                                       parameter->synchronised_axes(), holders, sharding);
                stored.buckets.push_back(std::make_unique<Values>(
                    context, layouts, parameter->own_optimizer().has_value(), sharding.keeps_parameters));
                stored.bucket_of.push_back(stored.buckets.back().get());
                first.push_back(parameter);
            } else {
                stored.bucket_of.push_back(stored.buckets[static_cast<std::size_t>(alike - first.begin())].get());
            }
            stored.bucket_of.back()->add(parameter);
        }
    }

    Context<Exec> const* context_;
    std::vector<std::unique_ptr<StoredUnit>> units_;
};

} // namespace pentad::zero
