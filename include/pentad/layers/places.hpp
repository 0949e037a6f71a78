// The places of a model's parts: the ends are in one, and a block is there or in a place of its own, where the layout
// of the residual stream may differ.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/layout/layout.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace pentad {

/// The setup of a part's layers, and the layout of the residual stream there. Both outlive the layers.
template <class Exec>
struct PartPlace {
    LayerSetup<Exec> const* setup;
    LayoutValue const* stream;
};

/// The places of a model's parts.
template <class Exec>
class ModelPlaces {
  public:
    /// All parts in one place.
    ModelPlaces(LayerSetup<Exec> const& setup, LayoutValue const& stream) : ends_{&setup, &stream} {}
    /// @param ends of the embedding, the head and what predicts further tokens
    /// @param blocks of each block of the model; none: as the ends
    ModelPlaces(PartPlace<Exec> const& ends, std::vector<PartPlace<Exec>> blocks)
        : ends_(ends), blocks_(std::move(blocks)) {}

    [[nodiscard]] PartPlace<Exec> const& ends() const { return ends_; }
    [[nodiscard]] PartPlace<Exec> const& of(std::size_t block) const {
        return block < blocks_.size() ? blocks_[block] : ends_;
    }
    /// The place that a block, or what follows the last of them, is handed its input from.
    [[nodiscard]] PartPlace<Exec> const& before(std::size_t block) const { return block == 0 ? ends_ : of(block - 1); }

  private:
    PartPlace<Exec> ends_;
    std::vector<PartPlace<Exec>> blocks_;
};

} // namespace pentad
