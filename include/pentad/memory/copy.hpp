// Copies of contiguous memory, by bytes: one instantiation each, whatever the elements.
#pragma once

#include <pentad/memory/view.hpp>
#include <pentad/observe/dry_run.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pentad::memory {

namespace detail {
template <class MemorySpace>
using Bytes = Kokkos::View<std::byte*, Kokkos::LayoutRight, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
template <class MemorySpace>
Bytes<MemorySpace> bytes(void const* data, std::size_t count) {
    return Bytes<MemorySpace>(static_cast<std::byte*>(const_cast<void*>(data)), count);
}
/// True in a dry run, which records a pass over `bytes` bytes instead.
inline bool dry(char const* name, std::size_t bytes) {
    auto* const run = observe::dry_run();
    if (run != nullptr && bytes > 0) run->pass(name, static_cast<double>(bytes));
    return run != nullptr;
}
template <class Exec>
using Range = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;
} // namespace detail

/// work(first, count) for parts of `bytes` bytes, each a multiple of `grain`: one a thread, where it is worth one.
template <class Exec, class Work>
void for_parts_on_host(char const* label, Exec const& exec, std::size_t bytes, std::size_t grain, Work const& work) {
    static constexpr std::size_t worth_a_thread = std::size_t{32} << 10;
    std::size_t const threads = static_cast<std::size_t>(exec.concurrency()),
                      parts = std::clamp<std::size_t>(bytes / worth_a_thread, 1, threads), grains = bytes / grain;
    if (parts == 1) return work(0, bytes);
    auto const cut = [=](std::size_t i) { return i == parts ? bytes : grains / parts * i * grain; };
    Kokkos::parallel_for(label, detail::Range<Exec>(exec, 0, static_cast<std::int64_t>(parts)), [=](std::int64_t i) {
        auto const part = static_cast<std::size_t>(i);
        work(cut(part), cut(part + 1) - cut(part));
    });
}

/// Within the memory of an execution space, in order with the work of `exec`.
template <class Exec>
void copy(Exec const& exec, void* to, void const* from, std::size_t bytes) {
    using Space = typename Exec::memory_space;
    if (to == from || detail::dry("copy", 2 * bytes)) return;
    if (bytes == 0) return;
    if constexpr (runs_on_host<Exec>)
        for_parts_on_host("pentad::copy", exec, bytes, 64, [=](std::size_t first, std::size_t count) {
            std::memcpy(static_cast<std::byte*>(to) + first, static_cast<std::byte const*>(from) + first, count);
        });
    else
        Kokkos::deep_copy(exec, detail::bytes<Space>(to, bytes), detail::bytes<Space>(from, bytes));
}
/// Zeros, in order with the work of `exec`.
template <class Exec>
void clear(Exec const& exec, void* data, std::size_t bytes) {
    if (detail::dry("clear", bytes)) return;
    if (bytes == 0) return;
    if constexpr (runs_on_host<Exec>)
        for_parts_on_host("pentad::clear", exec, bytes, 64, [=](std::size_t first, std::size_t count) {
            std::memset(static_cast<std::byte*>(data) + first, 0, count);
        });
    else
        Kokkos::deep_copy(exec, detail::bytes<typename Exec::memory_space>(data, bytes), std::byte{0});
}
/// To the host. Waits for `exec`, and for the copy. In a dry run the host gets zeros.
template <class Exec>
void copy_to_host(Exec const& exec, void* host, void const* from, std::size_t bytes) {
    if (detail::dry("copy to the host", bytes)) {
        if (bytes > 0) std::memset(host, 0, bytes);
        return;
    }
    exec.fence("pentad: copy to the host");
    if (bytes > 0)
        Kokkos::deep_copy(detail::bytes<Kokkos::HostSpace>(host, bytes),
                          detail::bytes<typename Exec::memory_space>(from, bytes));
}
/// From the host. Waits for `exec`, which may still read what is overwritten, and for the copy.
template <class Exec>
void copy_from_host(Exec const& exec, void* to, void const* host, std::size_t bytes) {
    if (detail::dry("copy from the host", bytes)) return;
    exec.fence("pentad: copy from the host");
    if (bytes > 0)
        Kokkos::deep_copy(detail::bytes<typename Exec::memory_space>(to, bytes),
                          detail::bytes<Kokkos::HostSpace>(host, bytes));
}

} // namespace pentad::memory
