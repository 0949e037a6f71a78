// On how many nodes a token's experts lie, in the mean: what a dry run takes tokens to do.
#pragma once

#include <algorithm>
#include <cstddef>

namespace pentad::experts::detail {

/// The probability that none of a token's choices is among `here` of `experts`. @param choices of a token; between
/// whole numbers of them it is interpolated
inline double probability_of_none(double experts, double here, double choices) {
    double none = 1;
    for (double i = 0; i < choices; ++i) {
        double const one = std::max(0.0, experts - here - i) / (experts - i);
        none *= choices - i >= 1 ? one : 1 - (choices - i) * (1 - one);
    }
    return none;
}

/// How many of the nodes, which hold as many experts each, hold one of a token's different experts: the mean over all
/// choices within `top_groups` of the groups of experts (docs/formulas.md, 11).
inline double expected_nodes(std::size_t experts, std::size_t nodes, double choices, std::size_t groups = 1,
                             std::size_t top_groups = 1) {
    auto const number = [](std::size_t n) { return static_cast<double>(n); };
    double const all = number(experts), per_node = all / number(nodes), per_group = all / number(groups);
    double const open = per_group * number(top_groups); // that a token chooses from
    double met = 1 - probability_of_none(all, per_node, choices);
    if (groups > top_groups && nodes % groups == 0) // a node has a part of a group
        met = number(top_groups) / number(groups) * (1 - probability_of_none(open, per_node, choices));
    if (groups > top_groups && groups % nodes == 0) { // a node has `held` groups, `found` of which the token may choose
        std::size_t const held = groups / nodes;
        met = 0;
        for (std::size_t found = 1; found <= std::min(held, top_groups); ++found) {
            double probability = 1; // hypergeometric
            for (std::size_t i = 0; i < found; ++i) probability *= number(held - i) / number(i + 1);
            std::size_t const others = groups - held, more = top_groups - found;
            if (more > others) continue;
            for (std::size_t i = 0; i < more; ++i) probability *= number(others - i) / number(i + 1);
            for (std::size_t i = 0; i < top_groups; ++i) probability *= number(i + 1) / number(groups - i);
            met += probability * (1 - probability_of_none(open, number(found) * per_group, choices));
        }
    }
    return number(nodes) * met;
}

} // namespace pentad::experts::detail
