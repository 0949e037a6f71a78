// The formulas beside what they are about, done in small: numbers that count the operations made with them, and
// messages that really pass round.
#include <doctest/doctest.h>

#include <formulas/attention.hpp>
#include <formulas/context.hpp>
#include <formulas/expert_slicing.hpp>
#include <formulas/experts.hpp>
#include <formulas/feed_forward.hpp>
#include <formulas/mamba.hpp>
#include <formulas/memory.hpp>
#include <formulas/tensor_to_sequence.hpp>
#include <formulas/volume.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <vector>

using namespace pentad;
using namespace pentad::planner;

namespace {

/// A number that counts the operations made with its kind.
struct Counted {
    double value = 0;
    static inline std::int64_t operations = 0;
    Counted(double v = 0) : value(v) {}
    static Counted made(double v) { return ++operations, Counted(v); }
    friend Counted operator+(Counted a, Counted b) { return made(a.value + b.value); }
    friend Counted operator-(Counted a, Counted b) { return made(a.value - b.value); }
    friend Counted operator-(Counted a) { return made(-a.value); }
    friend Counted operator*(Counted a, Counted b) { return made(a.value * b.value); }
    friend Counted operator/(Counted a, Counted b) { return made(a.value / b.value); }
    friend Counted exp(Counted a) { return made(std::exp(a.value)); }
    friend Counted larger(Counted a, Counted b) { return made(std::max(a.value, b.value)); }
};

/// The operations of something.
template <class F>
double operations_of(F&& f) {
    Counted::operations = 0;
    f();
    return static_cast<double>(Counted::operations);
}

struct Matrix {
    std::size_t rows, columns;
    std::vector<Counted> elements;
    Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), elements(r * c) {}
    Counted& at(std::size_t i, std::size_t j) { return elements.at(i * columns + j); }
    Counted at(std::size_t i, std::size_t j) const { return elements.at(i * columns + j); }
};

Matrix filled(std::size_t rows, std::size_t columns, double seed) {
    Matrix m(rows, columns);
    for (std::size_t i = 0; i < m.elements.size(); ++i) m.elements[i] = std::sin(seed + static_cast<double>(i));
    return m;
}

/// a b, or a b^T.
Matrix times(Matrix const& a, Matrix const& b, bool transposed = false) {
    Matrix c(a.rows, transposed ? b.rows : b.columns);
    for (std::size_t i = 0; i < c.rows; ++i)
        for (std::size_t j = 0; j < c.columns; ++j)
            for (std::size_t k = 0; k < a.columns; ++k)
                c.at(i, j) = c.at(i, j) + a.at(i, k) * (transposed ? b.at(j, k) : b.at(k, j));
    return c;
}

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// Sums over ranks round a ring: reduce-scatter, then all-gather. Each rank's vector becomes the sum of all.
/// Gives the elements that each rank sent in the first half and in the second.
std::array<std::vector<double>, 2> all_reduce_round_a_ring(std::vector<std::vector<double>>& vectors) {
    std::size_t const n = vectors.size(), part = vectors[0].size() / n;
    std::array<std::vector<double>, 2> sent{std::vector<double>(n), std::vector<double>(n)};
    for (std::size_t half = 0; half < 2; ++half)
        for (std::size_t step = 0; step + 1 < n; ++step) {
            auto const before = vectors;
            for (std::size_t r = 0; r < n; ++r) { // to r + 1 goes part r - step, in the second half r + 1 - step
                std::size_t const to = (r + 1) % n, first = (r + half + n - step) % n * part;
                for (std::size_t i = first; i < first + part; ++i)
                    vectors[to][i] = before[r][i] + (half == 0 ? before[to][i] : 0);
                sent[half][r] += static_cast<double>(part);
            }
        }
    return sent;
}

} // namespace

TEST_CASE("a ring sends the bytes of reduce-scatter, all-gather and all-reduce, and each rank alike") {
    for (std::size_t const n : {2u, 3u, 5u, 8u}) {
        std::vector<std::vector<double>> vectors(n, std::vector<double>(4 * n));
        std::vector<double> sum(4 * n);
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t i = 0; i < 4 * n; ++i) sum[i] += vectors[r][i] = static_cast<double>(r * r + i);
        auto const [scattered, gathered] = all_reduce_round_a_ring(vectors);
        auto const ranks = static_cast<std::int64_t>(n);
        auto const whole = static_cast<double>(4 * n);
        for (std::size_t r = 0; r < n; ++r) {
            CHECK(vectors[r] == sum);
            CHECK(reduce_scatter_bytes(whole, ranks) == doctest::Approx(scattered[r]));
            CHECK(all_gather_bytes(4, ranks) == doctest::Approx(gathered[r]));
            CHECK(all_reduce_bytes(whole, ranks) == doctest::Approx(scattered[r] + gathered[r]));
            // To a root: the parts that the reduce-scatter left go there.
            CHECK(reduce_bytes(whole, ranks) == doctest::Approx(scattered[r] + 4));
            CHECK(reduce_bytes(whole, 1) == 0);
        }
        CHECK(gather_bytes_at_root(4, ranks) == doctest::Approx(whole - 4));
        CHECK(all_to_all_bytes(whole, ranks) == doctest::Approx(whole - 4)); // all but the part for itself
    }
}

