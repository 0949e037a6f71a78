// Ends all ranks of a job from one of them, after it has said why.
#pragma once

#include <mpi.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace pentad::comm {

/// Ends the job with this status. Launchers discard unread standard error when a job aborts, so where it is a pipe this
/// waits up to a second until it has been read.
[[noreturn]] inline void end_job(int status) {
    std::fflush(nullptr);
    struct stat file{};
    if (::fstat(STDERR_FILENO, &file) == 0 && S_ISFIFO(file.st_mode)) {
        int unread = 0;
        for (int i = 0; i < 1000 && ::ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0; ++i) ::usleep(1000);
    }
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status); // that of MPICH returns
}

} // namespace pentad::comm
