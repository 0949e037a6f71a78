// Boxes of shards that ranks send each other, a message for each pair that has any.
#pragma once

#include <pentad/comm/boxes.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/block.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/shard.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace pentad::detail {

/// Messages of boxes between ranks of a group, worked out once and sent any number of times. The boxes of two ranks are
/// added in the same order on both.
template <class T, class Exec>
class BoxMessages {
  public:
    BoxMessages(Context<Exec> const& context, comm::Communicator const& comm) : context_(&context), comm_(&comm) {}

    /// A box of a shard that leaves for a rank, or arrives from it. Ranks come in ascending order.
    void add(bool leaves, std::size_t peer, ShardShape const& shard, ElementBox const& box) {
        std::size_t const cells = box.size(shard.rank);
        if (cells == 0) return;
        auto& list = leaves ? leaving_ : arriving_;
        auto& total = leaves ? leaving_cells_ : arriving_cells_;
        if (list.empty() || list.back().peer != peer) list.push_back({peer, total, 0, {}});
        BoxInMemory packed(shard.rank, box, box);
        packed.first = total;
        list.back().boxes.push_back({in_memory(shard, box), packed});
        list.back().cells += cells;
        total += cells;
    }
    /// To be called when all have been added.
    void prepare() {
        packed_ = context_->take(leaving_cells_ * sizeof(T));
        arrived_ = context_->take(arriving_cells_ * sizeof(T));
        sending_.reserve(leaving_.size());
        receiving_.reserve(arriving_.size());
    }
    [[nodiscard]] std::size_t own_rank() const { return static_cast<std::size_t>(comm_->rank()); }

    /// Sends what leaves from the memory of a shard, which is free again when this returns.
    void start(T const* from) {
        auto const& exec = context_->exec();
        for (auto const& message : arriving_)
            receiving_.push_back(comm::start_receive(exec, *comm_, flat(arrived_, message), rank_of(message)));
        for (auto const& message : leaving_)
            for (auto const& box : message.boxes)
                copy_box("boxes", exec, static_cast<T*>(packed_.data()), box.in_message, from, box.in_memory);
        for (auto const& message : leaving_)
            sending_.push_back(comm::start_send(exec, *comm_, flat(packed_, message), rank_of(message)));
    }
    /// take(peer, box in memory, message, box in the message) for each box that arrives, in the order of ranks.
    template <class Take>
    void finish(Take&& take) {
        for (std::size_t i = 0; i < arriving_.size(); ++i) {
            receiving_[i].wait();
            for (auto const& box : arriving_[i].boxes)
                take(arriving_[i].peer, box.in_memory, static_cast<T const*>(arrived_.data()), box.in_message);
        }
        for (auto& message : sending_) message.wait();
        receiving_.clear();
        sending_.clear();
    }

  private:
    using Flat = View<T, 1, Exec>;
    using Transfer =
        decltype(comm::start_send(std::declval<Exec>(), std::declval<comm::Communicator>(), std::declval<Flat>(), 0));
    using Buffer = memory::Buffer<typename Exec::memory_space>;
    struct BoxOfMessage {
        BoxInMemory in_memory, in_message;
    };
    struct Message {
        std::size_t peer, first, cells; ///< where it is in the buffer of all
        std::vector<BoxOfMessage> boxes;
    };

    static int rank_of(Message const& message) { return static_cast<int>(message.peer); }
    static Flat flat(Buffer const& buffer, Message const& message) {
        return Flat(static_cast<T*>(buffer.data()) + message.first, message.cells);
    }

    Context<Exec> const* context_;
    comm::Communicator const* comm_;
    std::size_t leaving_cells_ = 0, arriving_cells_ = 0;
    std::vector<Message> leaving_, arriving_;
    Buffer packed_, arrived_; // they outlive what is under way
    std::vector<Transfer> sending_, receiving_;
};

} // namespace pentad::detail
