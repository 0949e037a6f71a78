// The functions of <pentad/comm/detail/mpi_collective.hpp>.
#pragma once

#include <pentad/comm/detail/mpi_collective.hpp>

#include <pentad/mesh/inline.hpp>

namespace pentad::comm::detail {

PENTAD_INLINE std::string_view MpiCollective::name() const {
    switch (task_.operation) {
    case observe::Operation::all_reduce:
        return "MPI_Allreduce";
    case observe::Operation::all_gather:
        return "MPI_Allgather";
    case observe::Operation::reduce_scatter:
        return "MPI_Reduce_scatter_block";
    case observe::Operation::all_to_all:
        return task_.is_counted() ? "MPI_Alltoallv" : "MPI_Alltoall";
    default:
        return "MPI_Bcast";
    }
}

PENTAD_INLINE int MpiCollective::operator()(MPI_Request* request) const {
    bool const blocks = request == nullptr;
    MPI_Comm const comm = comm_->handle();
    MPI_Count const all = count(task_.bytes), piece = count(task_.piece);
    void const* const in = task_.in;
    void* const out = task_.out;
    switch (task_.operation) {
    case observe::Operation::all_reduce:
        return blocks ? MPI_Allreduce_c(MPI_IN_PLACE, out, all, type_, sum_, comm)
                      : MPI_Iallreduce_c(MPI_IN_PLACE, out, all, type_, sum_, comm, request);
    case observe::Operation::all_gather: {
        bool const is_placed = in == task_.out + static_cast<std::size_t>(comm_->rank()) * task_.piece;
        void const* const mine = is_placed ? MPI_IN_PLACE : in;
        return blocks ? MPI_Allgather_c(mine, piece, type_, out, piece, type_, comm)
                      : MPI_Iallgather_c(mine, piece, type_, out, piece, type_, comm, request);
    }
    case observe::Operation::reduce_scatter:
        return blocks ? MPI_Reduce_scatter_block_c(in, out, piece, type_, sum_, comm)
                      : MPI_Ireduce_scatter_block_c(in, out, piece, type_, sum_, comm, request);
    case observe::Operation::all_to_all: {
        if (!task_.is_counted())
            return blocks ? MPI_Alltoall_c(in, piece, type_, out, piece, type_, comm)
                          : MPI_Ialltoall_c(in, piece, type_, out, piece, type_, comm, request);
        MPI_Count const *const sent = task_.sent.data(), *const received = task_.received.data();
        MPI_Aint const *const from = task_.offsets.data(), *const to = from + task_.sent.size();
        return blocks ? MPI_Alltoallv_c(in, sent, from, type_, out, received, to, type_, comm)
                      : MPI_Ialltoallv_c(in, sent, from, type_, out, received, to, type_, comm, request);
    }
    default: // broadcast
        return blocks ? MPI_Bcast_c(out, all, type_, task_.root, comm)
                      : MPI_Ibcast_c(out, all, type_, task_.root, comm, request);
    }
}

} // namespace pentad::comm::detail
