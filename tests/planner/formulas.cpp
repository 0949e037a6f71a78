// The formulas beside what papers and other texts say in numbers, and the exercises of such texts worked by functions.
// docs/formulas.md tells where a text and a count differ.
#include <doctest/doctest.h>

#include <formulas/attention.hpp>
#include <formulas/context.hpp>
#include <formulas/expert_slicing.hpp>
#include <formulas/experts.hpp>
#include <formulas/feed_forward.hpp>
#include <formulas/mamba.hpp>
#include <formulas/memory.hpp>
#include <formulas/products.hpp>
#include <formulas/tensor_grid.hpp>
#include <formulas/tensor_to_sequence.hpp>
#include <formulas/volume.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/validator.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using namespace pentad::planner;
using doctest::Approx;

namespace {

constexpr double GB = 1e9, MB = 1e6;

// LLaMA 7B, one layer, one sequence of 4096.
constexpr AttentionSizes attention_7b{.seq = 4096, .hidden = 4096, .heads = 32, .kv_heads = 32, .head_dim = 128};
constexpr FeedForwardSizes feed_forward_7b{.seq = 4096, .hidden = 4096, .ffn = 11008};
// LLaMA-2 70B: 64 heads share 8 kv heads.
constexpr AttentionSizes attention_70b{.seq = 4096, .hidden = 8192, .heads = 64, .kv_heads = 8, .head_dim = 128};
// Mamba-2 2.7B.
constexpr MambaSizes mamba_2_7b{.seq = 8192, .hidden = 2560, .heads = 80, .head_dim = 64, .state = 128, .chunk = 256};

static_assert(attention_weights(attention_7b) == 4.0 * 4096 * 4096); // they are constant expressions
static_assert(dispatched_rows({.tokens = 16384, .hidden = 4096, .top_k = 2, .ranks = 8}) == 3584);

} // namespace

TEST_CASE("the weights of published models") {
    double const layer = attention_weights(attention_7b) + feed_forward_weights(feed_forward_7b);
    double const norms = 65 * 4096, table = 32000.0 * 4096;
    CHECK(32 * layer + norms + 2 * table == 6738415616); // LLaMA 7B
    CHECK(attention_weights(attention_70b) == 2.0 * 8192 * 8192 + 2.0 * 8192 * 1024);
    double const expert = feed_forward_weights({.hidden = 4096, .ffn = 14336});
    double const attention = attention_weights({.hidden = 4096, .heads = 32, .kv_heads = 8, .head_dim = 128});
    CHECK(32 * (attention + 8 * expert + 8 * 4096) + norms + 2 * table == 46702792704); // Mixtral 8x7B
    // Mamba-2 2.7B: 64 layers; the rest is the table, the convolution, norms and three numbers a head.
    double const rest = 64 * ((5120 + 256) * 5 + 3 * 80 + 5120 + 2560) + 2560;
    CHECK(64 * mamba_weights(mamba_2_7b) + 50288.0 * 2560 + rest == 2702599680);
}

TEST_CASE("attention: the operations that the literature writes out") {
    double const b = 3, s = 4096, d = 8192, kv = 1024, a = 64;
    AttentionSizes of = attention_70b;
    of.batch = 3, of.causal = false;
    CHECK(attention_flops(of).inputs == 2 * b * s * d * d + 4 * b * s * kv * d); // Amer, Karim et al., section 5.1
    CHECK(attention_flops(of).total() ==
          Approx(4 * b * s * d * d + 4 * b * s * kv * d + 4 * b * s * s * d + 5 * b * s * s * a));
    // The same with TP: its second term there has lost a factor d.
    double const tp_term = 4 * b * s * kv * d / 4;
    CHECK(attention_flops(of, {.tp = 4}).total() ==
          Approx((4 * b * s * d * d + 4 * b * s * s * d + 5 * b * s * s * a) / 4 + tp_term));
    of.causal = true; // half, and the diagonal
    CHECK(attention_flops(of).scores == b * s * (s + 1) * d);
    // A GPT layer: 24 B s h^2 + 4 B s^2 h forward (Narayanan et al. 2021, appendix), three times as much in a step.
    AttentionSizes const gpt{
        .batch = 2, .seq = 2048, .hidden = 12288, .heads = 96, .kv_heads = 96, .head_dim = 128, .causal = false};
    FeedForwardSizes const wide{.batch = 2, .seq = 2048, .hidden = 12288, .ffn = 4 * 12288, .gated = false};
    double const forward = 24 * 2 * 2048. * 12288 * 12288 + 4 * 2 * 2048. * 2048 * 12288;
    CHECK(attention_flops(gpt).products() + feed_forward_flops(wide).products == Approx(forward));
    CHECK(attention_backward_flops(gpt, {}, false).products() + feed_forward_backward_products(wide) ==
          Approx(2 * forward));
}

