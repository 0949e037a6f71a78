// What a rank does for a micro-batch in a part of a model, by a dry run of the part: what it computes, reads, writes
// and sends in each pass, which parameters it has, and what it keeps between the passes. Nothing of a layer is said
// here.
#pragma once

#include <pentad/layers/registry.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/train/language_model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

/// A parameter as a rank holds it.
struct ParameterAccount {
    std::string name;
    std::size_t elements = 0;    ///< of this rank
    AxisNames sharded, gradient; ///< the axes that shard it; those over which its gradient is partial
    bool decays = true;
};

/// One pass of a micro-batch.
struct PassAccount {
    std::vector<observe::Work> work;
    std::int64_t peak = 0; ///< bytes of activations while it runs, over those before it
};

struct PartAccount {
    PassAccount forward, backward_data, backward_weight;
    std::int64_t saved = 0; ///< bytes between forward and backward, without what passes between stages
    std::int64_t left = 0;  ///< of them and of what backward_data adds, before backward_weight
    std::vector<ParameterAccount> parameters;
};

/// The account of blocks [first, first + count) and, where `layers` says so, the embedding or the head. In a dry run
/// (observe/dry_run.hpp), whose records it clears.
/// @param setup of a context of that dry run
template <class Stream, class Exec>
PartAccount account_of(Setup<Exec> const& setup, model::Model const& model, LayerRegistry<Stream, Exec> const& registry,
                       StageLayers const& layers, bool recompute) {
    auto& run = *observe::dry_run();
    auto const& held = observe::counters()[observe::Memory::activations];
    using Stage = LanguageModel<Stream, Exec>;
    Stage stage(setup, model, registry, {layers}, recompute);
    PartAccount account;
    stage.for_each_parameter([&](auto const& parameter) {
        auto const& stored = parameter.stored_layout();
        ParameterAccount one{parameter.name(), parameter.size(), {}, parameter.synchronised_axes(), parameter.decays()};
        for (std::size_t d = 0; d < stored.rank; ++d)
            for (auto const axis : stored.dimensions[d].axes) one.sharded.push(axis);
        account.parameters.push_back(std::move(one));
    });
    Tensor<token_values_t<Stream, i32>, Exec> const tokens(setup.context, {setup.batch, setup.seq});
    Pass<Exec> pass{.context = setup.context, .tokens = tokens.view(), .targets = tokens.view()};
    typename Stage::Saved saved;
    auto const record = [&](PassAccount& into, auto&& f) {
        run.clear();
        observe::counters()[observe::Memory::activations].peak = held.bytes;
        std::int64_t const before = held.bytes;
        f();
        into = {run.work(), held.peak - before};
        run.clear();
    };
    auto const stream = [&] {
        return typename Stage::Activation(setup.context, {setup.batch, setup.seq, setup.hidden});
    };
    std::int64_t const before = held.bytes;
    record(account.forward, [&] {
        (void)stage.forward(layers.stage, pass, layers.is_first ? typename Stage::Activation() : stream(), saved);
    });
    account.saved = held.bytes - before;
    record(account.backward_data, [&] {
        auto dy = layers.is_last ? typename Stage::Gradient() : stream().template as<dual_t<Stream>>();
        (void)stage.backward_data(layers.stage, pass, std::move(dy), saved);
    });
    account.left = held.bytes - before;
    record(account.backward_weight, [&] { stage.backward_weight(layers.stage, pass, saved); });
    return account;
}

} // namespace pentad::train
