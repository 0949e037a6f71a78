// What tests of writers that are ended at any moment share: processes that stop at their n-th system call.
#pragma once

#include <doctest/doctest.h>

#include <pentad/io/temporaries.hpp>

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace test {

/// A process of its own; `work` ends it, or it ends with status 0.
inline pid_t start(std::function<void()> const& work) {
    pid_t const process = ::fork();
    REQUIRE(process >= 0);
    if (process > 0) return process;
    for (int const signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL); // doctest has handlers
    try {
        work();
    } catch (...) {
        ::_exit(99);
    }
    ::_exit(0);
}
inline int end_of(pid_t process) {
    int status = 0;
    REQUIRE(::waitpid(process, &status, 0) == process);
    return status;
}

/// Whether files are made without names, as long as it lives.
class Unnamed {
  public:
    explicit Unnamed(bool unnamed) { pentad::io::detail::may_be_unnamed = unnamed; }
    Unnamed(Unnamed const&) = delete;
    Unnamed& operator=(Unnamed const&) = delete;
    ~Unnamed() { pentad::io::detail::may_be_unnamed = true; }
};

/// Runs `work` in a process up to its n-th system call.
/// @return its status there: stopped, or ended where there are fewer
inline int stopped(pid_t& process, int n, std::function<void()> const& work) {
    process = start([&] {
        if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(98);
        ::raise(SIGSTOP);
        work();
    });
    int status = end_of(process);
    for (int stop = 0; WIFSTOPPED(status) && stop < 2 * n; ++stop) { // it stops before each and after
        ::ptrace(PTRACE_SYSCALL, process, nullptr, nullptr);
        status = end_of(process);
    }
    return status;
}
/// The same, and there it gets the signal (0: none).
/// @return how it ended
inline int
interrupted(int n, int signal, std::function<void()> const& work, std::function<void()> const& meanwhile = [] {}) {
    pid_t process = 0;
    int status = stopped(process, n, work);
    if (!WIFSTOPPED(status)) return status;
    meanwhile();
    if (signal == SIGKILL) ::kill(process, SIGKILL);
    while (WIFSTOPPED(status)) { // a second time where a handler raises the signal again
        ::ptrace(PTRACE_CONT, process, nullptr, static_cast<long>(signal));
        status = end_of(process);
        if (WIFSTOPPED(status)) signal = WSTOPSIG(status);
    }
    return status;
}

} // namespace test
