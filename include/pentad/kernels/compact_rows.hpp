// Rows in fewer bits, as they travel: bf16, or 8-bit floats with a scale for each block of a row. Each row is by
// itself, so that rows go where they are to one by one.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/float8_blocks.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/layout/compact.hpp>

#include <cstddef>
#include <cstdint>

namespace pentad::kernels {

/// Bytes of a row of so many elements; fp8: the elements, then the scales of their blocks.
inline std::size_t compact_row_bytes(Compact element, std::size_t columns) {
    return compact_bytes(element, columns, sizeof(float));
}

/// Rounds each row of x [rows, columns] to nearest, into out [rows, compact_row_bytes]. fp8: the elements of a block
/// are multiplied by the least power of two with which the largest fits (Rouhani et al. 2023); the error is at most
/// 2^-4 of an element that is not small beside the largest. A block with an element that is not finite becomes NaN.
template <class T, class Exec>
void compress_rows(Exec const& exec, Compact element, In<T, 2, Exec> x, Out<std::uint8_t, 2, Exec> out) {
    std::size_t const columns = x.extent(1);
    detail::require_extent("compress_rows", "rows of out", out.extent(0), x.extent(0), "those of x");
    detail::require_extent("compress_rows", "columns of out", out.extent(1), compact_row_bytes(element, columns),
                           "the bytes of a row");
    if (dry("compress_rows", x, out)) return;
    std::size_t const blocks = (columns + compact_block - 1) / compact_block;
    bool const is_bf16 = element == Compact::bf16;
    for_each_row(
        "pentad::compress_rows", exec, x.extent(0) * blocks, compact_block, KOKKOS_LAMBDA(Row<Exec> const& row) {
            auto const at = static_cast<std::size_t>(row.index()), r = at / blocks, block = at % blocks;
            std::size_t const first = block * compact_block;
            int const size = static_cast<int>(columns - first < compact_block ? columns - first : compact_block);
            T const* const in = &x(r, first);
            if (is_bf16) {
                auto* const rounded = reinterpret_cast<bf16*>(&out(r, 0)) + first;
                row.each(size, [&](int i) { rounded[i] = bf16(static_cast<float>(in[i])); });
                return;
            }
            float const largest =
                row.template max<float>(size, [&](int i) { return fp8::magnitude(static_cast<float>(in[i])); });
            bool const is_lost = fp8::is_not_finite(largest);
            int const scale = is_lost ? 0 : fp8::scale(largest, true);
            float const down = fp8::power_of_two(-scale);
            std::uint8_t* const elements = &out(r, first);
            row.once([&] { out(r, columns + block) = is_lost ? fp8::not_finite_scale : fp8::kept_scale(scale); });
            row.each(size, [&](int i) {
                float const value = static_cast<float>(in[i]);
                std::uint32_t const c = is_lost ? 0 : fp8::element(Kokkos::abs(value) * down, 0x80000u);
                elements[i] = static_cast<std::uint8_t>(c | (value < 0.0F ? 0x80u : 0u));
            });
        });
}
PENTAD_KERNEL(compress_rows)

/// The rows again.
template <class T, class Exec>
void expand_rows(Exec const& exec, Compact element, In<std::uint8_t, 2, Exec> in, Out<T, 2, Exec> x) {
    std::size_t const columns = x.extent(1);
    detail::require_extent("expand_rows", "rows of in", in.extent(0), x.extent(0), "those of x");
    detail::require_extent("expand_rows", "columns of in", in.extent(1), compact_row_bytes(element, columns),
                           "the bytes of a row");
    if (dry("expand_rows", in, x)) return;
    std::size_t const blocks = (columns + compact_block - 1) / compact_block;
    bool const is_bf16 = element == Compact::bf16;
    for_each_row(
        "pentad::expand_rows", exec, x.extent(0) * blocks, compact_block, KOKKOS_LAMBDA(Row<Exec> const& row) {
            auto const at = static_cast<std::size_t>(row.index()), r = at / blocks, block = at % blocks;
            std::size_t const first = block * compact_block;
            int const size = static_cast<int>(columns - first < compact_block ? columns - first : compact_block);
            T* const values = &x(r, first);
            if (is_bf16) {
                auto const* const rounded = reinterpret_cast<bf16 const*>(&in(r, 0)) + first;
                row.each(size, [&](int i) { values[i] = T(static_cast<float>(rounded[i])); });
                return;
            }
            float const up = fp8::factor(in(r, columns + block));
            std::uint8_t const* const elements = &in(r, first);
            row.each(size, [&](int i) {
                std::uint32_t const word = elements[i];
                float const value = fp8::value(word & 0x7fu) * up;
                values[i] = T((word & 0x80u) != 0 ? -value : value);
            });
        });
}
PENTAD_KERNEL(expand_rows)

} // namespace pentad::kernels
