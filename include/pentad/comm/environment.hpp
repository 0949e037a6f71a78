// The variables of the environment that Pentad reads: each is read here and nowhere else, so that a program
// can refuse what is misspelt or makes no sense before it begins.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/mesh/number.hpp>

#include <algorithm>
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

/// Most threads that a rank can have: Kokkos' pool of them has no room for more, and does not check.
inline constexpr int most_threads = 512;
/// Threads of a rank where nobody says how many: its part of the processors of a machine.
constexpr int threads_of_rank(int processors, int ranks_of_machine) {
    return std::clamp(processors / std::max(ranks_of_machine, 1), 1, most_threads);
}

/// Variables by which launchers describe the ranks that they start. Only variables of a step count, that is of the
/// processes that were started together: in the script of a job Slurm says how many tasks that may start
/// (SLURM_NTASKS), and a program of one rank may be started there.
struct Launcher {
    std::string_view name;
    char const* size; ///< the variable with the number of ranks; null: it has none
    char const* rank; ///< with the number of this one
};
/// MPI libraries come first: their launchers may themselves be tasks of Slurm.
inline constexpr std::array<Launcher, 9> launchers{{
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
    {"a launcher for MPICH and its relatives", "PMI_SIZE", "PMI_RANK"},
    {"MVAPICH2's launcher", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},
    {"Slurm's srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"},
    {"Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
    {"torchrun, or a launcher like it,", "WORLD_SIZE", "RANK"},
    {"a launcher that speaks PMIx", nullptr, "PMIX_RANK"},
    {"PALS", nullptr, "PALS_RANKID"},
}};
/// Whether one of them has started this process and, as far as it says, others.
[[gnu::cold]] bool is_launched();

/// If a launcher has started several processes and MPI knows of one alone, each would do the whole work.
struct LonelyRank {
    std::string sentence;
    bool speaks = true; ///< the first process of those that can know says it
};
/// @param ranks of MPI's world. Nothing where it has several, or no launcher started more than one
[[gnu::cold]] std::optional<LonelyRank> lonely_rank(int ranks);

/// The variables of the environment whose names begin so, as NAME=VALUE, sorted.
std::vector<std::string> variables(std::string_view prefix);

/// Reads all of them, and the number of threads. @throws Error also for a PENTAD_ variable that nothing reads, which is
/// most likely misspelt
void check();

} // namespace environment

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/environment.hpp>
#endif
