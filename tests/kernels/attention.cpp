#include <pentad/kernels/attention.hpp>

#include "slice.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

using namespace pentad;
using arrays::Exec;
using arrays::Slice;
using kernels::AttentionMask;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Shape {
    i64 batch, seq_q, seq_k, heads, kv_heads, head_dim;
    AttentionMask mask = {};
    std::vector<std::vector<i64>> documents = {}; ///< of each sequence, the positions at which they begin, after 0
    kernels::AttentionScores scores = {};         ///< but for the scale, 1 / sqrt(head_dim)
    bool has_sinks = false;
    i64 value_dim = 0; ///< 0: head_dim

    i64 values() const { return value_dim > 0 ? value_dim : head_dim; }
    /// By the definition.
    bool sees(i64 batch_entry, i64 i, i64 j) const {
        i64 const query = mask.query_start + i, key = mask.key_start + j;
        auto const document = [&](i64 position) {
            if (documents.empty()) return std::ptrdiff_t(0);
            auto const& begins = documents[batch_entry];
            return std::upper_bound(begins.begin(), begins.end(), position) - begins.begin();
        };
        if (mask.causal && key > query) return false;
        if (mask.window > 0 && std::abs(query - key) >= mask.window) return false;
        return document(query) == document(key);
    }
};

/// Where the document of each position of [batch, seq] begins and ends, for a shape's mask.
class Bounds {
  public:
    Bounds(Shape& s, i64 seq) : begins_("begins", s.batch, seq), ends_("ends", s.batch, seq) {
        if (s.documents.empty()) return;
        auto const begins = Kokkos::create_mirror_view(begins_), ends = Kokkos::create_mirror_view(ends_);
        for (i64 b = 0; b < s.batch; ++b) {
            auto bounds = s.documents[b];
            bounds.insert(bounds.begin(), 0);
            bounds.push_back(seq);
            for (std::size_t d = 0; d + 1 < bounds.size(); ++d)
                for (i64 at = bounds[d]; at < std::min(bounds[d + 1], seq); ++at) {
                    begins(b, at) = static_cast<i32>(bounds[d]);
                    ends(b, at) = static_cast<i32>(bounds[d + 1]);
                }
        }
        Kokkos::deep_copy(begins_, begins);
        Kokkos::deep_copy(ends_, ends);
        s.mask.document_begins = begins_.data() + s.mask.query_start;
        s.mask.document_ends = ends_.data() + s.mask.query_start;
        s.mask.sequence_stride = seq;
    }

  private:
    Kokkos::View<i32**, Kokkos::LayoutRight, Exec> begins_, ends_;
};

template <class Acc>
using Rows = Kokkos::View<Acc***, Kokkos::LayoutRight, Exec>;

/// The slopes of ALiBi as their authors' code makes them: geometric of powers of two, and of other numbers those of the
/// power below, filled up with every second one of the power above.
std::vector<double> published_slopes(i64 heads) {
    i64 power = 1;
    while (power * 2 <= heads) power *= 2;
    std::vector<double> slopes;
    double const start = std::pow(2.0, -std::pow(2.0, -(std::log2(static_cast<double>(power)) - 3)));
    for (i64 i = 0; i < power; ++i) slopes.push_back(start * std::pow(start, static_cast<double>(i)));
    if (power == heads) return slopes;
    auto const above = published_slopes(2 * power);
    for (i64 i = 0; power + i < heads; ++i) slopes.push_back(above[2 * i]);
    return slopes;
}

