// What the steps of a plan work on: memory and extents, without a layout in the type.
#pragma once

#include <pentad/comm/boxes.hpp>
#include <pentad/layout/block.hpp>
#include <pentad/memory/pool.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/tensor/context.hpp>

#include <cstddef>

namespace pentad::detail {

/// A shard on its way through a plan.
template <class T, class Exec>
struct Shard : ShardShape {
    memory::Buffer<typename Exec::memory_space> block{};
    T* data = nullptr;

    [[nodiscard]] View<T, 1, Exec> flat() const { return View<T, 1, Exec>(data, size()); }
    /// An uninitialised shard: at `place`, or, where that is null, in a buffer of its own.
    [[nodiscard]] static Shard make(Context<Exec> const& context, ShardShape const& shape, T* place = nullptr,
                                    observe::Memory kind = observe::Memory::activations) {
        Shard shard{shape, {}, place};
        if (place != nullptr) return shard;
        shard.block = context.take(shard.size() * sizeof(T), kind);
        shard.data = static_cast<T*>(shard.block.data());
        return shard;
    }
    [[nodiscard]] bool writable() const { return block.sole_owner(); }
};

using comm::BoxInMemory;

/// A box in the memory of a shard, ghost cells included.
inline BoxInMemory in_memory(ShardShape const& shard, ElementBox const& box) {
    return {shard.rank, box, shard.memory()};
}

/// Copies a box; both have the same extents.
template <class T, class Exec>
void copy_box(char const* name, Exec const& exec, T* to, BoxInMemory const& target, T const* from,
              BoxInMemory const& source) {
    comm::BoxCopy const copy(sizeof(T), target, source);
    memory::copy(name, exec, copy.runs, reinterpret_cast<std::byte*>(to) + copy.to,
                 reinterpret_cast<std::byte const*>(from) + copy.from);
}

} // namespace pentad::detail
