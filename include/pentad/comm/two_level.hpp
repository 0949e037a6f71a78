// Room: comm. Collectives of ranks on several nodes, in two levels: through the memory of each node, and between ranks
// of the same place on their nodes over the network, where each byte goes once.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/comm/node/copy.hpp>
#include <pentad/comm/node/exchange.hpp>
#include <pentad/comm/pending.hpp>
#include <pentad/comm/pool.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pentad::comm {

/// Ranks on several nodes: rank r is number r % k on node r / k, where each node has k of them.
class Levels {
  public:
    /// Collective over `comm`.
    Levels(MPI_Comm comm, node::Group& inside) : inside_(&inside) {
        check(MPI_Comm_dup(comm, &all_), "MPI_Comm_dup");
        check(MPI_Comm_split(comm, static_cast<int>(inside.rank()), static_cast<int>(inside.node()), &across_),
              "MPI_Comm_split");
    }
    Levels(Levels const&) = delete;
    Levels& operator=(Levels const&) = delete;
    ~Levels() {
        MPI_Comm_free(&across_);
        MPI_Comm_free(&all_);
    }
    [[nodiscard]] node::Group& inside() const { return *inside_; }
    /// The ranks with the same number on their nodes, by node.
    [[nodiscard]] MPI_Comm across() const { return across_; }
    [[nodiscard]] MPI_Comm all() const { return all_; }
    [[nodiscard]] std::size_t nodes() const { return inside_->nodes(); }
    [[nodiscard]] std::size_t node() const { return inside_->node(); }

    // Operations come to `across` in the order in which they began, which is the same on all ranks.
    std::uint64_t begin() { return begun_++; }
    [[nodiscard]] bool may_cross(std::uint64_t number) const { return crossed_ == number; }
    void cross() { ++crossed_; }

  private:
    node::Group* inside_;
    MPI_Comm across_ = MPI_COMM_NULL, all_ = MPI_COMM_NULL;
    std::uint64_t begun_ = 0, crossed_ = 0;
};

