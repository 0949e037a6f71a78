// The sizes of a model from a config.json as Hugging Face's transformers writes it. What sets no size (the
// activation, rotary bases, windows of attention, quantization) is not read.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/planner/parameters.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace pentad::io {

namespace detail {

/// The text with Infinity, -Infinity and NaN, which Python writes though JSON has no such numbers, in quotes: then they
/// are refused only where a size is.
inline std::string with_quoted_infinities(std::string_view text) {
    std::string result;
    bool in_text = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        std::string_view word = text.substr(at, in_text && text[at] == '\\' ? 2 : 1);
        if (!in_text)
            for (std::string_view const other : {"Infinity", "-Infinity", "NaN"})
                if (text.substr(at).starts_with(other)) word = other;
        if (word == "\"") in_text = !in_text;
        bool const quote = !in_text && word.size() > 1;
        result += (quote ? "\"" : "") + std::string(word) + (quote ? "\"" : "");
        at += word.size() - 1;
    }
    return result;
}

/// The fields of a config.json. One that is null counts as one that is not there, as in Python.
class ConfigFields {
  public:
    explicit ConfigFields(Json const& json) : json_(json) {}

    [[nodiscard]] bool has(std::string const& key) const {
        auto const found = json_.find(key);
        return found != json_.end() && !found->is_null();
    }
    /// Neither a value nor null: transformers then takes its default, and for null often another.
    [[nodiscard]] bool is_absent(std::string const& key) const { return !json_.contains(key); }
    [[nodiscard]] std::int64_t whole(std::string const& key, std::int64_t most) const {
        return whole_number(member(json_, key, key), key, 0, most);
    }
    [[nodiscard]] std::int64_t size(std::string const& key, std::int64_t most = 1 << 24) const {
        return whole_number(member(json_, key, key), key, 1, most);
    }
    [[nodiscard]] std::int64_t size_or(std::string const& key, std::int64_t fallback) const {
        return has(key) ? size(key) : fallback;
    }
    /// A size that divides another.
    [[nodiscard]] std::int64_t divisor_or(std::string const& key, std::int64_t fallback, std::string const& of_key,
                                          std::int64_t of) const {
        std::int64_t const value = size_or(key, fallback);
        if (of % value != 0)
            refuse_json(key, "a divisor of " + of_key + " = " + std::to_string(of) + ", not " + std::to_string(value));
        return value;
    }
    [[nodiscard]] bool flag_or(std::string const& key, bool fallback) const {
        return has(key) ? flag(json_[key], key) : fallback;
    }
    /// A switch of which only one position has sizes that the planner knows.
    void require(std::string const& key, bool position) const {
        if (flag_or(key, position) != position)
            refuse_json(key, std::string(position ? "true" : "false") + ", the only one that the planner counts");
    }
    [[nodiscard]] std::string text_or(std::string const& key, std::string const& fallback) const {
        return has(key) ? text(json_[key], key) : fallback;
    }

  private:
    Json const& json_;
};

/// What the transformers whose names of fields follow LLaMA's have in common. `kv_heads`: where the file has none.
inline planner::Model llama_sizes(ConfigFields const& fields, std::int64_t kv_heads = 0) {
    std::string const heads = "num_attention_heads";
    planner::Model model{.layers = fields.size("num_hidden_layers", 10000),
                         .hidden = fields.size("hidden_size"),
                         .vocab = fields.size("vocab_size"),
                         .ffn = fields.size("intermediate_size")};
    auto& attention = model.attention;
    attention.heads = fields.size(heads);
    if (!fields.has("head_dim")) (void)fields.divisor_or(heads, 0, "hidden_size", model.hidden);
    attention.head_dim = fields.size_or("head_dim", model.hidden / attention.heads);
    attention.kv_heads =
        fields.divisor_or("num_key_value_heads", kv_heads == 0 ? attention.heads : kv_heads, heads, attention.heads);
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", false);
    fields.require("attention_bias", false);
    fields.require("mlp_bias", false);
    return model;
}

inline planner::ExpertShape routed_experts(ConfigFields const& fields, std::string const& count_key, std::int64_t ffn) {
    planner::ExpertShape experts{.count = fields.size(count_key), .ffn = ffn};
    experts.top_k = fields.size("num_experts_per_tok", experts.count);
    return experts;
}

