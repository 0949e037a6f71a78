// Conversions between accumulators and elements of fewer bits (layout/compact.hpp), rounded to nearest or
// stochastically. The blocks of fp8 are those of kernels/float8_blocks.hpp.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/float8_blocks.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/layout/compact.hpp>
#include <pentad/random/philox.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace pentad::zero {

using kernels::In, kernels::Out, kernels::Row;
namespace fp8 = kernels::fp8;

/// Values in memory. fp8: the elements, then their scales.
struct CompactValues {
    Compact element = Compact::bf16;
    bool is_signed = true; ///< whether fp8 elements have a sign; else they have one more exponent bit
    std::size_t size = 0;
    std::uint8_t* data = nullptr;
    std::uint8_t* scales = nullptr;

    CompactValues() = default;
    /// @param memory of compact_bytes()
    CompactValues(Compact which, bool has_sign, std::size_t elements, void* memory)
        : element(which), is_signed(has_sign), size(elements), data(static_cast<std::uint8_t*>(memory)),
          scales(data + elements) {}
    /// Elements [begin, end), where begin is a multiple of compact_block.
    [[nodiscard]] CompactValues part(std::size_t begin, std::size_t end) const {
        CompactValues some = *this;
        some.size = end - begin;
        some.data += begin * (element == Compact::bf16 ? 2 : 1);
        some.scales += begin / compact_block;
        return some;
    }
    template <class Exec>
    [[nodiscard]] View<bf16, 1, Exec> as_bf16() const {
        return View<bf16, 1, Exec>(reinterpret_cast<bf16*>(data), size);
    }
    /// What dry runs count.
    template <class Exec>
    [[nodiscard]] View<std::uint8_t, 1, Exec> bytes() const {
        std::size_t const blocks = (size + compact_block - 1) / compact_block;
        return View<std::uint8_t, 1, Exec>(data, element == Compact::bf16 ? 2 * size : size + blocks);
    }
};

/// Random bits for stochastic rounding: a function of seed, stream and the number of the element.
struct RoundingKey {
    std::uint64_t seed = 0, stream = 0;
    std::uint64_t first = 0; ///< the number of element 0
};

namespace detail {

/// The four words for elements 4 group to 4 group + 3.
struct RoundingWords {
    random::Bits bits;

    KOKKOS_FUNCTION RoundingWords(RoundingKey const& key, std::uint64_t group)
        : bits(random::bits(key.seed, key.stream, group)) {}
    KOKKOS_FUNCTION std::uint32_t operator[](int i) const {
        return static_cast<std::uint32_t>((i < 2 ? bits.first : bits.second) >> (i % 2 * 32));
    }
};

/// bf16 towards zero or away from it, with the odds of its distance from both.
KOKKOS_INLINE_FUNCTION bf16 rounded_stochastically(float x, std::uint32_t random) {
    if (fp8::is_not_finite(x)) return bf16(x);
    bf16 result;
    result.bits = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) + (random & 0xffffu)) >> 16);
    return result;
}

template <class A, class Exec>
void to_bf16(Exec const& exec, In<A, 1, Exec> values, Out<bf16, 1, Exec> out, RoundingKey const& key) {
    i64 const n = static_cast<i64>(values.extent(0));
    auto const offset = static_cast<i64>(key.first % 4);
    auto const first_group = key.first / 4;
    A const* const in = values.data();
    bf16* const rounded = out.data();
    kernels::for_each_element(
        "pentad::to_bf16", exec, static_cast<std::size_t>((n + offset + 3) / 4), KOKKOS_LAMBDA(i64 group) {
            RoundingWords const words(key, first_group + static_cast<std::uint64_t>(group));
            for (int j = 0; j < 4; ++j) {
                i64 const i = 4 * group + j - offset;
                if (i >= 0 && i < n) rounded[i] = rounded_stochastically(static_cast<float>(in[i]), words[j]);
            }
        });
}