TEST_CASE("a measured table counts the embedding as a product and attention as if it were not causal") {
    // Amer, Karim et al., table 10, first line by MFU: LLaMA 7B, 1024 sequences of 4096 in 101.8 s, eight devices of
    // 378.88 TFLOP/s: "63.7 %".
    AttentionSizes all = attention_7b;
    all.causal = false;
    double const tokens = 4096, head = 2 * tokens * 4096 * 32000;
    auto const utilisation = [&](AttentionSizes const& of, double more) {
        double const layer = attention_flops(of).products() + feed_forward_flops(feed_forward_7b).products;
        return 100 * 3 * 1024 * (32 * layer + head + more) / (8 * 378.88e12 * 101.8);
    };
    CHECK(utilisation(all, head) == Approx(63.7).epsilon(0.001));
    CHECK(utilisation(attention_7b, 0) == Approx(58.2).epsilon(0.002)); // what is computed
}

TEST_CASE("bytes of tensor and context parallelism are half of a table that counts both ways") {
    double const b = 2, s = 4096, d = 8192, kd = 1024, element = 2, n = 8;
    AttentionSizes of = attention_70b;
    of.batch = 2;
    auto const both_ways = [](double one_way) { return 2 * one_way; };
    // Amer, Karim et al., table 3: elements, forward, sent and received.
    double const tp = 4 * (n - 1) / n * b * s * d, cp = 4 * (n - 1) / n * b * s * kd,
                 exchanged = 4 * (n - 1) / (n * n) * b * s * 128 * (64 + 8);
    CHECK(both_ways(tensor_parallel_bytes(2 * 4096, 8192, element, {.tp = 8}).forward) == Approx(tp * element));
    CHECK(both_ways(tensor_parallel_bytes(2 * 4096, 8192, element, {.tp = 8, .sequence_parallel = true}).forward) ==
          Approx(tp * element));
    CHECK(both_ways(ring_attention_bytes(of, {.cp = 8}, element, 4).forward) == Approx(cp * element));
    CHECK(both_ways(gathered_attention_bytes(of, {.cp = 8}, element, 4).forward) == Approx(cp * element));
    CHECK(both_ways(exchanged_attention_bytes(of, {.cp = 8}, element).forward) == Approx(exchanged * element));
    // "Expert Parallelism and 5D Parallelism", 4.2: four all-reduces a layer, in elements.
    double const layer = 2 * tensor_parallel_bytes(2 * 4096, 8192, element, {.tp = 8}).total();
    CHECK(layer == Approx(4 * (2 * (n - 1) / n) * b * s * d * element));
    // Its section 5.2: the time of a ring step moves 2 b (s/n) d elements, where d is the width of keys and values.
    CHECK(key_value_block_bytes(of, {.cp = 8}, element) == 2 * b * (s / n) * kd * element);
    // An all-gather of what each rank has before it sends n - 1 times that, not (n-1)/n times.
    CHECK(all_gather_bytes(1, 8) == Approx(7));
}

TEST_CASE("an exchange of sequence for heads sends less than tp, but less than a ring only over many ranks") {
    for (std::int64_t const heads : {8, 32, 64})
        for (std::int64_t const kv : {1, 2, 4, 8, 32})
            for (std::int64_t const c : {2, 4, 8, 16, 32, 64}) {
                if (heads % c != 0 || heads % kv != 0 || (kv % c != 0 && c % kv != 0)) continue;
                AttentionSizes const of{
                    .seq = 4096, .hidden = heads * 128, .heads = heads, .kv_heads = kv, .head_dim = 128};
                INFO(heads, " heads, ", kv, " of keys and values, ", c, " ranks");
                auto const exchanged = exchanged_attention_bytes(of, {.cp = c}, 2),
                           ring = ring_attention_bytes(of, {.cp = c}, 2, 4);
                double const like_tp = tensor_parallel_bytes(4096, of.hidden, 2, {.tp = c}).forward;
                CHECK(exchanged.forward < like_tp * (1 + 1e-12));
                std::int64_t const moved = std::max(kv, c); // kv heads: repeated where there are fewer than ranks
                CHECK((exchanged.forward < ring.forward * (1 - 1e-12)) == (c * kv > heads + moved));
                if (kv >= c) CHECK((c * kv > heads + moved) == (c > heads / kv + 1));
                // In a whole step a ring sends its blocks twice and their gradients, of 4 bytes, once.
                CHECK((exchanged.total() < ring.total() * (1 - 1e-12)) == (2 * c * kv > heads + moved));
            }
    // LLaMA-2 70B over 8 ranks: a/k + 1 = 9.
    auto const ring = ring_attention_bytes(attention_70b, {.cp = 8}, 2, 4),
               exchanged = exchanged_attention_bytes(attention_70b, {.cp = 8}, 2);
    CHECK(exchanged.forward == Approx(1.125 * ring.forward));
    CHECK(exchanged.total() == Approx(0.5625 * ring.total()));
}

