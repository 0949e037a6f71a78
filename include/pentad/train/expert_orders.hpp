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

/// Of blocks with experts, ascending: by their numbers, where `moved` says nothing else.
/// @throws std::invalid_argument where that is not of the model's experts
inline std::vector<BlockOrder> expert_orders(model::Model const& model, std::vector<BlockOrder> const& moved = {}) {
    std::vector<BlockOrder> orders;
    auto next = moved.begin();
    for (std::size_t block = 0; block < model.block_count(); ++block) {
        auto const* const experts = model.find<model::Experts>(block);
        if (experts == nullptr) continue;
        StackOrder order(experts->count);
        if (next != moved.end() && next->block == block) order.plan((next++)->experts);
        orders.push_back({block, {order.next().begin(), order.next().end()}});
    }
    if (next != moved.end())
        throw std::invalid_argument("block " + std::to_string(next->block) + " has no experts, or comes twice");
    return orders;
}
/// Those in which experts have moved.
inline std::vector<BlockOrder> moved_orders(std::vector<BlockOrder> const& orders) {
    std::vector<BlockOrder> moved;
    for (auto const& order : orders)
        if (!std::ranges::is_sorted(order.experts)) moved.push_back(order);
    return moved;
}
/// Orders with more even loads of ranks, and how many experts they take to another rank.
inline std::pair<std::vector<BlockOrder>, std::size_t> balanced_orders(model::Model const& model,
                                                                       std::vector<BlockLoad> const& loads) {
    std::pair<std::vector<BlockOrder>, std::size_t> balanced;
    for (auto const& load : loads) {
        auto const& router = model.find<model::Experts>(load.block)->router;
        std::size_t const groups = router.top_groups < router.groups ? router.groups : 1;
        auto const order = experts::balanced_order(load.order, load.choices, load.ranks, groups);
        auto const before = StackOrder::places(load.order), after = StackOrder::places(order);
        auto const rank_of = [&](i32 place) { return static_cast<std::size_t>(place) * load.ranks / order.size(); };
        for (std::size_t expert = 0; expert < order.size(); ++expert)
            if (rank_of(before[expert]) != rank_of(after[expert])) ++balanced.second;
        balanced.first.push_back({load.block, order});
    }
    return balanced;
}

/// Announces the orders to the layers that are here, and does `move`, after which their experts are there.
template <class Model, class Move>
void move_experts(Model& model, std::vector<BlockOrder> const& orders, Move&& move) {
    model.for_each_expert_placement([&](std::size_t block, auto& placement) {
        placement.plan(std::ranges::find(orders, block, &BlockOrder::block)->experts);
    });
    std::forward<Move>(move)();
    model.for_each_expert_placement([](std::size_t, auto& placement) { placement.arrive(); });
}

} // namespace pentad::train
