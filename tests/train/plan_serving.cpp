// ranks: 1
//
// The parameters of the models that the planner knows.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/planner/hardware_presets.hpp>
#include <pentad/planner/serving.hpp>
#include <pentad/train/planned.hpp>

#include "../support/near.hpp"

#include <cmath>
#include <stdexcept>

using namespace pentad;
using namespace pentad::planner;
using test::is_near;

namespace {

constexpr double nothing = 1e30; ///< a rate at which something takes no time

/// A device whose products, memory and network take what is said, and nothing else does.
Hardware ideal(double flops, double memory_bandwidth, double link_latency = 0) {
    return {.name = "ideal",
            .devices = 64,
            .devices_per_node = 8,
            .peak_f32 = flops,
            .peak_bf16 = flops,
            .memory_bytes = 80e9,
            .memory_bandwidth = memory_bandwidth,
            .links = {{.devices = 64, .latency_s = link_latency, .bandwidth = nothing}}};
}

/// Of a block on a rank of tp.
observe::DecodingState state(Model const& model, std::int64_t tp = 1) {
    Strategy const c{.tp = tp, .seq = 64};
    return model.parts(c, 1).block(0)->state;
}
double cache_of_token(Model const& model) { return state(model).token * static_cast<double>(model.layers()); }

/// Bytes of the weights that all tokens meet, but for the rows of the embedding.
double read_by_a_token(Model const& model) {
    auto const& shape = model.description();
    double const table = static_cast<double>(shape.vocab * shape.hidden);
    return 2 * (parameters(model).total - (shape.ties_embeddings ? 0 : table));
}

} // namespace

TEST_CASE("a token's keys and values take the published bytes") {
    // Zhao et al. 2025, "Insights into DeepSeek-V3", table 1.
    CHECK(cache_of_token(train::planned_preset("deepseek-v3")) == 70272);
    CHECK(cache_of_token(train::planned_preset("llama-3-405b")) == 516096);
    CHECK(cache_of_token(train::planned_preset("llama-3-70b")) == 327680);
}

TEST_CASE("tp shares out the heads of the cache, but a head is whole, and a latent vector is everybody's") {
    auto const llama = train::planned_preset("llama-3-8b");
    CHECK(state(llama, 4).token == state(llama).token / 4);
    CHECK(state(llama, 16).token == state(llama, 8).token);
    CHECK(state(train::planned_preset("deepseek-v3"), 8).token == 2 * 576);
    auto const mamba = state(train::planned_preset("mamba2-2.7b"), 2); // 80 heads of 64, a state of 128
    CHECK(mamba.token == 0);
    CHECK(mamba.sequence == 4 * 2560 * 128 + 2 * 3 * (2560 + 2 * 128));
}

TEST_CASE("a prompt takes the products of its tokens, where these are all that takes time") {
    auto const model = train::planned_preset("llama-3-8b");
    std::int64_t const prompt = 1000;
    Serving const serving(model, ideal(1e15, nothing), {.prompt = prompt, .output = 2});
    double const table = 4096.0 * 128256, norms = 65.0 * 4096;
    double const weights = parameters(model).total - 2 * table - norms;
    double const attention = 32 * 32.0 * 1000 * 1001 * 256 / Hardware{}.attention_efficiency;
    CHECK(is_near(serving.first_token_s(), (2 * weights * 1000 + 2 * table + attention) / 1e15,
                  1e-6)); // logits of one token
}

TEST_CASE("a token takes one reading of the weights and of the cache, where memory is all that takes time") {
    auto const model = train::planned_preset("llama-3-8b");
    double const bandwidth = 1e12;
    Serving const serving(model, ideal(nothing, bandwidth), {.prompt = 2000, .output = 1000});
    double const cache = 2500 * cache_of_token(model); // answers are half written
    CHECK(is_near(serving.step_s(1), (read_by_a_token(model) + cache) / bandwidth, 2e-3));
    CHECK(is_near(serving.step_s(64), (read_by_a_token(model) + 64 * cache) / bandwidth, 4e-2));
    Serving const halves(model, ideal(nothing, bandwidth), {.tp = 2, .prompt = 2000, .output = 1000});
    CHECK(is_near(halves.step_s(1), serving.step_s(1) / 2, 5e-3));
    Serving const stages(model, ideal(nothing, bandwidth), {.pp = 2, .prompt = 2000, .output = 1000});
    CHECK(stages.step_s(2) > serving.step_s(1)); // the slower stage, twice
    CHECK(stages.step_s(2) < 1.2 * serving.step_s(1));
}

