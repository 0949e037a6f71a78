// The functions of <pentad/io/model_config.hpp>.
#pragma once

#include <pentad/io/model_config.hpp>

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/io/detail/neutral_fields.hpp>
#include <pentad/io/detail/read_decoder.hpp>
#include <pentad/io/detail/read_deepseek.hpp>
#include <pentad/io/detail/read_planned.hpp>
#include <pentad/io/detail/read_recurrent.hpp>
#include <pentad/io/detail/read_rotary.hpp>
#include <pentad/io/file.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/model/family.hpp>
#include <pentad/model/parameter_count.hpp>

#include <algorithm>
#include <array>
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

/// time_step_limit of a config.json, where there are limits.
PENTAD_INLINE void add_step_limits(nlohmann::ordered_json& config, model::Mamba2 const& mixer) {
    if (model::Mamba2 const usual; mixer.least_step > usual.least_step || mixer.most_step < usual.most_step)
        config["time_step_limit"] = {mixer.least_step, std::min(mixer.most_step, longest_step)};
}

/// The config.json of a Mamba2ForCausalLM.
PENTAD_INLINE nlohmann::ordered_json mamba2_config(model::Model const& model, std::string const& element) {
    auto const& mixer = *model.find<model::Mamba2>(0);
    auto config = common_config(model, model::Family::mamba2, element);
    add_step_limits(config, mixer);
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

/// The config.json of a BambaForCausalLM, but for the sizes of what no layer has.
PENTAD_INLINE nlohmann::ordered_json bamba_config(model::Model const& model, std::size_t positions,
                                                  std::string const& element) {
    auto with_attention = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < model.blocks.size(); ++i)
        if (model.find<model::Attention>(i) != nullptr) with_attention.push_back(i);
    auto config = common_config(model, model::Family::bamba, element);
    config.update({
        {"intermediate_size", model.first<model::GatedMlp>()->width},
        {"attn_layer_indices", with_attention},
        {"max_position_embeddings", positions},
        {"rms_norm_eps", model.norm_epsilon},
    });
    if (auto const* mixer = model.first<model::Mamba2>()) {
        config.update({
            {"mamba_n_heads", mixer->heads},
            {"mamba_d_head", mixer->head_dim},
            {"mamba_d_state", mixer->state},
            {"mamba_n_groups", mixer->groups},
            {"mamba_expand", mixer->inner() / model.hidden},
            {"mamba_d_conv", mixer->convolution},
            {"mamba_chunk_size", mixer->chunk},
            {"mamba_conv_bias", true},
            {"mamba_proj_bias", false},
        });
        add_step_limits(config, *mixer);
    }
    if (auto const* attention = model.first<model::Attention>()) {
        config["num_attention_heads"] = attention->heads;
        config["num_key_value_heads"] = attention->kv_heads;
        config["partial_rotary_factor"] = attention->rotary.share;
        add_rotary(config, attention->rotary);
    }
    return config;
}

/// The config.json of a DeepseekV3ForCausalLM, but for the sizes of what no layer has.
PENTAD_INLINE nlohmann::ordered_json deepseek_v3_config(model::Model const& model, std::size_t positions,
                                                        std::string const& element, RouterLosses const& losses) {
    auto const& attention = *model.find<model::LatentAttention>(0);
    std::size_t dense = 0;
    while (dense < model.blocks.size() && model.find<model::GatedMlp>(dense) != nullptr) ++dense;
    auto config = common_config(model, model::Family::deepseek_v3, element);
    config.update({
        {"first_k_dense_replace", dense},
        {"num_attention_heads", attention.heads},
        {"num_key_value_heads", attention.heads},
        {"q_lora_rank", attention.query_rank > 0 ? nlohmann::ordered_json(attention.query_rank) : nullptr},
        {"kv_lora_rank", attention.kv_rank},
        {"qk_nope_head_dim", attention.head_dim},
        {"qk_rope_head_dim", attention.rope_dim},
        {"v_head_dim", attention.value_dim},
        {"rope_interleave", attention.rotary.is_interleaved},
        {"max_position_embeddings", positions},
        {"rms_norm_eps", model.norm_epsilon},
    });
    add_rotary(config, attention.rotary);
    if (auto const* mlp = model.first<model::GatedMlp>()) config["intermediate_size"] = mlp->width;
    if (auto const* experts = model.first<model::Experts>()) {
        config.update({
            {"n_routed_experts", experts->count},
            {"num_experts_per_tok", experts->top_k},
            {"moe_intermediate_size", experts->width},
            {"n_shared_experts", experts->shared},
            {"n_group", experts->router.groups},
            {"topk_group", experts->router.top_groups},
            {"norm_topk_prob", experts->router.renormalises},
            {"routed_scaling_factor", experts->router.scale},
            {"aux_loss_alpha", losses.balance},
        });
    }
    return config;
}

