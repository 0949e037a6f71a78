// From the Views that a chunked scan is given to what its kernels know, with the checks that they fit; and what a dry
// run records of it.
#pragma once

#include <pentad/kernels/detail/chunk_scan_problem.hpp>
#include <pentad/kernels/detail/heads.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/observe/dry_run.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace pentad::kernels::detail {

/// @throws std::invalid_argument where the sizes do not make a scan
inline ScanSizes checked(ScanSizes sizes) {
    if (sizes.groups < 1 || sizes.heads % sizes.groups != 0)
        throw std::invalid_argument("chunk_scan: " + std::to_string(sizes.heads) + " heads are not a multiple of " +
                                    std::to_string(sizes.groups) + " groups");
    if (sizes.seq < 1 || sizes.chunk < 1)
        throw std::invalid_argument("chunk_scan: a sequence of " + std::to_string(sizes.seq) + " tokens in chunks of " +
                                    std::to_string(sizes.chunk) + "; both must be at least 1");
    sizes.chunk = std::min(sizes.chunk, sizes.seq);
    if (sizes.chunk > longest_chunk)
        throw std::invalid_argument("chunk_scan: chunks of " + std::to_string(sizes.chunk) +
                                    " tokens; they have up to " + std::to_string(longest_chunk));
    return sizes;
}

/// The sizes that a [batch, seq, groups, state] and a [batch, seq, heads, head_dim] View tell.
template <class OfGroups, class OfHeads>
ScanSizes scan_sizes(OfGroups const& of_groups, OfHeads const& of_heads, i64 chunk) {
    auto const extent = [](auto const& view, int d) { return static_cast<i64>(view.extent(d)); };
    return checked({extent(of_heads, 0), extent(of_heads, 1), extent(of_heads, 2), extent(of_groups, 2),
                    extent(of_groups, 3), extent(of_heads, 3), chunk});
}

template <class View>
auto of_groups(char const* name, View const& view, ScanSizes const& sizes) {
    check_extents("chunk_scan", name, view, {sizes.batch, sizes.seq, sizes.groups, sizes.state});
    return heads_of("chunk_scan", name, view);
}
template <class View>
auto of_heads(char const* name, View const& view, ScanSizes const& sizes) {
    check_extents("chunk_scan", name, view, {sizes.batch, sizes.seq, sizes.heads, sizes.head_dim});
    return heads_of("chunk_scan", name, view);
}
/// Numbers [batch, seq, heads] as rows of one.
template <class Acc, class View>
auto of_tokens(char const* name, View const& view, ScanSizes const& sizes) {
    static_assert(View::rank() == 3, "log decays and their gradient are Views of rank 3");
    static_assert(std::is_same_v<typename View::non_const_value_type, Acc>, "log decays are in accumulator_t<T>");
    if (view.data() == nullptr) return Heads<typename View::value_type>{};
    check_extents("chunk_scan", name, view, {sizes.batch, sizes.seq, sizes.heads});
    return Heads<typename View::value_type>{view.data(), static_cast<i64>(view.stride(0)),
                                            static_cast<i64>(view.stride(1)), static_cast<i64>(view.stride(2))};
}
template <class Acc, class View>
auto of_states(char const* name, View const& view, std::array<i64, View::rank()> const& extents) {
    static_assert(std::is_same_v<typename View::non_const_value_type, Acc>, "states are in accumulator_t<T>");
    if (view.data() == nullptr) return view.data();
    check_extents("chunk_scan", name, view, extents);
    if (view.size() > 0 && !view.span_is_contiguous())
        throw std::invalid_argument(std::string("chunk_scan: ") + name + extents_text(view) + " must be contiguous");
    return view.data();
}
/// Positions [batch, seq] of tokens in their documents.
template <class View>
i32 const* of_documents(View const& view, ScanSizes const& sizes) {
    if (view.data() == nullptr) return view.data();
    check_extents("chunk_scan", "positions", view, {sizes.batch, sizes.seq});
    if (view.size() > 0 && !view.span_is_contiguous())
        throw std::invalid_argument("chunk_scan: positions" + extents_text(view) + " must be contiguous");
    return view.data();
}
inline std::array<i64, 4> state_extents(ScanSizes const& sizes) {
    return {sizes.batch, sizes.heads, sizes.state, sizes.head_dim};
}

template <class T, class Q, class K, class V, class A, class Positions>
ScanProblem<T> scan_problem(ScanSizes const& sizes, Q const& q, K const& k, V const& v, A const& a,
                            Positions const& positions) {
    return {sizes,
            constant<T>(of_groups("q", q, sizes)),
            constant<T>(of_groups("k", k, sizes)),
            constant<T>(of_heads("v", v, sizes)),
            constant<accumulator_t<T>>(of_tokens<accumulator_t<T>>("the log decay", a, sizes)),
            of_documents(positions, sizes)};
}

template <class Acc, class View>
Acc* checked_workspace(View const& workspace, std::size_t needed) {
    static_assert(std::is_same_v<typename View::value_type, Acc>, "the workspace is of accumulators");
    if (workspace.size() < needed)
        throw std::invalid_argument("chunk_scan: a workspace of " + std::to_string(workspace.size()) +
                                    " numbers; it must have " + std::to_string(needed));
    return workspace.data();
}

/// True in a dry run, which records a scan of so many operations over memory that holds these views.
template <class... Views>
bool dry_scan(char const* name, double flops, Views const&... views) {
    auto* const run = observe::dry_run();
    if (run == nullptr) return false;
    run->scan(name, flops, (0.0 + ... + static_cast<double>(views.size() * sizeof(typename Views::value_type))));
    return true;
}

} // namespace pentad::kernels::detail
