// Room: comm. One collective of a node's ranks under way. Where all buffers lie in segments, ranks read each other's
// (an all-reduce writes them too); otherwise data goes through mailboxes, a chunk at a time, so that it stays in cache.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/comm/node/copy.hpp>
#include <pentad/comm/node/group.hpp>
#include <pentad/comm/node/reduction.hpp>
#include <pentad/comm/pending.hpp>
#include <pentad/observe/ledger.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pentad::comm::node {

using observe::Operation;

/// What is to be done. Ranks are those of the group.
struct Task {
    Operation operation{};
    std::byte const* in = nullptr; ///< all-reduce and broadcast: their one buffer, as `out`
    std::byte* out = nullptr;
    std::size_t bytes = 0;   ///< of the unscattered side: what an all-reduce sums, an all-gather gives
    std::size_t piece = 0;   ///< of a piece, of which the last may be shorter or empty
    std::size_t element = 1; ///< bytes of an element
    std::uint32_t type = 0;  ///< which elements, and how they are reduced
    Reduction reduction = nullptr;
    int root = -1;
    /// All-to-all of given counts: elements for each rank, and where they begin: of those sent, then of those received.
    std::span<MPI_Count const> sent{}, received{};
    std::span<MPI_Aint const> offsets{};
    bool may_read_directly = true;
};

