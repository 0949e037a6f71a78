// The functions of <pentad/io/model_config.hpp>.
#pragma once

#include <pentad/io/model_config.hpp>

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/io/detail/read_decoder.hpp>
#include <pentad/io/detail/read_deepseek.hpp>
#include <pentad/io/detail/read_planned.hpp>
#include <pentad/io/detail/read_recurrent.hpp>
#include <pentad/io/file.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/model/family.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>

namespace pentad::io::detail {

/// The token whose row of the embedding transformers leaves without a gradient: it passes pad_token_id to nn.Embedding
/// as its padding_idx, where a negative one counts from the end.
PENTAD_INLINE std::optional<std::size_t> read_padding_token(ConfigFields& fields, model::Family family,
                                                            std::size_t vocab) {
    if (family == model::Family::mamba2) return std::nullopt; // whose embedding is made without it
    if (!fields.is_there("pad_token_id") && family == model::Family::bamba) return 0;
    if (!fields.has("pad_token_id")) return std::nullopt;
    auto const size = static_cast<std::int64_t>(vocab);
    auto const token = whole_number(fields.at("pad_token_id"), "pad_token_id", -size, size - 1);
    return static_cast<std::size_t>(token < 0 ? token + size : token);
}
PENTAD_INLINE nlohmann::ordered_json padding_field(model::Model const& model) {
    return model.padding_token ? nlohmann::ordered_json(*model.padding_token) : nullptr;
}

/// What the config.json of every model below has.
PENTAD_INLINE nlohmann::ordered_json common_config(model::Model const& model, model::Family family,
                                                   std::string const& element) {
    return {
        {"architectures", {model::architecture(family)}},
        {"model_type", model::name(family)},
        {"vocab_size", model.vocab},
        {"hidden_size", model.hidden},
        {"num_hidden_layers", model.blocks.size()},
        {"hidden_act", "silu"},
        {"tie_word_embeddings", model.ties_embeddings},
        {"bos_token_id", nullptr},
        {"eos_token_id", nullptr},
        {"pad_token_id", padding_field(model)},
        {"torch_dtype", element},
    };
}

/// What the config.json of every model with Mamba-2 has.
PENTAD_INLINE nlohmann::ordered_json recurrent_config(model::Model const& model, model::Family family,
                                                      std::string const& element) {
    auto config = common_config(model, family, element);
    auto const& mixer = *model.first<model::Mamba2>();
    if (model::Mamba2 const usual; mixer.least_step > usual.least_step || mixer.most_step < usual.most_step)
        config["time_step_limit"] = {mixer.least_step, std::min(mixer.most_step, longest_step)};
    return config;
}

/// The config.json of a Mamba2ForCausalLM.
PENTAD_INLINE nlohmann::ordered_json mamba2_config(model::Model const& model, std::string const& element) {
    auto const& mixer = *model.find<model::Mamba2>(0);
    auto config = recurrent_config(model, model::Family::mamba2, element);
    config.update({
        {"num_heads", mixer.heads},
        {"head_dim", mixer.head_dim},
        {"state_size", mixer.state},
        {"n_groups", mixer.groups},
        {"expand", mixer.inner() / model.hidden},
        {"conv_kernel", mixer.convolution},
        {"chunk_size", mixer.chunk},
        {"use_bias", false},
        {"use_conv_bias", true},
        {"layer_norm_epsilon", model.norm_epsilon},
        {"residual_in_fp32", false},
    });
    return config;
}

/// The config.json of a BambaForCausalLM.
PENTAD_INLINE nlohmann::ordered_json bamba_config(model::Model const& model, std::size_t positions,
                                                  std::string const& element) {
    auto const& mixer = *model.first<model::Mamba2>();
    auto const attention =
        model.first<model::Attention>() != nullptr ? *model.first<model::Attention>() : model::Attention{};
    auto with_attention = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < model.blocks.size(); ++i)
        if (model.find<model::Attention>(i) != nullptr) with_attention.push_back(i);
    auto config = recurrent_config(model, model::Family::bamba, element);
    config.update({
        {"intermediate_size", model.first<model::GatedMlp>()->width},
        {"attn_layer_indices", with_attention},
        {"num_attention_heads", attention.heads},
        {"num_key_value_heads", attention.kv_heads},
        {"mamba_n_heads", mixer.heads},
        {"mamba_d_head", mixer.head_dim},
        {"mamba_d_state", mixer.state},
        {"mamba_n_groups", mixer.groups},
        {"mamba_expand", mixer.inner() / model.hidden},
        {"mamba_d_conv", mixer.convolution},
        {"mamba_chunk_size", mixer.chunk},
        {"mamba_conv_bias", true},
        {"mamba_proj_bias", false},
        {"max_position_embeddings", positions},
        {"rms_norm_eps", model.norm_epsilon},
        {"rope_theta", attention.rotary.theta},
        {"partial_rotary_factor", 0.5},
    });
    return config;
}

