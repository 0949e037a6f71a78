// Whether rows of a product depend on how many are multiplied, with the library and the kernels that are here.
#pragma once

#include <pentad/kernels/gemm.hpp>

#include <support/layer_check.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace support {

/// Whether the rows of A op(B) + beta C [rows, n] have the same bits when only some of them are multiplied, from one to
/// all of `rows`, for both op(B) and beta of 0 and 1. Libraries choose a kernel, and with it the order in which a row
/// is summed, by the CPU and by the sizes: which have this property differs from CPU to CPU.
template <class T>
bool rows_keep_their_bits(std::size_t rows, std::size_t n, std::size_t k) {
    using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Exec>;
    auto const matrix = [](std::size_t count, std::size_t columns, std::string const& name) {
        Matrix const made("support::rows_keep_their_bits", count, columns);
        auto const numbers = drawn({count, columns}, name).values;
        auto const host = Kokkos::create_mirror_view(made);
        for (std::size_t i = 0; i < numbers.size(); ++i) host(i / columns, i % columns) = static_cast<T>(numbers[i]);
        Kokkos::deep_copy(made, host);
        return made;
    };
    auto const a = matrix(rows, k, "a");
    for (auto const transpose : {kernels::Transpose::no, kernels::Transpose::yes})
        for (double const beta : {0.0, 1.0}) {
            auto const b = transpose == kernels::Transpose::no ? matrix(k, n, "b") : matrix(n, k, "b");
            auto const product = [&](std::size_t begin, std::size_t end) {
                auto const c = matrix(rows, n, "c");
                std::pair const range(begin, end);
                kernels::gemm(Exec(), kernels::Transpose::no, transpose, 1.0, Kokkos::subview(a, range, Kokkos::ALL), b,
                              beta, Kokkos::subview(c, range, Kokkos::ALL));
                return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), c);
            };
            auto const whole = product(0, rows);
            for (std::size_t some = 1; some <= rows; ++some)
                for (std::size_t const begin : {std::size_t{0}, rows - some}) {
                    auto const part = product(begin, begin + some);
                    for (std::size_t i = begin; i < begin + some; ++i)
                        for (std::size_t j = 0; j < n; ++j)
                            if (part(i, j) != whole(i, j)) return false;
                }
        }
    return true;
}

} // namespace support