/// The definition, in f64, with the whole matrix of probabilities of one head at a time.
struct Reference {
    std::vector<double> o, lse, dq, dk, dv, d_sinks;
};
template <class T>
Reference reference(Shape const& s, kernels::AttentionScores const& scores, Slice<T> const& q, Slice<T> const& k,
                    Slice<T> const& v, Slice<T> const& d_o, std::vector<double> const& sinks) {
    Reference r;
    r.d_sinks.assign(s.heads, 0);
    auto const slopes = published_slopes(std::max<i64>(scores.alibi_heads, 1));
    std::vector<double> slope_of(s.seq_k); // of the scores by the scaled products
    r.o.assign(s.batch * s.seq_q * s.heads * s.values(), 0);
    r.dq.assign(s.batch * s.seq_q * s.heads * s.head_dim, 0);
    r.lse.assign(s.batch * s.heads * s.seq_q, -infinity);
    r.dk.assign(s.batch * s.seq_k * s.kv_heads * s.head_dim, 0);
    r.dv.assign(s.batch * s.seq_k * s.kv_heads * s.values(), 0);
    std::vector<double> p(s.seq_k), dp(s.seq_k), query(s.head_dim), gradient(s.values());
    for (i64 b = 0; b < s.batch; ++b)
        for (i64 h = 0; h < s.heads; ++h)
            for (i64 i = 0; i < s.seq_q; ++i) {
                i64 const g = h / (s.heads / s.kv_heads);
                double largest = -infinity, sum = 0, delta = 0;
                for (i64 d = 0; d < s.head_dim; ++d) query[d] = q(b, i, h, d);
                for (i64 d = 0; d < s.values(); ++d) gradient[d] = d_o(b, i, h, d);
                for (i64 j = 0; j < s.seq_k; ++j) {
                    p[j] = -infinity;
                    if (!s.sees(b, i, j)) continue;
                    double dot = 0;
                    for (i64 d = 0; d < s.head_dim; ++d) dot += query[d] * k(b, j, g, d);
                    double score = scores.scale * dot;
                    slope_of[j] = 1;
                    if (scores.soft_cap > 0) {
                        double const part = std::tanh(score / scores.soft_cap);
                        score = scores.soft_cap * part;
                        slope_of[j] = 1 - part * part;
                    }
                    i64 const apart = s.mask.query_start + i - (s.mask.key_start + j);
                    if (scores.alibi_heads > 0)
                        score -= slopes[scores.first_head + h] * static_cast<double>(std::abs(apart));
                    p[j] = score;
                    largest = std::max(largest, p[j]);
                }
                if (s.has_sinks) largest = std::max(largest, sinks[h]);
                if (largest == -infinity) continue;
                for (auto& x : p) sum += x = x == -infinity ? 0 : std::exp(x - largest);
                double const of_sink = s.has_sinks ? std::exp(sinks[h] - largest) : 0;
                sum += of_sink;
                r.lse[(b * s.heads + h) * s.seq_q + i] = largest + std::log(sum);
                auto const to = ((b * s.seq_q + i) * s.heads + h) * s.head_dim;
                auto const output = ((b * s.seq_q + i) * s.heads + h) * s.values();
                for (i64 j = 0; j < s.seq_k; ++j) {
                    dp[j] = 0;
                    if (p[j] == 0) continue; // not seen
                    p[j] /= sum;
                    auto const value = ((b * s.seq_k + j) * s.kv_heads + g) * s.values();
                    for (i64 d = 0; d < s.values(); ++d) {
                        r.o[output + d] += p[j] * v(b, j, g, d);
                        r.dv[value + d] += p[j] * gradient[d];
                        dp[j] += gradient[d] * v(b, j, g, d);
                    }
                    delta += p[j] * dp[j];
                }
                r.d_sinks[h] -= of_sink / sum * delta;
                for (i64 j = 0; j < s.seq_k; ++j) {
                    if (p[j] == 0) continue;
                    auto const key = ((b * s.seq_k + j) * s.kv_heads + g) * s.head_dim;
                    double const ds = p[j] * (dp[j] - delta) * slope_of[j] * scores.scale;
                    for (i64 d = 0; d < s.head_dim; ++d) {
                        r.dq[to + d] += ds * k(b, j, g, d);
                        r.dk[key + d] += ds * query[d];
                    }
                }
            }
    return r;
}

template <class Acc>
double distance(Rows<Acc> const& actual, std::vector<double> const& expected) {
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), actual);
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        double const got = static_cast<double>(host.data()[i]);
        double const error = got == expected[i] ? 0 : std::abs(got - expected[i]);
        worst = std::isnan(error) ? infinity : std::max(worst, error);
    }
    return worst;
}

/// The interface, or one of the implementations behind it that a machine may not choose by itself.
enum class Path {
    automatic,
    device,
    by_head,
    by_tile,
    numbers ///< on the host, products of numbers also where the CPU multiplies pairs of bf16
};

