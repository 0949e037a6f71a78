#include <doctest/doctest.h>

#include <pentad/io/file.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/presets.hpp>

#include "scratch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

using namespace pentad;

namespace {

std::string const llama_8b = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 8192, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "rope_scaling": null, "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
  "vocab_size": 128256})";
std::string const mixtral_8x7b = R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
  "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "num_local_experts": 8, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32000})";
std::string const deepseek_v3 = R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false,
  "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001,
  "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
  "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
  "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
  "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "pretraining_tp": 1,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "quantization_config": {"activation_scheme":
  "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}, "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
  "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
  "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280})";
std::string const mamba2_7b = R"({"architectures": ["Mamba2ForCausalLM"], "bos_token_id": 0, "chunk_size": 256,
  "conv_kernel": 4, "eos_token_id": 0, "expand": 2, "head_dim": 64, "hidden_act": "silu", "hidden_size": 4096,
  "initializer_range": 0.1, "intermediate_size": 8192, "layer_norm_epsilon": 1e-05, "model_type": "mamba2", "n_groups": 8,
  "norm_before_gate": true, "num_heads": 128, "num_hidden_layers": 64, "pad_token_id": 0, "rescale_prenorm_residual": false,
  "residual_in_fp32": true, "rms_norm": true, "state_size": 128, "tie_word_embeddings": false, "time_step_floor": 0.0001,
  "time_step_init_scheme": "random", "time_step_limit": [0.0, Infinity], "time_step_max": 0.1, "time_step_min": 0.001,
  "time_step_rank": 256, "time_step_scale": 1.0, "torch_dtype": "bfloat16", "transformers_version": "4.42.3",
  "use_bias": false, "use_cache": true, "use_conv_bias": true, "vocab_size": 32768})";
std::string const gpt2 = R"({"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
  "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2", "id2label": {"0": "LABEL_0"}, "n_special": 0, "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1,
  "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
  "summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 50257})";

std::string with(std::string text, std::string const& found, std::string const& instead) {
    auto const at = text.find(found);
    REQUIRE(at != std::string::npos);
    return text.replace(at, found.size(), instead);
}

} // namespace

TEST_CASE("a published config.json is the preset of that model") {
    for (auto const& [config, preset] : {std::pair{llama_8b, "llama-3-8b"},
                                         {mixtral_8x7b, "mixtral-8x7b"},
                                         {deepseek_v3, "deepseek-v3"},
                                         {mamba2_7b, "mamba2-7b"}}) {
        CAPTURE(preset);
        auto const read = io::model_from_config(config);
        auto const known = *std::find_if(model::presets().begin(), model::presets().end(),
                                         [&](auto const& one) { return one.name == preset; });
        // As parts: rotary bases and epsilons set no size, and are not read here.
        CHECK(read.model.hidden == known.model.hidden);
        CHECK(read.model.vocab == known.model.vocab);
        CHECK(read.model.ties_embeddings == known.model.ties_embeddings);
        REQUIRE(read.model.blocks.size() == known.model.blocks.size());
        for (std::size_t i = 0; i < read.model.blocks.size(); ++i)
            for (std::size_t k = 0; k < read.model.blocks[i].branches.size(); ++k)
                CHECK(read.model.blocks[i].branches[k].part.text() == known.model.blocks[i].branches[k].part.text());
    }
    auto const small = io::model_from_config(gpt2).model;
    CHECK(small.positions == 1024);
    CHECK(small.norm == model::NormKind::layer);
    CHECK(small.first<model::Attention>()->has_bias);
    CHECK(small.first<model::PlainMlp>()->width == 4 * 768);
}

