// How many blocks each stage of the pipeline has: as measured here, so that the costliest stage is as
// cheap as can be.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/planner/balanced_stages.hpp>
#include <pentad/train/batch.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/zero/layouts.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace pentad::train {

/// Times a forward and a backward pass of the embedding, of a block of each kind and of the head on this mesh, and
/// deals the blocks by the times of the slowest rank (planner::balanced_stages). The same on every rank. Collective
/// over all ranks.
template <class T, class Exec>
std::vector<std::int64_t> measured_layers(ModelPlaces<Exec> const& places, model::Model const& model,
                                          LayerRegistry<T, Exec> const& registry, int stages,
                                          model::Recomputation const& recompute) {
    auto const in_one_pass = [](LayerSetup<Exec> setup) {
        setup.slices = 1;
        setup.padding = 0;
        return setup;
    };
    auto const setup = in_one_pass(*places.ends().setup);
    auto const& stream = *places.ends().stream;
    auto const& context = setup.context;
    model::Model kinds{.hidden = model.hidden, .vocab = model.vocab, .norm_epsilon = model.norm_epsilon};
    std::vector<std::size_t> kind_of; // of each block: those of a kind recompute the same and lie on their ranks alike
    std::deque<LayerSetup<Exec>> setups;
    std::vector<PartPlace<Exec>> of_blocks;
    model::Recomputation of_kinds{.kind = model::Recomputation::Kind::planned};
    for (std::size_t i = 0; i < model.blocks.size(); ++i) {
        auto const& place = places.of(i);
        std::size_t kind = 0;
        while (kind < kinds.blocks.size() &&
               !(kinds.blocks[kind] == model.blocks[i] && of_kinds.blocks[kind] == recompute.of(i) &&
                 setups[kind].block == place.setup->block))
            ++kind;
        kind_of.push_back(kind);
        if (kind < kinds.blocks.size()) continue;
        kinds.blocks.push_back(model.blocks[i]);
        of_kinds.blocks.push_back(recompute.of(i));
        of_blocks.push_back({&setups.emplace_back(in_one_pass(*place.setup)), place.stream});
    }
    kinds.predictors = model.predictors; // part of the head
    for (std::size_t i = 0; i < model.predictors.size(); ++i)
        of_kinds.blocks.push_back(recompute.of(model.blocks.size() + i));
    std::size_t const parts = kinds.blocks.size() + 2;
    std::vector<StageLayers> timed{{.stage = 0, .first = 0, .count = 0, .is_first = true, .is_last = false}};
    for (std::size_t kind = 0; kind < kinds.blocks.size(); ++kind)
        timed.push_back({static_cast<int>(kind) + 1, kind, 1, false, false});
    timed.push_back({static_cast<int>(parts) - 1, kinds.blocks.size(), 0, false, true});
    using Model = LanguageModel<T, Exec>;
    Model layers({{&setup, &stream}, std::move(of_blocks)}, kinds, registry, timed, of_kinds);
    // Each rank has all parts: nothing is shared out among the ranks of pp, which a store would take for stages.
    using A = accumulator_t<T>;
    std::deque<Tensor<zero::Whole<T>, Exec>> values;
    std::deque<Tensor<zero::Whole<A>, Exec>> gradients, exact;
    layers.for_each_parameter([&](AnyParameter<T, Exec>& parameter) {
        std::array const size{parameter.size()};
        auto const& value = values.emplace_back(context, size, observe::Memory::parameters);
        auto const& gradient = gradients.emplace_back(context, size, observe::Memory::gradients);
        parameter.place_value(value.data());
        parameter.place_gradient(gradient.data());
        parameter.draw(1, gradient.data());
        kernels::convert<A, T>(context.exec(), View<A const, 1, Exec>(gradient.flat()), value.flat());
        if (parameter.own_optimizer()) {
            exact.push_back(gradient);
            parameter.place_exact_value(gradient.data());
            parameter.place_gradient(gradients.emplace_back(context, size, observe::Memory::gradients).data());
        }
        gradients.back().clear();
    });
    LayoutValue const of_tokens = token_values<i32>(stream);
    AnyTensor<i32, Exec> const tokens(context, of_tokens, std::array{setup.batch, setup.seq});
    std::vector<i32> drawn(tokens.size()); // different ones, which go to different experts
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = static_cast<i32>(i * 7919 % model.vocab);
    tokens.set(drawn.data());
    std::vector<TokensAhead<Exec>> const ahead(model.predictors.size(), {tokens.rows(), tokens.rows()});
    std::vector<typename Model::Saved> saved(parts);
    std::vector<double> times(parts);
    for (int repeat = 0; repeat < 3; ++repeat) {
        Pass<Exec> pass{.context = context,
                        .tokens = tokens.rows(),
                        .targets = tokens.rows(),
                        .ahead = ahead,
                        .predicted_scale = 1,
                        .loss_scale = 1};
        std::vector<double> took(parts);
        auto const timed_part = [&](std::size_t part, auto&& work) {
            context.exec().fence("pentad: before a layer is timed");
            auto const start = std::chrono::steady_clock::now();
            auto result = work(static_cast<int>(part));
            context.exec().fence("pentad: a layer is timed");
            took[part] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
            return result;
        };
        AnyTensor<T, Exec> x;
        for (std::size_t part = 0; part < parts; ++part)
            x = timed_part(part, [&](int stage) { return layers.forward(stage, pass, std::move(x), saved[part]); });
        AnyTensor<T, Exec> dy;
        for (std::size_t part = parts; part-- > 0;)
            dy = timed_part(part, [&](int stage) { return layers.backward(stage, pass, std::move(dy), saved[part]); });
        for (std::size_t part = 0; part < parts; ++part)
            times[part] = repeat == 0 ? took[part] : std::min(times[part], took[part]);
    }
    total_over_mesh(context, Placement::partial_max, std::span(times));
    std::vector<double> costs;
    for (auto const kind : kind_of) costs.push_back(times[1 + kind]);
    return planner::balanced_stages(costs, times.front(), times.back(), static_cast<std::size_t>(stages));
}

} // namespace pentad::train