/// Everything a pass needs, and the two ways to run it: in one call, or over blocks of keys.
template <class T>
struct Attention {
    using Acc = accumulator_t<T>;
    explicit Attention(Shape const& shape)
        : s(shape), scores(s.scores), sinks("sinks", s.has_sinks ? s.heads : 0), d_sinks("d_sinks", s.heads),
          q(s.batch, s.seq_q, s.heads, s.head_dim, 1, 3.0), k(s.batch, s.seq_k, s.kv_heads, s.head_dim, 2, 3.0),
          v(s.batch, s.seq_k, s.kv_heads, s.values(), 3), d_o(s.batch, s.seq_q, s.heads, s.values(), 4),
          o(s.batch, s.seq_q, s.heads, s.values(), 5), dq(s.batch, s.seq_q, s.heads, s.head_dim, 6),
          dk(s.batch, s.seq_k, s.kv_heads, s.head_dim, 7), dv(s.batch, s.seq_k, s.kv_heads, s.values(), 8),
          output("output", s.batch, s.seq_q, s.heads, s.values()), lse("lse", s.batch, s.heads, s.seq_q),
          delta("delta", s.batch, s.heads, s.seq_q), max("max", s.batch, s.heads, s.seq_q),
          sum("sum", s.batch, s.heads, s.seq_q) {
        scores.scale = 1.0 / std::sqrt(static_cast<double>(s.head_dim));
        for (i64 h = 0; s.has_sinks && h < s.heads; ++h) set_sink(h, h % 2 == 0 ? 1.5 : -0.5 * static_cast<double>(h));
    }
    void set_sink(i64 head, double value) {
        sink_values.resize(s.heads);
        auto const rounded = T(static_cast<Acc>(value));
        sink_values[head] = static_cast<double>(static_cast<Acc>(rounded));
        Kokkos::deep_copy(Kokkos::subview(sinks, head), rounded);
    }
    [[nodiscard]] Reference expected() const { return reference(s, scores, q, k, v, d_o, sink_values); }

    void forward(Path path = Path::automatic) {
        using namespace kernels::detail;
        auto const problem = attention_problem(q.view(), k.view(), v.view(), scores, s.mask);
        WriteResult<T> const result{heads_of("o", o.view()), query_rows("lse", lse, problem.sizes),
                                    sinks_of(sinks, problem.sizes)};
        if (path == Path::device)
            attention_forward_device(exec, problem, result);
        else if (path == Path::numbers)
            forward_of_numbers(problem, result);
        else
            kernels::attention_forward(exec, q.view(), k.view(), v.view(), scores, s.mask, o.view(), lse, sinks);
        exec.fence();
        o.fetch();
    }

    /// Keys in blocks of the given bounds, in that order.
    void forward_blocks(std::vector<std::pair<i64, i64>> const& blocks, Path path = Path::automatic) {
        kernels::AttentionState const state{max, sum, output};
        Kokkos::deep_copy(output, Acc(7)); // must not matter
        kernels::attention_start(exec, state);
        for (auto const& [begin, end] : blocks) {
            auto mask = s.mask;
            mask.key_start += begin;
            using namespace kernels::detail;
            auto const problem = attention_problem(q.view(), k.keys(begin, end), v.keys(begin, end), scores, mask);
            if (path == Path::device)
                attention_forward_device(exec, problem, merge_state<T>(state, problem.sizes));
            else if (path == Path::numbers)
                forward_of_numbers(problem, merge_state<T>(state, problem.sizes));
            else
                kernels::attention_accumulate(exec, q.view(), k.keys(begin, end), v.keys(begin, end), scores, mask,
                                              state);
        }
        kernels::attention_finish(exec, state, o.view(), lse, sinks);
        exec.fence();
        o.fetch();
    }

    template <class End>
    void forward_of_numbers(kernels::detail::AttentionProblem<T> const& problem, End const& end) {
        if constexpr (kernels::runs_on_host<Exec>) kernels::detail::attention_forward_host<Acc>(exec, problem, end);
    }

