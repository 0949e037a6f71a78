// FLOP/s of the two kernels that most of the time goes into: the matrix product and attention. Causal attention counts
// only the scores that the mask leaves.
#include "kernels.hpp"

#include <pentad/kernels/attention.hpp>
#include <pentad/kernels/gemm.hpp>

#include <Kokkos_Core.hpp>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace {

using namespace kernel_bench;
using kernels::Transpose;

/// C[m, n] += op(A) op(B); `Out` differs from `In` for weight gradients in bf16.
template <class In, class Out = In>
void gemm(benchmark::State& state, Transpose ta, Transpose tb) {
    i64 const m = state.range(0), n = state.range(1), k = state.range(2);
    bool const a_transposed = ta == Transpose::yes, b_transposed = tb == Transpose::yes;
    Kokkos::View<In**, Kokkos::LayoutRight, Exec> const a("a", a_transposed ? k : m, a_transposed ? m : k);
    Kokkos::View<In**, Kokkos::LayoutRight, Exec> const b("b", b_transposed ? n : k, b_transposed ? k : n);
    Kokkos::View<Out**, Kokkos::LayoutRight, Exec> const c("c", m, n);
    draw(a);
    draw(b);
    Exec const exec;
    timed_flops(state, 2.0 * static_cast<double>(m * n * k),
                [&] { kernels::gemm(exec, ta, tb, 1.0, a, b, std::is_same_v<In, Out> ? 0.0 : 1.0, c); });
}

/// For a macro of Google Benchmark up to 1.7, which takes no parentheses.
void gemm_bf16_to_f32(benchmark::State& state, Transpose ta, Transpose tb) { gemm<bf16, f32>(state, ta, tb); }

// The argument's type has another name in each version of Google Benchmark.
constexpr auto sizes = [](auto* test) {
    if (on_device)
        test->Args({8192, 8192, 8192})->Args({16384, 2048, 2048})->Args({16384, 5632, 2048});
    else
        for (i64 n : {512, 1408, 4096})
            for (i64 k : {512, 1408, 4096}) test->Args({2048, n, k});
    test->ArgNames({"m", "n", "k"})->Unit(benchmark::kMillisecond)->UseRealTime();
};

BENCHMARK_CAPTURE(gemm<f32>, forward, Transpose::no, Transpose::yes)->Apply(sizes);
BENCHMARK_CAPTURE(gemm<f32>, backward_data, Transpose::no, Transpose::no)->Apply(sizes);
BENCHMARK_CAPTURE(gemm<f32>, backward_weight, Transpose::yes, Transpose::no)->Apply(sizes);
BENCHMARK_CAPTURE(gemm<f64>, forward, Transpose::no, Transpose::yes)
    ->Args({on_device ? 8192 : 2048, on_device ? 8192 : 512, on_device ? 8192 : 512})
    ->ArgNames({"m", "n", "k"})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK_CAPTURE(gemm<bf16>, forward, Transpose::no, Transpose::yes)->Apply(sizes);
BENCHMARK_CAPTURE(gemm_bf16_to_f32, backward_weight, Transpose::yes, Transpose::no)->Apply(sizes);

template <class T>
struct Attention {
    using Acc = accumulator_t<T>;
    explicit Attention(benchmark::State const& state)
        : batch(state.range(0)), seq(state.range(1)), heads(state.range(2)), kv_heads(state.range(3)),
          head_dim(state.range(4)), document(state.range(7)),
          mask{.causal = state.range(5) != 0, .window = state.range(6)},
          scores{.scale = 1.0 / std::sqrt(static_cast<double>(head_dim)),
                 .soft_cap = static_cast<double>(state.range(8)),
                 .alibi_heads = state.range(9) != 0 ? heads : 0},
          begins("begins", batch, seq), ends("ends", batch, seq),
          qkv("qkv", batch, seq, heads + 2 * kv_heads, head_dim), o("o", batch, seq, heads, head_dim),
          d_o("d_o", batch, seq, heads, head_dim), d_qkv("d_qkv", batch, seq, heads + 2 * kv_heads, head_dim),
          lse("lse", batch, heads, seq), delta("delta", batch, heads, seq) {
        draw(qkv);
        draw(d_o);
        if (document == 0) return;
        auto const first = Kokkos::create_mirror_view(begins), last = Kokkos::create_mirror_view(ends);
        for (i64 b = 0; b < batch; ++b)
            for (i64 i = 0; i < seq; ++i) {
                first(b, i) = static_cast<i32>(i / document * document);
                last(b, i) = static_cast<i32>(std::min(i / document * document + document, seq));
            }
        Kokkos::deep_copy(begins, first);
        Kokkos::deep_copy(ends, last);
        mask.document_begins = begins.data();
        mask.document_ends = ends.data();
        mask.sequence_stride = seq;
    }
    /// The slice [first, last) of the heads of a fused buffer.
    template <class View>
    static auto slice(View const& view, i64 first, i64 last) {
        return Kokkos::subview(view, Kokkos::ALL, Kokkos::ALL, std::pair<i64, i64>(first, last), Kokkos::ALL);
    }
    template <class View>
    auto q(View const& view) const {
        return slice(view, 0, heads);
    }
    template <class View>
    auto k(View const& view) const {
        return slice(view, heads, heads + kv_heads);
    }
    template <class View>
    auto v(View const& view) const {
        return slice(view, heads + kv_heads, heads + 2 * kv_heads);
    }

