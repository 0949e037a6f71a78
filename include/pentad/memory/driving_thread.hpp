// The one host thread that drives Pentad.
#pragma once

#include <stdexcept>
#include <thread>

namespace pentad::memory {

namespace detail {
inline std::thread::id& driving_thread() {
    static std::thread::id id = std::this_thread::get_id();
    return id;
}
} // namespace detail

/// From now on this thread makes tensors and communicates, in place of the first that did so. The two must not do so at
/// the same time.
inline void drive_from_this_thread() { detail::driving_thread() = std::this_thread::get_id(); }

/// A call: it is asked wherever memory is taken.
/// @throws std::logic_error on another thread than the one that makes tensors and communicates
[[gnu::noinline]] inline void require_driving_thread() {
    if (detail::driving_thread() != std::this_thread::get_id())
        throw std::logic_error(
            "pentad: a second host thread makes tensors or communicates: one thread of a process does, "
            "or call pentad::memory::drive_from_this_thread() where another takes over");
}

} // namespace pentad::memory