/// One collective in two levels. All-reduce: reduce-scatter inside, all-reduce across, all-gather inside.
/// Reduce-scatter: inside for each node, then across. All-gather: across, then inside for each node as it arrives.
/// All-to-all: inside, and messages to the ranks of other nodes. Broadcast: across from the root, then inside.
class TwoLevel final : public Pending {
  public:
    /// Begins it: `task` is that of all ranks, in the type and with the sum that MPI knows.
    void begin(Levels& levels, node::Task const& task, MPI_Datatype type, MPI_Op sum) {
        levels_ = &levels;
        task_ = task;
        type_ = type;
        sum_ = sum;
        k_ = levels.inside().size();
        me_ = levels.inside().rank();
        nodes_ = levels.nodes();
        number_ = levels.begin();
        crosses_ = true;
        crossed_ = false;
        used_ = 0;
        requests_.clear();
        std::size_t const bundle = k_ * task.piece, mine = me_ * task.piece;
        switch (task.operation) {
        case observe::Operation::all_reduce: {
            share_ = (task.bytes + 64 * k_ - 1) / (64 * k_) * 64;
            begin_ = std::min(me_ * share_, task.bytes);
            auto scatter = task, gather = task;
            scatter.operation = observe::Operation::reduce_scatter;
            gather.operation = observe::Operation::all_gather;
            scatter.piece = gather.piece = share_;
            scatter.out = task.out + begin_;
            gather.in = task.out + begin_;
            exchange(scatter, false);
            exchange(gather, true);
            break;
        }
        case observe::Operation::reduce_scatter:
            sums_ = detail::staging_pool<Kokkos::HostSpace>().take(nodes_ * task.piece);
            for (std::size_t b = 0; b < nodes_; ++b) {
                auto part = inside(b * bundle, task.in, static_cast<std::byte*>(sums_.data()));
                part.out += b * task.piece;
                exchange(part, false);
            }
            break;
        case observe::Operation::all_gather: {
            std::byte* const place = task.out + levels.node() * bundle + mine;
            node::copy(place, task.in, task.piece, false);
            for (std::size_t i = 1; i < nodes_; ++i) {
                std::size_t const from = (levels.node() + nodes_ - i) % nodes_;
                receive(task.out + from * bundle + mine, task.piece, from, levels.across());
            }
            for (std::size_t i = 1; i < nodes_; ++i)
                send(place, task.piece, (levels.node() + i) % nodes_, levels.across());
            for (std::size_t i = 0; i < nodes_; ++i) {
                std::size_t const b = (levels.node() + nodes_ - i) % nodes_;
                auto part = inside(b * bundle, task.out, task.out + b * bundle);
                part.in += mine;
                exchange(part, i > 0);
            }
            crosses_ = false;
            break;
        }
        case observe::Operation::all_to_all: {
            for (std::size_t i = k_; i < nodes_ * k_; ++i) { // the ranks behind those of this node, and before them
                std::size_t const to = (levels.node() * k_ + i) % (nodes_ * k_);
                receive(task.out + to * task.piece, task.piece, to, levels.all());
            }
            for (std::size_t i = k_; i < nodes_ * k_; ++i) {
                std::size_t const to = (levels.node() * k_ + i) % (nodes_ * k_);
                send(task.in + to * task.piece, task.piece, to, levels.all());
            }
            exchange(inside(levels.node() * bundle, task.in, task.out + levels.node() * bundle), false);
            crosses_ = false;
            break;
        }
        default: // broadcast
            auto part = task;
            part.root = static_cast<int>(static_cast<std::size_t>(task.root) % k_);
            exchange(part, true);
        }
    }
    bool advance() override {
        if (crosses_ && !crossed_ && levels_->may_cross(number_) && is_ready_to_cross()) {
            cross();
            levels_->cross();
            crossed_ = true;
        }
        if (!crosses_ && levels_->may_cross(number_)) { // it is not waited for
            levels_->cross();
            crosses_ = crossed_ = true;
        }
        bool done = crossed_;
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            if (requests_[i] == MPI_REQUEST_NULL) continue;
            int arrived = 0;
            check(MPI_Test(&requests_[i], &arrived, MPI_STATUS_IGNORE), "MPI_Test");
            done = done && arrived != 0;
        }
        release_what_arrived();
        for (std::size_t i = 0; i < used_; ++i)
            if (!exchanges_[i]->advance()) done = false;
        if (done) sums_ = {};
        return done;
    }

  private:
    /// The part of the task inside this node, for the pieces from `offset` on.
    [[nodiscard]] node::Task inside(std::size_t offset, std::byte const* in, std::byte* out) const {
        auto part = task_;
        part.bytes = k_ * task_.piece;
        part.in = in + offset;
        part.out = out;
        return part;
    }
    void exchange(node::Task const& task, bool held) {
        if (used_ == exchanges_.size()) exchanges_.push_back(std::make_unique<node::Exchange>());
        exchanges_[used_++]->begin(levels_->inside(), task, held);
    }
    [[nodiscard]] MPI_Count count(std::size_t bytes) const { return static_cast<MPI_Count>(bytes / task_.element); }
    void receive(std::byte* to, std::size_t bytes, std::size_t from, MPI_Comm comm) {
        requests_.push_back(MPI_REQUEST_NULL);
        check(MPI_Irecv_c(to, count(bytes), type_, static_cast<int>(from), 0, comm, &requests_.back()), "MPI_Irecv");
    }
    void send(std::byte const* from, std::size_t bytes, std::size_t to, MPI_Comm comm) {
        requests_.push_back(MPI_REQUEST_NULL);
        check(MPI_Isend_c(from, count(bytes), type_, static_cast<int>(to), 0, comm, &requests_.back()), "MPI_Isend");
    }
    [[nodiscard]] bool is_ready_to_cross() {
        if (task_.operation == observe::Operation::all_reduce) return exchanges_[0]->advance();
        if (task_.operation == observe::Operation::broadcast) return true;
        bool ready = true;
        for (std::size_t i = 0; i < used_; ++i) ready = exchanges_[i]->advance() && ready;
        return ready;
    }
    void cross() {
        requests_.push_back(MPI_REQUEST_NULL);
        auto* const request = &requests_.back();
        MPI_Comm const across = levels_->across();
        switch (task_.operation) {
        case observe::Operation::all_reduce:
            check(MPI_Iallreduce_c(MPI_IN_PLACE, task_.out + begin_, count(std::min(share_, task_.bytes - begin_)),
                                   type_, sum_, across, request),
                  "MPI_Iallreduce");
            break;
        case observe::Operation::reduce_scatter:
            check(
                MPI_Ireduce_scatter_block_c(sums_.data(), task_.out, count(task_.piece), type_, sum_, across, request),
                "MPI_Ireduce_scatter_block");
            break;
        default: // broadcast, by the ranks that have the root's number on their nodes
            if (static_cast<std::size_t>(task_.root) % k_ == me_)
                check(MPI_Ibcast_c(task_.out, count(task_.bytes), type_,
                                   static_cast<int>(static_cast<std::size_t>(task_.root) / k_), across, request),
                      "MPI_Ibcast");
        }
    }
    /// Exchanges that waited for the network begin when what they need has come.
    void release_what_arrived() {
        auto const is_there = [&](std::size_t i) { return requests_[i] == MPI_REQUEST_NULL; };
        if (task_.operation == observe::Operation::all_gather) // requests_[i - 1] is for the bundle of exchange i
            for (std::size_t i = 1; i < used_; ++i)
                if (is_there(i - 1)) exchanges_[i]->release();
        if (!crossed_ || !is_there(0)) return;
        if (task_.operation == observe::Operation::all_reduce) exchanges_[1]->release();
        if (task_.operation == observe::Operation::broadcast) exchanges_[0]->release();
    }

    Levels* levels_ = nullptr;
    node::Task task_;
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
    MPI_Op sum_ = MPI_OP_NULL;
    std::size_t k_ = 1, me_ = 0, nodes_ = 1, share_ = 0, begin_ = 0, used_ = 0;
    std::uint64_t number_ = 0;
    bool crosses_ = true, crossed_ = false;
    Block<Kokkos::HostSpace> sums_;
    std::vector<MPI_Request> requests_;
    std::vector<std::unique_ptr<node::Exchange>> exchanges_;
};

} // namespace pentad::comm
