// What the forward and the backward pass of attention on the host share: the sizes of tiles, and what a mask leaves of
// them.
#pragma once

#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/host_tiles.hpp>
#include <pentad/kernels/detail/simd.hpp>

#include <algorithm>

namespace pentad::kernels::detail {

inline constexpr int tile_queries = 64;
inline constexpr int tile_keys = 64;
/// A thread works on several tiles of queries at once, so that each tile of keys is fetched (from rows that may lie far
/// apart, hence often from beyond the second-level cache) once for all of them.
inline constexpr int most_tiles_at_once = 8;

/// How many tiles of queries a thread takes at once: what fits half a second-level cache and leaves work for all
/// threads.
template <class Acc>
int tiles_at_once(i64 elements_per_tile, i64 tiles, i64 others, i64 threads) {
    constexpr i64 cache_elements = 768 * 1024 / sizeof(Acc);
    i64 const fair = threads == 1 ? tiles : tiles * others / (4 * threads);
    return static_cast<int>(
        std::clamp<i64>(std::min({cache_elements / elements_per_tile, fair, tiles}), 1, most_tiles_at_once));
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

} // namespace pentad::kernels::detail
