// Rows that ranks of a group hold, gathered on all of them: what the ranks that share the width of experts work on.
#pragma once

#include <pentad/comm/collectives.hpp>
#include <pentad/experts/detail/row_buffer.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/memory/host_array.hpp>

#include <mpi.h>

#include <Kokkos_Core.hpp>

#include <cstddef>

namespace pentad::experts {

/// y[i] = the sum over the parts x[p, i], in their order.
template <class T, class Exec>
void sum_parts(Exec const& exec, kernels::In<T, 2, Exec> x, kernels::Out<T, 1, Exec> y) {
    if (kernels::dry("sum_parts", x, y)) return;
    int const parts = static_cast<int>(x.extent(0));
    kernels::for_each_element(
        "pentad::sum_parts", exec, y.extent(0), KOKKOS_LAMBDA(i64 i) {
            using A = accumulator_t<T>;
            A sum(0);
            for (int p = 0; p < parts; ++p) sum += A(x(p, i));
            y(i) = T(sum);
        });
}
PENTAD_KERNEL(sum_parts)

/// Each rank's rows, a number that differs from rank to rank, on all ranks in their order; and the sum of what they
/// make of them. Filled by `route`; kept until the backward pass. In a group of one rank both are nothing.
template <class Exec>
class RowGather {
  public:
    /// @param rows of this rank. Exchanges their numbers and waits for them.
    void route(Context<Exec> const& context, comm::Communicator const& comm, std::size_t rows) {
        comm_ = &comm;
        auto const ranks = static_cast<std::size_t>(comm.size());
        counts_ = Numbers(ranks, static_cast<i64>(rows));
        if (ranks > 1) {
            auto const& exec = context.exec();
            RowBuffer<i64, Exec> const own(context, 1, 1), all(context, ranks, 1);
            memory::copy_from_host(exec, own.flat().data(), counts_.data(), sizeof(i64));
            comm::all_gather(exec, comm, own.flat(), all.flat());
            if (observe::dry_run() == nullptr)
                memory::copy_to_host(exec, counts_.data(), all.flat().data(), ranks * sizeof(i64));
        }
        rows_ = 0;
        for (std::size_t r = 0; r < ranks; ++r) rows_ += static_cast<std::size_t>(counts_[r]);
    }

    /// Rows of all ranks together.
    [[nodiscard]] std::size_t rows() const { return rows_; }
    [[nodiscard]] bool is_of_one() const { return comm_->size() == 1; }

    /// All rows from those of this rank, [own, columns].
    template <class T>
    RowBuffer<T, Exec> gather(Context<Exec> const& context, View<T const, 2, Exec> own) const {
        RowBuffer<T, Exec> all(context, rows_, own.extent(1));
        auto const counts = elements(own.extent(1));
        memory::HostArray<MPI_Count> const sent(counts.size());
        memory::HostArray<MPI_Aint> const offsets(2 * counts.size());
        comm::all_gather(context.exec(), *comm_, View<T const, 1, Exec>(own.data(), own.size()), all.flat(),
                         counts.span(), sent.span(), offsets.span());
        note(own.extent(0));
        return all;
    }
    /// This rank's rows of the sum of `all` over the ranks, into own: the adjoint.
    template <class T>
    void scatter_sum(Context<Exec> const& context, View<T const, 2, Exec> all, View<T, 2, Exec> own) const {
        auto const ranks = static_cast<std::size_t>(comm_->size());
        RowBuffer<T, Exec> const parts(context, ranks, own.size());
        auto const sent = elements(all.extent(1));
        memory::HostArray<MPI_Count> const received(ranks, static_cast<MPI_Count>(own.size()));
        memory::HostArray<MPI_Aint> const offsets(2 * ranks);
        comm::all_to_all(context.exec(), *comm_, View<T const, 1, Exec>(all.data(), all.size()), sent.span(),
                         parts.flat(), received.span(), offsets.span());
        note(own.extent(0));
        sum_parts<T>(context.exec(), parts.view(), View<T, 1, Exec>(own.data(), own.size()));
    }

  private:
    using Numbers = memory::HostArray<i64>;

    static void note(std::size_t rows) {
        if (auto* const dry = observe::dry_run()) dry->note_rows(static_cast<double>(rows));
    }

    [[nodiscard]] memory::HostArray<MPI_Count> elements(std::size_t columns) const {
        memory::HostArray<MPI_Count> counts(counts_.size());
        for (std::size_t r = 0; r < counts_.size(); ++r)
            counts[r] = static_cast<MPI_Count>(counts_[r] * static_cast<i64>(columns));
        return counts;
    }

    comm::Communicator const* comm_ = nullptr;
    std::size_t rows_ = 0;
    Numbers counts_; ///< of each rank
};

} // namespace pentad::experts