TEST_CASE("tp shares out keys and values up to a kv head for each rank") {
    double const whole = attention_weights(attention_70b), cache = key_value_cache_bytes(attention_70b, 80, 2);
    for (std::int64_t const t : {2, 4, 8, 16, 32, 64}) {
        double const ranks = static_cast<double>(t), kv = std::min(ranks, 8.0); // that share out the 8 kv heads
        CHECK(attention_weights(attention_70b, {.tp = t}) == 2 * 8192 * (8192 / ranks + 1024 / kv));
        CHECK((ranks * attention_weights(attention_70b, {.tp = t}) == whole) == (t <= 8));
        CHECK(key_value_cache_bytes(attention_70b, 80, 2, {.tp = t}) == cache / kv);
        CHECK(key_value_block_bytes(attention_70b, {.cp = 4, .tp = t}, 2) == 2 * 1024 * 1024 * 2 / kv);
        CHECK(attention_flops(attention_70b, {.tp = t}).inputs == 2 * 4096 * 8192 * (8192 / ranks + 2 * 1024 / kv));
    }
}

TEST_CASE("Mamba-2: the operations of the listing, of which a published total has lost a factor l") {
    MambaSizes of = mamba_2_7b;
    of.groups = of.heads; // the listing has B and C for each head
    double const b = 1, s = 8192, l = 256, h = 80, n = 128, p = 64, d = 2560;
    auto const flops = mamba_flops(of);
    CHECK(flops.scores == 2 * b * (s / l) * h * l * l * n);
    CHECK(flops.diagonal == 2 * b * (s / l) * h * l * l * p);
    CHECK(flops.states == 2 * b * (s / l) * h * l * p * n);
    CHECK(flops.state_passing == 2 * b * h * (s / l) * p * n);
    // The paper's listing puts the initial state before those of the chunks: c + 1 columns too, not c.
    CHECK(mamba_dense_state_passing_flops(of) == 2 * b * h * (s / l + 1) * (s / l + 1) * p * n);
    CHECK(flops.state_output == 2 * b * (s / l) * h * p * n * l);
    double const published = 2 * b * (s / l) * h * (l * l * n + l * l * p + l * p * n + p * n + p * n);
    CHECK(flops.scan() - published == Approx(2 * b * s * h * p * n * (1 - 1 / l)));
    CHECK(mamba_flops(mamba_2_7b).in_projection == 2 * b * s * d * (2 * 5120 + 2 * 128 + 80));
    CHECK(mamba_flops(mamba_2_7b).out_projection == 2 * b * s * 5120 * d);
    CHECK(mamba_flops(mamba_2_7b).scores == flops.scores / 80); // one group: made once for all heads

    // Over tp it sends the stream, not states: O(d seq). Over cp it sends states: O(d state cp).
    double const stream = 2 * s * d * 2 * 7 / 8, state = 7 * (5120 * 128 + 80) * 2.0;
    CHECK(tensor_parallel_bytes(8192, 2560, 2, {.tp = 8}).forward == Approx(stream));
    CHECK(mamba_gathered_state_bytes(mamba_2_7b, {.cp = 8}, 2).forward == Approx(state));
    CHECK(mamba_passed_state_bytes(mamba_2_7b, {.cp = 8}, 2).forward == 5120 * 128 * 2);
    // So states are less than streams only for sequences longer than this.
    CHECK(tensor_parallel_bytes(1024, 2560, 2, {.tp = 8}).forward == 7 * 5120 * 128 * 2.0);
}

