#include <doctest/doctest.h>

#include <pentad/planner/model_presets.hpp>
#include <pentad/planner/parameters.hpp>

#include <cmath>
#include <cstdint>
#include <string>

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
        CHECK(parameters(find_model(name)) == total);
        CHECK(active_parameters(find_model(name)) == active);
    }
    CHECK(models().size() == 12);
}

TEST_CASE("layers and ends add up to the model, each parameter in one kind") {
    for (auto const& model : models()) {
        CAPTURE(model.name);
        double sum = embedding_parameters(model).total() + head_parameters(model).total();
        for (std::int64_t layer = 0; layer < model.layers; ++layer) sum += layer_parameters(model, layer).total();
        CHECK(sum == parameters(model));
    }
}

TEST_CASE("the kinds of a layer are those of the published tensors") {
    auto const& deepseek = find_model("deepseek-v3");
    auto const dense = layer_parameters(deepseek, 2);
    auto const sparse = layer_parameters(deepseek, 3);
    CHECK(dense.attention == 187'105'280.); // q_a, q_b, kv_a, kv_b and o of self_attn
    CHECK(sparse.attention == dense.attention);
    CHECK(dense.feed_forward == 3. * 7168 * 18432);
    CHECK(dense.experts == 0);
    CHECK(dense.router == 0);
    CHECK(sparse.feed_forward == 0);
    CHECK(sparse.experts == 256 * 3. * 7168 * 2048);
    CHECK(sparse.shared_experts == 3. * 7168 * 2048);
    CHECK(sparse.router == 256 * 7168. + 256); // mlp.gate.weight and e_score_correction_bias
    CHECK(sparse.norms == 2 * 7168. + 1536 + 512);

    auto const gpt = layer_parameters(find_model("gpt-3-175b"), 0);
    double const h = 12288;
    CHECK(gpt.attention == 4 * h * h + 4 * h);
    CHECK(gpt.feed_forward == 8 * h * h + 5 * h);
    CHECK(gpt.norms == 4 * h);

    auto const mamba = layer_parameters(find_model("mamba2-2.7b"), 0);
    CHECK(mamba.mamba == 2560. * 10576 + 5376 * 4 + 5376 + 3 * 80 + 5120 + 5120. * 2560);
    CHECK(mamba.attention == 0);
    CHECK(mamba.norms == 2560);
}

TEST_CASE("every k-th layer after the dense ones has experts, and an embedding that is tied is the head") {
    Model model{.layers = 7,
                .hidden = 8,
                .vocab = 10,
                .ffn = 16,
                .attention = {.heads = 2, .kv_heads = 1, .head_dim = 4},
                .experts = {.count = 4, .top_k = 1, .ffn = 6, .shared = 2, .every = 2, .first = 1},
                .ties_embeddings = true};
    std::string layers;
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
        layers += layer_parameters(model, layer).experts > 0 ? 'E' : 'd';
    CHECK(layers == "ddEdEdE");
    CHECK(layer_parameters(model, 2).shared_experts == 2 * 3 * 8 * 6);
    CHECK(active_parameters(model) == parameters(model) - 3 * (3 * 3 * 8 * 6));
    CHECK(head_parameters(model).head == 0);
    model.ties_embeddings = false;
    CHECK(head_parameters(model).head == 80);
    CHECK(embedding_parameters(model).embedding == 80);
}
