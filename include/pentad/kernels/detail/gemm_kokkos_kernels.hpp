// The matrix product through Kokkos Kernels (which calls the vendor's BLAS): f64 and f32.
#pragma once

#include <pentad/kernels/detail/gemm_plain.hpp>
#include <pentad/kernels/detail/gemm_problem.hpp>

#include <KokkosBlas3_gemm.hpp>
#include <Kokkos_Core.hpp>

#include <utility>

namespace pentad::kernels::detail {

template <class Exec, class T>
void gemm_kokkos_kernels(Exec const& exec, GemmProblem<T, T> const& p) {
    // Kokkos Kernels 4.5 turns a single column into a matrix-vector product that forgets its stride.
    if (p.n == 1 && (p.b_stride > 1 || p.c_stride > 1)) return gemm_plain(exec, p);
    // A padded row-major View can only be had as a subview; of rank 2, it stays LayoutRight, which is what
    // Kokkos Kernels hands to the BLAS (LayoutStride goes to its own, slow, loops).
    auto const matrix = []<class U>(U* data, i64 rows, i64 columns, i64 stride) {
        using Matrix = Kokkos::View<U**, Kokkos::LayoutRight, Kokkos::Device<Exec, typename Exec::memory_space>,
                                    Kokkos::MemoryUnmanaged>;
        return Matrix(Kokkos::subview(Matrix(data, rows, stride), Kokkos::ALL, std::pair<i64, i64>(0, columns)));
    };
    auto const a = p.transpose_a ? matrix(p.a, p.k, p.m, p.a_stride) : matrix(p.a, p.m, p.k, p.a_stride);
    auto const b = p.transpose_b ? matrix(p.b, p.n, p.k, p.b_stride) : matrix(p.b, p.k, p.n, p.b_stride);
    auto const c = matrix(p.c, p.m, p.n, p.c_stride);
    KokkosBlas::gemm(exec, p.transpose_a ? "T" : "N", p.transpose_b ? "T" : "N", static_cast<T>(p.alpha), a, b,
                     static_cast<T>(p.beta), c);
}

} // namespace pentad::kernels::detail
