// What one matrix product is once shapes are checked: plain numbers and pointers, so that each
// backend (gemm_*.hpp beside this file) is a handful of overloads that know nothing of Views.
#pragma once

#include <pentad/layout/element.hpp>

#include <climits>
#include <stdexcept>
#include <string>

namespace pentad::kernels::detail {

/// C[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C, all row-major with the given row strides; `transpose_a` says
/// that A is stored as [k, m]. Nothing is empty, and alpha is not 0, when a backend sees it.
template <class In, class Out>
struct GemmProblem {
    i64 m, n, k;
    double alpha;
    In const* a;
    i64 a_stride;
    bool transpose_a;
    In const* b;
    i64 b_stride;
    bool transpose_b;
    double beta;
    Out* c;
    i64 c_stride;
};

/// Sizes as the `int` of the BLAS interfaces.
inline int blas_size(i64 size) {
    if (size > INT_MAX)
        throw std::invalid_argument("gemm: a size of " + std::to_string(size) +
                                    " does not fit the int of the BLAS interface; split the product");
    return static_cast<int>(size);
}

} // namespace pentad::kernels::detail
