// One row exchange of the dispatch: rows go to the places that they chose (ranks of a group, or the experts of this
// rank), one for each choice, and come back. The two directions are each other's adjoint.
#pragma once

#include <pentad/comm/collectives.hpp>
#include <pentad/experts/detail/row_buffer.hpp>
#include <pentad/experts/detail/row_transfer.hpp>
#include <pentad/kernels/permute.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/memory/host_array.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

namespace pentad::experts {

/// Who sends what where. Filled by `route`; kept until the backward pass. Below, an expert is what is chosen: where the
/// group has several ranks, each is one.
template <class Exec>
class RowExchange {
  public:
    /// Sorts the choices index [tokens, top_k] by expert and exchanges the counts over `comm`: of one rank, or of one
    /// for each expert. A token's choices end with its first that is negative. Waits for the counts: the sizes of what
    /// follows depend on them.
    /// @param chosen_part of the slots of a token that name an expert: what a dry run takes them to be, evenly dealt
    /// @param routed_part of the tokens that choose at all
    template <kernels::Chosen chosen = kernels::Chosen::always>
    void route(Context<Exec> const& context, comm::Communicator const& comm, View<i32 const, 2, Exec> index,
               std::size_t expert_count, double chosen_part = 1, double routed_part = 1) {
        auto const& exec = context.exec();
        comm_ = &comm;
        auto const ranks = static_cast<std::size_t>(comm_->size());
        std::size_t const slots = index.size(), local = expert_count / ranks;
        top_k_ = static_cast<int>(index.extent(1));
        position_ = RowBuffer<i32, Exec>(context, index.extent(0), index.extent(1));
        source_ = RowBuffer<i32, Exec>(context, slots, 1);
        RowBuffer<i64, Exec> const counts(context, 1, expert_count), arriving(context, ranks, local);
        RowBuffer<i32, Exec> const scratch(context, static_cast<std::size_t>(kernels::sort_scratch_rows(exec, slots)),
                                           expert_count);
        kernels::sort_by_expert<chosen>(exec, index, counts.flat(), position_.view(), source_.flat(), scratch.view());
        comm::all_to_all(exec, *comm_, counts.flat(), arriving.flat());

        sent_counts_ = Numbers<i64>(expert_count);
        arriving_counts_ = Numbers<i64>(expert_count);
        memory::copy_to_host(exec, sent_counts_.data(), counts.flat().data(), expert_count * sizeof(i64));
        memory::copy_to_host(exec, arriving_counts_.data(), arriving.flat().data(), expert_count * sizeof(i64));
        if (observe::dry_run() != nullptr)
            deal_evenly(static_cast<double>(slots) * chosen_part * routed_part,
                        static_cast<double>(top_k_) * chosen_part, local);
        sent_ = Numbers<i64>(ranks, 0);
        received_ = Numbers<i64>(ranks, 0);
        offsets_ = Numbers<i64>(local + 1, 0);
        for (std::size_t r = 0; r < ranks; ++r)
            for (std::size_t e = 0; e < local; ++e) {
                sent_[r] += sent_counts_[r * local + e];
                received_[r] += arriving_counts_[r * local + e];
                offsets_[e + 1] += arriving_counts_[r * local + e];
            }
        for (std::size_t e = 0; e < local; ++e) offsets_[e + 1] += offsets_[e];
        leaving_ = 0;
        for (std::size_t r = 0; r < ranks; ++r) leaving_ += static_cast<std::size_t>(sent_[r]);
    }

    /// Offsets of the local experts' rows: local experts + 1 numbers.
    [[nodiscard]] std::span<i64 const> offsets() const { return offsets_.span(); }
    [[nodiscard]] std::size_t rows() const { return static_cast<std::size_t>(offsets_[offsets_.size() - 1]); }
    /// Which row each choice leaves as, on the ranks of the tokens: -1 where there is none.
    [[nodiscard]] View<i32 const, 2, Exec> position() const { return position_.view(); }
    /// How many rows leave.
    [[nodiscard]] std::size_t leaving() const { return leaving_; }
    /// The source of each row that leaves: token x slots() + slot.
    [[nodiscard]] View<i32 const, 1, Exec> source() const {
        return View<i32 const, 1, Exec>(source_.flat().data(), leaving_);
    }
    [[nodiscard]] int slots() const { return top_k_; }
    [[nodiscard]] comm::Communicator const& comm() const { return *comm_; }
    /// Rows to each rank, and from each.
    [[nodiscard]] std::span<i64 const> sent() const { return sent_.span(); }
    [[nodiscard]] std::span<i64 const> received() const { return received_.span(); }

