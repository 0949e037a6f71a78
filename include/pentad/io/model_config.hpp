// config.json as Hugging Face's transformers writes it, both ways. Of the families whose checkpoints are read nothing
// is ignored in silence: what would make another model, and what is not known, is refused by name.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/io/file.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/family.hpp>
#include <pentad/model/presets.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

namespace pentad::io {

namespace detail {

/// The rotary embedding: rope_theta and rope_scaling, or both in rope_parameters (transformers 5).
inline model::Rotary read_rotary(ConfigFields& fields, double default_theta) {
    model::Rotary rotary{.theta = fields.number_or("rope_theta", default_theta, 1, 1e12)};
    for (std::string const key : {"rope_scaling", "rope_parameters"}) {
        if (!fields.has(key)) continue;
        Json const& json = fields.at(key);
        if (!json.is_object()) refuse_json(key, "an object", json);
        std::set<std::string> known;
        auto const number = [&](std::string const& name, double fallback, double least) {
            known.insert(name);
            return json.contains(name) && !json[name].is_null()
                       ? ConfigFields::number(json[name], key + "." + name, least, 1e12)
                       : fallback;
        };
        known.insert({"rope_type", "type"});
        auto const type_key = json.contains("rope_type") ? "rope_type" : "type";
        std::string const type = json.contains(type_key) ? text(json[type_key], key + "." + type_key) : "default";
        rotary.theta = number("rope_theta", rotary.theta, 1);
        if (type == "llama3") {
            auto& s = rotary.scaling;
            for (auto const* const needed :
                 {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
                (void)member(json, needed, key + "." + needed);
            s.factor = number("factor", s.factor, 1);
            s.low_frequency_factor = number("low_freq_factor", s.low_frequency_factor, 1e-6);
            s.high_frequency_factor = number("high_freq_factor", s.high_frequency_factor, 1e-6);
            s.original_positions = number("original_max_position_embeddings", s.original_positions, 1);
            if (s.high_frequency_factor <= s.low_frequency_factor)
                refuse_json(key + ".high_freq_factor", "more than low_freq_factor");
        } else if (type != "default") {
            refuse_json(key + "." + type_key, "default or llama3, which are supported, not \"" + one_line(type) + "\"");
        }
        for (auto const& [name, value] : json.items())
            if (!known.contains(name))
                throw std::invalid_argument("the field " + quoted_key(key + ".", name) + " is not known");
    }
    return rotary;
}

/// The window of each layer's attention; 0: none.
inline std::vector<std::size_t> read_windows(ConfigFields& fields, model::Family family, std::size_t layers) {
    using model::Family;
    fields.neutral({"sliding_window", "max_window_layers", "layer_types", "use_sliding_window"});
    std::vector<std::size_t> windows(layers, 0);
    bool const is_qwen = family == Family::qwen2 || family == Family::qwen3 || family == Family::qwen3_moe;
    if (!is_qwen && fields.has("layer_types"))
        for (auto const& type : fields.at("layer_types"))
            if (type != "full_attention") refuse_json("layer_types", "\"full_attention\" alone in this family", type);
    if (family == Family::llama || (is_qwen && !fields.flag_or("use_sliding_window", false))) {
        if (family == Family::llama && fields.has("sliding_window"))
            refuse_json("sliding_window", "null, as LLaMA has no windows: Mistral is LLaMA with them",
                        fields.at("sliding_window"));
        return windows;
    }
    // Where a file says nothing, these families have a window of 4096 all the same.
    bool const is_default = family == Family::mistral || is_qwen;
    if (!fields.has("sliding_window") && (fields.is_there("sliding_window") || !is_default)) return windows;
    std::size_t const window = fields.size_or("sliding_window", 4096);
    if (is_qwen && fields.has("layer_types")) {
        auto const& types = fields.at("layer_types");
        if (!types.is_array() || types.size() != layers)
            refuse_json("layer_types", "an array of " + std::to_string(layers) + " layers");
        for (std::size_t i = 0; i < layers; ++i) {
            if (types[i] == "sliding_attention")
                windows[i] = window;
            else if (types[i] != "full_attention")
                refuse_json("layer_types", "\"full_attention\" or \"sliding_attention\", which are supported",
                            types[i]);
        }
    } else {
        std::size_t const first = is_qwen ? fields.whole_or("max_window_layers", 28, 0, 10000) : 0;
        for (std::size_t i = first; i < layers; ++i) windows[i] = window;
    }
    return windows;
}

/// A model of the families whose checkpoints are read and written.
inline model::Model read_decoder(ConfigFields& fields, model::Family family) {
    using model::Family;
    fields.neutral({"output_router_logits", "router_aux_loss_coef"});
    fields.require("hidden_act", "silu");
    fields.require("attention_dropout", 0.0);
    fields.require("router_jitter_noise", 0.0);
    fields.require("pretraining_tp", 1);
    fields.require("attention_bias", false);
    fields.require("mlp_bias", false);
    fields.require("use_mrope", false);
    fields.require("rope_interleaved", false);
    model::DecoderSizes sizes{.layers = fields.size("num_hidden_layers", 10000),
                              .hidden = fields.size("hidden_size"),
                              .heads = fields.size("num_attention_heads"),
                              .ffn = fields.size("intermediate_size"),
                              .vocab = fields.size("vocab_size"),
                              .ties_embeddings = fields.flag_or("tie_word_embeddings", false),
                              .norm_epsilon =
                                  fields.number_or("rms_norm_eps", family == Family::mixtral ? 1e-5 : 1e-6, 0, 1)};
    // Where the file does not say, each family has another number of its own.
    sizes.kv_heads = family == Family::llama ? fields.size_or("num_key_value_heads", sizes.heads)
                                             : fields.size("num_key_value_heads");
    sizes.head_dim = fields.size_or("head_dim", family == Family::qwen3 ? 128 : 0);
    fields.require_divisor("num_key_value_heads", sizes.kv_heads, "num_attention_heads", sizes.heads);
    if (sizes.head_dim == 0)
        fields.require_divisor("num_attention_heads", sizes.heads, "hidden_size", sizes.hidden, ", or a head_dim");
    auto model = model::decoder(sizes);
    model::Attention attention = *model.find<model::Attention>(0);
    if (attention.head_dim % 2 != 0) refuse_json("head_dim", "an even number, which rotary embedding needs");
    attention.rotary = read_rotary(fields, family == Family::mixtral ? 1e6 : 1e4);
    attention.has_bias = family == Family::qwen2;
    attention.norms_queries_and_keys = family == Family::qwen3 || family == Family::qwen3_moe;
    model::Experts experts;
    std::size_t every = 1;
    std::set<std::size_t> dense;
    if (model::has_experts(family)) {
        bool const is_mixtral = family == Family::mixtral;
        // transformers 5 calls them local everywhere.
        experts.count = fields.size(is_mixtral || !fields.has("num_experts") ? "num_local_experts" : "num_experts");
        experts.top_k = fields.size("num_experts_per_tok", static_cast<std::int64_t>(experts.count));
        experts.width = is_mixtral ? sizes.ffn : fields.size("moe_intermediate_size");
        experts.renormalises = is_mixtral || fields.flag_or("norm_topk_prob", false);
        if (!is_mixtral) {
            every = fields.size_or("decoder_sparse_step", 1);
            if (fields.has("mlp_only_layers"))
                for (auto const& layer : fields.at("mlp_only_layers"))
                    dense.insert(static_cast<std::size_t>(
                        whole_number(layer, "mlp_only_layers", 0, static_cast<std::int64_t>(sizes.layers) - 1)));
        }
    }
    auto const windows = read_windows(fields, family, model.blocks.size());
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
        auto& branches = model.blocks[i].branches;
        attention.sight.window = windows[i];
        branches[0].part = attention;
        if (model::has_experts(family) && !dense.contains(i) && (i + 1) % every == 0)
            branches[1] = {experts, "block_sparse_moe", branches[1].norm};
    }
    return model;
}

// Families whose checkpoints are not read: their config.json is used for the sizes that a plan needs. Fields that
// change no size (rotary embedding, dropout, how scores are scaled) are not looked at; those that are not known are
// refused.

/// The main model: modules that predict further tokens (num_nextn_predict_layers) are left out.
inline model::Model read_deepseek_v3(ConfigFields& fields) {
    fields.neutral({"attention_dropout",
                    "aux_loss_alpha",
                    "ep_size",
                    "hidden_act",
                    "n_group",
                    "norm_topk_prob",
                    "num_nextn_predict_layers",
                    "pretraining_tp",
                    "quantization_config",
                    "rms_norm_eps",
                    "rope_interleave",
                    "rope_parameters",
                    "rope_scaling",
                    "rope_theta",
                    "routed_scaling_factor",
                    "scoring_func",
                    "seq_aux",
                    "topk_group",
                    "topk_method",
                    "head_dim",
                    "qk_head_dim"});
    fields.require("attention_bias", false);
    fields.require("moe_layer_freq", 1); // of DeepSeek's own files
    std::size_t const layers = fields.size("num_hidden_layers", 10000), heads = fields.size("num_attention_heads");
    fields.require_divisor("num_key_value_heads", fields.size_or("num_key_value_heads", heads), "num_attention_heads",
                           heads);
    model::LatentAttention const attention{.heads = heads,
                                           .head_dim = fields.size("qk_nope_head_dim"),
                                           .rope_dim = fields.size("qk_rope_head_dim"),
                                           .value_dim = fields.size("v_head_dim"),
                                           .query_rank = fields.size_or("q_lora_rank", 0),
                                           .kv_rank = fields.size("kv_lora_rank")};
    std::size_t const count = fields.size("n_routed_experts");
    model::Experts experts{.count = count,
                           .top_k = fields.size("num_experts_per_tok", static_cast<std::int64_t>(count)),
                           .width = fields.size("moe_intermediate_size")};
    experts.shared = fields.size_or("n_shared_experts", 0);
    experts.has_balance_bias = true;
    std::size_t const dense = fields.whole("first_k_dense_replace", 0, static_cast<std::int64_t>(layers));
    auto model = model::deepseek(layers, fields.size("hidden_size"), fields.size("vocab_size"), attention, dense,
                                 fields.size("intermediate_size"), experts);
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", false);
    return model;
}
inline constexpr double longest_step = 1e300; ///< instead of an infinite limit, which JSON has no number for

/// The limits of steps of time. Python writes an infinite one as Infinity, which comes here in quotes.
inline std::pair<double, double> read_step_limits(ConfigFields& fields) {
    std::pair<double, double> limits{0, std::numeric_limits<double>::infinity()};
    if (!fields.has("time_step_limit")) return limits;
    Json const& json = fields.at("time_step_limit");
    if (!json.is_array() || json.size() != 2) refuse_json("time_step_limit", "two numbers", json);
    limits.first = ConfigFields::number(json[0], "time_step_limit[0]", 0, 1e12);
    if (json[1] == "Infinity") return limits;
    limits.second = ConfigFields::number(json[1], "time_step_limit[1]", limits.first, longest_step);
    if (limits.second == longest_step) limits.second = std::numeric_limits<double>::infinity();
    return limits;
}
/// Mamba2ForCausalLM.
inline model::Model read_mamba2(ConfigFields& fields) {
    // How parameters and residuals are made and held, not what is computed. Of these fields the mixer of transformers
    // does not read norm_before_gate and rms_norm.
    fields.neutral({"norm_before_gate", "rescale_prenorm_residual", "residual_in_fp32", "rms_norm", "time_step_floor",
                    "time_step_init_scheme", "time_step_max", "time_step_min", "time_step_rank", "time_step_scale"});
    fields.require("use_bias", false);
    fields.require("use_conv_bias", true);
    fields.require("hidden_act", "silu");
    std::size_t const heads = fields.size("num_heads"), hidden = fields.size("hidden_size");
    model::Mamba2 mixer{.heads = heads,
                        .head_dim = fields.size_or("head_dim", 64),
                        .state = fields.size("state_size"),
                        .groups = fields.size_or("n_groups", 8),
                        .convolution = fields.size_or("conv_kernel", 4),
                        .chunk = fields.size_or("chunk_size", 256)};
    mixer.norm_groups = mixer.groups;
    std::tie(mixer.least_step, mixer.most_step) = read_step_limits(fields);
    fields.require_divisor("n_groups", mixer.groups, "num_heads", heads);
    auto const inner = fields.size_or("expand", 2) * hidden;
    if (inner != mixer.inner())
        refuse_json("num_heads", "heads that make up expand x hidden_size = " + std::to_string(inner) +
                                     " elements, not num_heads x head_dim = " + std::to_string(mixer.inner()));
    fields.require("intermediate_size", inner); // Mistral's files say it once more
    auto model = model::mamba2(fields.size("num_hidden_layers", 10000), hidden, fields.size("vocab_size"), mixer,
                               fields.flag_or("tie_word_embeddings", false));
    model.norm_epsilon = fields.number_or("layer_norm_epsilon", 1e-5, 0, 1);
    return model;
}
inline model::Model read_gpt2(ConfigFields& fields) {
    fields.neutral({"activation_function",
                    "_num_labels",
                    "attn_pdrop",
                    "embd_pdrop",
                    "gradient_checkpointing",
                    "n_special",
                    "output_past",
                    "predict_special_tokens",
                    "resid_pdrop",
                    "layer_norm_epsilon",
                    "n_ctx",
                    "reorder_and_upcast_attn",
                    "scale_attn_by_inverse_layer_idx",
                    "scale_attn_weights",
                    "summary_activation",
                    "summary_first_dropout",
                    "summary_proj_to_labels",
                    "summary_type",
                    "summary_use_proj",
                    "task_specific_params"});
    fields.require("add_cross_attention", false);
    std::size_t const hidden = fields.size("n_embd"), heads = fields.size("n_head");
    fields.require_divisor("n_head", heads, "n_embd", hidden);
    auto model = model::gpt2(fields.size("n_layer", 10000), hidden, heads, fields.size_or("n_inner", 4 * hidden),
                             fields.size("vocab_size"), fields.size("n_positions"));
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", true);
    return model;
}

/// The config.json of a Mamba2ForCausalLM.
inline nlohmann::ordered_json mamba2_config(model::Model const& model, std::string const& element) {
    auto const& mixer = *model.find<model::Mamba2>(0);
    nlohmann::ordered_json config{
        {"architectures", {model::architecture(model::Family::mamba2)}},
        {"model_type", model::name(model::Family::mamba2)},
        {"vocab_size", model.vocab},
        {"hidden_size", model.hidden},
        {"num_hidden_layers", model.blocks.size()},
        {"num_heads", mixer.heads},
        {"head_dim", mixer.head_dim},
        {"state_size", mixer.state},
        {"n_groups", mixer.groups},
        {"expand", mixer.inner() / model.hidden},
        {"conv_kernel", mixer.convolution},
        {"chunk_size", mixer.chunk},
        {"hidden_act", "silu"},
        {"use_bias", false},
        {"use_conv_bias", true},
        {"layer_norm_epsilon", model.norm_epsilon},
        {"residual_in_fp32", false},
        {"tie_word_embeddings", model.ties_embeddings},
        {"bos_token_id", nullptr},
        {"eos_token_id", nullptr},
        {"pad_token_id", nullptr},
        {"torch_dtype", element},
    };
    if (model::Mamba2 const usual; mixer.least_step > usual.least_step || mixer.most_step < usual.most_step)
        config["time_step_limit"] = {mixer.least_step, std::min(mixer.most_step, longest_step)};
    return config;
}

/// An approximate number of parameters, to refuse models whose sizes would overflow later.
inline double about_parameters(model::Model const& model) {
    auto const number = [](std::size_t n) { return static_cast<double>(n); };
    double const hidden = number(model.hidden);
    double sum = hidden * number(model.vocab + model.positions);
    for (auto const& block : model.blocks)
        for (auto const& branch : block.branches) {
            if (auto const* a = branch.part.as<model::Attention>())
                sum += 4 * hidden * number(a->heads) * number(a->head_dim);
            if (auto const* a = branch.part.as<model::LatentAttention>())
                sum += (number(a->query_rank) + number(a->kv_rank) + hidden) * number(a->heads) *
                       (number(a->head_dim) + number(a->rope_dim) + number(a->value_dim));
            if (auto const* m = branch.part.as<model::Mamba2>())
                sum += hidden * (3 * number(m->heads) * number(m->head_dim) + number(m->groups) * number(m->state)) +
                       number(m->heads) * number(m->head_dim) * number(m->state);
            if (auto const* m = branch.part.as<model::GatedMlp>()) sum += 3 * hidden * number(m->width);
            if (auto const* m = branch.part.as<model::PlainMlp>()) sum += 2 * hidden * number(m->width);
            if (auto const* e = branch.part.as<model::Experts>())
                sum += 3 * hidden * number(e->width) * (number(e->count) + number(e->shared));
        }
    return sum;
}

} // namespace detail

/// The model of a config.json, and its name (_name_or_path, or the model_type): of the families of model/family.hpp, or
/// one whose checkpoints are not read (deepseek_v3, gpt2). Sizes must be in the file; other fields that are not
/// there have the values that transformers gives them. @throws std::invalid_argument with the field and what is
/// expected
inline model::Preset model_from_config(std::string_view text) {
    using Reader = model::Model (*)(detail::ConfigFields&);
    static constexpr std::array<std::pair<std::string_view, Reader>, 2> further{{
        {"deepseek_v3", detail::read_deepseek_v3},
        {"gpt2", detail::read_gpt2},
    }};
    auto const json = detail::parse_object(detail::with_quoted_infinities(text));
    detail::ConfigFields fields(json);
    fields.neutral({"architectures",
                    "attn_implementation",
                    "_attn_implementation",
                    "_attn_implementation_autoset",
                    "auto_map",
                    "bos_token_id",
                    "dtype",
                    "eos_token_id",
                    "id2label",
                    "initializer_range",
                    "label2id",
                    "max_position_embeddings",
                    "output_attentions",
                    "output_hidden_states",
                    "pad_token_id",
                    "return_dict",
                    "tokenizer_class",
                    "torch_dtype",
                    "transformers_version",
                    "use_cache"});
    std::string const type = fields.text_or("model_type", "");
    model::Preset read{fields.text_or("_name_or_path", ""), {}};
    if (read.name.empty()) read.name = type;
    std::string known;
    auto const is = [&](std::string_view name) {
        known += (known.empty() ? "" : ", ") + std::string(name);
        return name == type;
    };
    bool found = false;
    for (std::size_t i = 0; i < model::family_names.size() && !found; ++i)
        if ((found = is(model::family_names[i])))
            read.model = static_cast<model::Family>(i) == model::Family::mamba2
                             ? detail::read_mamba2(fields)
                             : detail::read_decoder(fields, static_cast<model::Family>(i));
    for (std::size_t i = 0; i < further.size() && !found; ++i)
        if ((found = is(further[i].first))) read.model = further[i].second(fields);
    if (!found)
        detail::refuse_json("model_type",
                            "one of " + known +
                                (type.empty() ? ", and there is none" : ", not \"" + one_line(type) + "\""));
    fields.require("is_encoder_decoder", false);
    fields.require("tie_encoder_decoder", false);
    fields.finish();
    if (detail::about_parameters(read.model) > 1e15)
        detail::refuse_json("its sizes", "at most 10^15 parameters from them");
    return read;
}

/// The file that read_model() reads: of a folder its config.json.
inline std::filesystem::path config_path(std::filesystem::path const& model) {
    std::error_code ignored;
    return std::filesystem::is_directory(model, ignored) ? model / "config.json" : model;
}
/// Reads a config.json, or that of a folder. @throws FileError with the file, the field and what is expected there
inline model::Preset read_model(std::filesystem::path const& model) {
    auto const path = config_path(model);
    std::string const text = read_file(path, std::uint64_t{16} << 20); // some list the names of thousands of labels
    try {
        return model_from_config(text);
    } catch (std::invalid_argument const& error) {
        throw FileError("cannot read the model " + path.string() + ": " + error.what());
    }
}

/// The config.json with which transformers reads what this model's weights are written as. Where no family has such a
/// model the type is "pentad", which no other program takes for one that it knows.
/// @param positions that the model was trained for
/// @param element "float32", "float64"
inline nlohmann::ordered_json family_config(model::Model const& model, std::size_t positions,
                                            std::string const& element, double balance_coefficient) {
    using model::Family;
    auto const family = model::family_of(model);
    if (family == Family::mamba2) return detail::mamba2_config(model, element);
    std::size_t dense_width = 0; // of MLPs
    model::Attention attention;
    model::Experts const* experts = nullptr;
    auto dense_layers = nlohmann::ordered_json::array(), layer_types = dense_layers;
    std::size_t window = 0;
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
        if (auto const* part = model.find<model::Attention>(i)) {
            attention = *part;
            window = std::max(window, part->sight.window);
            layer_types.push_back(part->sight.window > 0 ? "sliding_attention" : "full_attention");
        }
        if (auto const* mlp = model.find<model::GatedMlp>(i)) {
            dense_width = mlp->width;
            dense_layers.push_back(i);
        }
        if (auto const* part = model.find<model::Experts>(i)) experts = part;
    }
    bool const is_mixtral = family != Family::qwen3_moe;
    std::size_t const width = dense_width > 0 || experts == nullptr ? dense_width : experts->width;
    nlohmann::ordered_json config{
        {"architectures", {family ? model::architecture(*family) : "PentadForCausalLM"}},
        {"model_type", family ? model::name(*family) : "pentad"},
        {"vocab_size", model.vocab},
        {"hidden_size", model.hidden},
        {"intermediate_size", width},
        {"num_hidden_layers", model.blocks.size()},
        {"num_attention_heads", attention.heads},
        {"num_key_value_heads", attention.kv_heads},
        {"head_dim", attention.head_dim},
        {"hidden_act", "silu"},
        {"max_position_embeddings", positions},
        {"rms_norm_eps", model.norm_epsilon},
        {"rope_theta", attention.rotary.theta},
        {"tie_word_embeddings", model.ties_embeddings},
        {"bos_token_id", nullptr},
        {"eos_token_id", nullptr},
        {"torch_dtype", element},
    };
    if (auto const& s = attention.rotary.scaling; s.factor != 1)
        config["rope_scaling"] = {{"rope_type", "llama3"},
                                  {"factor", s.factor},
                                  {"low_freq_factor", s.low_frequency_factor},
                                  {"high_freq_factor", s.high_frequency_factor},
                                  {"original_max_position_embeddings", std::llround(s.original_positions)}};
    if (family == Family::llama) {
        config["attention_bias"] = false;
        config["mlp_bias"] = false;
    } else {
        config["sliding_window"] = window > 0 ? nlohmann::ordered_json(window) : nlohmann::ordered_json(nullptr);
        if (window > 0 && family != Family::mistral && family != Family::mixtral) {
            config["use_sliding_window"] = true;
            config["layer_types"] = layer_types;
        }
    }
    if (!family) config["pentad_blocks"] = model.text();
    if (experts != nullptr) {
        config[is_mixtral ? "num_local_experts" : "num_experts"] = experts->count;
        config["num_experts_per_tok"] = experts->top_k;
        config["router_aux_loss_coef"] = balance_coefficient;
        if (!is_mixtral) {
            config["moe_intermediate_size"] = experts->width;
            config["norm_topk_prob"] = experts->renormalises;
            config["decoder_sparse_step"] = 1;
            config["mlp_only_layers"] = dense_layers;
        }
    }
    return config;
}

} // namespace pentad::io
