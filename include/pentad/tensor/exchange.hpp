// Carries out an exchange: boxes of elements straight from the ranks that hold them to those that need them.
#pragma once

#include <pentad/comm/box_exchange.hpp>
#include <pentad/comm/boxes.hpp>
#include <pentad/comm/collectives.hpp>
#include <pentad/layout/exchange.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/tensor/shard.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace pentad::detail {

/// Sums of up to `most` arrays, element by element, in accumulators.
template <class T>
struct SumOfPieces { // T: what kernels compute with
    static constexpr std::size_t most = 16;
    std::array<T const*, most> pieces;
    int count;
    accumulator_t<T>* total; ///< partial sums over earlier pieces; not used where there is one launch
    T* result;               ///< null: the sums stay in `total`, for the next launch
    bool is_first;           ///< `total` holds nothing yet

    KOKKOS_FUNCTION void operator()(std::int64_t i) const {
        auto sum = is_first ? static_cast<accumulator_t<T>>(pieces[0][i]) : total[i];
        for (int p = is_first ? 1 : 0; p < count; ++p)
            sum = sum + static_cast<accumulator_t<T>>(pieces[static_cast<std::size_t>(p)][i]);
        if (result != nullptr)
            result[i] = static_cast<T>(sum);
        else
            total[i] = sum;
    }
};
/// The sum of some arrays, rounded once, in place of the first.
template <class T, class Exec>
void sum_pieces(Context<Exec> const& context, std::span<T* const> pieces, std::size_t elements) {
    if (memory::detail::dry("sum of pieces", (pieces.size() + 1) * elements * sizeof(T))) return;
    using Kernel = SumOfPieces<kernel_element_t<T>>;
    using Sum = accumulator_t<kernel_element_t<T>>;
    bool const in_turns = pieces.size() > Kernel::most;
    auto const total = in_turns ? context.take(elements * sizeof(Sum)) : memory::Buffer<typename Exec::memory_space>();
    for (std::size_t first = 0; first < pieces.size(); first += Kernel::most) {
        std::size_t const last = std::min(first + Kernel::most, pieces.size());
        Kernel sum{{}, static_cast<int>(last - first), static_cast<Sum*>(total.data()), nullptr, first == 0};
        for (std::size_t p = first; p < last; ++p)
            sum.pieces[p - first] = reinterpret_cast<kernel_element_t<T> const*>(pieces[p]);
        if (last == pieces.size()) sum.result = reinterpret_cast<kernel_element_t<T>*>(pieces[0]);
        Kokkos::parallel_for("pentad::sum_pieces",
                             Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(
                                 context.exec(), 0, static_cast<std::int64_t>(elements)),
                             sum);
    }
}

/// An exchange of shards, started and finished. What a rank gives and takes is packed, but on a node, where boxes go
/// straight from array to array when the exchange is not to go on beside a computation.
template <class T, class Exec>
class Exchange {
  public:
    Exchange(Context<Exec> const& context, PlanStep const& step, ExchangeValue const& value,
             comm::Communicator const& comm, Shard<T, Exec> shard)
        : context_(&context), comm_(&comm), value_(value), step_(step),
          shape_(step_, value_, shard, context.communicators().mesh()), shard_(std::move(shard)),
          result_{static_cast<ShardShape const&>(shard_)}, rank_(shard_.rank),
          me_(static_cast<std::size_t>(comm.rank())), boxes_(rank_, shape_.size()) {
        shape_.reshape(result_, me_);
        for (std::size_t p = 0; p < shape_.size(); ++p) {
            boxes_.held[p] = shape_.before_of(p);
            boxes_.longest = std::max(boxes_.longest, boxes_.held[p].size(rank_));
            boxes_.given[p] = shape_.given(me_, p);
            boxes_.taken[p] = shape_.given(p, me_);
            if (shape_.is_first_summand(p)) covered_ += boxes_.taken[p].size(rank_);
        }
        boxes_.needed = shape_.after_of(me_);
    }
    Exchange(Exchange const&) = delete;
    Exchange& operator=(Exchange const&) = delete;