TEST_CASE("how DeepSeek-V3's latent attention turns queries and keys, and scales scores, is read") {
    auto const attention = [](std::string const& text) {
        return *io::model_from_config(text).model.first<model::LatentAttention>();
    };
    auto const read = attention(deepseek_v3);
    CHECK(
        read.rotary ==
        model::Rotary{
            .theta = 1e4,
            .is_interleaved = true,
            .yarn = {
                .factor = 40, .original_positions = 4096, .fast = 32, .slow = 1, .turned_scale = 1, .score_scale = 1}});
    // (128 + 64)^-1/2 times mscale^2 (DeepSeek's modeling_deepseek.py)
    CHECK(read.score_scale() == doctest::Approx(std::pow(0.1 * std::log(40.0) + 1, 2) / std::sqrt(192.0)));
    CHECK(io::model_from_config(with(deepseek_v3, "eps\": 1e-06", "eps\": 1e-05")).model.norm_epsilon == 1e-5);
    CHECK(!attention(with(deepseek_v3, "\"kv_lora", "\"rope_interleave\": false, \"kv_lora")).rotary.is_interleaved);
    auto const scaling = deepseek_v3.substr(deepseek_v3.find("{\"beta_fast"), 145);
    auto const plain = attention(with(with(deepseek_v3, scaling, "null"), "theta\": 10000", "theta\": 50000"));
    CHECK(plain.rotary == model::Rotary{.theta = 5e4, .is_interleaved = true});
    CHECK(plain.score_scale() == doctest::Approx(1 / std::sqrt(192.0)));
}

TEST_CASE("fields that are left out have the values that transformers gives them") {
    auto const kv_heads = [](std::string const& text) {
        return io::model_from_config(text).model.first<model::Attention>()->kv_heads;
    };
    auto const width = [](std::string const& text) {
        return io::model_from_config(text).model.first<model::PlainMlp>()->width;
    };
    std::string const given = "\"num_key_value_heads\": 8,";
    CHECK(kv_heads(with(llama_8b, given, "")) == 32);
    CHECK(kv_heads(with(llama_8b, given, "\"num_key_value_heads\": null,")) == 32);

    auto const own_head_dim = io::model_from_config(with(llama_8b, given, given + "\"head_dim\": 96,"));
    CHECK(own_head_dim.model.first<model::Attention>()->head_dim == 96);
    CHECK(io::model_from_config(with(llama_8b, "embeddings\": false", "embeddings\": true")).model.ties_embeddings);
    CHECK(!io::model_from_config(with(llama_8b, "\"tie_word_embeddings\": false,", "")).model.ties_embeddings);

    CHECK(io::model_from_config(gpt2).model.ties_embeddings);
    CHECK(width(gpt2) == 4 * 768);
    CHECK(width(with(gpt2, "\"n_ctx\": 1024", "\"n_inner\": null")) == 4 * 768);
    CHECK(width(with(gpt2, "\"n_ctx\": 1024", "\"n_inner\": 1000")) == 1000);
    CHECK(io::model_from_config(with(deepseek_v3, "\"q_lora_rank\": 1536", "\"q_lora_rank\": null"))
              .model.first<model::LatentAttention>()
              ->query_rank == 0);
    auto const mamba = io::model_from_config(R"({"model_type": "mamba2", "hidden_size": 2048, "num_heads": 64,
        "num_hidden_layers": 48, "state_size": 128, "vocab_size": 50288})");
    CHECK(mamba.model.first<model::Mamba2>()->head_dim == 64);
    CHECK(mamba.model.first<model::Mamba2>()->groups == 8);

    // What Python writes for numbers that are none stays as it is within a text.
    CHECK(io::model_from_config(with(llama_8b, given, given + R"("_name_or_path": "NaN\"Infinity\\",)")).name ==
          "NaN\"Infinity\\");
    CHECK(io::model_from_config(llama_8b).name == "llama");
    CHECK(io::model_from_config(with(llama_8b, given, given + "\"_name_or_path\": \"me/mine\",")).name == "me/mine");
}

