// The matrix product through cuBLAS, on the stream of the execution space instance: f64, f32 (full
// precision, no TF32) and bf16 (sums in f32).
#pragma once

#include <pentad/kernels/detail/gemm_problem.hpp>

#include <Kokkos_Core.hpp>
#include <cublas_v2.h>

#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace pentad::kernels::detail {

inline void check_cublas(cublasStatus_t status, char const* call) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw std::runtime_error(std::string("gemm: ") + call + " failed: " + cublasGetStatusString(status));
}

/// One handle a stream, since a handle's workspace must not serve two streams at once (same run, same bits).
class CublasHandles {
  public:
    static cublasHandle_t get(cudaStream_t stream) {
        static CublasHandles instance;
        auto& handle = instance.handles_[stream];
        if (!handle) {
            check_cublas(cublasCreate(&handle), "cublasCreate");
            check_cublas(cublasSetStream(handle, stream), "cublasSetStream");
        }
        return handle;
    }

  private:
    // Handles must go before CUDA does, hence not in a destructor.
    CublasHandles() {
        Kokkos::push_finalize_hook([this] {
            for (auto& [stream, handle] : handles_) cublasDestroy(handle);
            handles_.clear();
        });
    }
    std::map<cudaStream_t, cublasHandle_t> handles_;
};

template <class T>
inline constexpr cudaDataType cublas_type = std::is_same_v<T, f64>   ? CUDA_R_64F
                                            : std::is_same_v<T, f32> ? CUDA_R_32F
                                                                     : CUDA_R_16BF;

template <class Exec, class In, class Out>
void gemm_cublas(Exec const& exec, GemmProblem<In, Out> const& p) {
    using Acc = accumulator_t<Out>;
    auto const alpha = static_cast<Acc>(p.alpha);
    auto const beta = static_cast<Acc>(p.beta);
    auto const operation = [](bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; };
    // Row-major C is column-major C^T = op(B)^T op(A)^T.
    check_cublas(cublasGemmEx(CublasHandles::get(exec.cuda_stream()), operation(p.transpose_b),
                              operation(p.transpose_a), blas_size(p.n), blas_size(p.m), blas_size(p.k), &alpha, p.b,
                              cublas_type<In>, blas_size(p.b_stride), p.a, cublas_type<In>, blas_size(p.a_stride),
                              &beta, p.c, cublas_type<Out>, blas_size(p.c_stride),
                              std::is_same_v<Acc, f64> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                 "cublasGemmEx");
}

} // namespace pentad::kernels::detail