    /// All of it. @param place of the result; null: in a buffer of its own
    [[nodiscard]] Shard<T, Exec> carry_out(T* place) {
        if (sums() || !comm::can_exchange_boxes<Exec>(*comm_)) {
            start();
            return finish(place);
        }
        make_result(place);
        auto const operation =
            step_.kind == StepKind::all_gather ? observe::Operation::all_gather : observe::Operation::all_to_all;
        if (!books_mean(operation, false))
            comm::exchange_boxes(context_->exec(), *comm_, operation, boxes_, shard_.data, result_.data);
        return std::move(result_);
    }
    /// Sends what others need.
    void start() {
        std::size_t const n = shape_.size();
        sent_.assign(n, 0);
        received_.assign(n, 0);
        offsets_.assign(2 * n, 0);
        places_.assign(n, 0);
        // In the order of ranks; behind what arrives, the own part where it is summed.
        std::size_t leaving = 0, arriving = 0;
        for (std::size_t p = 0; p < n; ++p) {
            places_[p] = arriving;
            if (p == me_) continue;
            std::size_t const out = boxes_.given[p].size(rank_), in = boxes_.taken[p].size(rank_);
            leaving += out;
            arriving += in;
            sent_[p] = static_cast<MPI_Count>(out);
            received_[p] = static_cast<MPI_Count>(in);
        }
        auto const& kept = boxes_.taken[me_];
        std::size_t in_pieces = arriving + (sums() ? kept.size(rank_) : 0);
        if (observe::dry_run_for_all() != nullptr) // the fullest of them
            for (std::size_t rank = 0; rank < n; ++rank) {
                leaving = std::max(leaving, shape_.sent_by(rank));
                in_pieces = std::max(in_pieces, shape_.taken_by(rank) + (sums() ? shape_.kept_by(rank) : 0));
            }
        auto const array = [&](std::size_t elements) { return context_->take(elements * sizeof(T)); };
        bool const gives_all = step_.kind == StepKind::all_gather; // the same to all: it need not be packed
        packed_ = array(gives_all ? 0 : leaving);
        arrived_ = array(in_pieces);
        auto* const packed = static_cast<T*>(packed_.data());
        std::size_t at = 0;
        for (std::size_t p = 0; p < n; ++p) {
            if (sent_[p] == 0 || gives_all) continue;
            auto const& box = boxes_.given[p];
            copy(box, packed + at, box, shard_.data, boxes_.held[me_]);
            at += box.size(rank_);
        }
        if (sums()) {
            places_[me_] = arriving;
            copy(kept, pieces() + arriving, kept, shard_.data, boxes_.held[me_]);
            shard_.block = {};
        }
        if (books_mean(observe::Operation::all_to_all, true)) return;
        request_.emplace(comm::detail::all_to_all(
            comm::detail::Form::start, context_->exec(), *comm_, gives_all ? shard_.flat() : Flat(packed, leaving),
            std::span<MPI_Count const>(sent_), Flat(pieces(), arriving), std::span<MPI_Count const>(received_),
            std::span<MPI_Aint>(offsets_), gives_all));
    }
    /// Blocks until the result is there. @param place as above
    [[nodiscard]] Shard<T, Exec> finish(T* place) {
        if (request_) request_->wait();
        packed_ = {};
        make_result(place);
        std::vector<T*> summands;
        for (std::size_t p = 0; p < shape_.size(); ++p) {
            auto const& box = boxes_.taken[p];
            if (!shape_.is_first_summand(p) || box.size(rank_) == 0) continue;
            if constexpr (Summable<T>) // others are never partial
                if (sums()) {
                    summands.clear();
                    for (std::size_t i = 0; i < shape_.summands(); ++i)
                        summands.push_back(pieces() + places_[shape_.summand(p, i)]);
                    sum_pieces(*context_, std::span<T* const>(summands), box.size(rank_));
                }
            if (p == me_ && !sums())
                copy(box, result_.data, boxes_.needed, shard_.data, boxes_.held[me_]);
            else
                copy(box, result_.data, boxes_.needed, pieces() + places_[p], box);
        }
        return std::move(result_);
    }

  private:
    using Flat = View<T, 1, Exec>;
    using Buffer = memory::Buffer<typename Exec::memory_space>;

    [[nodiscard]] bool sums() const { return shape_.summands() > 1; }
    /// Copies a box between two arrays of which it is a part.
    void copy(ElementBox const& box, T* to, ElementBox const& target, T const* from, ElementBox const& source) const {
        copy_box("exchange", context_->exec(), to, {rank_, box, target}, from, {rank_, box, source});
    }
    /// In a dry run whose rank stands for all, books what ranks send in the mean.
    [[nodiscard]] bool books_mean(observe::Operation operation, bool is_started) const {
        auto* const dry = observe::dry_run_for_all();
        if (dry == nullptr || comm_->size() == 1) return false;
        double const mean = static_cast<double>(shape_.sent() * sizeof(T)) / static_cast<double>(shape_.size());
        dry->exchange(operation, comm::detail::cost_of_sent(*comm_, mean), comm_->size(), is_started, 0, false);
        return true;
    }
    [[nodiscard]] T* pieces() const { return static_cast<T*>(arrived_.data()); }
    void make_result(T* place) {
        result_ = Shard<T, Exec>::make(*context_, result_, place);
        if (covered_ < result_.size()) memory::clear(context_->exec(), result_.data, result_.size() * sizeof(T));
    }

    Context<Exec> const* context_;
    comm::Communicator const* comm_;
    ExchangeValue value_;
    PlanStep step_;
    ExchangeShape shape_;
    Shard<T, Exec> shard_, result_;
    std::size_t rank_, me_;
    comm::Boxes boxes_;
    std::size_t covered_ = 0; ///< elements of the result that arrive; the rest are zeros
    std::vector<MPI_Count> sent_, received_;
    std::vector<MPI_Aint> offsets_;
    std::vector<std::size_t> places_;
    Buffer packed_, arrived_;
    std::optional<decltype(comm::start_all_to_all(std::declval<Exec const&>(), std::declval<comm::Communicator>(),
                                                  std::declval<Flat>(), std::declval<std::span<MPI_Count const>>(),
                                                  std::declval<Flat>(), std::declval<std::span<MPI_Count const>>(),
                                                  std::declval<std::span<MPI_Aint>>()))>
        request_; ///< last: it ends before what it uses
};

} // namespace pentad::detail
