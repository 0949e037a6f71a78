// The functions of <pentad/memory/shared_memory.hpp>.
#pragma once

#include <pentad/memory/shared_memory.hpp>

#include <pentad/mesh/inline.hpp>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pentad::memory {

PENTAD_INLINE void* SharedMemory::allocate(std::size_t bytes) {
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

PENTAD_INLINE void SharedMemory::free(void* memory) {
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

PENTAD_INLINE Place SharedMemory::locate(void const* memory, std::size_t bytes) const {
    auto const* const begin = static_cast<std::byte const*>(memory);
    for (auto const& own : own_) {
        auto const* const first = reinterpret_cast<std::byte const*>(own.header);
        if (begin < first || begin + bytes > first + own.bytes) continue;
        return {own.header->segment.load(std::memory_order_relaxed), own.bytes,
                static_cast<std::uint64_t>(begin - first), getpid(), own.descriptor};
    }
    return {};
}

PENTAD_INLINE void SharedMemory::forget(Place const& place) {
    auto const known = peers_.find(place.segment);
    if (known == peers_.end()) return;
    munmap(known->second.header, known->second.bytes);
    peers_.erase(known);
}

PENTAD_INLINE void SharedMemory::forget_freed() {
    std::erase_if(peers_, [](auto const& entry) {
        Segment const& mapping = entry.second;
        if (mapping.pinned || mapping.header->segment.load(std::memory_order_acquire) == entry.first) return false;
        munmap(mapping.header, mapping.bytes);
        return true;
    });
}

PENTAD_INLINE std::byte* SharedMemory::map_peer(Place const& place, bool pinned) {
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

} // namespace pentad::memory
