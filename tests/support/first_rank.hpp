// Runs a computation on the first rank alone and sends the result to all, since the ranks of a test share the cores.
#pragma once

#include <support/on_mesh.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace support {

// Sends a value from the first rank to all. Collective; pmpi_counter.hpp does not count it.
template <class T>
    requires std::is_arithmetic_v<T>
void send_to_all(T& value) {
    PMPI_Bcast(&value, sizeof(T), MPI_BYTE, 0, MPI_COMM_WORLD);
}
template <class List>
    requires(std::is_same_v<List, std::string> || std::is_same_v<List, std::vector<double>> ||
             std::is_same_v<List, std::vector<std::size_t>>)
void send_to_all(List& list) {
    auto size = list.size();
    send_to_all(size);
    list.resize(size);
    PMPI_Bcast(list.data(), static_cast<int>(size * sizeof(list[0])), MPI_BYTE, 0, MPI_COMM_WORLD);
}
inline void send_to_all(Whole& whole) {
    send_to_all(whole.extents);
    send_to_all(whole.values);
}
template <class Value, class Compare>
void send_to_all(std::map<std::string, Value, Compare>& map) {
    std::vector<std::pair<std::string, Value>> entries(map.begin(), map.end());
    auto size = entries.size();
    send_to_all(size);
    entries.resize(size);
    for (auto& [name, value] : entries) {
        send_to_all(name);
        send_to_all(value);
    }
    map = {entries.begin(), entries.end()};
}

/// The result of f() on the first rank, where f communicates with no other. Collective.
template <class F>
auto on_first_rank(F&& f) {
    std::invoke_result_t<F> result;
    try {
        if (world_rank() == 0) result = f();
    } catch (std::exception const& error) { // the others wait
        std::fprintf(stderr, "the first rank by itself: %s\n", error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    send_to_all(result);
    return result;
}

} // namespace support
