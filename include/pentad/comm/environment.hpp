// The variables of the environment that Pentad reads: each is read here and nowhere else, so that a program
// can refuse what is misspelt or makes no sense before it begins.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/mesh/number.hpp>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::comm {

enum class Algorithm {
    automatic, ///< the fastest
    mpi,       ///< the MPI library's own
    mailbox,   ///< within a node: through mailboxes in shared memory
    direct,    ///< within a node: each other's memory where it lies in segments, and what is faster where it does not
    process,   ///< within a node: each other's memory, by the kernel where it lies in no segment
};
inline constexpr std::array<std::string_view, 5> algorithm_names{"auto", "mpi", "mailbox", "direct", "process"};

/// Each function reads one variable, at every call. @throws Error when its value makes no sense
namespace environment {

/// PENTAD_NAME=VALUE: what it should be.
[[noreturn]] inline void refuse(std::string_view name, std::string_view value, std::string const& expected) {
    throw Error(std::string(name) + "=" + std::string(value) + ": it is " + expected);
}

template <class Number>
std::optional<Number> number(char const* name, Number least, std::string const& expected) {
    char const* const text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    auto const value = number_in<Number>(text);
    if (!value || !(*value >= least && *value <= std::numeric_limits<Number>::max())) refuse(name, text, expected);
    return value;
}

/// PENTAD_COLLECTIVES=NAME takes one algorithm wherever it can be used, for tests and measurements.
[[gnu::cold]] Algorithm collectives();

/// PENTAD_RANKS_PER_NODE=K: every K ranks of the world are taken for a node of their own.
[[gnu::cold]] inline std::optional<int> ranks_per_node() {
    return number<int>("PENTAD_RANKS_PER_NODE", 1, "a number of ranks, 1 or more");
}

/// PENTAD_SHARED_MEMORY_LIMIT=BYTES: most that a rank shares with the others of its node.
[[gnu::cold]] inline std::optional<std::size_t> shared_memory_limit() {
    return number<std::size_t>("PENTAD_SHARED_MEMORY_LIMIT", 0, "a number of bytes");
}

/// PENTAD_GPU_AWARE_MPI=0|1: whether MPI may be given device pointers.
[[gnu::cold]] std::optional<bool> gpu_aware_mpi();

/// PENTAD_TIMEOUT=SECONDS: how long a rank may keep the others of a group waiting in a checked build.
inline double timeout() {
    return number<double>("PENTAD_TIMEOUT", std::numeric_limits<double>::min(), "a number of seconds, more than 0")
        .value_or(10);
}

/// PENTAD_TUNING=FILE: what pentad_tune wrote; null without it.
inline char const* tuning() { return std::getenv("PENTAD_TUNING"); }

/// The variables of the environment whose names begin so, as NAME=VALUE, sorted.
std::vector<std::string> variables(std::string_view prefix);

/// Reads all of them. @throws Error also for a PENTAD_ variable that nothing reads, which is most likely misspelt
void check();

} // namespace environment

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/environment.hpp>
#endif
