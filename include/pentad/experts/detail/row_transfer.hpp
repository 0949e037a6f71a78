// Rows under way between the ranks of a group.
#pragma once

#include <pentad/comm/collectives.hpp>
#include <pentad/experts/detail/row_buffer.hpp>
#include <pentad/kernels/compact_rows.hpp>
#include <pentad/memory/host_array.hpp>
#include <pentad/tensor/context.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace pentad::experts {

/// One exchange of rows, of which each rank gets some from every rank.
template <class T, class Exec>
class RowTransfer {
  public:
    /// Starts it. @param sent rows of `from` to each rank, in their order @param received rows of `to` from each
    /// @param element in which they travel @param waits whether it is over when this returns
    /// @param part of all rows: for a dry run
    void start(Context<Exec> const& context, comm::Communicator const& comm, RowBuffer<T, Exec> from,
               std::span<i64 const> sent, View<T, 2, Exec> to, std::span<i64 const> received, Compact element,
               double part = 1, bool waits = false) {
        to_ = to;
        element_ = sizeof(T) == 2 && element == Compact::bf16 ? Compact::none : element;
        if (element_ == Compact::none) {
            from_ = std::move(from);
            exchange<T>(context, comm, own_, from_.flat(), sent, View<T, 1, Exec>(to.data(), to.size()), received,
                        waits, part);
            return;
        }
        std::size_t const bytes = kernels::compact_row_bytes(element_, from.columns);
        leaving_ = Bytes(context, from.count, bytes);
        kernels::compress_rows<T>(context.exec(), element_, from.view(), leaving_.view());
        arriving_ = Bytes(context, to.extent(0), bytes);
        exchange<std::uint8_t>(context, comm, compact_, leaving_.flat(), sent, arriving_.flat(), received, waits, part);
    }
    /// Waits until what was received is in `to`.
    void finish(Context<Exec> const& context) {
        if (own_) own_->wait();
        if (compact_) compact_->wait();
        if (element_ != Compact::none) kernels::expand_rows<T>(context.exec(), element_, arriving_.view(), to_);
        *this = {};
    }

  private:
    using Bytes = RowBuffer<std::uint8_t, Exec>;
    using Counts = memory::HostArray<MPI_Count>;
    template <class E>
    using Request = decltype(comm::start_all_to_all(
        std::declval<Exec const&>(), std::declval<comm::Communicator const&>(), std::declval<View<E, 1, Exec> const&>(),
        std::declval<std::span<MPI_Count const>>(), std::declval<View<E, 1, Exec> const&>(),
        std::declval<std::span<MPI_Count const>>(), std::declval<std::span<MPI_Aint>>()));

    template <class E>
    void exchange(Context<Exec> const& context, comm::Communicator const& comm, std::optional<Request<E>>& request,
                  View<E, 1, Exec> from, std::span<i64 const> sent, View<E, 1, Exec> to, std::span<i64 const> received,
                  bool waits, double part) {
        std::size_t const ranks = sent.size();
        i64 elsewhere = 0;
        for (std::size_t r = 0; r < ranks; ++r)
            if (static_cast<int>(r) != comm.rank()) elsewhere += sent[r];
        sent_ = Counts(ranks);
        received_ = Counts(ranks);
        offsets_ = memory::HostArray<MPI_Aint>(2 * ranks);
        auto const width = static_cast<MPI_Count>(element_ == Compact::none ? to_.extent(1) : arriving_.columns);
        for (std::size_t r = 0; r < ranks; ++r) {
            sent_[r] = static_cast<MPI_Count>(sent[r]) * width;
            received_[r] = static_cast<MPI_Count>(received[r]) * width;
        }
        if (waits)
            comm::all_to_all(context.exec(), comm, from, sent_.span(), to, received_.span(), offsets_.span());
        else
            request.emplace(comm::start_all_to_all(context.exec(), comm, from, sent_.span(), to, received_.span(),
                                                   offsets_.span()));
        if (auto* const dry = observe::dry_run()) dry->note_rows(static_cast<double>(elsewhere), part);
    }

    Compact element_ = Compact::none;
    View<T, 2, Exec> to_;
    RowBuffer<T, Exec> from_;
    Bytes leaving_, arriving_;
    Counts sent_, received_;
    memory::HostArray<MPI_Aint> offsets_;
    // Declared last: a request that is dropped waits before its buffers are freed.
    std::optional<Request<T>> own_;
    std::optional<Request<std::uint8_t>> compact_;
};

} // namespace pentad::experts