TEST_CASE("attention done with counted numbers takes the operations of the formula, forward") {
    for (bool const causal : {false, true}) {
        AttentionSizes const of{
            .batch = 2, .seq = 5, .hidden = 6, .heads = 4, .kv_heads = 2, .head_dim = 3, .causal = causal};
        AttentionFlops counted;
        for (std::int64_t b = 0; b < of.batch; ++b) {
            auto const x = filled(size(of.seq), size(of.hidden), 1.0 + static_cast<double>(b));
            std::vector<Matrix> q, k, v;
            auto const width = size(of.head_dim), in = size(of.hidden);
            counted.inputs += operations_of([&] {
                for (int h = 0; h < 4; ++h) q.push_back(times(x, filled(in, width, 2.0 + h)));
                for (int h = 0; h < 2; ++h) k.push_back(times(x, filled(in, width, 7.0 + h)));
                for (int h = 0; h < 2; ++h) v.push_back(times(x, filled(in, width, 9.0 + h)));
            });
            Matrix joined(size(of.seq), 4 * width);
            for (std::size_t h = 0; h < 4; ++h)
                for (std::size_t i = 0; i < size(of.seq); ++i) {
                    std::size_t const keys = causal ? i + 1 : size(of.seq);
                    std::vector<Counted> p(keys);
                    counted.scores += operations_of([&] {
                        for (std::size_t j = 0; j < keys; ++j)
                            for (std::size_t d = 0; d < width; ++d) p[j] = p[j] + q[h].at(i, d) * k[h / 2].at(j, d);
                    });
                    counted.softmax += operations_of([&] {
                        Counted most = -1e30, sum = 0;
                        for (auto const s : p) most = larger(most, s);
                        for (auto& s : p) s = exp(s - most), sum = sum + s;
                        for (auto& s : p) s = s / sum;
                    });
                    counted.values += operations_of([&] {
                        for (std::size_t j = 0; j < keys; ++j)
                            for (std::size_t d = 0; d < width; ++d)
                                joined.at(i, h * width + d) = joined.at(i, h * width + d) + p[j] * v[h / 2].at(j, d);
                    });
                }
            counted.output += operations_of([&] { times(joined, filled(4 * width, in, 3)); });
        }
        auto const formula = attention_flops(of);
        CHECK(formula.inputs == counted.inputs);
        CHECK(formula.scores == counted.scores);
        CHECK(formula.softmax == counted.softmax);
        CHECK(formula.values == counted.values);
        CHECK(formula.output == counted.output);
    }
}

TEST_CASE("the backward pass of attention has the products of the formula, with and without computing scores anew") {
    AttentionSizes const of{.seq = 5, .hidden = 6, .heads = 1, .kv_heads = 1, .head_dim = 3, .causal = false};
    auto const x = filled(5, 6, 1), w = filled(6, 3, 2), q = filled(5, 3, 3), k = filled(5, 3, 4), v = filled(5, 3, 5),
               dy = filled(5, 3, 6), up = filled(3, 6, 7), dz = filled(5, 6, 8);
    auto const transposed = [](Matrix const& m) {
        Matrix t(m.columns, m.rows);
        for (std::size_t i = 0; i < m.rows; ++i)
            for (std::size_t j = 0; j < m.columns; ++j) t.at(j, i) = m.at(i, j);
        return t;
    };
    Matrix scores(5, 5), p(5, 5), dp_(5, 5), ds(5, 5);
    double const again = operations_of([&] { scores = times(q, k, true); });
    double const anew = operations_of([&] {
        for (std::size_t i = 0; i < 25; ++i) p.elements[i] = exp(scores.elements[i] - Counted(1));
    });
    double values = operations_of([&] { times(transposed(p), dy), dp_ = times(dy, v, true); });
    double const softmax = operations_of([&] {
        for (std::size_t i = 0; i < 25; ++i) ds.elements[i] = p.elements[i] * (dp_.elements[i] - Counted(1));
    });
    double const both = operations_of([&] { times(ds, k), times(transposed(ds), q); });
    double const inputs = 3 * operations_of([&] { times(dy, w, true), times(transposed(x), dy); });
    double const output = operations_of([&] { times(dz, up, true), times(transposed(dy), dz); });

    auto const fused = attention_backward_flops(of), kept = attention_backward_flops(of, {}, false);
    CHECK(fused.scores == both + again);
    CHECK(kept.scores == both);
    CHECK(fused.values == values);
    CHECK(fused.softmax == doctest::Approx(anew + softmax));
    CHECK(kept.softmax == doctest::Approx(softmax));
    CHECK(fused.inputs == inputs);
    CHECK(fused.output == output);
}

