// The ranks of a communicator that share a node's memory, found by mapping each other's: what they post to
// each other, the mailboxes through which data goes that lies in no segment, and what the kernel lets them read or
// lend.
#pragma once

#include <pentad/comm/environment.hpp>
#include <pentad/comm/error.hpp>
#include <pentad/comm/node/copy_methods.hpp>
#include <pentad/comm/node/pipes.hpp>
#include <pentad/comm/proc_line.hpp>
#include <pentad/memory/shared_memory.hpp>

#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace pentad::comm::node {

/// What a rank says about the exchange it has come to. All ranks must say the same up to `buffer`.
struct Notice {
    static constexpr std::uint64_t given_counts = ~std::uint64_t{0}, boxes = std::uint64_t{1} << 63;

    std::uint32_t operation = 0; ///< an observe::Operation
    std::uint32_t element = 0;   ///< which type, and how it is reduced
    std::int64_t root = -1;
    std::uint64_t bytes = 0; ///< of the unscattered side; or given_counts; or boxes + bytes of the longest
    // What follows is the rank's own.
    memory::Place buffer;      ///< what the others read (all-reduce: and write), where it lies in a segment
    std::uint64_t address = 0; ///< of the same in its process, where the kernel is to read it
    std::uint64_t longest = 0; ///< of the pieces that this rank sends
    bool lends = false;        ///< the kernel is to read it from this rank's pipes
    CopyMethod suggestion = CopyMethod::cached; ///< for the next exchange of this kind, of buffers that lie alike
    [[nodiscard]] bool is_open() const { return buffer.is_shared() || address != 0; }
};

/// How far a rank is: numbers that only grow. In exchange e a rank posts filled = (e << 24) + 1 when it has come, and
/// in each of the first three 1 more a chunk; finished = e + 1 in the end.
struct alignas(64) Slot {
    std::atomic<std::uint64_t> filled, reduced, drained, finished;
    /// (e << 24) + 2 when the rank has mapped the segments that it reads and opened the pipes, + 1: it cannot.
    std::atomic<std::uint64_t> mapped;
    Notice notice;
};

/// Why a group can do nothing any more, in the words of the rank that found out. It tells all: each looks at its own.
struct alignas(64) Failure {
    std::atomic<std::uint64_t> found_by; ///< 1 + that rank; 0: there is none
    std::array<char, 504> why;
};

/// A piece that a rank sends in an all-to-all of given counts. Pieces that are boxes have the bytes of the whole array
/// as their offset.
struct Piece {
    std::uint64_t offset, bytes;
};

/// How many ranks each node has, where all have as many, which follow each other; else 0. Nodes are numbered in the
/// order of their first ranks.
std::size_t ranks_per_node(std::vector<int> const& node_of);

/// The ranks that share a node, in the order of the communicator's ranks; alone when there are no others.
class Group {
  public:
    /// Exchanges under way at once, beyond which the next one waits; of them, those that a `box` would not hold,
    /// whichever way they then go; and the chunks of one of these that are in mailboxes at once.
    static constexpr std::size_t slots = 8, lanes = 2, depth = 2;
    /// Bytes of a mailbox of a slot, and of one of a lane, as measured on two cores with and without a common cache.
    static constexpr std::size_t box = std::size_t{32} << 10, chunk = std::size_t{512} << 10;
    static constexpr std::size_t most_ranks = box / 64;
    static constexpr std::uint64_t never = ~std::uint64_t{0};

    /// Collective over `comm`.
    [[gnu::cold]] explicit Group(MPI_Comm comm);
    Group(Group const&) = delete;
    Group& operator=(Group const&) = delete;
    [[gnu::cold]] ~Group();

    [[nodiscard]] std::size_t size() const { return members_.size(); }
    [[nodiscard]] std::size_t rank() const { return rank_; }
    /// Processors of the node: the smallest number that a member reports, the same on all members.
    [[nodiscard]] std::size_t processors() const { return processors_; }
    /// True when more of the communicator's ranks run on this machine, be it taken for several nodes, than it has
    /// processors.
    [[nodiscard]] bool shares_cores() const { return ranks_of_machine_ > processors_; }
    /// How many nodes the communicator's ranks lie on, when each node shares memory among as many of them, two or more,
    /// which follow each other; otherwise 0. And which of the nodes this is.
    [[nodiscard]] std::size_t nodes() const { return nodes_; }
    [[nodiscard]] std::size_t node() const { return node_; }
    /// The node of each rank of the communicator, numbered in the order of their first ranks.
    [[nodiscard]] std::vector<int> const& node_of() const { return node_of_; }
    /// The ranks of the communicator that are members.
    [[nodiscard]] std::vector<int> const& members() const { return members_; }

