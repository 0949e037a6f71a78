// The sizes of a model from a config.json as Hugging Face's transformers writes it. What sets no size (the
// activation, rotary bases, windows of attention, quantization) is not read.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/presets.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

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
inline model::DecoderSizes llama_sizes(ConfigFields const& fields, std::int64_t kv_heads = 0) {
    std::string const heads = "num_attention_heads";
    auto const number = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    std::int64_t const layers = fields.size("num_hidden_layers", 10000), hidden = fields.size("hidden_size");
    std::int64_t const vocab = fields.size("vocab_size"), ffn = fields.size("intermediate_size");
    std::int64_t const count = fields.size(heads);
    if (!fields.has("head_dim")) (void)fields.divisor_or(heads, 0, "hidden_size", hidden);
    model::DecoderSizes const sizes{
        .layers = number(layers),
        .hidden = number(hidden),
        .heads = number(count),
        .kv_heads = number(fields.divisor_or("num_key_value_heads", kv_heads == 0 ? count : kv_heads, heads, count)),
        .head_dim = number(fields.size_or("head_dim", hidden / count)),
        .ffn = number(ffn),
        .vocab = number(vocab),
        .ties_embeddings = fields.flag_or("tie_word_embeddings", false)};
    fields.require("attention_bias", false);
    fields.require("mlp_bias", false);
    return sizes;
}

inline model::Experts routed_experts(ConfigFields const& fields, std::string const& count_key, std::size_t width) {
    std::int64_t const count = fields.size(count_key);
    return {.count = static_cast<std::size_t>(count),
            .top_k = static_cast<std::size_t>(fields.size("num_experts_per_tok", count)),
            .width = width};
}

inline model::Model llama(ConfigFields const& fields) { return model::decoder(llama_sizes(fields)); }
inline model::DecoderSizes mistral_sizes(ConfigFields const& fields) {
    return llama_sizes(fields, fields.is_absent("num_key_value_heads") ? 8 : 0);
}
inline model::Model mistral(ConfigFields const& fields) { return model::decoder(mistral_sizes(fields)); }
inline model::Model mixtral(ConfigFields const& fields) {
    auto sizes = mistral_sizes(fields);
    auto const experts = routed_experts(fields, "num_local_experts", sizes.ffn);
    sizes.experts = experts.count;
    sizes.top_k = experts.top_k;
    return model::decoder(sizes);
}
/// The main model: modules that predict further tokens (num_nextn_predict_layers) are left out.
inline model::Model deepseek_v3(ConfigFields const& fields) {
    auto const number = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    auto const sizes = llama_sizes(fields);
    model::LatentAttention const attention{.heads = sizes.heads,
                                           .head_dim = number(fields.size("qk_nope_head_dim")),
                                           .rope_dim = number(fields.size("qk_rope_head_dim")),
                                           .value_dim = number(fields.size("v_head_dim")),
                                           .query_rank = number(fields.size_or("q_lora_rank", 0)),
                                           .kv_rank = number(fields.size("kv_lora_rank"))};
    auto experts = routed_experts(fields, "n_routed_experts", number(fields.size("moe_intermediate_size")));
    experts.shared = number(fields.size_or("n_shared_experts", 0));
    experts.has_balance_bias = true;
    auto const dense = fields.whole("first_k_dense_replace", static_cast<std::int64_t>(sizes.layers));
    if (fields.size_or("moe_layer_freq", 1) != 1) // of DeepSeek's own files
        refuse_json("moe_layer_freq",
                    "1, the only one that the planner counts, not " + std::to_string(fields.size("moe_layer_freq")));
    return model::deepseek(sizes.layers, sizes.hidden, sizes.vocab, attention, number(dense), sizes.ffn, experts);
}
inline model::Model mamba2(ConfigFields const& fields) {
    auto const number = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    std::int64_t const layers = fields.size("num_hidden_layers", 10000), hidden = fields.size("hidden_size");
    std::int64_t const vocab = fields.size("vocab_size"), heads = fields.size("num_heads");
    model::Mamba2 const mixer{.heads = number(heads),
                              .head_dim = number(fields.size_or("head_dim", 64)),
                              .state = number(fields.size("state_size")),
                              .groups = number(fields.divisor_or("n_groups", 8, "num_heads", heads)),
                              .convolution = number(fields.size_or("conv_kernel", 4)),
                              .chunk = number(fields.size_or("chunk_size", 256))};
    if (auto const inner = number(fields.size_or("expand", 2) * hidden); inner != mixer.inner())
        refuse_json("num_heads", "heads that make up expand x hidden_size = " + std::to_string(inner) +
                                     " elements, not num_heads x head_dim = " + std::to_string(mixer.inner()));
    bool const ties = fields.flag_or("tie_word_embeddings", false);
    fields.require("use_bias", false);
    fields.require("use_conv_bias", true);
    return model::mamba2(number(layers), number(hidden), number(vocab), mixer, ties);
}
inline model::Model gpt2(ConfigFields const& fields) {
    auto const number = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    std::int64_t const layers = fields.size("n_layer", 10000), hidden = fields.size("n_embd");
    std::int64_t const vocab = fields.size("vocab_size"), positions = fields.size("n_positions");
    std::int64_t const ffn = fields.size_or("n_inner", 4 * hidden), heads = fields.size("n_head");
    (void)fields.divisor_or("n_head", 0, "n_embd", hidden);
    auto model =
        model::gpt2(number(layers), number(hidden), number(heads), number(ffn), number(vocab), number(positions));
    model.ties_embeddings = fields.flag_or("tie_word_embeddings", true);
    return model;
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

/// Throws std::invalid_argument with the field and what is expected there. The sizes of a model must be in the file;
/// other fields that are not there have the values that transformers gives them.
inline model::Preset model_from_config(std::string_view text) {
    using Reader = model::Model (*)(detail::ConfigFields const&);
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
        model::Preset read_model{fields.text_or("_name_or_path", ""), read(fields)};
        if (read_model.name.empty()) read_model.name = type;
        if (detail::about_parameters(read_model.model) > 1e15)
            detail::refuse_json("its sizes", "at most 10^15 parameters from them");
        return read_model;
    }
    detail::refuse_json("model_type", "one of " + known +
                                          (type.empty() ? ", and there is none" : ", not \"" + one_line(type) + "\""));
}

/// Reads a config.json; FileError names the file, the field and what is expected there.
inline model::Preset read_model(std::filesystem::path const& path) {
    std::string const text = read_file(path, std::uint64_t{16} << 20); // some list the names of thousands of labels
    try {
        return model_from_config(text);
    } catch (std::invalid_argument const& error) {
        throw FileError("cannot read the model " + path.string() + ": " + error.what());
    }
}

} // namespace pentad::io
