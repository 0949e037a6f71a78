// How every program of this project ends: one sentence on standard error and a status that says whose
// turn it is.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/io/temporaries.hpp>
#include <pentad/mesh/one_line.hpp>

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace pentad::program {

enum ExitStatus : int {
    done = 0,
    internal_error = 1,
    bad_input = 2,       ///< refused before anything was done: the user changes the command
    outside_failure = 3, ///< a disk, a file, the memory, numbers that are not finite
};

/// Ends a program: the sentence and the status. Thrown by all ranks alike, of which the first speaks.
class Ending : public std::runtime_error {
  public:
    Ending(ExitStatus status, std::string const& sentence) : std::runtime_error(sentence), status_(status) {}
    [[nodiscard]] ExitStatus status() const { return status_; }

  private:
    ExitStatus status_;
};
/// What the user has to change.
class BadInput : public Ending {
  public:
    explicit BadInput(std::string const& sentence) : Ending(bad_input, sentence) {}
};
/// What the outside world has refused, or what came out of it.
class OutsideFailure : public Ending {
  public:
    explicit OutsideFailure(std::string const& sentence) : Ending(outside_failure, sentence) {}
};

/// How a program ends for the exception that is being handled.
inline Ending ending_of_current_exception() {
    try {
        throw;
    } catch (Ending const& ending) {
        return ending;
    } catch (std::invalid_argument const& error) { // the library's word for what the caller has to change
        return {bad_input, error.what()};
    } catch (io::FileError const& error) {
        return {outside_failure, error.what()};
    } catch (std::bad_alloc const&) {
        return {outside_failure, "there is not enough memory"};
    } catch (std::exception const& error) {
        std::string_view const what = error.what();
        if (what.find("failed to allocate") == what.npos) return {internal_error, error.what()};
        // That of Kokkos, which says where and how much in several lines, and is no std::bad_alloc.
        return {outside_failure, "there is not enough memory: " + std::string(what.substr(0, what.find('\n')))};
    }
}

/// The result of `f`, which looks at what the user has named: a file that it cannot use is bad input.
template <class F>
decltype(auto) with_files_of_user(F&& f) {
    try {
        return f();
    } catch (io::FileError const& error) {
        throw BadInput(error.what());
    }
}

/// Prints the sentence on one line, whatever it quotes.
inline void say(std::string_view program, std::string_view sentence) {
    print_error(std::string(program) + ": " + one_line(sentence, 2000));
}

/// What the program has printed reaches its reader, or the status says that it has not.
inline int flushed(std::string_view program, int status) {
    errno = 0;
    bool const fails = std::fflush(stdout) != 0;
    if (!fails && std::ferror(stdout) == 0) return status;
    // What failed earlier is asked for again: an empty line.
    if (!fails && ::write(STDOUT_FILENO, "\n", 1) >= 0) errno = EIO;
    if (status == done) say(program, "cannot write to standard output: " + std::generic_category().message(errno));
    return status == done ? outside_failure : status;
}

/// A file that grows beyond the limit of the process is an error of the write, not the end of the program.
inline void ignore_file_size_signal() { (void)std::signal(SIGXFSZ, SIG_IGN); }

/// A program of one process: runs `body`, and says what ends it.
template <class Body>
int run_alone(std::string_view name, Body&& body) {
    ignore_file_size_signal();
    io::remove_temporaries_on_signals();
    try {
        return flushed(name, body());
    } catch (...) {
        auto const ending = ending_of_current_exception();
        say(name, ending.what());
        return flushed(name, ending.status());
    }
}

} // namespace pentad::program