    /// The tokens x [tokens, hidden] in the order in which they leave.
    template <class T>
    RowBuffer<T, Exec> permuted(Context<Exec> const& context, View<T const, 2, Exec> x) const {
        RowBuffer<T, Exec> rows(context, leaving_, x.extent(1));
        kernels::permute_forward<T>(context.exec(), x, source(), top_k_, rows.view());
        return rows;
    }
    /// The tokens x as rows of the local experts. @param element in which rows travel
    template <class T>
    RowBuffer<T, Exec> forward(Context<Exec> const& context, View<T const, 2, Exec> x,
                               Compact element = Compact::none) {
        return to_experts(context, permuted<T>(context, x), element);
    }
    /// Its adjoint: the gradient of the tokens from that of the rows.
    template <class T>
    void backward(Context<Exec> const& context, RowBuffer<T, Exec> drows, View<T, 2, Exec> dx,
                  Compact element = Compact::none) {
        auto const rows = from_experts(context, std::move(drows), element);
        kernels::permute_backward<T>(context.exec(), rows.view(), position(), dx, false);
    }

    /// Rows in the order of `position` on the ranks of their tokens -> rows of the local experts.
    template <class T>
    RowBuffer<T, Exec> to_experts(Context<Exec> const& context, RowBuffer<T, Exec> permuted,
                                  Compact element = Compact::none) {
        return carry(context, std::move(permuted), sent_, rows(), received_, element);
    }
    /// The way back.
    template <class T>
    RowBuffer<T, Exec> from_experts(Context<Exec> const& context, RowBuffer<T, Exec> grouped,
                                    Compact element = Compact::none) {
        return carry(context, std::move(grouped), received_, leaving_, sent_, element);
    }

  private:
    template <class T>
    using Numbers = memory::HostArray<T>;

    /// The counts of a dry run: every rank has so many choices, dealt evenly to those experts that any token of the
    /// group is expected to choose, where each is as likely.
    /// @param choices of this rank; @param each of a token
    void deal_evenly(double choices, double each, std::size_t local) {
        std::size_t const experts = sent_counts_.size(), ranks = experts / local;
        double const tokens = choices / each * static_cast<double>(ranks);
        double const chosen =
            static_cast<double>(local) * (1 - std::pow(1 - each / static_cast<double>(experts), tokens));
        auto const met = std::clamp<std::size_t>(static_cast<std::size_t>(std::llround(chosen)), 1, local);
        // How many of a rank's choices fall on the slot-th chosen expert. Rounding is rotated by the rank, so that a
        // few choices of several ranks fall on different experts.
        std::size_t const slots = met * ranks;
        auto const chosen_by = [&](std::size_t rank, std::size_t slot) {
            auto const before = [&](std::size_t i) {
                return std::llround(choices * static_cast<double>(i) / static_cast<double>(slots));
            };
            std::size_t const place = (slot + rank) % slots;
            return static_cast<i64>(before(place + 1) - before(place));
        };
        // What a rank sends to itself it also receives: the surplus comes from the others.
        auto const me = static_cast<std::size_t>(comm_->rank());
        auto const all = static_cast<double>(ranks);
        double const surplus = ranks == 1 ? 1 : (observe::dry_run()->routing().imbalance * all - 1) / (all - 1);
        for (std::size_t e = 0; e < experts; ++e) {
            std::size_t const rank = e / local, own = e % local;
            sent_counts_[e] = own < met ? chosen_by(me, rank * met + own) : 0;
            auto const arriving = static_cast<double>(own < met ? chosen_by(rank, me * met + own) : 0);
            arriving_counts_[e] = static_cast<i64>(std::llround((rank == me ? 1 : surplus) * arriving));
        }
    }

    template <class T>
    RowBuffer<T, Exec> carry(Context<Exec> const& context, RowBuffer<T, Exec> from, Numbers<i64> const& sent,
                             std::size_t arriving, Numbers<i64> const& received, Compact element) {
        if (comm_->size() == 1) return from;
        RowBuffer<T, Exec> to(context, arriving, from.columns);
        RowTransfer<T, Exec> transfer;
        transfer.start(context, *comm_, std::move(from), sent.span(), to.view(), received.span(), element, 1, true);
        transfer.finish(context);
        return to;
    }
    comm::Communicator const* comm_ = nullptr;
    int top_k_ = 1;
    std::size_t leaving_ = 0;
    RowBuffer<i32, Exec> position_, source_;
    Numbers<i64> sent_counts_, arriving_counts_, sent_, received_, offsets_;
};

} // namespace pentad::experts