    void backward(std::vector<std::pair<i64, i64>> const& blocks, Path path = Path::automatic) {
        kernels::attention_backward_start(exec, o.view(), d_o.view(), delta);
        if (s.has_sinks) kernels::attention_sinks_backward<T>(exec, sinks, lse, delta, d_sinks);
        for (auto const& [begin, end] : blocks) {
            auto mask = s.mask;
            mask.key_start += begin;
            if (path == Path::automatic) {
                kernels::attention_backward_accumulate(exec, q.view(), k.keys(begin, end), v.keys(begin, end),
                                                       d_o.view(), lse, delta, scores, mask, dq.view(),
                                                       dk.keys(begin, end), dv.keys(begin, end));
            } else {
                using namespace kernels::detail;
                auto const problem = attention_problem(q.view(), k.keys(begin, end), v.keys(begin, end), scores, mask);
                AttentionGradient<T> const gradient{constant<T>(heads_of("d_o", d_o.view())),
                                                    constant<Acc>(query_rows("lse", lse, problem.sizes)),
                                                    constant<Acc>(query_rows("delta", delta, problem.sizes)),
                                                    heads_of("dq", dq.view()),
                                                    heads_of("dk", dk.keys(begin, end)),
                                                    heads_of("dv", dv.keys(begin, end))};
                if constexpr (kernels::runs_on_host<Exec>) {
                    if (path == Path::by_head)
                        attention_backward_by_head<kernels::detail::operand_t<T>>(exec, problem, gradient);
                    if (path == Path::by_tile)
                        attention_backward_by_tile<kernels::detail::operand_t<T>>(exec, problem, gradient);
                    if (path == Path::numbers) attention_backward_host<Acc>(exec, problem, gradient);
                }
                if (path == Path::device) attention_backward_device(exec, problem, gradient);
            }
        }
        exec.fence();
        dq.fetch();
        dk.fetch();
        dv.fetch();
    }

    Exec exec;
    Shape s;
    kernels::AttentionScores scores;
    Kokkos::View<T*, Kokkos::LayoutRight, Exec> sinks;
    Kokkos::View<Acc*, Kokkos::LayoutRight, Exec> d_sinks;
    std::vector<double> sink_values{};
    Slice<T> q, k, v, d_o, o;
    Slice<Acc> dq, dk, dv;
    Kokkos::View<Acc****, Kokkos::LayoutRight, Exec> output;
    Rows<Acc> lse, delta, max, sum;
};

template <class T>
constexpr double tolerance = std::is_same_v<T, f64>   ? 2e-13
                             : std::is_same_v<T, f32> ? 2e-5
                                                      : 2e-2;

/// Forward and backward, in one block and in `blocks`, against the definition. dq, dk, dv start at 1: they are added
/// to.
template <class T>
void check(Shape const& s, std::vector<std::pair<i64, i64>> blocks = {}, Path path = Path::automatic) {
    CAPTURE(s.batch);
    CAPTURE(s.seq_q);
    CAPTURE(s.seq_k);
    CAPTURE(s.heads);
    CAPTURE(s.kv_heads);
    CAPTURE(s.head_dim);
    CAPTURE(s.values());
    CAPTURE(s.mask.causal);
    CAPTURE(s.mask.query_start);
    CAPTURE(s.mask.key_start);
    CAPTURE(s.mask.window);
    CAPTURE(s.documents.size());
    CAPTURE(blocks.size());
    CAPTURE(s.scores.soft_cap);
    CAPTURE(s.scores.alibi_heads);
    CAPTURE(s.scores.first_head);
    CAPTURE(s.has_sinks);
    Attention<T> a(s);
    auto expected = a.expected();
    if (blocks.empty()) {
        a.forward(path);
        blocks = {{0, s.seq_k}};
    } else {
        a.forward_blocks(blocks, path);
    }
    CHECK(distance(a.o, expected.o) <= tolerance<T>);
    CHECK(distance(a.lse, expected.lse) <= tolerance<accumulator_t<T>>);

    for (auto* gradient : {&a.dq, &a.dk, &a.dv}) gradient->fill(1.0);
    Kokkos::deep_copy(a.d_sinks, accumulator_t<T>(1));
    for (auto* gradient : {&expected.dq, &expected.dk, &expected.dv, &expected.d_sinks})
        for (auto& x : *gradient) x += 1.0;
    a.backward(blocks, path);
    // Sums over up to seq terms of size 1; bf16 rounds o, and so delta.
    double const size = 1.0 + static_cast<double>(std::max(s.seq_q, s.seq_k)) / 16.0;
    CHECK(distance(a.dq, expected.dq) <= tolerance<T> * size);
    CHECK(distance(a.dk, expected.dk) <= tolerance<T> * size);
    CHECK(distance(a.dv, expected.dv) <= tolerance<T> * size);
    auto const d_sinks = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), a.d_sinks);
    for (i64 h = 0; s.has_sinks && h < s.heads; ++h)
        CHECK(std::abs(static_cast<double>(d_sinks(h)) - expected.d_sinks[h]) <= tolerance<T> * size);
    for (auto const* tensor : {&a.dq, &a.dk, &a.dv}) CHECK(tensor->rest_untouched());
    CHECK(a.o.rest_untouched());
}

