// Copies between arrays of different strides, by bytes: one instantiation, whatever the elements.
#pragma once

#include <pentad/memory/copy.hpp>
#include <pentad/memory/host_runs.hpp>
#include <pentad/memory/host_transpose.hpp>
#include <pentad/memory/runs.hpp>
#include <pentad/memory/view.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace pentad::memory {

/// The multiples of bytes at which runs are cut into parts: short runs are not cut.
inline std::size_t grain_of(Runs const& runs) { return runs.bytes() <= 4096 ? runs.bytes() : 64; }

namespace detail {

/// On a device: neighbouring threads copy neighbouring words.
template <class Word, class Exec>
void copy_runs_by_words(char const* label, Exec const& exec, Runs const& runs, std::byte* to, std::byte const* from) {
    std::size_t const words = runs.bytes() / sizeof(Word);
    Kokkos::parallel_for(
        label, Range<Exec>(exec, 0, static_cast<std::int64_t>(runs.count() * words)), KOKKOS_LAMBDA(std::int64_t i) {
            auto const index = static_cast<std::size_t>(i);
            std::size_t const offset = index % words * sizeof(Word);
            std::size_t to_run, from_run;
            runs.find(index / words, to_run, from_run);
            *reinterpret_cast<Word*>(to + to_run + offset) = *reinterpret_cast<Word const*>(from + from_run + offset);
        });
}

struct alignas(16) SixteenBytes {
    std::uint64_t halves[2];
};

} // namespace detail

/// Copies the runs, in order with the work of `exec`. Source and target do not overlap. A dry run records a pass
/// `name`.
template <class Exec>
void copy(char const* name, Exec const& exec, Runs const& runs, void* to, void const* from) {
    std::size_t const bytes = runs.count() * runs.bytes();
    if (detail::dry(name, 2 * bytes) || bytes == 0) return;
    auto* const target = static_cast<std::byte*>(to);
    auto const* const source = static_cast<std::byte const*>(from);
    if constexpr (runs_on_host<Exec>) {
        if (auto const transpose = HostTranspose::of(runs)) {
            std::size_t const band = transpose->band_bytes();
            for_parts_on_host(name, exec, transpose->bands() * band, band, [=](std::size_t first, std::size_t count) {
                transpose->copy(first / band, (first + count) / band, target, source);
            });
        } else
            for_parts_on_host(name, exec, bytes, grain_of(runs), [=](std::size_t first, std::size_t count) {
                copy_part(runs, first, count, target, source, copy_line);
            });
    } else {
        auto const addresses = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
        switch (std::gcd(runs.alignment(), std::size_t{addresses})) {
        case 16:
            return detail::copy_runs_by_words<detail::SixteenBytes>(name, exec, runs, target, source);
        case 8:
            return detail::copy_runs_by_words<std::uint64_t>(name, exec, runs, target, source);
        case 4:
            return detail::copy_runs_by_words<std::uint32_t>(name, exec, runs, target, source);
        case 2:
            return detail::copy_runs_by_words<std::uint16_t>(name, exec, runs, target, source);
        default:
            return detail::copy_runs_by_words<std::byte>(name, exec, runs, target, source);
        }
    }
}

} // namespace pentad::memory

#if PENTAD_COMPILED_TENSOR
#include <pentad/memory/impl/copy.hpp>
#endif
