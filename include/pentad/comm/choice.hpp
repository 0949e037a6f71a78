// Room: comm. Which algorithm carries out a collective: the same on all ranks of a group, from what they all know.
#pragma once

#include <pentad/comm/error.hpp>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

namespace pentad::comm {

enum class Algorithm {
    automatic, ///< the fastest
    mpi,       ///< the MPI library's own
    mailbox,   ///< within a node: through mailboxes in shared memory
    direct,    ///< within a node: each other's memory, where it lies in segments
};
inline constexpr std::array<std::string_view, 4> algorithm_names{"auto", "mpi", "mailbox", "direct"};

/// PENTAD_COLLECTIVES=NAME takes one algorithm wherever it can be used, for tests and measurements.
/// @throws Error when there is no such algorithm
inline Algorithm& forced_algorithm() {
    static Algorithm algorithm = [] {
        char const* const text = std::getenv("PENTAD_COLLECTIVES");
        if (text == nullptr) return Algorithm::automatic;
        std::string names;
        for (std::size_t i = 0; i < algorithm_names.size(); ++i) {
            if (text == algorithm_names[i]) return static_cast<Algorithm>(i);
            names += (i == 0 ? "" : ", ") + std::string(algorithm_names[i]);
        }
        throw Error("PENTAD_COLLECTIVES=" + std::string(text) + ": it is one of " + names);
    }();
    return algorithm;
}

} // namespace pentad::comm
