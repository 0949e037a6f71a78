// The functions of <pentad/comm/node/direct.hpp>.
#pragma once

#include <pentad/comm/node/direct.hpp>

#include <pentad/comm/node/copy.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/one_line.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace pentad::comm::node {

PENTAD_INLINE void Direct::begin(ExchangeState exchange, Task const& task, CopyMethod method, std::uint64_t last) {
    exchange_ = exchange;
    task_ = &task;
    me_ = exchange.group->rank();
    n_ = exchange.group->size();
    method_ = method;
    last_ = last;
    all_shared_ = true;
    has_lenders_ = false;
    bool is_known = true;
    for (std::size_t p = 0; p < n_; ++p) {
        if (!task.is_source(p)) continue;
        all_shared_ = all_shared_ && buffer(p).is_shared();
        has_lenders_ = has_lenders_ || lends(p);
        is_known = is_known && (!buffer(p).is_shared() || exchange.group->is_mapped(buffer(p).segment));
    }
    is_known = is_known && !has_lenders_;
    publish(exchange_.own().mapped, exchange_.at(is_known || opens_all() ? 2 : 1));
    stage_ = Stage::mapping;
    if (is_known) read();
}

PENTAD_INLINE auto Direct::advance() -> State {
    if (stage_ == Stage::mapping) {
        if (!exchange_.all_at(&Slot::mapped, 1)) return State::under_way;
        if (!exchange_.all_at(&Slot::mapped, 2)) return State::impossible;
        for (std::size_t p = 0; p < n_; ++p)
            if (task_->is_source(p) && buffer(p).is_shared()) exchange_.group->all_have_mapped(buffer(p).segment);
        read();
    }
    if (stage_ == Stage::lending) {
        if (!pass_lent()) return State::under_way;
        publish(exchange_.own().reduced, exchange_.at(1));
        stage_ = Stage::reading;
    }
    if (stage_ == Stage::reading) {
        if (!exchange_.all_at(&Slot::reduced, 1)) return State::under_way;
        if (!has_shares()) return State::complete;
        collect_shares();
    }
    return exchange_.all_at(&Slot::reduced, 2) ? State::complete : State::under_way;
}

PENTAD_INLINE bool Direct::opens_all() const {
    for (std::size_t p = 0; p < n_; ++p) {
        if (p == me_ || !task_->is_source(p)) continue;
        if (lends(p) && !exchange_.group->opens_pipe(p)) return false;
        if (!buffer(p).is_shared() || memory::shared_memory().at(buffer(p)) != nullptr) continue;
        static bool has_complained = false;
        if (!std::exchange(has_complained, true))
            print_error("pentad: rank " + std::to_string(exchange_.group->members()[me_]) +
                        " cannot map the memory of rank " + std::to_string(exchange_.group->members()[p]) + " (" +
                        std::strerror(errno) + "): it goes through copies");
        return false;
    }
    return true;
}

PENTAD_INLINE std::byte* Direct::address(std::size_t p) const {
    if (p == me_) return const_cast<std::byte*>(task_->in);
    if (!buffer(p).is_shared()) return nullptr;
    auto* const address = memory::shared_memory().at(buffer(p));
    if (address == nullptr)
        exchange_.group->give_up("the memory of rank " + std::to_string(exchange_.group->members()[p]) +
                                 " is no longer mapped");
    return address;
}

PENTAD_INLINE void Direct::fetch(std::byte* to, std::size_t p, std::size_t from, std::size_t bytes) const {
    if (auto* const there = address(p))
        copy(to, there + from, bytes, streams_results(method_));
    else
        exchange_.group->read_process(p, exchange_.of(p).notice.address + from, to, bytes);
}

PENTAD_INLINE void Direct::reduce(std::byte* out, std::size_t from, std::size_t bytes) {
    std::size_t const tile = all_shared_ ? bytes : exchange_.group->tile_bytes();
    for (std::size_t begin = 0; begin < bytes; begin += tile) {
        std::size_t const length = std::min(tile, bytes - begin);
        addresses_.clear();
        for (std::size_t p = 0; p < n_; ++p) {
            auto* there = address(p);
            if (there == nullptr) {
                there = exchange_.group->tile(p);
                fetch(there, p, from + begin, length);
            } else
                there += from + begin;
            addresses_.push_back(there);
        }
        std::byte* const sum = out + begin;
        task_->reduction(addresses_.data(), n_, &sum, 1, length, streams_results(method_));
    }
}

PENTAD_INLINE bool Direct::pass_lent() {
    if (!has_lenders_) return true;
    static_assert(Group::lanes == 2, "the last exchange is the only one that may still be under way");
    if (!exchange_.group->all_finished(last_)) return false;
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        bool is_done = true;
        for (std::size_t p = 0; p < n_; ++p) {
            if (p == me_) continue;
            if (Piece const lent = lends(me_) ? given(me_, p) : Piece{}; lent_[p] < lent.bytes) {
                auto const bytes = exchange_.group->lend(p, task_->in + lent.offset + lent_[p], lent.bytes - lent_[p]);
                lent_[p] += bytes;
                has_moved = has_moved || bytes > 0;
                is_done = is_done && lent_[p] == lent.bytes;
            }
            if (Piece const taken = lends(p) ? given(p, me_) : Piece{}; taken_[p] < taken.bytes) {
                auto const bytes = exchange_.group->take_lent(p, place(p) + taken_[p], taken.bytes - taken_[p]);
                taken_[p] += bytes;
                has_moved = has_moved || bytes > 0;
                is_done = is_done && taken_[p] == taken.bytes;
            }
        }
        if (is_done) return true;
    }
    return false;
}

PENTAD_INLINE void Direct::read() {
    std::byte* const out = task_->out;
    auto const me = me_;
    stage_ = Stage::lending;
    lent_.assign(n_, 0);
    taken_.assign(n_, 0);
    pass_lent(); // others can begin
    switch (task_->operation) {
    case Operation::all_reduce: {
        auto const [begin, length] = share(task_->bytes, n_, me);
        if (has_shares()) {
            reduce(out + begin, begin, length);
            break;
        }
        addresses_.clear();
        for (std::size_t p = 0; p < n_; ++p) addresses_.push_back(address(p) + begin);
        task_->reduction(addresses_.data(), n_, addresses_.data(), n_, length, false);
        break;
    }
    case Operation::reduce_scatter:
        reduce(out, task_->piece_of(me).offset, task_->piece_of(me).bytes);
        break;
    default: // All-to-all: each begins with another rank. Else all with the same, which is in cache for the others.
        for (std::size_t i = 0; i < n_; ++i) {
            std::size_t const p = (task_->operation == Operation::all_to_all ? me + 1 + i : i) % n_;
            if (!task_->is_source(p) || (p != me && lends(p))) continue;
            Piece const piece = given(p, me);
            if (task_->boxes != nullptr)
                task_->move_box(p, {0, piece.bytes}, address(p), streams_results(method_));
            else
                fetch(place(p), p, piece.offset, piece.bytes);
        }
    }
}

PENTAD_INLINE void Direct::collect_shares() {
    for (std::size_t i = 1; i < n_; ++i) {
        std::size_t const p = (me_ + i) % n_;
        auto const [begin, length] = share(task_->bytes, n_, p);
        fetch(task_->out + begin, p, begin, length);
    }
    publish(exchange_.own().reduced, exchange_.at(2));
    stage_ = Stage::collecting;
}

} // namespace pentad::comm::node