TEST_CASE("ZeRO: 16 bytes a parameter, and the table of the paper") {
    double const billions = 7.5; // Rajbhandari et al. 2020, figure 1: 7.5 B parameters, 64 ranks, in GB
    CHECK(billions * zero_bytes(0, 64) == 120);
    CHECK(billions * zero_bytes(1, 64) == Approx(31.4).epsilon(0.001));
    CHECK(billions * zero_bytes(2, 64) == Approx(16.6).epsilon(0.003));
    CHECK(billions * zero_bytes(3, 64) == Approx(1.88).epsilon(0.003));
    CHECK(zero_bytes(0, 1, {.gradient = 4}) == 18);
    // Section 7: 2, 2 and 3 times the parameters, of 2 bytes; (n-1)/n of it.
    CHECK(zero_sent_bytes({.stage = 0, .ranks = 64}) == Approx(2 * 2 * 63 / 64.));
    CHECK(zero_sent_bytes({.stage = 2, .ranks = 64}) == Approx(2 * 2 * 63 / 64.));
    CHECK(zero_sent_bytes({.stage = 3, .ranks = 64}) == Approx(3 * 2 * 63 / 64.));
    // Over a pipeline's 8 micro-batches stage 2 does send more than stage 1.
    CHECK(zero_sent_bytes({.stage = 2, .ranks = 64, .micro_batches = 8}) == Approx(9 * 2 * 63 / 64.));
    CHECK(zero_sent_bytes({.stage = 1, .ranks = 64, .micro_batches = 8}) == Approx(2 * 2 * 63 / 64.));
}

TEST_CASE("exercise: 70 B parameters at 256K tokens on 4096 ranks, pp = tp = cp = dp = 8") {
    double const parameters = parameters_of_a_rank(70e9, 0, 8, 8);
    CHECK(parameters == 1.09375e9);
    CHECK(parameters * 2 == Approx(2.18 * GB).epsilon(0.005)); // parameters, and gradients
    CHECK(parameters * 12 == Approx(13.1 * GB).epsilon(0.005));
    CHECK(parameters * zero_bytes(0, 1) == Approx(17.5 * GB));
    CHECK(parameters * zero_bytes(1, 8) ==
          Approx(6.02 * GB).epsilon(0.001)); // the text has 5.96, from rounded summands
    CHECK(parameters * zero_bytes(1, 8 * 8) ==
          Approx(4.58 * GB).epsilon(0.001)); // over cp too, whose ranks hold the same
    GptLayer layer{.batch = 2,
                   .seq = 262144 / 8,
                   .hidden = 8192,
                   .heads = 64,
                   .tp = 8,
                   .sequence_parallel = true,
                   .recomputed = Recomputed::attention_core};
    double const kept = 10 * gpt_layer_bytes(layer);
    CHECK(kept == Approx(10 * 2 * 32768. * 8192 * 34 / 8));
    CHECK(kept == Approx(22.8 * GB).epsilon(0.001)); // the text has 18.2 for this product
    // And a rank keeps it for as many micro-batches as the schedule has under way: on the first stage 8.
    auto const held = pipeline::validate(pipeline::generate("1f1b", {.ranks = 8, .micro_batches = 16})).peak_in_flight;
    CHECK(held.front() == 8);
    CHECK(held.back() == 1);
    CHECK(held.front() * kept == Approx(182.5 * GB).epsilon(0.001));
    double const at_hand = gpt_layer_bytes(layer);
    layer.recomputed = Recomputed::layer;
    double const inputs = held.front() * 10 * gpt_layer_bytes(layer);
    CHECK(inputs == Approx(10.7 * GB).epsilon(0.005));

    AttentionSizes attention{.batch = 2, .seq = 262144, .hidden = 8192, .heads = 64, .kv_heads = 64, .head_dim = 128};
    BlockRanks const on{.cp = 8, .tp = 8, .sequence_parallel = true};
    CHECK(key_value_block_bytes(attention, on, 2) == 268435456); // 268 MB
    CHECK(ring_buffer_bytes(attention, on, 2) == Approx(536 * MB).epsilon(0.002));
    double const all = parameters * zero_bytes(1, 8) + inputs + at_hand + ring_buffer_bytes(attention, on, 2) + 2 * GB;
    CHECK(all == Approx(21.6 * GB).epsilon(0.002));
    attention.kv_heads = 8; // as such a model has
    CHECK(key_value_block_bytes(attention, on, 2) == 268435456 / 8);
}

