// What the forward and the backward pass of attention on the host share: the tiles of one thread in
// team scratch, filled from rows in memory, and the launch of one work item for each thread.
#pragma once

#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/simd.hpp>
#include <pentad/kernels/detail/tile_product.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace pentad::kernels::detail {

inline constexpr int tile_queries = 64;
inline constexpr int tile_keys = 64;
/// A thread works on several tiles of queries at once, so that each tile of keys is fetched (from rows that may lie far
/// apart, hence often from beyond the second-level cache) once for all of them.
inline constexpr int most_tiles_at_once = 8;

/// head_dim rounded up to whole vectors. Tiles hold zeros beyond head_dim.
template <class Acc>
int padded_dim(i64 head_dim) {
    return static_cast<int>((head_dim + lanes<Acc> - 1) / lanes<Acc> * lanes<Acc>);
}

/// How many tiles of queries a thread takes at once: what fits half a second-level cache and leaves work for all
/// threads.
template <class Acc>
int tiles_at_once(i64 elements_per_tile, i64 tiles, i64 others, i64 threads) {
    constexpr i64 cache_elements = 768 * 1024 / sizeof(Acc);
    i64 const fair = threads == 1 ? tiles : tiles * others / (4 * threads);
    return static_cast<int>(
        std::clamp<i64>(std::min({cache_elements / elements_per_tile, fair, tiles}), 1, most_tiles_at_once));
}

/// Hands out pieces of a thread's scratch, each on a cache line. Without memory it only adds up what is asked for.
template <class Acc>
class TileScratch {
  public:
    explicit TileScratch(void* memory)
        : begin_(reinterpret_cast<std::uintptr_t>(memory)), next_((begin_ + line - 1) / line * line) {}

    Acc* tile(i64 elements) {
        auto* const piece = reinterpret_cast<Acc*>(next_);
        next_ += (static_cast<std::size_t>(elements) * sizeof(Acc) + line - 1) / line * line;
        return piece;
    }
    /// Enough for what was handed out, wherever the memory begins.
    std::size_t bytes() const { return next_ - begin_ + line; }

  private:
    static constexpr std::size_t line = 64;
    std::uintptr_t begin_, next_;
};

/// Copies `rows` rows of head_dim elements into a tile [capacity, padded], converted, zeros elsewhere.
template <class T, class Acc>
void load_tile(T const* from, i64 from_stride, int rows, i64 head_dim, Acc* to, int capacity, int padded) {
    for (int r = 0; r < rows; ++r) {
        T const* const source = from + r * from_stride;
        Acc* const target = to + static_cast<i64>(r) * padded;
        for (i64 d = 0; d < head_dim; ++d) target[d] = static_cast<Acc>(source[d]);
        for (i64 d = head_dim; d < padded; ++d) target[d] = Acc(0);
    }
    std::fill(to + static_cast<i64>(rows) * padded, to + static_cast<i64>(capacity) * padded, Acc(0));
}

/// Adds a tile's rows to rows in memory.
template <class Acc>
void add_tile(Acc const* from, int padded, int rows, i64 head_dim, Acc* to, i64 to_stride) {
    for (int r = 0; r < rows; ++r) {
        Acc const* const source = from + static_cast<i64>(r) * padded;
        Acc* const target = to + r * to_stride;
        for (i64 d = 0; d < head_dim; ++d) target[d] += source[d];
    }
}

/// to[columns, rows] = factor * transpose of from[rows, columns]; both sizes are whole vectors.
template <class Acc>
void transpose_tile(Acc const* from, int rows, int columns, Acc* to, Acc factor) {
    for (int r = 0; r < rows; r += lanes<Acc>)
        for (int c = 0; c < columns; c += lanes<Acc>)
            transpose_square(from + static_cast<i64>(r) * columns + c, columns, to + static_cast<i64>(c) * rows + r,
                             rows, factor);
}

/// For each query of a tile, how many keys of the key tile that starts at `first_key` it sees, as numbers of Acc.
template <class Acc>
void visible_in_tile(CausalOffset const& mask, i64 seq_k, i64 first_query, i64 first_key, Acc* visible) {
    for (int i = 0; i < tile_queries; ++i)
        visible[i] = static_cast<Acc>(visible_keys(mask, seq_k, first_query + i) - first_key);
}

/// What a mask leaves of a tile of queries and a tile of keys. Products skip the rest, in whole blocks.
class VisibleKeys {
  public:
    /// @param keys of the tile @param first_key of them @param first_query of the tile of queries
    VisibleKeys(CausalOffset const& mask, i64 seq_k, i64 first_query, i64 first_key, int keys)
        : keys_(keys), seen_by_first_(visible_keys(mask, seq_k, first_query) - first_key) {}

    /// Whether each query sees all of them.
    bool all() const { return seen_by_first_ >= keys_; }
    /// At most these, the first ones, are seen by queries before `query`.
    int before(int query) const { return static_cast<int>(std::clamp<i64>(seen_by_first_ + query - 1, 0, keys_)); }
    /// Queries before this one do not see `key`.
    int first_query(int key) const {
        return static_cast<int>(std::clamp<i64>(key + 1 - seen_by_first_, 0, tile_queries));
    }
    /// The same, rounded down to a vector of queries.
    template <class Acc>
    int first_lane(int key) const {
        return first_query(key) / lanes<Acc> * lanes<Acc>;
    }

  private:
    int keys_;
    i64 seen_by_first_; ///< may be negative; a query sees one key more than the query before it, if that sees any
};

/// Calls f(begin, end) for the rows of a tile, some blocks of a product at once.
template <class F>
void for_each_row_block(int rows, F const& f) {
    constexpr int step = 2 * block_rows;
    for (int begin = 0; begin < rows; begin += step) f(begin, std::min(begin + step, rows));
}

/// Runs work(item, scratch) for items 0 .. items - 1, each on one host thread that owns `scratch_bytes` of scratch.
/// Items are handed out in order as threads become free.
template <class Exec, class Work>
void for_each_item(char const* label, Exec const& exec, i64 items, std::size_t scratch_bytes, Work const& work) {
    using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
    constexpr int level = 1; // of the scratch: large
    Kokkos::parallel_for(label,
                         Policy(exec, static_cast<int>(items), 1)
                             .set_scratch_size(level, Kokkos::PerTeam(static_cast<int>(scratch_bytes))),
                         [=](typename Policy::member_type const& team) {
                             work(team.league_rank(),
                                  team.team_scratch(level).get_shmem(static_cast<std::ptrdiff_t>(scratch_bytes)));
                         });
}

} // namespace pentad::kernels::detail