TEST_CASE("feed-forward done with counted numbers takes the operations of the formulas") {
    FeedForwardSizes const of{.batch = 1, .seq = 4, .hidden = 3, .ffn = 5};
    auto const x = filled(4, 3, 1), gate = filled(3, 5, 2), up = filled(3, 5, 3), down = filled(5, 3, 4);
    Matrix g(4, 5), u(4, 5);
    double products = operations_of([&] { g = times(x, gate), u = times(x, up); });
    double const elementwise = operations_of([&] {
        for (std::size_t i = 0; i < 20; ++i)
            g.elements[i] = g.elements[i] / (Counted(1) + exp(-g.elements[i])) * u.elements[i];
    });
    products += operations_of([&] { times(g, down); });
    CHECK(feed_forward_flops(of).products == products);
    CHECK(feed_forward_flops(of).elementwise == elementwise);
    CHECK(feed_forward_weights(of) ==
          static_cast<double>(gate.elements.size() + up.elements.size() + down.elements.size()));
    // Kept: x, gate, up, and the input of down; apart from these the output of silu on a tape.
    double const wide = 20;
    CHECK(feed_forward_activations(of) == 12 + 3 * wide);
    CHECK(feed_forward_activations(of, {}, false) == 12 + 4 * wide);

    FeedForwardSizes const plain{.batch = 1, .seq = 4, .hidden = 3, .ffn = 5, .gated = false};
    double const ungated = operations_of([&] { u = times(x, up), times(u, down); });
    CHECK(feed_forward_flops(plain).products == ungated);
    CHECK(feed_forward_flops(plain).elementwise == elementwise - wide); // no product with up
    CHECK(feed_forward_activations(plain) == 12 + 2 * wide);
    // Backward, for y = x w: dx = dy w^T and dw = x^T dy, as many operations each as y.
    auto const dy = filled(4, 5, 6);
    auto const xt = filled(3, 4, 1);
    double const backward = operations_of([&] { times(dy, up, true), times(xt, dy); });
    CHECK(feed_forward_backward_products(plain) == 2 * backward);
}

TEST_CASE("the scan in chunks gives what the recurrence gives, in the operations of the formula") {
    MambaSizes const of{.seq = 12, .hidden = 5, .heads = 4, .head_dim = 3, .groups = 2, .state = 2, .chunk = 4};
    std::size_t const s = 12, l = 4, n = 2, p = 3;
    MambaFlops counted;
    MambaTraffic touched; // what the five products read and write
    double dense = 0;
    auto const elements = [](auto const&... m) { return static_cast<double>((m.elements.size() + ...)); };
    std::vector<std::vector<Matrix>> scores(2); // of a group, for each chunk
    auto const part = [&](Matrix const& m, std::size_t chunk) {
        Matrix rows(l, m.columns);
        for (std::size_t i = 0; i < l * m.columns; ++i) rows.elements[i] = m.elements[chunk * l * m.columns + i];
        return rows;
    };
    for (std::size_t g = 0; g < 2; ++g)
        for (std::size_t c = 0; c < s / l; ++c) {
            auto const cs = part(filled(s, n, 1.0 + double(g)), c), bs = part(filled(s, n, 3.0 + double(g)), c);
            counted.scores += operations_of([&] { scores[g].push_back(times(cs, bs, true)); });
            touched.scores += elements(cs, bs, scores[g].back());
        }
    for (std::size_t h = 0; h < 4; ++h) {
        std::size_t const g = h / 2;
        auto const xs = filled(s, p, 5.0 + double(h)), cs = filled(s, n, 1.0 + double(g)),
                   bs = filled(s, n, 3.0 + double(g));
        auto const decay = [h](std::size_t t) { return 0.5 + 0.4 * std::sin(double(t + h)); };
        auto const decayed = [&](std::size_t after, std::size_t until) { // the product over (after, until]
            double d = 1;
            for (std::size_t t = after + 1; t <= until; ++t) d *= decay(t);
            return d;
        };
        Matrix y(s, p), state = filled(n, p, 7.0 + double(h)), recurrent = state; // with what was before
        Matrix all_states(s / l + 1, n * p), at_boundaries(s / l + 1, n * p);
        std::vector<double> over_chunks;
        auto const put = [](Matrix& list, std::size_t row, Matrix const& one) {
            for (std::size_t e = 0; e < one.elements.size(); ++e) list.at(row, e) = one.elements[e];
        };
        put(all_states, 0, state), put(at_boundaries, 0, state);
        for (std::size_t c = 0; c < s / l; ++c) {
            std::size_t const first = c * l, last = first + l - 1;
            auto masked = scores[g][c];
            for (std::size_t i = 0; i < l; ++i)
                for (std::size_t j = 0; j < l; ++j)
                    masked.at(i, j) = j > i ? 0 : masked.at(i, j).value * decayed(first + j, first + i);
            auto const x = part(xs, c);
            Matrix inside(l, p), from_state(l, p), added(n, p);
            counted.diagonal += operations_of([&] { inside = times(masked, x); });
            counted.state_output += operations_of([&] { from_state = times(part(cs, c), state); });
            for (std::size_t i = 0; i < l; ++i)
                for (std::size_t e = 0; e < p; ++e) {
                    double const start = decayed(first, first + i) * decay(first);
                    y.at(first + i, e) = inside.at(i, e).value + start * from_state.at(i, e).value;
                }
            Matrix weighed(n, l); // B^T, each column times what is left of it at the chunk's end
            for (std::size_t i = 0; i < l; ++i)
                for (std::size_t e = 0; e < n; ++e)
                    weighed.at(e, i) = bs.at(first + i, e).value * decayed(first + i, last);
            counted.states += operations_of([&] { added = times(weighed, x); });
            Counted const over_chunk = decayed(first, last) * decay(first);
            over_chunks.push_back(over_chunk.value);
            put(all_states, c + 1, added);
            counted.state_passing += operations_of([&] {
                for (std::size_t e = 0; e < n * p; ++e)
                    state.elements[e] = over_chunk * state.elements[e] + added.elements[e];
            });
            put(at_boundaries, c + 1, state);
            touched.diagonal += elements(masked, x, inside);
            touched.states += elements(weighed, x, added);
        }
        Matrix decays(s / l + 1, s / l + 1), passed(s / l + 1, n * p); // as the listing: all boundaries at once
        for (std::size_t z = 0; z <= s / l; ++z)
            for (std::size_t c = 0; c <= z; ++c)
                decays.at(z, c) = std::accumulate(over_chunks.begin() + std::ptrdiff_t(c),
                                                  over_chunks.begin() + std::ptrdiff_t(z), 1.0, std::multiplies<>());
        dense += operations_of([&] { passed = times(decays, all_states); });
        for (std::size_t e = 0; e < passed.elements.size(); ++e)
            CHECK(passed.elements[e].value == doctest::Approx(at_boundaries.elements[e].value));
        touched.state_passing += elements(decays, all_states, passed);
        for (std::size_t c = 0; c < s / l; ++c) touched.state_output += elements(part(cs, c), state, part(xs, c));
        for (std::size_t t = 0; t < s; ++t)
            for (std::size_t e = 0; e < p; ++e) {
                double sum = 0;
                for (std::size_t i = 0; i < n; ++i) {
                    auto& was = recurrent.at(i, e);
                    was = decay(t) * was.value + bs.at(t, i).value * xs.at(t, e).value;
                    sum += cs.at(t, i).value * was.value;
                }
                CHECK(y.at(t, e).value == doctest::Approx(sum));
            }
    }
    std::size_t const projected = 2 * 12 + 2 * 2 * 2 + 4; // z and x, B and C, time steps
    counted.in_projection = operations_of([&] { times(filled(s, 5, 1), filled(5, projected, 2)); });
    counted.out_projection = operations_of([&] { times(filled(s, 12, 1), filled(12, 5, 2)); });

    auto const formula = mamba_flops(of);
    CHECK(formula.in_projection == counted.in_projection);
    CHECK(formula.scores == counted.scores);
    CHECK(formula.diagonal == counted.diagonal);
    CHECK(formula.states == counted.states);
    CHECK(formula.state_passing == counted.state_passing);
    CHECK(formula.state_output == counted.state_output);
    CHECK(formula.out_projection == counted.out_projection);
    CHECK(formula.total() == counted.total());
    CHECK(mamba_dense_state_passing_flops(of) == dense);
    CHECK(mamba_weights(of) == static_cast<double>(5 * projected + 12 * 5));
    CHECK(mamba_activations(of) == static_cast<double>(s * (5 + projected + 12 + 12)));
    CHECK(mamba_state(of) == static_cast<double>(4 * n * p));

    // B and C are read once for a group where the scores are made, and for each head's own where states are.
    auto const traffic = mamba_traffic(of);
    CHECK(traffic.total() ==
          traffic.scores + traffic.diagonal + traffic.states + traffic.state_passing + traffic.state_output);
    CHECK(traffic.scores == touched.scores);
    CHECK(traffic.diagonal == touched.diagonal);
    auto const of_heads =
        mamba_traffic({.seq = 12, .hidden = 5, .heads = 4, .head_dim = 3, .groups = 4, .state = 2, .chunk = 4});
    CHECK(of_heads.states == touched.states);
    CHECK(of_heads.state_passing == touched.state_passing);
    CHECK(of_heads.state_output == touched.state_output);
    CHECK(traffic.states == touched.states - 2.0 * s * n); // two of the four heads' B
    CHECK(traffic.state_output == touched.state_output - 2.0 * s * n);
}

