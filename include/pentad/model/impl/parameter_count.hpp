// The functions of <pentad/model/parameter_count.hpp>.
#pragma once

#include <pentad/model/parameter_count.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/model/parts.hpp>

namespace pentad::model::detail {

PENTAD_INLINE double attention_count(Attention const& a, double hidden) {
    double const queries = static_cast<double>(a.heads) * static_cast<double>(a.head_dim);
    double const keys_and_values = 2 * static_cast<double>(a.kv_heads) * static_cast<double>(a.head_dim);
    double sum = hidden * (2 * queries + keys_and_values);
    if (a.has_bias) sum += queries + keys_and_values;
    if (a.has_output_bias) sum += hidden;
    if (a.norms_queries_and_keys) sum += 2 * static_cast<double>(a.head_dim);
    if (a.scores.sinks) sum += static_cast<double>(a.heads);
    return sum;
}
PENTAD_INLINE double latent_count(LatentAttention const& a, double hidden) {
    auto const heads = static_cast<double>(a.heads), value = static_cast<double>(a.value_dim);
    auto const query_rank = static_cast<double>(a.query_rank), rank = static_cast<double>(a.kv_rank);
    double const queries = heads * static_cast<double>(a.width());
    double const made = a.query_rank > 0 ? query_rank * (hidden + 1 + queries) : hidden * queries; // with a norm
    return made + hidden * (rank + static_cast<double>(a.rope_dim)) + rank +
           rank * heads * (static_cast<double>(a.head_dim) + value) + heads * value * hidden;
}
PENTAD_INLINE double mamba_count(Mamba2 const& m, double hidden) {
    auto const heads = static_cast<double>(m.heads);
    double const inner = heads * static_cast<double>(m.head_dim);
    double const convolved = inner + 2 * static_cast<double>(m.groups) * static_cast<double>(m.state);
    // The gate, what is convolved, and steps of time; the convolution with its bias; A, D and the bias of steps.
    return hidden * (inner + convolved + heads) + convolved * (static_cast<double>(m.convolution) + 1) + 3 * heads +
           inner + inner * hidden;
}
PENTAD_INLINE double experts_count(Experts const& e, double hidden) {
    auto const count = static_cast<double>(e.count);
    double const expert = 3 * hidden * static_cast<double>(e.width);
    return expert * (count + static_cast<double>(e.shared)) + count * hidden + (e.router.has_bias ? count : 0);
}

} // namespace pentad::model::detail

namespace pentad::model {

PENTAD_INLINE double parameter_count(Part const& part, std::size_t hidden) {
    auto const stream = static_cast<double>(hidden);
    if (auto const* a = part.as<Attention>()) return detail::attention_count(*a, stream);
    if (auto const* a = part.as<LatentAttention>()) return detail::latent_count(*a, stream);
    if (auto const* m = part.as<Mamba2>()) return detail::mamba_count(*m, stream);
    if (auto const* a = part.as<LinearAttention>()) {
        double const inner = static_cast<double>(a->heads) * static_cast<double>(a->head_dim);
        return 5 * stream * inner + inner; // queries, keys, values, the gate and the output; a norm
    }
    if (auto const* m = part.as<GatedMlp>()) return 3 * stream * static_cast<double>(m->width);
    if (auto const* m = part.as<PlainMlp>()) {
        auto const width = static_cast<double>(m->width);
        return 2 * stream * width + (m->has_bias ? width + stream : 0);
    }
    if (auto const* e = part.as<Experts>()) return detail::experts_count(*e, stream);
    return 0;
}

PENTAD_INLINE double parameter_count(Model const& model) {
    auto const stream = static_cast<double>(model.hidden), table = stream * static_cast<double>(model.vocab);
    double const norm = model.norm == NormKind::layer ? 2 * stream : stream;
    double sum = table * (model.ties_embeddings ? 1 : 2) + stream * static_cast<double>(model.positions) + norm;
    for (std::size_t i = 0; i < model.block_count(); ++i)
        for (auto const& branch : model.block(i).branches) sum += norm + parameter_count(branch.part, model.hidden);
    // A predictor has a norm of the embedding, one of the stream, a projection of both, and a norm before the head.
    sum += static_cast<double>(model.predictors.size()) * (3 * norm + 2 * stream * stream);
    return sum;
}

} // namespace pentad::model
