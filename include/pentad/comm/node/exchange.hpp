// Room: comm. One collective of a node's ranks under way. Where all buffers lie in segments, ranks read each other's
// (an all-reduce writes them too); otherwise data goes through mailboxes (mail.hpp).
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/comm/node/copy.hpp>
#include <pentad/comm/node/group.hpp>
#include <pentad/comm/node/mail.hpp>
#include <pentad/comm/node/reduction.hpp>
#include <pentad/comm/node/task.hpp>
#include <pentad/comm/pending.hpp>
#include <pentad/observe/ledger.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace pentad::comm::node {

/// Sums are made in the order of ranks, whichever way the data goes: they have the same bits on all ranks and in all
/// runs.
class Exchange final : public Pending {
  public:
    /// Begins it. The buffers belong to it until `advance` says that it is complete. It has its turn from now on, but
    /// while it is held its input is not there yet.
    /// @throws Error when the group has failed
    void begin(Group& group, Task const& task, bool held = false) {
        stage_ = Stage::complete;
        group.require_working();
        held_ = held;
        group_ = &group;
        task_ = task;
        me_ = group.rank();
        n_ = group.size();
        turn_ = {&group, group.next()};
        bool const is_whole = !task.cuts() && task.operation != Operation::all_gather; // a rank gives all of it
        longest_ = is_whole ? task.bytes : task.piece;
        if (task.is_counted()) {
            longest_ = 0;
            for (std::size_t p = 0; p < n_; ++p) longest_ = std::max<std::size_t>(longest_, task.sent_to(p).bytes);
        }
        fills_caches_ = (is_whole ? n_ : 2 * n_ * n_) * longest_ >= cache_bytes(); // what the buffers of all ranks hold
        mail_.begin(turn_, task_, longest_, fills_caches_);
        stage_ = Stage::waiting_for_slot;
    }
    /// Its input is there.
    void release() { held_ = false; }
    bool step() override {
        proceed();
        if (stage_ == Stage::complete) return true;
        if (!group_->has_failed()) return false;
        proceed(); // to where this rank may see for itself what the one that failed saw
        if (stage_ == Stage::complete) return true;
        stage_ = Stage::complete;
        group_->require_working();
        return true;
    }

  private:
    enum class Stage { waiting_for_slot, arriving, mapping, waiting_for_readers, mailing, complete };

    void proceed() {
        if (stage_ == Stage::waiting_for_slot) {
            if (held_) return;
            if (turn_.number >= Group::slots && !group_->all_finished(turn_.number - Group::slots)) return;
            if (!mail_.is_free()) return;
            arrive();
        }
        if (stage_ == Stage::arriving) {
            if (!turn_.sources_at(task_, &Slot::filled, 1)) return;
            compare_notices();
            begin_transfer();
        }
        if (stage_ == Stage::mapping) {
            if (!turn_.all_at(&Slot::mapped, 1)) return;
            end_mapping();
        }
        if (stage_ == Stage::waiting_for_readers) {
            if (!turn_.all_at(&Slot::reduced, 1)) return;
            finish();
        }
        if (stage_ == Stage::mailing && mail_.advance(longest_)) finish();
    }

    void arrive() {
        if (!mail_.is_small()) group_->probe();
        auto& notice = turn_.own().notice;
        notice = {static_cast<std::uint32_t>(task_.operation),          task_.type, task_.root,
                  task_.is_counted() ? ~std::uint64_t{0} : task_.bytes, {},         longest_};
        bool const gives_piece = task_.operation == Operation::all_gather;
        if (!mail_.is_small() && task_.may_read_directly)
            notice.buffer = shared_memory().locate(task_.in, gives_piece ? task_.piece_of(me_).bytes : task_.bytes);
        for (std::size_t p = 0; task_.is_counted() && p < n_; ++p)
            group_->pieces(me_, turn_.slot())[p] = task_.sent_to(p);
        stage_ = Stage::arriving;
        if (notice.buffer.is_shared())
            publish(turn_.own().filled, turn_.at(1));
        else
            mail_.post(); // the first chunk arrives with the notice
    }
    /// @throws Error when the ranks that this one reads from have come to another exchange: on every rank, but in a
    /// broadcast not on the root; where given counts differ, on the rank that receives.
    void compare_notices() {
        auto const& mine = turn_.own().notice;
        for (std::size_t p = 0; p < n_; ++p) {
            if (!task_.is_source(p)) continue;
            auto const& theirs = turn_.of(p).notice;
            longest_ = std::max(longest_, static_cast<std::size_t>(theirs.longest));
            if (theirs.operation == mine.operation && theirs.bytes == mine.bytes && theirs.element == mine.element &&
                theirs.root == mine.root) {
                if (!task_.is_counted()) continue;
                auto const sent = group_->pieces(p, turn_.slot())[me_].bytes, expected = task_.received_from(p).bytes;
                if (sent == expected) continue;
                fail("all_to_all: rank " + name(p) + " sends " + std::to_string(sent) + " bytes to rank " + name(me_) +
                     ", which is to receive " + std::to_string(expected));
            }
            fail("the ranks of a group called different collectives: " + describe(me_, mine) + ", " +
                 describe(p, theirs));
        }
    }
    [[noreturn]] void fail(std::string const& why) {
        stage_ = Stage::complete;
        group_->fail(why);
        throw Error(why);
    }
    [[nodiscard]] std::string name(std::size_t rank) const { return std::to_string(group_->members()[rank]); }
    [[nodiscard]] std::string describe(std::size_t rank, Notice const& notice) const {
        return "rank " + name(rank) + " " + std::string(observe::name(static_cast<Operation>(notice.operation))) +
               (notice.bytes == ~std::uint64_t{0} ? " of given counts"
                                                  : " of " + std::to_string(notice.bytes) + " bytes") +
               " of " + type_text(notice.element) + reduction_text(notice.element) +
               (notice.root < 0 ? "" : " with root " + std::to_string(notice.root));
    }
    [[nodiscard]] bool is_direct() const {
        if (mail_.is_small()) return false;
        for (std::size_t p = 0; p < n_; ++p)
            if (task_.is_source(p) && !turn_.of(p).notice.buffer.is_shared()) return false;
        return true;
    }
    void finish() {
        publish(turn_.own().finished, turn_.number + 1);
        stage_ = Stage::complete;
    }

