// What a branch of a block computes, said as a value: any plain struct that has a kind. The library knows those of
// parts.hpp; users add their own, and the layer that computes it (layers/registry.hpp).
#pragma once

#include <pentad/model/part_ranks.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <utility>

namespace pentad::model {

/// A plain struct that describes a part: `kind` names it, text() gives its sizes for a person; equal ones are computed
/// alike. It may have also, as const member functions, what Part answers beside these: what a part does not say is
/// refused where it matters.
template <class P>
concept Describes = requires(P const& part) {
    { P::kind } -> std::convertible_to<std::string_view>;
    { part.text() } -> std::convertible_to<std::string>;
} && std::copyable<P> && std::equality_comparable<P>;

/// A part of any kind. A value that does not change: copies share what they hold.
class Part {
  public:
    template <Describes P>
    Part(P part) // NOLINT: a part is given where a Part is wanted
        : held_(std::make_shared<Held<P>>(std::move(part))) {}

    [[nodiscard]] std::string_view kind() const { return held_->kind(); }
    [[nodiscard]] std::string text() const { return held_->text(); }
    [[nodiscard]] std::type_index type() const { return held_->type(); }
    /// Whether what it makes of a token depends on later tokens of its sequence. It then keeps padding from the others,
    /// which begins where SequenceMap::documents says. Nothing where the part does not say it.
    [[nodiscard]] std::optional<bool> sees_later_tokens() const { return held_->sees_later_tokens(); }
    /// Whether tokens of packed documents (SequenceMap::documents) do not see those of others.
    [[nodiscard]] bool keeps_documents_apart() const { return held_->keeps_documents_apart(); }
    /// Whether there is a layer of it for the grids of tensor parallelism (layout/streams.hpp).
    [[nodiscard]] bool is_for_grids() const { return held_->is_for_grids(); }
    /// Whether its layer sends along the axes of experts, or has parameters on them. Yes where the part does not say
    /// it.
    [[nodiscard]] bool is_on_expert_axes() const { return held_->is_on_expert_axes(); }
    /// Heads of queries, which strategies of attention deal over cp, and of keys and values, which are held several
    /// times where the ranks of tp are more. 0: it has none that go so.
    [[nodiscard]] std::size_t query_heads() const { return held_->query_heads(); }
    [[nodiscard]] std::size_t key_value_heads() const { return held_->key_value_heads(); }
    /// Why these ranks cannot share it; nothing where they can.
    [[nodiscard]] std::optional<Refusal> refusal(PartRanks const& on) const;
    /// The part as a P, or null where it is something else.
    template <Describes P>
    [[nodiscard]] P const* as() const {
        auto const* held = dynamic_cast<Held<P> const*>(held_.get());
        return held == nullptr ? nullptr : &held->part;
    }

    friend bool operator==(Part const& a, Part const& b) { return a.held_ == b.held_ || a.held_->equals(*b.held_); }

  private:
    struct Base {
        virtual ~Base() = default;
        [[nodiscard]] virtual std::string_view kind() const = 0;
        [[nodiscard]] virtual std::string text() const = 0;
        [[nodiscard]] virtual std::type_index type() const = 0;
        [[nodiscard]] virtual bool equals(Base const& other) const = 0;
        [[nodiscard]] virtual std::optional<bool> sees_later_tokens() const = 0;
        [[nodiscard]] virtual bool keeps_documents_apart() const = 0;
        [[nodiscard]] virtual bool is_for_grids() const = 0;
        [[nodiscard]] virtual bool is_on_expert_axes() const = 0;
        [[nodiscard]] virtual std::size_t query_heads() const = 0;
        [[nodiscard]] virtual std::size_t key_value_heads() const = 0;
        [[nodiscard]] virtual std::optional<Refusal> refusal(PartRanks const& on) const = 0;
    };
    template <class P>
    struct Held final : Base {
        explicit Held(P given) : part(std::move(given)) {}
        [[nodiscard]] std::string_view kind() const override { return P::kind; }
        [[nodiscard]] std::string text() const override { return part.text(); }
        [[nodiscard]] std::type_index type() const override { return typeid(P); }
        [[nodiscard]] bool equals(Base const& other) const override {
            auto const* held = dynamic_cast<Held const*>(&other);
            return held != nullptr && held->part == part;
        }
        [[nodiscard]] std::optional<bool> sees_later_tokens() const override {
            if constexpr (requires { part.sees_later_tokens(); }) return part.sees_later_tokens();
            return std::nullopt;
        }
        [[nodiscard]] bool keeps_documents_apart() const override {
            if constexpr (requires { part.keeps_documents_apart(); }) return part.keeps_documents_apart();
            return false;
        }
        [[nodiscard]] bool is_for_grids() const override {
            if constexpr (requires { part.is_for_grids(); }) return part.is_for_grids();
            return false;
        }
        [[nodiscard]] bool is_on_expert_axes() const override {
            if constexpr (requires { part.is_on_expert_axes(); }) return part.is_on_expert_axes();
            return true;
        }
        [[nodiscard]] std::size_t query_heads() const override {
            if constexpr (requires { part.query_heads(); }) return part.query_heads();
            return 0;
        }
        [[nodiscard]] std::size_t key_value_heads() const override {
            if constexpr (requires { part.key_value_heads(); }) return part.key_value_heads();
            return 0;
        }
        [[nodiscard]] std::optional<Refusal> refusal([[maybe_unused]] PartRanks const& on) const override {
            if constexpr (requires { part.refusal(on); }) return part.refusal(on);
            return std::nullopt;
        }
        P part;
    };
    std::shared_ptr<Base const> held_;
};

inline std::optional<Refusal> Part::refusal(PartRanks const& on) const {
    if (auto refused = held_->refusal(on)) return refused;
    auto const heads = static_cast<std::int64_t>(query_heads()), own = heads / on.ranks_of_heads;
    auto const by = on.context.head_ranks(on.cp);
    if (own % by == 0) return std::nullopt;
    return Refusal{"heads", "heads = " + std::to_string(heads) + " over " + on.tensor_text(on.ranks_of_heads) +
                                " gives " + std::to_string(own) + ", which are not divisible by the " +
                                std::to_string(by) + " ranks of cp that exchange heads"};
}

} // namespace pentad::model
