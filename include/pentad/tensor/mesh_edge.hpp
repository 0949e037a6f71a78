// The step from one part to the next where these see their ranks as different meshes.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/transfer.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/tensor/any_tensor.hpp>
#include <pentad/tensor/mesh_transfer.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad {

/// A tensor of values goes from a layout on one mesh to a layout on another of the same ranks, and its gradient comes
/// back: each element that a rank misses is sent to it once, and no other.
template <class Exec>
class MeshEdge {
  public:
    /// Collective over the group.
    /// @param group axes of the second mesh: the ranks along them share the tensor among them, on both meshes
    /// @param extents of the tensor
    /// @throws std::invalid_argument where a layout has partial values or ghost cells
    MeshEdge(Context<Exec> const& first, LayoutValue const& from, Context<Exec> const& second, LayoutValue const& to,
             AxisNames const& group, std::span<std::size_t const> extents)
        : ranks_(&second.communicators().along(group)), extents_(extents.begin(), extents.end()),
          first_(side(first, second, group)), second_(side(second, second, group)), nodes_(nodes_of(*ranks_)),
          forward_(*this, first_, from, second_, to), backward_(*this, second_, dual(to), first_, dual(from)) {}
    MeshEdge(MeshEdge const&) = delete; // its ways refer to it
    MeshEdge& operator=(MeshEdge const&) = delete;

    /// The value that leaves one part, as the next takes it. Collective over the group. Blocks until it is there.
    /// @throws std::logic_error where the tensor has another layout or other extents
    template <class T>
    [[nodiscard]] AnyTensor<T, Exec> forward(AnyTensor<T, Exec> tensor) const {
        return carried_out(forward_, std::move(tensor));
    }
    /// The gradient of what the next part takes, as the gradient of what this one gives.
    template <class T>
    [[nodiscard]] AnyTensor<T, Exec> backward(AnyTensor<T, Exec> gradient) const {
        return carried_out(backward_, std::move(gradient));
    }

  private:
    struct Side {
        Context<Exec> const* context;
        MeshPlaces places;
    };
    struct Way {
        Side const* target;
        LayoutValue from, to;
        TransferShape shape;
        std::size_t sent = 0; ///< elements that the ranks send each other

        Way(MeshEdge const& edge, Side const& source, LayoutValue const& given, Side const& taker,
            LayoutValue const& wanted)
            : target(&taker), from(given), to(wanted),
              shape(from, source.places, to, taker.places, edge.extents_, edge.nodes_) {
            for (auto const* const layout : {&from, &to})
                if (!layout->partial.empty() || layout->has_halo())
                    throw std::invalid_argument("from a mesh to another go values without ghost cells, not " +
                                                to_string(*layout));
            sent = shape.sent();
        }
    };

    static Side side(Context<Exec> const& context, Context<Exec> const& of_group, AxisNames const& group) {
        auto const& communicators = of_group.communicators();
        auto const mesh = context.communicators().mesh();
        MeshPlaces places{
            {mesh.begin(), mesh.end()}, {}, members_along(communicators.mesh(), group, communicators.world().rank())};
        places.places.resize(places.ranks.size());
        std::iota(places.places.begin(), places.places.end(), 0);
        return {&context, std::move(places)};
    }
    static std::vector<int> nodes_of(comm::Communicator const& ranks) {
        std::vector<int> nodes;
        for (int place = 0; place < ranks.size(); ++place) nodes.push_back(ranks.nodes().of(place));
        return nodes;
    }
    template <class T>
    [[nodiscard]] AnyTensor<T, Exec> carried_out(Way const& way, AnyTensor<T, Exec> tensor) const {
        if (!(tensor.layout() == way.from) || !std::ranges::equal(tensor.extents(), extents_))
            throw std::logic_error(tensor.describe() + " is not of the layout " + to_string(way.from));
        auto const& context = *way.target->context;
        AnyTensor<T, Exec> result(context, way.to, extents_);
        if (auto* const run = observe::dry_run_for_all()) {
            double const bytes = static_cast<double>(way.sent * sizeof(T)) / ranks_->size();
            if (bytes > 0) comm::detail::dry_send(*run, *ranks_, bytes, ranks_->nodes().count() > 1);
            return result;
        }
        detail::transfer(context, *ranks_, way.shape, static_cast<T const*>(tensor.data()), result.data());
        return result;
    }

    comm::Communicator const* ranks_; ///< along the group
    std::vector<std::size_t> extents_;
    Side first_, second_;
    std::vector<int> nodes_; ///< of the ranks
    Way forward_, backward_;
};

} // namespace pentad
