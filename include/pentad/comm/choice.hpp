// Which algorithm carries out a collective: the same on all ranks of a group, from what they all know. The
// library's own is taken but where the MPI library's is faster, which pentad_tune measures for a machine.
#pragma once

#include <pentad/comm/environment.hpp>
#include <pentad/observe/ledger.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::comm {

/// What PENTAD_COLLECTIVES says, until a test or a benchmark writes another one here.
inline Algorithm& forced_algorithm() {
    static Algorithm algorithm = environment::collectives();
    return algorithm;
}

namespace detail {
/// The words of a text, which spaces and the like divide.
std::vector<std::string_view> words_of(std::string_view text);
} // namespace detail

/// Where the MPI library's collectives are faster, as text:
///
///     pentad tuning 1
///     machine AMD EPYC, 2 processors, MPICH Version: 5.0.2
///     group 4 ranks 2 nodes
///     mpi reduce_scatter 0 131072
///
/// says that groups like those of 4 ranks on 2 nodes take MPI's reduce-scatter below 131072 bytes of the unscattered
/// side.
class Tuning {
  public:
    /// What holds where nobody has measured: within a node never; across nodes where latency counts, and for large
    /// all-to-alls, of which two levels send as much, as measured on two hosts of two ranks joined by 1 Gbit/s.
    [[gnu::cold]] Tuning();
    /// @param here the machine that it must be of, if any
    /// @throws Error that says what is wrong with the text, and in which line
    [[gnu::cold]] Tuning(std::string const& text, std::string const& here);

    struct Range {
        observe::Operation operation;
        std::size_t from, to;
    };
    struct Group {
        int ranks = 0, nodes = 0;
        std::vector<Range> by_mpi;

        /// Whether MPI is to be called for `bytes` bytes of the unscattered side.
        [[nodiscard]] bool takes_mpi(observe::Operation operation, std::size_t bytes) const {
            return std::any_of(by_mpi.begin(), by_mpi.end(), [&](Range const& range) {
                return range.operation == operation && range.from <= bytes && bytes < range.to;
            });
        }
    };
    /// What holds for groups of that size: what was measured for the most similar. It lives as long as the tuning.
    [[nodiscard, gnu::cold]] Group const& of(int ranks, int nodes) const;
    /// This machine, as a tuning names it.
    [[gnu::cold]] static std::string machine();

  private:
    std::vector<Group> groups_;
};

/// The tuning in the file that PENTAD_TUNING names, read on the first rank, for all. One that cannot be used is
/// ignored, and a line on standard error says why. Collective over `world`.
[[gnu::cold]] Tuning read_tuning(MPI_Comm world);

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/choice.hpp>
#endif
