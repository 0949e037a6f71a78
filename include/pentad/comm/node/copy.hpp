// Copies between ranks of a node: through the caches, or past them for what is larger than they are.
#pragma once

#include <pentad/memory/host_runs.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h> // a tenth of the lines
#endif

namespace pentad::comm::node {

namespace detail {
/// Stores a line of cache, which begins at `to`, without reading what it overwrites or leaving it in cache.
inline void stream_line(std::byte* to, std::byte const* from) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
    for (std::size_t i = 0; i < 64; i += 32)
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                            _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from + i)));
#elif defined(__SSE2__)
    for (std::size_t i = 0; i < 64; i += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_loadu_si128(reinterpret_cast<__m128i const*>(from + i)));
#else
    std::memcpy(to, from, 64);
#endif
}
/// How many bytes there are before the next line of cache begins.
inline std::size_t before_next_line(std::byte const* address) {
    return (64 - reinterpret_cast<std::uintptr_t>(address) % 64) % 64;
}
/// Asks for what will be read soon: the processor does not look beyond the end of a page. A few lines more than a page,
/// since it takes an address at the same place of its page for one that is being stored to.
inline void ask_ahead(std::byte const* address) { __builtin_prefetch(address + 4096 + 256); }

[[gnu::noinline]] inline void stream(std::byte* to, std::byte const* from, std::size_t bytes) {
    std::size_t i = std::min(bytes, before_next_line(to));
    std::memcpy(to, from, i);
    std::size_t const half = (bytes - i) / 128 * 64; // two at a time: memory is read from more places at once
    for (std::size_t const end = i + half; i < end; i += 64)
        for (std::size_t const at : {i, i + half}) {
            ask_ahead(from + at);
            stream_line(to + at, from + at);
        }
    i += half;
    std::memcpy(to + i, from + i, bytes - i);
}
/// Streams a run of which the next begins at `next`.
inline void stream_run(std::byte* to, std::byte const* from, std::size_t bytes, std::byte const* next) {
    std::size_t i = std::min(bytes, before_next_line(to));
    std::memcpy(to, from, i);
    for (; i + 64 <= bytes; i += 64) {
        __builtin_prefetch(next + i);
        stream_line(to + i, from + i);
    }
    std::memcpy(to + i, from + i, bytes - i);
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

/// Bytes [first, first + bytes) of a strided copy, counted in the order of its runs. `past_caches`: the same for runs
/// that are some lines of cache long.
inline void copy_part(memory::Runs const& runs, std::size_t first, std::size_t bytes, std::byte* to,
                      std::byte const* from, bool past_caches) {
    static constexpr std::size_t shortest_streamed = 512, one_by_one = std::size_t{16} << 10;
    if (!past_caches || runs.bytes() < shortest_streamed)
        return memory::copy_part(runs, first, bytes, to, from, memory::copy_line);
    memory::copy_part(runs, first, bytes, to, from,
                      [](std::size_t count, std::size_t length, std::byte* target, std::size_t to_stride,
                         std::byte const* source, std::size_t from_stride) {
                          for (; count > 0; --count, target += to_stride, source += from_stride)
                              if (length < one_by_one)
                                  detail::stream_run(target, source, length, source + from_stride);
                              else
                                  detail::stream(target, source, length);
                      });
}

/// Makes what this thread has stored past the caches visible before what it stores next.
inline void order_stores() {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/// Stores a number that tells others that copies, those past the caches too, have been made.
inline void publish(std::atomic<std::uint64_t>& number, std::uint64_t value) {
    order_stores();
    number.store(value, std::memory_order_release);
}

} // namespace pentad::comm::node
