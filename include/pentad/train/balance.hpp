// How many layers each stage of the pipeline has: as measured here, so that the costliest stage is as
// cheap as can be.
#pragma once

#include <pentad/train/batch.hpp>
#include <pentad/train/language_model.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace pentad::train {

/// Deals layers of the given costs to stages, in order; the first stage costs `first` more and the last `last`. The
/// costliest stage is as cheap as can be; of such deals, the one with the most layers on early stages.
inline std::vector<std::size_t> balanced_layers(std::span<double const> layers, double first, double last, int stages) {
    auto const count = static_cast<std::size_t>(stages), n = layers.size();
    std::vector<double> before(n + 1, 0); // the cost of the layers before
    for (std::size_t i = 0; i < n; ++i) before[i + 1] = before[i] + layers[i];
    auto const cost = [&](std::size_t stage, std::size_t begin, std::size_t end) {
        return before[end] - before[begin] + (stage == 0 ? first : 0) + (stage + 1 == count ? last : 0);
    };
    // least[s][i]: of the costliest stage, where stages from s on have the layers from i on.
    std::vector<std::vector<double>> least(count + 1,
                                           std::vector<double>(n + 1, std::numeric_limits<double>::infinity()));
    std::vector<std::vector<std::size_t>> ends(count, std::vector<std::size_t>(n + 1, n));
    least[count][n] = 0;
    for (std::size_t stage = count; stage-- > 0;)
        for (std::size_t begin = 0; begin <= n; ++begin)
            for (std::size_t end = n + 1; end-- > begin;) {
                double const costliest = std::max(cost(stage, begin, end), least[stage + 1][end]);
                if (costliest >= least[stage][begin]) continue;
                least[stage][begin] = costliest;
                ends[stage][begin] = end;
            }
    std::vector<std::size_t> dealt(count);
    for (std::size_t stage = 0, begin = 0; stage < count; ++stage) {
        dealt[stage] = ends[stage][begin] - begin;
        begin = ends[stage][begin];
    }
    return dealt;
}

/// Times a forward and a backward pass of the embedding, of a layer of each kind and of the head on this mesh, and
/// deals the layers by the times of the slowest rank. The same on every rank. Collective over all ranks.
/// @tparam Store the parameter store of the trainer
template <class Stream, class Store, class Exec>
std::vector<std::size_t> measured_layers(Setup<Exec> const& setup, int stages, bool recompute) {
    auto const& shape = setup.shape;
    auto const& context = setup.context;
    std::size_t dense = shape.layers, expert = shape.layers; // a layer of each kind, or none
    for (std::size_t layer = shape.layers; layer-- > 0;) (shape.has_experts(layer) ? expert : dense) = layer;
    std::vector<StageLayers> const parts{{.stage = 0, .first = 0, .count = 0, .is_first = true, .is_last = false},
                                         {1, dense, dense < shape.layers ? 1u : 0u, false, false},
                                         {2, expert, expert < shape.layers ? 1u : 0u, false, false},
                                         {.stage = 3, .first = 0, .count = 0, .is_first = false, .is_last = true}};
    auto one_pass = setup;
    one_pass.slices = 1;
    one_pass.shape.tie_embeddings = false; // both ends are on every rank here
    LanguageModel<Stream, Exec> model(one_pass, parts, recompute);
    Store const store(context, model, 1, 0, std::size_t{1} << 22);
    Tensor<typename Batch<Exec>::Tokens, Exec> const tokens(context, {setup.batch, setup.seq});
    std::vector<i32> drawn(tokens.size()); // different ones, which go to different experts
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = static_cast<i32>(i * 7919 % shape.vocab);
    tokens.set(drawn.data());
    std::array<typename LanguageModel<Stream, Exec>::Saved, 4> saved;
    using Slowest = Layout<f64, Dims<Dim<flat>>, PartialMax<dp, pp, ep, cp, tp>>;
    std::array<double, 4> times{};
    for (int repeat = 0; repeat < 3; ++repeat) {
        Pass<Exec> pass{.context = context, .tokens = tokens.view(), .targets = tokens.view(), .loss_scale = 1};
        std::array<double, 4> took{};
        auto const timed = [&](std::size_t part, auto&& work) {
            context.exec().fence("pentad: before a layer is timed");
            auto const start = std::chrono::steady_clock::now();
            auto result = work(static_cast<int>(part));
            context.exec().fence("pentad: a layer is timed");
            took[part] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            return result;
        };
        Tensor<Stream, Exec> x;
        for (std::size_t part = 0; part < 4; ++part)
            x = timed(part, [&](int stage) { return model.forward(stage, pass, std::move(x), saved[part]); });
        Tensor<dual_t<Stream>, Exec> dy;
        for (std::size_t part = 4; part-- > 0;)
            dy = timed(part, [&](int stage) { return model.backward(stage, pass, std::move(dy), saved[part]); });
        for (std::size_t part = 0; part < 4; ++part)
            times[part] = repeat == 0 ? took[part] : std::min(times[part], took[part]);
    }
    Tensor<Slowest, Exec> slowest(context, {times.size()});
    slowest.set(times.data());
    redistribute<invariant_t<Slowest>>(std::move(slowest)).get(times.data());
    std::vector<double> layers;
    for (std::size_t layer = 0; layer < shape.layers; ++layer)
        layers.push_back(times[shape.has_experts(layer) ? 2 : 1]);
    return balanced_layers(layers, times[0], times[3], stages);
}

} // namespace pentad::train
