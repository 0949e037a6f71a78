// Mixture of experts over ep: rows that are dispatched, capacity and what exceeds it,
// the imbalance of a routing, and how many ranks or nodes the experts of a token lie on.
#pragma once

#include <formulas/volume.hpp>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::planner {

/// A layer of experts under balanced routing.
struct DispatchSizes {
    std::int64_t tokens = 1; ///< of all ranks of ep
    std::int64_t hidden = 1;
    std::int64_t top_k = 1;
    std::int64_t ranks = 1;   ///< extent of ep
    std::int64_t experts = 0; ///< of which each rank holds as many
    std::int64_t nodes = 1;   ///< of as many ranks, where a token goes once to each; 1: in one exchange
};

/// Rows that a rank would send in one dispatch, or one combine, if a row went for each choice of a token and choices
/// fell on all ranks alike: its tokens x top_k x (n-1)/n.
constexpr double dispatched_rows(DispatchSizes const& of) {
    auto const own = static_cast<double>(per_rank("tokens", of.tokens, "ep", of.ranks) * of.top_k);
    return all_to_all_bytes(own, of.ranks);
}

/// What a rank sends where experts select tokens among those of n ranks: sums of 256 counts of 8 bytes for each expert
/// and digit, of the score where that decides (6 digits of f64, 3 of f32) and of the token's number.
constexpr double selection_bytes(std::int64_t experts, std::int64_t ranks, int score_digits, std::int64_t tokens) {
    int digits = score_digits;
    for (; tokens > 0; tokens >>= 8) ++digits;
    auto const n = static_cast<double>(ranks);
    return 2 * (n - 1) / n * 8 * 256 * static_cast<double>(experts * digits);
}

/// What a rank sends for these rows: forward a dispatch and a combine, backward their adjoints, which are the same two.
constexpr SentBytes dispatch_and_combine_bytes(DispatchSizes const& of, double element_bytes) {
    double const sent = 2 * dispatched_rows(of) * static_cast<double>(of.hidden) * element_bytes;
    return {sent, sent};
}

/// Experts that lie on groups of as many: ranks, or nodes.
struct ExpertGroups {
    std::int64_t experts = 1;
    std::int64_t groups = 1;
    std::int64_t top_k = 1;
    std::int64_t most_groups = 0; ///< that the experts of a token may lie on (DeepSeek-V3: 4 nodes); 0: any
};

/// The mean number of groups that a token's experts lie on: as many rows does it send where a group gets one. All sets
/// of top_k experts are equally likely, within groups drawn first where `most_groups` bounds them. A share of 1/groups
/// of it is the token's own group.
/// @throws std::invalid_argument when the groups do not divide the experts or hold too few
constexpr double mean_groups_of_a_token(ExpertGroups const& of) {
    std::int64_t const in_group = per_rank("experts", of.experts, "groups", of.groups);
    std::int64_t const groups = of.most_groups > 0 ? std::min(of.most_groups, of.groups) : of.groups;
    std::int64_t const open = groups * in_group; // experts that may be chosen
    if (of.top_k < 1 || of.top_k > open)
        throw std::invalid_argument("top_k = " + std::to_string(of.top_k) + " of " + std::to_string(open) +
                                    " experts: choose at least 1 and no more than there are");
    double missed = 1; // C(open - in_group, top_k) / C(open, top_k): no choice falls on a group
    for (std::int64_t i = 0; i < of.top_k; ++i)
        missed *= static_cast<double>(std::max<std::int64_t>(open - in_group - i, 0)) / static_cast<double>(open - i);
    return static_cast<double>(groups) * (1 - missed);
}

/// Rows that a rank sends to others in one dispatch, or one combine.
struct SentRows {
    double across = 0; ///< to other nodes, where a token goes once to each
    double inside = 0; ///< to other ranks of its node; in one exchange, of all of ep
};

