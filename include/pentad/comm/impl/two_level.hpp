// The functions of <pentad/comm/detail/two_level.hpp>.
#pragma once

#include <pentad/comm/detail/two_level.hpp>

#include <pentad/comm/network.hpp>
#include <pentad/comm/node/copy.hpp>
#include <pentad/mesh/inline.hpp>

#include <algorithm>

namespace pentad::comm {

PENTAD_INLINE void TwoLevel::begin(Levels& levels, node::Task const& task, MPI_Datatype type, MPI_Op sum) {
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

PENTAD_INLINE void TwoLevel::begin_parts() {
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

PENTAD_INLINE void TwoLevel::proceed() {
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
    for (int arrived = 1; arrived_ < requests_.size() && arrived != 0; arrived_ += static_cast<std::size_t>(arrived))
        check(MPI_Test(&requests_[arrived_], &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    release_exchanges();
    if (!exchanged || !had_turn_ || arrived_ < requests_.size()) return;
    if (task_.operation == observe::Operation::all_to_all && sent_ < (nodes_ - 1) * k_) return;
    if (task_.operation == observe::Operation::reduce_scatter) add_sums();
    is_complete_ = true;
}

PENTAD_INLINE void TwoLevel::begin_all_reduce() {
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

PENTAD_INLINE void TwoLevel::begin_reduce_scatter() {
    sums_ = memory::staging_pool<Kokkos::HostSpace>().take(2 * nodes_ * task_.piece);
    for (std::size_t i = 1; i < nodes_; ++i) receive(sum_of(node_before(i)), node_before(i), levels_->across());
    for (std::size_t i = 0; i < nodes_; ++i) exchange(inside(node_after(i), task_.in, sum_for(node_after(i))), false);
}

PENTAD_INLINE void TwoLevel::begin_all_gather() {
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

PENTAD_INLINE void TwoLevel::begin_all_to_all() {
    std::size_t const first = levels_->node() * k_;
    for (std::size_t b = 1; b < nodes_; ++b) // of each node in turn one rank with each here
        for (std::size_t i = 0; i < k_; ++i) {
            std::size_t const from = node_before(b) * k_ + (me_ + k_ - i) % k_;
            receive(task_.out + from * task_.piece, from, levels_->all());
        }
    send_pieces();
    exchange(inside(levels_->node(), task_.in, task_.out + first * task_.piece), false);
}

PENTAD_INLINE void TwoLevel::send_pieces() {
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

PENTAD_INLINE node::Task TwoLevel::inside(std::size_t b, std::byte const* in, std::byte* out) const {
    auto part = task_;
    part.bytes = k_ * task_.piece;
    part.in = in + b * part.bytes;
    part.out = out;
    return part;
}

PENTAD_INLINE void TwoLevel::receive(std::byte* to, std::size_t from, MPI_Comm comm) {
    requests_.push_back(MPI_REQUEST_NULL);
    ++receives_;
    check(MPI_Irecv_c(to, count(task_.piece), type_, static_cast<int>(from), tag(), comm, &requests_.back()),
          "MPI_Irecv");
}

PENTAD_INLINE void TwoLevel::start_across() {
    bool const reduces = task_.operation == observe::Operation::all_reduce;
    auto const root = static_cast<std::size_t>(std::max(task_.root, 0));
    if (!reduces && (task_.root < 0 || root % k_ != me_)) return; // others have the root's number on their nodes
    requests_.push_back(MPI_REQUEST_NULL);
    if (reduces)
        check(MPI_Iallreduce_c(MPI_IN_PLACE, task_.out + begin_, count(std::min(share_, task_.bytes - begin_)), type_,
                               sum_, levels_->across(), &requests_.back()),
              "MPI_Iallreduce");
    else
        check(MPI_Ibcast_c(task_.out, count(task_.bytes), type_, static_cast<int>(root / k_), levels_->across(),
                           &requests_.back()),
              "MPI_Ibcast");
}

PENTAD_INLINE void TwoLevel::release_exchanges() {
    if (task_.operation == observe::Operation::all_gather) // message i is for exchange i + 1
        for (std::size_t i = 0; i < std::min(arrived_, nodes_ - 1); ++i) exchanges_[i + 1]->release();
    if (!had_turn_ || arrived_ < requests_.size()) return;
    if (task_.operation == observe::Operation::all_reduce) exchanges_[1]->release();
    if (task_.operation == observe::Operation::broadcast) exchanges_[0]->release();
}

PENTAD_INLINE void TwoLevel::add_sums() {
    addresses_.clear();
    for (std::size_t b = 0; b < nodes_; ++b) addresses_.push_back(sum_of(b));
    task_.reduction(addresses_.data(), nodes_, &task_.out, 1, task_.piece, false);
    sums_ = {};
}

} // namespace pentad::comm
