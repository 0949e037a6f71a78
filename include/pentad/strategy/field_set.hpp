// Sets of the fields of a strategy, or of another value that has a table of them.
#pragma once

#include <pentad/strategy/fields.hpp>

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

} // namespace pentad
