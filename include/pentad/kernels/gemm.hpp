// The one seam through which every matrix product goes. Which library does the work is settled at
// compile time by PENTAD_HAVE_{KOKKOS_KERNELS, CUBLAS, BLAS, ONEDNN}; without any of them a plain kernel does.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/detail/gemm_few_rows.hpp>
#include <pentad/kernels/detail/gemm_plain.hpp>
#include <pentad/kernels/detail/gemm_problem.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/observe/counters.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/observe/host_work.hpp>

#if defined(PENTAD_HAVE_KOKKOS_KERNELS)
#include <pentad/kernels/detail/gemm_kokkos_kernels.hpp>
#endif
#if defined(PENTAD_HAVE_CUBLAS)
#include <pentad/kernels/detail/gemm_cublas.hpp>
#endif
#if defined(PENTAD_HAVE_BLAS)
#include <pentad/kernels/detail/gemm_blas.hpp>
#endif
#if defined(PENTAD_HAVE_ONEDNN)
#include <pentad/kernels/detail/gemm_onednn.hpp>
#endif

#include <Kokkos_Core.hpp>
#include <Kokkos_Profiling_ScopedRegion.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace pentad::kernels {

enum class Transpose { no, yes };

namespace detail {

#if defined(PENTAD_HAVE_KOKKOS_KERNELS)
inline constexpr bool have_kokkos_kernels = true;
#else
inline constexpr bool have_kokkos_kernels = false;
#endif
#if defined(PENTAD_HAVE_CUBLAS)
inline constexpr bool have_cublas = true;
#else
inline constexpr bool have_cublas = false;
#endif
#if defined(PENTAD_HAVE_BLAS)
inline constexpr bool have_blas = true;
#else
inline constexpr bool have_blas = false;
#endif
#if defined(PENTAD_HAVE_ONEDNN)
inline constexpr bool have_onednn = true;
#else
inline constexpr bool have_onednn = false;
#endif

template <class Exec, class In, class Out>
void gemm_backend(Exec const& exec, GemmProblem<In, Out> const& problem) {
    constexpr bool on_host = runs_on_host<Exec>;
    constexpr bool is_f32 = std::is_same_v<In, f32>;
    constexpr bool is_bf16 = std::is_same_v<In, bf16>;
    if constexpr (on_host && !is_bf16)
        if (is_of_few_rows(problem)) return gemm_few_rows<In>(exec, problem);
    if constexpr (have_kokkos_kernels && !is_bf16) {
        gemm_kokkos_kernels(exec, problem);
    } else if constexpr (have_cublas && !on_host) {
        gemm_cublas(exec, problem);
    } else if constexpr (have_onednn && have_blas && on_host && is_f32) {
        if (blas_is_faster(problem))
            gemm_blas(problem);
        else
            gemm_onednn(problem);
    } else if constexpr (have_onednn && on_host && is_f32) {
        gemm_onednn(problem);
    } else if constexpr (have_onednn && on_host && is_bf16) {
        if (gemm_onednn(problem)) return;
        if constexpr (have_blas)
            gemm_blas(problem);
        else
            gemm_plain(exec, problem);
    } else if constexpr (have_blas && on_host) {
        gemm_blas(problem);
    } else {
        gemm_plain(exec, problem);
    }
}

template <class View>
std::string shape_text(View const& view) {
    return "[" + std::to_string(view.extent(0)) + ", " + std::to_string(view.extent(1)) + "]";
}

/// Distance between rows; where there is at most one, any number that the libraries accept.
template <class View>
i64 row_stride(char const* name, View const& view) {
    auto const columns = static_cast<i64>(view.extent(1));
    auto const stride = static_cast<i64>(view.stride(0));
    if (columns > 1 && view.stride(1) != 1)
        throw std::invalid_argument(std::string("gemm: the elements of a row of ") + name + shape_text(view) + " are " +
                                    std::to_string(view.stride(1)) + " apart; they must be adjacent");
    if (view.extent(0) <= 1) return std::max<i64>({stride, columns, 1});
    if (stride < columns)
        throw std::invalid_argument(std::string("gemm: the rows of ") + name + shape_text(view) + " are " +
                                    std::to_string(stride) + " apart, so that they overlap");
    return stride;
}

} // namespace detail