/// The losses that a file names, or transformers where it does not: of DeepSeek's it has none.
PENTAD_INLINE RouterLosses read_losses(ConfigFields& fields, std::optional<model::Family> family) {
    RouterLosses losses;
    if (!family || !model::has_experts(*family)) return losses;
    losses.balance = *family == model::Family::deepseek_v3 ? fields.number_or("aux_loss_alpha", 0, 0, 1e6)
                                                           : fields.number_or("router_aux_loss_coef", 0.001, 0, 1e6);
    losses.z = fields.number_or("router_z_loss_coef", 0, 0, 1e6);
    return losses;
}

PENTAD_INLINE model::Model read_family(ConfigFields& from, model::Family family) {
    if (family == model::Family::mamba2) return read_mamba2(from);
    if (family == model::Family::deepseek_v3) return read_deepseek_v3(from);
    return family == model::Family::bamba ? read_bamba(from) : read_decoder(from, family);
}

/// Types that are planned, not trained.
using Reader = model::Model (*)(ConfigFields&);
inline constexpr std::array<std::pair<std::string_view, Reader>, 1> planned_types{{{"gpt2", read_gpt2}}};

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE ModelConfig model_from_config(std::string_view text, ConfigUse use) {
    auto const json = detail::parse_object(detail::with_quoted_infinities(text));
    detail::ConfigFields fields(json);
    fields.neutral(detail::neutral_fields);
    std::string const type = fields.text_or("model_type", "");
    ModelConfig read{{fields.text_or("_name_or_path", ""), {}}};
    if (read.name.empty()) read.name = type;
    std::string known;
    auto const is = [&](std::string_view name) {
        known += (known.empty() ? "" : ", ") + std::string(name);
        return name == type;
    };
    std::optional<model::Family> family;
    for (std::size_t i = 0; i < model::family_names.size() && !family; ++i)
        if (is(model::family_names[i])) family = static_cast<model::Family>(i);
    bool found = family.has_value();
    if (family) {
        read.model = detail::read_family(fields, *family);
        read.model.padding_token = detail::read_padding_token(fields, *family, read.model.vocab);
    }
    if (!found && use == ConfigUse::planning)
        for (auto const& [name, reader] : detail::planned_types)
            if (!found && (found = is(name))) read.model = reader(fields);
    if (!found)
        detail::refuse_json("model_type",
                            "one of " + known +
                                (type.empty() ? ", and there is none" : ", not \"" + one_line(type) + "\""));
    read.losses = detail::read_losses(fields, family);
    for (auto const* const name : {"num_nextn_predict_layers", "num_mtp_layers"}) // the second is of transformers 5.24
        read.predictors = std::max(read.predictors, fields.whole_or(name, 0, 0, 10000));
    detail::read_off_values(fields);
    fields.finish();
    if (model::parameter_count(read.model) > 1e15)
        detail::refuse_json("its sizes", "at most 10^15 parameters from them");
    return read;
}

PENTAD_INLINE std::string read_config(std::filesystem::path const& model) {
    return read_file(config_path(model), std::uint64_t{16} << 20); // some list the names of thousands of labels
}

