// The functions of <pentad/pipeline/messages.hpp>.
#pragma once

#include <pentad/pipeline/messages.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/pipeline/instruction.hpp>
#include <pentad/pipeline/timing.hpp>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pentad::pipeline {

PENTAD_INLINE Schedule with_recomputation(Schedule order) {
    order.recomputes = true;
    for (auto& list : order.instructions) {
        std::vector<Instruction> longer;
        longer.reserve(list.size() + list.size() / 2);
        auto const make_again = [&](Instruction const& x) {
            if (makes_gradient(x.operation)) longer.push_back({Operation::recompute, x.stage, x.micro_batch, x.slice});
        };
        for (std::size_t at = 0; at < list.size(); ++at) {
            if (at == 0 || !list[at - 1].paired) make_again(list[at]);
            if (list[at].paired && at + 1 < list.size()) make_again(list[at + 1]); // before the pair
            longer.push_back(list[at]);
        }
        list = std::move(longer);
    }
    return order;
}

PENTAD_INLINE Schedule with_stage_operations(Schedule order, StageOperations wanted) {
    bool const asynchronous = order.updates > 1;
    order.gathers = wanted.gather;
    order.reduces = wanted.reduce;
    if (wanted.step) order.updates = std::max(order.updates, 1);
    if (!wanted.gather && !wanted.reduce && order.updates == 0) return order;
    auto const index = [](int number) { return static_cast<std::size_t>(number); };
    std::vector<std::vector<int>> stages_of(index(order.ranks()));
    for (int stage = 0; stage < order.stages(); ++stage)
        for (auto const& placement : order.placements) {
            auto& mine = stages_of[index(placement[index(stage)])];
            if (mine.empty() || mine.back() != stage) mine.push_back(stage);
        }
    std::vector<std::size_t> place(index(order.stages())); // of the stages of a rank, among its rounds
    for (int rank = 0; rank < order.ranks(); ++rank) {
        auto& list = order.instructions[index(rank)];
        auto const& stages = stages_of[index(rank)];
        for (std::size_t at = 0; at < stages.size(); ++at) place[index(stages[at])] = at * index(order.rounds());
        struct Round {    // of a stage and an update
            int left = 0; ///< backwards that have not ended
            bool begun = false;
        };
        std::vector<Round> rounds(stages.size() * index(order.rounds()));
        for (Instruction const& x : list)
            if (ends_micro_batch(x.operation))
                ++rounds[place[index(x.stage)] + index(order.update_of(x.micro_batch))].left;

        std::vector<Instruction> longer;
        auto const add = [&](bool now, Operation operation, int stage, int update) {
            if (now) longer.push_back({operation, stage, update});
        };
        // A copy may have no micro-batches while the others have some; it takes part all the same.
        auto const for_idle = [&](bool now, Operation operation) {
            for (int const stage : stages)
                for (int update = 0; update < order.rounds(); ++update)
                    add(now && !rounds[place[index(stage)] + index(update)].begun, operation, stage, update);
        };
        for (Instruction const& x : list) {
            int const update = order.update_of(x.micro_batch);
            Round& round = rounds[place[index(x.stage)] + index(update)];
            add(wanted.gather && !round.begun, Operation::gather_parameters, x.stage, update);
            round.begun = true;
            longer.push_back(x);
            if (!ends_micro_batch(x.operation) || --round.left > 0) continue;
            add(wanted.reduce, Operation::reduce_gradients, x.stage, update);
            add(asynchronous, Operation::optimizer_step, x.stage, update);
        }
        for_idle(wanted.gather, Operation::gather_parameters);
        for_idle(wanted.reduce, Operation::reduce_gradients);
        for (int const stage : stages) add(order.updates == 1, Operation::optimizer_step, stage, 0);
        list = std::move(longer);
    }
    return order;
}

PENTAD_INLINE Schedule with_messages(Schedule order) {
    struct Receive {
        Time sent;
        Instruction instruction;
    };
    auto const index = [](int number) { return static_cast<std::size_t>(number); };
    auto const ranks = index(order.ranks());
    std::vector<std::vector<Time>> ends(ranks);
    std::vector<std::vector<Receive>> receives(ranks);
    std::vector<std::size_t> sends(ranks);
    auto const message_of = [&](Instruction const& made) {
        return Instruction{made.operation == Operation::forward ? Operation::send_activation : Operation::send_gradient,
                           made.stage, made.micro_batch, made.slice};
    };
    auto const leaves = [&](int rank, Instruction const& made) {
        if (made.operation != Operation::forward && !makes_gradient(made.operation)) return false;
        int const peer = peer_stage(message_of(made));
        return peer >= 0 && peer < order.stages() && order.rank_of(peer, made.micro_batch) != rank;
    };
    bool const ran = run_in_time(order, {}, [&](int rank, std::size_t at, Time, Time end) {
        ends[index(rank)].push_back(end);
        Instruction const& made = order.instructions[index(rank)][at];
        if (!leaves(rank, made)) return;
        ++sends[index(rank)];
        Instruction receive = message_of(made);
        receive.stage = peer_stage(receive);
        receive.operation =
            moves_activation(receive.operation) ? Operation::receive_activation : Operation::receive_gradient;
        receives[index(order.rank_of(receive.stage, made.micro_batch))].push_back({end, receive});
    });
    if (!ran)
        throw std::invalid_argument("the computes of " + order.name + " are in an order in which ranks wait for ever");
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        auto& arriving = receives[rank];
        std::stable_sort(arriving.begin(), arriving.end(),
                         [](Receive const& a, Receive const& b) { return a.sent < b.sent; });
        auto const& computes = order.instructions[rank];
        std::vector<Instruction> whole;
        whole.reserve(computes.size() + arriving.size() + sends[rank]);
        auto next = arriving.begin();
        for (std::size_t at = 0; at < computes.size();) {
            for (; next != arriving.end() && next->sent <= ends[rank][at]; ++next) whole.push_back(next->instruction);
            auto const begin = at++;
            while (computes[at - 1].paired && at < computes.size()) ++at;
            for (auto i = begin; i < at; ++i) whole.push_back(computes[i]);
            for (auto i = begin; i < at; ++i)
                if (leaves(static_cast<int>(rank), computes[i])) whole.push_back(message_of(computes[i]));
        }
        order.instructions[rank] = std::move(whole);
        arriving = {};
        ends[rank] = {};
    }
    return order;
}

PENTAD_INLINE Schedule forwards_of(Schedule const& schedule, int micro_batches, int slices) {
    Schedule order;
    order.name = "forwards of " + schedule.name;
    order.purpose = Purpose::inference;
    order.micro_batches = micro_batches;
    order.slices = slices;
    order.placements = schedule.placements;
    for (auto const& list : schedule.instructions) {
        auto& forwards = order.instructions.emplace_back();
        for (Instruction const& x : list)
            if (x.operation == Operation::forward && x.micro_batch < micro_batches && x.slice < slices)
                forwards.push_back({x.operation, x.stage, x.micro_batch, x.slice});
    }
    return with_messages(std::move(order));
}

} // namespace pentad::pipeline
