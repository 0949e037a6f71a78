// What an exchange reads straight from the memory of other ranks, and in an all-reduce writes there:
// mapped, where it lies in segments, or else by the kernel, which looks it up or gets it lent.
#pragma once

#include <pentad/comm/node/copy_methods.hpp>
#include <pentad/comm/node/group.hpp>
#include <pentad/comm/node/reduction.hpp>
#include <pentad/comm/node/task.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pentad::comm::node {

/// Sums are made in the order of ranks.
class Direct {
  public:
    enum class State { under_way, complete, impossible };

    /// All have come, and every source is open. Where some segments are new, ranks wait until all have mapped them; if
    /// one cannot, it is impossible for all. (Ranks may come to know of it in different exchanges: those that know
    /// still say so to those that wait.) So too with the pipes through which others lend, each time.
    /// @param last an exchange that may still be lending
    void begin(ExchangeState exchange, Task const& task, CopyMethod method, std::uint64_t last);
    /// Does what can be done without waiting.
    State advance();

  private:
    enum class Stage { mapping, lending, reading, collecting };

    [[nodiscard]] memory::Place const& buffer(std::size_t p) const { return exchange_.of(p).notice.buffer; }
    /// In an all-reduce each rank sums its share, in its own memory unless it can write to that of all.
    [[nodiscard]] bool has_shares() const { return task_->operation == Operation::all_reduce && !all_shared_; }
    /// True when rank p lends its memory.
    [[nodiscard]] bool lends(std::size_t p) const { return task_->is_source(p) && exchange_.of(p).notice.lends; }
    [[nodiscard]] bool opens_all() const;
    /// The memory of a rank as this one sees it. Null when only the kernel can read it.
    [[nodiscard]] std::byte* address(std::size_t p) const;
    /// What lies `from` bytes behind the beginning of rank p's memory.
    void fetch(std::byte* to, std::size_t p, std::size_t from, std::size_t bytes) const;
    /// The reduction of what lies there on all ranks.
    void reduce(std::byte* out, std::size_t from, std::size_t bytes);

    /// What rank `to` gets of what rank `from` gives, as seen by the former or the latter.
    [[nodiscard]] Piece given(std::size_t from, std::size_t to) const {
        if (from != me_ && task_->is_counted()) return exchange_.group->pieces(from, exchange_.slot())[to];
        return task_->given(from, to);
    }
    /// Where this rank puts what it gets of rank p.
    [[nodiscard]] std::byte* place(std::size_t p) const { return task_->out + task_->taken(p).offset; }
    /// Lends and takes what it can: true when all is done. One after the other, since all use the same pipes.
    bool pass_lent();

    void read();
    void collect_shares();

    ExchangeState exchange_;
    Task const* task_ = nullptr;
    Stage stage_ = Stage::mapping;
    std::size_t me_ = 0, n_ = 1;
    CopyMethod method_ = CopyMethod::cached;
    std::uint64_t last_ = Group::never;
    bool all_shared_ = true, has_lenders_ = false;
    std::vector<std::size_t> lent_, taken_; ///< bytes, so far
    std::vector<std::byte*> addresses_;
};

} // namespace pentad::comm::node

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/node/direct.hpp>
#endif