PENTAD_INLINE ModelConfig read_model(std::filesystem::path const& model, ConfigUse use) {
    auto const text = read_config(model);
    try {
        return model_from_config(text, use);
    } catch (std::invalid_argument const& error) {
        throw FileError("cannot read the model " + config_path(model).string() + ": " + error.what());
    }
}

} // namespace pentad::io

namespace pentad::io::detail {

/// Without the predictors.
PENTAD_INLINE nlohmann::ordered_json main_config(model::Model const& model, std::size_t positions,
                                                 std::string const& element, RouterLosses const& losses) {
    using model::Family;
    auto const family = model::family_of(model);
    if (family == Family::mamba2) return mamba2_config(model, element);
    if (family == Family::bamba) return bamba_config(model, positions, element);
    if (family == Family::deepseek_v3) return deepseek_v3_config(model, positions, element, losses);
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
        {"tie_word_embeddings", model.ties_embeddings},
        {"bos_token_id", nullptr},
        {"eos_token_id", nullptr},
        {"pad_token_id", padding_field(model)},
        {"torch_dtype", element},
    };
    add_rotary(config, attention.rotary);
    if (family == Family::llama) {
        config["attention_bias"] = false;
        config["mlp_bias"] = false;
    } else {
        config["sliding_window"] = window > 0 ? nlohmann::ordered_json(window) : nlohmann::ordered_json(nullptr);
        if (window > 0 && family != Family::mistral && family != Family::mixtral) {
            config["use_sliding_window"] = true;
            if (family != Family::qwen3_moe) config["layer_types"] = layer_types;
        }
    }
    if (!family) config["pentad_blocks"] = model.text();
    if (experts != nullptr) {
        config[is_mixtral ? "num_local_experts" : "num_experts"] = experts->count;
        config["num_experts_per_tok"] = experts->top_k;
        config["router_aux_loss_coef"] = losses.balance;
        if (!is_mixtral) {
            config["moe_intermediate_size"] = experts->width;
            config["norm_topk_prob"] = experts->router.renormalises;
            config["decoder_sparse_step"] = 1;
            config["mlp_only_layers"] = dense_layers;
        }
    }
    return config;
}

/// The config.json that Pentad makes, of what the model says alone.
PENTAD_INLINE nlohmann::ordered_json made_config(model::Model const& model, std::size_t positions,
                                                 std::string const& element, RouterLosses const& losses) {
    auto config = main_config(model, positions, element, losses);
    if (losses.z > 0 && model.first<model::Experts>() != nullptr) config["router_z_loss_coef"] = losses.z;
    if (!model.predictors.empty()) config["num_nextn_predict_layers"] = model.predictors.size();
    return config;
}

} // namespace pentad::io::detail

namespace pentad::io {

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
    bool const is_new_name = config.contains("dtype"); // of transformers since 4.56
    if (is_new_name) config["dtype"] = element;
    if (!is_new_name || config.contains("torch_dtype")) config["torch_dtype"] = element;
    config.erase("quantization_config");
    return config;
}

PENTAD_INLINE nlohmann::ordered_json family_config(model::Model const& model, std::size_t positions,
                                                   std::string const& element, RouterLosses const& losses,
                                                   std::string_view source) {
    auto const made = detail::made_config(model, positions, element, losses);
    if (source.empty()) return made;
    auto config = stored_config(source, element);
    auto const read = model_from_config(source);
    // Fields in which the two descriptions in Pentad's words differ have changed; all others stay as they came.
    auto const was = detail::made_config(read.model, positions, element, read.losses);
    for (auto const& [key, value] : made.items())
        if (!was.contains(key) || was.at(key) != value) config[key] = value;
    auto const& neutral = detail::neutral_fields;
    for (auto const& [key, value] : was.items())
        if (!made.contains(key) && std::find(neutral.begin(), neutral.end(), key) == neutral.end()) config.erase(key);
    auto const context = config.find("max_position_embeddings");
    if (context != config.end() && context->is_number() && *context < positions) *context = positions;
    config.erase("num_mtp_layers");
    if (read.predictors > 0 || !model.predictors.empty()) config["num_nextn_predict_layers"] = model.predictors.size();
    return config;
}

} // namespace pentad::io
