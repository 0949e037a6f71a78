// The functions of <pentad/comm/axis_communicator.hpp>.
#pragma once

#include <pentad/comm/axis_communicator.hpp>

#include <pentad/comm/error.hpp>
#include <pentad/mesh/inline.hpp>

#include <cstddef>
#include <vector>

namespace pentad::comm::detail {

PENTAD_INLINE OrderedWorld::OrderedWorld(MPI_Comm world, std::span<MeshAxisValue const> mesh,
                                         std::span<AxisCommunicator const> given) {
    std::vector<MPI_Comm> along;
    int place = 0;
    std::string problem;
    for (auto const& axis : mesh) {
        MPI_Comm handle = MPI_COMM_NULL;
        for (auto const& one : given)
            if (one.axis == axis.name) handle = one.handle;
        int size = 0, rank = 0;
        if (handle == MPI_COMM_NULL) {
            problem = "there is no communicator for mesh axis " + std::string(axis.name);
            break;
        }
        check(MPI_Comm_size(handle, &size), "MPI_Comm_size");
        check(MPI_Comm_rank(handle, &rank), "MPI_Comm_rank");
        if (size != axis.extent) {
            problem = "the communicator for mesh axis " + std::string(axis.name) + " has " + std::to_string(size) +
                      " ranks and the axis " + std::to_string(axis.extent);
            break;
        }
        along.push_back(handle);
        place += rank * axis.stride;
    }
    for (auto const& one : given)
        if (problem.empty() && find(mesh, one.axis) == nullptr)
            problem = "there is a communicator for " + std::string(one.axis) + ", which is no axis of the mesh";
    agree(world, problem);
    check(MPI_Comm_split(world, 0, place, &handle_), "MPI_Comm_split");
    int ranks = 1, rank = 0, size = 0;
    for (auto const& axis : mesh) ranks *= axis.extent;
    check(MPI_Comm_rank(handle_, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(handle_, &size), "MPI_Comm_size");
    try {
        if (size == ranks && rank != place) problem = "two ranks have the same place in the given communicators";
        agree(world, problem);
        for (std::size_t a = 0; size == ranks && a < along.size(); ++a)
            if (!has_members_of(along[a], mesh[a], rank))
                problem = "the communicator for mesh axis " + std::string(mesh[a].name) +
                          " is not of ranks that differ along that axis only";
        agree(world, problem);
    } catch (...) {
        MPI_Comm_free(&handle_);
        throw;
    }
}

PENTAD_INLINE bool OrderedWorld::has_members_of(MPI_Comm along, MeshAxisValue const& axis, int rank) const {
    std::vector<int> own(static_cast<std::size_t>(axis.extent)), ordered(own.size());
    for (int i = 0; i < axis.extent; ++i) own[static_cast<std::size_t>(i)] = i;
    MPI_Group group = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    check(MPI_Comm_group(along, &group), "MPI_Comm_group");
    check(MPI_Comm_group(handle_, &all), "MPI_Comm_group");
    check(MPI_Group_translate_ranks(group, axis.extent, own.data(), all, ordered.data()), "MPI_Group_translate_ranks");
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    int const first = rank - rank / axis.stride % axis.extent * axis.stride;
    for (int i = 0; i < axis.extent; ++i)
        if (ordered[static_cast<std::size_t>(i)] != first + i * axis.stride) return false;
    return true;
}

} // namespace pentad::comm::detail
