// Which libraries compute products on the host (gemm.hpp), and with the kernels of which CPU: a library chooses them
// when it is loaded, and variables such as OPENBLAS_CORETYPE overrule it.
#pragma once

#include <cstddef>
#include <string>

#if defined(PENTAD_HAVE_BLAS)
#include <cblas.h>

#include <sstream>
#include <vector>
#endif
#if defined(PENTAD_HAVE_ONEDNN)
#include <oneapi/dnnl/dnnl.hpp>
#endif

#if defined(PENTAD_HAVE_BLAS)
extern "C" { // OpenBLAS' own; a cblas.h need not have them
char* openblas_get_config();
char* openblas_get_corename();
}
#endif

namespace pentad::kernels {

namespace detail {

#if defined(PENTAD_HAVE_BLAS)
inline std::string blas_with_kernels() {
    std::istringstream config(openblas_get_config()); // OpenBLAS 0.3.34 DYNAMIC_ARCH ...
    std::string name, version;
    config >> name >> version;
    return name + ' ' + version + " (" + openblas_get_corename() + ')';
}
#endif
#if defined(PENTAD_HAVE_ONEDNN)
inline std::string onednn_isa() {
    switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
        return "sse41";
    case dnnl::cpu_isa::avx:
        return "avx";
    case dnnl::cpu_isa::avx2:
        return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
        return "avx2_vnni";
    case dnnl::cpu_isa::avx2_vnni_2:
        return "avx2_vnni_2";
    case dnnl::cpu_isa::avx512_core:
        return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_fp16:
        return "avx512_core_fp16";
    case dnnl::cpu_isa::avx512_core_amx:
        return "avx512_core_amx";
    case dnnl::cpu_isa::avx512_core_amx_fp16:
        return "avx512_core_amx_fp16";
    default:
        return "its instruction set " + std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa()));
    }
}
inline std::string onednn_with_kernels() {
    auto const* const version = dnnl::version();
    return "oneDNN " + std::to_string(version->major) + '.' + std::to_string(version->minor) + '.' +
           std::to_string(version->patch) + " (" + onednn_isa() + ')';
}
#endif

} // namespace detail

/// The libraries with which products are computed on the host, each with the kernels that it runs, such as
/// "OpenBLAS 0.3.34 (SkylakeX), oneDNN 3.12.0 (avx512_core_bf16)".
inline std::string gemm_libraries() {
    std::string libraries;
    [[maybe_unused]] auto const add = [&](std::string const& library) {
        libraries += (libraries.empty() ? "" : ", ") + library;
    };
#if defined(PENTAD_HAVE_KOKKOS_KERNELS)
    add("Kokkos Kernels");
#endif
#if defined(PENTAD_HAVE_BLAS)
    add(detail::blas_with_kernels());
#endif
#if defined(PENTAD_HAVE_ONEDNN)
    add(detail::onednn_with_kernels());
#endif
    return libraries.empty() ? "none" : libraries;
}

/// Has the libraries make the buffers that they keep from their first product on, so that the memory that is left can
/// be asked for: OpenBLAS makes one for each thread, and ends the process where it cannot.
inline void make_gemm_buffers() {
#if defined(PENTAD_HAVE_BLAS)
    constexpr int size = 256; // which all threads share out
    std::vector<double> const a(std::size_t{size} * size);
    std::vector<double> c(a.size());
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, size, size, size, 1, a.data(), size, a.data(), size, 0,
                c.data(), size);
#endif
}

} // namespace pentad::kernels
