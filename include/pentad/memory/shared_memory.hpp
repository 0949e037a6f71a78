// Memory of this process that the other processes of its node can map, and theirs mapped here. A segment is
// a file without a name (memfd_create) that peers open through /proc: no limit of /dev/shm applies, and nothing is left
// behind, however the processes end.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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
    [[nodiscard, gnu::cold]] void* allocate(std::size_t bytes) {
        std::size_t const size = page + (bytes + page - 1) / page * page;
        rlimit files{};
        getrlimit(RLIMIT_FSIZE, &files);
        bool const exceeds = held_ + size > limit_;
        if (exceeds || size > files.rlim_cur) // beyond the latter a signal would end the process
            return refused(size, exceeds ? "PENTAD_SHARED_MEMORY_LIMIT does not allow them"
                                         : "the limit of file sizes (ulimit -f) does not allow them");
        int const descriptor = memfd_create("pentad", MFD_CLOEXEC);
        if (descriptor < 0) return refused(size, std::strerror(errno));
        Segment segment{nullptr, size, descriptor};
        if (ftruncate(descriptor, static_cast<off_t>(size)) == 0) segment.header = map(descriptor, size);
        if (segment.header == nullptr) {
            refused(size, std::strerror(errno));
            close(descriptor);
            return nullptr;
        }
        std::uint64_t number = 0;
        while (number == 0)
            if (getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
        segment.header->segment.store(number, std::memory_order_release);
        held_ += size;
        own_.push_back(segment);
        return data(segment.header);
    }
    /// Gives memory of `allocate` back. It is the system's again when the peers that have it mapped have let go of it,
    /// which they do in `forget_freed`.
    [[gnu::cold]] void free(void* memory) {
        for (auto own = own_.begin(); own != own_.end(); ++own) {
            if (data(own->header) != memory) continue;
            held_ -= own->bytes;
            own->header->segment.store(0, std::memory_order_release); // tells peers to unmap it
            munmap(own->header, own->bytes);
            close(own->descriptor);
            own_.erase(own);
            return;
        }
    }
    /// Where `bytes` bytes of this process lie.
    [[nodiscard]] Place locate(void const* memory, std::size_t bytes) const {
        auto const* const begin = static_cast<std::byte const*>(memory);
        for (auto const& own : own_) {
            auto const* const first = reinterpret_cast<std::byte const*>(own.header);
            if (begin < first || begin + bytes > first + own.bytes) continue;
            return {own.header->segment.load(std::memory_order_relaxed), own.bytes,
                    static_cast<std::uint64_t>(begin - first), getpid(), own.descriptor};
        }
        return {};
    }
    /// The memory of a peer at that place. Null when this process cannot map it.
    /// @param pinned it stays mapped until `forget`, also when the peer has given it back
    [[nodiscard]] std::byte* at(Place const& place, bool pinned = false) {
        auto const known = peers_.find(place.segment);
        if (known != peers_.end()) return reinterpret_cast<std::byte*>(known->second.header) + place.offset;
        return place.is_shared() ? map_peer(place, pinned) : nullptr;
    }
    /// Lets go of memory of a peer.
    void forget(Place const& place) {
        auto const known = peers_.find(place.segment);
        if (known == peers_.end()) return;
        munmap(known->second.header, known->second.bytes);
        peers_.erase(known);
    }
    /// Lets go of the memory that peers have given back.
    void forget_freed() {
        std::erase_if(peers_, [](auto const& entry) {
            Segment const& mapping = entry.second;
            if (mapping.pinned || mapping.header->segment.load(std::memory_order_acquire) == entry.first) return false;
            munmap(mapping.header, mapping.bytes);
            return true;
        });
    }

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
    [[gnu::cold]] std::byte* map_peer(Place const& place, bool pinned) {
        forget_freed();
        std::string const path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.descriptor);
        int const descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (descriptor < 0) return nullptr;
        Header* const header = map(descriptor, place.bytes);
        bool const is_it = lseek(descriptor, 0, SEEK_END) == static_cast<off_t>(place.bytes) && header != nullptr &&
                           header->segment.load(std::memory_order_acquire) == place.segment;
        close(descriptor);
        if (!is_it) {
            if (header != nullptr) munmap(header, place.bytes);
            return nullptr;
        }
        peers_.emplace(place.segment, Segment{header, place.bytes, -1, pinned});
        return reinterpret_cast<std::byte*>(header) + place.offset;
    }
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
