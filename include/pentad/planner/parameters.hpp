// How many parameters a model has, by kind and by layer: what memory, communication and
// the optimizer's time are made of.
#pragma once

#include <pentad/planner/weights.hpp>

#include <cstddef>
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

/// Of what `list` lists of the model's weights.
template <class List>
[[nodiscard]] Parameters counted(Model const& model, List&& list) {
    using Count = double Parameters::*;
    static constexpr Count kinds[] = {
        &Parameters::embedding,      &Parameters::attention, &Parameters::mamba,
        &Parameters::feed_forward,   &Parameters::router,    &Parameters::experts,
        &Parameters::shared_experts, &Parameters::norms,     &Parameters::head}; // by Part
    Configuration const alone;
    Weights weights(model, alone);
    list(weights);
    Parameters of;
    for (auto const& weight : weights.list()) of.*kinds[static_cast<std::size_t>(weight.part)] += weight.elements();
    return of;
}

} // namespace detail

/// Of layer 0 to model.layers - 1.
[[nodiscard]] inline Parameters layer_parameters(Model const& model, std::int64_t layer) {
    return detail::counted(model, [&](Weights& weights) { weights.layer(layer); });
}

/// Of what comes before the first layer.
[[nodiscard]] inline Parameters embedding_parameters(Model const& model) {
    return detail::counted(model, [](Weights& weights) { weights.embedding(); });
}

/// Of what comes after the last layer.
[[nodiscard]] inline Parameters head_parameters(Model const& model) {
    return detail::counted(model, [&](Weights& weights) { weights.head(!model.ties_embeddings); });
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