/// A row for each rank that a token chose; on several nodes in two row exchanges: first over the ranks of the same
/// number on all nodes, a row for each node that a token chose, then within the node. In the mean a rank has as many
/// rows to pass on as its own tokens have.
constexpr SentRows sent_rows(DispatchSizes const& of) {
    auto const own = static_cast<double>(per_rank("tokens", of.tokens, "ep", of.ranks));
    auto const of_a_token = [&](std::int64_t places) {
        return own * mean_groups_of_a_token({.experts = of.experts, .groups = places, .top_k = of.top_k});
    };
    if (of.nodes == 1) return {.inside = all_to_all_bytes(of_a_token(of.ranks), of.ranks)};
    return {.across = all_to_all_bytes(of_a_token(of.nodes), of.nodes),
            .inside = all_to_all_bytes(of_a_token(of.ranks), per_rank("ep", of.ranks, "nodes", of.nodes))};
}

/// Bytes that a rank sends by exchange.
struct DispatchBytes {
    SentBytes across, inside;
};

/// All that a rank sends for a layer: before rows go their numbers do, 8 bytes for each rank (across nodes: for each
/// node). Each row goes there and back, forward and backward. With it go, in accumulators, the top_k choices and their
/// weights; the gradients of the weights come back.
constexpr DispatchBytes dispatch_bytes(DispatchSizes const& of, double element_bytes, double accumulator_bytes) {
    auto const rows = sent_rows(of);
    double const there_and_back = 2 * static_cast<double>(of.hidden) * element_bytes;
    double const weights = static_cast<double>(of.top_k) * accumulator_bytes;
    double const across = rows.across * there_and_back, inside = rows.inside * there_and_back;
    return {
        .across = {all_to_all_bytes(8 * static_cast<double>(of.nodes), of.nodes) + across + rows.across * 2 * weights,
                   across + rows.across * weights},
        .inside = {all_to_all_bytes(8 * static_cast<double>(of.ranks / of.nodes), of.ranks / of.nodes) + inside +
                       rows.inside * 2 * weights,
                   inside + rows.inside * weights}};
}

/// Rows that an expert takes: factor x the mean, rounded down. `rows` counts each choice of a token: tokens x top_k.
constexpr std::int64_t expert_capacity(std::int64_t rows, std::int64_t experts, double factor) {
    if (rows < 0 || experts < 1 || !(factor >= 0))
        throw std::invalid_argument("a capacity needs rows, at least one expert and a factor that is not negative");
    // 2.4 x 125 is 300, also in binary.
    return static_cast<std::int64_t>(factor * static_cast<double>(rows) / static_cast<double>(experts) + 1e-9);
}

/// Rows that exceed a capacity, for each expert.
inline std::vector<std::int64_t> dropped_rows(std::span<std::int64_t const> rows, std::int64_t capacity) {
    std::vector<std::int64_t> dropped;
    for (auto const n : rows) dropped.push_back(std::max<std::int64_t>(n - capacity, 0));
    return dropped;
}

/// The largest load over the mean one. Of experts it is the least capacity factor that drops nothing; of ranks, how
/// much longer a layer of experts takes than a balanced one.
/// @throws std::invalid_argument when there is no load
constexpr double load_imbalance(std::span<std::int64_t const> rows) {
    auto const sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    if (sum < 1) throw std::invalid_argument("the imbalance of no rows: give the rows of each expert, some above 0");
    return static_cast<double>(*std::max_element(rows.begin(), rows.end())) * static_cast<double>(rows.size()) /
           static_cast<double>(sum);
}

/// What all ranks that share an expert send where it moves to another rank, in elements of `bytes`: the three matrices
/// of a gated MLP and the optimizer's states of them. With ZeRO an upper bound: elements whose old and new owner are
/// the same rank are not sent.
constexpr double moved_expert_bytes(std::int64_t hidden, std::int64_t width, std::int64_t states, std::int64_t bytes) {
    return 3.0 * static_cast<double>(hidden * width) * static_cast<double>((1 + states) * bytes);
}

/// The rows of each rank, from those of its experts, which lie next to each other.
inline std::vector<std::int64_t> rows_of_ranks(std::span<std::int64_t const> rows, std::int64_t ranks) {
    auto const own = per_rank("experts", static_cast<std::int64_t>(rows.size()), "ep", ranks);
    std::vector<std::int64_t> sums(static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < rows.size(); ++i) sums[i / static_cast<std::size_t>(own)] += rows[i];
    return sums;
}

} // namespace pentad::planner
