#include <doctest/doctest.h>

#include <pentad/io/model_config.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/family.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace pentad;
using model::Family;

namespace {

/// A config.json of a family, with some fields replaced or added.
std::string config(std::string const& type, nlohmann::json const& changes = nlohmann::json::object()) {
    nlohmann::json json{{"model_type", type},          {"hidden_size", 64},         {"num_hidden_layers", 4},
                        {"num_attention_heads", 4},    {"num_key_value_heads", 2},  {"intermediate_size", 96},
                        {"vocab_size", 100},           {"hidden_act", "silu"},      {"rms_norm_eps", 1e-6},
                        {"tie_word_embeddings", true}, {"sliding_window", nullptr}, {"torch_dtype", "bfloat16"},
                        {"attention_dropout", 0.0},    {"initializer_range", 0.02}};
    if (type == "mixtral") json.update({{"num_local_experts", 8}, {"num_experts_per_tok", 2}});
    if (type == "qwen3_moe")
        json.update({{"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}, {"head_dim", 32}});
    if (type == "mamba2") {
        json = {{"model_type", type},
                {"hidden_size", 64},
                {"num_hidden_layers", 4},
                {"vocab_size", 100},
                {"num_heads", 16},
                {"head_dim", 8},
                {"state_size", 12},
                {"n_groups", 2},
                {"chunk_size", 32},
                {"conv_kernel", 3},
                {"tie_word_embeddings", true},
                {"layer_norm_epsilon", 1e-6},
                {"time_step_limit", {0.1, 0.9}}};
    }
    if (type == "deepseek_v3") {
        json.update({{"num_key_value_heads", 4},
                     {"q_lora_rank", 24},
                     {"kv_lora_rank", 16},
                     {"qk_nope_head_dim", 12},
                     {"qk_rope_head_dim", 8},
                     {"v_head_dim", 10},
                     {"n_routed_experts", 16},
                     {"num_experts_per_tok", 4},
                     {"moe_intermediate_size", 24},
                     {"first_k_dense_replace", 1},
                     {"n_shared_experts", 2},
                     {"n_group", 4},
                     {"topk_group", 2},
                     {"routed_scaling_factor", 1.5},
                     {"rope_scaling",
                      {{"type", "yarn"},
                       {"factor", 4.0},
                       {"original_max_position_embeddings", 128},
                       {"beta_fast", 16},
                       {"beta_slow", 2},
                       {"mscale", 0.7},
                       {"mscale_all_dim", 0.9}}}});
        json.erase("sliding_window");
    }
    if (type == "bamba")
        json.update(
            {{"attn_layer_indices", {1, 3}},
             {"mamba_n_heads", 16},
             {"mamba_d_state", 12},
             {"mamba_n_groups", 2},
             {"mamba_d_head", "auto"},
             {"rope_parameters", {{"rope_theta", 5e4}, {"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}});
    json.update(changes);
    if (type == "bamba") json.erase("sliding_window");
    return json.dump();
}
model::Model read(std::string const& type, nlohmann::json const& changes = nlohmann::json::object()) {
    return io::model_from_config(config(type, changes)).model;
}

} // namespace

TEST_CASE("each family is read, and written so that it is read again as the same model") {
    for (auto const name : model::family_names) {
        CAPTURE(name);
        auto const read_once = read(std::string(name));
        auto const family = model::family_of(read_once);
        CHECK(model::name(family.value()) == (name == "mistral" ? "llama" : name));
        auto const written = io::family_config(read_once, 4096, "float32", 0.01).dump();
        auto const again = io::model_from_config(written).model;
        CHECK(again.blocks == read_once.blocks);
        CHECK(again.text() == read_once.text());
        CHECK(again.norm_epsilon == read_once.norm_epsilon);
        CHECK(again.ties_embeddings);
    }
}

TEST_CASE("pad_token_id is the token whose row transformers' embedding leaves without a gradient, but for Mamba-2's") {
    for (auto const name : model::family_names) {
        CAPTURE(name);
        bool const pads = name != "mamba2";
        auto const token = [&](nlohmann::json const& changes) {
            auto const model = read(std::string(name), changes);
            auto const written = io::family_config(model, 4096, "float32", 0.01).dump();
            CHECK(io::model_from_config(written).model.padding_token == model.padding_token);
            return model.padding_token;
        };
        CHECK(token({{"pad_token_id", 7}}) == (pads ? std::optional<std::size_t>(7) : std::nullopt));
        CHECK(token({{"pad_token_id", -1}}) == (pads ? std::optional<std::size_t>(99) : std::nullopt)); // from the end
        CHECK(token({{"pad_token_id", nullptr}}) == std::nullopt);
        CHECK(token(nlohmann::json::object()) == (name == "bamba" ? std::optional<std::size_t>(0) : std::nullopt));
        if (pads)
            CHECK_THROWS_WITH_AS(token({{"pad_token_id", 100}}), doctest::Contains("pad_token_id"),
                                 std::invalid_argument);
    }
    auto mamba = read("mamba2");
    mamba.padding_token = 7;
    CHECK_FALSE(model::family_of(mamba).has_value());
}

TEST_CASE("DeepSeek-V3's router and experts; of biases or grouped choices no other family knows") {
    auto const deepseek = read("deepseek_v3");
    CHECK(deepseek.find<model::GatedMlp>(0)->width == 96);
    auto experts = *deepseek.find<model::Experts>(1);
    auto router = model::deepseek_v3_router;
    router.groups = 4;
    router.top_groups = 2;
    router.scale = 1.5;
    CHECK(experts == model::Experts{.count = 16, .top_k = 4, .width = 24, .shared = 2, .router = router});
    CHECK_FALSE(read("deepseek_v3", {{"norm_topk_prob", false}}).find<model::Experts>(1)->router.renormalises);
    auto without = deepseek;
    experts.router.has_bias = false;
    for (auto& block : without.blocks)
        for (auto& branch : block.branches)
            if (branch.part.as<model::Experts>() != nullptr) branch.part = experts;
    CHECK_FALSE(model::family_of(without));
    auto mixtral = read("mixtral");
    for (auto& block : mixtral.blocks) {
        auto changed = *block.branches[1].part.as<model::Experts>();
        changed.router.capacity = 1.25; // a matter of training
        block.branches[1].part = changed;
    }
    CHECK(model::family_of(mixtral) == Family::mixtral);
    for (auto& block : mixtral.blocks) {
        auto changed = *block.branches[1].part.as<model::Experts>();
        changed.router.score = model::RouterScore::sigmoid;
        block.branches[1].part = changed;
    }
    CHECK_FALSE(model::family_of(mixtral));
}

TEST_CASE("Mamba-2, and stacks of it and attention") {
    auto const mamba = read("mamba2");
    CHECK(mamba.blocks[3].branches.size() == 1);
    CHECK(mamba.find<model::Mamba2>(3)->norm_groups == 2);
    CHECK(mamba.find<model::Mamba2>(3)->most_step == 0.9);
    CHECK(read("mamba2", {{"time_step_limit", nullptr}}).find<model::Mamba2>(0)->most_step == INFINITY);
    CHECK(read("mamba2", {{"time_step_limit", {0.0, {{"__float__", "Infinity"}}}}}).find<model::Mamba2>(0)->most_step ==
          INFINITY);
    CHECK(model::published_name(Family::mamba2, "model.layers.3.mixer.D") == "backbone.layers.3.mixer.D");
    CHECK(model::published_name(Family::mamba2, "model.embed_tokens.weight") == "backbone.embeddings.weight");
    CHECK(model::published_name(Family::mamba2, "model.norm.weight") == "backbone.norm_f.weight");
    CHECK(model::published_name(Family::mamba2, "lm_head.weight") == "lm_head.weight");
    auto const bamba = read("bamba");
    CHECK(bamba.find<model::Mamba2>(0)->head_dim == 8);
    CHECK(bamba.find<model::Attention>(0) == nullptr);
    CHECK(bamba.find<model::Attention>(1)->rotary.turned(16) == 8);
    CHECK(bamba.find<model::GatedMlp>(2)->width == 96);
    CHECK(model::published_name(Family::bamba, "model.norm.weight") == "model.final_layernorm.weight");
    CHECK_THROWS_WITH_AS(read("bamba", {{"partial_rotary_factor", 1.0}}), doctest::Contains("partial_rotary_factor"),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(read("mamba2", {{"num_heads", 8}}), doctest::Contains("num_heads"), std::invalid_argument);
    auto mixed = bamba;
    mixed.blocks[0].branches[0].part = model::Mamba2{.heads = 16, .head_dim = 8};
    CHECK(!model::family_of(mixed));
}

TEST_CASE("what families differ in") {
    CHECK(read("llama").find<model::Attention>(0)->head_dim == 16);
    CHECK(read("llama").find<model::GatedMlp>(3)->width == 96);
    CHECK(read("llama", {{"num_key_value_heads", nullptr}}).find<model::Attention>(0)->kv_heads == 4);
    CHECK(read("qwen2").find<model::Attention>(0)->has_bias);
    CHECK(read("qwen3").find<model::Attention>(0)->norms_queries_and_keys);
    CHECK(read("qwen3").find<model::Attention>(0)->head_dim == 128);
    CHECK(read("mixtral").find<model::Experts>(0)->router.renormalises);
    CHECK(read("mixtral").find<model::Attention>(0)->rotary.theta == 1e6);
    auto const moe = read("qwen3_moe", {{"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}});
    CHECK(moe.find<model::GatedMlp>(0)->width == 96);
    CHECK(moe.find<model::Experts>(1)->width == 24);
    CHECK_FALSE(moe.find<model::Experts>(1)->router.renormalises);
    CHECK(moe.find<model::Experts>(3) == nullptr);
    auto const renamed = read("qwen3_moe", {{"num_experts", nullptr}, {"num_local_experts", 6}});
    CHECK(renamed.find<model::Experts>(0)->count == 6);
}

TEST_CASE("the scaling of rotary embedding is read in both forms") {
    nlohmann::json const scaling{{"rope_type", "llama3"},
                                 {"factor", 8.0},
                                 {"low_freq_factor", 1.0},
                                 {"high_freq_factor", 4.0},
                                 {"original_max_position_embeddings", 8192}};
    auto with_theta = scaling;
    with_theta["rope_theta"] = 5e5;
    auto const old_form = read("llama", {{"rope_theta", 5e5}, {"rope_scaling", scaling}});
    auto const new_form = read("llama", {{"rope_parameters", with_theta}});
    CHECK(old_form.blocks == new_form.blocks);
    CHECK(old_form.find<model::Attention>(0)->rotary.scaling.factor == 8);
    CHECK(old_form.find<model::Attention>(0)->rotary.theta == 5e5);
}

TEST_CASE("nothing is ignored in silence: what would make another model, and what is not known, is refused by name") {
    struct Refused {
        std::string type;
        nlohmann::json changes;
        std::string message;
    };
    for (auto const& [type, changes, message] :
         {Refused{"llama",
                  {{"quantization_config", {{"bits", 4}}}},
                  "'quantization_config': its weights are quantized, and "},
          Refused{"llama", {{"attention_bias", true}}, "attention_bias: expected false"},
          Refused{"llama", {{"hidden_act", "gelu"}}, "hidden_act: expected \"silu\""},
          Refused{"llama",
                  {{"rope_scaling", {{"rope_type", "dynamic"}}}},
                  "rope_scaling.rope_type: expected default, linear, llama3 or yarn"},
          Refused{"llama", {{"rope_scaling", {{"rope_type", "llama3"}}}}, "rope_scaling.factor: expected a value"},
          Refused{"llama", {{"num_key_value_heads", 3}}, "num_key_value_heads: expected a divisor"},
          Refused{"llama",
                  {{"num_attention_heads", 6}, {"num_key_value_heads", 6}},
                  "num_attention_heads: expected a divisor of hidden_size"},
          Refused{"llama", {{"sliding_window", 4096}}, "sliding_window: expected null"},
          Refused{"mistral", {{"sliding_window", 0}}, "sliding_window: expected a whole number from 1"},
          Refused{"mistral", {{"layer_types", {"sliding_attention"}}}, "layer_types: expected \"full_attention\""},
          Refused{"qwen3",
                  {{"use_sliding_window", true},
                   {"sliding_window", 64},
                   {"layer_types", {"full_attention", "sliding_attention"}}},
                  "layer_types: expected an array of 4 layers"},
          Refused{"qwen3",
                  {{"use_sliding_window", true},
                   {"sliding_window", 64},
                   {"layer_types", {"full_attention", "linear", "linear", "linear"}}},
                  "layer_types: expected \"full_attention\" or"},
          Refused{"qwen3", {{"head_dim", 15}}, "head_dim: expected an even number"},
          Refused{
              "qwen3_moe", {{"num_experts_per_tok", 9}}, "num_experts_per_tok: expected a whole number from 1 to 8"},
          Refused{"qwen3_moe", {{"mlp_only_layers", {4}}}, "mlp_only_layers: expected a whole number from 0 to 3"},
          Refused{"mixtral", {{"router_jitter_noise", 0.1}}, "router_jitter_noise: expected 0"},
          Refused{"bert",
                  {},
                  "model_type: expected one of llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, mamba2, bamba, "
                  "deepseek_v3, "
                  "gpt2, not \"bert\""}}) {
        std::string said;
        try {
            (void)read(type, changes.is_null() ? nlohmann::json::object() : changes);
        } catch (std::invalid_argument const& error) {
            said = error.what();
        }
        CHECK_MESSAGE(said.find(message) != said.npos, "wanted: ", message, ", said: ", said);
    }
}

TEST_CASE("windows of attention are read as transformers reads them, and written so") {
    using Json = nlohmann::json;
    using Windows = std::vector<std::size_t>;
    auto const windows = [](model::Model const& model) {
        Windows result;
        for (std::size_t i = 0; i < model.blocks.size(); ++i)
            result.push_back(model.find<model::Attention>(i)->sight.window);
        return result;
    };
    struct Case {
        std::string type;
        Json changes;
        Windows wanted;
    };
    for (auto const& [type, changes, wanted] :
         {Case{"mistral", {{"sliding_window", 64}}, {64, 64, 64, 64}},
          Case{"mistral", {{"sliding_window", nullptr}}, {0, 0, 0, 0}},
          Case{"mixtral", {{"sliding_window", 64}}, {64, 64, 64, 64}},
          Case{"qwen2", {{"sliding_window", 64}}, {0, 0, 0, 0}},
          Case{"qwen2", {{"use_sliding_window", true}, {"sliding_window", 64}}, {0, 0, 0, 0}}, // from layer 28
          Case{"qwen2",
               {{"use_sliding_window", true}, {"sliding_window", 64}, {"max_window_layers", 1}},
               {0, 64, 64, 64}},
          Case{"qwen2", {{"use_sliding_window", true}, {"max_window_layers", 3}}, {0, 0, 0, 0}}, // null: none
          Case{"qwen3",
               {{"use_sliding_window", true},
                {"sliding_window", 64},
                {"layer_types", {"sliding_attention", "full_attention", "full_attention", "sliding_attention"}}},
               {64, 0, 0, 64}},
          // Here transformers knows neither max_window_layers nor layer_types.
          Case{"qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 64}}, {64, 64, 64, 64}},
          Case{"qwen3_moe",
               {{"use_sliding_window", true}, {"sliding_window", 64}, {"max_window_layers", 2}},
               {64, 64, 64, 64}},
          Case{"qwen3_moe", {{"sliding_window", 64}, {"max_window_layers", 2}}, {0, 0, 0, 0}}}) {
        INFO(type, ' ', changes.dump());
        auto const model = read(type, changes);
        CHECK(windows(model) == wanted);
        auto const written = io::family_config(model, 128, "float32", 0.01);
        CHECK(windows(io::model_from_config(written.dump()).model) == wanted);
    }
    Json without = Json::parse(config("mistral"));
    without.erase("sliding_window");
    CHECK(windows(io::model_from_config(without.dump()).model) == Windows(4, 4096));
    // LLaMA's block with a window is Mistral's; with it in some layers only it is nobody's.
    auto llama = model::decoder({.layers = 2});
    CHECK(model::family_of(llama) == model::Family::llama);
    auto windowed = *llama.find<model::Attention>(0);
    windowed.sight.window = 8;
    llama.blocks[0].branches[0].part = windowed;
    CHECK_FALSE(model::family_of(llama).has_value());
    llama.blocks[1].branches[0].part = windowed;
    CHECK(model::family_of(llama) == model::Family::mistral);
    windowed.sight.causal = false;
    llama.blocks[0].branches[0].part = llama.blocks[1].branches[0].part = windowed;
    CHECK_FALSE(model::family_of(llama).has_value());
    // Qwen3's experts have it in all layers or in none.
    auto mixed = read("qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 64}});
    mixed.blocks[0].branches[0].part = *read("qwen3_moe").find<model::Attention>(0);
    CHECK_FALSE(model::family_of(mixed).has_value());
    CHECK(io::family_config(mixed, 128, "float32", 0.01)["model_type"] == "pentad");
    CHECK_THROWS_WITH_AS(
        read("qwen3_moe",
             {{"use_sliding_window", true},
              {"sliding_window", 64},
              {"layer_types", {"full_attention", "sliding_attention", "sliding_attention", "sliding_attention"}}}),
        doctest::Contains("layer_types: expected \"sliding_attention\" alone in this family"), std::invalid_argument);
}

TEST_CASE("a model that no family has is written under a name that no other program knows") {
    auto const mixed = model::decoder({.layers = 2, .experts = 4, .moe_every = 2});
    CHECK_FALSE(model::family_of(mixed).has_value());
    auto const json = io::family_config(mixed, 128, "float32", 0.01);
    CHECK(json["architectures"][0] == "PentadForCausalLM");
    CHECK(json["model_type"] == "pentad");
}

TEST_CASE("no family has capped scores, ALiBi, sinks or no positions: they are written as Pentad's own") {
    for (auto const& [rotates, scores] : {std::pair{true, model::Scores{.soft_cap = 50}},
                                          {true, {.sinks = true}},
                                          {false, {.alibi = true}},
                                          {false, {}}}) {
        auto llama = model::decoder({.layers = 2});
        auto attention = *llama.find<model::Attention>(0);
        attention.rotates = rotates;
        attention.scores = scores;
        for (auto& block : llama.blocks) block.branches[0].part = attention;
        CHECK_FALSE(model::family_of(llama).has_value());
        auto const json = io::family_config(llama, 128, "float32", 0.01);
        CHECK(json["model_type"] == "pentad");
        CHECK(json["pentad_blocks"] == llama.text());
    }
}

TEST_CASE("parameters of Qwen3's experts have their own names") {
    std::string const own = "model.layers.3.block_sparse_moe.";
    CHECK(model::published_name(Family::qwen3_moe, own + "gate.weight") == "model.layers.3.mlp.gate.weight");
    CHECK(model::published_name(Family::qwen3_moe, own + "experts.7.w1.weight") ==
          "model.layers.3.mlp.experts.7.gate_proj.weight");
    CHECK(model::published_name(Family::qwen3_moe, own + "experts.7.w3.weight") ==
          "model.layers.3.mlp.experts.7.up_proj.weight");
    CHECK(model::published_name(Family::qwen3_moe, own + "experts.7.w2.weight") ==
          "model.layers.3.mlp.experts.7.down_proj.weight");
    CHECK(model::published_name(Family::mixtral, own + "gate.weight") == own + "gate.weight");
    CHECK(model::published_name(Family::qwen3_moe, "model.layers.3.mlp.down_proj.weight") ==
          "model.layers.3.mlp.down_proj.weight");
}
