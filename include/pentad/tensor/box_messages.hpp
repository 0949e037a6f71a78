// Boxes of shards that ranks send each other, a message for each pair that has any.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/layout/block.hpp>
#include <pentad/layout/exchange.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/shard.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

namespace pentad::detail {

/// A box in the memory of a shard.
struct BoxInMemory {
    std::size_t first = 0; ///< element
    std::array<std::size_t, max_dimensions> extents{}, strides{};
    std::size_t rank = 0;

    BoxInMemory(ShardShape const& shape, ElementBox const& box) : rank(shape.rank) {
        std::size_t stride = 1;
        for (std::size_t d = rank; d-- > 0; stride *= shape.local[d]) {
            extents[d] = box.extent(d);
            strides[d] = stride;
            first += box.begin[d] * stride;
        }
    }
    /// The same box without anything between its elements.
    [[nodiscard]] BoxInMemory packed(std::size_t at) const {
        auto result = *this;
        result.first = at;
        std::size_t stride = 1;
        for (std::size_t d = rank; d-- > 0; stride *= extents[d]) result.strides[d] = stride;
        return result;
    }
    [[nodiscard]] std::size_t size() const {
        std::size_t product = 1;
        for (std::size_t d = 0; d < rank; ++d) product *= extents[d];
        return product;
    }
};

template <class T, class Exec>
void copy_cells(Exec const& exec, T* to, BoxInMemory const& target, T const* from, BoxInMemory const& source) {
    memory::Runs runs(sizeof(T));
    for (std::size_t d = target.rank; d-- > 0;)
        runs.add(target.extents[d], target.strides[d] * sizeof(T), source.strides[d] * sizeof(T));
    memory::copy("boxes", exec, runs, to + target.first, from + source.first);
}

/// Messages of boxes between ranks of a group, worked out once and sent any number of times. The boxes of two ranks are
/// added in the same order on both.
template <class T, class Exec>
class BoxMessages {
  public:
    BoxMessages(Context<Exec> const& context, comm::Communicator const& comm) : context_(&context), comm_(&comm) {}

    /// A box that leaves for a rank, or arrives from it. Ranks come in ascending order.
    void add(bool leaves, std::size_t peer, BoxInMemory const& box) {
        if (box.size() == 0) return;
        auto& list = leaves ? leaving_ : arriving_;
        auto& total = leaves ? leaving_cells_ : arriving_cells_;
        if (list.empty() || list.back().peer != peer) list.push_back({peer, total, 0, {}});
        list.back().boxes.push_back({box, box.packed(total)});
        list.back().cells += box.size();
        total += box.size();
    }
    /// To be called when all have been added.
    void prepare() {
        packed_ = context_->take(leaving_cells_ * sizeof(T));
        arrived_ = context_->take(arriving_cells_ * sizeof(T));
        sending_.reserve(leaving_.size());
        receiving_.reserve(arriving_.size());
    }
    /// Elements that this rank sends.
    [[nodiscard]] std::size_t leaving() const { return leaving_cells_; }
    [[nodiscard]] std::size_t own_rank() const { return static_cast<std::size_t>(comm_->rank()); }

    /// Sends what leaves from the memory of a shard, which is free again when this returns.
    void start(T const* from) {
        auto const& exec = context_->exec();
        for (auto const& message : arriving_)
            receiving_.push_back(comm::start_receive(exec, *comm_, flat(arrived_, message), rank_of(message)));
        for (auto const& message : leaving_)
            for (auto const& box : message.boxes)
                copy_cells(exec, static_cast<T*>(packed_.data()), box.in_message, from, box.in_memory);
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
