// Collectives of ranks on several nodes, in two levels: through the memory of each node, and between ranks
// of the same place on their nodes over the network, where each byte goes once.
#pragma once

#include <pentad/comm/detail/pending.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/network.hpp>
#include <pentad/comm/node/copy.hpp>
#include <pentad/comm/node/exchange.hpp>
#include <pentad/memory/pool.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace pentad::comm {

/// Ranks on several nodes: rank r is number r % k on node r / k, where each node has k of them.
class Levels {
  public:
    /// Collective over `comm`.
    [[gnu::cold]] Levels(MPI_Comm comm, node::Group& inside) : inside_(&inside) {
        check(MPI_Comm_dup(comm, &all_), "MPI_Comm_dup");
        check(MPI_Comm_split(comm, static_cast<int>(inside.rank()), static_cast<int>(inside.node()), &across_),
              "MPI_Comm_split");
    }
    Levels(Levels const&) = delete;
    Levels& operator=(Levels const&) = delete;
    [[gnu::cold]] ~Levels() {
        MPI_Comm_free(&across_);
        MPI_Comm_free(&all_);
    }
    [[nodiscard]] node::Group& inside() const { return *inside_; }
    /// The ranks with the same number on their nodes, by node.
    [[nodiscard]] MPI_Comm across() const { return across_; }
    [[nodiscard]] MPI_Comm all() const { return all_; }
    [[nodiscard]] std::size_t nodes() const { return inside_->nodes(); }
    [[nodiscard]] std::size_t node() const { return inside_->node(); }

    // Operations call collectives of `across` in the order in which they began, which is the same on all ranks.
    std::uint64_t begin() { return begun_++; }
    [[nodiscard]] bool is_turn_of(std::uint64_t number) const { return turn_ == number; }
    void end_turn() { ++turn_; }

  private:
    node::Group* inside_;
    MPI_Comm across_ = MPI_COMM_NULL, all_ = MPI_COMM_NULL;
    std::uint64_t begun_ = 0, turn_ = 0;
};

/// One collective in two levels. All-reduce: reduce-scatter inside, all-reduce across, all-gather inside.
/// Reduce-scatter: inside for each node, whose sums go there in messages. All-gather: messages across, and an
/// all-gather inside for each node as they arrive. All-to-all: inside, and messages to the ranks of other nodes.
/// Broadcast: across from the root, then inside. Sums over nodes are made in the order of nodes, in an all-reduce as
/// the MPI library does.
class TwoLevel final : public Pending {
  public:
    /// Begins it: `task` is that of all ranks, in the type and with the sum that MPI knows.
    /// @throws Error when the group has failed, or MPI does
    void begin(Levels& levels, node::Task const& task, MPI_Datatype type, MPI_Op sum) {
        levels.inside().require_working();
        levels_ = &levels;
        task_ = task;
        type_ = type;
        sum_ = sum;
        k_ = levels.inside().size();
        me_ = levels.inside().rank();
        nodes_ = levels.nodes();
        number_ = levels.begin();
        had_turn_ = is_complete_ = false;
        used_ = arrived_ = sent_ = left_ = receives_ = 0;
        requests_.clear();
        or_abandon([this] { begin_parts(); });
    }
    bool step() override {
        if (!is_complete_) or_abandon([this] { proceed(); });
        return is_complete_;
    }

