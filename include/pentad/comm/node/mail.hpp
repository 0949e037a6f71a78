// What an exchange sends through mailboxes, a chunk at a time, so that it stays in cache: chunks are filled
// by their owner, (reduced,) drained by all, then filled again.
#pragma once

#include <pentad/comm/node/copy.hpp>
#include <pentad/comm/node/group.hpp>
#include <pentad/comm/node/reduction.hpp>
#include <pentad/comm/node/task.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pentad::comm::node {

/// Small exchanges take one round of flags: each rank leaves its part in a mailbox of the slot and takes what it needs
/// from the others' when all have come. Others take a lane. Sums are made in the order of ranks.
class Mail {
  public:
    /// @param longest bytes of the longest piece that this rank sends
    void begin(ExchangeState exchange, Task const& task, std::size_t longest);
    [[nodiscard]] bool is_small() const { return is_small_; }
    /// How copies are made, if not by ordinary stores.
    void take(CopyMethod method) { method_ = method; }
    /// True when those that had the lane before have finished.
    [[nodiscard]] bool is_free() const { return exchange_.group->all_finished(lane_.before); }

    /// The exchange before this one that was not small.
    [[nodiscard]] std::uint64_t last() const { return lane_.last; }

    /// The next chunk goes to the mailbox; what of it this rank keeps goes to its place while the others read.
    void post();
    /// Does what can be done without waiting, once all have come. True when everything has gone through.
    /// @param longest bytes of the longest piece that any rank sends
    bool advance(std::size_t longest);

  private:
    /// An all-reduce of this many bytes is summed by every rank for itself; of more, each rank sums its share.
    static constexpr std::size_t largest_in_one_round = std::size_t{16} << 10;

    [[nodiscard]] std::byte* box(std::size_t rank, std::size_t k) const {
        auto const& group = *exchange_.group;
        return is_small_ ? group.slot_box(rank, exchange_.slot()) : group.lane_box(rank, lane_.number, k);
    }
    /// The part of `bytes` bytes that chunk k of a piece holds.
    [[nodiscard]] Piece part(std::size_t bytes, std::size_t k) const {
        std::size_t const begin = std::min(k * step_, bytes);
        return {begin, std::min(step_, bytes - begin)};
    }
    /// To a mailbox, which is read next: from this core's cache, unless memory is nearer to the reader.
    void to_mail(std::byte* to, std::byte const* from, std::size_t bytes) const {
        node::copy(to, from, bytes, streams_mail(method_));
    }
    /// Part k of what this rank gives to rank p.
    void pack(std::byte* mail, std::size_t p, std::size_t k) const;
    /// Part k of what rank p gives to this one.
    void unpack(std::byte const* mail, std::size_t p, std::size_t k) const;
    /// Part k of what this rank keeps.
    void keep(std::size_t k) const;
    /// To where the result belongs.
    void copy(std::byte* to, std::byte const* from, std::size_t bytes) const {
        node::copy(to, from, bytes, streams_results(method_));
    }

    void fill(std::size_t k);
    /// This rank's share of the sum of chunk k becomes that share of its mailbox, which nobody else reads before.
    void reduce(std::size_t k);
    void drain(std::size_t k);

    ExchangeState exchange_;
    Task const* task_ = nullptr;
    std::size_t me_ = 0, n_ = 1, step_ = 0;
    Group::Lane lane_{};
    std::size_t filled_ = 0, reduced_ = 0, drained_ = 0;
    CopyMethod method_ = CopyMethod::cached;
    bool is_small_ = false, two_rounds_ = false;
    std::vector<std::byte*> addresses_;
};

} // namespace pentad::comm::node

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/node/mail.hpp>
#endif
