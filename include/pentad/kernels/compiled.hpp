// Which kernels the target pentad::compiled_kernels has compiled (lib/). A program that links it instantiates them for
// other elements and execution spaces only.
#pragma once

#include <pentad/layout/element.hpp>

#include <Kokkos_Core.hpp>

// One of these stands behind each kernel, whose name no other function has:
//     PENTAD_KERNEL(name)                  template <class T, class Exec>, for f64, f32 and bf16
//     PENTAD_KERNEL(name, Other)           template <class Other, class T, class Exec>
//     PENTAD_KERNEL_OF_ACCUMULATORS(name)  template <class A, class Exec>, for f64 and f32
//     PENTAD_KERNEL_OF_I32(name)           template <class T, class Exec>, for i32, too
//     PENTAD_KERNEL_OF_EXEC(name)          template <class Exec>
//     PENTAD_KERNEL_OF_EXEC(name, other)   template <Other other, class Exec>
// A unit of lib/ compiles the kernels of one element: it defines PENTAD_KERNELS as nothing, and PENTAD_KERNELS_F64,
// _F32 or _BF16 as 1. Where the libraries were configured without f64 or bf16, their targets define PENTAD_LACKS_F64 or
// PENTAD_LACKS_BF16 as 1.
#ifdef PENTAD_KERNELS
#define PENTAD_HAS_KERNELS 1
#elif PENTAD_COMPILED_KERNELS
#define PENTAD_HAS_KERNELS 1
#define PENTAD_KERNELS extern
#define PENTAD_KERNELS_F64 !PENTAD_LACKS_F64
#define PENTAD_KERNELS_F32 1
#define PENTAD_KERNELS_BF16 !PENTAD_LACKS_BF16
#endif

#define PENTAD_KERNEL(...) PENTAD_KERNEL_F64(__VA_ARGS__) PENTAD_KERNEL_F32(__VA_ARGS__) PENTAD_KERNEL_BF16(__VA_ARGS__)
#define PENTAD_KERNEL_OF_ACCUMULATORS(name) PENTAD_KERNEL_F64(name) PENTAD_KERNEL_F32(name)
#define PENTAD_INSTANTIATED_KERNEL(T, name, ...)                                                                       \
    PENTAD_KERNELS template decltype(name<__VA_ARGS__ __VA_OPT__(, ) T, Kokkos::DefaultExecutionSpace>)                \
        name<__VA_ARGS__ __VA_OPT__(, ) T, Kokkos::DefaultExecutionSpace>;

#if PENTAD_HAS_KERNELS && PENTAD_KERNELS_F64
#define PENTAD_KERNEL_F64(...) PENTAD_INSTANTIATED_KERNEL(f64, __VA_ARGS__)
#else
#define PENTAD_KERNEL_F64(...)
#endif
#if PENTAD_HAS_KERNELS && PENTAD_KERNELS_F32
#define PENTAD_KERNEL_F32(...) PENTAD_INSTANTIATED_KERNEL(f32, __VA_ARGS__)
#define PENTAD_KERNEL_OF_I32(...) PENTAD_INSTANTIATED_KERNEL(i32, __VA_ARGS__)
#define PENTAD_KERNEL_OF_EXEC(name, ...)                                                                               \
    PENTAD_KERNELS template decltype(name<__VA_ARGS__ __VA_OPT__(, ) Kokkos::DefaultExecutionSpace>)                   \
        name<__VA_ARGS__ __VA_OPT__(, ) Kokkos::DefaultExecutionSpace>;
#else
#define PENTAD_KERNEL_F32(...)
#define PENTAD_KERNEL_OF_I32(...)
#define PENTAD_KERNEL_OF_EXEC(...)
#endif
#if PENTAD_HAS_KERNELS && PENTAD_KERNELS_BF16
#define PENTAD_KERNEL_BF16(...) PENTAD_INSTANTIATED_KERNEL(bf16, __VA_ARGS__)
#else
#define PENTAD_KERNEL_BF16(...)
#endif
