// The parts of a model on a rank of any mesh, run dry for the planner.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/layers/places.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/detail/compiled_streams.hpp>
#include <pentad/train/part_account.hpp>

#include <array>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// Blocks of one kind are run once; where they recompute something, they alone are.
/// @param kinds the first block of each @param wanted which parts @param has_matrices as of account_of()
/// @throws std::invalid_argument where the model cannot be laid out so
template <class T, class Exec>
planner::PartAccounts dry_parts(model::Model const& model, LayerRegistry<T, Exec> const& registry,
                                std::vector<std::size_t> const& kinds, planner::PartShape const& shape,
                                planner::PerPart<bool> const& wanted, bool has_matrices) {
    // Two ranks or more along dp and edp stand for any number: what is reduced over them is seen, and the planner
    // scales it.
    int const of_sequence = static_cast<int>(shape.cp * shape.tp), of_experts = static_cast<int>(shape.ep * shape.etp),
              copies = 2 * std::lcm(of_sequence, of_experts) / of_sequence;
    auto const whole =
        model::with_experts(model::DenseMesh(copies, 1, static_cast<int>(shape.cp), static_cast<int>(shape.tp)),
                            {.ep = static_cast<int>(shape.ep), .etp = static_cast<int>(shape.etp)});
    auto const mesh = model::split_tensor_axis(whole, tp(), model, shape.block.tensor_kind)
                          .template split<cp>(static_cast<int>(shape.block.inner_cp));
    observe::DryRun run;
    run.stand_for_all();
    run.routing().imbalance = shape.imbalance;
    int const on_a_node = shape.nodes > 1 ? static_cast<int>(shape.ep / shape.nodes * shape.etp) : mesh.size();
    // The last rank of cp sees most if causal sequences lie in contiguous pieces: the others wait for it.
    int const slowest = shape.block.zigzag ? 0 : static_cast<int>((shape.cp - 1) * shape.tp);
    comm::Communicators communicators(mesh, slowest, on_a_node);
    Context<Exec> const context(communicators);
    LayerSetup<Exec> setup{context, model.hidden, model.norm_epsilon};
    setup.batch = static_cast<std::size_t>(shape.micro_batch * copies);
    setup.seq = static_cast<std::size_t>(shape.seq);
    setup.padding = static_cast<std::size_t>(shape.padding);
    setup.block = shape.block;
    setup.rows = shape.rows;
    auto setup_before = setup;
    setup_before.block = shape.before;
    auto const& stream = model::stream_layout<T>(shape.block);
    PartPlace<Exec> const own{&setup, &stream}, before{&setup_before, &model::stream_layout<T>(shape.before)};
    auto const layers = model.blocks.size();
    planner::PartAccounts parts(kinds.size());
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        if (!wanted.block(kind)) continue;
        std::vector<PartPlace<Exec>> places(layers, before);
        places[kinds[kind]] = own;
        parts.block(kind) = account_of({before, std::move(places)}, model, registry, {0, kinds[kind], 1, false, false},
                                       shape.recompute, has_matrices);
    }
    if (!shape.recompute.is_none()) return parts;
    if (wanted.embedding())
        parts.embedding() = account_of({setup, stream}, model, registry, {0, 0, 0, true, false}, {}, has_matrices);
    if (wanted.head())
        parts.head() = account_of({own, std::vector(layers, before)}, model, registry, {0, layers, 0, false, true}, {},
                                  has_matrices);
    auto const shard = shard_shape(stream, std::array{setup.batch, setup.seq, setup.hidden}, communicators.mesh());
    parts.stream = static_cast<double>(shard.size() * sizeof(T));
    return parts;
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(T)                                                                                             \
    extern template planner::PartAccounts dry_parts(                                                                   \
        model::Model const&, LayerRegistry<T, Kokkos::DefaultExecutionSpace> const&, std::vector<std::size_t> const&,  \
        planner::PartShape const&, planner::PerPart<bool> const&, bool);
PENTAD_FOR_EACH_COMPILED_ELEMENT(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train
