#include <pentad/kernels/compact_rows.hpp>

#include "arrays.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

using namespace arrays;

namespace {

struct Rounded {
    Matrix<std::uint8_t> bytes;
    std::vector<double> values;
};
template <class T>
Rounded rounded(Compact element, int rows, int columns, std::vector<double> const& x) {
    Matrix<T> const in(rows, columns), out(rows, columns);
    in.set(x);
    Rounded result{{rows, static_cast<int>(kernels::compact_row_bytes(element, static_cast<std::size_t>(columns)))},
                   {}};
    kernels::compress_rows<T>(Exec(), element, in.view(), result.bytes.view());
    kernels::expand_rows<T>(Exec(), element, result.bytes.view(), out.view());
    result.values = out.get();
    return result;
}

std::vector<double> varied(int n) {
    Random draw(static_cast<std::uint64_t>(n) + 5);
    std::vector<double> x;
    for (int i = 0; i < n; ++i) x.push_back(std::ldexp(draw(), -draw.below(20)));
    return x;
}

} // namespace

TEST_CASE_TEMPLATE("a row travels in fewer bits, each element within half of its last place", T, f32, f64, bf16) {
    for (int const columns : {1, 4, 127, 128, 129, 300, 1024})
        for (auto const element : {Compact::bf16, Compact::fp8}) {
            CAPTURE(columns);
            int const rows = 3;
            Matrix<T> const exact(rows, columns);
            exact.set(varied(rows * columns));
            auto const x = exact.get();
            auto const found = rounded<T>(element, rows, columns, x);
            for (std::size_t i = 0; i < x.size(); ++i) {
                std::size_t const row = i / static_cast<std::size_t>(columns),
                                  in_row = i % static_cast<std::size_t>(columns),
                                  block =
                                      row * static_cast<std::size_t>(columns) + in_row / compact_block * compact_block;
                double largest = 0;
                for (std::size_t j = block;
                     j < std::min(block + compact_block, (row + 1) * static_cast<std::size_t>(columns)); ++j)
                    largest = std::max(largest, std::abs(x[j]));
                double const relative = element == Compact::bf16 ? 0x1p-8 : 0x1p-4,
                             least = element == Compact::bf16 ? 0 : largest * 0x1p-18;
                CHECK(std::abs(found.values[i] - x[i]) <= relative * std::abs(x[i]) + least);
            }
            CHECK(rounded<T>(element, rows, columns, found.values).values == found.values); // once rounded, always
        }
}

TEST_CASE("a row of fp8 takes a byte for each element and for each block of 128, and no other row changes it") {
    CHECK(kernels::compact_row_bytes(Compact::fp8, 256) == 260);
    CHECK(kernels::compact_row_bytes(Compact::fp8, 7168) == 7168 + 56);
    CHECK(kernels::compact_row_bytes(Compact::bf16, 7) == 16);
    auto x = varied(2 * 200);
    auto const before = rounded<f32>(Compact::fp8, 2, 200, x).values;
    for (std::size_t i = 200; i < 400; ++i) x[i] *= 1e6;
    auto const after = rounded<f32>(Compact::fp8, 2, 200, x).values;
    CHECK(std::equal(before.begin(), before.begin() + 200, after.begin()));
}

TEST_CASE("what is not finite makes its block so, and no other") {
    auto x = varied(300);
    x[130] = std::numeric_limits<double>::infinity();
    auto const found = rounded<f32>(Compact::fp8, 1, 300, x).values;
    for (std::size_t i = 0; i < 300; ++i) CHECK(std::isnan(found[i]) == (i / 128 == 1));
    std::vector<double> const zeros(40, 0.0);
    CHECK(rounded<f32>(Compact::fp8, 1, 40, zeros).values == zeros);
}