template <class T>
void check_shapes(Path path) {
    for (bool causal : {false, true}) {
        // 700 is more than a thread takes at once.
        for (i64 seq : {1, 7, 65, 130, 700}) check<T>({2, seq, seq, 2, 1, 8, {causal, 0, 0}}, {}, path);
        for (i64 head_dim : {8, 40, 64, 128}) check<T>({1, 70, 70, 2, 2, head_dim, {causal, 0, 0}}, {}, path);
        check<T>({1, 33, 33, 6, 2, 24, {causal, 0, 0}}, {}, path);  // three query heads on each kv head
        check<T>({1, 40, 75, 2, 1, 19, {causal, 35, 0}}, {}, path); // fewer queries than keys, and an odd head_dim
        check<T>({2, 20, 20, 4, 2, 256, {causal, 0, 0}}, {}, path);
    }
}

template <class T>
void check_offsets(Path path) {
    i64 const seq = 66;
    for (i64 query_start : {0, 66, 1, 65, 100, 131}) // keys at 66 .. 131: hidden, seen, and all between
        check<T>({1, seq, seq, 2, 1, 16, {true, query_start, 66}}, {}, path);
}

template <class T>
void check_blocks(Path path) {
    for (bool causal : {false, true}) {
        Shape const s{2, 100, 200, 4, 2, 32, {causal, 100, 0}};
        check<T>(s, {{0, 200}}, path);
        check<T>(s, {{0, 50}, {50, 100}, {100, 150}, {150, 200}}, path);
        check<T>(s, {{150, 200}, {0, 3}, {50, 150}, {3, 50}}, path); // the first is partly hidden
        check<T>(s, {{199, 200}, {0, 199}}, path);                   // the first is hidden from all queries but one
    }
}

template <class T>
void check_masks(Path path) {
    // None, one long and many short documents, some of one token; the second sequence has others.
    std::vector<std::vector<i64>> const some{{65, 72, 73, 74, 140}, {1, 64, 129, 130}};
    std::vector<i64> every;
    for (i64 at = 3; at < 200; at += 3) every.push_back(at);
    for (bool causal : {true, false})
        for (auto const& documents : {std::vector<std::vector<i64>>{}, some, {{}, every}})
            for (i64 window : {0, 1, 70}) {
                if (documents.empty() && window == 0) continue;
                Shape whole{2, 170, 170, 2, 1, 8, {.causal = causal, .window = window}, documents};
                Bounds const bounds(whole, 170);
                check<T>(whole, {}, path);
                if (window != 1) check<T>(whole, {{100, 120}, {0, 100}, {120, 170}}, path);
                // Some queries of a longer sequence, and keys before, around and after them.
                for (i64 key_start : {0, 90, 151}) {
                    Shape part{2, 70, 40, 2, 1, 8, {causal, 80, key_start, window}, documents};
                    Bounds const of_longer(part, 200);
                    check<T>(part, {}, path);
                }
            }
}

/// Soft caps, ALiBi and sinks by themselves and together, with all that a mask can be.
template <class T>
void check_scores(Path path) {
    kernels::AttentionScores const capped{.soft_cap = 2.5}, alibi{.alibi_heads = 2},
        both{.soft_cap = 1.5, .alibi_heads = 12, .first_head = 7};
    for (auto const& [scores, has_sinks] :
         {std::pair{capped, false}, {alibi, false}, {kernels::AttentionScores{}, true}, {both, true}}) {
        auto const with = [&](Shape shape) {
            shape.scores = scores;
            shape.has_sinks = has_sinks;
            return shape;
        };
        for (bool causal : {false, true}) {
            for (i64 seq : {1, 7, 65, 130}) check<T>(with({2, seq, seq, 2, 1, 8, {causal, 0, 0}}), {}, path);
            check<T>(with({1, 40, 75, 2, 1, 19, {causal, 35, 0}}), {}, path); // fewer queries than keys
            Shape const part{2, 100, 200, 2, 1, 32, {causal, 100, 0}};
            check<T>(with(part), {{150, 200}, {0, 3}, {50, 150}, {3, 50}}, path);
            // Queries that see none of the keys, and some that do.
            check<T>(with({1, 66, 66, 2, 1, 16, {causal, 31, 66}}), {}, path);
            Shape packed{2, 170, 170, 2, 1, 8, {.causal = causal, .window = 70}, {{65, 72, 140}, {1, 64, 129}}};
            Bounds const bounds(packed, 170);
            check<T>(with(packed), {}, path);
            check<T>(with(packed), {{100, 120}, {0, 100}, {120, 170}}, path);
        }
    }
}

