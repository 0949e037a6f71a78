// Which algorithm carries out a collective: the same on all ranks of a group, from what they all know. The
// library's own is taken but where the MPI library's is faster, which pentad_tune measures for a machine.
#pragma once

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/proc_line.hpp>
#include <pentad/io/file.hpp>
#include <pentad/mesh/number.hpp>
#include <pentad/mesh/one_line.hpp>
#include <pentad/observe/ledger.hpp>

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::comm {

/// What PENTAD_COLLECTIVES says, until a test or a benchmark writes another one here.
inline Algorithm& forced_algorithm() {
    static Algorithm algorithm = environment::collectives();
    return algorithm;
}

namespace detail {
/// The words of a text, which spaces and the like divide.
inline std::vector<std::string_view> words_of(std::string_view text) {
    constexpr std::string_view spaces = " \t\r\n";
    std::vector<std::string_view> words;
    for (std::size_t begin = 0; (begin = text.find_first_not_of(spaces, begin)) != std::string_view::npos;) {
        std::size_t const end = std::min(text.find_first_of(spaces, begin), text.size());
        words.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return words;
}
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
    [[gnu::cold]] Tuning() {
        using observe::Operation;
        groups_ = {{4,
                    2,
                    {{Operation::all_reduce, 0, std::size_t{128} << 10},
                     {Operation::reduce_scatter, 0, std::size_t{128} << 10},
                     {Operation::all_to_all, 0, std::size_t{256} << 10},
                     {Operation::all_to_all, std::size_t{8} << 20, std::numeric_limits<std::size_t>::max()}}}};
    }
    /// @param here the machine that it must be of, if any
    /// @throws Error that says what is wrong with the text, and in which line
    [[gnu::cold]] Tuning(std::string const& text, std::string const& here) {
        bool has_machine = false;
        int number = 0;
        for (std::string_view rest = text; !rest.empty();) {
            auto const line = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(std::min(line.size() + 1, rest.size()));
            ++number;
            auto const refuse = [&](std::string const& why) {
                throw Error("line " + std::to_string(number) + ": " + why);
            };
            auto const words = detail::words_of(line);
            if (number == 1) {
                if (line != "pentad tuning 1") refuse("it is not 'pentad tuning 1'");
            } else if (line.starts_with("machine ")) {
                if (!here.empty() && line.substr(8) != here) refuse("it is of another machine, this is " + here);
                has_machine = true;
            } else if (!words.empty() && words[0] == "group") {
                bool const is_group = words.size() == 5 && words[2] == "ranks" && words[4] == "nodes";
                int const ranks = is_group ? number_in<int>(words[1]).value_or(0) : 0;
                int const nodes = is_group ? number_in<int>(words[3]).value_or(0) : 0;
                if (ranks < 2 || nodes < 1) refuse("it is not 'group <number> ranks <number> nodes'");
                groups_.push_back({ranks, nodes, {}});
            } else if (!words.empty() && words[0] == "mpi" && !groups_.empty()) {
                bool const is_range = words.size() == 4;
                auto const from = is_range ? number_in<std::size_t>(words[2]) : std::nullopt;
                auto const to = is_range ? number_in<std::size_t>(words[3]) : std::nullopt;
                auto const& names = observe::operation_names;
                auto const name = std::find(names.begin(), names.end(), is_range ? words[1] : std::string_view());
                if (name == names.end() || !from || !to || *from >= *to)
                    refuse("it is not 'mpi <operation> <from bytes> <to bytes>'");
                groups_.back().by_mpi.push_back({static_cast<observe::Operation>(name - names.begin()), *from, *to});
            } else
                refuse("'" + one_line(line) + "' is neither machine, group nor, after a group, mpi");
        }
        if (!has_machine || groups_.empty()) throw Error("it names no machine, or no group");
    }

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
    [[nodiscard, gnu::cold]] Group const& of(int ranks, int nodes) const {
        static Group const unknown;
        Group const* nearest = &unknown;
        double least = std::numeric_limits<double>::infinity();
        for (auto const& group : groups_) {
            double const distance = std::abs(std::log2(static_cast<double>(group.ranks) / ranks)) +
                                    std::abs(std::log2(static_cast<double>(group.nodes) / nodes));
            if ((group.nodes > 1) != (nodes > 1) || distance >= least) continue;
            nearest = &group;
            least = distance;
        }
        return *nearest;
    }
    /// This machine, as a tuning names it.
    [[gnu::cold]] static std::string machine() {
        auto const line = proc_line("/proc/cpuinfo", "model name");
        auto const colon = line.find(": ");
        auto const model = colon == std::string::npos ? "unknown processor" : line.substr(colon + 2);
        char version[MPI_MAX_LIBRARY_VERSION_STRING]{};
        int length = 0;
        MPI_Get_library_version(version, &length);
        auto const words = detail::words_of(version);
        std::string mpi;
        for (std::size_t i = 0; i < std::min<std::size_t>(words.size(), 3); ++i)
            mpi.append(i == 0 ? "" : " ").append(words[i]);
        return model + ", " + std::to_string(sysconf(_SC_NPROCESSORS_CONF)) + " processors, " + mpi;
    }

  private:
    std::vector<Group> groups_;
};

/// The tuning in the file that PENTAD_TUNING names, read on the first rank, for all. One that cannot be used is
/// ignored, and a line on standard error says why. Collective over `world`.
[[gnu::cold]] inline Tuning read_tuning(MPI_Comm world) {
    int rank = 0;
    MPI_Comm_rank(world, &rank);
    std::string text;
    if (char const* const path = rank == 0 ? environment::tuning() : nullptr) {
        try {
            text = io::read_file(path, std::size_t{1} << 20);
            (void)Tuning(text, Tuning::machine());
        } catch (std::runtime_error const& error) { // of the file, or of what is in it
            print_error("pentad: PENTAD_TUNING=" + one_line(path, 300) + " is ignored: " + error.what());
            text.clear();
        }
    }
    text = broadcast_text(world, std::move(text), 0);
    return text.empty() ? Tuning() : Tuning(text, {});
}

} // namespace pentad::comm
