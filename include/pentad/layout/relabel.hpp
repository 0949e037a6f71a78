// Whether memory of one layout holds the value of another, so that nothing but names changes.
#pragma once

#include <pentad/layout/layout.hpp>
#include <pentad/layout/text.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace pentad {

/// Why a tensor of one layout is not one of another under other names.
enum class RelabelError : std::uint8_t {
    none,
    elements_differ,
    ranks_differ,
    shards_differ,
    partial_differs,
    ghosts_differ
};

/// One sentence for each RelabelError: what is wrong and what to do.
inline constexpr std::array<std::string_view, 6> relabel_error_texts{
    "",
    "pentad: the layouts have different elements: convert the tensor",
    "pentad: the layouts have different numbers of dimensions",
    "pentad: the layouts are sharded differently: redistribute the tensor, or take its memory by reinterpret_as",
    "pentad: summands are not a value, nor a value summands: redistribute the tensor, or take its memory by "
    "reinterpret_as",
    "pentad: ghost cells become stale by a name only: redistribute the tensor, or take its memory by reinterpret_as",
};

/// Why memory of layout `from` is not the value of layout `to`: the names of dimensions may differ, invariant and
/// replicated are one, and ghost cells may be stale from now on.
constexpr RelabelError relabel_error(LayoutValue const& from, LayoutValue const& to) {
    if (from.element != to.element) return RelabelError::elements_differ;
    if (from.rank != to.rank) return RelabelError::ranks_differ;
    for (std::size_t d = 0; d < from.rank; ++d)
        if (from.dimensions[d].axes != to.dimensions[d].axes) return RelabelError::shards_differ;
    for (auto const* of : {&from, &to}) {
        auto const& other = of == &from ? to : from;
        for (auto const* list : {&of->partial, &of->partial_max, &of->partial_min, &of->partial_log_sum_exp})
            for (auto const axis : *list)
                if (other.placement(axis) != of->placement(axis)) return RelabelError::partial_differs;
    }
    for (std::size_t d = 0; d < from.rank; ++d) {
        auto const &a = from.dimensions[d], &b = to.dimensions[d];
        bool const is_same = a.ghosts == b.ghosts && a.boundary == b.boundary;
        if (a.width != b.width || (!is_same && b.ghosts != Ghosts::stale)) return RelabelError::ghosts_differ;
    }
    return RelabelError::none;
}

/// Compiles only where memory of the one layout is the value of the other.
template <class From, class To>
consteval void require_relabelled() {
    constexpr auto error = std::is_same_v<typename From::element, typename To::element>
                               ? relabel_error(From::value, To::value)
                               : RelabelError::elements_differ;
    if constexpr (error != RelabelError::none)
        refuse<Text() << relabel_error_texts[static_cast<std::size_t>(error)] << ": from " << layout_text<From>.view()
                      << " to " << layout_text<To>.view()>();
}

} // namespace pentad
