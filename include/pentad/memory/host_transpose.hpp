// Strided copies that transpose, by tiles: each line of cache that is touched is used whole while it is there.
#pragma once

#include <pentad/memory/host_runs.hpp>
#include <pentad/memory/runs.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>

namespace pentad::memory {

/// A copy of words, which follow each other along one dimension in the target and along another in the source.
class HostTranspose {
  public:
    /// Nothing where the runs are none.
    static std::optional<HostTranspose> of(Runs const& runs) {
        std::size_t const word = runs.bytes();
        if (runs.rank() < 2 || word > 16 || runs.extent(0) < side) return {};
        bool const packs = runs.to_stride(0) == word;
        if (!packs && runs.from_stride(0) != word) return {};
        for (std::size_t d = 1; d < runs.rank(); ++d)
            if (runs.extent(d) >= side && (packs ? runs.from_stride(d) : runs.to_stride(d)) == word)
                return HostTranspose(runs, d);
        return {};
    }
    /// Bands of tiles, which threads may share, and the bytes of one.
    [[nodiscard]] std::size_t bands() const { return rest_.count() * bands_; }
    [[nodiscard]] std::size_t band_bytes() const { return side * along_.extent * rest_.bytes(); }
    /// Copies bands [first, last).
    void copy(std::size_t first, std::size_t last, std::byte* to, std::byte const* from) const {
        for (std::size_t band = first; band < last; ++band) {
            std::size_t to_rest, from_rest;
            rest_.find(band / bands_, to_rest, from_rest);
            std::size_t const begin = band % bands_ * side, end = std::min(begin + side, across_.extent);
            for (std::size_t tile = 0; tile < along_.extent; tile += side)
                for (std::size_t line = begin; line < end; ++line)
                    copy_line(std::min(side, along_.extent - tile), rest_.bytes(),
                              to + to_rest + tile * along_.to + line * across_.to, along_.to,
                              from + from_rest + tile * along_.from + line * across_.from, along_.from);
        }
    }

  private:
    struct Dimension {
        std::size_t extent, to, from;
    };
    static constexpr std::size_t side = 32; ///< of a tile, in words: both sides stay in the first cache

    HostTranspose(Runs const& runs, std::size_t across)
        : rest_(runs.bytes()), along_(dimension(runs, 0)), across_(dimension(runs, across)),
          bands_((across_.extent + side - 1) / side) {
        for (std::size_t d = 1; d < runs.rank(); ++d)
            if (d != across) rest_.add(runs.extent(d), runs.to_stride(d), runs.from_stride(d));
    }
    static Dimension dimension(Runs const& runs, std::size_t d) {
        return {runs.extent(d), runs.to_stride(d), runs.from_stride(d)};
    }

    Runs rest_;
    Dimension along_, across_;
    std::size_t bands_;
};

} // namespace pentad::memory
