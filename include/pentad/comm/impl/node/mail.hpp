// The functions of <pentad/comm/node/mail.hpp>.
#pragma once

#include <pentad/comm/node/mail.hpp>

#include <pentad/mesh/inline.hpp>

namespace pentad::comm::node {

PENTAD_INLINE void Mail::begin(ExchangeState exchange, Task const& task, std::size_t longest) {
    auto& group = *exchange.group;
    exchange_ = exchange;
    task_ = &task;
    me_ = group.rank();
    n_ = group.size();
    filled_ = reduced_ = drained_ = 0;
    method_ = CopyMethod::cached;
    std::size_t const parts = task.cuts() ? n_ : 1;
    step_ = Group::box / parts / 64 * 64;
    std::size_t const known = task.boxes != nullptr ? task.longest_box() : longest;
    is_small_ = (!task.is_counted() || task.boxes != nullptr) && known <= step_; // on all ranks, or on none
    lane_ = {0, Group::never, Group::never};
    if (!is_small_) {
        step_ = std::min(Group::chunk / parts / 64 * 64, Group::chunk / 2);
        // Where all ranks have a core, the others read a part of a broadcast while the root fills the next.
        if (task.operation == Operation::broadcast && n_ <= group.processors())
            step_ = std::clamp<std::size_t>(longest / 4 / 64 * 64, std::size_t{16} << 10, step_);
        lane_ = group.take_lane(exchange.number);
    }
    two_rounds_ = task.operation == Operation::all_reduce && n_ > 2 && longest > largest_in_one_round;
}

PENTAD_INLINE void Mail::post() {
    std::size_t const k = filled_++;
    fill(k);
    publish(exchange_.own().filled, exchange_.at(1 + filled_));
    if (task_->operation == Operation::all_gather || task_->operation == Operation::all_to_all) keep(k);
}

PENTAD_INLINE bool Mail::advance(std::size_t longest) {
    std::size_t const count = std::max<std::size_t>((longest + step_ - 1) / step_, 1);
    for (bool moved = true; moved && drained_ < count;) {
        moved = false;
        if (filled_ < count &&
            (filled_ < Group::depth || exchange_.all_at(&Slot::drained, filled_ + 1 - Group::depth))) {
            post();
            moved = true;
        }
        if (two_rounds_ && reduced_ < filled_ && exchange_.all_at(&Slot::filled, reduced_ + 2)) {
            reduce(reduced_++);
            publish(exchange_.own().reduced, exchange_.at(reduced_));
            moved = true;
        }
        if (drained_ < (two_rounds_ ? reduced_ : filled_) &&
            (two_rounds_ ? exchange_.all_at(&Slot::reduced, drained_ + 1)
                         : exchange_.sources_at(*task_, &Slot::filled, drained_ + 2))) {
            drain(drained_++);
            publish(exchange_.own().drained, exchange_.at(drained_));
            moved = true;
        }
    }
    return drained_ == count;
}

PENTAD_INLINE void Mail::pack(std::byte* mail, std::size_t p, std::size_t k) const {
    auto const given = task_->given(me_, p);
    auto const range = part(given.bytes, k);
    if (task_->boxes != nullptr)
        task_->pack_box(me_, p, range, mail, streams_mail(method_));
    else
        to_mail(mail, task_->in + given.offset + range.offset, range.bytes);
}

PENTAD_INLINE void Mail::unpack(std::byte const* mail, std::size_t p, std::size_t k) const {
    auto const taken = task_->taken(p);
    auto const range = part(taken.bytes, k);
    if (task_->boxes != nullptr)
        task_->unpack_box(p, range, mail, streams_results(method_));
    else
        copy(task_->out + taken.offset + range.offset, mail, range.bytes);
}

PENTAD_INLINE void Mail::keep(std::size_t k) const {
    auto const given = task_->given(me_, me_);
    auto const range = part(given.bytes, k);
    if (task_->boxes != nullptr)
        task_->move_box(me_, range, task_->in, streams_results(method_));
    else
        copy(task_->out + task_->taken(me_).offset + range.offset, task_->in + given.offset + range.offset,
             range.bytes);
}

PENTAD_INLINE void Mail::fill(std::size_t k) {
    std::byte* const mail = box(me_, k);
    auto const [begin, length] = part(task_->bytes, k);
    switch (task_->operation) {
    case Operation::all_reduce:
        to_mail(mail, task_->in + begin, length);
        break;
    case Operation::all_gather:
        pack(mail, me_, k);
        break;
    case Operation::broadcast:
        if (task_->is_source(me_)) to_mail(mail, task_->in + begin, length);
        break;
    default: // reduce-scatter, all-to-all
        for (std::size_t p = 0; p < n_; ++p)
            if (p != me_) pack(mail + p * step_, p, k);
    }
}

PENTAD_INLINE void Mail::reduce(std::size_t k) {
    auto const [begin, length] = share(part(task_->bytes, k).bytes, n_, me_);
    addresses_.clear();
    for (std::size_t p = 0; p < n_; ++p) addresses_.push_back(box(p, k) + begin);
    task_->reduction(addresses_.data(), n_, &addresses_[me_], 1, length, false);
}

PENTAD_INLINE void Mail::drain(std::size_t k) {
    auto const range = part(task_->bytes, k);
    std::byte* const out = task_->out + range.offset;
    addresses_.clear();
    switch (task_->operation) {
    case Operation::all_reduce:
        for (std::size_t p = 0; p < n_; ++p) {
            if (two_rounds_) {
                auto const [begin, length] = share(range.bytes, n_, p);
                copy(out + begin, box(p, k) + begin, length);
            } else
                addresses_.push_back(p == me_ ? out : box(p, k));
        }
        if (!two_rounds_) task_->reduction(addresses_.data(), n_, &out, 1, range.bytes, false);
        break;
    case Operation::reduce_scatter: {
        auto const own = task_->piece_of(me_);
        auto const mine = part(own.bytes, k);
        for (std::size_t p = 0; p < n_; ++p)
            addresses_.push_back(p == me_ ? const_cast<std::byte*>(task_->in) + own.offset + mine.offset
                                          : box(p, k) + me_ * step_);
        std::byte* const sum = task_->out + mine.offset;
        task_->reduction(addresses_.data(), n_, &sum, 1, mine.bytes, streams_results(method_));
        break;
    }
    case Operation::all_gather:
        for (std::size_t p = 0; p < n_; ++p)
            if (p != me_) unpack(box(p, k), p, k);
        break;
    case Operation::all_to_all:
        for (std::size_t p = 0; p < n_; ++p)
            if (p != me_) unpack(box(p, k) + me_ * step_, p, k);
        break;
    default: // broadcast
        if (!task_->is_source(me_)) copy(out, box(static_cast<std::size_t>(task_->root), k), range.bytes);
    }
}

} // namespace pentad::comm::node
