// MPI errors as exceptions that name the call, the axes and the ranks; the MPI environment as an object.
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::comm {

/// An MPI call failed.
class Error : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// @throws Error when an MPI call did not succeed; `where` says along which axes and between which ranks.
inline void check(int code, std::string_view call, std::string_view where = {}) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING]{};
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw Error(std::string(call) + (where.empty() ? "" : " " + std::string(where)) +
                " failed: " + std::string(text, static_cast<std::size_t>(length)));
}

/// Initialises MPI, for one thread at a time (progress_thread.hpp), and finalizes it at the end of its life.
class Environment {
  public:
    Environment(int& argc, char**& argv) {
        int provided = 0;
        check(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    }
    Environment(Environment const&) = delete;
    Environment& operator=(Environment const&) = delete;
    ~Environment() { MPI_Finalize(); }
};

} // namespace pentad::comm