TEST_CASE("few tokens meet few experts, and many meet all") {
    auto const model = train::planned_preset("mixtral-8x7b");
    double const expert = 2 * 3 * 4096.0 * 14336 * 32, rest = read_by_a_token(model) - 8 * expert;
    Serving const serving(model, ideal(nothing, 1e12), {.prompt = 1, .output = 2});
    CHECK(is_near(serving.step_s(1), (rest + 2 * expert) / 1e12, 2e-3));
    CHECK(is_near(serving.step_s(2), (rest + 4 * expert) / 1e12, 2e-3)); // 8 (1 - (3/4)^2) = 3.5, rounded
    CHECK(is_near(serving.step_s(60), (rest + 8 * expert) / 1e12, 2e-2));
    // Over ep each rank has half of them, and the tokens of two ranks.
    Serving const halves(model, ideal(nothing, 1e12), {.ep = 2, .prompt = 1, .output = 2});
    CHECK(is_near(halves.step_s(1), (rest + 2 * expert) / 1e12, 2e-3)); // 1.75, rounded
}

TEST_CASE("a token's collectives take their latency") {
    auto const model = train::planned_preset("llama-3-8b");
    Serving const serving(model, ideal(nothing, nothing, 1e-5), {.tp = 4, .prompt = 1, .output = 2});
    // Two all-reduces a layer, one after the embedding, two sums for the largest logit, of 2 (4 - 1) messages each.
    CHECK(is_near(serving.step_s(1), (2 * 32 + 1 + 2) * 6 * 1e-5, 1e-9));
}

TEST_CASE("the largest batch is what fits") {
    auto const model = train::planned_preset("llama-3-8b");
    auto hardware = ideal(1e15, 3e12);
    Service const service{.prompt = 4000, .output = 96};
    double const cache = 4096 * cache_of_token(model);
    double const n = Serving(model, hardware, service).largest_batch();
    CHECK(n == std::floor(n));
    auto const at = Serving(model, hardware, service).at(1);
    CHECK(at.cache == cache);
    CHECK(at.weights == 2 * parameters(model).total);
    Serving const serving(model, hardware, service);
    auto const full = serving.at(serving.most_requests_per_s());
    CHECK(full.batch == n);
    CHECK(full.memory_peak <= hardware.memory_bytes);
    CHECK(full.memory_peak + cache > hardware.memory_bytes);
    hardware.memory_bytes = 16e9; // not even the weights
    Serving const small(model, hardware, service);
    CHECK(small.largest_batch() == 0);
    CHECK(!small.at(1).fits);
    CHECK(small.most_requests_per_s() == 0);
    CHECK(small.requests_within(0.95, 100) == 0);
}

TEST_CASE("requests under way are those that come while one is answered") {
    auto const hardware = ideal(1e15, 3e12);
    Service const service{.dp = 2, .prompt = 2000, .output = 200};
    Serving const serving(train::planned_preset("llama-3-8b"), hardware, service);
    double const most = serving.most_requests_per_s();
    for (double const part : {0.1, 0.5, 0.9, 1.0}) {
        CAPTURE(part);
        auto const at = serving.at(part * most);
        double const little = part * most / 2 * 199 * at.token_s;
        CHECK(at.batch >= little * (1 - 1e-9));
        CHECK(at.batch <= little + 1.5);
        CHECK(is_near(at.tokens_per_s, 200 * part * most, 1e-9));
        CHECK(std::isfinite(at.first_token_quantile(0.95)));
    }
    CHECK(serving.at(most).batch == serving.largest_batch());
    // The prompt gives the first token: an answer of one token is not decoded.
    Serving const first(train::planned_preset("llama-3-8b"), hardware, {.prompt = 2000, .output = 1});
    CHECK(is_near(first.most_requests_per_s(), 1 / first.first_token_s(), 1e-9));
    CHECK(std::isinf(serving.at(1.01 * most).first_token_quantile(0.95)));
}

TEST_CASE("the service level holds up to a rate, and no further") {
    Serving const serving(train::planned_preset("llama-3-8b"), ideal(1e15, 3e12), {.prompt = 2000, .output = 200});
    double const limit = 0.1, rate = serving.requests_within(0.95, limit);
    CHECK(rate > 0);
    CHECK(rate < serving.most_requests_per_s());
    CHECK(is_near(serving.at(rate).first_token_quantile(0.95), limit, 1e-3));
    CHECK(serving.at(1.02 * rate).first_token_quantile(0.95) > limit);
    CHECK(serving.requests_within(0.95, 1e-3) == 0);
    CHECK(serving.requests_within(0.95, 1e9) == serving.most_requests_per_s());
}

TEST_CASE("what cannot be laid out is refused") {
    auto const model = train::planned_preset("llama-3-8b");
    auto const make = [&](Service const& service) { return Serving(model, ideal(1e15, 1e12), service); };
    CHECK_THROWS_WITH_AS(make({.tp = 3}), "heads = 32 is not divisible by tp = 3", std::invalid_argument);
    CHECK_THROWS_WITH_AS(make({.pp = 33}), "layers = 32 is less than the stages of the pipeline, pp = 33",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(make({.output = 0}), "the output must have a token", std::invalid_argument);
}
