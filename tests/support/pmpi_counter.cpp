#include "support/pmpi_counter.hpp"

#include <mpi.h>

namespace {

pmpi::Count total;
std::vector<std::vector<std::int64_t>> exchanges;
thread_local int depth = 0;

/// A call into MPI, and what this rank sends in it.
class Call {
  public:
    Call() { ++depth; }
    Call(MPI_Comm comm, MPI_Datatype type) : Call() {
        MPI_Count bytes = 0;
        PMPI_Type_size_c(type, &bytes);
        element_ = static_cast<double>(bytes);
        PMPI_Comm_size(comm, &size_);
        PMPI_Comm_rank(comm, &rank_);
        ++total.calls;
    }
    Call(Call const&) = delete;
    Call& operator=(Call const&) = delete;
    ~Call() { --depth; }

    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] double others() const { return size_ - 1; }
    /// (n - 1) / n
    [[nodiscard]] double fraction() const { return others() / size_; }
    void sends(double elements) const { total.bytes += elements * element_; }

  private:
    double element_ = 0;
    int size_ = 1, rank_ = 0;
};

template <class Count>
void record_exchange(void const* from, Count count, MPI_Datatype type, Call const& call) {
    if (type != MPI_INT64_T) return;
    auto const* numbers = static_cast<std::int64_t const*>(from);
    exchanges.emplace_back(numbers, numbers + static_cast<std::int64_t>(count) * call.size());
}

template <class Count>
double to_others(Call const& call, Count const* counts) {
    double sum = 0;
    for (int r = 0; r < call.size(); ++r) sum += r == call.rank() ? 0 : static_cast<double>(counts[r]);
    return sum;
}

} // namespace

pmpi::Count pmpi::count() { return total; }
void pmpi::clear() {
    total = {};
    exchanges.clear();
}
std::vector<std::vector<std::int64_t>> const& pmpi::exchanged_counts() { return exchanges; }
bool pmpi::inside_mpi() { return depth > 0; }

