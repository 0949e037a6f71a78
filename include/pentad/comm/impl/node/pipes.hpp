// The functions of <pentad/comm/node/pipes.hpp>.
#pragma once

#include <pentad/comm/node/pipes.hpp>

#include <pentad/mesh/inline.hpp>

#include <bit>
#include <string>
#include <utility>

namespace pentad::comm::node {

PENTAD_INLINE bool Pipes::make(std::size_t ranks, std::size_t me, std::int32_t* read_ends) {
    if (std::exchange(is_tried_, true)) return !ends_.empty();
    ends_.resize(ranks);
    for (std::size_t p = 0; p < ranks; ++p) {
        if (p == me) continue;
        std::byte byte{};
        int both[2];
        bool const has_both = pipe2(both, O_CLOEXEC) == 0;
        if (has_both) ends_[p].read_by_other = both[0], ends_[p].write = both[1];
        if (!has_both || give(p, &byte, 1) != 1 || ::read(both[0], &byte, 1) != 1) {
            close_own();
            return false;
        }
        fcntl(both[1], F_SETPIPE_SZ,
              std::bit_floor(bytes_of_rank / static_cast<unsigned>(ranks - 1))); // if not, smaller ones do
        read_ends[p] = both[0];
    }
    return true;
}

PENTAD_INLINE bool Pipes::open(std::size_t ranks, std::size_t p, std::int32_t process, std::int32_t descriptor) {
    from_.resize(ranks, -1);
    if (from_[p] >= 0) return true;
    std::string const path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
    from_[p] = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    return from_[p] >= 0;
}

PENTAD_INLINE void Pipes::close_own() {
    for (auto const [read_by_other, write] : ends_)
        for (int const descriptor : {read_by_other, write})
            if (descriptor >= 0) close(descriptor);
    ends_.clear();
}

} // namespace pentad::comm::node