TEST_CASE("exercise: 3,584 tokens and 29.4 MB sent by each rank of ep") {
    DispatchSizes const of{.tokens = 16384, .hidden = 4096, .top_k = 2, .ranks = 8};
    CHECK(dispatched_rows(of) == 3584);
    double const dispatch = dispatch_and_combine_bytes(of, 2).forward / 2;
    CHECK(dispatch == 29360128); // 29.4 MB
    CHECK(8 * dispatch == Approx(235 * MB).epsilon(0.001));
    CHECK(dispatch_and_combine_bytes(of, 2).total() == 4 * dispatch); // a layer's step: dispatch, combine, and back
    // "Expert Parallelism and 5D Parallelism", 1.3: elements of dispatch and combine.
    CHECK(dispatch_and_combine_bytes(of, 2).forward == Approx(2 * (2 * 2048. * 2 * 4096 * (1 - 1 / 8.))));
    // A row for each rank instead of each choice: 64 experts on 8 ranks, so that few pairs of choices share one.
    CHECK(2048 * mean_groups_of_a_token({.experts = 64, .groups = 8, .top_k = 2}) * 7 / 8 ==
          Approx(3384.9).epsilon(1e-4));
}

TEST_CASE("exercise: 7 steps of a ring, and its buffers beside gathered keys and values") {
    AttentionSizes const of{.batch = 2, .seq = 131072, .hidden = 8192, .heads = 64, .kv_heads = 64, .head_dim = 128};
    CHECK(ring_steps(8) == 7);
    CHECK(key_value_block_bytes(of, {.cp = 8}, 2) == Approx(1.07 * GB).epsilon(0.005));
    CHECK(ring_buffer_bytes(of, {.cp = 8}, 2) == Approx(2.14 * GB).epsilon(0.005));
    CHECK(gathered_key_value_bytes(of, {.cp = 8}, 2) == Approx(8.59 * GB).epsilon(0.001));
    CHECK(gathered_key_value_bytes(of, {.cp = 8}, 2) == 4 * ring_buffer_bytes(of, {.cp = 8}, 2));
    // Of 80 layers a rank keeps its own keys and values, not buffers: 80 blocks.
    CHECK(key_value_cache_bytes(of, 80, 2, {.cp = 8}) == 80 * key_value_block_bytes(of, {.cp = 8}, 2));
}

TEST_CASE("exercise: 144 and 94 tokens dropped at capacity 1.25; 2.4 would drop none") {
    std::vector<std::int64_t> const rows{300, 50, 250, 100, 50, 100, 100, 50};
    CHECK(expert_capacity(1000, 8, 1.25) == 156);
    CHECK(dropped_rows(rows, 156) == std::vector<std::int64_t>{144, 0, 94, 0, 0, 0, 0, 0});
    CHECK(load_imbalance(rows) == 2.4);
    CHECK(expert_capacity(1000, 8, 2.4) == 300);
    CHECK(expert_capacity(1000, 8, 2.0) == 250);
}

TEST_CASE("exercise: from 16 to 64 data-parallel ranks an all-reduce sends 5 % more in 4.2 times the steps") {
    CHECK(all_reduce_bytes(1, 64) / all_reduce_bytes(1, 16) == Approx(1.05));
    CHECK(2.0 * ring_steps(64) / (2.0 * ring_steps(16)) == Approx(4.2));
}

TEST_CASE("example: a 1 T model of experts on 16,384 ranks") {
    double const dense = parameters_of_a_rank(200e9, 0, 16, 8), of_experts = parameters_of_a_rank(0, 800e9, 16, 8, 4);
    CHECK(2 * dense == Approx(3.1 * GB).epsilon(0.01));
    CHECK(2 * of_experts == Approx(3.1 * GB).epsilon(0.01));
    CHECK(parameters_of_a_rank(200e9, 800e9, 16, 8) == 1000e9 / 128);
    CHECK((dense + of_experts) * zero_bytes(0, 1) ==
          Approx(50 * GB)); // the text: 31, for an optimizer of 4 x 2 bytes, no gradients
    // Experts of which all of 12288 x 49152 and back are held: 310 GB in 16 bits, 39 GB on each of 8 ranks.
    double const expert = 2 * feed_forward_weights({.hidden = 12288, .ffn = 4 * 12288, .gated = false});
    CHECK(expert == 16.0 * 12288 * 12288);
    CHECK(128 * expert == Approx(310 * GB).epsilon(0.005));
    CHECK(2 * parameters_of_a_rank(0, 128 * expert / 2, 1, 1, 8) == Approx(39 * GB).epsilon(0.01));
}