// Each operation in its blocking and non-blocking form, with small and with large counts. Per rank, of s elements:
// all-reduce 2 (n-1)/n s; reduce and broadcast (n-1)/n s on average; all-gather, reduce-scatter and all-to-all n-1
// pieces.
#define PENTAD_TEST_MPI(C, N, D)                                                                                       \
    int MPI_Allreduce##C(void const* in, void* out, N n, MPI_Datatype t, MPI_Op op, MPI_Comm comm) {                   \
        Call const call(comm, t);                                                                                      \
        call.sends(2 * call.fraction() * static_cast<double>(n));                                                      \
        return PMPI_Allreduce##C(in, out, n, t, op, comm);                                                             \
    }                                                                                                                  \
    int MPI_Iallreduce##C(void const* in, void* out, N n, MPI_Datatype t, MPI_Op op, MPI_Comm comm, MPI_Request* r) {  \
        Call const call(comm, t);                                                                                      \
        call.sends(2 * call.fraction() * static_cast<double>(n));                                                      \
        return PMPI_Iallreduce##C(in, out, n, t, op, comm, r);                                                         \
    }                                                                                                                  \
    int MPI_Reduce##C(void const* in, void* out, N n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm comm) {            \
        Call const call(comm, t);                                                                                      \
        call.sends(call.fraction() * static_cast<double>(n));                                                          \
        return PMPI_Reduce##C(in, out, n, t, op, root, comm);                                                          \
    }                                                                                                                  \
    int MPI_Ireduce##C(void const* in, void* out, N n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm comm,             \
                       MPI_Request* r) {                                                                               \
        Call const call(comm, t);                                                                                      \
        call.sends(call.fraction() * static_cast<double>(n));                                                          \
        return PMPI_Ireduce##C(in, out, n, t, op, root, comm, r);                                                      \
    }                                                                                                                  \
    int MPI_Bcast##C(void* data, N n, MPI_Datatype t, int root, MPI_Comm comm) {                                       \
        Call const call(comm, t);                                                                                      \
        call.sends(call.fraction() * static_cast<double>(n));                                                          \
        return PMPI_Bcast##C(data, n, t, root, comm);                                                                  \
    }                                                                                                                  \
    int MPI_Ibcast##C(void* data, N n, MPI_Datatype t, int root, MPI_Comm comm, MPI_Request* r) {                      \
        Call const call(comm, t);                                                                                      \
        call.sends(call.fraction() * static_cast<double>(n));                                                          \
        return PMPI_Ibcast##C(data, n, t, root, comm, r);                                                              \
    }                                                                                                                  \
    int MPI_Gather##C(void const* in, N n, MPI_Datatype t, void* out, N m, MPI_Datatype u, int root, MPI_Comm comm) {  \
        Call const call(comm, u);                                                                                      \
        call.sends(call.rank() == root ? 0 : static_cast<double>(n));                                                  \
        return PMPI_Gather##C(in, n, t, out, m, u, root, comm);                                                        \
    }                                                                                                                  \
    int MPI_Igather##C(void const* in, N n, MPI_Datatype t, void* out, N m, MPI_Datatype u, int root, MPI_Comm comm,   \
                       MPI_Request* r) {                                                                               \
        Call const call(comm, u);                                                                                      \
        call.sends(call.rank() == root ? 0 : static_cast<double>(n));                                                  \
        return PMPI_Igather##C(in, n, t, out, m, u, root, comm, r);                                                    \
    }                                                                                                                  \
    int MPI_Allgather##C(void const* in, N n, MPI_Datatype t, void* out, N m, MPI_Datatype u, MPI_Comm comm) {         \
        Call const call(comm, u);                                                                                      \
        call.sends(call.others() * static_cast<double>(m));                                                            \
        return PMPI_Allgather##C(in, n, t, out, m, u, comm);                                                           \
    }                                                                                                                  \
    int MPI_Iallgather##C(void const* in, N n, MPI_Datatype t, void* out, N m, MPI_Datatype u, MPI_Comm comm,          \
                          MPI_Request* r) {                                                                            \
        Call const call(comm, u);                                                                                      \
        call.sends(call.others() * static_cast<double>(m));                                                            \
        return PMPI_Iallgather##C(in, n, t, out, m, u, comm, r);                                                       \
    }                                                                                                                  \
    int MPI_Reduce_scatter_block##C(void const* in, void* out, N n, MPI_Datatype t, MPI_Op op, MPI_Comm comm) {        \
        Call const call(comm, t);                                                                                      \
        call.sends(call.others() * static_cast<double>(n));                                                            \
        return PMPI_Reduce_scatter_block##C(in, out, n, t, op, comm);                                                  \
    }                                                                                                                  \
    int MPI_Ireduce_scatter_block##C(void const* in, void* out, N n, MPI_Datatype t, MPI_Op op, MPI_Comm comm,         \
                                     MPI_Request* r) {                                                                 \
        Call const call(comm, t);                                                                                      \
        call.sends(call.others() * static_cast<double>(n));                                                            \
        return PMPI_Ireduce_scatter_block##C(in, out, n, t, op, comm, r);                                              \
    }                                                                                                                  \
    int MPI_Alltoall##C(void const* in, N n, MPI_Datatype t, void* out, N m, MPI_Datatype u, MPI_Comm comm) {          \
        Call const call(comm, u);                                                                                      \
        call.sends(call.others() * static_cast<double>(n));                                                            \
        record_exchange(in, n, t, call);                                                                               \
        return PMPI_Alltoall##C(in, n, t, out, m, u, comm);                                                            \
    }                                                                                                                  \
    int MPI_Ialltoall##C(void const* in, N n, MPI_Datatype t, void* out, N m, MPI_Datatype u, MPI_Comm comm,           \
                         MPI_Request* r) {                                                                             \
        Call const call(comm, u);                                                                                      \
        call.sends(call.others() * static_cast<double>(n));                                                            \
        record_exchange(in, n, t, call);                                                                               \
        return PMPI_Ialltoall##C(in, n, t, out, m, u, comm, r);                                                        \
    }                                                                                                                  \
    int MPI_Alltoallv##C(void const* in, N const* ns, D const* at, MPI_Datatype t, void* out, N const* ms,             \
                         D const* to, MPI_Datatype u, MPI_Comm comm) {                                                 \
        Call const call(comm, t);                                                                                      \
        call.sends(to_others(call, ns));                                                                               \
        return PMPI_Alltoallv##C(in, ns, at, t, out, ms, to, u, comm);                                                 \
    }                                                                                                                  \
    int MPI_Ialltoallv##C(void const* in, N const* ns, D const* at, MPI_Datatype t, void* out, N const* ms,            \
                          D const* to, MPI_Datatype u, MPI_Comm comm, MPI_Request* r) {                                \
        Call const call(comm, t);                                                                                      \
        call.sends(to_others(call, ns));                                                                               \
        return PMPI_Ialltoallv##C(in, ns, at, t, out, ms, to, u, comm, r);                                             \
    }                                                                                                                  \
    int MPI_Send##C(void const* data, N n, MPI_Datatype t, int to, int tag, MPI_Comm comm) {                           \
        Call const call(comm, t);                                                                                      \
        call.sends(to == call.rank() || to == MPI_PROC_NULL ? 0 : static_cast<double>(n));                             \
        return PMPI_Send##C(data, n, t, to, tag, comm);                                                                \
    }                                                                                                                  \
    int MPI_Isend##C(void const* data, N n, MPI_Datatype t, int to, int tag, MPI_Comm comm, MPI_Request* r) {          \
        Call const call(comm, t);                                                                                      \
        call.sends(to == call.rank() || to == MPI_PROC_NULL ? 0 : static_cast<double>(n));                             \
        return PMPI_Isend##C(data, n, t, to, tag, comm, r);                                                            \
    }                                                                                                                  \
    int MPI_Recv##C(void* data, N n, MPI_Datatype t, int from, int tag, MPI_Comm comm, MPI_Status* status) {           \
        Call const call(comm, t);                                                                                      \
        return PMPI_Recv##C(data, n, t, from, tag, comm, status);                                                      \
    }                                                                                                                  \
    int MPI_Irecv##C(void* data, N n, MPI_Datatype t, int from, int tag, MPI_Comm comm, MPI_Request* r) {              \
        Call const call(comm, t);                                                                                      \
        return PMPI_Irecv##C(data, n, t, from, tag, comm, r);                                                          \
    }

extern "C" {
PENTAD_TEST_MPI(, int, int)
PENTAD_TEST_MPI(_c, MPI_Count, MPI_Aint)

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
    Call const call;
    return PMPI_Wait(request, status);
}
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
    Call const call;
    return PMPI_Test(request, done, status);
}
}
