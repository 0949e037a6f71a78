// What the programs on fields do alike: names of dimensions and axes, extents and meshes on the command line, where a
// shard begins, numbers over all ranks.
#pragma once

#include "command_line.hpp"

#include <pentad/comm.hpp>
#include <pentad/layout.hpp>
#include <pentad/mesh.hpp>
#include <pentad/observe.hpp>
#include <pentad/program.hpp>
#include <pentad/tensor.hpp>

#include <CLI/CLI.hpp>
#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace fields {

using namespace pentad;

// Dimensions of any extent: shards differ by one where ranks do not divide it.
struct z {
    static constexpr std::string_view name = "z";
    static constexpr bool has_uneven_blocks = true;
};
struct y {
    static constexpr std::string_view name = "y";
    static constexpr bool has_uneven_blocks = true;
};
struct x {
    static constexpr std::string_view name = "x";
    static constexpr bool has_uneven_blocks = true;
};
// Axes of the mesh of ranks.
struct planes {
    static constexpr std::string_view name = "planes";
};
struct rows {
    static constexpr std::string_view name = "rows";
};
struct columns {
    static constexpr std::string_view name = "columns";
};

/// The factors of "30x31x17"; none where it is anything else than whole numbers from 1 to 2^20.
inline std::vector<std::size_t> factors_of(std::string const& text) {
    std::vector<std::size_t> factors;
    for (std::size_t begin = 0; begin <= text.size();) {
        auto const end = std::min(text.find('x', begin), text.size());
        auto const word = text.substr(begin, end - begin);
        auto const number = number_in<std::size_t>(word);
        if (!number || *number < 1 || *number > (1U << 20) || word != std::to_string(*number)) return {};
        factors.push_back(*number);
        begin = end + 1;
    }
    return factors;
}
/// A check of a flag: `least` to `most` factors.
inline CLI::Validator factors(std::size_t least, std::size_t most) {
    return {[=](std::string const& text) {
                auto const count = factors_of(text).size();
                auto const numbers = (least < most ? std::to_string(least) + " or " : "") + std::to_string(most);
                return count >= least && count <= most ? std::string()
                                                       : text + " is not " + numbers + " whole numbers from 1 to " +
                                                             std::to_string(1U << 20) + " with x between them";
            },
            ""};
}

/// "2x3"
inline std::string product_text(std::vector<int> const& factors) {
    std::string text;
    for (auto const factor : factors) text += (text.empty() ? "" : "x") + std::to_string(factor);
    return text;
}

/// Parses the command line; false where it asks for help, which is then printed.
/// @throws program::BadInput
inline bool parse(CLI::App& app, int argc, char** argv, program::Ranks const& ranks) {
    try {
        app.parse(argc, argv);
    } catch (CLI::CallForHelp const&) {
        if (ranks.is_first()) std::fputs(app.help().c_str(), stdout);
        return false;
    } catch (CLI::ParseError const& error) {
        throw program::BadInput(error.what());
    }
    return true;
}

/// The extents of a mesh of `axes` axes: those of --mesh, else as nearly equal as the number of ranks allows.
/// @throws program::BadInput where they are not those of the ranks
inline std::vector<int> mesh_extents(std::string const& flag, std::size_t axes, int ranks) {
    std::vector<int> extents(axes, 0);
    if (flag.empty()) {
        MPI_Dims_create(ranks, static_cast<int>(axes), extents.data());
        return extents;
    }
    auto const given = factors_of(flag);
    double product = 1;
    for (auto const extent : given) product *= static_cast<double>(extent);
    if (given.size() != axes || product != ranks)
        throw program::BadInput("--mesh " + flag + " has to be " + std::to_string(axes) + " numbers whose product is " +
                                std::to_string(ranks) + ", the number of ranks: change it, or leave it out");
    std::copy(given.begin(), given.end(), extents.begin());
    return extents;
}

/// @throws program::BadInput on all ranks where `bytes` on all of them together do not fit into the memory of a host
inline void require_memory(program::Ranks const& ranks, std::string const& size, double bytes) {
    ranks.on_all([&] {
        double const here = static_cast<double>(ranks.board().ranks().size()) / ranks.size();
        double const free = program::memory_of_host().bytes;
        if (bytes * here <= 0.9 * free) return;
        std::array<char, 64> text{};
        std::snprintf(text.data(), text.size(), "%.3g GiB on a host where %.3g GiB are free", bytes * here / (1 << 30),
                      free / (1 << 30));
        throw program::BadInput("--size " + size + " takes " + text.data() + ": give a smaller one");
    });
}

/// The global indices of the first element that this rank owns.
template <class L, class Exec, class M>
std::array<std::size_t, L::rank> first_index(Tensor<L, Exec, M> const& tensor) {
    auto const mesh = tensor.context().communicators().mesh();
    int const rank = tensor.context().communicators().world().rank();
    std::array<std::size_t, L::rank> first;
    for (std::size_t d = 0; d < L::rank; ++d)
        first[d] = block_of(L::value.dimensions[d], tensor.extents()[d], mesh, rank).begin();
    return first;
}

/// A number from -0.5 to 0.5 that depends on an index alone (Steele et al. 2014, SplitMix64).
KOKKOS_INLINE_FUNCTION double random_at(std::uint64_t index) {
    index = (index + 1) * 0x9e3779b97f4a7c15;
    index = (index ^ (index >> 30)) * 0xbf58476d1ce4e5b9;
    index = (index ^ (index >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((index ^ (index >> 31)) >> 11) / 9007199254740992.0 - 0.5;
}

/// The largest of a number over all ranks, and the sum.
inline double largest(double own) {
    MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return own;
}
inline double sum(double own) {
    MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return own;
}
/// Bytes that this rank has sent since the ledger was cleared.
inline double bytes_sent() {
    double bytes = 0;
    for (auto const axis : observe::ledger().axes()) bytes += observe::ledger().bytes(axis);
    return bytes;
}
/// Bytes that this rank sends from one layout to another, by the plan.
template <class From, class To, class Exec>
double planned_bytes(Context<Exec> const& context, std::array<std::size_t, From::rank> const& extents) {
    auto const& communicators = context.communicators();
    return cost_of(Plan<From, To>::value, From::value, extents, communicators.mesh(), communicators.world().rank())
        .total();
}
/// Whether sums over axes, and over ranks, are of the same bytes.
inline bool are_near(double sent, double planned) { return std::abs(sent - planned) <= 1e-9 * planned; }
/// The whole of a tensor, on each rank.
template <class Whole, class L, class Exec, class M>
std::vector<typename L::element> gathered(Tensor<L, Exec, M> const& tensor) {
    auto const whole = redistribute<Whole>(tensor);
    std::vector<typename L::element> elements(whole.size());
    whole.get(elements.data());
    return elements;
}
/// Seconds that f() takes, the slowest rank's.
template <class F>
double seconds(F const& f) {
    MPI_Barrier(MPI_COMM_WORLD);
    double const start = MPI_Wtime();
    f();
    return largest(MPI_Wtime() - start);
}

} // namespace fields
