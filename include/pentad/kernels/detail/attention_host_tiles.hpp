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

/// The keys of a block that each query of a tile sees; lanes without a query repeat the last one.
struct TileVisibility {
    i64 begin[tile_queries], end[tile_queries]; // neither ever decreases

    void set(AttentionMask const& mask, i64 seq_k, i64 batch, i64 first_query, int queries) {
        for (int i = 0; i < tile_queries; ++i) {
            auto const keys = visible_keys(mask, seq_k, batch, first_query + std::min(i, queries - 1));
            begin[i] = keys.begin;
            end[i] = keys.end;
        }
    }
    /// Those that some query sees, and perhaps a few between.
    VisibleKeys keys() const { return {begin[0], end[tile_queries - 1]}; }
};

/// What a mask leaves of a tile of queries and a tile of keys. Products skip the rest, in whole blocks.
class VisiblePairs {
  public:
    /// @param keys of the tile @param first_key of them
    VisiblePairs(TileVisibility const& queries, i64 first_key, int keys)
        : queries_(&queries), first_key_(first_key), keys_(keys) {}

    /// Whether each query sees all of them.
    bool all() const {
        return queries_->begin[tile_queries - 1] <= first_key_ && queries_->end[0] >= first_key_ + keys_;
    }
    /// Queries [begin, end) see no key outside of these.
    int first_key(int begin) const { return in_tile(queries_->begin[begin], keys_); }
    int last_key(int end) const { return in_tile(queries_->end[end - 1], keys_); }
    /// Keys [begin, end) are seen by no query outside of these.
    int first_query(int begin) const {
        return static_cast<int>(std::upper_bound(queries_->end, queries_->end + tile_queries, first_key_ + begin) -
                                queries_->end);
    }
    int last_query(int end) const {
        return static_cast<int>(std::lower_bound(queries_->begin, queries_->begin + tile_queries, first_key_ + end) -
                                queries_->begin);
    }
    /// The same, rounded to whole vectors of queries.
    template <class Acc>
    int first_lane(int begin) const {
        return first_query(begin) / lanes<Acc> * lanes<Acc>;
    }
    template <class Acc>
    int last_lane(int end) const {
        return (last_query(end) + lanes<Acc> - 1) / lanes<Acc> * lanes<Acc>;
    }
    /// Each query sees keys [from, until) of the tile, as numbers of Acc.
    template <class Acc>
    void limits(Acc* from, Acc* until) const {
        for (int i = 0; i < tile_queries; ++i) {
            from[i] = static_cast<Acc>(in_tile(queries_->begin[i], tile_keys));
            until[i] = static_cast<Acc>(in_tile(queries_->end[i], tile_keys));
        }
    }

  private:
    int in_tile(i64 key, int keys) const { return static_cast<int>(std::clamp<i64>(key - first_key_, 0, keys)); }

    TileVisibility const* queries_;
    i64 first_key_;
    int keys_;
};

/// Which keys of a tile a vector of queries sees.
template <class Acc>
auto sees(int key, Vector<Acc> const& from, Vector<Acc> const& until) {
    auto const at = broadcast(static_cast<Acc>(key));
    return (from <= at) & (at < until);
}

/// Where tiles of keys begin, which is the same for all queries.
inline i64 start_of_tile(i64 key) { return key / tile_keys * tile_keys; }

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