    // --- All buffers are in segments. Where some are new, ranks wait until all have mapped them; if one cannot, what
    // is in them goes through mailboxes. (Ranks may come to know of it in different exchanges: those that know still
    // say so to those that wait.)

    [[nodiscard]] Place const& buffer(std::size_t p) const { return turn_.of(p).notice.buffer; }
    void begin_transfer() {
        if (!is_direct()) {
            stage_ = Stage::mailing;
            return;
        }
        bool is_known = true;
        for (std::size_t p = 0; p < n_; ++p)
            is_known = is_known && (!task_.is_source(p) || group_->is_mapped(buffer(p).segment));
        publish(turn_.own().mapped, turn_.at(is_known || maps_all() ? 2 : 1));
        if (is_known)
            read_directly();
        else
            stage_ = Stage::mapping;
    }
    [[nodiscard]] bool maps_all() const {
        for (std::size_t p = 0; p < n_; ++p) {
            if (p == me_ || !task_.is_source(p) || shared_memory().at(buffer(p)) != nullptr) continue;
            static bool has_complained = false;
            if (!std::exchange(has_complained, true))
                std::fprintf(stderr,
                             "pentad: rank %zu cannot map the memory of rank %zu (%s): it goes through copies\n",
                             static_cast<std::size_t>(group_->members()[me_]),
                             static_cast<std::size_t>(group_->members()[p]), std::strerror(errno));
            return false;
        }
        return true;
    }
    void end_mapping() {
        if (!turn_.all_at(&Slot::mapped, 2)) {
            stage_ = Stage::mailing;
            return;
        }
        for (std::size_t p = 0; p < n_; ++p)
            if (task_.is_source(p)) group_->all_have_mapped(buffer(p).segment);
        read_directly();
    }
    void read_directly() {
        read();
        publish(turn_.own().reduced, turn_.at(1));
        stage_ = Stage::waiting_for_readers;
    }
    void read() {
        auto const peer = [&](std::size_t p) -> std::byte* {
            if (p == me_) return const_cast<std::byte*>(task_.in);
            auto* const address = shared_memory().at(buffer(p));
            if (address == nullptr) fail("the memory of rank " + name(p) + " is no longer mapped");
            return address;
        };
        auto const each = [&](auto&& use) { // beginning with the next rank, so that all read from different ones
            for (std::size_t i = 1; i <= n_; ++i) use((me_ + i) % n_);
        };
        std::size_t const bytes = task_.bytes;
        std::byte* const out = task_.out;
        addresses_.clear();
        switch (task_.operation) {
        case Operation::all_reduce: {
            auto const [begin, length] = share(bytes, n_, me_);
            for (std::size_t p = 0; p < n_; ++p) addresses_.push_back(peer(p) + begin);
            task_.reduction(addresses_.data(), n_, addresses_.data(), n_, length);
            break;
        }
        case Operation::reduce_scatter:
            for (std::size_t p = 0; p < n_; ++p) addresses_.push_back(peer(p) + task_.piece_of(me_).offset);
            reduce_to(task_.out, addresses_, task_.reduction, task_.piece_of(me_).bytes, fills_caches_);
            break;
        case Operation::all_gather: // all in the same order: what one has read is in cache for the others
            for (std::size_t p = 0; p < n_; ++p) copy(out + task_.piece_of(p).offset, peer(p), task_.piece_of(p).bytes);
            break;
        case Operation::all_to_all:
            each([&](std::size_t p) {
                auto const from = task_.is_counted() ? group_->pieces(p, turn_.slot())[me_] : task_.piece_of(me_);
                copy(out + task_.received_from(p).offset, peer(p) + from.offset, from.bytes);
            });
            break;
        default: // broadcast
            copy(out, peer(static_cast<std::size_t>(task_.root)), bytes);
        }
    }

    /// To where the result belongs.
    void copy(std::byte* to, std::byte const* from, std::size_t bytes) const {
        node::copy(to, from, bytes, fills_caches_);
    }

    Group* group_ = nullptr;
    Task task_;
    Turn turn_;
    Mail mail_;
    Stage stage_ = Stage::complete;
    std::size_t me_ = 0, n_ = 1, longest_ = 0;
    bool held_ = false, fills_caches_ = false;
    std::vector<std::byte*> addresses_;
};

} // namespace pentad::comm::node
