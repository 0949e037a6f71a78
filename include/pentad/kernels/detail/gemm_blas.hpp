// The matrix product through a host BLAS (the CBLAS interface): f64 and f32 directly; bf16, which a
// BLAS does not know, block by block in f32.
#pragma once

#include <pentad/kernels/detail/gemm_problem.hpp>

#include <cblas.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace pentad::kernels::detail {

inline CBLAS_TRANSPOSE blas_transpose(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

/// Whether OpenBLAS is to be preferred to oneDNN. Measured on AVX-512 cores: oneDNN is 5 to 10 % faster, but on
/// Intel's, where A is transposed and large (weight gradients), it can take twice as long. Without AVX-512 OpenBLAS
/// runs the kernels of Haswell, at half the speed of oneDNN. The CPU decides, not a timing: the same run gives the same
/// bits.
inline bool blas_is_faster(GemmProblem<f32, f32> const& p) {
#if defined(__x86_64__)
    static bool const is_intel_avx512 = __builtin_cpu_is("intel") != 0 && __builtin_cpu_supports("avx512f") != 0;
    return p.transpose_a && is_intel_avx512;
#else
    (void)p;
    return false;
#endif
}

inline void gemm_blas(GemmProblem<f64, f64> const& p) {
    cblas_dgemm(CblasRowMajor, blas_transpose(p.transpose_a), blas_transpose(p.transpose_b), blas_size(p.m),
                blas_size(p.n), blas_size(p.k), p.alpha, p.a, blas_size(p.a_stride), p.b, blas_size(p.b_stride), p.beta,
                p.c, blas_size(p.c_stride));
}

inline void gemm_blas(GemmProblem<f32, f32> const& p) {
    cblas_sgemm(CblasRowMajor, blas_transpose(p.transpose_a), blas_transpose(p.transpose_b), blas_size(p.m),
                blas_size(p.n), blas_size(p.k), static_cast<f32>(p.alpha), p.a, blas_size(p.a_stride), p.b,
                blas_size(p.b_stride), static_cast<f32>(p.beta), p.c, blas_size(p.c_stride));
}

/// bf16 in blocks that are converted once and fit the cache; the three buffers live as long as the thread.
template <class Out>
void gemm_blas(GemmProblem<bf16, Out> const& p) {
    constexpr i64 block = 256;
    thread_local std::vector<f32> buffers(3 * block * block);
    f32* const a = buffers.data();
    f32* const b = a + block * block;
    f32* const c = b + block * block;
    auto const load = [](bf16 const* from, i64 stride, bool transpose, i64 row, i64 column, i64 rows, i64 columns,
                         f32* to) {
        if (transpose) {
            std::swap(row, column);
            std::swap(rows, columns);
        }
        for (i64 i = 0; i < rows; ++i)
            for (i64 j = 0; j < columns; ++j) to[i * block + j] = from[(row + i) * stride + column + j];
    };
    for (i64 i = 0; i < p.m; i += block)
        for (i64 j = 0; j < p.n; j += block) {
            i64 const rows = std::min(block, p.m - i);
            i64 const columns = std::min(block, p.n - j);
            for (i64 d = 0; d < p.k; d += block) {
                i64 const depth = std::min(block, p.k - d);
                load(p.a, p.a_stride, p.transpose_a, i, d, rows, depth, a);
                load(p.b, p.b_stride, p.transpose_b, d, j, depth, columns, b);
                gemm_blas(GemmProblem<f32, f32>{rows, columns, depth, p.alpha, a, block, p.transpose_a, b, block,
                                                p.transpose_b, d == 0 ? 0.0 : 1.0, c, block});
            }
            auto const beta = static_cast<f32>(p.beta);
            for (i64 row = 0; row < rows; ++row)
                for (i64 column = 0; column < columns; ++column) {
                    Out& element = p.c[(i + row) * p.c_stride + j + column];
                    f32 const value = c[row * block + column];
                    element = Out(beta == 0 ? value : value + beta * f32(element));
                }
        }
}

} // namespace pentad::kernels::detail
