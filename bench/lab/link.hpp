// What a call sends over the link of its host: by the device's counter, and by the ledgers of the host's ranks.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/observe/ledger.hpp>

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace lab {

/// The name of the device.
inline std::string& device() {
    static std::string name = "eth0";
    return name;
}

/// What the device of this host has sent, with what comes before the payload of a packet.
struct Counter {
    double bytes, packets;
};
inline Counter counter() {
    std::ifstream file("/proc/net/dev");
    for (std::string line; std::getline(file, line);) {
        auto const colon = line.find(':');
        if (colon == std::string::npos ||
            line.substr(line.find_first_not_of(' '), colon - line.find_first_not_of(' ')) != device())
            continue;
        unsigned long long fields[10]{};
        char const* at = line.c_str() + colon + 1;
        for (auto& field : fields) {
            char* end = nullptr;
            field = std::strtoull(at, &end, 10);
            at = end;
        }
        return {static_cast<double>(fields[8]), static_cast<double>(fields[9])};
    }
    return {};
}

/// Of a call: the slowest rank's time; what the device that sent most has sent; and, of the host where they differ
/// most, the payload that its device has sent and what the ledgers of its ranks say.
struct Sample {
    double seconds, bytes, payload, ledger;
};
inline void print(Sample const& s) { std::printf("[%.4g, %.0f, %.0f, %.0f]", s.seconds, s.bytes, s.payload, s.ledger); }

/// Collective over the world, which is also `comm`.
inline Sample sample(pentad::comm::Communicator const& comm, std::function<void()> const& f) {
    // Ethernet, IPv4 and TCP with time stamps: 14 + 20 + 32 bytes a packet. What acknowledges is no more than that.
    constexpr double header = 66;
    auto& ledger = pentad::observe::ledger();
    MPI_Barrier(MPI_COMM_WORLD);
    auto const before = counter();
    ledger.clear();
    double const begin = MPI_Wtime();
    MPI_Barrier(MPI_COMM_WORLD);
    f();
    double seconds = MPI_Wtime() - begin, booked = 0;
    for (auto const axis : ledger.axes()) booked += ledger.network_bytes(axis);
    MPI_Barrier(MPI_COMM_WORLD);
    auto const after = counter();
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);

    double const bytes = after.bytes - before.bytes, payload = bytes - header * (after.packets - before.packets);
    double const mine[3]{bytes, payload, booked};
    std::vector<double> all(3 * static_cast<std::size_t>(comm.size()));
    MPI_Allgather(mine, 3, MPI_DOUBLE, all.data(), 3, MPI_DOUBLE, MPI_COMM_WORLD);
    struct Host {
        double bytes = 0, payload = 0, ledger = 0;
        [[nodiscard]] double error() const { return std::abs(ledger - payload); }
    };
    std::vector<Host> hosts(static_cast<std::size_t>(comm.nodes().count()));
    for (int rank = 0; rank < comm.size(); ++rank) {
        auto const* const theirs = all.data() + 3 * static_cast<std::size_t>(rank);
        auto& host = hosts[static_cast<std::size_t>(comm.nodes().of(rank))];
        host = {theirs[0], theirs[1], host.ledger + theirs[2]};
    }
    auto const less = [](auto member) {
        return [member](Host const& a, Host const& b) { return std::invoke(member, a) < std::invoke(member, b); };
    };
    auto const& worst = *std::max_element(hosts.begin(), hosts.end(), less(&Host::error));
    auto const& busiest = *std::max_element(hosts.begin(), hosts.end(), less(&Host::bytes));
    return {seconds, busiest.bytes, worst.payload, worst.ledger};
}

} // namespace lab