/// C = alpha op(A) op(B) + beta C, on the execution space instance; not fenced. A, B and C are Views of rank 2 with
/// adjacent elements in a row and any distance between rows. A and B hold f64, f32 or bf16; C holds the same, or f32
/// where A and B are bf16. Sums are in accumulator_t. Where beta is 0, C is not read. Counts 2 m n k FLOPs.
template <class Exec, class A, class B, class C>
void gemm(Exec const& exec, Transpose transpose_a, Transpose transpose_b, double alpha, A const& a, B const& b,
          double beta, C const& c) {
    using In = typename A::non_const_value_type;
    using Out = typename C::value_type;
    static_assert(A::rank() == 2 && B::rank() == 2 && C::rank() == 2, "gemm takes Views of rank 2");
    static_assert(std::is_same_v<In, typename B::non_const_value_type>, "gemm needs A and B of the same element type");
    static_assert(std::is_same_v<In, Out> || (std::is_same_v<In, bf16> && std::is_same_v<Out, f32>),
                  "gemm writes C in the element type of A and B, or in f32 where they are bf16");
    static_assert(!std::is_const_v<Out>, "gemm writes C, which is const here");

    bool const ta = transpose_a == Transpose::yes;
    bool const tb = transpose_b == Transpose::yes;
    auto const m = static_cast<i64>(c.extent(0));
    auto const n = static_cast<i64>(c.extent(1));
    auto const k = static_cast<i64>(a.extent(ta ? 0 : 1));
    if (static_cast<i64>(a.extent(ta ? 1 : 0)) != m || static_cast<i64>(b.extent(tb ? 1 : 0)) != k ||
        static_cast<i64>(b.extent(tb ? 0 : 1)) != n)
        throw std::invalid_argument("gemm: C" + detail::shape_text(c) + " = A" + detail::shape_text(a) +
                                    (ta ? "^T" : "") + " B" + detail::shape_text(b) + (tb ? "^T" : "") +
                                    " does not fit: A must give C's rows, B its columns, and both the same inner size");
    auto const problem = detail::GemmProblem<In, Out>{m,
                                                      n,
                                                      k,
                                                      alpha,
                                                      a.data(),
                                                      detail::row_stride("A", a),
                                                      ta,
                                                      b.data(),
                                                      detail::row_stride("B", b),
                                                      tb,
                                                      beta,
                                                      c.data(),
                                                      detail::row_stride("C", c)};
    if (m == 0 || n == 0) return;
    if (k == 0 || alpha == 0.0) {
        if (!dry("gemm_scale", c, c)) detail::gemm_scale<Out>(exec, m, n, beta, problem.c, problem.c_stride);
        return;
    }
    auto const sizes = std::array{static_cast<double>(m), static_cast<double>(n), static_cast<double>(k)};
    observe::counters().gemm_flops += 2.0 * sizes[0] * sizes[1] * sizes[2];
    if (auto* const run = observe::dry_run())
        return run->product(sizes[0], sizes[1], sizes[2],
                            sizeof(In) * (sizes[0] + sizes[1]) * sizes[2] +
                                sizeof(Out) * (beta == 0 ? 1 : 2) * sizes[0] * sizes[1]);
    Kokkos::Profiling::ScopedRegion const region("pentad::gemm");
    std::optional<observe::HostWork> work;
    if constexpr (runs_on_host<Exec>) work.emplace("gemm");
    detail::gemm_backend(exec, problem);
}

namespace detail {

template <class View>
void check_groups(char const* what, View const& weights, std::span<i64 const> offsets, i64 rows) {
    static_assert(View::rank() == 3, "grouped products take one matrix for each group, as a View of rank 3");
    if (offsets.size() != weights.extent(0) + 1 || offsets.front() != 0 || offsets.back() != rows ||
        !std::is_sorted(offsets.begin(), offsets.end()))
        throw std::invalid_argument(std::string(what) + ": " + std::to_string(weights.extent(0)) + " groups over " +
                                    std::to_string(rows) + " rows need " + std::to_string(weights.extent(0) + 1) +
                                    " offsets that rise from 0 to the number of rows");
}

template <class View>
auto rows_of(View const& view, i64 begin, i64 end) {
    return Kokkos::subview(view, std::pair<i64, i64>(begin, end), Kokkos::ALL);
}

} // namespace detail

