// config.json of the families of model/family.hpp, as Hugging Face's transformers writes it, both ways. Nothing in it
// is ignored in silence: what would make another model, and what is not known, is refused by name.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/family.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::io {

namespace detail {

/// Reads fields, and knows in the end which of them nobody asked for.
class FamilyFields {
  public:
    explicit FamilyFields(Json const& json) : json_(json), fields_(json) {}

    [[nodiscard]] bool has(std::string const& key) {
        known_.insert(key);
        return fields_.has(key);
    }
    /// A value or null.
    [[nodiscard]] bool is_there(std::string const& key) const { return json_.contains(key); }
    [[nodiscard]] std::size_t size(std::string const& key, std::int64_t most = 1 << 24) {
        known_.insert(key);
        return static_cast<std::size_t>(fields_.size(key, most));
    }
    [[nodiscard]] std::size_t size_or(std::string const& key, std::size_t fallback) {
        return has(key) ? size(key) : fallback;
    }
    [[nodiscard]] bool flag_or(std::string const& key, bool fallback) {
        known_.insert(key);
        return fields_.flag_or(key, fallback);
    }
    [[nodiscard]] double number_or(std::string const& key, double fallback, double least, double most) {
        return has(key) ? number(json_[key], key, least, most) : fallback;
    }
    [[nodiscard]] std::string text_or(std::string const& key, std::string const& fallback) {
        return has(key) ? text(json_[key], key) : fallback;
    }
    [[nodiscard]] Json const& at(std::string const& key) {
        known_.insert(key);
        return json_[key];
    }
    /// A field of which only this value makes a model that the library has.
    template <class T>
    void require(std::string const& key, T const& only, std::string const& shown) {
        if (has(key) && json_[key] != Json(only))
            refuse_json(key, shown + ", the only value that is supported", json_[key]);
    }
    /// Fields that change nothing of the model: how it was made, is stored, or generates text.
    void neutral(std::initializer_list<char const*> keys) { known_.insert(keys.begin(), keys.end()); }
    /// @throws std::invalid_argument where a field is left
    void finish() const {
        for (auto const& [key, value] : json_.items())
            if (!known_.contains(key) && !value.is_null())
                throw std::invalid_argument("the field " + quoted_key("", key) +
                                            " is not known, and may change the model: remove it if it does not");
    }

    static double number(Json const& value, std::string const& where, double least, double most) {
        if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
            refuse_json(where, "a number from " + shown(least) + " to " + shown(most), value);
        return value.get<double>();
    }

  private:
    static std::string shown(double value) { return Json(value).dump(); }