TEST_CASE("a bound on nodes saves less than its share of them") {
    // DeepSeek-V3: 8 of 256 experts, on at most 4 of 8 nodes. "Reduces by M / nodes" would be 0.5.
    double const any = mean_groups_of_a_token({.experts = 256, .groups = 8, .top_k = 8});
    double const bounded = mean_groups_of_a_token({.experts = 256, .groups = 8, .top_k = 8, .most_groups = 4});
    CHECK(any == Approx(5.29).epsilon(0.001));
    CHECK(bounded == Approx(3.63).epsilon(0.001));
    CHECK(bounded / any == Approx(0.687).epsilon(0.001));
    double const wide_bound =
        mean_groups_of_a_token({.experts = 256, .groups = 8, .top_k = 8, .most_groups = 100}); // bounds nothing
    CHECK(wide_bound == any);
    CHECK(mean_groups_of_a_token({.experts = 256, .groups = 8, .top_k = 1}) == Approx(1));
    CHECK(mean_groups_of_a_token({.experts = 64, .groups = 64, .top_k = 3}) ==
          Approx(3)); // an expert on each: all differ
}

TEST_CASE("expert slicing: what the published gain assumes is the worst imbalance, one rank with all") {
    double const experts = 16, d = 8, b = 512, h = 1024, m = 4096, compute = 1e12, send = 1e9;
    ExpertSlicing of{.tokens = 512,
                     .top_k = 2,
                     .hidden = 1024,
                     .ffn = 4096,
                     .output = 1024,
                     .ranks = 8,
                     .imbalance = 8,
                     .flops_per_second = compute,
                     .elements_per_second = send};
    // Each token to all experts / d = 2 experts of one rank: top_k = experts / d, imbalance = d. Its table, times 2 b:
    CHECK(whole_experts_seconds(of).computing == Approx(2 * b * (h * m + m * h) * experts / d / compute));
    CHECK(sliced_experts_seconds(of).computing == Approx(2 * b * (h * m + m * h) * experts / (d * d) / compute));
    CHECK(exchange_seconds(of, 1024) == Approx(b * h * 2 * (d - 1) / (d * send))); // its bound on T0
    CHECK(sliced_experts_seconds(of).sending == Approx(2 * b * h * (d - 1) / (d * send)));
    double const delta = 2 * b * (1 - 1 / d) * (h * m + m * h) / compute * experts / d +
                         2 * exchange_seconds(of, 1024) - 2 * b * h * (d - 1) / (d * send);
    CHECK(saved_by_slicing(of) == Approx(delta));
    // Balanced, T0 is a d-th of that, computing is what it was, and slicing only sends more: delta < 0.
    of.imbalance = 1;
    CHECK(exchange_seconds(of, 1024) == Approx(b * h * 2 * (d - 1) / (d * d * send)));
    CHECK(whole_experts_seconds(of).computing == sliced_experts_seconds(of).computing);
    CHECK(saved_by_slicing(of) == Approx(2 * b * h * (d - 1) / (d * send) * (2 / d - 1)));
    // With r = 1, n = h, m = 4 h it pays from this width on.
    of.top_k = 1, of.imbalance = 1.5;
    double const least = compute / (8 * send) * (d - 1.5) * (d - 1) / (d * (1.5 - 1));
    for (double const times : {0.99, 1.01}) {
        of.hidden = of.output = static_cast<std::int64_t>(times * least), of.ffn = 4 * of.hidden;
        CHECK((saved_by_slicing(of) > 0) == (times > 1));
    }
    // With top_k = r the same with r (lambda - 1) and d - lambda r.
    of.top_k = 3;
    double const least_of_three = compute / (8 * send) * (d - 4.5) * (d - 1) / (3 * d * (1.5 - 1));
    for (double const times : {0.99, 1.01}) {
        of.hidden = of.output = static_cast<std::int64_t>(times * least_of_three), of.ffn = 4 * of.hidden;
        CHECK((saved_by_slicing(of) > 0) == (times > 1));
    }
    of.top_k = 1;
    // The published width takes what is computed with the worst imbalance and what is sent with none, each in its own
    // way N/d times: with one imbalance in both slicing pays for every width, or for none.
    double const published = compute / (8 * send) * (1 - experts / (d * d)) * d / experts;
    for (double const times : {0.1, 0.98, 1.02, 100.0}) {
        of.hidden = of.output = static_cast<std::int64_t>(times * published), of.ffn = 4 * of.hidden;
        of.imbalance = d;
        auto worst = of;
        worst.top_k = 2; // experts / d
        double const computing = whole_experts_seconds(worst).computing - sliced_experts_seconds(worst).computing;
        CHECK(saved_by_slicing(of) > 0);
        of.imbalance = 1;
        double const sending = experts / d * whole_experts_seconds(of).sending - sliced_experts_seconds(of).sending;
        CHECK((computing + sending > 0) == (times > 1));
        CHECK(saved_by_slicing(of) < 0);
    }
    // The gain of large experts is the imbalance.
    of.imbalance = 1.5, of.hidden = of.output = 1 << 26, of.ffn = 1 << 28;
    CHECK(sliced_over_whole(of) == Approx(1 / 1.5).epsilon(0.001));
}