inline planner::Model llama(ConfigFields const& fields) { return llama_sizes(fields); }
inline planner::Model mistral(ConfigFields const& fields) {
    return llama_sizes(fields, fields.is_absent("num_key_value_heads") ? 8 : 0);
}
inline planner::Model mixtral(ConfigFields const& fields) {
    auto model = mistral(fields);
    model.experts = routed_experts(fields, "num_local_experts", std::exchange(model.ffn, 0));
    return model;
}
/// The main model: modules that predict further tokens (num_nextn_predict_layers) are left out.
inline planner::Model deepseek_v3(ConfigFields const& fields) {
    auto model = llama_sizes(fields);
    model.attention = {.heads = model.attention.heads,
                       .kv_heads = model.attention.heads,
                       .head_dim = fields.size("qk_nope_head_dim"),
                       .query_rank = fields.size_or("q_lora_rank", 0),
                       .kv_rank = fields.size("kv_lora_rank"),
                       .rope_dim = fields.size("qk_rope_head_dim"),
                       .value_dim = fields.size("v_head_dim")};
    model.experts = routed_experts(fields, "n_routed_experts", fields.size("moe_intermediate_size"));
    model.experts.shared = fields.size_or("n_shared_experts", 0);
    model.experts.first = fields.whole("first_k_dense_replace", model.layers);
    model.experts.has_bias = true;
    if (fields.size_or("moe_layer_freq", 1) != 1) // of DeepSeek's own files
        refuse_json("moe_layer_freq",
                    "1, the only one that the planner counts, not " + std::to_string(fields.size("moe_layer_freq")));
    return model;
}
inline planner::Model mamba2(ConfigFields const& fields) {
    planner::Model model{.layers = fields.size("num_hidden_layers", 10000),
                         .hidden = fields.size("hidden_size"),
                         .vocab = fields.size("vocab_size")};
    auto& mamba = model.mamba;
    mamba.heads = fields.size("num_heads");
    mamba.head_dim = fields.size_or("head_dim", 64);
    mamba.state = fields.size("state_size");
    mamba.groups = fields.divisor_or("n_groups", 8, "num_heads", mamba.heads);
    mamba.convolution = fields.size_or("conv_kernel", 4);
    mamba.chunk = fields.size_or("chunk_size", 256);
    if (std::int64_t const inner = fields.size_or("expand", 2) * model.hidden; inner != mamba.inner())
        refuse_json("num_heads", "heads that make up expand x hidden_size = " + std::to_string(inner) +
                                     " elements, not num_heads x head_dim = " + std::to_string(mamba.inner()));
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", false);
    fields.require("use_bias", false);
    fields.require("use_conv_bias", true);
    return model;
}
inline planner::Model gpt2(ConfigFields const& fields) {
    planner::Model model{.layers = fields.size("n_layer", 10000),
                         .hidden = fields.size("n_embd"),
                         .vocab = fields.size("vocab_size"),
                         .feed_forward = planner::FeedForward::gelu,
                         .ties_embeddings = fields.flag_or("tie_word_embeddings", true),
                         .has_biases = true,
                         .positions = fields.size("n_positions")};
    model.ffn = fields.size_or("n_inner", 4 * model.hidden);
    model.attention.heads = fields.size("n_head");
    (void)fields.divisor_or("n_head", 0, "n_embd", model.hidden);
    model.attention.kv_heads = model.attention.heads;
    model.attention.head_dim = model.hidden / model.attention.heads;
    return model;
}

} // namespace detail

/// Throws std::invalid_argument with the field and what is expected there. The sizes of a model must be in the file;
/// other fields that are not there have the values that transformers gives them.
inline planner::Model model_from_config(std::string_view text) {
    using Reader = planner::Model (*)(detail::ConfigFields const&);
    static constexpr std::array<std::pair<std::string_view, Reader>, 6> readers{{{"llama", detail::llama},
                                                                                 {"mistral", detail::mistral},
                                                                                 {"mixtral", detail::mixtral},
                                                                                 {"deepseek_v3", detail::deepseek_v3},
                                                                                 {"mamba2", detail::mamba2},
                                                                                 {"gpt2", detail::gpt2}}};
    auto const json = detail::parse_object(detail::with_quoted_infinities(text));
    detail::ConfigFields const fields(json);
    std::string const type = fields.text_or("model_type", "");
    std::string known;
    for (auto const& [name, read] : readers) {
        known += (known.empty() ? "" : ", ") + std::string(name);
        if (name != type) continue;
        auto model = read(fields);
        model.name = fields.text_or("_name_or_path", "");
        if (model.name.empty()) model.name = type;
        if (planner::parameters(model) > 1e15) detail::refuse_json("its sizes", "at most 10^15 parameters from them");
        return model;
    }
    detail::refuse_json("model_type", "one of " + known +
                                          (type.empty() ? ", and there is none" : ", not \"" + one_line(type) + "\""));
}

/// Reads a config.json; FileError names the file, the field and what is expected there.
inline planner::Model read_model(std::filesystem::path const& path) {
    std::string const text = read_file(path, std::uint64_t{16} << 20); // some list the names of thousands of labels
    try {
        return model_from_config(text);
    } catch (std::invalid_argument const& error) {
        throw FileError("cannot read the model " + path.string() + ": " + error.what());
    }
}

} // namespace pentad::io
