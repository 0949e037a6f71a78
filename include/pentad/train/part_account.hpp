// What a rank does for a micro-batch in a part of a model, by a dry run of the part. Nothing of a layer is said here.
#pragma once

#include <pentad/layers/registry.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/planner/part.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/zero/matrices.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace pentad::train {

using namespace ml;

namespace detail {
/// Counts how often a unit's values are acquired.
struct CountedUnit final : UnitMemory {
    int acquired = 0;

    void prefetch_values() override {}
    void acquire_values() override { ++acquired; }
    void release_values() override {}
    void acquire_gradients() override {}
    void release_gradients(bool) override {}
};
/// What it takes to work on a parameter's matrices whole, one after the other: of each as of the first. In a dry run,
/// whose records it clears.
template <class T, class Exec>
planner::MatrixAccount matrix_account(AnyParameter<T, Exec> const& parameter) {
    using A = accumulator_t<T>;
    auto const matrices = zero::matrices_of(parameter);
    planner::MatrixAccount account{.count = matrices.count, .shape = matrices.shape, .axes = matrices.axes};
    if (account.count == 0) return account;
    auto const& context = parameter.context();
    pentad::detail::prepare(context, matrices.gathering);
    pentad::detail::prepare(context, matrices.scattering);
    Tensor<zero::Whole<A>, Exec> const shard(context, {parameter.size()});
    auto& run = *observe::dry_run();
    auto& held = observe::counters()[observe::Memory::activations];
    run.clear();
    auto const before = held.peak = held.bytes;
    zero::orthogonalise(
        context, matrices,
        pentad::detail::Shard<A, Exec>{{parameter.local_extents(), matrices.stored.rank}, shard.block(), shard.data()},
        model::Muon(), [](std::size_t i) { return i == 0; });
    account.workspace = static_cast<double>(held.peak - before);
    for (auto const& work : run.work())
        for (std::size_t i = 0; i < work.cost.axes.size(); ++i) account.sent.add(work.cost.axes[i], work.cost.bytes[i]);
    run.clear();
    return account;
}
} // namespace detail

/// The account of blocks [first, first + count) and, where `layers` says so, the embedding or the head. In a dry run
/// (observe/dry_run.hpp), whose records it clears.
/// @param places of a context of that dry run
/// @param has_matrices whether it says what it takes to work on whole matrices
template <class T, class Exec>
planner::PartAccount account_of(ModelPlaces<Exec> const& places, model::Model const& model,
                                LayerRegistry<T, Exec> const& registry, StageLayers const& layers,
                                model::BlockRecomputation const& recompute, bool has_matrices = true) {
    auto const& setup = *places.ends().setup;
    auto& run = *observe::dry_run();
    auto const& held = observe::counters()[observe::Memory::activations];
    using Stage = LanguageModel<T, Exec>;
    Stage stage(places, model, registry, {layers}, model::each_block(recompute));
    planner::PartAccount account;
    std::deque<detail::CountedUnit> units;
    stage.for_each_unit_of(layers.stage, [&](auto& unit) {
        unit.set_memory(&units.emplace_back());
        for (auto const* const parameter : unit.parameters()) {
            auto const& stored = parameter->stored_layout();
            planner::ParameterAccount one{.name = parameter->name(),
                                          .elements = static_cast<double>(parameter->size()),
                                          .sharded = {},
                                          .gradient = parameter->synchronised_axes(),
                                          .unit = static_cast<int>(units.size()) - 1,
                                          .own_optimizer = parameter->own_optimizer()};
            // Trainer's stages may be held twice, by ranks along inner(pp).
            if (!one.gradient.contains(inner<pp>::name)) one.gradient.push(inner<pp>::name);
            for (std::size_t d = 0; d < stored.rank; ++d)
                for (auto const axis : stored.dimensions[d].axes) one.sharded.push(axis);
            if (has_matrices) one.matrices = detail::matrix_account(*parameter);
            account.parameters.push_back(std::move(one));
        }
    });
    account.state = stage.decoding_state();
    LayoutValue const of_tokens = token_values<i32>(*places.ends().stream);
    AnyTensor<i32, Exec> const tokens(setup.context, of_tokens, std::array{setup.batch, setup.seq});
    std::vector<TokensAhead<Exec>> const ahead(model.predictors.size(), {tokens.rows(), tokens.rows()});
    Pass<Exec> pass{.context = setup.context, .tokens = tokens.rows(), .targets = tokens.rows(), .ahead = ahead};
    typename Stage::Saved saved;
    auto const record = [&](planner::PassAccount& into, auto&& f) {
        run.clear();
        observe::counters()[observe::Memory::activations].peak = held.bytes;
        std::int64_t const before = held.bytes;
        f();
        into = {run.work(), static_cast<double>(held.peak - before)};
        run.clear();
    };
    std::int64_t const before = held.bytes;
    record(account.forward, [&] {
        (void)stage.forward(layers.stage, pass,
                            layers.is_first ? AnyTensor<T, Exec>() : stage.make_input(layers.stage, pass), saved);
    });
    account.saved = static_cast<double>(held.bytes - before);
    record(account.backward_data, [&] {
        auto dy = layers.is_last ? AnyTensor<T, Exec>() : stage.make_output_gradient(layers.stage);
        (void)stage.backward_data(layers.stage, pass, std::move(dy), saved);
    });
    account.left = static_cast<double>(held.bytes - before);
    record(account.backward_weight, [&] { stage.backward_weight(layers.stage, pass, saved); });
    for (auto& parameter : account.parameters)
        parameter.acquired = units[static_cast<std::size_t>(parameter.unit)].acquired;
    return account;
}

} // namespace pentad::train