/// Values that are narrower or wider than queries and keys, as those of latent attention (192 and 128).
template <class T>
void check_value_widths(Path path) {
    auto const with = [](Shape shape, i64 width) {
        shape.value_dim = width;
        return shape;
    };
    for (bool causal : {false, true}) {
        check<T>(with({1, 70, 70, 2, 1, 192, {causal, 0, 0}}, 128), {}, path);
        for (auto const& [head_dim, value_dim] : {std::pair<i64, i64>{24, 16}, {8, 40}, {19, 7}, {1, 65}}) {
            check<T>(with({1, 130, 130, 2, 1, head_dim, {causal, 0, 0}}, value_dim), {}, path);
            Shape const part{2, 40, 75, 2, 2, head_dim, {causal, 35, 0}};
            check<T>(with(part, value_dim), {{50, 75}, {0, 3}, {3, 50}}, path);
        }
        Shape packed{2, 170, 170, 2, 1, 12, {.causal = causal, .window = 70}, {{65, 72, 140}, {1, 64, 129}}};
        Bounds const bounds(packed, 170);
        packed.scores = {.soft_cap = 1.5, .alibi_heads = 12, .first_head = 7};
        packed.has_sinks = true;
        check<T>(with(packed, 9), {{100, 120}, {0, 100}, {120, 170}}, path);
    }
}

} // namespace

TEST_CASE_TEMPLATE("attention is the softmax of the scores, and its gradient", T, f64, f32, bf16) {
    check_shapes<T>(Path::automatic);
}

TEST_CASE_TEMPLATE("attention sees what causal offsets let it see", T, f64, f32, bf16) {
    check_offsets<T>(Path::automatic);
}

TEST_CASE_TEMPLATE("attention sees what documents and windows let it see", T, f64, f32, bf16) {
    check_masks<T>(Path::automatic);
}

TEST_CASE_TEMPLATE("scores that are capped, less by what ALiBi takes, and beside a sink", T, f64, f32, bf16) {
    check_scores<T>(Path::automatic);
}

TEST_CASE("the slopes of ALiBi are the published ones, for any number of heads") {
    for (i64 heads = 1; heads <= 130; ++heads) {
        auto const published = published_slopes(heads);
        for (i64 head = 0; head < heads; ++head)
            CHECK(kernels::alibi_slope(head, heads) == doctest::Approx(published[head]).epsilon(1e-14));
    }
    CHECK(kernels::alibi_slope(0, 8) == 0.5);
    CHECK(kernels::alibi_slope(7, 8) == 1.0 / 256);
    CHECK(kernels::alibi_slope(8, 12) == doctest::Approx(std::sqrt(0.5)).epsilon(1e-15)); // the first of 16
}

TEST_CASE("a sink far above or below all scores neither overflows nor is lost") {
    for (auto path : {Path::automatic, Path::device})
        for (double const sink : {-1e4, 1e4}) {
            Attention<f32> a({1, 5, 70, 1, 1, 8, {}, {}, {}, true});
            a.set_sink(0, sink);
            auto const expected = a.expected();
            a.forward(path);
            CHECK(distance(a.o, expected.o) <= 1e-6);
            CHECK(distance(a.lse, expected.lse) <= 1e-3);
        }
}

TEST_CASE("capped scores are as exact where they are small as where they are not") {
    // One key of two, so that the output is the difference of two scores, far below the cap.
    for (auto path : {Path::automatic, Path::device}) {
        Attention<f32> a({1, 4, 2, 1, 1, 8, {}, {}, {.soft_cap = 1e4}});
        for (i64 i = 0; i < 4; ++i)
            for (i64 d = 0; d < 8; ++d) a.q.set(0, i, 0, d, 0.01 * static_cast<double>(i + d));
        auto const expected = a.expected();
        a.forward(path);
        CHECK(distance(a.o, expected.o) <= 1e-6);
    }
}

TEST_CASE_TEMPLATE("attention over blocks of keys, in any order, is attention over all of them", T, f64, f32, bf16) {
    check_blocks<T>(Path::automatic);
}

TEST_CASE_TEMPLATE("attention to values of another width than that of queries and keys", T, f64, f32, bf16) {
    check_value_widths<T>(Path::automatic);
}