TEST_CASE("ranks share operations, weights and activations out, and nothing is lost or counted twice") {
    AttentionSizes const attention{.batch = 4, .seq = 48, .hidden = 24, .heads = 8, .kv_heads = 4, .head_dim = 3};
    FeedForwardSizes const feed_forward{.batch = 4, .seq = 48, .hidden = 24, .ffn = 40};
    MambaSizes const mamba{
        .batch = 4, .seq = 48, .hidden = 24, .heads = 8, .head_dim = 3, .groups = 4, .state = 2, .chunk = 4};
    for (BlockRanks const on : {BlockRanks{.dp = 2, .cp = 3, .tp = 4}, {.dp = 4}, {.cp = 4}, {.tp = 2}}) {
        auto const all = static_cast<double>(on.dp * on.cp * on.tp), tp_ = static_cast<double>(on.tp);
        auto const tokens = static_cast<double>(4 * 48);
        CHECK(all * attention_flops(attention, on).total() == doctest::Approx(attention_flops(attention).total()));
        CHECK(all * feed_forward_flops(feed_forward, on).total() ==
              doctest::Approx(feed_forward_flops(feed_forward).total()));
        CHECK(all * mamba_flops(mamba, on).total() == doctest::Approx(mamba_flops(mamba).total()));
        CHECK(tp_ * attention_weights(attention, on) == attention_weights(attention));
        CHECK(tp_ * feed_forward_weights(feed_forward, on) == feed_forward_weights(feed_forward));
        CHECK(tp_ * mamba_weights(mamba, on) == mamba_weights(mamba));
        // The gathered input is on every rank of tp, all else on one.
        double const copies = (tp_ - 1) * tokens * 24;
        CHECK(all * attention_activations(attention, on).bytes(2) ==
              attention_activations(attention).bytes(2) + 2 * copies);
        CHECK(all * feed_forward_activations(feed_forward, on) == feed_forward_activations(feed_forward) + copies);
        CHECK(all * mamba_activations(mamba, on) == mamba_activations(mamba) + copies);
        auto sharded = on;
        sharded.sequence_parallel = true;
        CHECK(all * mamba_activations(mamba, sharded) == mamba_activations(mamba) + copies);
        sharded.keeps_gathered_input = false;
        CHECK(all * attention_activations(attention, sharded).bytes(2) == attention_activations(attention).bytes(2));
        CHECK(all * feed_forward_activations(feed_forward, sharded) == feed_forward_activations(feed_forward));
        CHECK(all * mamba_activations(mamba, sharded) == mamba_activations(mamba));
        CHECK(all * key_value_cache_bytes(attention, 3, 2, on) == 2 * 3 * tokens * 4 * 3 * 2);
    }
    // Eight ranks share four kv heads: each has one, and two have the same.
    CHECK(attention_weights(attention, {.tp = 8}) == 24 * (2 * 3 + 2 * 3));
    CHECK(mamba_weights(mamba, {.tp = 8}) == 24 * (2 * 3 + 2 * 2 + 1 + 3));
    AttentionSizes const one_kv_head{.hidden = 24, .heads = 8, .kv_heads = 1, .head_dim = 3};
    CHECK(attention_weights(one_kv_head, {.tp = 4}) == 24 * (2 * 6 + 2 * 3));
    // What attention keeps, one by one: input, q, k, v, output; and the log-sum-exp in f32.
    CHECK(attention_activations(attention).bytes(2) == 192 * (2 * (24 + 24 + 12 + 12 + 24) + 4 * 8));
}

