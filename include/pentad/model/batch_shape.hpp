// How the sequences of a step are cut: over the mesh, into micro-batches and slices. One set of rules for trainers,
// the planner and command lines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::model {

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

/// The choice of how a sequence is cut that asks for a divisor.
enum class Cut { plain, zigzag, sequence_parallel };

/// A number that another does not divide.
struct Indivisible {
    std::string_view quantity; ///< "seq"
    std::int64_t value;
    NamedProduct by;
    Cut cut = Cut::plain;

    [[nodiscard]] std::string why() const { return "is not divisible by " + by.text(); }
    [[nodiscard]] std::string message() const {
        return std::string(quantity) + " = " + std::to_string(value) + " " + why() +
               (cut == Cut::zigzag              ? " (zigzag)"
                : cut == Cut::sequence_parallel ? " (sequence parallelism)"
                                                : "");
    }
};

/// All numbers are positive. Which axes share out the sequences of a micro-batch, and the tokens of each, is determined
/// by the residual stream: dp and ep, cp and with sequence parallelism tp, or others.
struct BatchShape {
    std::int64_t batch = 1,
                 micro_batches = 1; ///< sequences in a step, in parts that pass through the model one at a time
    std::int64_t seq = 1, slices = 1;
    NamedProduct batch_axes{}, seq_axes{};
    bool zigzag = false; ///< over cp: each rank has an early and a late piece of a slice

    [[nodiscard]] std::optional<Indivisible> refused_batch() const {
        auto by = batch_axes;
        by.times("micro-batches", micro_batches);
        return refused("batch", batch, by);
    }
    /// Over cp.
    [[nodiscard]] std::optional<Indivisible> refused_seq() const {
        std::int64_t cp = 1;
        for (auto const& [name, extent] : seq_axes.factors())
            if (name == "cp") cp = extent;
        bool const two = zigzag && cp > 1;
        auto by = slices_alone();
        if (two) by.times("2", 2);
        if (cp > 1 || slices == 1) by.times("cp", cp);
        return refused("seq", seq, by, two ? Cut::zigzag : Cut::plain);
    }
    /// Over all its axes.
    [[nodiscard]] std::optional<Indivisible> refused_seq_over_all() const {
        auto by = slices_alone();
        Cut cut = Cut::plain;
        for (auto const& [name, extent] : seq_axes.factors()) {
            by.times(name, extent);
            if (name == "tp") cut = Cut::sequence_parallel;
        }
        return refused("seq", seq, by, cut);
    }
    /// The first that does not fit.
    [[nodiscard]] std::optional<Indivisible> refusal() const {
        if (auto found = refused_batch()) return found;
        if (auto found = refused_seq()) return found;
        return refused_seq_over_all();
    }

  private:
    [[nodiscard]] NamedProduct slices_alone() const {
        return slices > 1 ? NamedProduct().times("slices", slices) : NamedProduct();
    }
    static std::optional<Indivisible> refused(std::string_view quantity, std::int64_t value, NamedProduct const& by,
                                              Cut cut = Cut::plain) {
        if (value % by.value() == 0) return std::nullopt;
        return Indivisible{quantity, value, by, cut};
    }
};

} // namespace pentad::model
