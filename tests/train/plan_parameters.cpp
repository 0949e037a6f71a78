// ranks: 1
//
// The parameters of the models that the planner knows.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/model/decoder.hpp>
#include <pentad/model/parameter_count.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/presets.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/train/planned.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

using namespace pentad;
using namespace pentad::planner;

TEST_CASE("every preset has as many parameters as its authors, or the tensors that they published, count") {
    struct Published {
        std::string name;
        double parameters;
        double active;
    };
    for (auto const& [name, total, active] : {
             Published{"llama-2-7b", 6'738'415'616., 6'738'415'616.},
             {"llama-1b", 1'235'814'400., 1'235'814'400.},
             {"llama-3-8b", 8'030'261'248., 8'030'261'248.},
             {"llama-3-70b", 70'553'706'496., 70'553'706'496.},
             {"llama-3-405b", 405'853'388'800., 405'853'388'800.},
             {"mixtral-8x7b", 46'702'792'704., 12'879'925'248.},   // the paper: 12.9e9 active
             {"mixtral-8x22b", 140'620'634'112., 39'152'031'744.}, // 39e9
             // DeepSeek's 36.7e9 active are without the embedding of 0.9e9 that is counted here.
             {"deepseek-v3", 671'026'419'200., 37'552'297'472.},
             {"gpt-3-175b", 174'604'259'328., 174'604'259'328.}, // table D.1: 174600e6
             {"mamba2-1.3b", 1'343'757'312., 1'343'757'312.},    // 1.3e9
             {"mamba2-2.7b", 2'702'599'680., 2'702'599'680.},
             {"mamba2-7b", 7'285'403'648., 7'285'403'648.},
         }) {
        CAPTURE(name);
        auto const count = parameters(train::planned_preset(name));
        CHECK(count.total == total);
        CHECK(count.active == active);
    }
    CHECK(model::presets().size() == 12);
}

TEST_CASE("the formula of parameters is the sum of those that the layers have, for every part and its options") {
    namespace m = pentad::model;
    m::DecoderSizes const sizes{.layers = 3, .hidden = 24, .heads = 4, .kv_heads = 2, .ffn = 20, .vocab = 17};
    auto const with = [&](std::size_t place, m::Part const& part) {
        auto changed = m::decoder(sizes);
        changed.blocks[1].branches[place].part = part;
        return changed;
    };
    m::Attention const attention{.heads = 4, .kv_heads = 2, .head_dim = 6};
    auto biased = attention, normed = attention, sunk = attention;
    biased.has_bias = normed.norms_queries_and_keys = sunk.scores.sinks = true;
    m::Experts const experts{.count = 16, .width = 10};
    auto shared = experts, hashed = experts;
    shared.shared = 2;
    shared.router = m::deepseek_v3_router;
    hashed.router.choice = m::RouterChoice::hash;
    hashed.router.set_balance("none");
    m::LatentAttention const latent{.heads = 4, .head_dim = 6, .rope_dim = 4, .value_dim = 5, .kv_rank = 7};
    auto ranked = latent;
    ranked.query_rank = 3;
    auto tied = m::decoder(sizes);
    tied.ties_embeddings = true;
    std::vector<m::Model> models{with(0, attention),
                                 with(0, biased),
                                 with(0, normed),
                                 with(0, sunk),
                                 with(0, latent),
                                 with(0, ranked),
                                 with(0, m::Mamba2{.heads = 4, .head_dim = 12, .state = 5, .groups = 2}),
                                 with(0, m::LinearAttention{.heads = 4, .head_dim = 6}),
                                 with(1, m::PlainMlp{.width = 20}),
                                 with(1, experts),
                                 with(1, shared),
                                 with(1, hashed),
                                 tied,
                                 m::gpt2(2, 24, 4, 20, 17, 9)};
    for (auto const& preset : m::presets()) models.push_back(preset.model);
    for (auto const& one : models) {
        CAPTURE(one.text());
        CHECK(m::parameter_count(one) == parameters(train::planned_model(one)).total);
    }
}

namespace {

/// Parameters of a block whose names contain a text.
double named(Model const& model, std::int64_t layer, std::string const& text) {
    Strategy const alone{.seq = 8, .element = planner::Element::f32};
    double sum = 0;
    for (auto const& one : *model.parts(alone, 1).block(model.kind_of(layer))->parameters)
        if (one.name.find(text) != std::string::npos) sum += one.elements;
    return sum;
}

} // namespace

TEST_CASE("the kinds of a layer are those of the published tensors") {
    auto const deepseek = train::planned_preset("deepseek-v3");
    CHECK(deepseek.kinds() == 2);
    double const norms = 1536 + 512;
    CHECK(named(deepseek, 2, ".self_attn.") == 187'105'280. + norms); // q_a, q_b, kv_a, kv_b and o of self_attn
    CHECK(named(deepseek, 3, ".self_attn.") == 187'105'280. + norms);
    CHECK(named(deepseek, 2, ".mlp.") == 3. * 7168 * 18432);
    CHECK(named(deepseek, 3, ".experts.") == 256 * 3. * 7168 * 2048);
    CHECK(named(deepseek, 3, ".shared_experts.") == 3. * 7168 * 2048);
    CHECK(named(deepseek, 3, ".gate.") == 256 * 7168. + 256); // mlp.gate.weight and e_score_correction_bias

    auto const gpt = train::planned_preset("gpt-3-175b");
    double const h = 12288;
    CHECK(named(gpt, 0, ".mixer.") == 4 * h * h + 4 * h);
    CHECK(named(gpt, 0, ".mlp.") == 8 * h * h + 5 * h);
    CHECK(named(gpt, 0, "_norm.") == 4 * h);

    auto const mamba = train::planned_preset("mamba2-2.7b");
    CHECK(named(mamba, 0, ".mixer.") == 2560. * 10576 + 5376 * 4 + 5376 + 3 * 80 + 5120 + 5120. * 2560);
}

TEST_CASE("an embedding that is tied is the head, and blocks that are alike are one kind") {
    model::DecoderSizes sizes{
        .layers = 6, .hidden = 8, .heads = 2, .kv_heads = 1, .ffn = 6, .vocab = 10, .experts = 4, .moe_every = 2};
    auto const apart = train::planned_model(model::decoder(sizes));
    sizes.ties_embeddings = true;
    auto const tied = train::planned_model(model::decoder(sizes));
    CHECK(parameters(apart).total - parameters(tied).total == 80);
    CHECK(tied.kinds() == 2);
    CHECK(parameters(tied).total - parameters(tied).active == 3 * 2 * (3 * 8 * 6)); // 2 of 4 experts in 3 blocks
}

TEST_CASE("a model's FLOPs are 6 for each weight of a product, and those of attention's pairs") {
    auto const model = train::planned_model(model::decoder(
        {.layers = 3, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 100, .experts = 4, .moe_every = 3}));
    double const h = 64, mlp = 3 * h * 96;
    double const weights =
        3 * (2 * h * h + 2 * h * 32) + 2 * mlp + 2 * mlp + 4 * h + 100 * h; // two experts and a router
    auto const flops = model_flops_per_token(model, 128);
    CHECK(flops.computed == doctest::Approx(6 * weights + 3 * 6 * h * 129).epsilon(1e-12));
    CHECK(flops.reported == doctest::Approx(6 * weights + 3 * 12 * h * 128).epsilon(1e-12));
}
