// Damaged config.json files: each is refused in one sentence, or the model is what its fields say.
#include <doctest/doctest.h>

#include <pentad/io/model_config.hpp>
#include <pentad/mesh/one_line.hpp>
#include <pentad/model/family.hpp>
#include <pentad/model/parts.hpp>

#include "mutants.hpp"

#include <nlohmann/json.hpp>

#include <stdexcept>
#include <string>

using namespace pentad;

namespace {

std::string config(std::string_view family) {
    nlohmann::ordered_json json{{"model_type", family},      {"hidden_size", 64},           {"num_hidden_layers", 4},
                                {"num_attention_heads", 4},  {"num_key_value_heads", 2},    {"head_dim", 16},
                                {"intermediate_size", 96},   {"vocab_size", 1000},          {"rms_norm_eps", 1e-6},
                                {"rope_theta", 50000.0},     {"tie_word_embeddings", true}, {"hidden_act", "silu"},
                                {"sliding_window", nullptr}, {"torch_dtype", "bfloat16"}};
    if (family == "mixtral") json.update({{"num_local_experts", 8}, {"num_experts_per_tok", 2}});
    if (family == "qwen3_moe")
        json.update(
            {{"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}, {"mlp_only_layers", {1}}});
    if (family == "mamba2")
        json = {{"model_type", family}, {"hidden_size", 64}, {"num_hidden_layers", 4},     {"vocab_size", 1000},
                {"num_heads", 16},      {"head_dim", 8},     {"state_size", 12},           {"n_groups", 2},
                {"chunk_size", 32},     {"conv_kernel", 3},  {"layer_norm_epsilon", 1e-6}, {"torch_dtype", "bfloat16"}};
    if (family == "bamba") {
        json.update(
            {{"attn_layer_indices", {1, 3}}, {"mamba_n_heads", 16}, {"mamba_d_state", 12}, {"mamba_n_groups", 2}});
        json.erase("sliding_window");
        json.erase("head_dim");
    }
    return json.dump(2);
}

/// The field of an accepted file that the model does not have as the file says; empty: it is right.
std::string wrong_field(std::string const& text, model::Model const& model) {
    auto const json = nlohmann::json::parse(text);
    auto const written = nlohmann::json(io::family_config(model, 128, "float32", 0.01));
    for (std::string const field : {"hidden_size",
                                    "num_hidden_layers",
                                    "num_attention_heads",
                                    "num_key_value_heads",
                                    "head_dim",
                                    "intermediate_size",
                                    "vocab_size",
                                    "rms_norm_eps",
                                    "rope_theta",
                                    "tie_word_embeddings",
                                    "num_local_experts",
                                    "num_experts",
                                    "num_experts_per_tok",
                                    "moe_intermediate_size",
                                    "num_heads",
                                    "state_size",
                                    "n_groups",
                                    "chunk_size",
                                    "conv_kernel",
                                    "layer_norm_epsilon",
                                    "mamba_n_heads",
                                    "mamba_d_state",
                                    "mamba_n_groups"}) {
        if (!json.contains(field) || json[field].is_null()) continue;
        // A file of a model with attention or Mamba-2 says more of them than one of a model without.
        if (field.starts_with("mamba_") && model.first<model::Mamba2>() == nullptr) continue;
        bool const is_of_attention =
            field == "num_attention_heads" || field == "num_key_value_heads" || field == "rope_theta";
        if (is_of_attention && model.first<model::Attention>() == nullptr) continue;
        if (!written.contains(field) || written[field] != json[field]) return field;
    }
    return json["model_type"] == written["model_type"] || json["model_type"] == "mistral" ? "" : "model_type";
}

} // namespace

TEST_CASE("of 400 damaged config.json files each is refused in one sentence, or the model is what it says") {
    test::Draws draws(3);
    int refused = 0, read = 0;
    for (int i = 0; i < 400; ++i) {
        auto const family = model::family_names[static_cast<std::size_t>(i) % model::family_names.size()];
        std::string const good = config(family);
        std::string const text = test::mutant(good, good.size(), i % 3 == 0, draws);
        CAPTURE(text);
        try {
            auto const model = io::model_from_config(text).model;
            CHECK(wrong_field(text, model) == "");
            ++read;
        } catch (std::invalid_argument const& error) {
            CHECK(is_printable(error.what()));
            CHECK(std::string(error.what()).size() < 400);
            ++refused;
        }
    }
    MESSAGE(refused << " refused, " << read << " read");
    CHECK(refused >= 200);
    CHECK(read >= 15);
}
