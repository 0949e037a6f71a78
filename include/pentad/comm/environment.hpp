// The variables of the environment that Pentad reads: each is read here and nowhere else, so that a program
// can refuse what is misspelt or makes no sense before it begins.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/mesh/nearest_word.hpp>
#include <pentad/mesh/number.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
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
[[gnu::cold]] inline Algorithm collectives() {
    char const* const text = std::getenv("PENTAD_COLLECTIVES");
    if (text == nullptr) return Algorithm::automatic;
    std::string names;
    for (std::size_t i = 0; i < algorithm_names.size(); ++i) {
        if (text == algorithm_names[i]) return static_cast<Algorithm>(i);
        names += (i == 0 ? "" : ", ") + std::string(algorithm_names[i]);
    }
    refuse("PENTAD_COLLECTIVES", text, "one of " + names);
}

/// PENTAD_RANKS_PER_NODE=K: every K ranks of the world are taken for a node of their own.
[[gnu::cold]] inline std::optional<int> ranks_per_node() {
    return number<int>("PENTAD_RANKS_PER_NODE", 1, "a number of ranks, 1 or more");
}

/// PENTAD_SHARED_MEMORY_LIMIT=BYTES: most that a rank shares with the others of its node.
[[gnu::cold]] inline std::optional<std::size_t> shared_memory_limit() {
    return number<std::size_t>("PENTAD_SHARED_MEMORY_LIMIT", 0, "a number of bytes");
}

/// PENTAD_GPU_AWARE_MPI=0|1: whether MPI may be given device pointers.
[[gnu::cold]] inline std::optional<bool> gpu_aware_mpi() {
    char const* const text = std::getenv("PENTAD_GPU_AWARE_MPI");
    if (text == nullptr) return std::nullopt;
    if (std::string_view(text) != "0" && std::string_view(text) != "1") refuse("PENTAD_GPU_AWARE_MPI", text, "0 or 1");
    return *text == '1';
}

/// PENTAD_TIMEOUT=SECONDS: how long a rank may keep the others of a group waiting in a checked build.
inline double timeout() {
    return number<double>("PENTAD_TIMEOUT", std::numeric_limits<double>::min(), "a number of seconds, more than 0")
        .value_or(10);
}

/// PENTAD_TUNING=FILE: what pentad_tune wrote; null without it.
inline char const* tuning() { return std::getenv("PENTAD_TUNING"); }

/// The variables of the environment whose names begin so, as NAME=VALUE, sorted.
inline std::vector<std::string> variables(std::string_view prefix) {
    std::vector<std::string> found;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        if (std::string_view(*entry).starts_with(prefix)) found.emplace_back(*entry);
    std::sort(found.begin(), found.end());
    return found;
}

/// Reads all of them. @throws Error also for a PENTAD_ variable that nothing reads, which is most likely misspelt
inline void check() {
    (void)collectives();
    (void)ranks_per_node();
    (void)shared_memory_limit();
    (void)gpu_aware_mpi();
    (void)timeout();
    static constexpr std::array<std::string_view, 6> known{
        "PENTAD_COLLECTIVES",   "PENTAD_RANKS_PER_NODE", "PENTAD_SHARED_MEMORY_LIMIT",
        "PENTAD_GPU_AWARE_MPI", "PENTAD_TIMEOUT",        "PENTAD_TUNING"};
    // Those of ./dev and of the tests.
    static constexpr std::array<std::string_view, 3> others{"PENTAD_TOOLCHAIN", "PENTAD_DEBIAN_MIRROR",
                                                            "PENTAD_TEST_RANKS"};
    for (auto const& variable : variables("PENTAD_")) {
        auto const name = std::string_view(variable).substr(0, variable.find('='));
        if (std::find(known.begin(), known.end(), name) == known.end() &&
            std::find(others.begin(), others.end(), name) == others.end())
            throw Error("there is no variable " + std::string(name) + ": did you mean " +
                        std::string(nearest_word(name, known)) + "?");
    }
}

} // namespace environment

} // namespace pentad::comm