/// Small exchanges take one round of flags: each rank leaves its part in a mailbox and takes what it needs from the
/// others' when all have come. Sums are made in the order of ranks, whichever way the data goes: they have the same
/// bits on all ranks and in all runs.
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
        number_ = group.next();
        slot_ = number_ % Group::slots;
        filled_ = reduced_ = drained_ = 0;
        stage_ = Stage::waiting_for_slot;
        has_pieces_ = !task.sent.empty();
        bool const cuts = task.operation == Operation::reduce_scatter || task.operation == Operation::all_to_all;
        bool const is_whole = !cuts && task.operation != Operation::all_gather; // a rank gives all of it
        std::size_t const parts = cuts ? n_ : 1;
        longest_ = is_whole ? task.bytes : task.piece;
        if (has_pieces_) {
            longest_ = 0;
            for (std::size_t p = 0; p < n_; ++p) longest_ = std::max<std::size_t>(longest_, sent(p).bytes);
        }
        step_ = Group::box / parts / 64 * 64;
        is_small_ = !has_pieces_ && longest_ <= step_;
        if (!is_small_) step_ = std::min(Group::chunk / parts / 64 * 64, Group::chunk / 2);
        // Where all ranks have a core, the others read a part of a broadcast while the root fills the next.
        if (!is_small_ && task.operation == Operation::broadcast && n_ <= group.processors())
            step_ = std::clamp<std::size_t>(longest_ / 4 / 64 * 64, std::size_t{16} << 10, step_);
        before_ = Group::never;
        if (!is_small_) std::tie(lane_, before_) = group.take_lane(number_);
        fills_caches_ = (is_whole ? n_ : 2 * n_ * n_) * longest_ >= cache_bytes(); // what the buffers of all ranks hold
        two_rounds_ = task.operation == Operation::all_reduce && n_ > 2 && longest_ > largest_in_one_round;
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
    /// An all-reduce of this many bytes is summed by every rank for itself; of more, each rank sums its share.
    static constexpr std::size_t largest_in_one_round = std::size_t{16} << 10;

    void proceed() {
        if (stage_ == Stage::waiting_for_slot) {
            if (held_) return;
            if (number_ >= Group::slots && !group_->all_finished(number_ - Group::slots)) return;
            if (before_ != Group::never && !group_->all_finished(before_)) return;
            arrive();
        }
        if (stage_ == Stage::arriving) {
            if (!sources_have(&Slot::filled, 1)) return;
            compare_notices();
            begin_transfer();
        }
        if (stage_ == Stage::mapping) {
            if (!group_->all_at(slot_, &Slot::mapped, base() + 1)) return;
            end_mapping();
        }
        if (stage_ == Stage::waiting_for_readers) {
            if (!group_->all_at(slot_, &Slot::reduced, base() + 1)) return;
            finish();
        }
        if (stage_ == Stage::mailing) mail();
    }
    [[nodiscard]] std::uint64_t base() const { return number_ << 24; }
    [[nodiscard]] Slot& own() const { return group_->slot(me_, slot_); }
    [[nodiscard]] std::byte* box(std::size_t rank, std::size_t chunk) const {
        return is_small_ ? group_->slot_box(rank, slot_) : group_->lane_box(rank, lane_, chunk);
    }
    [[nodiscard]] std::size_t chunks() const { return std::max<std::size_t>((longest_ + step_ - 1) / step_, 1); }

    void arrive() {
        if (!is_small_) group_->probe();
        auto& notice = own().notice;
        notice = {static_cast<std::uint32_t>(task_.operation),   task_.type, task_.root,
                  has_pieces_ ? ~std::uint64_t{0} : task_.bytes, {},         longest_};
        if (!is_small_ && task_.may_read_directly)
            notice.buffer = shared_memory().locate(task_.in, task_.operation == Operation::all_gather ? piece(me_).bytes
                                                                                                      : task_.bytes);
        for (std::size_t p = 0; has_pieces_ && p < n_; ++p) group_->pieces(me_, slot_)[p] = sent(p);
        stage_ = Stage::arriving;
        if (notice.buffer.is_shared())
            publish(own().filled, base() + 1);
        else
            post(); // the first chunk arrives with the notice
    }
    /// True when others read what rank p gives: all do but in a broadcast.
    [[nodiscard]] bool is_source(std::size_t p) const { return task_.root < 0 || static_cast<int>(p) == task_.root; }
    [[nodiscard]] bool sources_have(std::atomic<std::uint64_t> Slot::* number, std::size_t count) const {
        if (task_.root < 0) return all_have(number, count);
        auto const& root = group_->slot(static_cast<std::size_t>(task_.root), slot_);
        return (root.*number).load(std::memory_order_acquire) >= base() + count;
    }
    /// @throws Error when the ranks that this one reads from have come to another exchange: on every rank, but in a
    /// broadcast not on the root; where given counts differ, on the rank that receives.
    void compare_notices() {
        auto const& mine = own().notice;
        for (std::size_t p = 0; p < n_; ++p) {
            if (!is_source(p)) continue;
            auto const& theirs = group_->slot(p, slot_).notice;
            longest_ = std::max(longest_, static_cast<std::size_t>(theirs.longest));
            if (theirs.operation == mine.operation && theirs.bytes == mine.bytes && theirs.element == mine.element &&
                theirs.root == mine.root) {
                if (!has_pieces_ || group_->pieces(p, slot_)[me_].bytes == received(p).bytes) continue;
                fail("all_to_all: rank " + name(p) + " sends " + std::to_string(group_->pieces(p, slot_)[me_].bytes) +
                     " bytes to rank " + name(me_) + ", which is to receive " + std::to_string(received(p).bytes));
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
        if (is_small_) return false;
        for (std::size_t p = 0; p < n_; ++p)
            if (is_source(p) && !group_->slot(p, slot_).notice.buffer.is_shared()) return false;
        return true;
    }
    void finish() {
        publish(own().finished, number_ + 1);
        stage_ = Stage::complete;
    }

    // --- All buffers are in segments. Where some are new, ranks wait until all have mapped them; if one cannot, what
    // is in them goes through mailboxes. (Ranks may come to know of it in different exchanges: those that know still
    // say so to those that wait.)

    [[nodiscard]] Place const& buffer(std::size_t p) const { return group_->slot(p, slot_).notice.buffer; }
    void begin_transfer() {
        if (!is_direct()) {
            stage_ = Stage::mailing;
            return;
        }
        bool is_known = true;
        for (std::size_t p = 0; p < n_; ++p)
            is_known = is_known && (!is_source(p) || group_->is_mapped(buffer(p).segment));
        publish(own().mapped, base() + (is_known || maps_all() ? 2 : 1));
        if (is_known)
            read_directly();
        else
            stage_ = Stage::mapping;
    }
    [[nodiscard]] bool maps_all() const {
        for (std::size_t p = 0; p < n_; ++p) {
            if (p == me_ || !is_source(p) || shared_memory().at(buffer(p)) != nullptr) continue;
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
        if (!group_->all_at(slot_, &Slot::mapped, base() + 2)) {
            stage_ = Stage::mailing;
            return;
        }
        for (std::size_t p = 0; p < n_; ++p)
            if (is_source(p)) group_->all_have_mapped(buffer(p).segment);
        read_directly();
    }
    void read_directly() {
        read();
        publish(own().reduced, base() + 1);
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
            auto const [begin, end] = share(bytes, me_);
            for (std::size_t p = 0; p < n_; ++p) addresses_.push_back(peer(p) + begin);
            task_.reduction(addresses_.data(), n_, addresses_.data(), n_, end - begin);
            break;
        }
        case Operation::reduce_scatter:
            for (std::size_t p = 0; p < n_; ++p) addresses_.push_back(peer(p) + piece(me_).offset);
            sum(task_.out, piece(me_).bytes);
            break;
        case Operation::all_gather: // all in the same order: what one has read is in cache for the others
            for (std::size_t p = 0; p < n_; ++p) copy(out + piece(p).offset, peer(p), piece(p).bytes);
            break;
        case Operation::all_to_all:
            each([&](std::size_t p) {
                auto const from = has_pieces_ ? group_->pieces(p, slot_)[me_] : piece(me_);
                copy(out + received(p).offset, peer(p) + from.offset, from.bytes);
            });
            break;
        default: // broadcast
            copy(out, peer(static_cast<std::size_t>(task_.root)), bytes);
        }
    }

    // --- Chunks through mailboxes: filled by their owner, (reduced,) drained by all, then filled again.

    void mail() {
        std::size_t const count = chunks();
        for (bool moved = true; moved && stage_ == Stage::mailing;) {
            moved = false;
            if (filled_ < count && (filled_ < Group::depth || all_have(&Slot::drained, filled_ + 1 - Group::depth))) {
                post();
                moved = true;
            }
            if (two_rounds_ && reduced_ < filled_ && all_have(&Slot::filled, reduced_ + 2)) {
                reduce(reduced_++);
                publish(own().reduced, base() + reduced_);
                moved = true;
            }
            if (drained_ < (two_rounds_ ? reduced_ : filled_) &&
                (two_rounds_ ? all_have(&Slot::reduced, drained_ + 1) : sources_have(&Slot::filled, drained_ + 2))) {
                drain(drained_++);
                publish(own().drained, base() + drained_);
                moved = true;
                if (drained_ == count) finish();
            }
        }
    }
    [[nodiscard]] bool all_have(std::atomic<std::uint64_t> Slot::* number, std::size_t chunks) const {
        return group_->all_at(slot_, number, base() + chunks);
    }
    /// Of the unscattered side, what rank p has on the scattered side.
    [[nodiscard]] Piece piece(std::size_t p) const {
        std::size_t const begin = std::min(p * task_.piece, task_.bytes);
        return {begin, std::min(task_.piece, task_.bytes - begin)};
    }
    [[nodiscard]] Piece counted(MPI_Aint offset, MPI_Count count) const {
        return {static_cast<std::uint64_t>(offset) * task_.element, static_cast<std::uint64_t>(count) * task_.element};
    }
    [[nodiscard]] Piece sent(std::size_t p) const {
        return has_pieces_ ? counted(task_.offsets[p], task_.sent[p]) : piece(p);
    }
    [[nodiscard]] Piece received(std::size_t p) const {
        return has_pieces_ ? counted(task_.offsets[n_ + p], task_.received[p]) : piece(p);
    }
    /// The part of `bytes` bytes that chunk k of a piece holds.
    struct Range {
        std::size_t begin, length;
    };
    [[nodiscard]] Range part(std::size_t bytes, std::size_t k) const {
        std::size_t const begin = std::min(k * step_, bytes);
        return {begin, std::min(step_, bytes - begin)};
    }
    /// The share of `bytes` bytes that rank p sums.
    [[nodiscard]] std::pair<std::size_t, std::size_t> share(std::size_t bytes, std::size_t p) const {
        auto const cut = [&](std::size_t i) { return i == n_ ? bytes : bytes / n_ * i / 64 * 64; };
        return {cut(p), cut(p + 1)};
    }
    /// To a mailbox, which is read next: from this core's cache, unless memory is nearer to the reader.
    void to_mail(std::byte* to, std::byte const* from, std::size_t bytes) const {
        node::copy(to, from, bytes, !is_small_ && group_->is_far());
    }
    /// To where the result belongs.
    void copy(std::byte* to, std::byte const* from, std::size_t bytes) const {
        node::copy(to, from, bytes, fills_caches_);
    }

    /// The next chunk goes to the mailbox; what of it this rank keeps goes to its place while the others read.
    void post() {
        std::size_t const k = filled_++;
        fill(k);
        publish(own().filled, base() + 1 + filled_);
        if (task_.operation == Operation::all_gather) {
            auto const [begin, length] = part(piece(me_).bytes, k);
            copy(task_.out + piece(me_).offset + begin, task_.in + begin, length);
        } else if (task_.operation == Operation::all_to_all) {
            auto const [begin, length] = part(sent(me_).bytes, k);
            copy(task_.out + received(me_).offset + begin, task_.in + sent(me_).offset + begin, length);
        }
    }
    void fill(std::size_t k) {
        std::byte* const mail = box(me_, k);
        auto const [begin, length] = part(task_.bytes, k);
        switch (task_.operation) {
        case Operation::all_reduce:
            to_mail(mail, task_.in + begin, length);
            break;
        case Operation::all_gather: {
            auto const mine = part(piece(me_).bytes, k);
            to_mail(mail, task_.in + mine.begin, mine.length);
            break;
        }
        case Operation::broadcast:
            if (is_source(me_)) to_mail(mail, task_.in + begin, length);
            break;
        default: // reduce-scatter, all-to-all
            for (std::size_t p = 0; p < n_; ++p) {
                auto const range = part(sent(p).bytes, k);
                if (p != me_) to_mail(mail + p * step_, task_.in + sent(p).offset + range.begin, range.length);
            }
        }
    }
    /// This rank's share of the sum of chunk k becomes that share of its mailbox, which nobody else reads before.
    void reduce(std::size_t k) {
        auto const range = part(task_.bytes, k);
        auto const [begin, end] = share(range.length, me_);
        addresses_.clear();
        for (std::size_t p = 0; p < n_; ++p) addresses_.push_back(box(p, k) + begin);
        task_.reduction(addresses_.data(), n_, &addresses_[me_], 1, end - begin);
    }
    /// The sum of what lies at addresses_ to where nobody has it in cache yet.
    void sum(std::byte* out, std::size_t bytes) {
        if (!fills_caches_) return task_.reduction(addresses_.data(), n_, &out, 1, bytes);
        alignas(64) std::byte tile[8192];
        std::byte* const in_cache = tile;
        for (std::size_t begin = 0; begin < bytes; begin += sizeof tile) {
            std::size_t const length = std::min(sizeof tile, bytes - begin);
            task_.reduction(addresses_.data(), n_, &in_cache, 1, length);
            node::copy(out + begin, tile, length, true);
            for (auto& address : addresses_) address += length;
        }
    }
    void drain(std::size_t k) {
        auto const range = part(task_.bytes, k);
        std::byte* const out = task_.out + range.begin;
        addresses_.clear();
        switch (task_.operation) {
        case Operation::all_reduce:
            for (std::size_t p = 0; p < n_; ++p) {
                if (two_rounds_) {
                    auto const [begin, end] = share(range.length, p);
                    copy(out + begin, box(p, k) + begin, end - begin);
                } else
                    addresses_.push_back(p == me_ ? out : box(p, k));
            }
            if (!two_rounds_) task_.reduction(addresses_.data(), n_, &out, 1, range.length);
            break;
        case Operation::reduce_scatter: {
            auto const mine = part(piece(me_).bytes, k);
            for (std::size_t p = 0; p < n_; ++p)
                addresses_.push_back(p == me_ ? const_cast<std::byte*>(task_.in) + piece(me_).offset + mine.begin
                                              : box(p, k) + me_ * step_);
            sum(task_.out + mine.begin, mine.length);
            break;
        }
        case Operation::all_gather:
            for (std::size_t p = 0; p < n_; ++p) {
                auto const theirs = part(piece(p).bytes, k);
                if (p != me_) copy(task_.out + piece(p).offset + theirs.begin, box(p, k), theirs.length);
            }
            break;
        case Operation::all_to_all:
            for (std::size_t p = 0; p < n_; ++p) {
                auto const theirs = part(received(p).bytes, k);
                if (p != me_)
                    copy(task_.out + received(p).offset + theirs.begin, box(p, k) + me_ * step_, theirs.length);
            }
            break;
        default: // broadcast
            if (!is_source(me_)) copy(out, box(static_cast<std::size_t>(task_.root), k), range.length);
        }
    }

    Group* group_ = nullptr;
    Task task_;
    Stage stage_ = Stage::complete;
    std::size_t me_ = 0, n_ = 1, slot_ = 0, lane_ = 0, step_ = 0, longest_ = 0;
    std::uint64_t number_ = 0, before_ = 0;
    std::size_t filled_ = 0, reduced_ = 0, drained_ = 0;
    bool held_ = false, has_pieces_ = false, is_small_ = false, two_rounds_ = false, fills_caches_ = false;
    std::vector<std::byte*> addresses_;
};

} // namespace pentad::comm::node
