// The functions of <pentad/comm/node/group.hpp>.
#pragma once

#include <pentad/comm/node/group.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/mesh/one_line.hpp>

#include <sys/uio.h>

#include <cerrno>
#include <cstdio>

namespace pentad::comm::node {

PENTAD_INLINE std::size_t ranks_per_node(std::vector<int> const& node_of) {
    auto const nodes = static_cast<std::size_t>(1 + *std::max_element(node_of.begin(), node_of.end()));
    std::size_t const each = node_of.size() / nodes;
    for (std::size_t rank = 0; rank < node_of.size(); ++rank)
        if (static_cast<std::size_t>(node_of[rank]) != rank / each) return 0;
    return each;
}

PENTAD_INLINE Group::Group(MPI_Comm comm) {
    int ranks = 1, mine = 0;
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_rank(comm, &mine);
    pieces_at_ = sizeof(Failure) + slots * sizeof(Slot);
    pipes_at_ = pieces_at_ + slots * sizeof(Piece) * static_cast<std::size_t>(ranks);
    mail_at_ = (pipes_at_ + sizeof(std::int32_t) * static_cast<std::size_t>(ranks) + 4095) / 4096 * 4096;
    auto& segments = memory::shared_memory();
    if (auto const limit = environment::shared_memory_limit()) segments.limit(*limit);
    void* const block = segments.allocate(mail_at_ + slots * box + lanes * depth * chunk);
    auto const own = block == nullptr ? memory::Place{} : segments.locate(block, 1);
    auto const processes =
        gathered(comm, ProcessInfo{kernel(), isolation(), simulated_node(), sysconf(_SC_NPROCESSORS_ONLN), own,
                                   reinterpret_cast<std::uintptr_t>(block)});

    std::vector<std::byte*> blocks;
    bool all_mapped = own.is_shared(), all_read = own.is_shared();
    int unmapped = -1;
    for (int rank = 0; rank < ranks; ++rank) {
        auto const& process = processes[static_cast<std::size_t>(rank)];
        auto const& me = processes[static_cast<std::size_t>(mine)];
        if (process.kernel == me.kernel) ++ranks_of_machine_;
        if (!together(process, me)) continue;
        if (rank == mine) rank_ = members_.size();
        members_.push_back(rank);
        processors_ = std::min(processors_, static_cast<std::size_t>(process.processors));
        places_.push_back(process.block);
        blocks.push_back(rank == mine ? static_cast<std::byte*>(block) : segments.at(process.block, /*pinned=*/true));
        all_mapped = all_mapped && blocks.back() != nullptr;
        all_read = all_read && (rank == mine || can_read(process));
        if (blocks.back() == nullptr && process.block.is_shared()) unmapped = rank;
    }
    Verdict verdict{all_mapped, all_read, {}};
    if (!own.is_shared())
        segments.complaint().copy(verdict.why.data(), verdict.why.size() - 1);
    else if (unmapped >= 0)
        std::snprintf(verdict.why.data(), verdict.why.size(), "rank %d cannot map what rank %d shares", mine, unmapped);
    auto const verdicts = gathered(comm, verdict);
    find_nodes(processes, verdicts, mine);
    for (int const member : members_) {
        auto const& theirs = verdicts[static_cast<std::size_t>(member)];
        all_mapped = all_mapped && theirs.all_mapped;
        all_read = all_read && theirs.all_read;
        if (verdict.why[0] == '\0') verdict = theirs;
    }
    if (all_mapped && members_.size() > 1 && members_.size() <= most_ranks) {
        blocks_ = std::move(blocks);
        reads_processes_ = all_read;
        if (all_read) tiles_ = std::make_unique<Line[]>(size() * tile_bytes() / sizeof(Line));
        segments.found_peers();
        return;
    }
    if (!all_mapped && rank_ == 0 && members_.size() > 1) complain(verdict.why.data());
    for (std::size_t p = 0; p < blocks.size(); ++p)
        if (p != rank_) segments.forget(places_[p]);
    members_ = {mine};
    rank_ = 0;
    segments.free(block);
}

PENTAD_INLINE Group::~Group() {
    for (std::size_t p = 0; p < blocks_.size(); ++p)
        if (p != rank_) memory::shared_memory().forget(places_[p]);
    if (!blocks_.empty()) memory::shared_memory().free(blocks_[rank_]);
    memory::shared_memory().forget_freed();
}

PENTAD_INLINE bool Group::is_readable(std::byte const* memory, std::size_t bytes) {
    auto const begin = reinterpret_cast<std::uintptr_t>(memory);
    for (auto const& [known, end] : readable_)
        if (known <= begin && begin + bytes <= end) return true;
    std::byte byte{};
    if (bytes == 0 || !read(getpid(), begin, &byte, 1) || !read(getpid(), begin + bytes - 1, &byte, 1)) return false;
    readable_[next_readable_++ % readable_.size()] = {begin, begin + bytes};
    return true;
}

PENTAD_INLINE void Group::fail(std::string_view why) const {
    if (blocks_.empty() || has_failed()) return;
    auto& text = failure_of(blocks_[rank_]).why;
    text[why.copy(text.data(), text.size() - 1)] = '\0';
    for (auto* const block : blocks_) {
        std::uint64_t nobody = 0;
        failure_of(block).found_by.compare_exchange_strong(nobody, rank_ + 1, std::memory_order_acq_rel);
    }
}

PENTAD_INLINE std::size_t Group::passed(std::size_t rank, ssize_t moved, char const* what) const {
    if (moved >= 0) return static_cast<std::size_t>(moved);
    std::string const why = std::strerror(errno);
    require_working(); // a rank that has left after a failure
    give_up("rank " + std::to_string(members_[rank_]) + " cannot " + what + std::to_string(members_[rank]) + ": " +
            why);
}

PENTAD_INLINE bool Group::read(std::int32_t process, std::uint64_t address, std::byte* to, std::size_t bytes) {
    while (bytes > 0) {
        iovec const here{to, bytes}, there{reinterpret_cast<void*>(address), bytes};
        ssize_t const got = process_vm_readv(process, &here, 1, &there, 1, 0);
        if (got <= 0) return false;
        address += static_cast<std::uint64_t>(got);
        to += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

PENTAD_INLINE bool Group::can_read(ProcessInfo const& process) {
    std::uint64_t number = 0;
    return process.block.is_shared() &&
           read(process.block.process, process.address - process.block.offset, reinterpret_cast<std::byte*>(&number),
                sizeof number) &&
           number == process.block.segment;
}

PENTAD_INLINE void Group::find_nodes(std::vector<ProcessInfo> const& processes, std::vector<Verdict> const& verdicts,
                                     int mine) {
    std::vector<std::size_t> first_of;
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
        std::size_t node = 0;
        while (node < first_of.size() && !together(processes[rank], processes[first_of[node]])) ++node;
        if (node == first_of.size()) first_of.push_back(rank);
        node_of_.push_back(static_cast<int>(node));
    }
    std::size_t const each = ranks_per_node(node_of_);
    if (each < 2 || each > most_ranks) return;
    for (auto const& verdict : verdicts)
        if (!verdict.all_mapped) return;
    nodes_ = processes.size() / each;
    node_ = static_cast<std::size_t>(mine) / each;
}

PENTAD_INLINE std::int64_t Group::simulated_node() {
    auto const ranks_per_node = environment::ranks_per_node();
    if (!ranks_per_node) return 0;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank / *ranks_per_node;
}

PENTAD_INLINE void Group::complain(char const* why) {
    static bool done = false;
    if (!std::exchange(done, true))
        print_error("pentad: the memory of this node cannot be shared (" + std::string(why) +
                    "): its ranks' collectives go through the MPI library");
}

} // namespace pentad::comm::node