TEST_CASE("from heads to tokens: all-to-all sends an N-th of a reduce-scatter, and 1/(2N) of all-reduce and slice") {
    double const n = 8, s = 16384, h = 8192;
    OutputProjectionSizes const of{.tokens = 16384, .width = 8192, .hidden = 8192, .tp = 8};
    auto const sliced = project_all_reduce_slice(of), scattered = project_reduce_scatter(of),
               exchanged = all_to_all_project(of);
    CHECK(sliced.stream.forward == Approx(2 * (n - 1) / n * s * h * 2)); // one way; the text takes it for both
    CHECK(2 * exchanged.stream.forward == Approx(2 * (n - 1) / (n * n) * s * h * 2)); // the text's V2 is both ways
    CHECK(sliced.stream.forward / exchanged.stream.forward == Approx(2 * n));
    CHECK(scattered.stream.forward / exchanged.stream.forward == Approx(n));
    CHECK(sliced.stream.backward == scattered.stream.backward);
    CHECK(exchanged.weights == n * scattered.weights);
    CHECK(exchanged.weight_gradient == Approx(2 * (n - 1) / n * h * h * 4));
    CHECK(exchanged.flops == scattered.flops);
    // What it saves in a micro-batch pays for the gradient of the whole weight from 18,725 tokens a step on.
    double const saved = scattered.stream.total() - exchanged.stream.total();
    CHECK(s * exchanged.weight_gradient / saved == Approx(h * 4 / 2 / (1 - 1 / n)));
}

TEST_CASE("sizes that cannot be are refused with the numbers") {
    auto const refused = [](auto const& f, char const* text) {
        CHECK_THROWS_WITH_AS(f(), text, std::invalid_argument);
    };
    refused([] { (void)attention_flops(attention_7b, {.tp = 3}); }, "heads = 32 is not divisible by tp = 3");
    refused([] { (void)attention_weights({.heads = 6, .kv_heads = 2}, {.tp = 3}); },
            "kv_heads = 2 is not divisible by tp = 3");
    refused([] { (void)attention_flops({.batch = 0}); }, "batch = 0: it must be at least 1");
    refused([] { (void)attention_flops(attention_7b, {.cp = 0}); }, "cp = 0: it must be at least 1");
    refused([] { (void)feed_forward_weights(feed_forward_7b, {.tp = 5}); }, "ffn = 11008 is not divisible by tp = 5");
    refused([] { (void)mamba_flops({.seq = 8, .chunk = 3}); }, "seq of a rank = 8 is not divisible by chunk = 3");
    refused([] { (void)causal_pairs(20, 4, 0, true); }, "seq = 20 is not divisible by 2 cp = 8");
    refused([] { (void)zero_sent_bytes({.stage = -1}); }, "ZeRO stage -1: the stages are 0 to 3");
    refused([] { (void)ring_steps(0); }, "cp = 0: it must be at least 1");
    refused([] { (void)all_reduce_bytes(1, 0); }, "ranks = 0: it must be at least 1");
    refused([] { (void)zero_bytes(4, 2); }, "ZeRO stage 4: the stages are 0 to 3");
    refused([] { (void)dispatched_rows({.tokens = 10, .ranks = 4}); }, "tokens = 10 is not divisible by ep = 4");
    refused([] { (void)mean_groups_of_a_token({.experts = 8, .groups = 2, .top_k = 9}); },
            "top_k = 9 of 8 experts: choose at least 1 and no more than there are");
    refused([] { (void)mean_groups_of_a_token({.experts = 8, .groups = 2, .top_k = 0}); },
            "top_k = 0 of 8 experts: choose at least 1 and no more than there are");
    refused([] { (void)load_imbalance(std::array<std::int64_t, 2>{0, 0}); },
            "the imbalance of no rows: give the rows of each expert, some above 0");
    refused([] { (void)expert_capacity(8, 0, 1); },
            "a capacity needs rows, at least one expert and a factor that is not negative");
    refused([] { (void)expert_capacity(-1, 8, 1); },
            "a capacity needs rows, at least one expert and a factor that is not negative");
    refused([] { (void)expert_capacity(8, 8, -0.5); },
            "a capacity needs rows, at least one expert and a factor that is not negative");
    CHECK(expert_capacity(0, 1, 0) == 0);
    refused([] { (void)zero_sent_bytes({.stage = 0, .ranks = 0}); }, "ranks = 0: it must be at least 1");
    refused([] { (void)attention_weights({.kv_heads = 0}, {.tp = 1}); }, "kv_heads = 0: it must be at least 1");
    refused([] { (void)saved_by_slicing({.ranks = 2, .imbalance = 0.9}); },
            "an imbalance of 0.900000 over 2 ranks: it lies between 1 and the number of ranks");
    refused([] { (void)saved_by_slicing({.ranks = 2, .imbalance = 3}); },
            "an imbalance of 3.000000 over 2 ranks: it lies between 1 and the number of ranks");
    refused([] { (void)project_reduce_scatter({.tokens = 9, .width = 8, .hidden = 8, .tp = 2}); },
            "token = 9 is not divisible by tp = 2");
}

