// The kernels that are bound by memory, each beside the bound: `of_triad` is the speed in bytes (every array that must
// be read or written, once) relative to a STREAM triad in plain C++ over as many bytes.
#include "kernels.hpp"

#include <pentad/kernels/activation.hpp>
#include <pentad/kernels/adamw.hpp>
#include <pentad/kernels/choose_experts.hpp>
#include <pentad/kernels/cross_entropy.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/embedding.hpp>
#include <pentad/kernels/norm.hpp>
#include <pentad/kernels/permute.hpp>
#include <pentad/kernels/rope.hpp>
#include <pentad/kernels/router.hpp>

#include <Kokkos_Core.hpp>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>

using namespace kernel_bench;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Exec>;
template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, Exec>;

namespace {

/// Numbers in [-2, 2), so that exp and friends do ordinary work.
template <class V>
V filled(V const& view) {
    draw(view, 2);
    return view;
}
template <class T>
Matrix<T> matrix(i64 rows, i64 columns) {
    return filled(Matrix<T>("matrix", rows, columns));
}
template <class T>
Vector<T> vector(i64 n) {
    return filled(Vector<T>("vector", n));
}
/// i * step modulo n: tokens, targets, experts.
Vector<i32> cycle(i64 size, i64 step, i64 n) {
    Vector<i32> const view("cycle", size);
    auto const host = Kokkos::create_mirror_view(view);
    for (i64 i = 0; i < size; ++i) host(i) = static_cast<i32>(i * step % n);
    Kokkos::deep_copy(view, host);
    return view;
}

/// c = a + s * b
struct Triad {
    double *c, *a, *b;
    KOKKOS_FUNCTION void operator()(i64 i) const { c[i] = a[i] + 3.0 * b[i]; }
};
/// Bytes a second of a triad over `bytes` bytes in all.
double triad_speed(std::size_t bytes) {
    static std::map<std::size_t, double> known;
    auto const [at, is_new] = known.try_emplace(bytes, 0.0);
    if (!is_new) return at->second;
    i64 const n = std::max<i64>(1, static_cast<i64>(bytes / (3 * sizeof(double))));
    Vector<double> const a("a", n), b("b", n), c("c", n);
    double best = 1e30;
    Kokkos::Timer whole;
    for (int run = 0; run < 4 || whole.seconds() < (on_device ? 0.05 : 0.3); ++run) {
        Kokkos::Timer timer;
        for (i64 i = 0; i < launches; ++i)
            Kokkos::parallel_for("triad", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(0, n),
                                 Triad{c.data(), a.data(), b.data()});
        Kokkos::fence();
        if (run > 0) best = std::min(best, timer.seconds() / launches);
    }
    return at->second = static_cast<double>(3 * n) * sizeof(double) / best;
}

template <class F>
void measure(benchmark::State& state, std::size_t bytes, F const& kernel) {
    double const best = timed(state, kernel); // as of the triad, so that the ratio bears with a busy machine
    state.SetBytesProcessed(static_cast<i64>(bytes) * state.iterations());
    state.counters["best_GB/s"] = static_cast<double>(bytes) / best * 1e-9;
    state.counters["of_triad"] = static_cast<double>(bytes) / best / triad_speed(bytes);
}

template <class T>
void rms_norm_forward(benchmark::State& state) {
    using A = accumulator_t<T>;
    i64 const rows = state.range(0), hidden = state.range(1);
    auto const x = matrix<T>(rows, hidden), y = matrix<T>(rows, hidden);
    auto const w = vector<T>(hidden);
    auto const rstd = vector<A>(rows);
    measure(state, 2 * rows * hidden * sizeof(T),
            [&] { kernels::rms_norm_forward<T>(Exec(), x, w, A(1e-5), y, rstd); });
}
template <class T>
void rms_norm_backward_data(benchmark::State& state) {
    using A = accumulator_t<T>;
    i64 const rows = state.range(0), hidden = state.range(1);
    auto const x = matrix<T>(rows, hidden), dy = matrix<T>(rows, hidden), dx = matrix<T>(rows, hidden);
    auto const w = vector<T>(hidden);
    auto const rstd = vector<A>(rows);
    measure(state, 4 * rows * hidden * sizeof(T),
            [&] { kernels::rms_norm_backward_data<T>(Exec(), dy, x, w, rstd, dx, true); });
}
template <class T>
void rms_norm_backward_weight(benchmark::State& state) {
    using A = accumulator_t<T>;
    i64 const rows = state.range(0), hidden = state.range(1);
    auto const x = matrix<T>(rows, hidden), dy = matrix<T>(rows, hidden);
    auto const rstd = vector<A>(rows), dw = vector<A>(hidden);
    measure(state, 2 * rows * hidden * sizeof(T),
            [&] { kernels::rms_norm_backward_weight<T>(Exec(), dy, x, rstd, dw); });
}
template <class T>
void rope(benchmark::State& state) {
    using A = accumulator_t<T>;
    i64 const rows = state.range(0), hidden = state.range(1);
    auto const x = matrix<T>(rows, hidden);
    auto const c = matrix<A>(512, 32), s = matrix<A>(512, 32);
    // Frequencies of 0: in place, again and again.
    kernels::rope_tables<A>(Exec(), 1, Vector<f64>("frequencies", 32), c, s);
    Vector<i32> const positions("positions", 512);
    measure(state, 2 * rows * hidden * sizeof(T),
            [&] { kernels::rope_forward<T>(Exec(), x, positions, {c, s, c, s}); });
}
template <class T>
void swiglu_forward(benchmark::State& state) {
    i64 const rows = state.range(0), ffn = state.range(1);
    auto const gate = matrix<T>(rows, ffn), up = matrix<T>(rows, ffn), y = matrix<T>(rows, ffn);
    measure(state, 3 * rows * ffn * sizeof(T), [&] { kernels::swiglu_forward<T>(Exec(), gate, up, y); });
}
template <class T>
void swiglu_backward(benchmark::State& state) {
    i64 const rows = state.range(0), ffn = state.range(1);
    auto const gate = matrix<T>(rows, ffn), up = matrix<T>(rows, ffn), dgate = matrix<T>(rows, ffn),
               dup = matrix<T>(rows, ffn), dy = matrix<T>(rows, ffn);
    measure(state, 5 * rows * ffn * sizeof(T), [&] { kernels::swiglu_backward<T>(Exec(), dy, gate, up, dgate, dup); });
}
template <class T>
void gelu_forward(benchmark::State& state) {
    i64 const rows = state.range(0), ffn = state.range(1);
    auto const x = matrix<T>(rows, ffn), y = matrix<T>(rows, ffn);
    measure(state, 2 * rows * ffn * sizeof(T), [&] { kernels::gelu_forward<T>(Exec(), x, y); });
}
template <class T>
void gelu_backward(benchmark::State& state) {
    i64 const rows = state.range(0), ffn = state.range(1);
    auto const x = matrix<T>(rows, ffn), dy = matrix<T>(rows, ffn), dx = matrix<T>(rows, ffn);
    measure(state, 3 * rows * ffn * sizeof(T), [&] { kernels::gelu_backward<T>(Exec(), dy, x, dx); });
}
template <class T>
void cross_entropy_partial(benchmark::State& state) {
    using A = accumulator_t<T>;
    i64 const rows = state.range(0), vocab = state.range(1);
    auto const logits = matrix<T>(rows, vocab);
    auto const targets = cycle(rows, 7, vocab);
    auto const lse = vector<A>(rows), target = vector<A>(rows);
    measure(state, rows * vocab * sizeof(T),
            [&] { kernels::cross_entropy_partial<T>(Exec(), logits, targets, 0, vocab, lse, target); });
}
template <class T>
void cross_entropy_backward(benchmark::State& state) {
    using A = accumulator_t<T>;
    i64 const rows = state.range(0), vocab = state.range(1);
    auto const logits = matrix<T>(rows, vocab);
    auto const targets = cycle(rows, 7, vocab);
    auto const lse = vector<A>(rows);
    Kokkos::deep_copy(lse, A(9)); // in place, again and again: near 0
    measure(state, 2 * rows * vocab * sizeof(T),
            [&] { kernels::cross_entropy_backward<T>(Exec(), logits, lse, targets, 0, vocab, A(1)); });
}
template <class T>
void embedding_forward(benchmark::State& state) {
    i64 const rows = state.range(0), hidden = state.range(1);
    auto const table = matrix<T>(4096, hidden), y = matrix<T>(rows, hidden);
    auto const tokens = cycle(rows, 2741, 4096);
    measure(state, 2 * rows * hidden * sizeof(T), [&] { kernels::embedding_forward<T>(Exec(), tokens, table, 0, y); });
}
template <class T>
void embedding_backward(benchmark::State& state) {
    using A = accumulator_t<T>;
    i64 const rows = state.range(0), hidden = state.range(1);
    auto const dtable = matrix<A>(4096, hidden);
    auto const dy = matrix<T>(rows, hidden);
    auto const tokens = cycle(rows, 2741, 4096);
    measure(state, rows * hidden * (sizeof(T) + 2 * sizeof(A)),
            [&] { kernels::embedding_backward<T>(Exec(), tokens, dy, 0, dtable); });
}
template <class A>
void router_forward(benchmark::State& state) {
    i64 const rows = state.range(0), experts = state.range(1), top_k = experts == 8 ? 2 : 8;
    auto const logits = matrix<A>(rows, experts), p = matrix<A>(rows, experts), w = matrix<A>(rows, top_k);
    auto const index = Matrix<i32>("index", rows, top_k);
    auto const lse = vector<A>(rows), total = vector<A>(rows);
    measure(state, 2 * rows * experts * sizeof(A), [&] {
        kernels::router_scores<A>(Exec(), logits, p, lse, total);
        kernels::choose_experts<A>(Exec(), p, {}, index);
        kernels::router_weights<A>(Exec(), p, index, w);
    });
}
template <class A>
void router_backward(benchmark::State& state) {
    i64 const rows = state.range(0), experts = state.range(1), top_k = experts == 8 ? 2 : 8;
    auto const p = matrix<A>(rows, experts), d = matrix<A>(rows, experts), w = matrix<A>(rows, top_k);
    auto const lse = vector<A>(rows), total = vector<A>(rows);
    auto const balance = matrix<A>(1, experts);
    View<i32, 2, Exec> const index(cycle(rows * top_k, 1, experts).data(), rows, top_k);
    measure(state, 2 * rows * experts * sizeof(A),
            [&] { kernels::router_backward<A>(Exec(), {}, p, lse, total, index, w, w, balance, rows, A(1), d); });
}

/// Tokens over 8 experts, 2 for each.
struct Dispatch {
    static constexpr int top_k = 2, experts = 8;
    Matrix<i32> index, position, scratch;
    Vector<i32> source;
    Vector<i64> counts;
    explicit Dispatch(i64 rows)
        : index("index", rows, top_k), position("position", rows, top_k),
          scratch("scratch", kernels::sort_scratch_rows(Exec(), static_cast<std::size_t>(rows * top_k)), experts),
          source("source", rows * top_k), counts("counts", experts) {
        Kokkos::deep_copy(Vector<i32>(index.data(), rows * top_k), cycle(rows * top_k, 5, experts));
        sort();
    }
    void sort() const {
        kernels::sort_by_expert<kernels::Chosen::always>(Exec(), index, counts, position, source, scratch);
    }
};
void sort_by_expert(benchmark::State& state) {
    i64 const rows = state.range(0);
    Dispatch const dispatch(rows);
    measure(state, 4 * rows * Dispatch::top_k * sizeof(i32), [&] { dispatch.sort(); });
}
void router_counts(benchmark::State& state) {
    i64 const rows = state.range(0);
    Dispatch const dispatch(rows);
    measure(state, rows * Dispatch::top_k * sizeof(i32),
            [&] { kernels::router_counts(Exec(), dispatch.index, dispatch.counts); });
}
template <class T>
void permute_forward(benchmark::State& state) {
    i64 const rows = state.range(0), hidden = state.range(1);
    Dispatch const dispatch(rows);
    auto const x = matrix<T>(rows, hidden), y = matrix<T>(2 * rows, hidden);
    measure(state, 3 * rows * hidden * sizeof(T),
            [&] { kernels::permute_forward<T>(Exec(), x, dispatch.source, 2, y); });
}
template <class T>
void permute_backward(benchmark::State& state) {
    i64 const rows = state.range(0), hidden = state.range(1);
    Dispatch const dispatch(rows);
    auto const dx = matrix<T>(rows, hidden), dy = matrix<T>(2 * rows, hidden);
    measure(state, 3 * rows * hidden * sizeof(T),
            [&] { kernels::permute_backward<T>(Exec(), dy, dispatch.position, dx, false); });
}
template <class T>
void combine_forward(benchmark::State& state) {
    i64 const rows = state.range(0), hidden = state.range(1);
    Dispatch const dispatch(rows);
    auto const y = matrix<T>(rows, hidden), out = matrix<T>(2 * rows, hidden);
    auto const w = matrix<accumulator_t<T>>(rows, 2);
    measure(state, 3 * rows * hidden * sizeof(T),
            [&] { kernels::combine_forward<T>(Exec(), out, dispatch.position, w, y); });
}
template <class T>
void combine_backward(benchmark::State& state) {
    i64 const rows = state.range(0), hidden = state.range(1);
    Dispatch const dispatch(rows);
    auto const dy = matrix<T>(rows, hidden), out = matrix<T>(2 * rows, hidden), dout = matrix<T>(2 * rows, hidden);
    auto const w = vector<accumulator_t<T>>(2 * rows), dw = vector<accumulator_t<T>>(2 * rows);
    measure(state, 5 * rows * hidden * sizeof(T),
            [&] { kernels::combine_backward<T>(Exec(), dy, dispatch.source, 2, out, dispatch.source, w, dout, dw); });
}
template <class T>
void add(benchmark::State& state) {
    i64 const n = state.range(0);
    auto const x = vector<T>(n), y = vector<T>(n);
    measure(state, 3 * n * sizeof(T), [&] { kernels::add<T>(Exec(), x, y); });
}
template <class From, class To>
void convert(benchmark::State& state) {
    i64 const n = state.range(0);
    auto const x = vector<From>(n);
    auto const y = vector<To>(n);
    measure(state, n * (sizeof(From) + sizeof(To)), [&] { kernels::convert<From, To>(Exec(), x, y); });
}
template <class T>
void fill(benchmark::State& state) {
    auto const y = vector<T>(state.range(0));
    measure(state, state.range(0) * sizeof(T), [&] { kernels::fill<T>(Exec(), y, T(1.0f)); });
}
template <class T>
void sum_of_squares(benchmark::State& state) {
    i64 const n = state.range(0);
    auto const x = vector<T>(n);
    measure(state, n * sizeof(T), [&] { benchmark::DoNotOptimize(kernels::host_sum_of_squares<T>(Exec(), x)); });
}
template <class T>
void adamw(benchmark::State& state) {
    using A = accumulator_t<T>;
    i64 const n = state.range(0);
    auto const g = vector<A>(n), m = vector<A>(n), v = vector<A>(n), master = vector<A>(n);
    Kokkos::deep_copy(v, A(0));
    auto used = vector<T>(n);
    if constexpr (std::is_same_v<T, A>) used = master;
    std::size_t const written = std::is_same_v<T, A> ? 0 : sizeof(T);
    measure(state, n * (7 * sizeof(A) + written), [&] { kernels::adamw<T>(Exec(), used, master, g, m, v, 10, {}); });
}
void copy_memory(benchmark::State& state) {
    std::size_t const n = static_cast<std::size_t>(state.range(0));
    Kokkos::View<char*, Exec> const x("x", n), y("y", n);
    Exec const exec;
    measure(state, 2 * n, [&] {
        if constexpr (on_device)
            Kokkos::deep_copy(exec, y, x);
        else
            std::memcpy(y.data(), x.data(), n);
        benchmark::ClobberMemory();
    });
}

// The model of the issue of training: 2048 tokens of hidden 512, ffn 1408, vocab 4096; and a wider one. On a device
// 16,384 tokens of a wide one.
constexpr i64 tokens = on_device ? 16384 : 2048;
constexpr auto hidden = [](auto* test) {
    if (!on_device) test->Args({tokens, 512});
    test->Args({tokens, 4096});
};
constexpr auto ffn = [](auto* test) { test->Args({tokens, on_device ? 11008 : 1408}); };
constexpr auto vocabulary = [](auto* test) { test->Args({tokens, on_device ? 32768 : 4096}); };
constexpr auto small_vocabularies = [](auto* test) { test->Args({64, 4096})->Args({16, 512}); };
constexpr auto experts = [](auto* test) {
    for (i64 n : {8, 64, 256}) test->Args({tokens, n});
};
constexpr auto choices = [](auto* test) { test->Arg(tokens)->Arg(16 * tokens); };
constexpr auto flat = [](auto* test) {
    if (!on_device) test->Arg(1 << 16);
    test->Arg(on_device ? 1 << 28 : 1 << 24);
};
constexpr auto copied = [](auto* test) {
    if (!on_device) test->Arg(1 << 16)->Arg(1 << 20)->Arg(1 << 24);
    test->Arg(on_device ? i64{1} << 31 : 1 << 28);
};
#define ROWS(kernel, shapes)                                                                                           \
    BENCHMARK_TEMPLATE(kernel, f32)->Apply(shapes);                                                                    \
    BENCHMARK_TEMPLATE(kernel, bf16)->Apply(shapes)
BENCHMARK(copy_memory)->Apply(copied);
ROWS(rms_norm_forward, hidden);
ROWS(rms_norm_backward_data, hidden);
ROWS(rms_norm_backward_weight, hidden);
ROWS(rope, hidden);
ROWS(swiglu_forward, ffn);
ROWS(swiglu_backward, ffn);
ROWS(gelu_forward, ffn);
ROWS(gelu_backward, ffn);
BENCHMARK_TEMPLATE(swiglu_forward, f64)->Apply(ffn);
ROWS(cross_entropy_partial, vocabulary);
ROWS(cross_entropy_backward, vocabulary);
ROWS(cross_entropy_backward, small_vocabularies);
ROWS(embedding_forward, hidden);
ROWS(embedding_backward, hidden);
BENCHMARK_TEMPLATE(router_forward, f32)->Apply(experts);
BENCHMARK_TEMPLATE(router_backward, f32)->Apply(experts);
BENCHMARK(router_counts)->Apply(choices);
BENCHMARK(sort_by_expert)->Apply(choices);
ROWS(permute_forward, hidden);
ROWS(permute_backward, hidden);
ROWS(combine_forward, hidden);
ROWS(combine_backward, hidden);
ROWS(add, flat);
BENCHMARK_TEMPLATE(convert, f32, bf16)->Apply(flat);
BENCHMARK_TEMPLATE(convert, bf16, f32)->Apply(flat);
BENCHMARK_TEMPLATE(convert, f32, f32)->Apply(flat);
BENCHMARK_TEMPLATE(fill, bf16)->Apply(flat);
ROWS(sum_of_squares, flat);
ROWS(adamw, flat);
BENCHMARK_TEMPLATE(adamw, f64)->Apply(flat);

} // namespace

int main(int argc, char** argv) { return kernel_bench::run(argc, argv); }
