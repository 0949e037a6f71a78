// A unit of a model: the parameters that are used together, such as those of a block. The parameter store (zero/)
// gathers the values before the unit computes, and reduces the gradients after its backward pass. Layers know nothing
// of it: their containers (Stack, LanguageModel) mark where a unit is used.
#pragma once

#include <pentad/comm/turns.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace pentad {

/// Manages the memory of a unit's parameters. All calls are collective over the ranks that hold the same stage.
class UnitMemory {
  public:
    /// The values will be acquired next: may start to gather them.
    virtual void prefetch_values() = 0;
    /// Blocks until the values are there.
    virtual void acquire_values() = 0;
    virtual void release_values() = 0;
    /// Allocates memory for gradients, if need be.
    virtual void acquire_gradients() = 0;
    /// A user of the unit has added its gradients for a micro-batch. @param complete the last before an update
    virtual void release_gradients(bool complete) = 0;

  protected:
    ~UnitMemory() = default;
};

/// Without a UnitMemory the parameters stay where they were placed.
template <class T, class Exec>
class Unit {
  public:
    void add(AnyParameter<T, Exec>& parameter) { parameters_.push_back(&parameter); }
    /// The parameters of a layer, which must not move from now on.
    template <class Layer>
    void add_parameters_of(Layer& layer) {
        layer.for_each_parameter([this](AnyParameter<T, Exec>& parameter) { add(parameter); });
    }
    [[nodiscard]] std::vector<AnyParameter<T, Exec>*> const& parameters() const { return parameters_; }
    /// How many parts of the model on this rank compute with it: two where a tied table is embedding and head.
    [[nodiscard]] std::size_t users() const { return users_; }
    void set_users(std::size_t users) { users_ = users; }
    void set_memory(UnitMemory* memory) { memory_ = memory; }

    void prefetch() const {
        if (memory_ != nullptr) memory_->prefetch_values();
    }
    /// Calls f() with the values acquired. If f throws, they are not released.
    template <class F>
    void with_values(F&& f) const {
        if (memory_ != nullptr) in_one_turn([&] { memory_->acquire_values(); });
        std::forward<F>(f)();
        if (memory_ != nullptr) memory_->release_values();
    }
    /// Calls f(), which adds to the gradients.
    template <class F>
    void add_gradients(Pass<Exec> const& pass, F&& f) const {
        if (memory_ != nullptr) memory_->acquire_gradients();
        std::forward<F>(f)();
        if (memory_ != nullptr) in_one_turn([&] { memory_->release_gradients(pass.completes_gradients); });
    }

  private:
    /// What both of a pair use must not be left half done.
    template <class F>
    static void in_one_turn(F&& f) {
        comm::Turns::Hold const hold(comm::turns());
        f();
    }

    std::vector<AnyParameter<T, Exec>*> parameters_;
    std::size_t users_ = 1;
    UnitMemory* memory_ = nullptr;
};

} // namespace pentad
