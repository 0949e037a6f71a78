// config.json as it is published: each is read, with the number of parameters that its authors give; what it says goes
// out again; and what transformers computes is what is read.
#include <doctest/doctest.h>

#include <pentad/io/model_config.hpp>
#include <pentad/model/family.hpp>
#include <pentad/model/parameter_count.hpp>
#include <pentad/model/parts.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

using namespace pentad;
using Json = nlohmann::json;
using model::Family;

namespace {

struct Published {
    std::string name;
    std::string config;
    double parameters; ///< of the weights that are published with it
};

/// The fields of published files that say something of the model, and those that were refused once.
std::vector<Published> const published{
    {"SmolLM2-135M", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576,
      "initializer_range": 0.041666666666666664, "intermediate_size": 1536, "is_llama_config": true,
      "max_position_embeddings": 8192, "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
      "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
      "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true,
      "vocab_size": 49152})",
     134'515'008.},
    {"SmolLM2-360M", R"({"model_type": "llama", "hidden_size": 960, "intermediate_size": 2560,
      "is_llama_config": true, "num_attention_heads": 15, "num_hidden_layers": 32, "num_key_value_heads": 5,
      "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_theta": 100000, "tie_word_embeddings": true,
      "vocab_size": 49152})",
     361'821'120.},
    {"SmolLM2-1.7B-Instruct", R"({"model_type": "llama", "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 2048,
      "intermediate_size": 8192, "mlp_bias": false, "num_attention_heads": 32, "num_hidden_layers": 24,
      "num_key_value_heads": 32, "pad_token_id": 2, "rms_norm_eps": 1e-05, "rope_theta": 130000,
      "tie_word_embeddings": true, "transformers.js_config": {"dtype": "q4",
      "kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}}, "vocab_size": 49152})",
     1'711'376'384.},
    // As to_dict() of transformers 4.38 writes it, with all defaults of PretrainedConfig.
    {"Mistral-7B-Instruct-v0.3", R"({"vocab_size": 32768, "max_position_embeddings": 32768, "hidden_size": 4096,
      "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "sliding_window": null,
      "num_key_value_heads": 8, "hidden_act": "silu", "initializer_range": 0.02, "rms_norm_eps": 1e-05,
      "use_cache": true, "rope_theta": 1000000.0, "attention_dropout": 0.0, "return_dict": true,
      "output_hidden_states": false, "output_attentions": false, "torchscript": false, "torch_dtype": "bfloat16",
      "use_bfloat16": false, "tf_legacy_loss": false, "pruned_heads": {}, "tie_word_embeddings": false,
      "chunk_size_feed_forward": 0, "is_encoder_decoder": false, "is_decoder": false,
      "cross_attention_hidden_size": null, "add_cross_attention": false, "tie_encoder_decoder": false,
      "max_length": 20, "min_length": 0, "do_sample": false, "early_stopping": false, "num_beams": 1,
      "num_beam_groups": 1, "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0,
      "typical_p": 1.0, "repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0,
      "encoder_no_repeat_ngram_size": 0, "bad_words_ids": null, "num_return_sequences": 1, "output_scores": false,
      "return_dict_in_generate": false, "forced_bos_token_id": null, "forced_eos_token_id": null,
      "remove_invalid_values": false, "exponential_decay_length_penalty": null, "suppress_tokens": null,
      "begin_suppress_tokens": null, "architectures": ["MistralForCausalLM"], "finetuning_task": null,
      "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1},
      "tokenizer_class": null, "prefix": null, "bos_token_id": 1, "pad_token_id": null, "eos_token_id": 2,
      "sep_token_id": null, "decoder_start_token_id": null, "task_specific_params": null, "problem_type": null,
      "_name_or_path": "mistralai/Mistral-7B-Instruct-v0.3", "transformers_version": "4.38.0",
      "model_type": "mistral"})",
     7'248'023'552.},
    {"ALLaM-7B-Instruct-preview", R"({"model_type": "llama", "head_dim": 128, "hidden_size": 4096,
      "intermediate_size": 11008, "internal_version": "7b-alpha-v2.33.0.30", "num_attention_heads": 32,
      "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
      "tie_word_embeddings": false, "vocab_size": 64000})",
     7'000'559'616.},
    {"Llama-2-13b", R"({"model_type": "llama", "hidden_size": 5120, "intermediate_size": 13824,
      "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 40, "pretraining_tp": 2,
      "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "vocab_size": 32000})",
     13'015'864'320.},
    {"Llama-3.2-1B-Instruct", R"({"model_type": "llama", "bos_token_id": 128000,
      "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_size": 2048, "intermediate_size": 8192,
      "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 16,
      "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
      "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "tie_word_embeddings": true, "vocab_size": 128256})",
     1'235'814'400.},
    {"Bamba-9B", R"({"model_type": "bamba", "attention_bias": false, "attention_dropout": 0.0,
      "attn_layer_indices": [9, 18, 27], "attn_rotary_emb": 64, "hidden_size": 4096, "intermediate_size": 14336,
      "mamba_chunk_size": 256, "mamba_conv_bias": true, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128,
      "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 128, "mamba_proj_bias": false,
      "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_logits_to_keep": 1,
      "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "vocab_size": 128256})",
     9'780'235'392.},
    {"Mixtral-8x7B-v0.1", R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
      "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "num_local_experts": 8, "output_router_logits": false, "router_aux_loss_coef": 0.02, "sliding_window": null,
      "tie_word_embeddings": false, "vocab_size": 32000})",
     46'702'792'704.},
    {"Qwen2.5-7B-Instruct", R"({"model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
      "max_position_embeddings": 32768, "max_window_layers": 28, "num_attention_heads": 28, "num_hidden_layers": 28,
      "num_key_value_heads": 4, "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768,
      "type": "yarn"}, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
      "use_sliding_window": false, "vocab_size": 152064})",
     7'615'616'512.},
    {"Qwen3-0.6B", R"({"model_type": "qwen3", "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072,
      "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rope_scaling": null,
      "sliding_window": null, "tie_word_embeddings": true, "vocab_size": 151936})",
     596'049'920.},
    {"Qwen3-8B", R"({"model_type": "qwen3", "hidden_size": 4096, "intermediate_size": 12288, "max_window_layers": 36,
      "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "tie_word_embeddings": false,
      "use_sliding_window": false, "vocab_size": 151936})",
     8'190'735'360.},
    {"Qwen3-30B-A3B", R"({"model_type": "qwen3_moe", "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
      "intermediate_size": 6144, "max_window_layers": 48, "mlp_only_layers": [], "moe_intermediate_size": 768,
      "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
      "num_hidden_layers": 48, "num_key_value_heads": 4, "router_aux_loss_coef": 0.001, "sliding_window": null,
      "tie_word_embeddings": false, "use_sliding_window": false, "vocab_size": 151936})",
     30'532'122'624.},
    {"Mamba-Codestral-7B-v0.1", R"({"model_type": "mamba2", "chunk_size": 256, "conv_kernel": 4, "expand": 2,
      "head_dim": 64, "hidden_size": 4096, "intermediate_size": 8192, "n_groups": 8, "num_heads": 128,
      "num_hidden_layers": 64, "state_size": 128, "tie_word_embeddings": false, "time_step_limit": [0.0, Infinity],
      "vocab_size": 32768})",
     7'285'403'648.},
    {"DeepSeek-V3", R"({"model_type": "deepseek_v3", "aux_loss_alpha": 0.001, "first_k_dense_replace": 3,
      "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
      "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1,
      "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128,
      "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
      "quantization_config": {"quant_method": "fp8"}, "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40,
      "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "type": "yarn"},
      "topk_group": 4, "v_head_dim": 128, "vocab_size": 129280})",
     671'026'419'200.}, // without further predictions
};

