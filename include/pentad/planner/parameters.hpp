// Room: planner (pure host C++). How many parameters a model has, by kind and by layer: what memory, communication and
// the optimizer's time are made of.
#pragma once

#include <pentad/planner/model.hpp>

#include <cstdint>

namespace pentad::planner {

/// Numbers of parameters by kind, a bias with what it is added to. Doubles are exact to 2^53 and do not overflow.
struct Parameters {
    double attention = 0; ///< its projections
    double mamba = 0;     ///< the whole mixer: projections, convolution, numbers of each head, its gated norm
    double feed_forward = 0;
    double router = 0;
    double experts = 0; ///< all that a token is routed among
    double shared_experts = 0;
    double norms = 0;     ///< before the blocks and the head, and of latent attention's ranks
    double embedding = 0; ///< of tokens and positions
    double head = 0;      ///< 0 where it is the embedding

    [[nodiscard]] double total() const {
        return attention + mamba + feed_forward + router + experts + shared_experts + norms + embedding + head;
    }
    Parameters& operator+=(Parameters const& other) {
        for (auto const kind : {&Parameters::attention, &Parameters::mamba, &Parameters::feed_forward,
                                &Parameters::router, &Parameters::experts, &Parameters::shared_experts,
                                &Parameters::norms, &Parameters::embedding, &Parameters::head})
            this->*kind += other.*kind;
        return *this;
    }
};

namespace detail {

/// Of a norm over `width` elements.
[[nodiscard]] inline double norm_parameters(Model const& model, std::int64_t width) {
    return static_cast<double>(width) * (model.has_biases ? 2 : 1);
}
/// Of a product from `rows` to `columns` elements.
[[nodiscard]] inline double product_parameters(Model const& model, std::int64_t rows, std::int64_t columns) {
    return (static_cast<double>(rows) + (model.has_biases ? 1 : 0)) * static_cast<double>(columns);
}
[[nodiscard]] inline double feed_forward_parameters(Model const& model, std::int64_t width) {
    int const inward = model.feed_forward == FeedForward::swiglu ? 2 : 1;
    return inward * product_parameters(model, model.hidden, width) + product_parameters(model, width, model.hidden);
}
[[nodiscard]] inline double attention_parameters(Model const& model) {
    auto const& attention = model.attention;
    auto const product = [&](std::int64_t rows, std::int64_t columns) {
        return product_parameters(model, rows, columns);
    };
    std::int64_t const queries = attention.heads * attention.key_width();
    double const output = product(attention.heads * attention.value_width(), model.hidden);
    if (!attention.is_latent())
        return product(model.hidden, queries) + 2 * product(model.hidden, attention.kv_heads * attention.head_dim) +
               output;
    double const query = attention.query_rank == 0
                             ? product(model.hidden, queries)
                             : product(model.hidden, attention.query_rank) + product(attention.query_rank, queries);
    return query + product(model.hidden, attention.kv_rank + attention.rope_dim) +
           product(attention.kv_rank, attention.heads * (attention.head_dim + attention.value_dim)) + output;
}
/// z, x, B, C and the time steps out of one product; a convolution with a bias over x, B and C; A, D and the time
/// step's bias of each head (Dao and Gu 2024, section 7.1).
[[nodiscard]] inline double mamba_parameters(Model const& model) {
    auto const& mamba = model.mamba;
    std::int64_t const convolved = mamba.inner() + 2 * mamba.groups * mamba.state;
    return product_parameters(model, model.hidden, mamba.inner() + convolved + mamba.heads) +
           static_cast<double>(convolved) * static_cast<double>(mamba.convolution + 1) +
           3 * static_cast<double>(mamba.heads) + static_cast<double>(mamba.inner()) +
           product_parameters(model, mamba.inner(), model.hidden);
}

} // namespace detail

/// Of layer 0 to model.layers - 1.
[[nodiscard]] inline Parameters layer_parameters(Model const& model, std::int64_t layer) {
    Parameters of;
    of.norms = detail::norm_parameters(model, model.hidden);
    if (model.mamba.heads > 0) {
        of.mamba = detail::mamba_parameters(model);
    } else {
        of.attention = detail::attention_parameters(model);
        of.norms += static_cast<double>(model.attention.query_rank + model.attention.kv_rank);
    }
    if (model.has_experts(layer)) {
        auto const& experts = model.experts;
        double const expert = detail::feed_forward_parameters(model, experts.ffn);
        of.router = static_cast<double>(experts.count) * static_cast<double>(model.hidden + (experts.has_bias ? 1 : 0));
        of.experts = static_cast<double>(experts.count) * expert;
        of.shared_experts = static_cast<double>(experts.shared) * expert;
    } else if (model.ffn > 0) {
        of.feed_forward = detail::feed_forward_parameters(model, model.ffn);
    } else {
        return of; // no second block
    }
    of.norms += detail::norm_parameters(model, model.hidden);
    return of;
}

/// Of what comes before the first layer.
[[nodiscard]] inline Parameters embedding_parameters(Model const& model) {
    return {.embedding = static_cast<double>(model.vocab + model.positions) * static_cast<double>(model.hidden)};
}

/// Of what comes after the last layer.
[[nodiscard]] inline Parameters head_parameters(Model const& model) {
    return {.norms = detail::norm_parameters(model, model.hidden),
            .head = model.ties_embeddings ? 0 : static_cast<double>(model.vocab) * static_cast<double>(model.hidden)};
}

/// Of the whole model.
[[nodiscard]] inline Parameters parameters_by_kind(Model const& model) {
    Parameters of = embedding_parameters(model);
    for (std::int64_t layer = 0; layer < model.layers; ++layer) of += layer_parameters(model, layer);
    return of += head_parameters(model);
}
[[nodiscard]] inline double parameters(Model const& model) { return parameters_by_kind(model).total(); }

/// What a token meets: of the routed experts its top_k; all of the embedding and the head, as the models' cards count.
[[nodiscard]] inline double active_parameters(Model const& model) {
    Parameters of = parameters_by_kind(model);
    if (model.experts.count > 0)
        of.experts *= static_cast<double>(model.experts.top_k) / static_cast<double>(model.experts.count);
    return of.total();
}

} // namespace pentad::planner
