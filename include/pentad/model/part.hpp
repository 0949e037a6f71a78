// What a branch of a block computes, said as a value: any plain struct that has a kind. The library knows those of
// parts.hpp; users add their own, and the layer that computes it (layers/registry.hpp).
#pragma once

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <typeindex>
#include <typeinfo>
#include <utility>

namespace pentad::model {

/// A plain struct that describes a part: `kind` names it, text() gives its sizes for a person; equal ones are computed
/// alike.
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
        P part;
    };
    std::shared_ptr<Base const> held_;
};

} // namespace pentad::model