/// @param residual where it is not null: added to the values first, and what rounding takes away from them after
template <class A, class Exec>
void to_fp8(Exec const& exec, In<A, 1, Exec> values, CompactValues const& out, std::optional<RoundingKey> const& random,
            A* residual) {
    i64 const n = static_cast<i64>(values.extent(0));
    constexpr auto block = static_cast<i64>(compact_block);
    A const* const in = values.data();
    bool const is_random = random.has_value(), has_sign = out.is_signed;
    auto const key = random.value_or(RoundingKey{});
    auto* const elements = out.data;
    auto* const scales = out.scales;
    kernels::for_each_row(
        "pentad::to_fp8", exec, static_cast<std::size_t>((n + block - 1) / block), block,
        KOKKOS_LAMBDA(Row<Exec> const& row) {
            i64 const first = row.index() * block;
            int const size = static_cast<int>(n - first < block ? n - first : block);
            auto const value = [&](i64 i) { return residual == nullptr ? in[i] : in[i] + residual[i]; };
            A const largest = row.template max<A>(size, [&](int i) { return fp8::magnitude(value(first + i)); });
            auto const bound = static_cast<float>(largest);
            bool const is_lost = fp8::is_not_finite(bound); // an element is not finite: the block says so
            int const scale = is_lost ? 0 : fp8::scale(bound, has_sign);
            A const down = A(fp8::power_of_two(-scale)), up = A(fp8::power_of_two(scale));
            row.once([&] { scales[row.index()] = is_lost ? fp8::not_finite_scale : fp8::kept_scale(scale); });
            auto const store = [&](i64 i, std::uint32_t add) {
                A const x = value(i);
                std::uint32_t const c = fp8::element(static_cast<float>(Kokkos::abs(x) * down), add);
                bool const is_negative = has_sign && x < A(0);
                elements[i] = static_cast<std::uint8_t>(c | (is_negative ? 0x80u : 0u));
                if (residual != nullptr) {
                    A const kept = A(fp8::value(c)) * up;
                    residual[i] = x - (is_negative ? -kept : kept);
                }
            };
            if (is_lost) {
                row.each(size, [&](int i) {
                    elements[first + i] = 0;
                    if (residual != nullptr) residual[first + i] = A(0);
                });
            } else if (is_random) {
                row.each((size + 3) / 4, [&](int group) {
                    RoundingWords const words(key, (key.first + static_cast<std::uint64_t>(first)) / 4 +
                                                       static_cast<std::uint64_t>(group));
                    for (int j = 0; j < 4; ++j)
                        if (4 * group + j < size) store(first + 4 * group + j, words[j] & 0xfffffu);
                });
            } else {
                row.each(size, [&](int i) { store(first + i, 0x80000u); });
            }
        });
}

} // namespace detail

/// Rounds values. fp8 elements without a sign take none below 0.
/// @param random rounds stochastically; its `first` is a multiple of 4 for fp8. None: to nearest
/// @param residual null, or (fp8) for each value what earlier roundings have taken away from it: it is added to the
/// value first (error feedback, Seide et al. 2014; Karimireddy et al. 2019)
template <class A, class Exec>
void compress(Exec const& exec, In<A, 1, Exec> values, CompactValues const& out,
              std::optional<RoundingKey> const& random = {}, A* residual = nullptr) {
    kernels::detail::require_extent("compress", "out", out.size, values.extent(0), "as values");
    if (kernels::dry("compress", values, out.template bytes<Exec>())) return;
    if (out.element == Compact::fp8)
        detail::to_fp8<A>(exec, values, out, random, residual);
    else if (random)
        detail::to_bf16<A>(exec, values, out.template as_bf16<Exec>(), *random);
    else {
        A const* const in = values.data();
        bf16* const rounded = reinterpret_cast<bf16*>(out.data);
        kernels::for_each_element(
            "pentad::to_bf16", exec, values.extent(0),
            KOKKOS_LAMBDA(i64 i) { rounded[i] = bf16(static_cast<float>(in[i])); });
    }
}
PENTAD_KERNEL_OF_ACCUMULATORS(compress)

/// The values again: the sum over `copies` of them that lie `stride` bytes apart, in this order.
template <class A, class Exec>
void expand(Exec const& exec, CompactValues const& in, Out<A, 1, Exec> values, std::size_t copies = 1,
            std::size_t stride = 0) {
    kernels::detail::require_extent("expand", "values", values.extent(0), in.size, "as in");
    if (kernels::dry("expand", in.template bytes<Exec>(), values)) return;
    i64 const n = static_cast<i64>(in.size);
    A* const out = values.data();
    std::uint8_t const* const data = in.data;
    if (in.element == Compact::bf16) {
        kernels::for_each_element(
            "pentad::from_bf16", exec, in.size, KOKKOS_LAMBDA(i64 i) {
                A sum(0);
                for (std::size_t k = 0; k < copies; ++k)
                    sum += A(static_cast<float>(reinterpret_cast<bf16 const*>(data + k * stride)[i]));
                out[i] = sum;
            });
        return;
    }
    constexpr auto block = static_cast<i64>(compact_block);
    std::uint8_t const* const scales = in.scales;
    std::uint32_t const sign = in.is_signed ? 0x80u : 0u;
    kernels::for_each_row(
        "pentad::from_fp8", exec, static_cast<std::size_t>((n + block - 1) / block), block,
        KOKKOS_LAMBDA(Row<Exec> const& row) {
            i64 const first = row.index() * block;
            int const size = static_cast<int>(n - first < block ? n - first : block);
            for (std::size_t k = 0; k < copies; ++k) {
                A const up = A(fp8::factor(scales[k * stride + static_cast<std::size_t>(row.index())]));
                std::uint8_t const* const elements = data + k * stride + first;
                row.each(size, [&](int i) {
                    std::uint32_t const word = elements[i];
                    A const size_of = A(fp8::value(word & ~sign & 0xffu)) * up;
                    A const value = (word & sign) != 0 ? -size_of : size_of;
                    out[first + i] = k == 0 ? value : out[first + i] + value;
                });
            }
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(expand)

} // namespace pentad::zero
