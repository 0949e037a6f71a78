// What attention and scans on a device share: tiles in team scratch, and a warp for each row of a
// tile: coalesced, free of bank conflicts, and no sum that depends on the order in which teams run. The same code
// runs with teams of one host thread, which is how it is tested without a device.
#pragma once

#include <pentad/kernels/rows.hpp>
#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

namespace pentad::kernels::detail {

/// The elements between rows of a tile: odd, so that a column lies on different banks.
inline int device_row(i64 width) { return static_cast<int>(width) | 1; }

/// The largest tile (rows, a power of two) whose scratch fits what a team can count on: tiles of `columns` numbers a
/// row together, with `squares` tile x tile arrays and `rows` arrays of one number a row.
template <class Exec, class Acc>
struct DeviceTiles {
    int tile;
    int row = 0; // device_row() of head_dim, where all tiles are of that width
    std::size_t bytes;

    DeviceTiles(i64 head_dim, int tiles, int squares, int rows)
        : DeviceTiles(tiles * device_row(head_dim), squares, rows) {
        row = device_row(head_dim);
    }
    DeviceTiles(int columns, int squares, int rows) {
        // More than 40 KiB would leave a multiprocessor with few teams.
        auto const limit = static_cast<std::size_t>(std::min(Kokkos::TeamPolicy<Exec>::scratch_size_max(0), 40 * 1024));
        for (tile = 32;; tile /= 2) {
            auto const elements = static_cast<std::size_t>(tile) * (columns + squares * tile + rows);
            bytes = elements * sizeof(Acc);
            if (bytes <= limit || tile == 1) return;
        }
    }
};

template <class Exec>
auto device_policy(Exec const& exec, i64 league, std::size_t bytes) {
    using Policy = Kokkos::TeamPolicy<Exec>;
    auto const policy =
        runs_on_host<Exec> ? Policy(exec, static_cast<int>(league), 1) : Policy(exec, static_cast<int>(league), 8, 32);
    return Policy(policy).set_scratch_size(0, Kokkos::PerTeam(static_cast<int>(bytes)));
}

/// Fills a tile with `rows` rows from memory, times factor.
template <class Member, class T, class Acc>
KOKKOS_FUNCTION void load_device_tile(Member const& team, T const* from, i64 stride, int rows, i64 head_dim, Acc* to,
                                      int to_stride, Acc factor) {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int r) {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, head_dim),
                             [&](i64 d) { to[r * to_stride + d] = Acc(from[r * stride + d]) * factor; });
    });
}

/// Zeros in `rows` rows of a tile.
template <class Member, class Acc>
KOKKOS_FUNCTION void clear_device_tile(Member const& team, int rows, i64 width, Acc* tile, int stride) {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int r) {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, width), [&](i64 d) { tile[r * stride + d] = Acc(0); });
    });
}
/// `rows` rows of a tile to memory.
template <class Member, class Acc, class T>
KOKKOS_FUNCTION void store_device_tile(Member const& team, Acc const* tile, int stride, int rows, i64 width, T* to,
                                       i64 to_stride) {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int r) {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, width),
                             [&](i64 d) { to[r * to_stride + d] = T(tile[r * stride + d]); });
    });
}

/// A row's place in the tile that begins at `first`, from 0 to `keys`.
KOKKOS_INLINE_FUNCTION int in_device_tile(i64 key, i64 first, int keys) {
    i64 const place = key - first;
    return static_cast<int>(place < 0 ? 0 : place < keys ? place : keys);
}

template <class Acc>
KOKKOS_FUNCTION Acc device_dot(Acc const* a, Acc const* b, i64 head_dim) {
    Acc sum = Acc(0);
    for (i64 d = 0; d < head_dim; ++d) sum += a[d] * b[d];
    return sum;
}

} // namespace pentad::kernels::detail
