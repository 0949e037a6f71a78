// What is known of the terminal that people look at, if it is one.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace pentad::report {

inline bool is_terminal(std::FILE* output) { return ::isatty(::fileno(output)) != 0; }

/// 80 where nobody knows.
inline std::size_t columns_of(std::FILE* output) {
    winsize size{};
    if (::ioctl(::fileno(output), TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 80;
    return size.ws_col;
}

} // namespace pentad::report
