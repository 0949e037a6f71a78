// The matrix product through oneDNN on the host: bf16 on the matrix units of the CPU where it has
// them, and f32 where oneDNN beats the BLAS.
#pragma once

#include <pentad/kernels/detail/gemm_problem.hpp>

#include <oneapi/dnnl/dnnl.hpp>

#include <array>
#include <bit>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace pentad::kernels::detail {

inline void gemm_onednn(GemmProblem<f32, f32> const& p) {
    auto const status =
        dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, static_cast<f32>(p.alpha), p.a,
                   p.a_stride, p.b, p.b_stride, static_cast<f32>(p.beta), p.c, p.c_stride);
    if (status != dnnl_success)
        throw std::runtime_error("gemm: dnnl_sgemm failed with status " + std::to_string(status));
}

struct OneDnn {
    using Key = std::array<i64, 11>; // all that a primitive is compiled for
    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
    /// A compiled primitive, and the descriptions of the matrices of its last call: the next one mostly has the same.
    struct Product {
        dnnl::primitive primitive;
        std::array<i64, 6> described{}; // m, n, k and the strides
        std::array<dnnl::memory, 3> matrices{};
    };
    // Primitives are compiled when first met, which takes milliseconds; a model needs some tens of them.
    std::map<Key, Product> products;

    static OneDnn& instance() {
        thread_local OneDnn library;
        return library;
    }
};

/// False where oneDNN has no bf16 on this CPU (below AVX-512); nothing is done then.
template <class Out>
bool gemm_onednn(GemmProblem<bf16, Out> const& p) {
    using dnnl::memory;
    constexpr auto in_type = memory::data_type::bf16;
    constexpr auto out_type = std::is_same_v<Out, f32> ? memory::data_type::f32 : memory::data_type::bf16;
    auto const strides = [](bool transpose, i64 stride) {
        return transpose ? memory::dims{1, stride} : memory::dims{stride, 1};
    };

    // Sizes that change from step to step (tokens of an expert) are left free, or each would cost a compilation. With
    // f32 results (weight gradients: k is the number of tokens) everything is free, and as fast. With bf16 results
    // oneDNN would then allocate an f32 copy of C at each call, so only the number of rows is free. Not even that if
    // the rows of A are padded: oneDNN 3.12 then takes wrong rows, and when k is odd as well it multiplies the padding
    // (0 * NaN) whatever is fixed, so that such products take the slower way.
    constexpr i64 any = DNNL_RUNTIME_DIM_VAL;
    bool const padded = !p.transpose_a && p.a_stride != p.k;
    bool const all_free = std::is_same_v<Out, f32> || (padded && p.k % 32 != 0);
    i64 const m = padded && !all_free ? p.m : any;
    i64 const n = all_free ? any : p.n;
    i64 const k = all_free ? any : p.k;
    i64 const a_stride = all_free || p.transpose_a ? any : p.a_stride;
    i64 const b_stride = all_free ? any : p.b_stride;
    i64 const c_stride = all_free ? any : p.c_stride;
    auto& library = OneDnn::instance();
    auto const key = OneDnn::Key{std::is_same_v<Out, f32>,
                                 p.transpose_a,
                                 p.transpose_b,
                                 m,
                                 n,
                                 k,
                                 a_stride,
                                 b_stride,
                                 c_stride,
                                 std::bit_cast<i64>(p.alpha),
                                 std::bit_cast<i64>(p.beta)};
    auto found = library.products.find(key);
    if (found == library.products.end()) {
        dnnl::post_ops then;
        if (p.alpha != 1.0) then.append_eltwise(dnnl::algorithm::eltwise_linear, static_cast<f32>(p.alpha), 0.0f);
        if (p.beta != 0.0) then.append_sum(static_cast<f32>(p.beta));
        dnnl::primitive_attr attributes;
        attributes.set_post_ops(then);
        auto const descriptor = dnnl::matmul::primitive_desc(
            library.engine, memory::desc({m, k}, in_type, strides(p.transpose_a, a_stride)),
            memory::desc({k, n}, in_type, strides(p.transpose_b, b_stride)),
            memory::desc({m, n}, out_type, strides(false, c_stride)), attributes, /* allow_empty = */ true);
        found =
            library.products.emplace(key, OneDnn::Product{descriptor ? dnnl::matmul(descriptor) : dnnl::primitive()})
                .first;
    }
    auto& product = found->second;
    if (!product.primitive) return false;
    auto& [a, b, c] = product.matrices;
    if (std::array const extents{p.m, p.n, p.k, p.a_stride, p.b_stride, p.c_stride}; product.described != extents) {
        auto const matrix = [&](i64 rows, i64 columns, memory::data_type type, memory::dims const& stride) {
            return memory({{rows, columns}, type, stride}, library.engine, DNNL_MEMORY_NONE);
        };
        a = matrix(p.m, p.k, in_type, strides(p.transpose_a, p.a_stride));
        b = matrix(p.k, p.n, in_type, strides(p.transpose_b, p.b_stride));
        c = matrix(p.m, p.n, out_type, strides(false, p.c_stride));
        product.described = extents;
    }
    a.set_data_handle(const_cast<bf16*>(p.a));
    b.set_data_handle(const_cast<bf16*>(p.b));
    c.set_data_handle(p.c);
    // Not primitive::execute(), which allocates.
    std::array const arguments{dnnl_exec_arg_t{DNNL_ARG_SRC, a.get()}, dnnl_exec_arg_t{DNNL_ARG_WEIGHTS, b.get()},
                               dnnl_exec_arg_t{DNNL_ARG_DST, c.get()}};
    dnnl::error::wrap_c_api(dnnl_primitive_execute(product.primitive.get(), library.stream.get(),
                                                   static_cast<int>(arguments.size()), arguments.data()),
                            "gemm: dnnl_primitive_execute failed");
    library.stream.wait();
    return true;
}

} // namespace pentad::kernels::detail