  private:
    void begin_parts() {
        auto const& task = task_;
        switch (task.operation) {
        case observe::Operation::all_reduce:
            return begin_all_reduce();
        case observe::Operation::reduce_scatter:
            return begin_reduce_scatter();
        case observe::Operation::all_gather:
            return begin_all_gather();
        case observe::Operation::all_to_all:
            return begin_all_to_all();
        default:
            auto part = task;
            part.root = static_cast<int>(static_cast<std::size_t>(task.root) % k_);
            exchange(part, true);
        }
    }
    void proceed() {
        levels_->inside().require_working();
        bool exchanged = true;
        for (std::size_t i = 0; i < used_; ++i) exchanged = exchanges_[i]->step() && exchanged;
        if (!had_turn_ && levels_->is_turn_of(number_) && is_ready_for_turn()) {
            start_across();
            levels_->end_turn();
            had_turn_ = true;
        }
        if (task_.operation == observe::Operation::reduce_scatter) send_sums();
        if (task_.operation == observe::Operation::all_to_all) send_pieces();
        for (int arrived = 1; arrived_ < requests_.size() && arrived != 0;
             arrived_ += static_cast<std::size_t>(arrived))
            check(MPI_Test(&requests_[arrived_], &arrived, MPI_STATUS_IGNORE), "MPI_Test");
        release_exchanges();
        if (!exchanged || !had_turn_ || arrived_ < requests_.size()) return;
        if (task_.operation == observe::Operation::all_to_all && sent_ < (nodes_ - 1) * k_) return;
        if (task_.operation == observe::Operation::reduce_scatter) add_sums();
        is_complete_ = true;
    }
    /// Calls f. Should it throw, nothing is left that reads or writes the buffers, as far as MPI allows, and the ranks
    /// of this node do not wait for this one.
    template <class F>
    void or_abandon(F&& f) {
        try {
            f();
        } catch (std::exception const& error) {
            levels_->inside().fail(error.what());
            bool const are_messages =
                task_.operation != observe::Operation::all_reduce && task_.operation != observe::Operation::broadcast;
            for (std::size_t i = 0; are_messages && i < requests_.size(); ++i) { // others cannot be taken back
                if (requests_[i] == MPI_REQUEST_NULL) continue;
                if (i < receives_) MPI_Cancel(&requests_[i]);
                MPI_Request_free(&requests_[i]);
            }
            requests_.clear();
            is_complete_ = true;
            throw;
        }
    }
    void begin_all_reduce() {
        share_ = detail::share_in_all_reduce(task_.bytes, k_);
        begin_ = std::min(me_ * share_, task_.bytes);
        auto scatter = task_, gather = task_;
        scatter.operation = observe::Operation::reduce_scatter;
        gather.operation = observe::Operation::all_gather;
        scatter.piece = gather.piece = share_;
        scatter.out = task_.out + begin_;
        gather.in = task_.out + begin_;
        exchange(scatter, false);
        exchange(gather, true);
    }
    void begin_reduce_scatter() {
        sums_ = memory::staging_pool<Kokkos::HostSpace>().take(2 * nodes_ * task_.piece);
        for (std::size_t i = 1; i < nodes_; ++i) receive(sum_of(node_before(i)), node_before(i), levels_->across());
        for (std::size_t i = 0; i < nodes_; ++i)
            exchange(inside(node_after(i), task_.in, sum_for(node_after(i))), false);
    }
    void begin_all_gather() {
        auto const place = [this](std::size_t b) { return task_.out + (b * k_ + me_) * task_.piece; };
        node::copy(place(levels_->node()), task_.in, task_.piece, false);
        for (std::size_t i = 1; i < nodes_; ++i) receive(place(node_before(i)), node_before(i), levels_->across());
        for (std::size_t i = 1; i < nodes_; ++i) send(place(levels_->node()), node_after(i), levels_->across());
        for (std::size_t i = 0; i < nodes_; ++i) {
            auto part = inside(node_before(i), task_.out, task_.out + node_before(i) * k_ * task_.piece);
            part.in = place(node_before(i));
            exchange(part, i > 0);
        }
    }
    void begin_all_to_all() {
        std::size_t const first = levels_->node() * k_;
        for (std::size_t b = 1; b < nodes_; ++b) // of each node in turn one rank with each here
            for (std::size_t i = 0; i < k_; ++i) {
                std::size_t const from = node_before(b) * k_ + (me_ + k_ - i) % k_;
                receive(task_.out + from * task_.piece, from, levels_->all());
            }
        send_pieces();
        exchange(inside(levels_->node(), task_.in, task_.out + first * task_.piece), false);
    }

    /// All-to-all: sends on, little at a time: what all ranks have on the link together must fit into its queues.
    void send_pieces() {
        constexpr std::size_t most = std::size_t{1} << 20; // bytes, or one message
        for (std::size_t const all = (nodes_ - 1) * k_; sent_ < all; ++sent_) {
            while (sent_ > left_ && (sent_ + 1 - left_) * task_.piece > most) {
                int has_left = 0;
                check(MPI_Test(&requests_[all + left_], &has_left, MPI_STATUS_IGNORE), "MPI_Test");
                if (has_left == 0) return;
                ++left_;
            }
            std::size_t const to = node_after(1 + sent_ / k_) * k_ + (me_ + sent_) % k_;
            send(task_.in + to * task_.piece, to, levels_->all());
        }
    }

