// From a mesh to another: of the same ranks in another order, of more or fewer of them, or of other ranks.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/layout/transfer.hpp>
#include <pentad/tensor/mesh_transfer.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/tensor.hpp>

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad {

/// The ranks of two meshes in one group.
class MeshBridge {
  public:
    /// Collective over `joint`, which has all ranks of both meshes. Both outlive the bridge. @param source, target the
    /// communicators of the meshes; null on ranks that have no place in one
    template <class SourceMesh, class TargetMesh>
    MeshBridge(MPI_Comm joint, SourceMesh const& source_mesh, comm::Communicators const* source,
               TargetMesh const& target_mesh, comm::Communicators const* target)
        : joint_(joint, Mesh<Axis<bridge>>(size_of(joint))), source_(places(source_mesh, source)),
          target_(places(target_mesh, target)) {
        auto const& nodes = ranks().nodes();
        for (int place = 0; place < ranks().size(); ++place) node_of_.push_back(nodes.of(place));
    }

    /// All of them, along the axis "bridge".
    [[nodiscard]] comm::Communicator const& ranks() const { return joint_.world(); }
    /// What ranks send each other.
    [[nodiscard]] TransferShape shape(LayoutValue const& from, LayoutValue const& to,
                                      std::span<std::size_t const> extents) const {
        return {from, source_, to, target_, extents, node_of_};
    }
    /// The layout in which a tensor arrives: `to`, or where no rank is in both meshes, a finer one, so that each
    /// element is sent from mesh to mesh once, and copies are made within the target.
    [[nodiscard]] LayoutValue arriving(LayoutValue to, std::span<std::size_t const> extents) const {
        for (auto const place : target_.places)
            if (source_.rank_at(place) >= 0) return to;
        if (to.rank == 0) return to;
        auto const longest =
            static_cast<std::size_t>(std::max_element(extents.begin(), extents.end()) - extents.begin());
        for (auto const axis : axes_of_view(target_.mesh, to.axes())) {
            bool is_free = true;
            for (auto const used : to.axes())
                if (whole_axis_name(used) == axis && to.placement(used) == Placement::shard) is_free = false;
            if (is_free) to.dimensions[longest].axes.push(axis);
        }
        to.replicated = {};
        for (auto& dimension : to.dimensions) dimension.is_uneven = true;
        return to;
    }
    [[nodiscard]] int source_rank(int place) const { return source_.rank_at(place); }
    [[nodiscard]] int target_rank(int place) const { return target_.rank_at(place); }

  private:
    struct bridge {
        static constexpr std::string_view name = "bridge";
    };
    static int size_of(MPI_Comm comm) {
        int size = 0;
        comm::check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
        return size;
    }
    template <class M>
    MeshPlaces places(M const& mesh, comm::Communicators const* communicators) const {
        MeshPlaces result{{mesh.axes().begin(), mesh.axes().end()},
                          std::vector<int>(static_cast<std::size_t>(mesh.size()), -1)};
        int const own = communicators == nullptr ? -1 : communicators->world().rank();
        std::vector<int> all(static_cast<std::size_t>(joint_.world().size()), own);
        if (all.size() > 1)
            comm::check(MPI_Allgather(&own, 1, MPI_INT, all.data(), 1, MPI_INT, joint_.world().handle()),
                        "MPI_Allgather");
        for (std::size_t place = 0; place < all.size(); ++place)
            if (all[place] >= 0 && all[place] < mesh.size())
                result.places[static_cast<std::size_t>(all[place])] = static_cast<int>(place);
        if (std::count(result.places.begin(), result.places.end(), -1) > 0)
            throw std::invalid_argument("a bridge needs all " + std::to_string(mesh.size()) +
                                        " ranks of a mesh, and some have not come");
        return result;
    }

    comm::Communicators joint_;
    MeshPlaces source_, target_;
    std::vector<int> node_of_;
};

/// The value in layout To on the target mesh of a bridge: each element that a rank misses is sent to it once.
/// Empty on ranks that are not of that mesh. Collective over all ranks of the bridge.
/// @param tensor on ranks of the source mesh; elsewhere empty
/// @param target the context of the target mesh, null on ranks that are not of it
template <class To, class L, class Exec>
[[nodiscard]] Tensor<To, Exec> redistribute_across(MeshBridge const& bridge, Tensor<L, Exec> const& tensor,
                                                   std::array<std::size_t, L::rank> const& extents,
                                                   Context<Exec> const* target) {
    require_redistributable<whole_t<L>, whole_t<To>>();
    static_assert(!is_partial<L> && !is_partial<To> && !L::value.has_halo() && !To::value.has_halo(),
                  "pentad: from a mesh to another go values without ghost cells: reduce the tensor first");
    using T = typename L::element;
    Tensor<To, Exec> result;
    if (target != nullptr) result = Tensor<To, Exec>(*target, extents);
    int const me = bridge.ranks().rank(), from_me = bridge.source_rank(me), to_me = bridge.target_rank(me);
    if (target == nullptr && from_me < 0) return result; // neither gives nor gets
    T* const given = from_me < 0 ? nullptr : tensor.data();
    auto const& context = target != nullptr ? *target : tensor.context();
    auto const arriving = bridge.arriving(To::value, extents);
    auto const shape = bridge.shape(L::value, arriving, extents);
    using Shard = detail::Shard<T, Exec>;
    bool const is_finer = !detail::same_dimensions(arriving, To::value);
    Shard shard;
    if (target != nullptr && is_finer)
        shard = Shard::make(*target, shape.needed(to_me));
    else if (target != nullptr)
        shard = Shard{shape.needed(to_me), result.block(), result.data()};
    detail::transfer(context, bridge.ranks(), shape, static_cast<T const*>(given), shard.data);
    if (target != nullptr && is_finer)
        detail::carry_out_into(*target, make_plan(arriving, To::value), std::move(shard), result.flat());
    return result;
}

} // namespace pentad
