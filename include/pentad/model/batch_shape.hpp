// How the sequences of a step are cut: over the mesh, into micro-batches and slices, and how they are padded for it.
// One set of rules for trainers, the planner and command lines.
#pragma once

#include <pentad/model/attention_output.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::model {

/// Whether layers deal the tokens of a sequence to the ranks of tp, also where the residual stream does not.
constexpr bool deals_to_tp(AttentionOutput output, bool has_experts) {
    return output == AttentionOutput::all_to_all || has_experts;
}

/// A product of named numbers, such as the extents of axes. Does not allocate, since searches evaluate many of them.
class NamedProduct {
  public:
    struct Factor {
        std::string_view name;
        std::int64_t value;
    };
    NamedProduct& times(std::string_view name, std::int64_t value) {
        if (count_ == factors_.size()) throw std::length_error("pentad: a product of more than 8 names");
        factors_[count_++] = {name, value};
        constexpr auto most = std::numeric_limits<std::int64_t>::max();
        value_ = value < 1 || value_ > most / value ? most : value_ * value;
        return *this;
    }
    /// The product, or the largest number where that is more.
    [[nodiscard]] std::int64_t value() const { return value_; }
    [[nodiscard]] std::span<Factor const> factors() const { return std::span(factors_).first(count_); }
    /// "slices x 2 x cp = 4 x 2 x 2 = 16"
    [[nodiscard]] std::string text() const {
        std::string names, values;
        std::size_t plain = 0; // numbers for their own sake
        for (auto const& [name, value] : factors()) {
            auto const number = std::to_string(value);
            names += (names.empty() ? "" : " x ") + std::string(name);
            values += (values.empty() ? "" : " x ") + number;
            plain += name == number ? 1 : 0;
        }
        bool const says_values = count_ - plain > 1 || count_ > 2;
        return names + " = " + (says_values ? values + " = " : "") + std::to_string(value_);
    }

  private:
    std::array<Factor, 8> factors_{};
    std::size_t count_ = 0;
    std::int64_t value_ = 1;
};

/// A number that another does not divide.
struct Indivisible {
    std::string_view quantity; ///< "batch"
    std::int64_t value;
    NamedProduct by;

    [[nodiscard]] std::string why() const { return "is not divisible by " + by.text(); }
    [[nodiscard]] std::string message() const {
        return std::string(quantity) + " = " + std::to_string(value) + " " + why();
    }
};

/// All numbers are positive. Which axes share out the sequences of a micro-batch, and the tokens of each, is determined
/// by the residual stream: dp, cp and with sequence parallelism tp, or others.
struct BatchShape {
    std::int64_t batch = 1,
                 micro_batches = 1;   ///< sequences in a step, in parts that pass through the model one at a time
    std::int64_t seq = 1, slices = 1; ///< tokens of a sequence, without padding, and the passes that share them out
    NamedProduct batch_axes{}, seq_axes{};
    bool zigzag = false;         ///< over cp: each shard has an early and a late piece of a slice
    std::int64_t head_ranks = 1; ///< ranks of cp that share a shard, since they exchange heads
    std::int64_t multiple = 1;   ///< of tokens of a slice, that blocks with meshes of their own want

    [[nodiscard]] std::optional<Indivisible> refusal() const {
        auto by = batch_axes;
        by.times("micro-batches", micro_batches);
        if (batch % by.value() == 0) return std::nullopt;
        return Indivisible{"batch", batch, by};
    }
    /// All ranks have as many tokens of each slice, and the pieces of zigzag order are equal, where this divides the
    /// tokens of a sequence.
    [[nodiscard]] std::int64_t seq_multiple() const {
        std::int64_t cp = 1;
        for (auto const& [name, extent] : seq_axes.factors())
            if (name == "cp") cp = extent;
        auto const shards = cp / head_ranks;
        return slices * std::lcm(multiple, std::lcm(seq_axes.value(), zigzag && shards > 1 ? 2 * shards : 1));
    }
    /// Tokens of a sequence with the padding at its end, of which there is as little as can be.
    [[nodiscard]] std::int64_t padded_seq() const {
        auto const multiple = seq_multiple();
        return (seq + multiple - 1) / multiple * multiple;
    }
};

} // namespace pentad::model
