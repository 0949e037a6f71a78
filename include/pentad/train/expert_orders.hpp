// Where the experts of all blocks are, the same on every rank, and where they move to have more even loads.
#pragma once

#include <pentad/experts/balanced_order.hpp>
#include <pentad/layers/stack_order.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/train/block_load.hpp>
#include <pentad/train/run_settings.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

/// The orders of all blocks with experts, ascending by block: those in `moved`, else by number.
/// @throws std::invalid_argument where `moved` is not of the model's experts
inline std::vector<BlockOrder> complete_orders(model::Model const& model, std::vector<BlockOrder> const& moved = {}) {
    std::vector<BlockOrder> orders;
    for (std::size_t block = 0; block < model.block_count(); ++block)
        if (auto const* const experts = model.find<model::Experts>(block)) {
            StackOrder const by_number(experts->count);
            orders.push_back({block, {by_number.now().begin(), by_number.now().end()}});
        }
    for (auto const& order : moved) {
        auto const found = std::ranges::find(orders, order.block, &BlockOrder::block);
        std::string const which = "the order of experts of block " + std::to_string(order.block);
        if (found == orders.end()) throw std::invalid_argument(which + ": the block has none");
        if (!StackOrder::is_order(order.experts, found->experts.size()))
            throw std::invalid_argument(which + ": it does not have each of the numbers from 0 to " +
                                        std::to_string(found->experts.size() - 1) + " once");
        found->experts = order.experts;
    }
    return orders;
}
/// The blocks in which experts have moved.
inline std::vector<BlockOrder> moved_orders(std::vector<BlockOrder> const& orders) {
    std::vector<BlockOrder> moved;
    for (auto const& order : orders)
        if (!std::ranges::is_sorted(order.experts)) moved.push_back(order);
    return moved;
}
/// Orders with which the ranks of the blocks in `loads` would have had more even ones, and how many experts they take
/// to another rank.
inline std::pair<std::vector<BlockOrder>, std::size_t>
balanced_orders(model::Model const& model, std::vector<BlockOrder> const& orders, std::vector<BlockLoad> const& loads) {
    std::pair<std::vector<BlockOrder>, std::size_t> balanced{orders, 0};
    for (auto const& load : loads) {
        auto& experts = std::ranges::find(balanced.first, load.block, &BlockOrder::block)->experts;
        auto const& router = model.find<model::Experts>(load.block)->router;
        std::size_t const groups = router.top_groups < router.groups ? router.groups : 1;
        auto const order = pentad::experts::balanced_order(experts, load.choices, load.ranks, groups);
        auto const before = StackOrder::places(experts), after = StackOrder::places(order);
        auto const rank_of = [&](i32 place) { return static_cast<std::size_t>(place) * load.ranks / order.size(); };
        for (std::size_t expert = 0; expert < order.size(); ++expert)
            if (rank_of(before[expert]) != rank_of(after[expert])) ++balanced.second;
        experts = order;
    }
    return balanced;
}

/// Plans the moves in the layers that are here, calls `move`, and then tells the layers that they are done.
template <class Model, class Move>
void with_planned_moves(Model& model, std::vector<BlockOrder> const& orders, Move&& move) {
    model.for_each_expert_placement([&](std::size_t block, auto& placement) {
        placement.plan(std::ranges::find(orders, block, &BlockOrder::block)->experts);
    });
    std::forward<Move>(move)();
    model.for_each_expert_placement([](std::size_t, auto& placement) { placement.arrive(); });
}

} // namespace pentad::train
