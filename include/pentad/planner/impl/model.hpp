// The functions of <pentad/planner/model.hpp>.
#pragma once

#include <pentad/planner/model.hpp>

#include <pentad/mesh/inline.hpp>

#include <stdexcept>

namespace pentad::planner {

PENTAD_INLINE Parts const& Model::parts(Strategy const& c, std::int64_t nodes,
                                        model::BlockRecomputation const& recompute) const {
    auto const& entry = look_up(shape(c, nodes, recompute));
    if (!entry.why_not.empty()) throw std::invalid_argument(entry.why_not);
    return entry.parts;
}

PENTAD_INLINE PartShape Model::shape(Strategy const& c, std::int64_t nodes,
                                     model::BlockRecomputation const& recompute) const {
    auto const seq = c.padded_seq(experts() != nullptr);
    auto const on = c.expert_mesh();
    return {.cp = c.cp,
            .tp = c.tp,
            .ep = on.ep,
            .etp = on.etp,
            .nodes = nodes,
            .micro_batch = c.micro_batch(),
            .seq = seq,
            .padding = seq - c.seq,
            .tensor_kind = c.tensor_kind,
            .sequence_parallel = c.sequence_parallel,
            .zigzag = c.zigzag,
            .recompute = recompute,
            .context = c.context,
            .inner_cp = c.inner_cp,
            .attention_output = c.attention_output,
            .element = c.element,
            .rows = c.precision.rows,
            .imbalance = imbalance};
}

PENTAD_INLINE auto Model::look_up(PartShape const& shape) const -> Entry const& {
    auto const [at, is_new] = known_->entries.try_emplace(shape);
    auto& [parts, why_not] = at->second;
    if (!is_new) return at->second;
    parts.blocks.resize(count_);
    for (bool const on_expert_axes : {true, false}) {
        auto const& part_of = run(on_expert_axes, on_expert_axes ? shape : shape.without_experts());
        if (why_not = part_of.why_not; !why_not.empty()) break;
        auto const& chosen = known_->on_expert_axes;
        auto const take = [&](bool is_chosen, PartSums const*& part, std::size_t i) {
            if (is_chosen == on_expert_axes && i < part_of.parts.size()) part = &part_of.parts[i];
        };
        take(chosen.embedding, parts.embedding, 0);
        take(chosen.head, parts.head, 1);
        for (std::size_t kind = 0; kind < count_; ++kind) take(chosen.blocks[kind], parts.blocks[kind], 2 + kind);
        if (!on_expert_axes) parts.stream = part_of.stream;
    }
    return at->second;
}

PENTAD_INLINE auto Model::run(bool on_expert_axes, PartShape const& shape) const -> Run const& {
    auto const [at, is_new] = known_->runs.try_emplace({on_expert_axes, shape});
    auto& [parts, stream, why_not] = at->second; // it stays where it is
    if (!is_new) return at->second;
    bool const has_ends = shape.recompute.is_none();
    auto choice = known_->on_expert_axes;
    choice.embedding = has_ends && choice.embedding == on_expert_axes;
    choice.head = has_ends && choice.head == on_expert_axes;
    bool is_any = choice.embedding || choice.head;
    for (std::size_t kind = 0; kind < count_; ++kind) {
        choice.blocks[kind] = choice.blocks[kind] == on_expert_axes;
        is_any = is_any || choice.blocks[kind];
    }
    if (!is_any) return at->second;
    auto const is_chosen = [&](std::size_t i) {
        return i == 0 ? choice.embedding : i == 1 ? choice.head : bool(choice.blocks[i - 2]);
    };
    auto& lists = known_->parameters[{shape.tp, shape.ep, shape.etp, shape.tensor_kind, shape.sequence_parallel,
                                      shape.attention_output, shape.element}];
    lists.resize(2 + count_);
    auto const is_missing = [&] {
        for (std::size_t i = 0; i < lists.size(); ++i)
            if (is_chosen(i) && lists[i] == nullptr) return true;
        return false;
    };
    if (!has_ends && is_missing()) {
        auto plain = shape;
        plain.recompute = {};
        why_not = run(on_expert_axes, plain).why_not;
        if (!why_not.empty()) return at->second;
    }
    try {
        auto const accounts = known_->runner(shape, choice, is_missing());
        stream = accounts.stream;
        parts.resize(2 + count_);
        for (std::size_t i = 0; i < parts.size(); ++i) {
            if (!is_chosen(i)) continue;
            auto const& account = i == 0 ? accounts.embedding : i == 1 ? accounts.head : accounts.blocks[i - 2];
            parts[i] = sums_of(account);
            if (lists[i] == nullptr)
                lists[i] = std::make_shared<std::vector<ParameterAccount> const>(account.parameters);
            parts[i].parameters = lists[i];
        }
    } catch (std::invalid_argument const& error) {
        why_not = error.what();
    }
    return at->second;
}

PENTAD_INLINE ParameterCount parameters(Model const& model) {
    Strategy const alone{.batch = 1, .seq = 8, .element = Element::f32};
    auto const& parts = model.parts(alone, 1);
    ParameterCount count;
    auto const* experts = model.experts();
    auto const add = [&](PartSums const* part) {
        for (auto const& parameter : *part->parameters) {
            bool const is_routed = experts != nullptr && parameter.sharded.contains("ep");
            double const met =
                is_routed ? static_cast<double>(experts->top_k) / static_cast<double>(experts->count) : 1;
            count.total += parameter.elements;
            count.active += met * parameter.elements;
        }
    };
    add(parts.embedding);
    for (std::int64_t layer = 0; layer < model.layers(); ++layer) add(parts.blocks[model.kind_of(layer)]);
    for (auto const& parameter : *parts.head->parameters)
        if (parameter.name != parts.embedding->parameters->front().name) {
            count.total += parameter.elements;
            count.active += parameter.elements;
        }
    return count;
}

} // namespace pentad::planner
