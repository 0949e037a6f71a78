// Memory of this process that the other processes of its node can map, and theirs mapped here. A segment is
// a file without a name (memfd_create) that peers open through /proc: no limit of /dev/shm applies, and nothing is left
// behind, however the processes end.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pentad::memory {

/// Where some memory lies, for the other processes of the node.
struct Place {
    std::uint64_t segment = 0; ///< a random number that the segment begins with; 0: memory that is in no segment
    std::uint64_t bytes = 0;   ///< of the segment
    std::uint64_t offset = 0;  ///< in it
    std::int32_t process = 0, descriptor = -1;
    [[nodiscard]] bool is_shared() const { return segment != 0; }
};

/// The segments of this process, and those of its peers that it has mapped. For the one host thread that drives Pentad.
class SharedMemory {
  public:
    SharedMemory() = default;
    SharedMemory(SharedMemory const&) = delete;
    SharedMemory& operator=(SharedMemory const&) = delete;
    ~SharedMemory() {
        for (auto const& [segment, mapping] : peers_) munmap(mapping.header, mapping.bytes);
    }

    /// True once peers have been found that can map what is allocated here.
    [[nodiscard]] bool has_peers() const { return has_peers_; }
    void found_peers() { has_peers_ = true; }
    /// Refuses what would make the segments of this process larger than `bytes` in sum.
    void limit(std::size_t bytes) { limit_ = bytes; }
    /// Why the last segment could not be had; empty when none was refused.
    [[nodiscard]] std::string const& complaint() const { return complaint_; }

    /// Zeroed memory in a segment of its own, aligned to a page. Null, with a complaint, when it cannot be had.
    [[nodiscard, gnu::cold]] void* allocate(std::size_t bytes);
    /// Gives memory of `allocate` back. It is the system's again when the peers that have it mapped have let go of it,
    /// which they do in `forget_freed`.
    [[gnu::cold]] void free(void* memory);
    /// Where `bytes` bytes of this process lie.
    [[nodiscard]] Place locate(void const* memory, std::size_t bytes) const;
    /// The memory of a peer at that place. Null when this process cannot map it.
    /// @param pinned it stays mapped until `forget`, also when the peer has given it back
    [[nodiscard]] std::byte* at(Place const& place, bool pinned = false) {
        auto const known = peers_.find(place.segment);
        if (known != peers_.end()) return reinterpret_cast<std::byte*>(known->second.header) + place.offset;
        return place.is_shared() ? map_peer(place, pinned) : nullptr;
    }
    /// Lets go of memory of a peer.
    void forget(Place const& place);
    /// Lets go of the memory that peers have given back.
    void forget_freed();

  private:
    static constexpr std::size_t page = 4096;
    struct Header {
        std::atomic<std::uint64_t> segment; ///< 0 when freed
    };
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
    struct Segment {
        Header* header;
        std::size_t bytes;
        int descriptor;
        bool pinned = false;
    };

    static void* data(Header* header) { return reinterpret_cast<std::byte*>(header) + page; }
    static Header* map(int descriptor, std::size_t bytes) {
        void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        return memory == MAP_FAILED ? nullptr : static_cast<Header*>(memory);
    }
    /// Maps the segment of a peer, the first time.
    [[gnu::cold]] std::byte* map_peer(Place const& place, bool pinned);
    [[gnu::cold]] void* refused(std::size_t bytes, std::string_view why) {
        complaint_ = std::to_string(bytes) + " bytes of shared memory cannot be had: " + std::string(why);
        return nullptr;
    }
    bool has_peers_ = false;
    std::size_t limit_ = SIZE_MAX, held_ = 0;
    std::string complaint_;
    std::vector<Segment> own_;
    std::unordered_map<std::uint64_t, Segment> peers_;
};

/// The shared memory of this process.
inline SharedMemory& shared_memory() {
    static SharedMemory instance;
    return instance;
}

} // namespace pentad::memory

#if !PENTAD_COMPILED_TENSOR
#include <pentad/memory/impl/shared_memory.hpp>
#endif