TEST_CASE_TEMPLATE("the device kernels compute the same", T, f64, f32, bf16) {
    check_shapes<T>(Path::device);
    check_value_widths<T>(Path::device);
    check_offsets<T>(Path::device);
    check_masks<T>(Path::device);
    check_blocks<T>(Path::device);
    check_scores<T>(Path::device);
}

#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP) && !defined(KOKKOS_ENABLE_SYCL)
TEST_CASE_TEMPLATE("the host's two divisions of the backward pass among threads compute the same", T, f64, f32, bf16) {
    for (auto path : {Path::by_head, Path::by_tile}) {
        check_shapes<T>(path);
        check_value_widths<T>(path);
        check_offsets<T>(path);
        check_masks<T>(path);
        check_blocks<T>(path);
        check_scores<T>(path);
    }
}

TEST_CASE("bf16 as numbers, where the CPU multiplies no pairs, computes the same") {
    check_shapes<bf16>(Path::numbers);
    check_value_widths<bf16>(Path::numbers);
    check_offsets<bf16>(Path::numbers);
    check_masks<bf16>(Path::numbers);
    check_blocks<bf16>(Path::numbers);
    check_scores<bf16>(Path::numbers);
}
#endif

TEST_CASE("scores far apart neither overflow nor lose the maximum") {
    Shape const s{1, 5, 90, 1, 1, 8, {}};
    Attention<f32> a(s);
    // One key of the second tile wins by hundreds, after a first tile whose maximum was far below.
    for (i64 j = 0; j < s.seq_k; ++j)
        for (i64 d = 0; d < s.head_dim; ++d) a.k.set(0, j, 0, d, j == 80 ? 100.0 : -100.0);
    for (i64 i = 0; i < s.seq_q; ++i)
        for (i64 d = 0; d < s.head_dim; ++d) a.q.set(0, i, 0, d, 2.0);
    auto const expected = a.expected();
    a.forward();
    CHECK(distance(a.o, expected.o) <= 1e-6);
    CHECK(distance(a.lse, expected.lse) <= 1e-3); // of 565
    a.forward_blocks({{0, 60}, {60, 90}});
    CHECK(distance(a.o, expected.o) <= 1e-6);
}

TEST_CASE_TEMPLATE("a score that rounding lifts above its log-sum-exp has probability 1", T, f64, f32) {
    for (auto path : {Path::automatic, Path::device}) {
        Shape const s{1, 3, 1, 1, 1, 8, {}};
        Attention<T> a(s);
        a.forward(path);
        for (double const lifted : {30.0, 200.0, 3000.0}) {
            Kokkos::deep_copy(a.lse, static_cast<T>(-lifted));
            a.dv.fill(0.0);
            a.backward({{0, 1}}, path);
            for (i64 d = 0; d < s.head_dim; ++d) {
                double sum = 0;
                for (i64 i = 0; i < s.seq_q; ++i) sum += a.d_o(0, i, 0, d);
                CHECK(a.dv(0, 0, 0, d) == doctest::Approx(sum).epsilon(1e-5));
            }
        }
    }
}

TEST_CASE("a NaN in the input is not lost") {
    Attention<f32> a({1, 70, 70, 1, 1, 16, {true, 0, 0}});
    a.k.set(0, 30, 0, 3, std::numeric_limits<double>::quiet_NaN());
    a.forward();
    CHECK(std::isfinite(a.o(0, 29, 0, 0)));
    CHECK(std::isnan(a.o(0, 30, 0, 0)));
    CHECK(std::isnan(a.o(0, 69, 0, 15)));
}

