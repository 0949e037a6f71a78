// Tokens of many sequences of any lengths in one pass: chunks of prompts, and single tokens of sequences that are being
// written.
#pragma once

#include <pentad/layers/sequence_state.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/tensor/context.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad {

/// Tokens [position, position + length) of a sequence of a lane.
struct SequenceChunk {
    std::size_t lane = 0, sequence = 0, position = 0, length = 0;
};

/// A part of a chunk in rows [first, first + length) of a rank of cp.
struct TokenRun {
    std::size_t shard, lane, sequence, position, first, length;
};

/// How the tokens of chunks are dealt to the ranks of cp: page i of a sequence is on rank i % ranks, where the keys and
/// values of its tokens stay. One rank has all.
class DealtTokens {
  public:
    /// @param multiple of the rows of a rank, which the ranks that share these divide
    DealtTokens(std::span<SequenceChunk const> chunks, std::size_t lanes, std::size_t shards, std::size_t page,
                std::size_t multiple)
        : held_(lanes * shards) {
        for (auto const& chunk : chunks)
            for (std::size_t at = chunk.position, end = at + chunk.length; at < end;) {
                std::size_t const shard = shards == 1 ? 0 : at / page % shards;
                std::size_t const next = shards == 1 ? end : std::min(end, (at / page + 1) * page);
                auto& held = held_[chunk.lane * shards + shard];
                runs_.push_back({shard, chunk.lane, chunk.sequence, at, held, next - at});
                held += next - at;
                at = next;
            }
        std::size_t const most = *std::max_element(held_.begin(), held_.end());
        rows_ = (std::max<std::size_t>(most, 1) + multiple - 1) / multiple * multiple;
        shards_ = shards;
    }
    /// Rows of each rank in each lane; the last ones may be of no token.
    [[nodiscard]] std::size_t rows() const { return rows_; }
    /// The rows of tokens of a rank.
    [[nodiscard]] std::size_t held(std::size_t lane, std::size_t shard) const { return held_[lane * shards_ + shard]; }
    /// Runs of a chunk follow each other, in the order of their positions.
    [[nodiscard]] std::vector<TokenRun> const& runs() const { return runs_; }

  private:
    std::size_t shards_ = 1, rows_ = 0;
    std::vector<std::size_t> held_; ///< [lane, shard]
    std::vector<TokenRun> runs_;
};

/// The tokens of a pass, the same on every rank: `[batch, seq]` are lanes and their rows. Each rank has one lane.
template <class Exec>
class RaggedBatch {
  public:
    /// @param stream the layout of the residual stream @param room of the sequences @param multiple of a rank's rows,
    /// which the ranks that share them divide
    /// @throws std::invalid_argument where a chunk does not fit the room
    RaggedBatch(Context<Exec> const& context, LayoutValue const& stream, SequenceRoom const& room,
                std::span<SequenceChunk const> chunks, std::size_t multiple)
        : room_(room), shards_(along(context, ml::cp::name)),
          lane_(context.communicators().shard_index(lane_axes(stream))),
          shard_(context.communicators().shard_index(AxisNames(ml::cp::name))),
          dealt_(checked(chunks, room), room.lanes, shards_, room.page, multiple) {
        std::vector<i32> positions(dealt_.rows()); // rows of no token are at position 0, which every table has
        for (auto const& run : dealt_.runs())
            if (run.lane == lane_ && run.shard == shard_)
                for (std::size_t i = 0; i < run.length; ++i)
                    positions[run.first + i] = static_cast<i32>(run.position + i);
        auto const first = first_row(context, stream.dimensions[1].axes, rows_of(context, stream.dimensions[1].axes));
        positions_ = context.take(positions.size() * sizeof(i32));
        memory::copy_from_host(context.exec(), positions_.data(), positions.data(), positions.size() * sizeof(i32));
        in_stream_ = {first, rows_of(context, stream.dimensions[1].axes)};
    }

