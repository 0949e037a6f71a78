// Where the queries and keys of a pass lie, and which of the keys each query sees: what decides about what is computed
// and about what is sent.
#pragma once

#include <pentad/kernels/attention.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/documents.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/partition.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

namespace pentad::context {

/// Keys [begin, end) of a shard, in views of its keys from `first` on.
struct KeyRange {
    std::size_t begin = 0, end = dynamic, first = 0;
};

/// What a shard is: what a rank of cp has, or what the ranks have together among which a strategy exchanges heads.
enum class ShardOf { rank, head_group };

/// The runs of consecutive elements of each rank of cp.
inline std::vector<std::vector<Segment>> runs_of_ranks(DealtSequence const& dealt) {
    std::vector<std::vector<Segment>> runs;
    for (std::size_t rank = 0; rank < dealt.ranks(); ++rank) runs.push_back(dealt.segments(rank));
    return runs;
}

/// The scores of queries whose heads may be sharded.
template <class Query, class Exec>
kernels::AttentionScores scores_of(Tensor<Query, Exec> const& query, model::Scores const& of, double scale) {
    kernels::AttentionScores scores{.scale = scale, .soft_cap = of.soft_cap};
    if (of.alibi) {
        auto const shard = query.context().communicators().shard_index(Query::value.dimensions[2].axes);
        scores.alibi_heads = static_cast<i64>(query.extents()[2]);
        scores.first_head = static_cast<i64>(shard * query.local()[2]);
    }
    return scores;
}

/// How a sequence, or each slice of it, lies over cp, this rank's place, and what attention sees: fixed for a model.
struct BlockPositions {
    std::vector<std::vector<Segment>> shards; ///< the runs of each
    ShardOf shard_of;
    std::size_t mine;           ///< this rank's shard
    std::size_t length, slices; ///< of a slice; of a sequence
    Sight sight;
    model::Scores scores;
    double scale; ///< of the scores (Vaswani et al. 2017, eq. 1)

    /// @param axis along which the ranks hold different blocks: cp or a factor of it
    template <class Exec>
    BlockPositions(LayerSetup<Exec> const& setup, model::Attention const& part, std::string_view axis)
        : shard_of(ShardOf::head_group), mine(setup.context.communicators().shard_index(AxisNames(axis))),
          length(setup.seq), slices(setup.slices), sight(part.sight), scores(part.scores),
          scale(1.0 / std::sqrt(static_cast<double>(part.head_dim))) {
        auto const partition = setup.block_partition(axis);
        for (std::size_t shard = 0; shard < partition.shards(); ++shard) shards.push_back(partition.segments(shard));
    }
    /// The positions for attention with one shard for each rank of cp, however the setup deals sequences.
    template <class Exec>
    BlockPositions(LayerSetup<Exec> const& setup, Sight const& seen, double scale_of_scores)
        : shards(runs_of_ranks(setup.partition())), shard_of(ShardOf::rank),
          mine(setup.context.communicators().shard_index(AxisNames(ml::cp::name))), length(setup.seq),
          slices(setup.slices), sight(seen), scale(scale_of_scores) {}
};

/// The blocks of a pass, with its map where it has one.
template <class Exec>
class PassBlocks {
  public:
    /// @param slice of the sequences, to which the queries belong
    PassBlocks(BlockPositions const& fixed, SequenceMap<Exec> const* map, std::size_t slice)
        : fixed_(&fixed), map_(map), slice_(slice) {
        if (map != nullptr && fixed.shard_of == ShardOf::rank && map->dealt != nullptr)
            dealt_ = runs_of_ranks(*map->dealt);
        seen_.resize(shards().size());
        auto const* const documents = map != nullptr ? map->documents : nullptr;
        for (std::size_t shard = 0; shard < shards().size(); ++shard)
            for (auto const& segment : shards()[shard])
                seen_[shard].push_back(visible_to({global(segment, slice), global(segment, slice) + segment.length},
                                                  fixed.sight, fixed.length * fixed.slices, documents));
    }

