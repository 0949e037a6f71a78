// Which elements the ranks of one mesh send those of another, of the same or other ranks: each that a rank needs once,
// from one of the ranks that hold it.
#pragma once

#include <pentad/layout/block.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace pentad {

/// Where ranks of a mesh are among those of a group: the i-th of them is rank places[i] of the group.
struct MeshPlaces {
    std::vector<MeshAxisValue> mesh;
    std::vector<int> places;
    std::vector<int> ranks = {}; ///< their numbers in the mesh; none: all ranks of it, in order

    [[nodiscard]] int number(std::size_t i) const { return ranks.empty() ? static_cast<int>(i) : ranks[i]; }

    /// Which of them is at a place; -1: none.
    [[nodiscard]] int rank_at(int place) const {
        auto const found = std::find(places.begin(), places.end(), place);
        return found == places.end() ? -1 : static_cast<int>(found - places.begin());
    }
};

/// A tensor of a layout on one mesh, of values, that is to be of another layout on another mesh (cross-mesh resharding,
/// Zhuang et al. 2023, "On optimizing the communication of model parallelism"). Where ranks of both meshes hold an
/// element it stays; the load of others is dealt to the holders in turn, first to those on the receiver's node.
class TransferShape {
  public:
    TransferShape(LayoutValue const& from, MeshPlaces const& source, LayoutValue const& to, MeshPlaces const& target,
                  std::span<std::size_t const> extents, std::span<int const> node_of)
        : source_(&source), target_(&target), node_of_(node_of) {
        for (int rank = 0; rank < static_cast<int>(source.places.size()); ++rank) {
            held_.push_back(shard_shape(from, extents, source.mesh, source.number(static_cast<std::size_t>(rank))));
            auto const box = box_of(held_.back());
            auto const same =
                std::find_if(pieces_.begin(), pieces_.end(), [&](Piece const& piece) { return piece.box == box; });
            if (same == pieces_.end())
                pieces_.push_back({box, {rank}});
            else
                same->holders.push_back(rank);
        }
        for (std::size_t i = 0; i < target.places.size(); ++i)
            needed_.push_back(shard_shape(to, extents, target.mesh, target.number(i)));
    }

    /// Which rank of the source, and of the target, is at a place of the group; -1: none. And where such a rank is.
    [[nodiscard]] int source_at(int place) const { return source_->rank_at(place); }
    [[nodiscard]] int target_at(int place) const { return target_->rank_at(place); }
    [[nodiscard]] int source_place(int rank) const { return source_->places[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] int target_place(int rank) const { return target_->places[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] ShardShape const& held(int rank) const { return held_[static_cast<std::size_t>(rank)]; }
    [[nodiscard]] ShardShape const& needed(int rank) const { return needed_[static_cast<std::size_t>(rank)]; }
    /// f(from, to, in_source, in_target) for each box that rank `from` of the source gives rank `to` of the target,
    /// where these may be one rank of the group: in the memory of both.
    template <class F>
    void for_each_box(F&& f) const {
        for (int to = 0; to < static_cast<int>(needed_.size()); ++to) {
            auto const wanted = box_of(needed(to));
            for (std::size_t p = 0; p < pieces_.size(); ++p) {
                auto const both = pieces_[p].box.common(wanted, dimensions());
                if (both.size(dimensions()) > 0)
                    f(sender(pieces_[p], p, to), to, inside(both, pieces_[p].box), inside(both, wanted));
            }
        }
    }
    /// Elements that ranks of the group send each other.
    [[nodiscard]] std::size_t sent() const {
        std::size_t sum = 0;
        for_each_box([&](int from, int to, ElementBox const& box, ElementBox const&) {
            if (source_place(from) != target_place(to)) sum += box.size(dimensions());
        });
        return sum;
    }
    /// Elements that the rank at a place of the group sends to others.
    [[nodiscard]] std::size_t sent_by(int place) const {
        std::size_t sum = 0;
        for_each_box([&](int from, int to, ElementBox const& box, ElementBox const&) {
            auto const sender_place = source_->places[static_cast<std::size_t>(from)];
            if (sender_place == place && target_->places[static_cast<std::size_t>(to)] != place)
                sum += box.size(dimensions());
        });
        return sum;
    }

  private:
    struct Piece {
        ElementBox box;
        std::vector<int> holders; ///< ranks of the source
    };

    [[nodiscard]] std::size_t dimensions() const { return held_[0].rank; }
    static ElementBox box_of(ShardShape const& shape) {
        ElementBox box;
        for (std::size_t d = 0; d < shape.rank; ++d) {
            box.begin[d] = shape.blocks[d].begin();
            box.end[d] = shape.blocks[d].end();
        }
        return box;
    }
    [[nodiscard]] ElementBox inside(ElementBox box, ElementBox const& whole) const {
        for (std::size_t d = 0; d < dimensions(); ++d) {
            box.begin[d] -= whole.begin[d];
            box.end[d] -= whole.begin[d];
        }
        return box;
    }
    /// Who gives piece p to a rank of the target: itself, one of its node, or any.
    [[nodiscard]] int sender(Piece const& piece, std::size_t p, int to) const {
        int const place = target_->places[static_cast<std::size_t>(to)];
        auto const place_of = [&](int rank) { return source_->places[static_cast<std::size_t>(rank)]; };
        auto const node = [&](int at) { return node_of_.empty() ? 0 : node_of_[static_cast<std::size_t>(at)]; };
        for (int const holder : piece.holders)
            if (place_of(holder) == place) return holder;
        std::vector<int> near;
        for (int const holder : piece.holders)
            if (node(place_of(holder)) == node(place)) near.push_back(holder);
        auto const& among = near.empty() ? piece.holders : near;
        return among[(p + static_cast<std::size_t>(to)) % among.size()];
    }

    MeshPlaces const* source_;
    MeshPlaces const* target_;
    std::span<int const> node_of_;
    std::vector<ShardShape> held_, needed_;
    std::vector<Piece> pieces_;
};

} // namespace pentad
