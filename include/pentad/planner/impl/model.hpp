// The functions of <pentad/planner/model.hpp>.
#pragma once

#include <pentad/planner/model.hpp>

#include <pentad/mesh/inline.hpp>

#include <stdexcept>

namespace pentad::planner {

PENTAD_INLINE Parts const& Model::parts(PartShape shape, PartsFrom from) const {
    if (from == PartsFrom::runs_beside_experts) {
        shape = shape.without_experts();
        shape.leaves_out_experts = true;
    }
    auto const& entry = from == PartsFrom::sums ? look_up_sums(shape) : look_up(shape);
    if (!entry.why_not.empty()) throw std::invalid_argument(entry.why_not);
    return entry.parts;
}

PENTAD_INLINE PartShape Model::shape(Strategy const& c, std::int64_t nodes) const {
    auto const seq = c.padded_seq(experts() != nullptr);
    auto const on = c.expert_mesh();
    PartShape const shape{.cp = c.cp,
                          .tp = c.tp,
                          .ep = on.ep,
                          .etp = on.etp,
                          .nodes = nodes,
                          .micro_batch = c.micro_batch(),
                          .seq = seq,
                          .padding = seq - c.seq,
                          .element = c.element,
                          .rows = c.precision.rows,
                          .imbalance = imbalance};
    return shape.laid(c.block, c.block);
}

PENTAD_INLINE auto Model::look_up(PartShape const& shape) const -> Entry const& {
    auto const [at, is_new] = known_->entries.try_emplace(shape);
    auto& [parts, why_not] = at->second;
    if (!is_new) return at->second;
    parts = Parts(count_);
    for (bool const on_expert_axes : {true, false}) {
        auto const& part_of = run(on_expert_axes, on_expert_axes ? shape : shape.without_experts());
        if (why_not = part_of.why_not; !why_not.empty()) break;
        for (std::size_t i = 0; i < parts.size(); ++i)
            if (known_->on_expert_axes[i] == on_expert_axes) parts[i] = &part_of.parts[i];
        if (!on_expert_axes) parts.stream = part_of.stream;
    }
    return at->second;
}

PENTAD_INLINE auto Model::look_up_sums(PartShape const& shape) const -> Entry const& {
    auto const ring = shape.in_a_ring(), apart = shape.without_experts();
    if (shape == ring || shape == apart) return look_up(shape);
    auto const [at, is_new] = known_->sums.try_emplace(shape);
    auto& entry = at->second;
    if (!is_new) return entry;
    auto const& with_experts = run(true, ring);
    auto const& with_context = run(true, apart);
    auto const& neither = run(true, ring.without_experts());
    for (auto const* const summand : {&with_experts, &with_context, &neither})
        if (!summand->why_not.empty()) return entry = look_up(shape);
    entry = look_up(apart); // parts beside the axes of experts
    if (!entry.why_not.empty()) return entry;
    for (std::size_t i = 0; i < entry.parts.size(); ++i) {
        if (!known_->on_expert_axes[i]) continue;
        auto& sum = known_->added.emplace_back(with_experts.parts[i]);
        sum.add(with_context.parts[i]);
        sum.add(neither.parts[i], -1);
        entry.parts[i] = &sum;
    }
    return entry;
}

PENTAD_INLINE auto Model::run(bool on_expert_axes, PartShape const& shape) const -> Run const& {
    auto const [at, is_new] = known_->runs.try_emplace({on_expert_axes, shape});
    auto& [parts, stream, why_not] = at->second; // it stays where it is
    if (!is_new) return at->second;
    parts = PerPart<PartSums>(count_);
    auto& lists =
        known_->parameters
            .try_emplace({shape.tp, shape.ep, shape.etp, shape.block.tensor_kind, shape.block.sequence_parallel,
                          shape.block.attention_output, shape.element, shape.leaves_out_experts},
                         count_)
            .first->second;
    bool const has_ends = shape.recompute.is_none();
    PerPart<bool> wanted(count_, false);
    bool is_any = false;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        wanted[i] = known_->on_expert_axes[i] == on_expert_axes && (has_ends || !parts.is_end(i));
        is_any = is_any || wanted[i];
    }
    if (!is_any) return at->second;
    auto const lacks_lists = [&] {
        for (std::size_t i = 0; i < lists.size(); ++i)
            if (wanted[i] && lists[i] == nullptr) return true;
        return false;
    };
    if (!has_ends && lacks_lists()) {
        auto plain = shape;
        plain.recompute = {};
        why_not = run(on_expert_axes, plain).why_not;
        if (!why_not.empty()) return at->second;
    }
    try {
        auto const accounts = known_->runner(shape, wanted, lacks_lists());
        stream = accounts.stream;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            if (!wanted[i]) continue;
            parts[i] = sums_of(accounts[i]);
            if (lists[i] == nullptr)
                lists[i] = std::make_shared<std::vector<ParameterAccount> const>(accounts[i].parameters);
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
    add(parts.embedding());
    for (std::int64_t layer = 0; layer < model.layers(); ++layer) add(parts.block(model.kind_of(layer)));
    for (auto const& parameter : *parts.head()->parameters)
        if (parameter.name != parts.embedding()->parameters->front().name) {
            count.total += parameter.elements;
            count.active += parameter.elements;
        }
    return count;
}

} // namespace pentad::planner