TEST_CASE("the gradient of attention is the limit of finite differences") {
    for (bool const is_plain : {true, false}) {
        Shape s{1, 9, 9, 2, 1, 5, {true, 0, 0}};
        if (!is_plain) {
            s.scores = {.soft_cap = 1.5, .alibi_heads = 3, .first_head = 1};
            s.has_sinks = true;
            s.value_dim = 3;
        }
        Attention<f64> a(s);
        a.forward();
        for (auto* gradient : {&a.dq, &a.dk, &a.dv}) gradient->fill(0.0);
        a.backward({{0, s.seq_k}});
        auto const loss = [&] {
            a.forward();
            double sum = 0;
            for (i64 i = 0; i < s.seq_q; ++i)
                for (i64 h = 0; h < s.heads; ++h)
                    for (i64 d = 0; d < s.values(); ++d) sum += a.o(0, i, h, d) * a.d_o(0, i, h, d);
            return sum;
        };
        auto const check_input = [&](Slice<f64>& input, Slice<f64> const& gradient) {
            double const step = 1e-5;
            for (i64 i = 0; i < input.extent(1); i += 2)
                for (i64 h = 0; h < input.extent(2); ++h)
                    for (i64 d = 0; d < input.extent(3); ++d) {
                        double const value = input(0, i, h, d);
                        input.set(0, i, h, d, value + step);
                        double const above = loss();
                        input.set(0, i, h, d, value - step);
                        double const below = loss();
                        input.set(0, i, h, d, value);
                        CHECK(std::abs((above - below) / (2 * step) - gradient(0, i, h, d)) <= 1e-8);
                    }
        };
        check_input(a.q, a.dq);
        check_input(a.k, a.dk);
        check_input(a.v, a.dv);
        for (i64 h = 0; s.has_sinks && h < s.heads; ++h) {
            double const value = a.sink_values[h], step = 1e-5;
            a.set_sink(h, value + step);
            double const above = loss();
            a.set_sink(h, value - step);
            double const below = loss();
            a.set_sink(h, value);
            CHECK(std::abs((above - below) / (2 * step) - a.d_sinks(h)) <= 1e-8);
        }
    }
}

TEST_CASE("the same call gives the same bits") {
    Attention<f32> a({1, 200, 200, 4, 2, 64, {true, 0, 0}});
    a.forward();
    for (auto* gradient : {&a.dq, &a.dk, &a.dv}) gradient->fill(0.0);
    a.backward({{0, 200}});
    auto const copy = [](Slice<f32> const& x) {
        std::vector<double> values;
        for (i64 s = 0; s < x.extent(1); ++s)
            for (i64 h = 0; h < x.extent(2); ++h)
                for (i64 d = 0; d < x.extent(3); ++d) values.push_back(x(0, s, h, d));
        return values;
    };
    auto const o = copy(a.o), dq = copy(a.dq), dk = copy(a.dk), dv = copy(a.dv);
    a.forward();
    for (auto* gradient : {&a.dq, &a.dk, &a.dv}) gradient->fill(0.0);
    a.backward({{0, 200}});
    CHECK(copy(a.o) == o);
    CHECK(copy(a.dq) == dq);
    CHECK(copy(a.dk) == dk);
    CHECK(copy(a.dv) == dv);
}

namespace {
int allocations = 0;
void count_allocation(Kokkos_Profiling_SpaceHandle, char const*, void const*, std::uint64_t) { ++allocations; }
} // namespace

TEST_CASE("attention allocates nothing once it is warm") {
    Attention<f32> large({2, 300, 300, 4, 2, 128, {true, 0, 0}}), small({1, 70, 70, 2, 1, 16, {}});
    auto const run = [](auto& attention) {
        attention.forward();
        attention.forward_blocks({{0, 50}, {50, attention.s.seq_k}});
        attention.backward({{0, attention.s.seq_k}});
    };
    run(large);
    run(small);
    Kokkos::Tools::Experimental::set_allocate_data_callback(count_allocation);
    run(small);
    run(large);
    int const while_running = allocations;
    Kokkos::View<f32*, Exec> const counted("counted", 1);
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    CHECK(while_running == 0);
    CHECK(allocations == 1);
}

TEST_CASE("attention names the operand that does not fit") {
    Slice<f32> const q(1, 4, 6, 8, 1), k(1, 4, 4, 8, 2), v(1, 5, 4, 8, 3), o(1, 4, 6, 8, 4);
    Rows<f32> const lse("lse", 1, 6, 4);
    auto const message = [&](auto const& value) -> std::string {
        try {
            kernels::attention_forward(Exec(), q.view(), k.view(), value.view(), {}, {}, o.view(), lse);
        } catch (std::invalid_argument const& error) {
            return error.what();
        }
        return "";
    };
    CHECK(message(v).find("v[1, 5, 4, 8] must be [1, 4, 4, 8]") != std::string::npos);
    Kokkos::View<f32*, Exec> const sinks("sinks", 4);
    Slice<f32> const right(1, 4, 3, 8, 3), key(1, 4, 3, 8, 2);
    CHECK_THROWS_WITH(
        kernels::attention_forward(Exec(), q.view(), key.view(), right.view(), {}, {}, o.view(), lse, sinks),
        "attention: the sinks[4] must be [6] to go with the other operands");
    CHECK(message(k).find("6 query heads are not a multiple of 4 kv heads") != std::string::npos);
}
