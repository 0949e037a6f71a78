// How much memory a process may still take: from the system, within its control groups and its own
// limits.
#pragma once

#include <pentad/mesh/number.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

namespace pentad::program {

/// Bytes, and what sets that bound.
struct AvailableMemory {
    double bytes = std::numeric_limits<double>::infinity();
    std::string bound;

    void at_most(double other, std::string_view by) {
        if (other >= bytes) return;
        bytes = std::max(other, 0.0);
        bound = by;
    }
};

namespace detail {

/// The number that is all of a file of the kernel; infinity where there is none ("max").
inline double number_of(std::filesystem::path const& path) {
    std::string word;
    std::ifstream(path) >> word;
    auto const number = number_in<std::uint64_t>(word);
    return number ? static_cast<double>(*number) : std::numeric_limits<double>::infinity();
}

/// The file of this process's control group `group`, and those around it up to the root, that bounds memory most.
inline void bound_by_groups(AvailableMemory& available, std::filesystem::path const& mount, std::string group,
                            char const* limit, char const* used, char const* statistics, std::string_view cache) {
    for (;; group = group.substr(0, group.rfind('/'))) {
        auto const folder = mount.string() + group;
        std::error_code ignored;
        if (std::filesystem::exists(folder + "/" + limit, ignored)) {
            double reclaimable = 0; // pages of files, which make room
            std::ifstream file(folder + "/" + statistics);
            for (std::string name, value; file >> name >> value;)
                if (name == cache) reclaimable = static_cast<double>(number_in<std::uint64_t>(value).value_or(0));
            available.at_most(number_of(folder + "/" + limit) - number_of(folder + "/" + used) + reclaimable,
                              "the limit of its control group");
        }
        if (group.empty() || group == "/") return;
    }
}

} // namespace detail

/// What all processes of this machine can take together from now on.
inline AvailableMemory memory_of_host() {
    AvailableMemory available;
    std::ifstream information("/proc/meminfo");
    for (std::string name, unit; information >> name;) {
        std::uint64_t kilobytes = 0;
        information >> kilobytes;
        std::getline(information, unit);
        if (name == "MemAvailable:")
            available.at_most(1024 * static_cast<double>(kilobytes), "what the system has free");
    }
    std::ifstream groups("/proc/self/cgroup"); // "0::/path" of version 2, "4:memory:/path" of version 1
    for (std::string line; std::getline(groups, line);) {
        auto const first = line.find(':'), second = line.find(':', first + 1);
        if (second == std::string::npos) continue;
        auto const kind = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
        if (kind.empty())
            detail::bound_by_groups(available, "/sys/fs/cgroup", path, "memory.max", "memory.current", "memory.stat",
                                    "inactive_file");
        else if (("," + kind + ",").find(",memory,") != std::string::npos)
            detail::bound_by_groups(available, "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                    "memory.usage_in_bytes", "memory.stat", "total_inactive_file");
    }
    return available;
}

/// What this process alone can take from now on, by its own limits (ulimit).
inline AvailableMemory memory_of_process() {
    AvailableMemory available;
    std::uint64_t pages = 0, resident = 0, shared = 0, text = 0, library = 0, data = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident >> shared >> text >> library >> data;
    double const page = static_cast<double>(sysconf(_SC_PAGESIZE));
    auto const bound = [&](auto resource, std::uint64_t used, std::string_view name) {
        rlimit limit{};
        if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
            available.at_most(static_cast<double>(limit.rlim_cur) - page * static_cast<double>(used), name);
    };
    bound(RLIMIT_AS, pages, "the limit of its address space (ulimit -v)");
    bound(RLIMIT_DATA, data, "the limit of its data (ulimit -d)");
    return available;
}

} // namespace pentad::program