    [[nodiscard]] Slot& slot(std::size_t rank, std::size_t slot) const { return slot_of(blocks_[rank], slot); }
    [[nodiscard]] Piece* pieces(std::size_t rank, std::size_t slot) const {
        return reinterpret_cast<Piece*>(blocks_[rank] + pieces_at_) + slot * size();
    }
    [[nodiscard]] std::byte* slot_box(std::size_t rank, std::size_t slot) const {
        return blocks_[rank] + mail_at_ + slot * box;
    }
    [[nodiscard]] std::byte* lane_box(std::size_t rank, std::size_t lane, std::size_t chunk_number) const {
        return blocks_[rank] + mail_at_ + slots * box + (lane * depth + chunk_number % depth) * chunk;
    }
    /// True when every member's number in this slot has come to `value`.
    [[nodiscard]] bool all_at(std::size_t slot, std::atomic<std::uint64_t> Slot::* number, std::uint64_t value) const {
        for (auto* const block : blocks_)
            if ((slot_of(block, slot).*number).load(std::memory_order_acquire) < value) return false;
        return true;
    }
    /// The number of the next exchange: the same on all members, which begin them in the same order.
    std::uint64_t next() { return next_++; }
    struct Lane {
        std::size_t number;
        std::uint64_t before; ///< the exchange that had it before: one that all must have finished
        std::uint64_t last;   ///< the exchange that took a lane last
    };
    /// Takes a lane for exchange `number`.
    Lane take_lane(std::uint64_t number) {
        std::size_t const lane = next_lane_++ % lanes;
        return {lane, std::exchange(lane_users_[lane], number), lane_users_[(lane + lanes - 1) % lanes]};
    }
    /// True when all members have finished exchange `number`, or there was none.
    [[nodiscard]] bool all_finished(std::uint64_t number) const {
        return number == never || all_at(number % slots, &Slot::finished, number + 1);
    }
    /// True when the kernel lets every member read every other's memory.
    [[nodiscard]] bool reads_processes() const { return reads_processes_; }
    /// Reads from the memory of another member.
    /// @throws Error when it cannot
    void read_process(std::size_t rank, std::uint64_t address, std::byte* to, std::size_t bytes) const {
        if (!read(places_[rank].process, address, to, bytes)) passed(rank, -1, "read the memory of rank ");
    }
    /// Makes the pipes through which this member lends, opens that of another: false where they cannot be had.
    [[nodiscard]] bool makes_pipes() { return pipes_.make(size(), rank_, pipes_of(rank_)); }
    [[nodiscard]] bool opens_pipe(std::size_t rank) {
        return pipes_.open(size(), rank, places_[rank].process, pipes_of(rank)[rank_]);
    }
    /// Lends a member what has room in the pipe to it, takes what is there of what it lends.
    /// @return how many bytes
    /// @throws Error when they cannot be lent or taken
    std::size_t lend(std::size_t rank, std::byte const* from, std::size_t bytes) const {
        return passed(rank, pipes_.give(rank, from, bytes), "lend memory to rank ");
    }
    std::size_t take_lent(std::size_t rank, std::byte* to, std::size_t bytes) const {
        return passed(rank, pipes_.take(rank, to, bytes), "take the memory lent by rank ");
    }
    /// Whether the kernel can read this memory, of this process, for others: not what a driver has mapped. What was
    /// recently found readable is not asked for again.
    [[nodiscard]] bool is_readable(std::byte const* memory, std::size_t bytes);
    /// What this rank reads of another before it is summed: so little that all of it stays in cache.
    [[nodiscard]] std::byte* tile(std::size_t rank) const {
        return reinterpret_cast<std::byte*>(tiles_.get()) + rank * tile_bytes();
    }
    [[nodiscard]] std::size_t tile_bytes() const {
        return std::max((std::size_t{256} << 10) / size() / 64 * 64, std::size_t{4096});
    }
    /// What is known about copy methods.
    [[nodiscard]] CopyMethods& methods() { return methods_; }
    /// What is known about copy methods of exchanges of boxes.
    [[nodiscard]] CopyMethods& box_methods() { return box_methods_; }