TEST_CASE("a config.json that is wrong is refused with its name, the field and what is expected there") {
    test::Scratch const scratch;
    auto const refusal = [&](std::string const& text) -> std::string {
        test::write_text(scratch / "config.json", text);
        try {
            io::read_model(scratch / "config.json");
        } catch (io::FileError const& error) {
            std::string const start = "cannot read the model " + (scratch / "config.json").string() + ": ";
            std::string const what = error.what();
            CHECK(what.substr(0, start.size()) == start);
            return what.substr(start.size());
        }
        return "";
    };
    std::string const none = ": expected a value, and there is none";
    std::string const size = ": expected a whole number from 1 to 16777216, not ";
    std::string const types =
        "model_type: expected one of llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, mamba2, bamba, deepseek_v3, "
        "gpt2";
    CHECK(refusal(llama_8b) == "");
    for (auto const& [text, sentence] : std::initializer_list<std::pair<std::string, std::string>>{
             {"{}", types + ", and there is none"},
             {"null", "the file: expected one JSON object"},
             {R"({"model_type": "bert"})", types + ", not \"bert\""},
             {R"({"model_type": 5})", "model_type: expected a text, not 5"},
             {R"({"model_type": "llama"})", "num_hidden_layers" + none},
             {with(llama_8b, "\"hidden_size\": 4096,", ""), "hidden_size" + none},
             {with(llama_8b, "\"intermediate_size\": 14336,", ""), "intermediate_size" + none},
             {with(llama_8b, ",\n  \"vocab_size\": 128256", ""), "vocab_size" + none},
             {with(llama_8b, "\"num_attention_heads\": 32,", ""), "num_attention_heads" + none},
             {with(llama_8b, "4096", "0"), "hidden_size" + size + "0"},
             {with(llama_8b, "4096", "-4096"), "hidden_size" + size + "-4096"},
             {with(llama_8b, "4096", "4096.5"), "hidden_size" + size + "4096.5"},
             {with(llama_8b, "4096", "\"4096\""), "hidden_size" + size + "\"4096\""},
             {with(llama_8b, "4096", "[4096]"), "hidden_size" + size + "[4096]"},
             {with(llama_8b, "4096", "null"), "hidden_size" + size + "null"},
             {with(llama_8b, "4096", "NaN"), "hidden_size" + size + "\"NaN\""},
             {with(llama_8b, "4096", "-Infinity"), "hidden_size" + size + "\"-Infinity\""},
             {with(llama_8b, "4096", "99999999999999999999"), "hidden_size" + size + "1e+20"},
             {with(llama_8b, "14336", "99999999"), "intermediate_size" + size + "99999999"},
             {with(llama_8b, "14336", "18446744073709551615"), "intermediate_size" + size + "18446744073709551615"},
             {with(llama_8b, "\"num_hidden_layers\": 32", "\"num_hidden_layers\": 10001"),
              "num_hidden_layers: expected a whole number from 1 to 10000, not 10001"},
             {with(with(llama_8b, "14336", "16000000"), "4096", "16000000"),
              "its sizes: expected at most 10^15 parameters from them"},
             {with(llama_8b, "heads\": 32", "heads\": 33"),
              "num_key_value_heads: expected a divisor of num_attention_heads = 33, not 8"},
             {with(with(llama_8b, "heads\": 32", "heads\": 33"), "value_heads\": 8", "value_heads\": 11"),
              "num_attention_heads: expected a divisor of hidden_size = 4096, or a head_dim, not 33"},
             {with(llama_8b, "\"vocab_size\"", "\"vocab_sizes\": 2, \"vocab_size\""),
              "the field 'vocab_sizes' is not known, and may change the model: remove it if it does not"},
             {with(deepseek_v3, "\"vocab_size\"", "\"engrams\": 2, \"vocab_size\""),
              "the field 'engrams' is not known, and may change the model: remove it if it does not"},
             {with(llama_8b, "value_heads\": 8", "value_heads\": 5"),
              "num_key_value_heads: expected a divisor of num_attention_heads = 32, not 5"},
             {with(llama_8b, "value_heads\": 8", "value_heads\": 64"),
              "num_key_value_heads: expected a divisor of num_attention_heads = 32, not 64"},
             {with(llama_8b, "value_heads\": 8", "value_heads\": -8"), "num_key_value_heads" + size + "-8"},
             {with(llama_8b, "embeddings\": false", "embeddings\": 0"),
              "tie_word_embeddings: expected true or false, not 0"},
             {with(llama_8b, "\"attention_bias\": false", "\"attention_bias\": true"),
              "attention_bias: expected false, the only value that is supported, not true"},
             {with(llama_8b, "\"rope_scaling\": null", "\"hidden_size\": 2048"),
              "'hidden_size': expected once in an object"},
             {with(mixtral_8x7b, "\"num_local_experts\": 8,", ""), "num_local_experts" + none},
             {with(mixtral_8x7b, "\"num_local_experts\": 8", "\"num_local_experts\": 0"),
              "num_local_experts" + size + "0"},
             {with(mixtral_8x7b, "per_tok\": 2", "per_tok\": 9"),
              "num_experts_per_tok: expected a whole number from 1 to 8, not 9"},
             {with(mixtral_8x7b, "per_tok\": 2", "per_tok\": 0"),
              "num_experts_per_tok: expected a whole number from 1 to 8, not 0"},
             {with(deepseek_v3, "\"kv_lora_rank\": 512,", ""), "kv_lora_rank" + none},
             {with(deepseek_v3, "per_tok\": 8", "per_tok\": 257"),
              "num_experts_per_tok: expected a whole number from 1 to 256, not 257"},
             {with(deepseek_v3, "replace\": 3", "replace\": 62"),
              "first_k_dense_replace: expected a whole number from 0 to 61, not 62"},
             {with(deepseek_v3, "freq\": 1", "freq\": 2"),
              "moe_layer_freq: expected 1, the only value that is supported, not 2"},
             {with(deepseek_v3, "\"v_head_dim\": 128", "\"v_head_dim\": 1.5"), "v_head_dim" + size + "1.5"},
             {with(deepseek_v3, "\"type\": \"yarn\"", "\"type\": \"longrope\""),
              "rope_scaling.type: expected default, linear, llama3 or yarn, which are supported, not \"longrope\""},
             {with(deepseek_v3, "beta_fast\": 32", "beta_fast\": 1"),
              "rope_scaling.beta_fast: expected more than beta_slow"},
             {with(deepseek_v3, "\"factor\": 40, ", ""), "rope_scaling.factor" + none},
             {with(deepseek_v3, "rope_head_dim\": 64", "rope_head_dim\": 63"),
              "qk_rope_head_dim: expected an even number, which rotary embedding needs"},
             {with(mamba2_7b, "heads\": 128", "heads\": 100"),
              "n_groups: expected a divisor of num_heads = 100, not 8"},
             {with(mamba2_7b, "heads\": 128", "heads\": 64"),
              "num_heads: expected heads that make up expand x hidden_size = 8192 elements, not num_heads x head_dim = "
              "4096"},
             {with(mamba2_7b, "intermediate_size\": 8192", "intermediate_size\": 4096"),
              "intermediate_size: expected 8192, the only value that is supported, not 4096"},
             {with(mamba2_7b, "\"state_size\": 128,", ""), "state_size" + none},
             {with(mamba2_7b, "conv_bias\": true", "conv_bias\": false"),
              "use_conv_bias: expected true, the only value that is supported, not false"},
             {with(gpt2, "\"n_head\": 12", "\"n_head\": 7"), "n_head: expected a divisor of n_embd = 768, not 7"},
             {with(gpt2, "\"n_positions\": 1024,", ""), "n_positions" + none},
             {with(gpt2, "\"n_layer\": 12", "\"n_layer\": true"),
              "n_layer: expected a whole number from 1 to 10000, not true"},
         }) {
        CAPTURE(text);
        CHECK(refusal(text) == sentence);
    }
    for (auto const& text : {std::string(""), llama_8b.substr(0, 300), llama_8b + "x", with(gpt2, "12", "'12'")}) {
        CAPTURE(text);
        CHECK(refusal(text).substr(0, 5) == "line ");
    }
    CHECK_THROWS_AS(io::read_model(scratch / "nothing"), io::FileError);
}

TEST_CASE("a config.json of Mamba-2 as Python writes it becomes JSON, of the same model") {
    auto const limited = [](std::string const& limits) { return with(mamba2_7b, "[0.0, Infinity]", limits); };
    for (auto const& text : {limited("[0.0, Infinity]"), limited("[0.25, Infinity]"), limited("[0.25, 0.5]")}) {
        auto const plain = nlohmann::json::parse(io::plain_config(text).dump()).dump();
        CHECK(io::model_from_config(plain).model.blocks == io::model_from_config(text).model.blocks);
        auto const stored = io::stored_config(plain, "float64");
        CHECK(stored["torch_dtype"] == "float64");
        CHECK(io::model_from_config(stored.dump()).model.blocks == io::model_from_config(text).model.blocks);
    }
}