    [[nodiscard]] SequenceRoom const& room() const { return room_; }
    [[nodiscard]] std::size_t lanes() const { return room_.lanes; }
    /// Rows of a lane, on all ranks together.
    [[nodiscard]] std::size_t length() const { return shards_ * dealt_.rows(); }
    /// This rank's lane, and its part of the rows of a lane.
    [[nodiscard]] std::size_t lane() const { return lane_; }
    [[nodiscard]] std::size_t shard() const { return shard_; }
    /// Ranks that share the rows of a lane by pages.
    [[nodiscard]] std::size_t shards() const { return shards_; }
    [[nodiscard]] DealtTokens const& dealt() const { return dealt_; }
    /// The first row of a run among the rows of a lane, on all ranks together.
    [[nodiscard]] std::size_t row_of_lane(TokenRun const& run) const { return run.shard * dealt_.rows() + run.first; }
    /// f(run) for the runs of this rank's lane, also of other ranks: in the order of positions within each sequence.
    template <class F>
    void for_each_run(F&& f) const {
        for (auto const& run : dealt_.runs())
            if (run.lane == lane_) f(run);
    }
    /// The positions of the tokens in this rank's rows, and in those of its part of the stream.
    [[nodiscard]] View<i32 const, 1, Exec> positions() const {
        return View<i32 const, 1, Exec>(static_cast<i32 const*>(positions_.data()), dealt_.rows());
    }
    [[nodiscard]] View<i32 const, 1, Exec> positions_in_stream() const {
        return View<i32 const, 1, Exec>(static_cast<i32 const*>(positions_.data()) + in_stream_.first,
                                        in_stream_.second);
    }
    /// The number of tokens among the `length` rows that this rank has where rows are sharded over `axes`: the first
    /// ones.
    [[nodiscard]] std::size_t real_tokens(Context<Exec> const& context, AxisNames const& axes,
                                          std::size_t length) const {
        std::size_t const first = first_row(context, axes, length), held = dealt_.held(lane_, shard_);
        return std::min(length, held > first ? held - first : 0);
    }

  private:
    static AxisNames lane_axes(LayoutValue const& stream) { return stream.dimensions[0].axes; }
    static std::size_t along(Context<Exec> const& context, std::string_view axis) {
        return static_cast<std::size_t>(context.communicators().extent(axis));
    }
    static std::span<SequenceChunk const> checked(std::span<SequenceChunk const> chunks, SequenceRoom const& room) {
        for (auto const& chunk : chunks)
            if (chunk.lane >= room.lanes || chunk.sequence >= room.sequences ||
                chunk.position + chunk.length > room.length)
                throw std::invalid_argument(
                    "tokens up to " + std::to_string(chunk.position + chunk.length) + " of sequence " +
                    std::to_string(chunk.sequence) + " of lane " + std::to_string(chunk.lane) + ": there is room for " +
                    std::to_string(room.length) + " tokens of " + std::to_string(room.sequences) + " sequences in " +
                    std::to_string(room.lanes) + " lanes");
        return chunks;
    }
    /// Rows of this rank where they are sharded over `axes`: cp, and perhaps others, which share a rank's rows.
    [[nodiscard]] std::size_t rows_of(Context<Exec> const& context, AxisNames const& axes) const {
        return dealt_.rows() * shards_ / ranks_along(context.communicators().mesh(), axes);
    }
    /// The first of them among the rows of this rank of cp.
    [[nodiscard]] std::size_t first_row(Context<Exec> const& context, AxisNames const& axes, std::size_t length) const {
        return context.communicators().shard_index(axes) % (dealt_.rows() / length) * length;
    }

    SequenceRoom room_;
    std::size_t shards_, lane_, shard_;
    DealtTokens dealt_;
    memory::Buffer<typename Exec::memory_space> positions_;
    std::pair<std::size_t, std::size_t> in_stream_; ///< first, count
};

} // namespace pentad