TEST_CASE("tensor parallelism sends what its rings send") {
    std::size_t const n = 4, tokens = 8, hidden_size = 3;
    std::vector<std::vector<double>> vectors(n, std::vector<double>(tokens * hidden_size));
    auto const [scatter, gather] = all_reduce_round_a_ring(vectors);
    double const rs = 2 * scatter[0], ag = 2 * gather[0]; // in 2 bytes an element
    CHECK(tensor_parallel_bytes(8, 3, 2, {.tp = 4}) == SentBytes{rs + ag, rs + ag});
    CHECK(tensor_parallel_bytes(8, 3, 2, {.tp = 4, .sequence_parallel = true}) == SentBytes{ag + rs, rs + ag});
    CHECK(tensor_parallel_bytes(8, 3, 2, {.tp = 4, .sequence_parallel = true, .keeps_gathered_input = false}) ==
          SentBytes{ag + rs, rs + 2 * ag});
    CHECK(tensor_parallel_bytes(8, 3, 2, {}) == SentBytes{0, 0});
}

TEST_CASE("a ring of blocks: each rank meets every block once, gradients come home, and that many bytes were sent") {
    for (std::size_t const n : {1u, 2u, 3u, 8u}) {
        AttentionSizes const of{.batch = 2, .seq = 48, .hidden = 12, .heads = 4, .kv_heads = 2, .head_dim = 3};
        BlockRanks const on{.cp = static_cast<std::int64_t>(n)};
        double const block = 2 * (2 * 48.0 / static_cast<double>(n)) * 6; // elements of keys and values
        std::vector<std::size_t> held(n);
        std::iota(held.begin(), held.end(), 0u);
        std::vector<std::set<std::size_t>> met(n);
        std::vector<double> travelling(n), home(n); // sums over ranks, as gradients are
        double blocks_sent = 0, gradients_sent = 0; // by rank 0
        auto const pass = [](auto& values) { std::rotate(values.begin(), values.end() - 1, values.end()); };
        for (std::size_t step = 0; step < n; ++step) {
            for (std::size_t r = 0; r < n; ++r) {
                met[r].insert(held[r]);
                (held[r] == r ? home[r] : travelling[r]) += static_cast<double>(r);
            }
            if (step > 0) gradients_sent += 1, pass(travelling); // with the block that they belong to, or home
            if (step + 1 < n) blocks_sent += 1, pass(held);
        }
        for (std::size_t r = 0; r < n; ++r) {
            CHECK(met[r].size() == n);
            CHECK(home[r] + travelling[r] == static_cast<double>(n * (n - 1) / 2));
        }
        CHECK(ring_steps(on.cp) == static_cast<std::int64_t>(blocks_sent));
        CHECK(ring_attention_bytes(of, on, 2, 4) ==
              SentBytes{blocks_sent * block * 2, blocks_sent * block * 2 + gradients_sent * block * 4});
        CHECK(ring_buffer_bytes(of, on, 2) == 2 * block * 2);
        CHECK(ring_buffer_bytes(of, on, 2, false) == block * 2);
        CHECK(gathered_key_value_bytes(of, on, 2) == 2 * 2 * 48 * 6 * 2);
        double const others = static_cast<double>(n - 1) * block; // what a rank sends in an all-gather
        auto const gathered = gathered_attention_bytes(of, on, 2, 4);
        CHECK(gathered.forward == doctest::Approx(others * 2));
        CHECK(gathered.backward == doctest::Approx(others * 2 + others * 4));
        CHECK(gathered_attention_bytes(of, on, 2, 4, true).backward == doctest::Approx(others * 4));
    }
}

TEST_CASE("a ring's time, event by event") {
    for (std::int64_t const n : {1, 2, 5})
        for (double const attending : {3.0, 4.0})
            for (double const travelling : {1.0, 7.0})
                for (bool const overlaps : {true, false}) {
                    double now = 0;
                    for (std::int64_t block = 0; block < n; ++block) {
                        double const sent = now; // on to the next rank, as it has come
                        now += attending;
                        if (block + 1 < n) now = std::max(now, (overlaps ? sent : now) + travelling);
                    }
                    CHECK(ring_seconds(n, attending, travelling, overlaps) == now);
                }
}

