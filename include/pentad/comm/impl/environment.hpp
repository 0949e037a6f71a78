// The functions of <pentad/comm/environment.hpp>.
#pragma once

#include <pentad/comm/environment.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/nearest_word.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace pentad::comm::environment {

PENTAD_INLINE Algorithm collectives() {
    char const* const text = std::getenv("PENTAD_COLLECTIVES");
    if (text == nullptr) return Algorithm::automatic;
    std::string names;
    for (std::size_t i = 0; i < algorithm_names.size(); ++i) {
        if (text == algorithm_names[i]) return static_cast<Algorithm>(i);
        names += (i == 0 ? "" : ", ") + std::string(algorithm_names[i]);
    }
    refuse("PENTAD_COLLECTIVES", text, "one of " + names);
}

PENTAD_INLINE std::optional<bool> gpu_aware_mpi() {
    char const* const text = std::getenv("PENTAD_GPU_AWARE_MPI");
    if (text == nullptr) return std::nullopt;
    if (std::string_view(text) != "0" && std::string_view(text) != "1") refuse("PENTAD_GPU_AWARE_MPI", text, "0 or 1");
    return *text == '1';
}

PENTAD_INLINE std::vector<std::string> variables(std::string_view prefix) {
    std::vector<std::string> found;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
        if (std::string_view(*entry).starts_with(prefix)) found.emplace_back(*entry);
    std::sort(found.begin(), found.end());
    return found;
}

namespace detail {
/// The number that a variable holds, if there is one.
PENTAD_INLINE std::optional<std::int64_t> number_of(char const* name) {
    char const* const text = name == nullptr ? nullptr : std::getenv(name);
    return text == nullptr ? std::nullopt : number_in<std::int64_t>(text);
}
} // namespace detail

PENTAD_INLINE bool is_launched() {
    return std::any_of(launchers.begin(), launchers.end(), [](Launcher const& launcher) {
        return launcher.size != nullptr ? detail::number_of(launcher.size).value_or(1) > 1
                                        : std::getenv(launcher.rank) != nullptr;
    });
}

PENTAD_INLINE std::optional<LonelyRank> lonely_rank(int ranks) {
    if (ranks > 1) return std::nullopt;
    for (auto const& [name, size, rank] : launchers) {
        auto const processes = detail::number_of(size), own = detail::number_of(rank);
        if (size != nullptr && !processes) continue;
        if (size != nullptr && *processes <= 1) return std::nullopt; // the innermost launcher
        if (size == nullptr && own.value_or(0) == 0) continue;       // without its number the first cannot know
        auto const* const variable = size != nullptr ? size : rank;
        return LonelyRank{std::string(name) + " has started several processes (" + variable + "=" +
                              std::getenv(variable) +
                              "), and each is alone in its MPI, so that each would do all of the work: start them with "
                              "the launcher of the MPI that this program is linked to, or with Slurm as srun "
                              "--mpi=pmi2 (docs/cluster.md); where each is to be a run of its own, unset " +
                              variable,
                          own.value_or(0) == (size != nullptr ? 0 : 1)};
    }
    return std::nullopt;
}

namespace detail {
/// More threads than there is room for.
PENTAD_INLINE void check_threads() {
    for (auto const* const name : {"KOKKOS_NUM_THREADS", "OMP_NUM_THREADS"}) {
        char const* const text = std::getenv(name);
        if (text == nullptr) continue;
        std::string_view const all(text); // of OpenMP perhaps a list, for regions within each other
        auto const number = number_in<std::int64_t>(all.substr(0, all.find(',')));
        if (number && *number > most_threads)
            throw Error(std::string(name) + "=" + text + ": a rank has " + std::to_string(most_threads) +
                        " threads at most: give it fewer, and the machine more ranks");
    }
}
} // namespace detail

PENTAD_INLINE void check() {
    (void)collectives();
    (void)ranks_per_node();
    (void)shared_memory_limit();
    (void)gpu_aware_mpi();
    (void)timeout();
    detail::check_threads();
    static constexpr std::array<std::string_view, 6> known{
        "PENTAD_COLLECTIVES",   "PENTAD_RANKS_PER_NODE", "PENTAD_SHARED_MEMORY_LIMIT",
        "PENTAD_GPU_AWARE_MPI", "PENTAD_TIMEOUT",        "PENTAD_TUNING"};
    // The variables of ./dev and of the tests.
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

} // namespace pentad::comm::environment
