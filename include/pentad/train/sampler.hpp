// Room: train. Draws text from a model on the mesh that trained it: no weight moves. Temperature 1, by the Gumbel-max
// trick: the largest of logit + noise over all of the vocabulary, wherever its parts are.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/tensor/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

namespace detail {

/// The largest over all ranks of the mesh.
template <class Exec>
double largest(Context<Exec> const& context, double own) {
    using Largest = Layout<f64, Dims<>, PartialMax<dp, pp, ep, cp, tp>>;
    Tensor<Largest, Exec> value(context, {});
    value.set(&own);
    redistribute<invariant_t<Largest>>(std::move(value)).get(&own);
    return own;
}

/// The forward pass of all stages; the logits on the last one, nothing elsewhere.
template <class Exec, class Model>
auto pipeline_logits(Setup<Exec> const& setup, Model const& model, Pass<Exec>& pass) {
    using Stream = typename Model::StreamLayout;
    auto const& stages = setup.context.communicators().along(AxisNames(pp::name));
    Tensor<Stream, Exec> x;
    if (!model.is_first()) {
        x = {setup.context, {setup.batch, setup.seq, setup.shape.hidden}};
        comm::receive(setup.context.exec(), stages, x.flat(), stages.rank() - 1);
    }
    if (model.is_last()) return model.logits(pass, std::move(x));
    typename Model::Saved saved;
    x = model.forward(pass, std::move(x), saved);
    comm::send(setup.context.exec(), stages, x.flat(), stages.rank() + 1);
    return decltype(model.logits(pass, std::move(x))){};
}

} // namespace detail

/// `bytes` bytes that follow `prompt` (or its last seq bytes). The same on every rank. Collective over all ranks.
template <class Exec, class Model>
std::string sample(Setup<Exec> const& setup, Model const& model, std::string prompt, std::int64_t bytes,
                   std::uint64_t seed) {
    if (prompt.empty()) prompt = "\n";
    auto const& context = setup.context;
    auto const& communicators = context.communicators();
    auto const partition = setup.partition();
    std::size_t const shard = communicators.shard_index(AxisNames(cp::name)), length = partition.local_extent();
    using Tokens = Layout<i32, Dims<Dim<batch, dynamic, dp, ep>, Dim<seq, dynamic, cp>>>;
    Tensor<Tokens, Exec> const tokens(context, {setup.batch, setup.seq}), targets(context, {setup.batch, setup.seq});
    std::vector<i32> host(tokens.size(), -1);
    targets.set(host.data());

    std::string const start = prompt;
    for (std::int64_t drawn = 0; drawn < bytes; ++drawn) {
        std::string const window = prompt.substr(prompt.size() - std::min(prompt.size(), setup.seq));
        for (std::size_t row = 0; row < tokens.local()[0]; ++row)
            for (std::size_t i = 0; i < length; ++i) {
                std::size_t const position = partition.global_index(shard, i);
                host[row * length + i] = position < window.size() ? static_cast<unsigned char>(window[position]) : 0;
            }
        tokens.set(host.data());
        Pass<Exec> pass{.context = context, .tokens = tokens.view(), .targets = targets.view()};
        auto const logits = detail::pipeline_logits(setup, model, pass);

        // The ranks that hold the last position of the first sequence look at their part of the vocabulary, bytes only.
        double best = -std::numeric_limits<double>::infinity();
        double best_byte = -1;
        bool const has_row = communicators.shard_index(AxisNames(dp::name, ep::name)) == 0;
        if (model.is_last() && has_row && partition.shard_of(window.size() - 1) == shard) {
            std::size_t const at = partition.local_index(window.size() - 1), columns = logits.local()[2];
            std::size_t const first = columns * communicators.shard_index(AxisNames(tp::name));
            using T = typename std::remove_cvref_t<decltype(logits)>::element;
            std::vector<T> row(columns);
            comm::copy_to_host(context.exec(), row.data(), logits.data() + at * columns, columns * sizeof(T));
            for (std::size_t i = 0; i < columns && first + i < 256; ++i) {
                double const u = random::uniform(seed, random::stream("sample"),
                                                 static_cast<std::uint64_t>(drawn) * 256 + first + i);
                double const score = static_cast<double>(row[i]) - std::log(-std::log(u + 1e-300));
                if (score > best) {
                    best = score;
                    best_byte = static_cast<double>(first + i);
                }
            }
        }
        double const winner = detail::largest(context, best);
        prompt +=
            static_cast<char>(static_cast<unsigned char>(detail::largest(context, best == winner ? best_byte : -1)));
    }
    return prompt.substr(start.size());
}

} // namespace pentad::train