    /// Tells all members that the group can do nothing any more: what is under way fails, and so will what is begun.
    void fail(std::string_view why) const;
    /// fail(), and
    /// @throws Error
    [[noreturn]] void give_up(std::string const& why) const {
        fail(why);
        throw Error(why);
    }
    [[nodiscard]] bool has_failed() const {
        return !blocks_.empty() && failure_of(blocks_[rank_]).found_by.load(std::memory_order_acquire) != 0;
    }
    /// @throws Error when the group has failed
    void require_working() const {
        if (!has_failed()) return;
        auto const by = failure_of(blocks_[rank_]).found_by.load(std::memory_order_acquire) - 1;
        throw Error("this group failed: " + std::string(failure_of(blocks_[by]).why.data()));
    }

    /// Whether this rank knows that all members have mapped a segment.
    [[nodiscard]] bool is_mapped(std::uint64_t segment) const { return mapped_.count(segment) > 0; }
    void all_have_mapped(std::uint64_t segment) { mapped_.insert(segment); }

  private:
    /// What the kernel has moved from or to another member, if it has.
    std::size_t passed(std::size_t rank, ssize_t moved, char const* what) const;
    [[nodiscard]] std::int32_t* pipes_of(std::size_t rank) const {
        return reinterpret_cast<std::int32_t*>(blocks_[rank] + pipes_at_);
    }
    static Slot& slot_of(std::byte* block, std::size_t slot) {
        return reinterpret_cast<Slot*>(block + sizeof(Failure))[slot];
    }
    static Failure& failure_of(std::byte* block) { return *reinterpret_cast<Failure*>(block); }
    /// What a rank shows to find out with whom it shares a node.
    struct ProcessInfo {
        std::uint64_t kernel, isolation;
        std::int64_t node;
        std::int64_t processors;
        memory::Place block;
        std::uint64_t address; ///< of the block, in that process
    };
    struct Verdict {
        bool all_mapped, all_read;
        std::array<char, 127> why;
    };
    static bool together(ProcessInfo const& a, ProcessInfo const& b) {
        return a.kernel == b.kernel && a.isolation == b.isolation && a.node == b.node;
    }
    /// Reads another process's memory by the kernel, which may not let us.
    static bool read(std::int32_t process, std::uint64_t address, std::byte* to, std::size_t bytes);
    /// True when it is the other's block that is found there.
    static bool can_read(ProcessInfo const& process);
    [[gnu::cold]] void find_nodes(std::vector<ProcessInfo> const& processes, std::vector<Verdict> const& verdicts,
                                  int mine);
    template <class T>
    static std::vector<T> gathered(MPI_Comm comm, T const& own) {
        int ranks = 1;
        MPI_Comm_size(comm, &ranks);
        std::vector<T> all(static_cast<std::size_t>(ranks));
        check(MPI_Allgather(&own, sizeof(T), MPI_BYTE, all.data(), sizeof(T), MPI_BYTE, comm), "MPI_Allgather");
        return all;
    }
    [[gnu::cold]] static std::uint64_t kernel() {
        return std::hash<std::string>{}(proc_line("/proc/sys/kernel/random/boot_id"));
    }
    /// Processes in different IPC namespaces are to share no memory, even where they could.
    static std::uint64_t isolation() {
        struct stat status{};
        return stat("/proc/self/ns/ipc", &status) == 0 ? status.st_ino : 0;
    }
    /// PENTAD_RANKS_PER_NODE=k: every k ranks of the world are taken for a node of their own.
    [[gnu::cold]] static std::int64_t simulated_node();
    [[gnu::cold]] static void complain(char const* why);

    std::size_t pieces_at_ = 0, pipes_at_ = 0, mail_at_ = 0, rank_ = 0, nodes_ = 0, node_ = 0, ranks_of_machine_ = 0;
    std::size_t processors_ = SIZE_MAX;
    std::vector<int> members_, node_of_;
    std::vector<memory::Place> places_;
    std::vector<std::byte*> blocks_;
    std::uint64_t next_ = 0, next_lane_ = 0;
    std::array<std::uint64_t, lanes> lane_users_{never, never};
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    std::unique_ptr<Line[]> tiles_;
    std::array<std::pair<std::uintptr_t, std::uintptr_t>, 8> readable_{}; ///< from, to
    std::size_t next_readable_ = 0;
    CopyMethods methods_, box_methods_;
    Pipes pipes_;
    bool reads_processes_ = false;
    std::unordered_set<std::uint64_t> mapped_;
};

} // namespace pentad::comm::node

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/node/group.hpp>
#endif
