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
    if (is_new) try {
            bool const has_ends = shape.recompute.is_none();
            auto& lists = known_->parameters[{shape.tp, shape.ep, shape.etp, shape.tensor_kind, shape.sequence_parallel,
                                              shape.attention_output, shape.element}];
            auto const accounts = known_->runner(shape, has_ends && lists.empty());
            auto& parts = at->second.parts;
            if (has_ends) parts = {sums_of(accounts.embedding), sums_of(accounts.head), {}, accounts.stream};
            for (auto const& block : accounts.blocks) parts.blocks.push_back(sums_of(block));
            if (!has_ends && lists.empty()) {
                auto plain = shape;
                plain.recompute = {};
                (void)look_up(plain); // entries stay where they are
            }
            auto const keep = [&](std::size_t i, PartSums& part, PartAccount const& account) {
                if (i == lists.size())
                    lists.push_back(std::make_shared<std::vector<ParameterAccount> const>(account.parameters));
                part.parameters = lists[i];
            };
            if (has_ends) {
                keep(0, parts.embedding, accounts.embedding);
                keep(1, parts.head, accounts.head);
            }
            for (std::size_t i = 0; i < parts.blocks.size(); ++i) keep(2 + i, parts.blocks[i], accounts.blocks[i]);
        } catch (std::invalid_argument const& error) {
            at->second.why_not = error.what();
        }
    return at->second;
}

PENTAD_INLINE ParameterCount parameters(Model const& model) {
    Strategy const alone{.batch = 1, .seq = 8, .element = Element::f32};
    auto const& parts = model.parts(alone, 1);
    ParameterCount count;
    auto const* experts = model.experts();
    auto const add = [&](PartSums const& part) {
        for (auto const& parameter : *part.parameters) {
            bool const is_routed = experts != nullptr && parameter.sharded.contains("ep");
            double const met =
                is_routed ? static_cast<double>(experts->top_k) / static_cast<double>(experts->count) : 1;
            count.total += parameter.elements;
            count.active += met * parameter.elements;
        }
    };
    add(parts.embedding);
    for (std::int64_t layer = 0; layer < model.layers(); ++layer) add(parts.blocks[model.kind_of(layer)]);
    for (auto const& parameter : *parts.head.parameters)
        if (parameter.name != parts.embedding.parameters->front().name) {
            count.total += parameter.elements;
            count.active += parameter.elements;
        }
    return count;
}

} // namespace pentad::planner
