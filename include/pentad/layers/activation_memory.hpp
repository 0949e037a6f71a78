// Where the activations that blocks save may be between a forward and a backward pass.
#pragma once

#include <pentad/memory/pool.hpp>

#include <cstddef>
#include <limits>

namespace pentad {

/// Manages the activations that a stack of blocks saves, all of them in the context's pool of activations.
class ActivationMemory {
  public:
    /// What a block has saved in a forward pass.
    using Record = std::size_t;
    static constexpr Record none = std::numeric_limits<Record>::max();

    ActivationMemory() = default;
    ActivationMemory(ActivationMemory const&) = delete;
    ActivationMemory& operator=(ActivationMemory const&) = delete;
    virtual ~ActivationMemory() = default;

    /// To be called before the forward pass of a block.
    virtual void begin(memory::BlockName const& input) = 0;
    /// To be called after it: what the block has saved, its input included, may leave memory until bring_back().
    /// @param output stays in memory @param record what end() has returned for this block and micro-batch before, or
    /// none
    virtual Record end(memory::BlockName const& output, Record record) = 0;
    /// Returns when what was saved is in memory again, at another address perhaps.
    virtual void bring_back(Record record) = 0;
};

} // namespace pentad
