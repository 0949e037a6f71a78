// Notices that a rank of this machine is gone, and says which: launchers say at most that some process
// ended, and others only that nothing happens any more. Each rank watches the next one.
#pragma once

#include <pentad/program/detail/machine_board.hpp>
#include <pentad/program/exit_status.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace pentad::program {

class LostRank {
  public:
    LostRank(std::string_view program, MachineBoard& board)
        : LostRank(program, board, board.ranks().size() < 2 ? 0 : board.neighbour_process()) {}
    /// @param process that of the rank to watch; 0: none
    LostRank(std::string_view program, MachineBoard& board, int process)
        : program_(program), board_(&board), watched_process_(process) {
        if (process == 0) return;
        process_ = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
        end_ = ::eventfd(0, EFD_CLOEXEC);
        if (process_ < 0 || end_ < 0) return; // an old kernel, or a sandbox
        try {
            thread_ = std::thread([this] { watch(); });
        } catch (std::system_error const&) { // no more threads are allowed: nobody watches
        }
    }
    LostRank(LostRank const&) = delete;
    LostRank& operator=(LostRank const&) = delete;
    ~LostRank() {
        board_->leave(false);
        if (thread_.joinable()) {
            std::uint64_t const one = 1;
            if (::write(end_, &one, sizeof one) == static_cast<ssize_t>(sizeof one)) thread_.join();
        }
        for (int const descriptor : {process_, end_})
            if (descriptor >= 0) ::close(descriptor);
    }

    /// What the sentence says of the rank that is watched, such as its place on the mesh, and of how to go on.
    void describe(std::string place, std::string advice) {
        std::lock_guard const lock(words_);
        place_ = std::move(place);
        advice_ = std::move(advice);
    }
    [[nodiscard]] int watched() const { return board_->neighbour(); }

  private:
    void watch() {
        std::array<pollfd, 2> events{{{process_, POLLIN, 0}, {end_, POLLIN, 0}}};
        while (::poll(events.data(), events.size(), -1) < 0) {
        }
        if (events[1].revents != 0 || board_->is_finished()) return;
        if (!board_->is_ending() && board_->may_speak()) {
            std::array<char, 256> host{};
            ::gethostname(host.data(), host.size() - 1);
            std::lock_guard const lock(words_);
            say(program_, "rank " + std::to_string(watched()) + " on " + host.data() + place_ +
                              " is lost: its process (" + std::to_string(watched_process_) +
                              ") was killed or has crashed" + advice_);
        }
        // The launcher ends the job. Where it does not, ranks would wait for the lost one for ever.
        if (::poll(&events[1], 1, 3000) == 0) ::_exit(outside_failure);
    }

    std::string program_;
    MachineBoard* board_;
    int watched_process_, process_ = -1, end_ = -1; ///< the latter are file descriptors
    std::mutex words_;
    std::string place_, advice_;
    std::thread thread_;
};

} // namespace pentad::program
