// One collective of a node's ranks under way: through mailboxes (mail.hpp), or, where every buffer that is
// read is open to all, straight from each other's memory (direct.hpp).
#pragma once

#include <pentad/comm/detail/pending.hpp>
#include <pentad/comm/node/copy_methods.hpp>
#include <pentad/comm/node/direct.hpp>
#include <pentad/comm/node/group.hpp>
#include <pentad/comm/node/mail.hpp>
#include <pentad/comm/node/task.hpp>
#include <pentad/observe/ledger.hpp>

#include <chrono>
#include <cstddef>
#include <string>

namespace pentad::comm::node {

/// Sums are made in the order of ranks, whichever way the data goes: they have the same bits on all ranks and in all
/// runs.
class Exchange final : public Pending {
  public:
    /// Begins it. The buffers belong to it until `advance` says that it is complete. It has its turn from now on, but
    /// while it is held its input is not there yet.
    /// @throws Error when the group has failed
    void begin(Group& group, Task const& task, bool held = false);
    /// Its input is there.
    void release() { held_ = false; }
    bool step() override;

  private:
    enum class Stage { waiting_for_slot, arriving, reading, mailing, complete };
    using Clock = std::chrono::steady_clock;
    /// Bytes of a piece: below, there is nothing to gain by looking for the fastest method.
    static constexpr std::size_t smallest_with_methods = 2048;
    [[nodiscard]] Clock::time_point now() const { return learns_ ? Clock::now() : Clock::time_point{}; }

    void proceed();

    void arrive();
    /// Opens this rank's buffer to the others, if it is not to go through mailboxes.
    void choose_method(Notice& notice);
    /// @throws Error when the ranks that this one reads from have come to another exchange: on every rank, but in a
    /// broadcast not on the root; where given counts differ, on the rank that receives.
    void compare_notices();
    [[nodiscard]] std::string name(std::size_t rank) const { return std::to_string(group_->members()[rank]); }
    [[nodiscard, gnu::cold]] std::string describe(std::size_t rank, Notice const& notice) const;
    /// True when nobody has to go through mailboxes.
    [[nodiscard]] bool is_direct() const;
    void begin_transfer();
    void mail_instead() {
        stage_ = Stage::mailing;
        if (is_by_kernel(method_)) mail_.take(method_ = CopyMethod::cached); // others had their buffers closed
    }
    void finish();

    Group* group_ = nullptr;
    Task task_;
    ExchangeState exchange_;
    Mail mail_;
    Direct direct_;
    Stage stage_ = Stage::complete;
    std::size_t me_ = 0, n_ = 1, longest_ = 0;
    bool held_ = false, has_methods_ = false, learns_ = false, in_segments_ = false, all_have_come_ = false;
    CopyMethods::Kind* kind_ = nullptr;
    CopyMethod method_ = CopyMethod::cached;
    Clock::time_point began_;
    Clock::duration worked_{};
};

} // namespace pentad::comm::node

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/node/exchange.hpp>
#endif
