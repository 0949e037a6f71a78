// The functions of <pentad/comm/node/exchange.hpp>.
#pragma once

#include <pentad/comm/node/exchange.hpp>

#include <pentad/comm/node/copy.hpp>
#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <cstdint>

namespace pentad::comm::node {

PENTAD_INLINE void Exchange::begin(Group& group, Task const& task, bool held) {
    stage_ = Stage::complete;
    group.require_working();
    held_ = held;
    group_ = &group;
    task_ = task;
    me_ = group.rank();
    n_ = group.size();
    exchange_ = {&group, group.next()};
    bool const is_whole = !task.cuts() && task.operation != Operation::all_gather; // a rank gives all of it
    longest_ = is_whole ? task.bytes : task.piece;
    if (task.is_counted()) {
        longest_ = 0;
        for (std::size_t p = 0; p < n_; ++p) longest_ = std::max<std::size_t>(longest_, task.given(me_, p).bytes);
    }
    mail_.begin(exchange_, task_, longest_);
    std::size_t const longest = task.boxes != nullptr ? task.longest_box() : longest_;
    has_methods_ = !mail_.is_small() || longest >= smallest_with_methods;
    // What goes on beside a computation says nothing about the copy method, nor do those that only receive.
    learns_ = has_methods_ && task.is_awaited && task.is_source(me_);
    stage_ = Stage::waiting_for_slot;
}

PENTAD_INLINE bool Exchange::step() {
    proceed();
    if (stage_ == Stage::complete) return true;
    if (!group_->has_failed()) return false;
    proceed(); // to where this rank may see for itself what the one that failed saw
    if (stage_ == Stage::complete) return true;
    stage_ = Stage::complete;
    group_->require_working();
    return true;
}

PENTAD_INLINE void Exchange::proceed() {
    if (stage_ == Stage::waiting_for_slot) {
        if (held_) return;
        if (exchange_.number >= Group::slots && !group_->all_finished(exchange_.number - Group::slots)) return;
        if (!mail_.is_free()) return;
        arrive();
    }
    if (stage_ == Stage::arriving) {
        if (!exchange_.sources_at(task_, &Slot::filled, 1)) return;
        compare_notices();
        begin_transfer();
    }
    if (!all_have_come_ && stage_ != Stage::arriving && exchange_.all_at(&Slot::filled, 1)) {
        all_have_come_ = true;
        began_ = now();
    }
    if (stage_ == Stage::reading) {
        auto const state = direct_.advance();
        if (state == Direct::State::complete) finish();
        if (state == Direct::State::impossible) mail_instead();
    }
    if (stage_ == Stage::mailing && mail_.advance(longest_)) finish();
}

PENTAD_INLINE void Exchange::arrive() {
    auto const begin = now();
    auto& notice = exchange_.own().notice;
    notice = {static_cast<std::uint32_t>(task_.operation),
              task_.type,
              task_.root,
              task_.boxes != nullptr ? Notice::boxes + task_.longest_box()
              : task_.is_counted()   ? Notice::given_counts
                                     : task_.bytes,
              {},
              0,
              longest_};
    for (std::size_t p = 0; task_.is_counted() && p < n_; ++p)
        group_->pieces(me_, exchange_.slot())[p] = {task_.boxes != nullptr ? task_.bytes : task_.given(me_, p).offset,
                                                    task_.given(me_, p).bytes};
    if (has_methods_) choose_method(notice);
    stage_ = Stage::arriving;
    if (notice.is_open())
        publish(exchange_.own().filled, exchange_.at(1));
    else
        mail_.post(); // the first chunk arrives with the notice
    worked_ = now() - begin;
}

PENTAD_INLINE void Exchange::choose_method(Notice& notice) {
    bool const gives_piece = task_.operation == Operation::all_gather && task_.boxes == nullptr;
    std::size_t const given = gives_piece ? task_.piece_of(me_).bytes : task_.bytes;
    bool const by_mail = mail_.is_small() || task_.access == Access::mailboxes;
    if (!by_mail) notice.buffer = memory::shared_memory().locate(task_.in, given);
    in_segments_ = notice.buffer.is_shared();
    PossibleMethods possible{CopyMethod::streamed, in_segments_ ? CopyMethod::cached : CopyMethod::all_streamed};
    if (mail_.is_small()) possible = {CopyMethod::cached, CopyMethod::mail_streamed};
    if (!in_segments_ && !by_mail && task_.boxes == nullptr && group_->reads_processes())
        possible = {task_.access == Access::processes ? CopyMethod::process : CopyMethod::streamed,
                    !task_.reduces() && n_ <= Pipes::most_ranks ? CopyMethod::lent_streamed
                                                                : CopyMethod::process_streamed};
    kind_ = task_.boxes != nullptr ? &group_->box_methods().of(task_.operation, task_.longest_box())
                                   : &group_->methods().of(task_.operation, task_.is_counted() ? 1 : task_.bytes);
    method_ = kind_->agreed(possible, in_segments_);
    notice.suggestion = learns_ ? kind_->suggest(possible, in_segments_) : method_;
    mail_.take(method_);
    if (in_segments_ || !is_by_kernel(method_) || !task_.is_source(me_) || !group_->is_readable(task_.in, given))
        return;
    notice.lends = is_lent(method_) && group_->makes_pipes();
    notice.address = reinterpret_cast<std::uintptr_t>(task_.in);
}

PENTAD_INLINE void Exchange::compare_notices() {
    auto const& mine = exchange_.own().notice;
    for (std::size_t p = 0; p < n_; ++p) {
        if (!task_.is_source(p)) continue;
        auto const& theirs = exchange_.of(p).notice;
        longest_ = std::max(longest_, static_cast<std::size_t>(theirs.longest));
        if (theirs.operation == mine.operation && theirs.bytes == mine.bytes && theirs.element == mine.element &&
            theirs.root == mine.root) {
            if (!task_.is_counted()) continue;
            auto const [held, sent] = group_->pieces(p, exchange_.slot())[me_];
            auto const expected = task_.taken(p).bytes;
            bool const is_known = task_.boxes == nullptr || held == task_.held_by(p);
            if (sent == expected && is_known) continue;
            auto const what = std::string(observe::name(task_.operation)) + ": rank " + name(p);
            if (sent != expected)
                group_->give_up(what + " sends " + std::to_string(sent) + " bytes to rank " + name(me_) +
                                ", which is to receive " + std::to_string(expected));
            group_->give_up(what + " holds " + std::to_string(held) + " bytes, and rank " + name(me_) +
                            " takes it to hold " + std::to_string(task_.held_by(p)));
        }
        group_->give_up("the ranks of a group called different collectives: " + describe(me_, mine) + ", " +
                        describe(p, theirs));
    }
}

PENTAD_INLINE std::string Exchange::describe(std::size_t rank, Notice const& notice) const {
    return "rank " + name(rank) + " " + std::string(observe::name(static_cast<Operation>(notice.operation))) +
           (notice.bytes == Notice::given_counts ? " of given counts"
            : notice.bytes >= Notice::boxes
                ? " of boxes of up to " + std::to_string(notice.bytes - Notice::boxes) + " bytes"
                : " of " + std::to_string(notice.bytes) + " bytes") +
           " of " + type_text(notice.element) + reduction_text(notice.element) +
           (notice.root < 0 ? "" : " with root " + std::to_string(notice.root));
}

PENTAD_INLINE bool Exchange::is_direct() const {
    if (mail_.is_small()) return false;
    for (std::size_t p = 0; p < n_; ++p)
        if (task_.is_source(p) && !exchange_.of(p).notice.is_open()) return false;
    return true;
}

PENTAD_INLINE void Exchange::begin_transfer() {
    began_ = now();
    all_have_come_ = task_.root < 0; // the root of a broadcast waits for nobody
    if (has_methods_) {
        auto const& notice = exchange_.of(task_.root < 0 ? 0 : static_cast<std::size_t>(task_.root)).notice;
        kind_->agree(notice.suggestion, notice.buffer.is_shared());
    }
    if (!is_direct()) return mail_instead();
    stage_ = Stage::reading;
    direct_.begin(exchange_, task_, method_, mail_.last());
}

PENTAD_INLINE void Exchange::finish() {
    publish(exchange_.own().finished, exchange_.number + 1);
    stage_ = Stage::complete;
    if (!learns_) return;
    std::chrono::duration<double> const seconds = now() - began_ + worked_;
    kind_->learn(method_, in_segments_, seconds.count() / static_cast<double>(std::max<std::size_t>(longest_, 1)));
}

} // namespace pentad::comm::node
