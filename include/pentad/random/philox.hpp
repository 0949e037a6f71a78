// Random numbers without state: each is a pure function of (seed, stream, index), so
// that every rank can draw the elements it holds, on host or device, and any mesh starts from the same model.
// Philox4x32-10 of Random123: the key is the seed, the counter is (stream, index).
#pragma once

#include <pentad/layout/element.hpp>
#include <pentad/mesh/hash.hpp>

// Random123 marks its functions for the device only; ours are called on both sides.
#if (defined(__CUDACC__) || defined(__HIPCC__)) && !defined(R123_CUDA_DEVICE)
#define R123_CUDA_DEVICE __host__ __device__
#endif
#include <Random123/philox.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace pentad::random {

/// The stream of a name (of a parameter, of the data), the same on every machine and in every version.
constexpr std::uint64_t stream(std::string_view name) { return fnv1a(name); }

/// 128 random bits.
struct Bits {
    std::uint64_t first;
    std::uint64_t second;
};

PENTAD_FUNCTION Bits bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
    using Word = std::uint32_t;
    philox4x32_key_t key{};
    key.v[0] = static_cast<Word>(seed);
    key.v[1] = static_cast<Word>(seed >> 32);
    philox4x32_ctr_t counter{};
    counter.v[0] = static_cast<Word>(index);
    counter.v[1] = static_cast<Word>(index >> 32);
    counter.v[2] = static_cast<Word>(stream);
    counter.v[3] = static_cast<Word>(stream >> 32);
    philox4x32_ctr_t const drawn = philox4x32_R(10, counter, key);
    return {drawn.v[0] | std::uint64_t{drawn.v[1]} << 32, drawn.v[2] | std::uint64_t{drawn.v[3]} << 32};
}

/// Uniform on [0, 1): the multiples of 2^-53.
PENTAD_FUNCTION double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
    return static_cast<double>(bits(seed, stream, index).first >> 11) * 0x1p-53;
}

/// Normal with mean 0 and standard deviation 1 (Box-Muller in f64; at most 8.6 in magnitude). Host and device agree as
/// far as their log and cos do, a few units in the last place of an f64.
PENTAD_FUNCTION double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
    Bits const drawn = bits(seed, stream, index);
    double const radius_uniform =
        static_cast<double>((drawn.first >> 11) + 1) * 0x1p-53; // in (0, 1]: its log is finite
    double const angle = static_cast<double>(drawn.second >> 11) * (0x1p-53 * 2 * std::numbers::pi);
    return std::sqrt(-2 * std::log(radius_uniform)) * std::cos(angle);
}

/// Uniform on the integers 0, ..., bound - 1, exactly: multiply-high, and the few draws that would favour some are
/// rejected (Lemire 2019). `bound` is at least 1. Host only.
inline std::uint64_t uniform_below(std::uint64_t seed, std::uint64_t stream, std::uint64_t index, std::uint64_t bound) {
    __extension__ using Wide = unsigned __int128;
    std::uint64_t const favoured = -bound % bound; // 2^64 mod bound
    for (std::uint64_t attempt = 0;; ++attempt) {
        // A draw of its own stream for each attempt; the odd multiplier keeps the streams apart.
        Bits const drawn = bits(seed, stream + attempt * 0x9e3779b97f4a7c15u, index);
        for (std::uint64_t const word : {drawn.first, drawn.second}) {
            Wide const product = Wide{word} * bound;
            if (static_cast<std::uint64_t>(product) >= favoured) return static_cast<std::uint64_t>(product >> 64);
        }
    }
}

} // namespace pentad::random
