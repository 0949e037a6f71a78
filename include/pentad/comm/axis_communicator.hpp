// Communicators that a program has already, one along each axis of a mesh.
#pragma once

#include <pentad/comm/first_failure.hpp>
#include <pentad/mesh/mesh.hpp>

#include <mpi.h>

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::comm {

/// The communicator of a program's ranks along an axis, e.g. of MPI_Cart_sub: {"rows", row_communicator}.
struct AxisCommunicator {
    std::string_view axis;
    MPI_Comm handle;
};

namespace detail {

/// The ranks of `world` in the order of a mesh in which a rank's coordinate along an axis is its rank in the given
/// communicator. Collective over `world`.
class OrderedWorld {
  public:
    /// @throws std::invalid_argument on all ranks where the communicators are not those of the mesh
    OrderedWorld(MPI_Comm world, std::span<MeshAxisValue const> mesh, std::span<AxisCommunicator const> given);
    OrderedWorld(OrderedWorld const&) = delete;
    OrderedWorld& operator=(OrderedWorld const&) = delete;
    ~OrderedWorld() { MPI_Comm_free(&handle_); }
    [[nodiscard]] MPI_Comm handle() const { return handle_; }

  private:
    static MeshAxisValue const* find(std::span<MeshAxisValue const> mesh, std::string_view name) {
        for (auto const& axis : mesh)
            if (axis.name == name) return &axis;
        return nullptr;
    }
    static void agree(MPI_Comm world, std::string const& problem) {
        auto const own = problem.empty() ? std::nullopt : std::optional<Failure>({0, problem});
        if (auto const failure = first_failure(world, own)) throw std::invalid_argument(failure->text);
    }
    [[nodiscard]] bool has_members_of(MPI_Comm along, MeshAxisValue const& axis, int rank) const;

    MPI_Comm handle_ = MPI_COMM_NULL;
};

} // namespace detail

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/axis_communicator.hpp>
#endif
