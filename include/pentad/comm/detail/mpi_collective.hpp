// A collective of the MPI library, for a task that the library does not carry out itself.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/comm/node/task.hpp>

#include <mpi.h>

#include <cstddef>
#include <string_view>

namespace pentad::comm::detail {

/// Calls MPI for a task whose elements and whose sum MPI knows as `type` and `sum`.
class MpiCollective {
  public:
    MpiCollective(Communicator const& comm, node::Task const& task, MPI_Datatype type, MPI_Op sum)
        : comm_(&comm), task_(task), type_(type), sum_(sum) {}

    /// The function, for messages.
    [[nodiscard]] std::string_view name() const;
    /// Calls the function that blocks where `request` is null, else the one that starts. @return the code of MPI
    int operator()(MPI_Request* request) const;

  private:
    [[nodiscard]] MPI_Count count(std::size_t bytes) const { return static_cast<MPI_Count>(bytes / task_.element); }

    Communicator const* comm_;
    node::Task task_;
    MPI_Datatype type_;
    MPI_Op sum_;
};

} // namespace pentad::comm::detail

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/mpi_collective.hpp>
#endif