    Json const& json_;
    ConfigFields fields_;
    std::set<std::string> known_;
};

/// The rotary embedding: rope_theta and rope_scaling, or both in rope_parameters (transformers 5).
inline model::Rotary read_rotary(FamilyFields& fields, double default_theta) {
    model::Rotary rotary{.theta = fields.number_or("rope_theta", default_theta, 1, 1e12)};
    for (std::string const key : {"rope_scaling", "rope_parameters"}) {
        if (!fields.has(key)) continue;
        Json const& json = fields.at(key);
        if (!json.is_object()) refuse_json(key, "an object", json);
        std::set<std::string> known;
        auto const number = [&](std::string const& name, double fallback, double least) {
            known.insert(name);
            return json.contains(name) && !json[name].is_null()
                       ? FamilyFields::number(json[name], key + "." + name, least, 1e12)
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

/// That no layer has a window of attention.
/// @param is_default whether the family has one where the file says nothing
inline void refuse_windows(FamilyFields& fields, bool is_used, bool is_default) {
    std::string const wanted = "null, as sliding-window attention is not supported";
    if (is_used && fields.has("sliding_window")) refuse_json("sliding_window", wanted, fields.at("sliding_window"));
    if (is_default && !fields.is_there("sliding_window"))
        refuse_json("sliding_window", wanted + "; without the field the window is 4096");
    fields.neutral({"sliding_window", "max_window_layers"});
    if (!fields.has("layer_types")) return;
    for (auto const& type : fields.at("layer_types"))
        if (type != "full_attention")
            refuse_json("layer_types", "\"full_attention\" alone, the only value that is supported", type);
}

} // namespace detail

/// The model of a config.json. @throws std::invalid_argument with the field and what is expected there
inline model::Model model_from_family_config(std::string_view text) {
    using model::Family;
    auto const json = detail::parse_object(detail::with_quoted_infinities(text));
    detail::FamilyFields fields(json);
    std::string const type = fields.text_or("model_type", "");
    auto const found = std::find(model::family_names.begin(), model::family_names.end(), type);
    if (found == model::family_names.end()) {
        std::string known;
        for (auto const name : model::family_names) known += (known.empty() ? "" : ", ") + std::string(name);
        detail::refuse_json("model_type",
                            "one of " + known +
                                (type.empty() ? ", and there is none" : ", not \"" + one_line(type) + "\""));
    }
    auto const family = static_cast<Family>(found - model::family_names.begin());
    bool const is_qwen = family == Family::qwen2 || family == Family::qwen3 || family == Family::qwen3_moe;
    fields.neutral({"architectures",
                    "torch_dtype",
                    "dtype",
                    "transformers_version",
                    "_name_or_path",
                    "use_cache",
                    "initializer_range",
                    "bos_token_id",
                    "eos_token_id",
                    "pad_token_id",
                    "max_position_embeddings",
                    "output_router_logits",
                    "router_aux_loss_coef",
                    "return_dict",
                    "output_attentions",
                    "output_hidden_states",
                    "tokenizer_class",
                    "attn_implementation",
                    "_attn_implementation",
                    "_attn_implementation_autoset"});
    fields.require("hidden_act", "silu", "\"silu\"");
    fields.require("attention_dropout", 0.0, "0");
    fields.require("router_jitter_noise", 0.0, "0");
    fields.require("pretraining_tp", 1, "1");
    fields.require("attention_bias", false, "false");
    fields.require("mlp_bias", false, "false");
    fields.require("use_mrope", false, "false");
    fields.require("rope_interleaved", false, "false");
    fields.require("is_encoder_decoder", false, "false");
    fields.require("tie_encoder_decoder", false, "false");
    bool const slides = is_qwen && fields.flag_or("use_sliding_window", false);
    detail::refuse_windows(fields, !is_qwen || slides, family == Family::mistral || slides);

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
    if (sizes.heads % sizes.kv_heads != 0)
        detail::refuse_json("num_key_value_heads", "a divisor of num_attention_heads = " + std::to_string(sizes.heads) +
                                                       ", not " + std::to_string(sizes.kv_heads));
    if (sizes.head_dim == 0 && sizes.hidden % sizes.heads != 0)
        detail::refuse_json("num_attention_heads", "a divisor of hidden_size = " + std::to_string(sizes.hidden) +
                                                       ", or a head_dim, not " + std::to_string(sizes.heads));
    auto model = model::decoder(sizes);
    model::Attention attention = *model.find<model::Attention>(0);
    if (attention.head_dim % 2 != 0) detail::refuse_json("head_dim", "an even number, which rotary embedding needs");
    attention.rotary = detail::read_rotary(fields, family == Family::mixtral ? 1e6 : 1e4);
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
                    dense.insert(static_cast<std::size_t>(detail::whole_number(
                        layer, "mlp_only_layers", 0, static_cast<std::int64_t>(sizes.layers) - 1)));
        }
    }
    fields.finish();
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
        auto& branches = model.blocks[i].branches;
        branches[0].part = attention;
        if (model::has_experts(family) && !dense.contains(i) && (i + 1) % every == 0)
            branches[1] = {experts, "block_sparse_moe", branches[1].norm};
    }
    return model;
}

/// Reads a config.json, or that of a folder. @throws FileError with the file, the field and what is expected there
inline model::Model read_model_of_family(std::filesystem::path path) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
    std::string const text = read_file(path, std::uint64_t{16} << 20);
    try {
        return model_from_family_config(text);
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
    std::size_t dense_width = 0; // of MLPs
    model::Attention attention;
    model::Experts const* experts = nullptr;
    auto dense_layers = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
        if (auto const* part = model.find<model::Attention>(i)) attention = *part;
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
        config["sliding_window"] = nullptr;
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