TEST_CASE("an exchange of sequence for heads sends each element that another rank needs, once for each that does") {
    for (std::int64_t const kv : {8, 4, 2}) {
        std::int64_t const n = 4, s = 8, d = 3;
        double sent = 0; // by rank 0, elements, forward
        for (std::int64_t t = 0; t < s; ++t)
            for (std::int64_t h = 0; h < 8; ++h) {
                bool const mine = t / (s / n) == 0, in_my_heads = h / (8 / n) == 0;
                if (mine && !in_my_heads) sent += double(d); // q
                if (in_my_heads && !mine) sent += double(d); // the output back
            }
        for (std::int64_t t = 0; t < s / n; ++t)
            for (std::int64_t h = 0; h < kv; ++h)
                for (std::int64_t r = 1; r < n; ++r) {
                    bool needed = false;
                    for (std::int64_t q = r * 8 / n; q < (r + 1) * 8 / n; ++q) needed = needed || q * kv / 8 == h;
                    if (needed) sent += 2.0 * double(d); // k and v
                }
        AttentionSizes const of{.batch = 1, .seq = s, .hidden = 24, .heads = 8, .kv_heads = kv, .head_dim = d};
        auto const formula = exchanged_attention_bytes(of, {.cp = n}, 2);
        CHECK(formula.forward == doctest::Approx(2 * sent));
        CHECK(formula.backward == doctest::Approx(2 * sent));
    }
}

TEST_CASE("causal pairs of a rank, one by one: zigzag evens them out, contiguous shards do not") {
    std::int64_t const s = 24, n = 4;
    for (bool const zigzag : {false, true})
        for (std::int64_t r = 0; r < n; ++r) {
            std::int64_t pairs = 0;
            for (std::int64_t q = 0; q < s; ++q) {
                std::int64_t const part = q / (s / (2 * n));
                bool const mine = zigzag ? part == r || part == 2 * n - 1 - r : q / (s / n) == r;
                if (mine) pairs += q + 1;
            }
            CHECK(causal_pairs(s, n, r, zigzag) == pairs);
            if (zigzag) CHECK(static_cast<double>(pairs) == attention_pairs(s, true) / n);
        }
    // The last rank of contiguous shards has nearly (2n-1)/n of the mean.
    CHECK(static_cast<double>(causal_pairs(1 << 20, 8, 7, false)) / (attention_pairs(1 << 20, true) / 8) ==
          doctest::Approx(15.0 / 8));
}

TEST_CASE("rows that leave a rank, and bytes from heads to tokens, element by element") {
    DispatchSizes const of{.tokens = 64, .hidden = 5, .top_k = 4, .ranks = 8};
    double rows = 0;
    for (std::int64_t choice = 0; choice < 8 * 4; ++choice) rows += choice % 8 != 3; // of rank 3, on all ranks alike
    CHECK(dispatched_rows(of) == rows);
    CHECK(dispatch_and_combine_bytes(of, 2) == SentBytes{2 * rows * 5 * 2, 2 * rows * 5 * 2});

    OutputProjectionSizes const projection{.tokens = 8, .width = 12, .hidden = 8, .tp = 4};
    double moved = 0; // elements that rank 0 has in its heads and another in its tokens
    for (int t = 0; t < 8; ++t)
        for (int c = 0; c < 12; ++c) moved += c / 3 == 0 && t / 2 != 0;
    CHECK(all_to_all_project(projection).stream == SentBytes{2 * moved, 2 * moved});
    std::vector<std::vector<double>> partial(4, std::vector<double>(8 * 8)), gradient(4, std::vector<double>(12 * 8));
    auto const [scattered, gathered] = all_reduce_round_a_ring(partial);
    CHECK(project_all_reduce_slice(projection).stream == SentBytes{2 * (scattered[0] + gathered[0]), 2 * gathered[0]});
    CHECK(project_reduce_scatter(projection).stream == SentBytes{2 * scattered[0], 2 * gathered[0]});
    auto const [first, second] = all_reduce_round_a_ring(gradient);
    CHECK(all_to_all_project(projection).weight_gradient == 4 * (first[0] + second[0]));
    CHECK(project_reduce_scatter(projection).weight_gradient == 0);
    double const row_parallel = operations_of([] { times(filled(8, 3, 1), filled(3, 8, 2)); });
    double const whole_weight = operations_of([] { times(filled(2, 12, 1), filled(12, 8, 2)); });
    CHECK(project_reduce_scatter(projection).flops == row_parallel);
    CHECK(all_to_all_project(projection).flops == whole_weight);
    CHECK(project_all_reduce_slice(projection).weights == 3 * 8);
    CHECK(all_to_all_project(projection).weights == 12 * 8);
}

TEST_CASE("the ranks or nodes of a token's experts: the mean over all sets of experts") {
    auto const mean = [](ExpertGroups const& of) {
        double sum = 0, sets = 0;
        for (unsigned open = 0; open < 1u << of.groups; ++open) { // the groups drawn first
            if (std::popcount(open) != (of.most_groups > 0 ? of.most_groups : of.groups)) continue;
            for (unsigned chosen = 0; chosen < 1u << of.experts; ++chosen) {
                unsigned touched = 0;
                for (unsigned e = 0; e < of.experts; ++e)
                    if (chosen >> e & 1u) touched |= 1u << (e * of.groups / of.experts);
                if (std::popcount(chosen) != of.top_k || (touched & ~open) != 0) continue;
                sum += std::popcount(touched), sets += 1;
            }
        }
        return sum / sets;
    };
    for (ExpertGroups const of : {ExpertGroups{.experts = 8, .groups = 4, .top_k = 2},
                                  {.experts = 8, .groups = 2, .top_k = 3},
                                  {.experts = 12, .groups = 4, .top_k = 4, .most_groups = 2},
                                  {.experts = 6, .groups = 3, .top_k = 6},
                                  {.experts = 5, .groups = 5, .top_k = 3},
                                  {.experts = 8, .groups = 2, .top_k = 3, .most_groups = 2},
                                  {.experts = 8, .groups = 4, .top_k = 2, .most_groups = 1}})
        CHECK(mean_groups_of_a_token(of) == doctest::Approx(mean(of)));
}

