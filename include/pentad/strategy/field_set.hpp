// Sets of the fields of a strategy, or of another value that has a table of them.
#pragma once

#include <pentad/strategy/fields.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>

namespace pentad {

/// Fields of T, each named by the pointer to its member.
template <HasFields T>
class FieldSet {
  public:
    constexpr FieldSet() = default;
    template <class... Members>
    explicit constexpr FieldSet(Members T::*... members) {
        (add(members), ...);
    }
    template <class Member>
    constexpr void add(Member T::* member) {
        bits_ |= bit(member);
    }
    template <class Member>
    constexpr void remove(Member T::* member) {
        bits_ &= ~bit(member);
    }
    template <class Member>
    [[nodiscard]] constexpr bool contains(Member T::* member) const {
        return (bits_ & bit(member)) != 0;
    }

    /// By name, as FieldsOf<T> has it; of a field that is not there nothing is removed.
    constexpr void remove(std::string_view name) { bits_ &= ~bit(name); }
    [[nodiscard]] constexpr bool contains(std::string_view name) const { return (bits_ & bit(name)) != 0; }

    friend constexpr bool operator==(FieldSet const&, FieldSet const&) = default;

  private:
    static_assert(std::tuple_size_v<std::remove_const_t<decltype(FieldsOf<T>::value)>> <= 64);

    template <class Member>
    static constexpr std::uint64_t bit(Member T::* member) {
        std::uint64_t bit = 0, next = 1;
        for_each_field<T>([&]<class Other>(Field<T, Other> const& field) {
            if constexpr (std::is_same_v<Other, Member>)
                if (field.member == member) bit = next;
            next <<= 1;
        });
        return bit;
    }

    static constexpr std::uint64_t bit(std::string_view name) {
        std::uint64_t bit = 0, next = 1;
        for_each_field<T>([&](auto const& field) {
            if (field.name == name) bit = next;
            next <<= 1;
        });
        return bit;
    }

    std::uint64_t bits_ = 0;
};

/// The part of a strategy that is an Of: its sharding, its blocks, or all of it.
template <class Of, class S>
    requires std::same_as<std::remove_const_t<S>, Strategy>
constexpr auto& part_of(S& strategy) {
    if constexpr (std::same_as<Of, ZeroSharding>)
        return strategy.sharding;
    else if constexpr (std::same_as<Of, model::BlockStrategy>)
        return strategy.block;
    else {
        static_assert(std::same_as<Of, Strategy>);
        return strategy;
    }
}

/// Fields of a strategy, of its sharding and of its blocks.
class StrategyFields {
  public:
    constexpr StrategyFields() = default;
    template <class... Of, class... Members>
    explicit constexpr StrategyFields(Members Of::*... members) {
        (add(members), ...);
    }
    template <class Of, class Member>
    constexpr void add(Member Of::* member) {
        of<Of>().add(member);
    }
    template <class Of, class Member>
    constexpr void remove(Member Of::* member) {
        of<Of>().remove(member);
    }
    template <class Of, class Member>
    [[nodiscard]] constexpr bool contains(Member Of::* member) const {
        return std::get<FieldSet<Of>>(sets_).contains(member);
    }
    /// By path: "schedule", "sharding.stage". A path into another field means the whole of that: "recompute.every" is
    /// recompute. Where there is no such field, nothing is removed.
    constexpr void remove(std::string_view path) {
        with_set(*this, path, [](auto& fields, std::string_view name) { fields.remove(name); });
    }
    [[nodiscard]] constexpr bool contains(std::string_view path) const {
        bool found = false;
        with_set(*this, path, [&](auto const& fields, std::string_view name) { found = fields.contains(name); });
        return found;
    }

  private:
    using Sets = std::tuple<FieldSet<Strategy>, FieldSet<ZeroSharding>, FieldSet<model::BlockStrategy>>;
    template <class Of>
    constexpr FieldSet<Of>& of() {
        return std::get<FieldSet<Of>>(sets_);
    }
    /// f(set, name) for the set that a path leads to, and the name in it.
    template <class Self, class F>
    static constexpr void with_set(Self& self, std::string_view path, F&& f) {
        auto const first = path.substr(0, path.find('.'));
        auto const rest = path.substr(std::min(path.size(), first.size() + 1));
        bool is_part = false;
        for_each_field<Strategy>([&]<class Member>(Field<Strategy, Member> const& field) {
            if constexpr (std::same_as<Member, ZeroSharding> || std::same_as<Member, model::BlockStrategy>)
                if (field.name == first && !rest.empty()) {
                    is_part = true;
                    f(std::get<FieldSet<Member>>(self.sets_), rest.substr(0, rest.find('.')));
                }
        });
        if (!is_part) f(std::get<FieldSet<Strategy>>(self.sets_), first);
    }

    Sets sets_;
};

} // namespace pentad
