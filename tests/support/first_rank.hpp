// What one rank computes by itself, for all: the ranks share the cores, and each would compute the same.
#pragma once

#include <support/on_mesh.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace support {

// Values from the first rank to all, behind the profiling interface.
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
    auto size = map.size();
    send_to_all(size);
    if (world_rank() == 0) {
        for (auto& [name, value] : map) {
            auto sent = name;
            send_to_all(sent);
            send_to_all(value);
        }
        return;
    }
    map.clear();
    for (std::size_t i = 0; i < size; ++i) {
        std::string name;
        send_to_all(name);
        send_to_all(map[name]);
    }
}

/// f() of the first rank, on all: f communicates with nobody. Collective.
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
