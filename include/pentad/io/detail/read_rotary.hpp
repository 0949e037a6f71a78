// Rotary embedding in a config.json, both ways: rope_theta and rope_scaling, or both in rope_parameters (transformers
// 5). What it means is in transformers' modeling_rope_utils.py.
#pragma once

#include <pentad/io/detail/config_fields.hpp>
#include <pentad/model/rotary.hpp>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace pentad::io::detail {

/// Position interpolation (Chen et al. 2023, arXiv 2306.15595): of Llama 3's scaling the case in which no pair is fast.
inline model::RotaryScaling linear_scaling(double factor) {
    double const never = std::numeric_limits<double>::infinity();
    return {.factor = factor, .low_frequency_factor = never, .high_frequency_factor = never};
}

/// The members of rope_scaling or rope_parameters, each read once by name.
class RotaryFields {
  public:
    RotaryFields(Json const& json, std::string key) : json_(json), key_(std::move(key)) {
        if (!json_.is_object()) refuse_json(key_, "an object", json_);
    }
    [[nodiscard]] bool has(std::string const& name) {
        known_.insert(name);
        return json_.contains(name) && !json_[name].is_null();
    }
    [[nodiscard]] double number(std::string const& name, double fallback, double least) {
        return has(name) ? ConfigFields::number(json_[name], key_ + "." + name, least, 1e12) : fallback;
    }
    [[nodiscard]] double number(std::string const& name, double least) {
        (void)member(json_, name, key_ + "." + name);
        return number(name, least, least);
    }
    /// A member of which only this value is computed.
    void require(std::string const& name, double only) {
        double const slack = 1e-6 * std::abs(only); // of what was printed in short
        if (has(name) && !(std::abs(number(name, only, 0) - only) <= slack))
            refuse_json(key_ + "." + name, Json(only).dump() + ", the only value that is supported", json_[name]);
    }
    void require(std::string const& name, bool only) {
        if (has(name) && json_[name] != Json(only))
            refuse_json(key_ + "." + name, Json(only).dump() + ", the only value that is supported", json_[name]);
    }
    [[nodiscard]] std::string type() {
        auto const name = has("rope_type") || !has("type") ? "rope_type" : "type";
        type_key_ = key_ + "." + name;
        return has(name) ? text(json_[name], type_key_) : "default";
    }
    [[noreturn]] void refuse_type(std::string const& found) const {
        refuse_json(type_key_, "default, linear, llama3 or yarn, which are supported, not \"" + one_line(found) + "\"");
    }
    [[noreturn]] void refuse(std::string const& name, std::string const& expected) const {
        refuse_json(key_ + "." + name, expected);
    }
    void finish() const {
        std::vector<std::string> left;
        for (auto const& [name, value] : json_.items())
            if (!known_.contains(name) && !value.is_null()) left.push_back(name);
        ConfigFields::refuse_unknown(key_ + ".", left);
    }

  private:
    Json const& json_;
    std::string key_, type_key_;
    std::set<std::string> known_;
};

/// A factor of 1 scales nothing, whatever else is said.
inline model::RotaryScaling read_llama3(RotaryFields& fields) {
    model::RotaryScaling const scaling{.factor = fields.number("factor", 1),
                                       .low_frequency_factor = fields.number("low_freq_factor", 1e-6),
                                       .high_frequency_factor = fields.number("high_freq_factor", 1e-6),
                                       .original_positions = fields.number("original_max_position_embeddings", 1)};
    if (scaling.high_frequency_factor <= scaling.low_frequency_factor)
        fields.refuse("high_freq_factor", "more than low_freq_factor");
    return scaling.factor == 1 ? model::RotaryScaling() : scaling;
}

inline model::Yarn read_yarn(RotaryFields& fields, double theta) {
    model::Yarn yarn{.factor = fields.number("factor", 1),
                     .original_positions = fields.number("original_max_position_embeddings", 1)};
    yarn.fast = fields.number("beta_fast", yarn.fast, 1e-6);
    yarn.slow = fields.number("beta_slow", yarn.slow, 1e-6);
    yarn.turned_scale = fields.number("mscale", yarn.turned_scale, 0);
    yarn.score_scale = fields.number("mscale_all_dim", yarn.score_scale, 0);
    fields.require("truncate", true);
    fields.require("attention_factor", yarn.amplitude());
    if (yarn.fast <= yarn.slow) fields.refuse("beta_fast", "more than beta_slow");
    if (theta <= 1) refuse_json("rope_theta", "more than 1, which YaRN needs");
    return yarn.factor == 1 ? model::Yarn() : yarn;
}

/// @param share of a head that this family turns
inline model::Rotary read_rotary(ConfigFields& fields, double default_theta, double share = 1) {
    model::Rotary rotary{.theta = fields.number_or("rope_theta", default_theta, 1, 1e12), .share = share};
    fields.require("partial_rotary_factor", share);
    for (std::string const key : {"rope_scaling", "rope_parameters"}) {
        if (!fields.has(key)) continue;
        RotaryFields members(fields.at(key), key);
        auto const type = members.type();
        rotary.theta = members.number("rope_theta", rotary.theta, 1);
        members.require("partial_rotary_factor", share);
        if (type == "linear") {
            auto const factor = members.number("factor", 1);
            if (factor != 1) rotary.scaling = linear_scaling(factor);
        } else if (type == "llama3") {
            rotary.scaling = read_llama3(members);
        } else if (type == "yarn") {
            rotary.yarn = read_yarn(members, rotary.theta);
        } else if (type != "default") {
            members.refuse_type(type);
        }
        members.finish();
    }
    return rotary;
}

/// rope_theta, and rope_scaling where frequencies are scaled.
inline void add_rotary(OrderedJson& config, model::Rotary const& rotary) {
    config["rope_theta"] = rotary.theta;
    auto const& scaling = rotary.scaling;
    auto const& yarn = rotary.yarn;
    if (yarn.factor != 1) {
        OrderedJson json{{"rope_type", "yarn"},
                         {"factor", yarn.factor},
                         {"original_max_position_embeddings", std::llround(yarn.original_positions)},
                         {"beta_fast", yarn.fast},
                         {"beta_slow", yarn.slow}};
        if (yarn.turned_scale > 0) json["mscale"] = yarn.turned_scale;
        if (yarn.score_scale > 0) json["mscale_all_dim"] = yarn.score_scale;
        config["rope_scaling"] = std::move(json);
    } else if (scaling == linear_scaling(scaling.factor)) {
        config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", scaling.factor}};
    } else if (scaling.factor != 1) {
        config["rope_scaling"] = {{"rope_type", "llama3"},
                                  {"factor", scaling.factor},
                                  {"low_freq_factor", scaling.low_frequency_factor},
                                  {"high_freq_factor", scaling.high_frequency_factor},
                                  {"original_max_position_embeddings", std::llround(scaling.original_positions)}};
    }
}

} // namespace pentad::io::detail