    [[nodiscard]] std::size_t node_after(std::size_t i) const { return (levels_->node() + i) % nodes_; }
    [[nodiscard]] std::size_t node_before(std::size_t i) const { return (levels_->node() + nodes_ - i) % nodes_; }
    /// The part of the task inside this node, for the pieces of the ranks of node b.
    [[nodiscard]] node::Task inside(std::size_t b, std::byte const* in, std::byte* out) const {
        auto part = task_;
        part.bytes = k_ * task_.piece;
        part.in = in + b * part.bytes;
        part.out = out;
        return part;
    }
    void exchange(node::Task const& task, bool held) {
        if (used_ == exchanges_.size()) exchanges_.push_back(std::make_unique<node::Exchange>());
        exchanges_[used_++]->begin(levels_->inside(), task, held);
    }
    [[nodiscard]] MPI_Count count(std::size_t bytes) const { return static_cast<MPI_Count>(bytes / task_.element); }
    [[nodiscard]] int tag() const { return static_cast<int>(number_ % 32768); }
    void receive(std::byte* to, std::size_t from, MPI_Comm comm) {
        requests_.push_back(MPI_REQUEST_NULL);
        ++receives_;
        check(MPI_Irecv_c(to, count(task_.piece), type_, static_cast<int>(from), tag(), comm, &requests_.back()),
              "MPI_Irecv");
    }
    void send(std::byte const* from, std::size_t to, MPI_Comm comm) {
        requests_.push_back(MPI_REQUEST_NULL);
        check(MPI_Isend_c(from, count(task_.piece), type_, static_cast<int>(to), tag(), comm, &requests_.back()),
              "MPI_Isend");
    }

    // All-reduce and broadcast: a collective of the MPI library across nodes.
    [[nodiscard]] bool is_ready_for_turn() {
        return task_.operation != observe::Operation::all_reduce || exchanges_[0]->step();
    }
    void start_across() {
        bool const reduces = task_.operation == observe::Operation::all_reduce;
        auto const root = static_cast<std::size_t>(std::max(task_.root, 0));
        if (!reduces && (task_.root < 0 || root % k_ != me_)) return; // others have the root's number on their nodes
        requests_.push_back(MPI_REQUEST_NULL);
        if (reduces)
            check(MPI_Iallreduce_c(MPI_IN_PLACE, task_.out + begin_, count(std::min(share_, task_.bytes - begin_)),
                                   type_, sum_, levels_->across(), &requests_.back()),
                  "MPI_Iallreduce");
        else
            check(MPI_Ibcast_c(task_.out, count(task_.bytes), type_, static_cast<int>(root / k_), levels_->across(),
                               &requests_.back()),
                  "MPI_Ibcast");
    }
    /// Exchanges that wait for the network begin when what they need has come.
    void release_exchanges() {
        if (task_.operation == observe::Operation::all_gather) // message i is for exchange i + 1
            for (std::size_t i = 0; i < std::min(arrived_, nodes_ - 1); ++i) exchanges_[i + 1]->release();
        if (!had_turn_ || arrived_ < requests_.size()) return;
        if (task_.operation == observe::Operation::all_reduce) exchanges_[1]->release();
        if (task_.operation == observe::Operation::broadcast) exchanges_[0]->release();
    }

    // Reduce-scatter: the sums of this node's ranks for all nodes, then those of all nodes for this one.
    [[nodiscard]] std::byte* sum_for(std::size_t b) const {
        return static_cast<std::byte*>(sums_.data()) + b * task_.piece;
    }
    [[nodiscard]] std::byte* sum_of(std::size_t b) const {
        return b == levels_->node() ? sum_for(b) : sum_for(nodes_ + b);
    }
    void send_sums() {
        for (; sent_ < nodes_ && exchanges_[sent_]->step(); ++sent_)
            if (sent_ > 0) send(sum_for(node_after(sent_)), node_after(sent_), levels_->across());
    }
    void add_sums() {
        addresses_.clear();
        for (std::size_t b = 0; b < nodes_; ++b) addresses_.push_back(sum_of(b));
        task_.reduction(addresses_.data(), nodes_, &task_.out, 1, task_.piece, false);
        sums_ = {};
    }

    Levels* levels_ = nullptr;
    node::Task task_;
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
    MPI_Op sum_ = MPI_OP_NULL;
    std::size_t k_ = 1, me_ = 0, nodes_ = 1;
    std::size_t share_ = 0, begin_ = 0; ///< all-reduce: bytes that a rank sums, and where its own begin
    std::uint64_t number_ = 0;
    bool had_turn_ = false, is_complete_ = true;
    std::size_t used_ = 0, arrived_ = 0; ///< exchanges; requests that are complete, in order
    std::size_t sent_ = 0, left_ = 0;    ///< messages, and those of them that are complete, in order; sums
    std::size_t receives_ = 0;           ///< of the requests, the first
    memory::Buffer<Kokkos::HostSpace> sums_;
    std::vector<std::byte*> addresses_;
    std::vector<MPI_Request> requests_;
    std::vector<std::unique_ptr<node::Exchange>> exchanges_;
};

} // namespace pentad::comm
