// Counters of this process that everything above may write to: bytes held by kind, GEMM FLOPs.
// They are plain numbers, written by the one host thread that drives Pentad. The bytes sent are in ledger.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pentad::observe {

/// What a buffer holds. Every buffer that the library allocates is counted under one of these.
enum class Memory { parameters, gradients, optimizer, activations, communication, caches };

inline constexpr std::array<std::string_view, 6> memory_names{"parameters",  "gradients",     "optimizer",
                                                              "activations", "communication", "caches"};

struct MemoryCount {
    std::int64_t bytes = 0;       ///< held now
    std::int64_t peak = 0;        ///< the most held at once
    std::int64_t allocations = 0; ///< times the memory space was asked for more
};

struct Counters {
    std::array<MemoryCount, memory_names.size()> memory{};
    double gemm_flops = 0; ///< 2 m n k for each product

    MemoryCount& operator[](Memory kind) { return memory[static_cast<std::size_t>(kind)]; }

    /// A buffer of the pool was taken, or given back.
    void held(Memory kind, std::int64_t bytes) {
        auto& count = (*this)[kind];
        count.bytes += bytes;
        count.peak = std::max(count.peak, count.bytes);
    }
    void released(Memory kind, std::int64_t bytes) { (*this)[kind].bytes -= bytes; }
    /// The memory space itself was asked for a slab.
    void allocated(Memory kind) { ++(*this)[kind].allocations; }
};

/// The counters that counters() gives: of the process, or of a dry run.
inline Counters*& current_counters() {
    static Counters of_process;
    static Counters* current = &of_process;
    return current;
}
/// The counters of this process.
inline Counters& counters() { return *current_counters(); }

} // namespace pentad::observe
