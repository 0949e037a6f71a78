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
/// On a host: many bytes in pieces, so that all threads have work. Without a source, zeros.
template <class Exec>
void copy_on_host(Exec const& exec, std::byte* to, std::byte const* from, std::size_t bytes) {
    constexpr std::size_t piece = std::size_t{1} << 16;
    auto const copy_piece = KOKKOS_LAMBDA(std::int64_t i) {
        std::size_t const begin = static_cast<std::size_t>(i) * piece, rest = bytes - begin;
        std::size_t const length = rest < piece ? rest : piece;
        if (from == nullptr)
            std::memset(to + begin, 0, length);
        else
            std::memcpy(to + begin, from + begin, length);
    };
    std::size_t const pieces = (bytes + piece - 1) / piece;
    if (pieces <= 1) return copy_piece(0);
    Kokkos::parallel_for(
        "pentad::copy",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, static_cast<std::int64_t>(pieces)),
        copy_piece);
}
} // namespace detail

/// Within the memory of an execution space, in order with the work of `exec`.
template <class Exec>
void copy(Exec const& exec, void* to, void const* from, std::size_t bytes) {
    using Space = typename Exec::memory_space;
    if (to == from || detail::dry("copy", 2 * bytes)) return;
    if (bytes == 0) return;
    if constexpr (runs_on_host<Exec>)
        detail::copy_on_host(exec, static_cast<std::byte*>(to), static_cast<std::byte const*>(from), bytes);
    else
        Kokkos::deep_copy(exec, detail::bytes<Space>(to, bytes), detail::bytes<Space>(from, bytes));
}
/// Zeros, in order with the work of `exec`.
template <class Exec>
void clear(Exec const& exec, void* data, std::size_t bytes) {
    if (detail::dry("clear", bytes)) return;
    if (bytes == 0) return;
    if constexpr (runs_on_host<Exec>)
        detail::copy_on_host(exec, static_cast<std::byte*>(data), nullptr, bytes);
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
