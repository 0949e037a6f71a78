// A dry run: the program's own code on tensors without memory and ranks without MPI. Every product, attention, pass
// over memory and exchange is recorded where it would be carried out; bytes held and bytes sent are counted as always.
#pragma once

#include <pentad/layout/cost.hpp>
#include <pentad/observe/counters.hpp>
#include <pentad/observe/ledger.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::observe {

enum class WorkKind : std::uint8_t { product, attention, scan, pass, exchange };

/// One thing that the program would do.
struct Work {
    WorkKind kind{};
    std::string_view name;    ///< of the kernel, or of the operation in the ledger
    std::string_view scope{}; ///< what it is part of, as the timeline shows it: "attention forward"
    double flops = 0;         ///< of products, attention and scans
    double bytes = 0;         ///< read and written in memory; of an exchange: sent by this rank
    Operation operation{};    ///< of an exchange
    Cost cost{};              ///< of an exchange: its bytes by axis
    int ranks = 1;            ///< of an exchange: in the group
    bool is_started = false;  ///< of an exchange: what follows may go on beside it
    double rows = 0;          ///< of experts that it takes to other ranks: a run decides by its data how many
    double part = 1;          ///< that these are of all rows
};

/// What a layer keeps of each sequence that is being written, on a rank, and what attention to it takes.
struct DecodingState {
    double token = 0, sequence = 0; ///< bytes, for each token that was there before; and once
    double flops = 0;               ///< of a new token with one that was there before

    DecodingState& operator+=(DecodingState const& other);
};

/// How a dry run takes experts to be chosen.
struct DryRouting {
    double imbalance = 1; ///< rows that come to this rank over the mean
};

/// While one exists, kernels, copies and communication of this process record what they would do and return; buffers
/// have addresses and no memory; counters() and ledger() are its own. Contexts and Communicators are made inside of its
/// life, Communicators by the constructor that takes a rank. Numbers read back from tensors are zeros. There is one at
/// a time, on the host thread that drives Pentad.
class DryRun {
  public:
    /// @throws std::logic_error while there is another one
    DryRun();
    DryRun(DryRun const&) = delete;
    DryRun& operator=(DryRun const&) = delete;
    ~DryRun();

    [[nodiscard]] std::vector<Work> const& work() const { return work_; }
    /// Forgets what was recorded; what is held stays counted.
    void clear() {
        work_.clear();
        ledger_.clear();
        counters_.gemm_flops = 0;
    }

    // For kernels, memory and communication.

    void product(double m, double n, double k, double bytes) {
        add({.kind = WorkKind::product, .name = "gemm", .flops = 2 * m * n * k, .bytes = bytes});
    }
    void attention(std::string_view name, double flops, double bytes) {
        add({.kind = WorkKind::attention, .name = name, .flops = flops, .bytes = bytes});
    }
    void scan(std::string_view name, double flops, double bytes) {
        add({.kind = WorkKind::scan, .name = name, .flops = flops, .bytes = bytes});
    }
    [[gnu::cold]] void pass(std::string_view name, double bytes) {
        add({.kind = WorkKind::pass, .name = name, .bytes = bytes});
    }
    /// @param network_bytes what of it goes to other nodes, and whether a model says so
    [[gnu::cold]] void exchange(Operation operation, Cost const& cost, int ranks, bool is_started, double network_bytes,
                                bool network_modelled);
    /// The last exchange was of so many rows of experts, which are that part of all.
    void note_rows(double rows, double part = 1) {
        if (work_.empty() || work_.back().kind != WorkKind::exchange) return;
        work_.back().rows = rows;
        work_.back().part = part;
    }
    [[nodiscard]] DryRouting& routing() { return routing_; }
    /// Its rank stands for all: where ranks send more or less than each other, the mean is counted.
    void stand_for_all() { stands_for_all_ = true; }
    [[nodiscard]] bool stands_for_all() const { return stands_for_all_; }

    /// The address of `bytes` bytes that do not exist. No two are the same, and none is given twice.
    std::byte* address(std::size_t bytes) {
        auto const at = next_;
        next_ += (bytes + page - 1) / page * page + page;
        return reinterpret_cast<std::byte*>(at); // never followed: whoever does ends with a segmentation fault
    }

    /// That of this process; null where none is under way.
    static DryRun*& current() {
        static DryRun* instance = nullptr;
        return instance;
    }

  private:
    static constexpr std::uintptr_t page = 4096;

    void add(Work work) {
        work.scope = scope_;
        work_.push_back(work);
    }

    std::vector<Work> work_;
    std::string_view scope_;
    DryRouting routing_;
    bool stands_for_all_ = false;
    Counters counters_, *counters_before_;
    Ledger ledger_, *ledger_before_;
    std::uintptr_t next_ = std::uintptr_t{1} << 44;
};

/// The dry run that is under way, or null.
inline DryRun* dry_run() { return DryRun::current(); }
/// The dry run that is under way, where its rank stands for all; else null.
inline DryRun* dry_run_for_all() {
    auto* const run = dry_run();
    return run != nullptr && run->stands_for_all() ? run : nullptr;
}

/// What has no kernels yet can be planned only. @throws std::invalid_argument outside of a dry run
inline void require_dry(std::string const& what) {
    if (dry_run() == nullptr) throw std::invalid_argument(what + " can be planned, and not run yet");
}

} // namespace pentad::observe

#if !PENTAD_COMPILED_TENSOR
#include <pentad/observe/impl/dry_run.hpp>
#endif