/// The config.json of a DeepseekV3ForCausalLM.
PENTAD_INLINE nlohmann::ordered_json deepseek_v3_config(model::Model const& model, std::size_t positions,
                                                        std::string const& element) {
    auto const& attention = *model.find<model::LatentAttention>(0);
    auto const& experts = *model.first<model::Experts>();
    std::size_t dense = 0;
    while (model.find<model::GatedMlp>(dense) != nullptr) ++dense;
    auto const& rotary = attention.rotary;
    auto config = common_config(model, model::Family::deepseek_v3, element);
    config.update({
        {"intermediate_size", model.first<model::GatedMlp>()->width},
        {"first_k_dense_replace", dense},
        {"num_attention_heads", attention.heads},
        {"num_key_value_heads", attention.heads},
        {"q_lora_rank", attention.query_rank > 0 ? nlohmann::ordered_json(attention.query_rank) : nullptr},
        {"kv_lora_rank", attention.kv_rank},
        {"qk_nope_head_dim", attention.head_dim},
        {"qk_rope_head_dim", attention.rope_dim},
        {"v_head_dim", attention.value_dim},
        {"rope_theta", rotary.theta},
        {"rope_interleave", rotary.is_interleaved},
        {"n_routed_experts", experts.count},
        {"num_experts_per_tok", experts.top_k},
        {"moe_intermediate_size", experts.width},
        {"n_shared_experts", experts.shared},
        {"n_group", experts.router.groups},
        {"topk_group", experts.router.top_groups},
        {"norm_topk_prob", experts.router.renormalises},
        {"routed_scaling_factor", experts.router.scale},
        {"max_position_embeddings", positions},
        {"rms_norm_eps", model.norm_epsilon},
    });
    if (auto const& yarn = rotary.yarn; yarn.factor != 1) {
        auto& scaling = config["rope_scaling"];
        scaling = {{"rope_type", "yarn"},
                   {"factor", yarn.factor},
                   {"original_max_position_embeddings", std::llround(yarn.original_positions)},
                   {"beta_fast", yarn.fast},
                   {"beta_slow", yarn.slow}};
        if (yarn.turned_scale > 0) scaling["mscale"] = yarn.turned_scale;
        if (yarn.score_scale > 0) scaling["mscale_all_dim"] = yarn.score_scale;
    }
    return config;
}

PENTAD_INLINE double about_parameters(model::Model const& model) {
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

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE model::Preset model_from_config(std::string_view text) {
    using Reader = model::Model (*)(detail::ConfigFields&);
    auto const read_family = [](detail::ConfigFields& from, model::Family family) {
        if (family == model::Family::mamba2) return detail::read_mamba2(from);
        if (family == model::Family::deepseek_v3) return detail::read_deepseek_v3(from);
        return family == model::Family::bamba ? detail::read_bamba(from) : detail::read_decoder(from, family);
    };
    static constexpr std::array<std::pair<std::string_view, Reader>, 1> further{{{"gpt2", detail::read_gpt2}}};
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
        if ((found = is(model::family_names[i]))) {
            auto const family = static_cast<model::Family>(i);
            read.model = read_family(fields, family);
            read.model.padding_token = detail::read_padding_token(fields, family, read.model.vocab);
        }
    for (std::size_t i = 0; i < further.size() && !found; ++i)
        if ((found = is(further[i].first))) read.model = further[i].second(fields);
    if (!found)
        detail::refuse_json("model_type",
                            "one of " + known +
                                (type.empty() ? ", and there is none" : ", not \"" + one_line(type) + "\""));
    fields.require("is_encoder_decoder", false);
    fields.neutral({"num_nextn_predict_layers"}); // modules that predict further tokens are left out
    fields.require("tie_encoder_decoder", false);
    fields.finish();
    if (detail::about_parameters(read.model) > 1e15)
        detail::refuse_json("its sizes", "at most 10^15 parameters from them");
    return read;
}

PENTAD_INLINE nlohmann::ordered_json plain_config(std::string_view source) {
    nlohmann::ordered_json config = detail::parse_object(detail::with_quoted_infinities(source));
    auto const limits = config.find("time_step_limit");
    if (limits == config.end() || !limits->is_array() || limits->size() != 2 || limits->at(1) != "Infinity")
        return config;
    if (limits->at(0) == 0)
        config.erase(limits); // what it is where nothing is said
    else
        limits->at(1) = detail::longest_step;
    return config;
}

PENTAD_INLINE nlohmann::ordered_json stored_config(std::string_view source, std::string const& element) {
    auto config = plain_config(source);
    config["torch_dtype"] = element;
    return config;
}

PENTAD_INLINE model::Preset read_model(std::filesystem::path const& model) {
    auto const path = config_path(model);
    std::string const text = read_file(path, std::uint64_t{16} << 20); // some list the names of thousands of labels
    try {
        return model_from_config(text);
    } catch (std::invalid_argument const& error) {
        throw FileError("cannot read the model " + path.string() + ": " + error.what());
    }
}

} // namespace pentad::io

namespace pentad::io::detail {

/// Without the predictors.
PENTAD_INLINE nlohmann::ordered_json main_config(model::Model const& model, std::size_t positions,
                                                 std::string const& element, double balance_coefficient) {
    using model::Family;
    auto const family = model::family_of(model);
    if (family == Family::mamba2) return mamba2_config(model, element);
    if (family == Family::bamba) return bamba_config(model, positions, element);
    if (family == Family::deepseek_v3) return deepseek_v3_config(model, positions, element);
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
        if (auto const* part = model.find<model::LatentAttention>(i)) {
            attention.heads = attention.kv_heads = part->heads;
            attention.head_dim = part->width();
            attention.rotary = part->rotary;
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
        {"pad_token_id", padding_field(model)},
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
            config["norm_topk_prob"] = experts->router.renormalises;
            config["decoder_sparse_step"] = 1;
            config["mlp_only_layers"] = dense_layers;
        }
    }
    return config;
}

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE nlohmann::ordered_json family_config(model::Model const& model, std::size_t positions,
                                                   std::string const& element, double balance_coefficient) {
    auto config = detail::main_config(model, positions, element, balance_coefficient);
    if (!model.predictors.empty()) config["num_nextn_predict_layers"] = model.predictors.size();
    return config;
}

} // namespace pentad::io
