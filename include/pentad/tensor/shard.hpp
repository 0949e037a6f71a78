// What the steps of a plan work on: memory and extents, without a layout in the type.
#pragma once

#include <pentad/layout/layout.hpp>
#include <pentad/memory/pool.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/tensor/context.hpp>

#include <array>
#include <cstddef>

namespace pentad::detail {

/// A shard on its way through a plan.
template <class T, class Exec>
struct Shard {
    memory::Buffer<typename Exec::memory_space> block;
    T* data;
    std::array<std::size_t, max_dimensions> local;
    std::size_t rank;

    [[nodiscard]] std::size_t product(std::size_t begin, std::size_t end) const {
        std::size_t result = 1;
        for (std::size_t d = begin; d < end; ++d) result *= local[d];
        return result;
    }
    [[nodiscard]] std::size_t size() const { return product(0, rank); }
    [[nodiscard]] View<T, 1, Exec> flat() const { return View<T, 1, Exec>(data, size()); }
    /// An uninitialised shard of the same extents: at `place`, or, where that is null, in a buffer of its own.
    [[nodiscard]] Shard in(Context<Exec> const& context, T* place,
                           observe::Memory kind = observe::Memory::activations) const {
        Shard other{{}, place, local, rank};
        if (place != nullptr) return other;
        other.block = context.take(other.size() * sizeof(T), kind);
        other.data = static_cast<T*>(other.block.data());
        return other;
    }
    /// An uninitialised shard of the same rank with `extent` in dimension d.
    [[nodiscard]] Shard with(Context<Exec> const& context, std::size_t d, std::size_t extent,
                             observe::Memory kind = observe::Memory::activations, T* place = nullptr) const {
        Shard other{{}, nullptr, local, rank};
        other.local[d] = extent;
        return other.in(context, place, kind);
    }
    [[nodiscard]] bool writable() const { return block.sole_owner(); }
};

} // namespace pentad::detail
