// The functions of <pentad/comm/choice.hpp>.
#pragma once

#include <pentad/comm/choice.hpp>

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/proc_line.hpp>
#include <pentad/io/file.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/number.hpp>
#include <pentad/mesh/one_line.hpp>

#include <unistd.h>

#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

namespace pentad::comm::detail {

PENTAD_INLINE std::vector<std::string_view> words_of(std::string_view text) {
    constexpr std::string_view spaces = " \t\r\n";
    std::vector<std::string_view> words;
    for (std::size_t begin = 0; (begin = text.find_first_not_of(spaces, begin)) != std::string_view::npos;) {
        std::size_t const end = std::min(text.find_first_of(spaces, begin), text.size());
        words.push_back(text.substr(begin, end - begin));
        begin = end;
    }
    return words;
}

} // namespace pentad::comm::detail

namespace pentad::comm {

PENTAD_INLINE Tuning::Tuning() {
    using observe::Operation;
    groups_ = {{4,
                2,
                {{Operation::all_reduce, 0, std::size_t{128} << 10},
                 {Operation::reduce_scatter, 0, std::size_t{128} << 10},
                 {Operation::all_to_all, 0, std::size_t{256} << 10},
                 {Operation::all_to_all, std::size_t{8} << 20, std::numeric_limits<std::size_t>::max()}}}};
}

PENTAD_INLINE Tuning::Tuning(std::string const& text, std::string const& here) {
    bool has_machine = false;
    int number = 0;
    for (std::string_view rest = text; !rest.empty();) {
        auto const line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        ++number;
        auto const refuse = [&](std::string const& why) { throw Error("line " + std::to_string(number) + ": " + why); };
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

PENTAD_INLINE auto Tuning::of(int ranks, int nodes) const -> Group const& {
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

PENTAD_INLINE std::string Tuning::machine() {
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

PENTAD_INLINE Tuning read_tuning(MPI_Comm world) {
    int rank = 0;
    MPI_Comm_rank(world, &rank);
    std::string text;
    if (char const* const path = rank == 0 ? environment::tuning() : nullptr) {
        try {
            text = io::read_file(path, std::size_t{1} << 20);
            (void)Tuning(text, Tuning::machine());
        } catch (std::runtime_error const& error) { // reading the file, or parsing it
            print_error("pentad: PENTAD_TUNING=" + one_line(path, 300) + " is ignored: " + error.what());
            text.clear();
        }
    }
    text = broadcast_text(world, std::move(text), 0);
    return text.empty() ? Tuning() : Tuning(text, {});
}

} // namespace pentad::comm