    void forward() const { kernels::attention_forward(exec, q(qkv), k(qkv), v(qkv), scores, mask, o, lse); }
    void backward() const {
        kernels::attention_backward_start(exec, o, d_o, delta);
        kernels::attention_backward_accumulate(exec, q(qkv), k(qkv), v(qkv), d_o, lse, delta, scores, mask, q(d_qkv),
                                               k(d_qkv), v(d_qkv));
    }
    /// Of one product of all scores with head_dim numbers each.
    double flops() const {
        double pairs = 0;
        for (i64 i = 0; i < seq; ++i) {
            i64 first = document > 0 ? i / document * document : 0;
            i64 last = mask.causal ? i + 1 : document > 0 ? std::min(first + document, seq) : seq;
            if (mask.window > 0) {
                first = std::max(first, i + 1 - mask.window);
                last = std::min(last, i + mask.window);
            }
            pairs += static_cast<double>(last - first);
        }
        return 2.0 * static_cast<double>(batch * heads * head_dim) * pairs;
    }

    Exec exec;
    i64 batch, seq, heads, kv_heads, head_dim, document;
    kernels::AttentionMask mask;
    kernels::AttentionScores scores;
    Kokkos::View<i32**, Kokkos::LayoutRight, Exec> begins, ends;
    Kokkos::View<T****, Kokkos::LayoutRight, Exec> qkv, o, d_o;
    Kokkos::View<Acc****, Kokkos::LayoutRight, Exec> d_qkv;
    Kokkos::View<Acc***, Kokkos::LayoutRight, Exec> lse, delta;
};

template <class T>
void attention_forward(benchmark::State& state) {
    Attention<T> const attention(state);
    timed_flops(state, 2.0 * attention.flops(), [&] { attention.forward(); });
}

template <class T>
void attention_backward(benchmark::State& state) {
    Attention<T> const attention(state);
    attention.forward();
    timed_flops(state, 5.0 * attention.flops(), [&] { attention.backward(); });
}

constexpr auto host_shapes = [](auto* test) {
    for (i64 causal : {1, 0})
        for (i64 seq : {512, 1024, 2048}) test->Args({1, seq, 8, 8, 64, causal, 0, 0, 0, 0});
    test->Args({1, 1024, 8, 2, 64, 1, 0, 0, 0, 0})
        ->Args({1, 1024, 8, 8, 32, 1, 0, 0, 0, 0})
        ->Args({1, 1024, 4, 4, 128, 1, 0, 0, 0, 0});
    test->Args({1, 1024, 8, 8, 64, 1, 0, 0, 50, 0})->Args({1, 1024, 8, 8, 64, 1, 0, 0, 0, 1});
    // Time falls with the work: windows, and documents.
    test->Args({1, 4096, 8, 8, 64, 1, 0, 0, 0, 0});
    for (i64 window : {2048, 1024, 512}) test->Args({1, 4096, 8, 8, 64, 1, window, 0, 0, 0});
    for (i64 document : {1999, 1033, 509}) test->Args({1, 4096, 8, 8, 64, 1, 0, document, 0, 0});
};
/// 8,192 tokens and a hidden size of 2,048.
constexpr auto device_shapes = [](auto* test) {
    test->Args({4, 2048, 16, 16, 128, 1, 0, 0, 0, 0})->Args({1, 8192, 16, 16, 128, 1, 0, 0, 0, 0});
    test->Args({4, 2048, 32, 32, 64, 1, 0, 0, 0, 0})->Args({4, 2048, 16, 4, 128, 1, 0, 0, 0, 0});
    test->Args({4, 2048, 16, 16, 128, 0, 0, 0, 0, 0});
    test->Args({1, 8192, 16, 16, 128, 1, 1024, 0, 0, 0})->Args({1, 8192, 16, 16, 128, 1, 0, 1033, 0, 0});
};
constexpr auto shapes = [](auto* test) {
    on_device ? device_shapes(test) : host_shapes(test);
    test->ArgNames(
            {"batch", "seq", "heads", "kv_heads", "head_dim", "causal", "window", "document", "soft_cap", "alibi"})
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
};

BENCHMARK(attention_forward<f32>)->Apply(shapes);
BENCHMARK(attention_backward<f32>)->Apply(shapes);
BENCHMARK(attention_forward<bf16>)->Apply(shapes);
BENCHMARK(attention_backward<bf16>)->Apply(shapes);
BENCHMARK(attention_forward<f64>)
    ->Args({1, 1024, 8, 8, 64, 1, 0, 0, 0, 0})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();
BENCHMARK(attention_backward<f64>)
    ->Args({1, 1024, 8, 8, 64, 1, 0, 0, 0, 0})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

} // namespace

int main(int argc, char** argv) { return kernel_bench::run(argc, argv); }