/// For each group g, over its rows offsets[g] .. offsets[g + 1] (in host memory):
///   c[rows] = alpha a[rows] op(b[g]) + beta c[rows].
/// The product of a layer of experts: a is [rows, k], b [groups, k, n] (or [groups, n, k], transposed), c [rows, n].
template <class Exec, class A, class B, class C>
void grouped_gemm(Exec const& exec, Transpose transpose_b, double alpha, A const& a, B const& b,
                  std::span<i64 const> offsets, double beta, C const& c) {
    detail::check_groups("grouped_gemm", b, offsets, static_cast<i64>(a.extent(0)));
    for (std::size_t g = 0; g + 1 < offsets.size(); ++g)
        gemm(exec, Transpose::no, transpose_b, alpha, detail::rows_of(a, offsets[g], offsets[g + 1]),
             Kokkos::subview(b, g, Kokkos::ALL, Kokkos::ALL), beta, detail::rows_of(c, offsets[g], offsets[g + 1]));
}

/// For each group g, over its rows: c[g] = alpha a[rows]^T b[rows] + beta c[g]. The gradient of the experts' weights:
/// a is [rows, m], b [rows, n], c [groups, m, n]. A group without rows still has c[g] scaled by beta.
template <class Exec, class A, class B, class C>
void grouped_gemm_weight(Exec const& exec, double alpha, A const& a, B const& b, std::span<i64 const> offsets,
                         double beta, C const& c) {
    detail::check_groups("grouped_gemm_weight", c, offsets, static_cast<i64>(a.extent(0)));
    for (std::size_t g = 0; g + 1 < offsets.size(); ++g)
        gemm(exec, Transpose::yes, Transpose::no, alpha, detail::rows_of(a, offsets[g], offsets[g + 1]),
             detail::rows_of(b, offsets[g], offsets[g + 1]), beta, Kokkos::subview(c, g, Kokkos::ALL, Kokkos::ALL));
}

/// FLOP/s of large products of T on this execution space, sustained for a fifth of a second that begins when `ready()`
/// returns: a barrier there lets ranks that share cores find what each of them gets.
/// Fences and allocates. Does not count as work: what it is for is the denominator of the model FLOP utilisation.
// `ready` is no template parameter: nvcc takes no local type as one around a device lambda.
template <class T, class Exec>
double measure_gemm_speed(Exec const& exec, std::function<void()> const& ready) {
    using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::Device<Exec, typename Exec::memory_space>>;
    constexpr i64 largest = runs_on_host<Exec> ? 1024 : 8192;
    double const counted = observe::counters().gemm_flops;
    Matrix a, c;
    auto const product = [&] {
        gemm(exec, Transpose::no, Transpose::yes, 1.0, a, a, 0.0, c);
        exec.fence("pentad::measure_gemm_speed");
    };
    i64 size = 128;
    Kokkos::Timer timer;
    do { // the smallest size whose product takes long enough to be timed well
        size *= 2;
        a = Matrix("pentad::measure_gemm_speed", size, size);
        c = Matrix("pentad::measure_gemm_speed", size, size);
        T* const numbers = a.data();
        for_each_element( // not all alike: zeros draw less power, and run faster on some devices
            "pentad::measure_gemm_speed", exec, a.size(),
            KOKKOS_LAMBDA(i64 i) { numbers[i] = T(static_cast<accumulator_t<T>>(i % 251) / 251); });
        product(); // warms up
        timer.reset();
        product();
    } while (timer.seconds() < 0.005 && size < largest);
    ready();
    timer.reset();
    i64 products = 0;
    do {
        product();
        ++products;
    } while (timer.seconds() < 0.2);
    double const speed = 2.0 * static_cast<double>(size * size * size * products) / timer.seconds();
    observe::counters().gemm_flops = counted;
    return speed;
}
PENTAD_KERNEL(measure_gemm_speed)

} // namespace pentad::kernels