TEST_CASE("rows of a dispatch, by node and at once: each rank's, over all sets of experts") {
    std::int64_t const ranks = 8, experts = 16, top_k = 3, hidden = 5, element = 2, accumulator = 4;
    for (std::int64_t const nodes : {1, 2, 4, 8}) {
        std::int64_t const each = ranks / nodes;
        std::vector<double> across(8), inside(8); // rows that a rank sends
        double sets = 0;
        for (unsigned chosen = 0; chosen < 1u << experts; ++chosen) {
            if (std::popcount(chosen) != top_k) continue;
            ++sets;
            for (std::int64_t from = 0; from < ranks; ++from) { // a token of each rank
                std::set<std::int64_t> asked, reached;          // nodes, ranks
                for (std::int64_t e = 0; e < experts; ++e) {
                    if ((chosen >> e & 1u) == 0) continue;
                    std::int64_t const to = e / (experts / ranks), node = to / each;
                    std::int64_t const holder = node * each + from % each; // of the row on that node
                    if (node != from / each && asked.insert(node).second) across[size(from)] += 1;
                    if (reached.insert(to).second && holder != to) inside[size(holder)] += 1;
                }
            }
        }
        DispatchSizes const of{
            .tokens = 8 * 32, .hidden = hidden, .top_k = top_k, .ranks = ranks, .experts = experts, .nodes = nodes};
        auto const rows = sent_rows(of);
        auto const bytes = dispatch_bytes(of, element, accumulator);
        for (std::size_t r = 0; r < 8; ++r) {
            double const there = 32 * across[r] / sets, here = 32 * inside[r] / sets;
            CHECK(rows.across == doctest::Approx(there));
            CHECK(rows.inside == doctest::Approx(here));
            // What a layer sends, call by call: numbers of rows; x there and y back; dy there and dx back.
            double const told = 2 * top_k * accumulator, dweight = top_k * accumulator, row = hidden * element;
            CHECK(bytes.across.forward ==
                  doctest::Approx(8.0 * static_cast<double>(nodes - 1) + there * (told + row + row)));
            CHECK(bytes.across.backward == doctest::Approx(there * (row + dweight + row)));
            CHECK(bytes.inside.forward ==
                  doctest::Approx(8.0 * static_cast<double>(each - 1) + here * (told + row + row)));
            CHECK(bytes.inside.backward == doctest::Approx(here * (row + dweight + row)));
        }
    }
}

TEST_CASE("rows are dropped one by one as an expert fills up") {
    std::vector<std::int64_t> const rows{7, 0, 13, 4, 1, 5};
    std::int64_t const all = 30;
    for (double const factor : {0.5, 1.0, 1.25, 2.0, 2.6, 3.0}) {
        std::vector<std::int64_t> taken(6), dropped(6);
        for (std::size_t e = 0; e < 6; ++e)
            for (std::int64_t i = 0; i < rows[e]; ++i)
                ++(static_cast<double>(taken[e] + 1) <= factor * 5 + 1e-12 ? taken : dropped)[e];
        CHECK(dropped_rows(rows, expert_capacity(all, 6, factor)) == dropped);
    }
    // The least factor that drops nothing is the imbalance: any less drops something.
    double const least = load_imbalance(rows);
    CHECK(least == doctest::Approx(13.0 / 5));
    CHECK(dropped_rows(rows, expert_capacity(all, 6, least)) == std::vector<std::int64_t>(6));
    CHECK(dropped_rows(rows, expert_capacity(all, 6, least - 1e-6))[2] == 1);
    CHECK(rows_of_ranks(rows, 3) == std::vector<std::int64_t>{7, 17, 6});
    CHECK(load_imbalance(rows_of_ranks(rows, 3)) == doctest::Approx(1.7));
}

