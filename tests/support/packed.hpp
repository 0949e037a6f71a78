// Packed documents for the test of a layer.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/train/packing.hpp>

#include <support/layer_check.hpp>

#include <cstddef>
#include <vector>

namespace support {

/// What a pass is told about the documents that tokens of 0 end in the arrays' "tokens" [batch, seq], dealt over cp as
/// the setup says.
template <class Stream>
class PackedTokens {
  public:
    PackedTokens(LayerSetup<Exec> const& setup, Arrays const& arrays) : map_(setup, Stream::value) {
        auto const tokens = arrays.find("tokens");
        if (tokens == arrays.end()) return;
        auto const& communicators = setup.context.communicators();
        std::size_t const rows = setup.batch / static_cast<std::size_t>(communicators.extent(dp::name));
        std::vector<i32> windows;
        for (std::size_t row = rows * communicators.shard_index(AxisNames(dp::name)), end = row + rows; row < end;
             ++row) {
            for (std::size_t t = 0; t < setup.seq; ++t)
                windows.push_back(static_cast<i32>(tokens->second.values[row * setup.seq + t]));
            windows.push_back(1); // the one behind the sequence, which nobody sees
        }
        map_.set(Packing{.last = 0, .deals_by_work = false}, windows);
        is_packed_ = true;
    }
    /// Null where there are no tokens.
    [[nodiscard]] SequenceMap<Exec> const* map() const { return is_packed_ ? &map_.of_slice(0) : nullptr; }

  private:
    train::PackedMap<Exec> map_;
    bool is_packed_ = false;
};

} // namespace support