    [[nodiscard]] std::size_t mine() const { return fixed_->mine; }
    /// The scores of these queries, whose heads may be sharded.
    template <class Query>
    [[nodiscard]] kernels::AttentionScores scores(Tensor<Query, Exec> const& query) const {
        return scores_of(query, fixed_->scores, fixed_->scale);
    }
    [[nodiscard]] bool is_one_block() const { return shards().size() * shards()[0].size() == 1; }
    /// Whether what a query sees is less than a causal mask leaves, so that parts of a block may be of no use.
    [[nodiscard]] bool is_narrow() const {
        return fixed_->sight.window > 0 || (map_ != nullptr && map_->documents != nullptr);
    }
    [[nodiscard]] std::size_t shard_count() const { return shards().size(); }

    /// Whether some query of a shard sees some of these keys of another, which belong to a slice of the sequences.
    [[nodiscard]] bool sees(std::size_t queries, std::size_t keys, std::size_t slice,
                            KeyRange const& range = {}) const {
        for (auto const& run : shards()[keys]) {
            Segment const key = within(run, range);
            if (key.length > 0 && std::any_of(seen_[queries].begin(), seen_[queries].end(),
                                              [&](auto const& seen) { return overlap(seen, key, slice); }))
                return true;
        }
        return false;
    }
    /// f(queries, keys) for each run of this rank's shard and of another in which some query sees some key.
    template <class F>
    void for_each_visible(std::size_t theirs, std::size_t slice, KeyRange const& range, F&& f) const {
        for (std::size_t i = 0; i < shards()[mine()].size(); ++i)
            for (auto const& run : shards()[theirs]) {
                Segment const key = within(run, range);
                if (key.length > 0 && overlap(seen_[mine()][i], key, slice)) f(shards()[mine()][i], key);
            }
    }
    [[nodiscard]] kernels::AttentionMask mask(Segment const& queries, Segment const& keys, std::size_t slice) const {
        kernels::AttentionMask mask{.causal = fixed_->sight.causal,
                                    .query_start = static_cast<i64>(global(queries, slice_)),
                                    .key_start = static_cast<i64>(global(keys, slice)),
                                    .window = static_cast<i64>(fixed_->sight.window)};
        if (map_ != nullptr && map_->documents != nullptr) {
            mask.document_begins = map_->begins.data() + mask.query_start;
            mask.document_ends = map_->ends.data() + mask.query_start;
            mask.sequence_stride = static_cast<i64>(map_->begins.extent(1));
        }
        return mask;
    }

  private:
    [[nodiscard]] std::vector<std::vector<Segment>> const& shards() const {
        if (!dealt_.empty()) return dealt_;
        bool const is_mapped = fixed_->shard_of == ShardOf::head_group && map_ != nullptr && map_->shards != nullptr;
        return is_mapped ? *map_->shards : fixed_->shards;
    }
    [[nodiscard]] std::size_t global(Segment const& segment, std::size_t slice) const {
        return slice * fixed_->length + segment.global;
    }
    /// The part of a run that lies in a range of its shard.
    static Segment within(Segment const& run, KeyRange const& range) {
        std::size_t const begin = std::max(run.local, range.begin), end = std::min(run.local + run.length, range.end);
        return {run.global + (begin - run.local), begin - range.first, end > begin ? end - begin : 0};
    }
    [[nodiscard]] bool overlap(PositionRange const& seen, Segment const& keys, std::size_t slice) const {
        std::size_t const first = global(keys, slice);
        return first < seen.end && first + keys.length > seen.begin;
    }

    BlockPositions const* fixed_;
    SequenceMap<Exec> const* map_;
    std::size_t slice_;
    std::vector<std::vector<Segment>> dealt_;      ///< of ranks, where the map deals sequences
    std::vector<std::vector<PositionRange>> seen_; ///< by each run of each shard's queries
};

} // namespace pentad::context
