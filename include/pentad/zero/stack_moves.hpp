// Matrices of stacked parameters change places between ranks: from one shard of a bucket's state to others. Only what
// moves is sent, directly from the rank that updates it to the one that will.
#pragma once

#include <pentad/comm/collectives.hpp>
#include <pentad/layers/stack_order.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/tensor/tensor.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pentad::zero {

/// Which elements of a bucket's state a rank sends to whom, and gets from whom.
class StackMoves {
  public:
    /// A parameter of the bucket.
    struct Stack {
        StackOrder const* order;
        std::size_t offset;   ///< in the bucket
        std::size_t matrices; ///< of a rank
        std::size_t elements; ///< of a matrix, on a rank
    };
    /// A rank of the group: its shard of the stacks, and its shard of the bucket's state (ZeRO).
    struct Holder {
        std::size_t part, shard;
        bool operator==(Holder const&) const = default;
    };
    /// Elements of this rank's shard that go to a rank of the group or come from it.
    struct Range {
        std::size_t rank, first, count;
    };

    /// @param holders the ranks of the group, of which this one is `me` @param extent of a shard
    StackMoves(std::vector<Holder> holders, std::size_t me, std::size_t extent, std::span<Stack const> stacks)
        : holders_(std::move(holders)), me_(holders_[me]), extent_(extent) {
        for (auto const& stack : stacks) {
            auto const before = StackOrder::places(stack.order->now());
            auto const numbers = stack.order->next();
            for (std::size_t place = 0; place < numbers.size(); ++place) {
                auto const from = static_cast<std::size_t>(before[static_cast<std::size_t>(numbers[place])]);
                if (from == place) continue;
                add(leaving_, stack, from, place);
                add(arriving_, stack, place, from);
            }
        }
        for (auto* const ranges : {&leaving_, &arriving_}) std::ranges::stable_sort(*ranges, {}, &Range::rank);
    }
    [[nodiscard]] std::vector<Range> const& leaving() const { return leaving_; }
    [[nodiscard]] std::vector<Range> const& arriving() const { return arriving_; }

    /// Moves the elements of a state. Collective over `comm`, the group.
    template <class A, class Exec>
    void carry_out(Context<Exec> const& context, comm::Communicator const& comm, View<A, 1, Exec> state) const {
        auto const& exec = context.exec();
        auto const leaving = counts(leaving_), arriving = counts(arriving_);
        auto const buffer_of = [&](std::vector<Range> const& ranges) {
            return context.take(size_of(ranges) * sizeof(A), observe::Memory::optimizer);
        };
        auto const from = buffer_of(leaving_), to = buffer_of(arriving_);
        auto const view = [&](auto const& buffer, std::vector<Range> const& ranges) {
            return View<A, 1, Exec>(static_cast<A*>(buffer.data()), size_of(ranges));
        };
        auto const for_each = [](std::vector<Range> const& ranges, View<A, 1, Exec> const& packed, auto const& copy) {
            std::size_t at = 0;
            for (auto const& range : ranges) {
                copy(packed.data() + at, range);
                at += range.count;
            }
        };
        for_each(leaving_, view(from, leaving_), [&](A* packed, Range const& range) {
            memory::copy(exec, packed, state.data() + range.first, range.count * sizeof(A));
        });
        std::vector<MPI_Aint> offsets(2 * leaving.size());
        comm::all_to_all(exec, comm, view(from, leaving_), std::span(leaving), view(to, arriving_), std::span(arriving),
                         std::span(offsets));
        for_each(arriving_, view(to, arriving_), [&](A const* packed, Range const& range) {
            memory::copy(exec, state.data() + range.first, packed, range.count * sizeof(A));
        });
    }

  private:
    /// The part of the matrix at place `here` that is in this rank's shard, by the ranks that have it at `there`.
    void add(std::vector<Range>& ranges, Stack const& stack, std::size_t here, std::size_t there) const {
        if (here / stack.matrices != me_.part) return;
        auto const start = [&](std::size_t place) { return stack.offset + place % stack.matrices * stack.elements; };
        std::size_t const own = me_.shard * extent_, mine = start(here), other = start(there);
        std::size_t const end = std::min(mine + stack.elements, own + extent_);
        for (std::size_t at = std::max(mine, own); at < end;) {
            std::size_t const shard = (other + (at - mine)) / extent_;
            std::size_t const count = std::min(end - at, (shard + 1) * extent_ - (other + (at - mine)));
            ranges.push_back({rank_of({there / stack.matrices, shard}), at - own, count});
            at += count;
        }
    }
    [[nodiscard]] std::size_t rank_of(Holder const& holder) const {
        auto const found = std::find(holders_.begin(), holders_.end(), holder);
        if (found == holders_.end()) throw std::logic_error("no rank of the group has this part of the stacks");
        return static_cast<std::size_t>(found - holders_.begin());
    }
    [[nodiscard]] std::vector<MPI_Count> counts(std::vector<Range> const& ranges) const {
        std::vector<MPI_Count> counts(holders_.size());
        for (auto const& range : ranges) counts[range.rank] += static_cast<MPI_Count>(range.count);
        return counts;
    }
    static std::size_t size_of(std::vector<Range> const& ranges) {
        std::size_t size = 0;
        for (auto const& range : ranges) size += range.count;
        return size;
    }

    std::vector<Holder> holders_;
    Holder me_;
    std::size_t extent_;
    std::vector<Range> leaving_, arriving_; ///< by rank; of a rank in the order of stacks and new places
};

} // namespace pentad::zero
