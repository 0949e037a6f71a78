// Room: comm. Copies between ranks of a node: through the caches, or past them for what is larger than they are.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace pentad::comm::node {

/// Bytes of the last level of cache.
inline std::size_t cache_bytes() {
    static std::size_t const bytes = [] {
        long found = -1;
#if defined(_SC_LEVEL3_CACHE_SIZE)
        found = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
        return found > 0 ? static_cast<std::size_t>(found) : std::size_t{32} << 20;
    }();
    return bytes;
}

namespace detail {
/// Stores that do not first read what they overwrite, nor leave it in cache; asks for what it reads a page ahead.
inline void stream(std::byte* to, std::byte const* from, std::size_t bytes) {
#if defined(__SSE2__)
    std::size_t const head = std::min(bytes, (64 - reinterpret_cast<std::uintptr_t>(to) % 64) % 64);
    std::memcpy(to, from, head);
    std::size_t i = head;
    for (; i + 64 <= bytes; i += 64) {
        _mm_prefetch(reinterpret_cast<char const*>(from + i) + 4096, _MM_HINT_T0);
#if defined(__AVX512F__)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
#elif defined(__AVX__)
        for (std::size_t j = i; j < i + 64; j += 32)
            _mm256_stream_si256(reinterpret_cast<__m256i*>(to + j),
                                _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + j)));
#else
        for (std::size_t j = i; j < i + 64; j += 16)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + j),
                             _mm_loadu_si128(reinterpret_cast<__m128i const*>(from + j)));
#endif
    }
    std::memcpy(to + i, from + i, bytes - i);
#else
    std::memcpy(to, from, bytes);
#endif
}
} // namespace detail

/// `past_caches` for what will not be read again before it would have left them. Then `publish` is what tells others.
inline void copy(std::byte* to, std::byte const* from, std::size_t bytes, bool past_caches) {
    if (bytes == 0 || to == from) return;
    if (past_caches)
        detail::stream(to, from, bytes);
    else
        std::memcpy(to, from, bytes);
}

/// Stores a number that tells others that copies, those past the caches too, have been made.
inline void publish(std::atomic<std::uint64_t>& number, std::uint64_t value) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
    number.store(value, std::memory_order_release);
}

} // namespace pentad::comm::node
