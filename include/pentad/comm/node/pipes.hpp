// Pipes through which a rank lends pages of its memory to the others of a node (vmsplice): the kernel
// copies once, and finds the pages faster than when it looks them up in another process.
#pragma once

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pentad::comm::node {

/// The pipes between one rank of a group and each other. Nobody waits for what is not there yet.
class Pipes {
  public:
    /// The size of the largest group with pipes. Pipes of larger groups would take more descriptors, and more of a
    /// user's limit for pipes, than they are worth.
    static constexpr std::size_t most_ranks = 8;

    Pipes() = default;
    Pipes(Pipes const&) = delete;
    Pipes& operator=(Pipes const&) = delete;
    ~Pipes() {
        close_own();
        for (int const descriptor : from_)
            if (descriptor >= 0) close(descriptor);
    }

    /// Makes those through which rank `me` of `ranks` lends, the first time.
    /// @param read_ends gets their descriptors, for the others to open
    /// @return false when they cannot be had
    [[gnu::cold]] bool make(std::size_t ranks, std::size_t me, std::int32_t* read_ends);
    /// Opens the one through which rank p of `ranks` lends to this one. False when it cannot.
    [[gnu::cold]] bool open(std::size_t ranks, std::size_t p, std::int32_t process, std::int32_t descriptor);
    /// Lends rank p as many of these bytes as there is room for: they must not change until it has taken them.
    /// @return how many; -1: errno says why not
    [[nodiscard]] ssize_t give(std::size_t p, std::byte const* from, std::size_t bytes) const {
        iovec const range{const_cast<std::byte*>(from), bytes};
        return or_none(vmsplice(ends_[p].write, &range, 1, SPLICE_F_NONBLOCK));
    }
    /// Copies what rank p has lent, at most `bytes` bytes.
    [[nodiscard]] ssize_t take(std::size_t p, std::byte* to, std::size_t bytes) const {
        ssize_t const got = ::read(from_[p], to, bytes);
        if (got == 0) errno = EPIPE; // it has left
        return got == 0 ? -1 : or_none(got);
    }

  private:
    /// In all its pipes: a user may have 64 MiB before the system makes all others' smaller (pipe-user-pages-soft).
    static constexpr unsigned bytes_of_rank = 1U << 20;
    struct Ends {
        int read_by_other = -1, write = -1;
    };
    static ssize_t or_none(ssize_t moved) { return moved < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : moved; }
    [[gnu::cold]] void close_own();
    std::vector<Ends> ends_;
    std::vector<int> from_;
    bool is_tried_ = false;
};

} // namespace pentad::comm::node

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/node/pipes.hpp>
#endif
