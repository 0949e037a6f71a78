// The functions of <pentad/comm/environment.hpp>.
#pragma once

#include <pentad/comm/environment.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/nearest_word.hpp>

#include <unistd.h>

#include <algorithm>

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

PENTAD_INLINE void check() {
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

} // namespace pentad::comm::environment
