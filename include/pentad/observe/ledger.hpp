// The ledger: bytes and calls of everything this process sends, by axis and operation. Sends that the
// library makes itself are counted; where the MPI library runs its own algorithm the entry is the bandwidth-optimal
// number of bytes, and what MPICH would send to other nodes, and is marked as modelled.
#pragma once

#include <pentad/layout/cost.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pentad::observe {

enum class Operation : std::uint8_t {
    broadcast,
    reduce,
    all_reduce,
    gather,
    all_gather,
    reduce_scatter,
    all_to_all,
    send,
};
inline constexpr std::array<std::string_view, 8> operation_names{"broadcast",  "reduce",         "all_reduce", "gather",
                                                                 "all_gather", "reduce_scatter", "all_to_all", "send"};
constexpr std::string_view name(Operation operation) { return operation_names[static_cast<std::size_t>(operation)]; }

struct LedgerEntry {
    double bytes = 0;         ///< sent by this rank to other ranks
    double network_bytes = 0; ///< sent by this rank to ranks of other nodes
    std::int64_t calls = 0;
    bool modelled = false, network_modelled = false; ///< part of the bytes are what a model says
};

/// Bytes and calls by axis and operation. A part of an axis counts on the axis.
class Ledger {
  public:
    static constexpr std::size_t max_entries = 16;

    /// Books what a plan or collective sends along the axes of `cost`, and what of it goes to other nodes, which is
    /// shared out among the axes as the bytes are; the call counts on each axis it crosses.
    void record(Operation operation, Cost const& cost, bool modelled, double network_bytes, bool network_modelled);

    [[nodiscard]] LedgerEntry entry(std::string_view axis, Operation operation) const {
        for (std::size_t i = 0; i < count_; ++i)
            if (names_[i] == axis) return entries_[i][static_cast<std::size_t>(operation)];
        return {};
    }
    /// Books time that this rank spent in communication along some axes, shared out as the bytes of an exchange over
    /// them.
    void spend(Cost const& shares, double seconds) {
        double const total = shares.total();
        for (std::size_t i = 0; i < shares.axes.size(); ++i)
            if (total > 0) seconds_[index_of(whole_axis_name(shares.axes[i]))] += seconds * shares.bytes[i] / total;
    }
    /// Seconds this rank spent in communication along an axis, waiting included.
    [[nodiscard]] double seconds(std::string_view axis) const {
        for (std::size_t i = 0; i < count_; ++i)
            if (names_[i] == axis) return seconds_[i];
        return 0;
    }
    /// All bytes sent along an axis.
    [[nodiscard]] double bytes(std::string_view axis) const { return sum(axis, &LedgerEntry::bytes); }
    /// Bytes sent along an axis to other nodes.
    [[nodiscard]] double network_bytes(std::string_view axis) const { return sum(axis, &LedgerEntry::network_bytes); }
    [[nodiscard]] std::span<std::string_view const> axes() const { return {names_.data(), count_}; }
    void clear() {
        entries_ = {};
        seconds_ = {};
    }

  private:
    [[nodiscard]] double sum(std::string_view axis, double LedgerEntry::* what) const;
    std::size_t index_of(std::string_view axis);

    std::array<std::string_view, max_entries> names_{};
    std::array<std::array<LedgerEntry, operation_names.size()>, max_entries> entries_{};
    std::array<double, max_entries> seconds_{};
    std::size_t count_ = 0;
};

/// The one that ledger() gives: of the process, or of a dry run.
inline Ledger*& current_ledger() {
    static Ledger of_process;
    static Ledger* current = &of_process;
    return current;
}
/// The ledger of this process.
inline Ledger& ledger() { return *current_ledger(); }

} // namespace pentad::observe

#if !PENTAD_COMPILED_TENSOR
#include <pentad/observe/impl/ledger.hpp>
#endif
