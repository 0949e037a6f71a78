// A page of memory that the ranks of a machine share from the start to the end of a program: who has
// said what ends it, and whether it is ending.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/comm/proc_line.hpp>

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <vector>

namespace pentad::program {

class MachineBoard {
  public:
    /// Collective over all ranks.
    MachineBoard() {
        int rank = 0, ranks = 1;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        int const descriptor = ::memfd_create("pentad: board", MFD_CLOEXEC);
        bool const is_made = descriptor >= 0 && ::ftruncate(descriptor, sizeof(Page)) == 0;
        Place const own{machine(), ::getpid(), is_made ? descriptor : -1};
        std::vector<Place> places(static_cast<std::size_t>(ranks));
        comm::check(MPI_Allgather(&own, sizeof own, MPI_BYTE, places.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD),
                    "MPI_Allgather");
        for (int r = 0; r < ranks; ++r)
            if (places[static_cast<std::size_t>(r)].machine == own.machine) ranks_.push_back(r);
        auto const position = static_cast<std::size_t>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
        neighbour_ = ranks_[(position + 1) % ranks_.size()];
        neighbour_process_ = places[static_cast<std::size_t>(neighbour_)].process;
        auto const& first = places[static_cast<std::size_t>(ranks_.front())];
        if (first.descriptor >= 0) {
            auto const path = "/proc/" + std::to_string(first.process) + "/fd/" + std::to_string(first.descriptor);
            int const file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
            void* const memory =
                file < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            if (file >= 0) ::close(file);
            if (memory != MAP_FAILED) page_ = static_cast<Page*>(memory); // zeros, which is what it begins with
        }
        comm::check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"); // all have opened it
        if (descriptor >= 0) ::close(descriptor);
    }
    MachineBoard(MachineBoard const&) = delete;
    MachineBoard& operator=(MachineBoard const&) = delete;
    ~MachineBoard() {
        if (page_ != nullptr) ::munmap(page_, sizeof(Page));
    }

    /// The ranks of this machine, and the one after this rank, round the ring.
    [[nodiscard]] std::vector<int> const& ranks() const { return ranks_; }
    [[nodiscard]] int neighbour() const { return neighbour_; }
    [[nodiscard]] int neighbour_process() const { return neighbour_process_; }

    /// True for the first rank of this machine that asks: it says why the program ends.
    bool may_speak() { return page_ == nullptr || page_->has_spoken.exchange(1) == 0; }
    /// To be called before a rank ends because it is done, or because it has failed: the first one counts.
    void leave(bool has_failed) {
        int none = 0;
        if (page_ != nullptr) page_->ending.compare_exchange_strong(none, has_failed ? failed : finished);
    }
    [[nodiscard]] bool is_finished() const { return page_ == nullptr || page_->ending.load() == finished; }
    [[nodiscard]] bool is_ending() const { return page_ == nullptr || page_->ending.load() != 0; }

  private:
    static constexpr int finished = 1, failed = 2;
    struct Page {
        std::atomic<int> has_spoken, ending;
    };
    static_assert(std::atomic<int>::is_always_lock_free);
    struct Place {
        std::uint64_t machine;
        std::int32_t process, descriptor;
    };

    /// Processes that have the same see each other under /proc.
    static std::uint64_t machine() {
        std::string id = comm::proc_line("/proc/sys/kernel/random/boot_id");
        struct stat space{};
        if (::stat("/proc/self/ns/pid", &space) == 0) id += std::to_string(space.st_ino);
        return std::hash<std::string>{}(id);
    }

    Page* page_ = nullptr;
    std::vector<int> ranks_;
    int neighbour_ = 0;
    std::int32_t neighbour_process_ = 0;
};

} // namespace pentad::program
