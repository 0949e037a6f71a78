// Temporary files do not stay. Most have no name until they are complete. Files with a name, which a file system
// without unnamed files needs, are removed by their process if a signal ends it, and else by the next writer of the
// same file if their process is gone: a living process holds a lock on them (flock).
#pragma once

#include <pentad/io/file.hpp>

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <string>

namespace pentad::io {

namespace detail {

/// Tests set it to false, to see what happens where file systems have no files without names.
inline bool may_be_unnamed = true;

/// What a signal handler may look at: fixed places, each taken and left by an atomic state.
struct ListedFile {
    enum State : int { unused, being_filled, listed };
    std::atomic<int> state{unused};
    std::array<char, PATH_MAX> path{};
};
inline constinit std::array<ListedFile, 128> listed_files; // a dump may have as many shards
static_assert(std::atomic<int>::is_always_lock_free);

/// Puts a path on the list for as long as it lives. One that is too long, or finds the list full, is left to the next
/// writer.
class Listed {
  public:
    explicit Listed(std::filesystem::path const& path);
    Listed(Listed const&) = delete;
    Listed& operator=(Listed const&) = delete;
    ~Listed() {
        if (place_ != nullptr) place_->state = ListedFile::unused;
    }

  private:
    ListedFile* place_ = nullptr;
};

inline constexpr std::array ending_signals{SIGINT, SIGTERM, SIGHUP};
inline std::array<struct sigaction, ending_signals.size()> former_actions{};
inline constinit std::atomic<int> publishing{0}, late_signal{0};

extern "C" inline void pentad_remove_temporaries(int signal) {
    late_signal = signal;
    if (publishing > 0) return; // for milliseconds
    late_signal = 0;
    int const error = errno;
    for (auto const& file : listed_files)
        if (file.state == ListedFile::listed) ::unlink(file.path.data());
    for (std::size_t i = 0; i < ending_signals.size(); ++i)
        if (ending_signals[i] == signal) ::sigaction(signal, &former_actions[i], nullptr);
    sigset_t this_one;
    ::sigemptyset(&this_one);
    ::sigaddset(&this_one, signal);
    ::sigprocmask(SIG_UNBLOCK, &this_one, nullptr);
    ::raise(signal);
    // A library's handler need not end the program: that of UCX, below MPI, turns on its log at SIGHUP.
    (void)::signal(signal, SIG_DFL);
    ::raise(signal);
    errno = error;
}

/// As long as it lives, a signal that ends the process waits.
class SignalsWait {
  public:
    SignalsWait() { ++publishing; }
    SignalsWait(SignalsWait const&) = delete;
    SignalsWait& operator=(SignalsWait const&) = delete;
    ~SignalsWait() {
        if (--publishing > 0) return;
        if (int const signal = late_signal.exchange(0)) ::raise(signal);
    }
};

/// Whether an open file is still the one of that name.
inline bool has_name(File const& file, std::filesystem::path const& path) {
    struct stat opened{}, named{};
    return ::fstat(file.descriptor(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

/// False where another has locked it; true where files cannot be locked.
inline bool lock(File const& file) {
    return ::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}
/// Locks a file that was made under this name. False when a writer that clears up took it for one that was left behind:
/// it was not locked yet.
inline bool lock_own(File const& file, std::filesystem::path const& path) { return lock(file) && has_name(file, path); }

/// ".NAME.": what the names of its temporary files begin with; of a long name only so much that they are no longer than
/// a file system allows.
inline std::string temporary_prefix(std::filesystem::path const& path) {
    return "." + path.filename().string().substr(0, 200) + ".";
}

/// Removes the temporary files of `path` whose process is gone.
void remove_left_behind(std::filesystem::path const& path);

} // namespace detail

/// From here on SIGINT, SIGTERM and SIGHUP remove the temporary files of this process, do what they did before, and end
/// it. A signal that is ignored stays so. For programs, at their start.
void remove_temporaries_on_signals();

/// As long as it lives, a signal to this thread waits, and to those that it starts.
class HeldSignal {
  public:
    explicit HeldSignal(int signal);
    HeldSignal(HeldSignal const&) = delete;
    HeldSignal& operator=(HeldSignal const&) = delete;
    ~HeldSignal() { (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  private:
    sigset_t before_{};
};

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/temporaries.hpp>
#endif