TEST_CASE("whole experts wait for the busiest rank, sliced ones for none: rows, operations and elements counted") {
    std::int64_t const n = 4, tokens = 40, k = 2, h = 3, m = 5, o = 2;
    std::vector<std::int64_t> const rows{44, 16, 12, 8}; // of ranks, from each rank's tokens a quarter
    ExpertSlicing const of{.tokens = tokens,
                           .top_k = k,
                           .hidden = h,
                           .ffn = m,
                           .output = o,
                           .ranks = n,
                           .imbalance = load_imbalance(rows),
                           .flops_per_second = 7,
                           .elements_per_second = 11};
    double const row = operations_of([] { times(times(filled(1, 3, 1), filled(3, 5, 2)), filled(5, 2, 3)); });
    double const received = 44 - 44 / 4; // rows of others' tokens
    CHECK(whole_experts_seconds(of).computing == doctest::Approx(44 * row / 7));
    CHECK(whole_experts_seconds(of).sending == doctest::Approx((received * h + received * o) / 11));

    double const slice = row / 4; // ffn / n columns and rows: 5/4 of a column on average
    std::vector<std::vector<double>> in(4, std::vector<double>(40 * 3)), out(4, std::vector<double>(40 * 2));
    double const gathered = all_reduce_round_a_ring(in)[1][0], scattered = all_reduce_round_a_ring(out)[0][0];
    CHECK(sliced_experts_seconds(of).computing == doctest::Approx(80 * slice / 7));
    CHECK(sliced_experts_seconds(of).sending == doctest::Approx((gathered + scattered) / 11));
    CHECK(saved_by_slicing(of) == doctest::Approx((44 - 80 / 4.0) * row / 7 + (33 * 5 - gathered - scattered) / 11));
    CHECK(sliced_over_whole(of) ==
          doctest::Approx((80 * slice / 7 + (gathered + scattered) / 11) / (44 * row / 7 + 33 * 5 / 11.0)));
}

TEST_CASE("ZeRO: what a rank holds and sends of each parameter, shard by shard") {
    std::size_t const n = 4, parameters = 16;
    for (int stage = 0; stage <= 3; ++stage) {
        double held = 0; // bytes of rank 0
        for (std::size_t i = 0; i < parameters; ++i) {
            bool const mine = i / (parameters / n) == 0;
            held += (mine || stage < 1 ? 12 : 0) + (mine || stage < 2 ? 2 : 0) + (mine || stage < 3 ? 2 : 0);
        }
        CHECK(zero_bytes(stage, 4) * 16 == held);
    }
    std::vector<std::vector<double>> vectors(n, std::vector<double>(parameters));
    auto const [scatter, gather] = all_reduce_round_a_ring(vectors);
    double const rs = scatter[0] / 16, ag = gather[0] / 16;
    ParameterBytes const bytes{.parameter = 2, .gradient = 4};
    CHECK(zero_sent_bytes({.stage = 0, .ranks = 4, .micro_batches = 3}, bytes) == doctest::Approx(4 * (rs + ag)));
    CHECK(zero_sent_bytes({.stage = 1, .ranks = 4, .micro_batches = 3}, bytes) == doctest::Approx(4 * rs + 2 * ag));
    CHECK(zero_sent_bytes({.stage = 2, .ranks = 4, .micro_batches = 3}, bytes) == doctest::Approx(3 * 4 * rs + 2 * ag));
    CHECK(zero_sent_bytes({.stage = 3, .ranks = 4, .micro_batches = 3}, bytes) ==
          doctest::Approx(3 * (4 * rs + 2 * 2 * ag)));
    CHECK(zero_sent_bytes({.stage = 3, .ranks = 4, .micro_batches = 3, .keeps_parameters = true}, bytes) ==
          doctest::Approx(3 * 4 * rs + 2 * ag));
}

TEST_CASE("what a GPT layer keeps, tensor by tensor") {
    for (bool const sequence_parallel : {false, true})
        for (auto const recomputed : {Recomputed::nothing, Recomputed::attention_core, Recomputed::layer}) {
            double const t = 4, sbh = 6.0 * 2 * 8, square = 4.0 * 6 * 6 * 2; // heads s s b
            double const stream = sequence_parallel ? sbh / t : sbh;
            double bytes = 2 * stream; // the layer's input, of its first norm
            if (recomputed != Recomputed::layer) {
                bytes += 2 * stream;                                                      // input of q, k and v
                bytes += 3 * 2 * sbh / t;                                                 // q, k, v
                if (recomputed == Recomputed::nothing) bytes += (2 + 1 + 2) * square / t; // softmax, mask, dropped out
                bytes += 2 * sbh / t;             // input of the output projection
                bytes += stream;                  // mask of its dropout
                bytes += 2 * stream + 2 * stream; // inputs of the second norm and of the first map
                bytes += 2 * 4 * sbh / t;         // input of the activation
                bytes += 2 * 4 * sbh / t;         // input of the second map
                bytes += stream;                  // mask of the dropout
            }
            CHECK(gpt_layer_bytes({.batch = 2,
                                   .seq = 6,
                                   .hidden = 8,
                                   .heads = 4,
                                   .tp = 4,
                                   .sequence_parallel = sequence_parallel,
                                   .recomputed = recomputed}) == doctest::Approx(bytes));
        }
}

TEST_CASE("states over cp: gathered by all, or passed from rank to rank") {
    MambaSizes const of{
        .batch = 2, .seq = 48, .hidden = 24, .heads = 8, .head_dim = 3, .groups = 4, .state = 2, .chunk = 4};
    double const state = 2 * 4 * 3 * 2, decays = 2 * 4; // of a rank of tp = 2: sequences x heads (x head_dim x state)
    auto const gathered = mamba_gathered_state_bytes(of, {.cp = 4, .tp = 2}, 4);
    CHECK(gathered.forward == doctest::Approx(3 * (state + decays) * 4)); // its own, to each of three others
    CHECK(gathered.backward == doctest::Approx(3 * state * 4));
    CHECK(mamba_passed_state_bytes(of, {.cp = 4, .tp = 2}, 4) == SentBytes{state * 4, state * 4});
    CHECK(mamba_passed_state_bytes(of, {.cp = 2, .tp = 2}, 4) == SentBytes{state * 4, state * 4});
    CHECK(mamba_passed_state_bytes(of, {.tp = 2}, 4) == SentBytes{0, 0});
}
