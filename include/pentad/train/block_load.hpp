// How even the load of a block's experts is: numbers for people, the same on every rank.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/experts/balanced_order.hpp>
#include <pentad/layers/router_load.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/run_settings.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::train {

/// What the router of a block has done with all tokens of some steps.
struct BlockLoad {
    std::size_t block = 0;       ///< from 0
    std::vector<double> choices; ///< of each expert, with room for the token or without
    std::vector<i32> order;      ///< the experts by their places, dealt to ranks and nodes, an equal number to each
    double dropped = 0;          ///< choices without room
    double least_bias = 0, most_bias = 0;
    bool has_bias = false;
    std::size_t ranks = 1, nodes = 1; ///< that hold the experts

    [[nodiscard]] double total() const { return std::accumulate(choices.begin(), choices.end(), 0.0); }
    /// The largest load over the mean, of `parts` that have as many experts each; 0 where there are no choices.
    [[nodiscard]] double imbalance(std::size_t parts) const {
        double const largest = std::ranges::max(experts::rank_loads(order, choices, parts));
        return total() > 0 ? largest * static_cast<double>(parts) / total() : 0;
    }
    /// The largest load of an expert over the mean; 0 if there are no choices.
    [[nodiscard]] double imbalance() const { return imbalance(choices.size()); }
    /// The entropy of the choices over its largest possible value: 1 if all experts have equal numbers of them.
    [[nodiscard]] double entropy() const {
        double sum = 0;
        for (double const count : choices)
            if (count > 0) sum -= count / total() * std::log(count / total());
        return choices.size() > 1 ? sum / std::log(static_cast<double>(choices.size())) : 1;
    }
    [[nodiscard]] double dropped_part() const { return total() > 0 ? dropped / total() : 0; }
};

/// The loads of all blocks of a model that have experts, from those of this rank's. Collective over the mesh.
/// @param orders of the experts, of each block @param visit calls f(block, RouterLoad) for the blocks here
template <class Exec, class Visit>
std::vector<BlockLoad> block_loads(Context<Exec> const& context, model::Model const& model,
                                   std::vector<BlockOrder> const& orders, Visit&& visit) {
    std::vector<BlockLoad> loads;
    std::vector<std::size_t> first; // of each block's numbers
    std::size_t size = 0;
    auto order = orders.begin();
    for (std::size_t i = 0; i < model.block_count(); ++i) {
        first.push_back(size);
        if (auto const* experts = model.find<model::Experts>(i)) {
            loads.push_back({.block = i, .choices = std::vector<double>(experts->count), .order = order++->experts});
            size += experts->count + 1;
        }
    }
    if (loads.empty()) return loads;
    std::vector<double> sums(size), largest(model.block_count() * 4, -std::numeric_limits<double>::infinity());
    visit([&](std::size_t block, RouterLoad const& load) {
        auto const* const experts = model.find<model::Experts>(block);
        if (experts == nullptr || load.choices.size() != experts->count)
            throw std::logic_error("block " + std::to_string(block) + " has a router of " +
                                   std::to_string(load.choices.size()) + " experts that the model does not describe");
        double* const most = largest.data() + 4 * block;
        most[0] = static_cast<double>(load.ranks);
        most[1] = static_cast<double>(load.nodes);
        if (load.has_bias) {
            most[2] = load.most_bias;
            most[3] = -load.least_bias;
        }
        // Ranks along other axes have the same choices: the first of them speaks. Stages have different ones.
        for (auto const axis : axes_of_view(context.communicators().mesh(), load.axes))
            if (axis != ml::pp::name && !load.axes.contains(axis) && context.communicators().coordinate(axis) != 0)
                return;
        for (std::size_t e = 0; e < load.choices.size(); ++e) sums[first[block] + e] += load.choices[e];
        sums[first[block] + load.choices.size()] += load.dropped;
    });
    total_over_mesh(context, Placement::partial, std::span(sums));
    total_over_mesh(context, Placement::partial_max, std::span(largest));
    for (auto& load : loads) {
        std::copy_n(sums.begin() + static_cast<std::ptrdiff_t>(first[load.block]), load.choices.size(),
                    load.choices.begin());
        load.dropped = sums[first[load.block] + load.choices.size()];
        double const* const most = largest.data() + 4 * load.block;
        load.ranks = static_cast<std::size_t>(std::max(most[0], 1.0));
        load.nodes = static_cast<std::size_t>(std::max(most[1], 1.0));
        load.has_bias = std::isfinite(most[2]);
        if (!load.has_bias) continue;
        load.most_bias = most[2];
        load.least_bias = -most[3];
    }
    return loads;
}

/// The loads between two readings; an empty `before` stands for zeros.
inline std::vector<BlockLoad> loads_since(std::vector<BlockLoad> const& before, std::vector<BlockLoad> now) {
    for (std::size_t i = 0; i < before.size(); ++i) {
        now[i].dropped -= before[i].dropped;
        for (std::size_t e = 0; e < now[i].choices.size(); ++e) now[i].choices[e] -= before[i].choices[e];
    }
    return now;
}

} // namespace pentad::train
