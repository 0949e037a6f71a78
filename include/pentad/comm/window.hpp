// Memory of the ranks of a group that all of them read in place: for algorithms that take parts of it in an
// order of their own, without a message for each.
#pragma once

#include <pentad/comm/collectives.hpp>
#include <pentad/memory/shared_memory.hpp>

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::comm {

/// The memory that each rank of a group has opened to the others. It is open where the group shares a node's memory and
/// what every rank gives lies in a segment (all buffers of the pools on the host do, once ranks have found each other).
/// What is read is not booked: whoever reads in place books what a rank sends.
class Window {
  public:
    Window() = default;
    /// Collective over the group: opens `bytes` bytes at `data`, whose contents the work of `exec` has made. Nobody
    /// writes them until all have closed. On a group of one rank, and elsewhere than on a host, nothing is opened.
    template <class Exec>
    Window(Exec const& exec, Communicator const& comm, void const* data, std::size_t bytes) : comm_(&comm) {
        bool const may_read = forced_algorithm() == Algorithm::automatic || forced_algorithm() == Algorithm::direct;
        if (comm.size() == 1 || comm.node() == nullptr || !may_read || !memory::runs_on_host<Exec>) return;
        exec.fence("pentad: before others read in place");
        auto& segments = memory::shared_memory();
        auto const places = gathered(segments.locate(data, bytes));
        std::vector<std::byte const*> addresses(places.size());
        std::uint8_t can_read = 1;
        for (std::size_t p = 0; p < places.size(); ++p) {
            bool const is_own = p == static_cast<std::size_t>(comm.rank());
            if (!places[p].is_shared())
                can_read = 0;
            else if (is_own)
                addresses[p] = static_cast<std::byte const*>(data);
            else if ((addresses[p] = segments.at(places[p])) == nullptr)
                can_read = 0;
        }
        for (auto const can : gathered(can_read)) can_read = can_read & can;
        if (can_read != 0) addresses_ = std::move(addresses);
    }

    /// Whether the window is open; the same on all ranks of the group.
    [[nodiscard]] bool is_open() const { return !addresses_.empty(); }
    /// The memory of rank `rank` of the group. @pre is_open()
    [[nodiscard]] std::byte const* of(int rank) const { return addresses_[static_cast<std::size_t>(rank)]; }
    /// Collective over the group: when it returns, no rank reads any more. To be called once everything that reads has
    /// been done.
    void close() {
        if (!is_open()) return;
        addresses_.clear();
        (void)gathered(std::uint8_t{1});
    }

  private:
    struct Nothing { // the buffers are this object's
        static constexpr bool on_host = true;
        void unpack() {}
    };
    /// What each rank gives, which is small and not booked.
    template <class T>
    std::vector<T> gathered(T const& own) const {
        static_assert(std::is_trivially_copyable_v<T>);
        auto const& comm = *comm_;
        std::vector<T> all(static_cast<std::size_t>(comm.size()));
        auto* const to = reinterpret_cast<std::byte*>(all.data());
        auto const* const from = reinterpret_cast<std::byte const*>(&own);
        Request<Nothing> request(comm, {});
        request.run(
            detail::Form::block,
            {.operation = detail::Operation::all_gather, .type = type_code<u8>(), .count = all.size() * sizeof(T)},
            all.size() * sizeof(T),
            [&] {
                return detail::begin(detail::Form::block, comm,
                                     {.operation = detail::Operation::all_gather,
                                      .in = from,
                                      .out = to,
                                      .bytes = all.size() * sizeof(T),
                                      .piece = sizeof(T),
                                      .element = 1,
                                      .type = type_code<u8>()},
                                     MPI_BYTE, MPI_OP_NULL);
            },
            "MPI_Allgather", [](MPI_Request*) { return MPI_SUCCESS; });
        return all;
    }

    Communicator const* comm_ = nullptr;
    std::vector<std::byte const*> addresses_;
};

} // namespace pentad::comm