TEST_CASE(
    "tensor parallelism: a grid sends less than one dimension where ranks are many and weights few for the tokens") {
    // An MLP of 4 times its width, tokens times that of the width; in elements of a weight of width x width.
    auto const line = [](double tokens, double ranks) { return 2 * tokens * (ranks - 1) / ranks; };
    auto const least = [](double tokens, double rows, double columns, double depth) {
        GridMapSizes const up{
            .tokens = tokens, .in = 1, .out = 4, .rows = rows, .columns = columns, .depth = depth, .element_bytes = 1};
        auto down = up;
        std::swap(down.in, down.out);
        bool const is_cube = depth > 1;
        return is_cube ? std::min(cube_map_bytes(up), cube_map_bytes_where_y_stays(up)) +
                             std::min(cube_map_bytes(down), cube_map_bytes_where_y_stays(up))
                       : grid_map_bytes(up) + std::min(grid_map_bytes(down), grid_map_bytes_where_x_stays(down));
    };
    CHECK(line(1, 64) == Approx(1.97).epsilon(0.005));
    CHECK(least(1, 8, 8, 1) == Approx(1.15).epsilon(0.005));
    CHECK(least(1, 4, 4, 4) == Approx(0.84).epsilon(0.005));
    CHECK(least(1, 4, 2, 1) > line(1, 8)); // the weights weigh more
    CHECK(least(1, 2, 2, 2) > line(1, 8));
    CHECK(least(16, 4, 2, 1) < 0.5 * line(16, 8));
    CHECK(least(16, 2, 2, 2) < 0.6 * line(16, 8));
}

TEST_CASE("products: the closed forms are the costs of the plans between layouts") {
    for (auto const& [r, c, l] : {std::array{1, 2, 1}, {2, 2, 1}, {4, 2, 1}, {2, 2, 2}, {1, 1, 8}}) {
        ProductOnGrid const of{.m = 64, .n = 128, .k = 256, .rows = 1.0 * r, .columns = 1.0 * c, .inner = 1.0 * l};
        Mesh<Axis<dp>, Axis<tp>, Axis<cp>> const mesh(r, c, l); // rows, columns, summands
        using A = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<hidden, dynamic, cp, tp>>>;
        using UsedA = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<hidden, dynamic, cp>>>;
        using B = Layout<f64, Dims<Dim<hidden, dynamic, cp, dp>, Dim<ffn, dynamic, tp>>>;
        using UsedB = Layout<f64, Dims<Dim<hidden, dynamic, cp>, Dim<ffn, dynamic, tp>>>;
        using Computed = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<ffn, dynamic, tp>>, Partial<cp>>;
        using C = Layout<f64, Dims<Dim<batch, dynamic, dp, cp>, Dim<ffn, dynamic, tp>>>;
        double const bytes = cost_of<A, UsedA>(std::array<std::size_t, 2>{64, 256}, mesh).total() +
                             cost_of<B, UsedB>(std::array<std::size_t, 2>{256, 128}, mesh).total() +
                             cost_of<Computed, C>(std::array<std::size_t, 2>{64, 128}, mesh).total();
        CHECK(layered_product_bytes(of) == Approx(bytes));
        if (l == 1) CHECK(summa_bytes(of) == layered_product_bytes(of));
    }
    ProductOnGrid const square{.m = 8, .n = 8, .k = 8, .rows = 4, .columns = 4};
    double skewed = 0; // in blocks of 2 x 2: rank (i, j) sends its block of A i ranks on, of B j ranks
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) skewed += (i > 0 ? 4.0 : 0.0) + (j > 0 ? 4.0 : 0.0);
    CHECK(cannon_skew_bytes(square) == 8 * skewed / 16);
    CHECK(summa_bytes(square) == 3 * 8 * 2 * 4.0); // three blocks of each factor
}
