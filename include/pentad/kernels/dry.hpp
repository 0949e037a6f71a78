// What a kernel does in a dry run (observe/dry_run.hpp): it records what it would read and write, and returns. A kernel
// of a user's own does the same in its first line: `if (kernels::dry("my_kernel", x, y)) return;`
#pragma once

#include <pentad/observe/dry_run.hpp>

#include <cstddef>

namespace pentad::kernels {

/// True in a dry run, which records a pass over memory that reads or writes each of `views` once: one that is read and
/// written is named twice.
template <class... Views>
bool dry(char const* name, Views const&... views) {
    auto* const run = observe::dry_run();
    if (run == nullptr) return false;
    double const bytes = (0.0 + ... + static_cast<double>(views.size() * sizeof(typename Views::value_type)));
    if (bytes > 0) run->pass(name, bytes);
    return true;
}

} // namespace pentad::kernels
