// Collectives of ranks on several nodes, in two levels: through the memory of each node, and between ranks
// of the same place on their nodes over the network, where each byte goes once.
#pragma once

#include <pentad/comm/detail/pending.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/node/exchange.hpp>
#include <pentad/memory/pool.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

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
    void begin(Levels& levels, node::Task const& task, MPI_Datatype type, MPI_Op sum);
    bool step() override {
        if (!is_complete_) or_abandon([this] { proceed(); });
        return is_complete_;
    }

  private:
    void begin_parts();
    void proceed();
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
    void begin_all_reduce();
    void begin_reduce_scatter();
    void begin_all_gather();
    void begin_all_to_all();

    /// All-to-all: sends on, little at a time: what all ranks have on the link together must fit into its queues.
    void send_pieces();

    [[nodiscard]] std::size_t node_after(std::size_t i) const { return (levels_->node() + i) % nodes_; }
    [[nodiscard]] std::size_t node_before(std::size_t i) const { return (levels_->node() + nodes_ - i) % nodes_; }
    /// The part of the task inside this node, for the pieces of the ranks of node b.
    [[nodiscard]] node::Task inside(std::size_t b, std::byte const* in, std::byte* out) const;
    void exchange(node::Task const& task, bool held) {
        if (used_ == exchanges_.size()) exchanges_.push_back(std::make_unique<node::Exchange>());
        exchanges_[used_++]->begin(levels_->inside(), task, held);
    }
    [[nodiscard]] MPI_Count count(std::size_t bytes) const { return static_cast<MPI_Count>(bytes / task_.element); }
    [[nodiscard]] int tag() const { return static_cast<int>(number_ % 32768); }
    void receive(std::byte* to, std::size_t from, MPI_Comm comm);
    void send(std::byte const* from, std::size_t to, MPI_Comm comm) {
        requests_.push_back(MPI_REQUEST_NULL);
        check(MPI_Isend_c(from, count(task_.piece), type_, static_cast<int>(to), tag(), comm, &requests_.back()),
              "MPI_Isend");
    }

    // All-reduce and broadcast: a collective of the MPI library across nodes.
    [[nodiscard]] bool is_ready_for_turn() {
        return task_.operation != observe::Operation::all_reduce || exchanges_[0]->step();
    }
    void start_across();
    /// Exchanges that wait for the network begin when what they need has come.
    void release_exchanges();

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
    void add_sums();

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

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/two_level.hpp>
#endif
