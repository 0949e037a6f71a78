// Documents: what the passes of a micro-batch are told about those in its sequences, of which padding is one, and how
// packed ones are then dealt over cp.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/layout/documents.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/stretches.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace pentad::train {

using namespace ml;

/// The documents of a micro-batch on this rank.
template <class Exec>
class PackedMap {
  public:
    /// @param stream the layout of the residual stream
    PackedMap(LayerSetup<Exec> const& setup, LayoutValue const& stream)
        : setup_(&setup), stream_axes_(stream.dimensions[1].axes), dealt_(setup.partition()),
          begins_(setup.context, bounds()), ends_(setup.context, bounds()) {
        auto const like = local_extents(stream, std::array{setup.batch, setup.seq, setup.hidden},
                                        setup.context.communicators().mesh());
        std::size_t const in_stream = like[0] * like[1];
        for (std::size_t i = 0; i < setup.slices; ++i) {
            positions_.emplace_back(setup.context, std::array{begins_.local()[0] * dealt_.local_extent()});
            in_stream_.emplace_back(setup.context, std::array{in_stream});
        }
        maps_.resize(setup.slices);
    }
    PackedMap(PackedMap const&) = delete;
    PackedMap& operator=(PackedMap const&) = delete;

    /// @param packing where documents end; none: a sequence is one, and its padding another
    /// @param windows [sequences, real length + 1] of tokens
    void set(std::optional<Packing> const& packing, std::span<i32 const> windows) {
        std::size_t const length = setup_->slices * setup_->seq, real = setup_->real_length(),
                          rows = begins_.local()[0];
        std::vector<i32> tokens(rows * length);
        for (std::size_t row = 0; row < rows; ++row)
            std::ranges::copy(windows.subspan(row * (real + 1), real), tokens.data() + row * length);
        documents_.emplace(tokens, length, packing ? std::optional(packing->last) : std::nullopt, setup_->padding);
        begins_.set(documents_->begins().data());
        ends_.set(documents_->ends().data());
        if (packing) deal(*packing);
        set_positions(positions_, AxisNames(cp::name));
        set_positions(in_stream_, stream_axes_);
        for (std::size_t slice = 0; slice < setup_->slices; ++slice)
            maps_[slice] = {.documents = &*documents_,
                            .begins = begins_.view(),
                            .ends = ends_.view(),
                            .positions = positions_[slice].view(),
                            .positions_in_stream = in_stream_[slice].view(),
                            .shards = runs_.empty() ? nullptr : &runs_,
                            .dealt = &dealt_,
                            .stretches = stretches_ ? &*stretches_ : nullptr};
    }
    [[nodiscard]] SequenceMap<Exec> const& of_slice(std::size_t slice) const { return maps_[slice]; }
    /// How the sequences lie over cp.
    [[nodiscard]] DealtSequence const& dealt() const { return dealt_; }

  private:
    using Bounds = Layout<i32, Dims<Dim<batch, dynamic, dp>, Dim<seq>>>;
    using Positions = Layout<i32, Dims<Dim<position>>>;
    static constexpr std::size_t most_pieces = 8; ///< of a shard: enough to share out work to a hundredth

    [[nodiscard]] std::array<std::size_t, 2> bounds() const { return {setup_->batch, setup_->slices * setup_->seq}; }

    /// The positions of the tokens of each slice, counted from the start of each token's document.
    void set_positions(std::vector<Tensor<Positions, Exec>> const& of_slices, AxisNames const& axes) const {
        std::size_t const size = of_slices[0].size(), columns = size / documents_->sequences();
        auto const in_sequence = setup_->positions(dealt_, axes, columns);
        std::vector<i32> host(size);
        for (std::size_t slice = 0; slice < of_slices.size(); ++slice) {
            for (std::size_t i = 0; i < size; ++i) {
                i32 const at = in_sequence[slice * columns + i % columns];
                host[i] = at - documents_->begins()[i / columns * documents_->length() + static_cast<std::size_t>(at)];
            }
            of_slices[slice].set(host.data());
        }
    }
    /// Where sequences are cut into slices these are dealt as ever.
    void deal(Packing const& packing) {
        auto const& shards = dealt_.shards();
        if (!packing.deals_by_work || setup_->slices > 1 || shards.shards() == 1) return;
        std::size_t pieces = most_pieces;
        while (shards.local_extent() % pieces != 0) --pieces;
        auto const work = visible_pairs(*documents_, {}, pieces * shards.shards());
        dealt_ = dealt_.with({setup_->seq, shards.shards(), deal_by_work(work, shards.shards())});
        stretches_.emplace(dealt_);
        runs_.clear();
        for (std::size_t i = 0; i < dealt_.shards().shards(); ++i) runs_.push_back(dealt_.shards().segments(i));
    }

    LayerSetup<Exec> const* setup_;
    AxisNames stream_axes_; ///< that share out the stream's sequences
    DealtSequence dealt_;
    std::optional<Documents> documents_;
    std::vector<std::vector<Segment>> runs_;
    std::optional<Stretches> stretches_; ///< where sequences are dealt by work
    Tensor<Bounds, Exec> begins_, ends_;
    std::vector<Tensor<Positions, Exec>> positions_, in_stream_; ///< of each slice
    std::vector<SequenceMap<Exec>> maps_;
};

} // namespace pentad::train