/// A small config.json of a family, with some fields replaced or added.
Json small(std::string_view type, Json const& changes = Json::object()) {
    Json json{{"model_type", type},       {"hidden_size", 64},        {"num_hidden_layers", 4}, {"vocab_size", 100},
              {"num_attention_heads", 4}, {"num_key_value_heads", 4}, {"intermediate_size", 96}};
    if (type == "mistral") json["sliding_window"] = nullptr;
    if (type == "mixtral") json.update({{"num_local_experts", 8}, {"num_experts_per_tok", 2}});
    if (type == "qwen3_moe")
        json.update({{"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}, {"head_dim", 16}});
    if (type == "mamba2")
        json = {{"model_type", type}, {"hidden_size", 64}, {"num_hidden_layers", 4}, {"vocab_size", 100},
                {"num_heads", 16},    {"head_dim", 8},     {"state_size", 12},       {"n_groups", 2}};
    if (type == "bamba") json.update({{"attn_layer_indices", {1, 3}}});
    if (type == "deepseek_v3")
        json.update({{"q_lora_rank", 24},
                     {"kv_lora_rank", 16},
                     {"qk_nope_head_dim", 12},
                     {"qk_rope_head_dim", 8},
                     {"v_head_dim", 10},
                     {"n_routed_experts", 16},
                     {"num_experts_per_tok", 4},
                     {"moe_intermediate_size", 24},
                     {"first_k_dense_replace", 1},
                     {"n_group", 4},
                     {"topk_group", 2}});
    json.update(changes);
    return json;
}
io::ModelConfig read(Json const& json) { return io::model_from_config(json.dump(), io::ConfigUse::training); }
std::string refusal(Json const& json) {
    try {
        (void)read(json);
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return "";
}
/// The config.json of a run with the model of that file.
Json written(std::string const& source, std::size_t positions = 16) {
    auto const from = io::model_from_config(source);
    return io::family_config(from.model, positions, "float32", from.losses, source);
}
model::Rotary rotary_of(model::Model const& model) {
    if (auto const* latent = model.first<model::LatentAttention>()) return latent->rotary;
    return model.first<model::Attention>()->rotary;
}

} // namespace

TEST_CASE("every published config.json is read, with the published number of parameters, and goes out as it came") {
    for (auto const& [name, config, parameters] : published) {
        CAPTURE(name);
        auto const from = io::model_from_config(config, io::ConfigUse::training);
        CHECK(model::parameter_count(from.model) == parameters);
        CHECK(model::family_of(from.model).has_value());
        auto expected = Json(io::plain_config(config));
        expected["torch_dtype"] = "float32";
        expected.erase("quantization_config"); // of weights that were read as something else
        if (from.predictors > 0) expected["num_nextn_predict_layers"] = 0;
        CHECK(written(config) == expected);
    }
}

TEST_CASE("what is in a file and not in the model goes out as it came, whatever changes") {
    for (std::size_t i = 0; i < model::family_names.size(); ++i) {
        auto const family = model::family_names[i];
        CAPTURE(family);
        Json const neutral{{"bos_token_id", 1},
                           {"eos_token_id", {2, 3}},
                           {"pad_token_id", 0},
                           {"max_position_embeddings", 131072},
                           {"transformers_version", "5.1"},
                           {"dtype", "bfloat16"},
                           {"initializer_range", 0.006},
                           {"output_router_logits", true},
                           {"id2label", {{"0", "a"}}}};
        auto source = small(family, neutral);
        if (!model::has_experts(static_cast<Family>(i))) source.erase("output_router_logits");
        auto expected = source;
        expected["dtype"] = "float32";
        CHECK(written(source.dump()) == expected);
        // Other weights of losses, and a window, which only families with attention have.
        auto const from = read(source);
        auto model = from.model;
        for (auto& block : model.blocks)
            for (auto& branch : block.branches)
                if (auto const* attention = branch.part.as<model::Attention>()) {
                    auto changed = *attention;
                    changed.sight.window = 8;
                    branch.part = changed;
                }
        Json const changed = io::family_config(model, 16, "float32", {0.25, 0.5}, source.dump());
        for (auto const& [key, value] : neutral.items())
            if (key != "dtype" && source.contains(key)) CHECK(changed.value(key, Json()) == value);
        if (from.model.first<model::Experts>() != nullptr) {
            CHECK(changed[family == "deepseek_v3" ? "aux_loss_alpha" : "router_aux_loss_coef"] == 0.25);
            CHECK(changed["router_z_loss_coef"] == 0.5);
            CHECK(read(changed).losses == io::RouterLosses{0.25, 0.5});
        }
        if (from.model.first<model::Attention>() == nullptr || family == "bamba") continue;
        CHECK(changed["sliding_window"] == 8);
        CHECK(read(changed).model.blocks == model.blocks);
    }
}

TEST_CASE("a context is raised by longer sequences, and never lowered; of a model that was made it is the sequences'") {
    auto const source = small("llama", {{"max_position_embeddings", 64}});
    CHECK(written(source.dump(), 16)["max_position_embeddings"] == 64);
    CHECK(written(source.dump(), 128)["max_position_embeddings"] == 128);
    CHECK_FALSE(written(small("llama").dump(), 16).contains("max_position_embeddings"));
    CHECK(io::family_config(read(source).model, 16, "float32", {})["max_position_embeddings"] == 16);
}

TEST_CASE("the forms in which files say the same stay theirs") {
    // transformers 5: rope_parameters, dtype, num_mtp_layers.
    Json const parameters{{"rope_type", "default"}, {"rope_theta", 5e4}};
    auto const out = written(small("mistral", {{"rope_parameters", parameters}, {"dtype", "bfloat16"}}).dump());
    CHECK(out["rope_parameters"] == parameters);
    CHECK_FALSE(out.contains("rope_theta"));
    CHECK_FALSE(out.contains("torch_dtype"));
    CHECK(out["model_type"] == "mistral"); // LLaMA by another name
    auto const source = small("deepseek_v3", {{"num_mtp_layers", 1}});
    CHECK(read(source).predictors == 1);
    auto model = read(source).model;
    model.predictors.assign(2, model.blocks.back());
    Json const predicting = io::family_config(model, 16, "float32", {}, source.dump());
    CHECK(predicting["num_nextn_predict_layers"] == 2);
    CHECK_FALSE(predicting.contains("num_mtp_layers"));
    // Python's infinity
    std::string limited = small("mamba2").dump();
    limited.insert(1, R"("time_step_limit": [0.5, Infinity], )");
    auto const again = read(written(limited)).model;
    CHECK(again.blocks == io::model_from_config(limited).model.blocks);
    CHECK(again.first<model::Mamba2>()->least_step == 0.5);
    CHECK(again.first<model::Mamba2>()->most_step == std::numeric_limits<double>::infinity());
}

TEST_CASE("fields that change nothing are read over, and those with a value that turns them off") {
    auto const plain = read(small("llama")).model;
    for (auto const& [key, off, on] : std::vector<std::tuple<std::string, Json, Json>>{
             {"add_cross_attention", false, true},
             {"attn_pdrop", 0.0, 0.1},
             {"embd_pdrop", 0, 0.1},
             {"hidden_dropout", 0.0, 0.5},
             {"is_encoder_decoder", false, true},
             {"neftune_noise_alpha", 0.0, 5.0},
             {"pruned_heads", Json::object(), {{"0", {1}}}},
             {"resid_pdrop", 0.0, 0.1},
             {"tie_encoder_decoder", false, true},
             {"use_qk_norm", false, true},
             {"rope_scaling", {{"type", "linear"}, {"factor", 1.0}}, {{"type", "dynamic"}, {"factor", 2.0}}},
             {"sliding_window", nullptr, 64},
         }) {
        CAPTURE(key);
        CHECK(read(small("llama", {{key, off}})).model.blocks == plain.blocks);
        CHECK(refusal(small("llama", {{key, on}})).substr(0, key.size()) == key);
    }
    for (auto const* const neutral : {"is_llama_config", "internal_version", "pretraining_tp", "gradient_checkpointing",
                                      "transformers.js_config", "temperature", "top_k", "num_labels", "unk_token_id"})
        CHECK(read(small("llama", {{neutral, 2}})).model.blocks == plain.blocks);
    CHECK(refusal(small("bamba", {{"attn_rotary_emb", 16}})) ==
          "attn_rotary_emb: expected 8, the only value that is supported, not 16");
    CHECK(read(small("bamba", {{"attn_rotary_emb", 8}})).model.blocks == read(small("bamba")).model.blocks);
    CHECK(refusal(small("llama", {{"engrams", 2}, {"per_layer_config", {{"0", 1}}}, {"nothing", nullptr}, {"z", 1}})) ==
          "the fields 'engrams', 'per_layer_config' and 'z' are not known, and may change the model: remove those that "
          "do not");
    CHECK(refusal(small("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"a", 1}, {"b", 2}}}})) ==
          "the fields 'rope_scaling.a' and 'rope_scaling.b' are not known, and may change the model: remove those that "
          "do not");
}

TEST_CASE("rotary embeddings are scaled as transformers scales them, in every family that has them") {
    struct Scaled {
        Json scaling;
        double theta;
        std::vector<double> frequencies; ///< of heads of 16 elements (modeling_rope_utils.py, in f64)
        double amplitude;
    };
    std::vector<Scaled> const cases{
        {{{"type", "linear"}, {"factor", 4.0}},
         1e4,
         {0.25, 0.07905694150420949, 0.025, 0.007905694150420948, 0.0025, 0.0007905694150420948, 0.00025,
          7.905694150420948e-05},
         1},
        {{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}},
         1e6,
         {1.0, 0.1778279410038923, 0.03162277660168379, 0.004217559938927619, 0.0005, 4.445698525097307e-05,
          7.905694150420949e-06, 1.4058533129758728e-06},
         1.138629436111989},
        {{{"rope_type", "yarn"},
          {"factor", 4.0},
          {"original_max_position_embeddings", 64},
          {"beta_fast", 16},
          {"beta_slow", 2},
          {"mscale", 0.7},
          {"mscale_all_dim", 0.9},
          {"attention_factor", 0.97534965},
          {"truncate", true}},
         1e4,
         {1.0, 0.19764235376052372, 0.025, 0.007905694150420948, 0.0025, 0.0007905694150420948, 0.00025,
          7.905694150420948e-05},
         0.9753496504321066},
        {{{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}, {"mscale", 0.7}},
         1e4,
         {1.0, 0.22399466759526024, 0.04166666666666667, 0.003952847075210474, 0.00125, 0.0003952847075210474, 0.000125,
          3.952847075210474e-05},
         1.2079441541679836}};
    for (auto const& [scaling, theta, frequencies, amplitude] : cases)
        for (auto const family : model::family_names) {
            if (family == "mamba2") continue;
            INFO(family, ' ', scaling.dump());
            auto const json = small(family, {{"rope_theta", theta}, {"rope_scaling", scaling}});
            auto const model = read(json).model;
            auto const rotary = rotary_of(model);
            auto const found = rotary.frequencies(16);
            REQUIRE(found.size() == frequencies.size());
            for (std::size_t i = 0; i < found.size(); ++i)
                CHECK(found[i] == doctest::Approx(frequencies[i]).epsilon(1e-14));
            CHECK(rotary.yarn.amplitude() == doctest::Approx(amplitude).epsilon(1e-14));
            // Written in Pentad's own words too.
            CHECK(model::family_of(model).has_value());
            CHECK(rotary_of(read(io::family_config(model, 16, "float32", {})).model) == rotary);
        }
    for (auto const& [scaling, sentence] : std::vector<std::pair<Json, std::string>>{
             {{{"type", "dynamic"}, {"factor", 2.0}},
              "rope_scaling.type: expected default, linear, llama3 or yarn, which are supported, not \"dynamic\""},
             {{{"rope_type", "longrope"}},
              "rope_scaling.rope_type: expected default, linear, llama3 or yarn, which are supported, not "
              "\"longrope\""},
             {{{"type", "linear"}}, "rope_scaling.factor: expected a value, and there is none"},
             {{{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}, {"attention_factor", 1.0}},
              "rope_scaling.attention_factor: expected 1.138629436111989, the only value that is supported, not 1.0"},
             {{{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 64}, {"truncate", false}},
              "rope_scaling.truncate: expected true, the only value that is supported, not false"}})
        CHECK(refusal(small("qwen3", {{"rope_scaling", scaling}})) == sentence);
}

TEST_CASE("every shape that is read has a family, and is written so that it is read again") {
    auto const types = [](std::initializer_list<char const*> layers) {
        return Json(std::vector<std::string>(layers.begin(), layers.end()));
    };
    for (auto const& [type, changes] : std::vector<std::pair<std::string, Json>>{
             {"deepseek_v3", {{"first_k_dense_replace", 0}}},
             {"deepseek_v3", {{"first_k_dense_replace", 4}}},
             {"deepseek_v3", {{"first_k_dense_replace", nullptr}, {"num_hidden_layers", 2}}},
             {"deepseek_v3", {{"q_lora_rank", nullptr}}},
             {"deepseek_v3",
              {{"rope_scaling",
                {{"rope_type", "llama3"},
                 {"factor", 8.0},
                 {"low_freq_factor", 1.0},
                 {"high_freq_factor", 4.0},
                 {"original_max_position_embeddings", 64}}}}},
             {"bamba", {{"attn_layer_indices", {0, 1, 2, 3}}}},
             {"bamba", {{"attn_layer_indices", nullptr}}},
             {"bamba", {{"attn_layer_indices", nullptr}, {"num_attention_heads", nullptr}}},
             {"bamba", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}},
             {"qwen3_moe", {{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 2}}},
             {"qwen3_moe", {{"mlp_only_layers", {0, 1, 2, 3}}}},
             {"qwen3_moe", {{"decoder_sparse_step", 2}, {"norm_topk_prob", true}}},
             {"qwen3", {{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 2}}},
             {"qwen2",
              {{"use_sliding_window", true},
               {"sliding_window", 8},
               {"attention_bias", false},
               {"layer_types", types({"sliding_attention", "full_attention", "full_attention", "sliding_attention"})}}},
             {"mixtral", {{"sliding_window", 8}}},
             {"mistral", {{"sliding_window", 8}}},
         }) {
        INFO(type, ' ', changes.dump());
        auto const source = small(type, changes);
        auto const model = read(source).model;
        REQUIRE(model::family_of(model).has_value());
        for (auto const& config : {Json(io::family_config(model, 16, "float32", {})), written(source.dump())}) {
            auto const again = read(config).model;
            CHECK(again.blocks == model.blocks);
            CHECK(model::parameter_count(again) == model::parameter_count(model));
        }
    }
}

TEST_CASE("heads of keys and values: null and nothing are what each family takes them for") {
    auto const kv_heads = [](std::string_view type, bool is_null) {
        auto json = small(type, {{"num_attention_heads", 16}, {"num_key_value_heads", nullptr}, {"head_dim", 8}});
        if (type == "bamba") json.erase("head_dim"); // hidden_size / num_attention_heads
        if (!is_null) json.erase("num_key_value_heads");
        return read(json).model.first<model::Attention>()->kv_heads;
    };
    for (auto const* const type : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "bamba"})
        CHECK(kv_heads(type, true) == 16);
    CHECK(kv_heads("llama", false) == 16);
    CHECK(kv_heads("bamba", false) == 8);
    auto without = small("qwen2");
    without.erase("num_key_value_heads");
    CHECK(refusal(without) == "num_key_value_heads: expected a value, and there is none");
}

TEST_CASE("the losses of routers are those of the file, or of transformers where it says nothing") {
    using io::RouterLosses;
    CHECK(read(small("mixtral", {{"router_aux_loss_coef", 0.02}})).losses == RouterLosses(0.02));
    CHECK(read(small("mixtral")).losses == RouterLosses(0.001));
    CHECK(read(small("qwen3_moe", {{"router_z_loss_coef", 0.5}})).losses == RouterLosses(0.001, 0.5));
    CHECK(read(small("deepseek_v3", {{"aux_loss_alpha", 0.0001}})).losses == RouterLosses(0.0001));
    CHECK(read(small("deepseek_v3")).losses == RouterLosses());
    CHECK(read(small("llama")).losses == RouterLosses());
    CHECK(refusal(small("mixtral", {{"router_aux_loss_coef", -1}}))
              .starts_with("router_aux_loss_coef: expected a number"));
}

TEST_CASE("of types that are planned alone training knows nothing") {
    std::string const gpt2 = R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 32,
                              "vocab_size": 100, "resid_pdrop": 0.1})";
    CHECK(io::model_from_config(gpt2).model.positions == 32);
    std::string said;
    try {
        (void)io::model_from_config(gpt2, io::ConfigUse::training);
    } catch (std::invalid_argument const& error) {
        said = error.what();
    }
    CHECK(said == "model_type: expected one of llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, mamba2, bamba, "
                  "deepseek_v3, not \"gpt2\"");
}
