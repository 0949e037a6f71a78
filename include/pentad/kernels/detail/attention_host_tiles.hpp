// What the forward and the backward pass of attention on the host share: the sizes of tiles, and what a mask leaves of
// them.
#pragma once

#include <pentad/kernels/detail/attention_problem.hpp>
#include <pentad/kernels/detail/host_tiles.hpp>
#include <pentad/kernels/detail/simd.hpp>
#include <pentad/kernels/detail/tile_operand.hpp>

#include <algorithm>

namespace pentad::kernels::detail {

inline constexpr int tile_queries = 64;
inline constexpr int tile_keys = 64;
/// Where a mask leaves only some pairs of a tile, so many queries are multiplied with the keys that they see.
inline constexpr int masked_columns = 16;
/// A thread works on several tiles of queries at once, so that each tile of keys is fetched (from rows that may lie far
/// apart, hence often from beyond the second-level cache) once for all of them.
inline constexpr int most_tiles_at_once = 8;

/// How many tiles of queries a thread takes at once: what fits half a second-level cache and leaves work for all
/// threads.
inline int tiles_at_once(i64 bytes_per_tile, i64 tiles, i64 others, i64 threads) {
    constexpr i64 cache = 768 * 1024;
    i64 const fair = threads == 1 ? tiles : tiles * others / (4 * threads);
    return static_cast<int>(std::clamp<i64>(std::min({cache / bytes_per_tile, fair, tiles}), 1, most_tiles_at_once));
}

/// The elements of a head in tiles: of queries and keys, and of values and outputs.
struct PaddedWidths {
    int heads, values;

    [[nodiscard]] int larger() const { return std::max(heads, values); }
};
template <class In>
PaddedWidths padded_widths(AttentionSizes const& sizes) {
    return {padded_dim<In>(sizes.head_dim), padded_dim<In>(sizes.value_dim)};
}

/// The keys of a block that each query of a tile sees; lanes without a query repeat the last one.
struct TileVisibility {
    i64 begin[tile_queries] = {}, end[tile_queries] = {}; // neither ever decreases

    void set(AttentionMask const& mask, i64 seq_k, i64 batch, i64 first_query, int queries) {
        for (int i = 0; i < tile_queries; ++i) {
            auto const keys = visible_keys(mask, seq_k, batch, first_query + std::min(i, queries - 1));
            begin[i] = keys.begin;
            end[i] = keys.end;
        }
    }
    /// The keys that some query sees, and perhaps a few between.
    VisibleKeys keys() const { return {begin[0], end[tile_queries - 1]}; }
    /// How many of the `loaded` keys of a tile, which starts at `first_key`, to compute with; 0: no query sees any.
    template <class In>
    int keys_of_tile(i64 first_key, int loaded) const {
        int const count = whole_operands<In>(std::clamp<i64>(keys().end - first_key, 0, loaded));
        return keys().begin < first_key + count ? count : 0;
    }
};

/// What a mask leaves of a tile of queries and a tile of keys. Products skip the rest, in whole blocks.
class VisiblePairs {
  public:
    /// @param keys of the tile @param first_key of them
    VisiblePairs(TileVisibility const& queries, i64 first_key, int keys)
        : queries_(&queries), first_key_(first_key), keys_(keys) {}

    int keys() const { return keys_; }
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
    /// The first query, rounded to whole vectors of queries.
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

} // namespace pentad::kernels::detail
