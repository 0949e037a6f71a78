// ranks: 1 2 4 8
//
// What the planner predicts of a run is what the run does: the bytes on each axis to the byte, with experts for the
// rows that were really exchanged, on several nodes (PENTAD_RANKS_PER_NODE) too; the memory as the allocator counts it.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/experts/dispatch.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/mixers.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/trainer.hpp>

#include <io/scratch.hpp>
#include <support/on_mesh.hpp>
#include <support/pmpi_counter.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

using namespace support;

namespace {

struct Case {
    std::string schedule = "1f1b";
    int chunks = 0;
    bool sequence_parallel = false;
    planner::Element element = planner::Element::f32;
    int inner_cp = 1;
    model::TensorKind tensor_kind = model::TensorKind::one_d;
};

int ranks_per_node() {
    char const* const text = std::getenv("PENTAD_RANKS_PER_NODE");
    return text == nullptr ? world_size() : std::atoi(text);
}

/// The nodes to which training takes a token once each; 1: dispatch goes in one exchange.
int dispatch_nodes(OnMesh const& mesh, std::size_t top_k) {
    auto const& nodes = mesh.context.communicators().along(AxisNames(ep::name)).nodes();
    return experts::Dispatch<f32, Exec>::goes_by_node(mesh.context, top_k) ? nodes.count() : 1;
}

/// Rows that a rank really sent for one of its tokens, counted behind the profiling interface: each exchange sends the
/// numbers of its rows, and exchanges take turns.
planner::SentRowsOfToken sent_rows(OnMesh const& mesh, train::RunSettings const& settings, bool goes_by_node) {
    auto& communicators = mesh.context.communicators();
    struct CountedExchange {
        comm::Communicator const* ranks;
        double rows = 0, held = 0, exchanges = 0; // those that leave a rank, and with those that stay
    };
    std::vector<CountedExchange> row_exchanges;
    if (goes_by_node) row_exchanges.push_back({&communicators.along(AxisNames(outer<ep>::name))});
    auto const& inside = communicators.along(AxisNames(goes_by_node ? inner<ep>::name : ep::name));
    if (inside.size() > 1) row_exchanges.push_back({&inside});
    auto const& exchanged = pmpi::exchanged_counts();
    for (std::size_t i = 0; i < exchanged.size(); ++i) {
        auto& one = row_exchanges[i % row_exchanges.size()];
        for (std::size_t k = 0; k < exchanged[i].size(); ++k) {
            one.held += static_cast<double>(exchanged[i][k]);
            if (k != static_cast<std::size_t>(one.ranks->rank())) one.rows += static_cast<double>(exchanged[i][k]);
        }
        ++one.exchanges;
    }
    auto const& m = mesh.shape;
    double const tokens =
        static_cast<double>(settings.strategy.batch * settings.strategy.seq) /
        static_cast<double>(settings.strategy.micro_batches * static_cast<std::size_t>(m.ranks() / m.pp));
    for (auto& one : row_exchanges) {
        double const tokens_of_all = over_ranks(one.exchanges * tokens);
        one.rows = over_ranks(one.rows) / tokens_of_all;
        one.held = over_ranks(one.held) / tokens_of_all;
    }
    return {.across = goes_by_node ? row_exchanges.front().rows : 0,
            .inside = inside.size() > 1 ? row_exchanges.back().rows : 0,
            .held = row_exchanges.back().held};
}

/// What all ranks send to other nodes in a step for dispatch, as planned.
double planned_across(planner::Model const& model, pentad::Strategy const& c, pipeline::Schedule const& schedule,
                      int nodes) {
    // Where each node has one rank, its part of ep is all of it.
    auto const axis = nodes == c.expert_mesh().ep ? std::string_view("ep") : std::string_view(outer<ep>::name);
    double const tokens = static_cast<double>(c.micro_batch() * c.seq) / static_cast<double>(c.cp * c.tp);
    auto shape_of_part = model.shape(c, nodes);
    shape_of_part.recompute = c.recompute.of(0);
    auto const accounts = model.accounts(shape_of_part);
    planner::AlikeLayers const layers(model, c);
    double sum = 0;
    for (auto const& shape : planner::stage_shapes(model, c, schedule.stages()))
        for (std::size_t kind = 0; kind < shape.of_kind.size(); ++kind) {
            auto const& block = accounts.block(layers.alike[kind].kind);
            for (auto const* pass : {&block.forward, &block.backward_data})
                for (auto const& x : pass->work)
                    if (x.operation == observe::Operation::all_to_all && x.cost.axes.size() > 0 &&
                        x.cost.axes[0] == axis)
                        sum += shape.of_kind[kind] *
                               (x.rows > 0 ? x.bytes / x.rows * model.sent->across * tokens : x.bytes);
        }
    return sum * static_cast<double>(c.micro_batches * (c.devices() / c.pp));
}

template <class Stream>
void compare(MeshShape const& m, train::RunSettings const& settings, Case const& how) {
    auto const schedule = pipeline::generate(
        how.schedule,
        {.ranks = m.pp, .micro_batches = static_cast<int>(settings.strategy.micro_batches), .chunks = how.chunks});
    auto const usual = OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads));
    bool const is_grid = how.tensor_kind != model::TensorKind::one_d;
    auto const split = is_grid ? model::split_tensor_axis(usual, tp(), settings.model, how.tensor_kind) : usual;
    int const neighbours = std::max(settings.strategy.local.ranks, settings.strategy.sharding.ranks);
    OnMesh const mesh(
        m, train::for_schedule(model::split_data(split, std::max(1, neighbours)).split<cp>(how.inner_cp), schedule));
    std::array<observe::MemoryCount, observe::memory_names.size()> before{};
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = observe::counters().memory[i];
    Training<Stream> training(mesh, settings, schedule);
    int const steps = std::max(1, settings.strategy.local.steps); // from one average to the next
    for (int step = 1; step <= steps; ++step) training.trainer.step(step);
    for (auto& count : observe::counters().memory) count.peak = count.bytes;
    observe::ledger().clear();
    pmpi::clear();
    comm::forced_algorithm() = comm::Algorithm::mpi; // what is exchanged is seen behind the profiling interface
    for (int step = steps + 1; step <= 2 * steps; ++step) training.trainer.step(step);
    comm::forced_algorithm() = comm::Algorithm::automatic;

    auto model = train::planned_model(settings.model);
    auto const& group = mesh.context.communicators().along(AxisNames(ep::name));
    auto c = support::on_mesh(m, settings.strategy);
    bool const dispatches = c.expert_mesh().ep > 1;
    int const nodes = dispatches ? dispatch_nodes(mesh, sizes(settings.model).top_k) : 1;
    if (dispatches) model.sent = sent_rows(mesh, settings, nodes > 1);
    c.schedule = how.schedule;
    c.chunks = how.chunks;
    c.block.inner_cp = how.inner_cp;
    c.block.tensor_kind = how.tensor_kind;
    c.block.sequence_parallel = how.sequence_parallel;
    c.element = how.element;
    planner::Hardware machine{.devices = m.ranks(),
                              .devices_per_node = ranks_per_node(),
                              .peak_f32 = 1e12,
                              .peak_bf16 = 1e12,
                              .memory_bytes = 1e12,
                              .memory_bandwidth = 1e12};
    auto const estimate = planner::estimate(model, machine, c);
    INFO(m.text(), " ", how.schedule, " sp ", how.sequence_parallel, " zero ", settings.strategy.sharding.stage,
         " over ", settings.strategy.sharding.ranks, " accumulates ", settings.strategy.sharding.accumulates_gradients,
         " keeps ", settings.strategy.sharding.keeps_parameters, " releases ",
         settings.strategy.sharding.releases_gradients, " recompute ", model::text(settings.strategy.recompute));
    for (auto const axis : pentad::view_axes) {
        double const planned = std::round(steps * estimate.bytes[axis]),
                     sent = over_ranks(observe::ledger().bytes(axis));
        if (settings.strategy.precision.reduce ==
            Compact::fp8) // of which parts that are no whole blocks have a scale more
            CHECK_MESSAGE(std::abs(planned - sent) <= 0.005 * sent, axis);
        else
            CHECK_MESSAGE(std::round(sent) == planned, axis); // a group along two axes books thirds of a row on each
    }
    if (dispatches) {
        CHECK(planner::dispatch_nodes(model, c, machine.devices_per_node) == nodes);
        // Rows are all that goes over ep from each rank to each other.
        if (nodes > 1 || group.nodes().count() == 1)
            CHECK(over_ranks(observe::ledger().entry(ep::name, observe::Operation::all_to_all).network_bytes) ==
                  std::round(planned_across(model, c, schedule, nodes)));
    }

    double held = 0;
    for (std::size_t i = 0; i < before.size(); ++i)
        held += static_cast<double>(observe::counters().memory[i].peak - before[i].bytes);
    double const fullest = over_ranks(held, MPI_MAX);
    CHECK_MESSAGE(std::abs(estimate.memory_peak / fullest - 1) < 0.1, "peak ", fullest, ", planned ",
                  estimate.memory_peak);
    if (m.pp > 1) return; // the fullest rank need not be the one with the most state
    constexpr auto state = static_cast<std::size_t>(observe::Memory::optimizer);
    double const kept =
        over_ranks(static_cast<double>(observe::counters().memory[state].peak - before[state].bytes), MPI_MAX);
    // Blocks of the pool are rounded up, which counts more where moments are small.
    double const rounding = settings.strategy.precision.moments == Compact::none ? 0 : 6000;
    CHECK(std::abs(estimate.fullest.optimizer - kept) <= 0.01 * kept + rounding);
}

void compare(MeshShape const& m, train::RunSettings const& settings, Case how = {}) {
    if (how.tensor_kind == model::TensorKind::three_d)
        compare<CubeStream<f32>>(m, settings, how);
    else if (how.tensor_kind != model::TensorKind::one_d)
        compare<GridStream<f32>>(m, settings, how);
    else if (how.sequence_parallel)
        compare<SequenceStream<f32>>(m, settings, how);
    else
        compare<InvariantStream<f32>>(m, settings, how);
}

/// A model whose sizes are not small against the rounding of the allocator, with few layers. A pipeline needs one for
/// each chunk.
train::RunSettings dense(std::size_t layers = 2) {
    return {.model =
                model::decoder({.layers = layers, .hidden = 128, .heads = 8, .kv_heads = 4, .ffn = 352, .vocab = 512}),
            .strategy = {.batch = 16, .micro_batches = 4, .seq = 64},
            .steps = 4};
}

} // namespace

TEST_CASE("a dense model on every axis alone") {
    int const n = world_size();
    if (n > 4) return;
    for (auto const& m : {MeshShape{.dp = n}, MeshShape{.cp = n}, MeshShape{.tp = n}, MeshShape{.pp = n}}) {
        compare(m, dense(4));
        if (n == 1) break;
    }
    compare({.tp = n}, dense(4), {.sequence_parallel = true});
}

TEST_CASE("ZeRO, recomputation, buckets") {
    int const n = world_size();
    if (n > 4) return;
    auto run = dense();
    run.strategy.sharding.stage = 1;
    compare({.dp = n}, run);
    run.strategy.bucket_elements = 10000;
    compare({.dp = n}, run);
    run.strategy.recompute = {.kind = model::Recomputation::Kind::full};
    compare({.cp = n}, run);
    compare({.tp = n}, run, {.sequence_parallel = true});
    run.strategy.block.context = ContextStrategy::all_gather;
    run.strategy.block.zigzag = true;
    compare({.cp = n}, run);
    run.strategy.recompute = {.kind = model::Recomputation::Kind::selective};
    compare({.tp = n}, run);
    change(run, [](auto& sizes) { sizes.experts = 4; });
    compare({.dp = n}, run);
}

TEST_CASE("sequences that the mesh does not divide: what is sent and held is that of padded ones") {
    int const n = world_size();
    if (n == 1 || n > 4) return;
    auto run = dense();
    run.strategy.seq = 61;
    compare({.cp = n}, run);
    compare({.tp = n}, run, {.sequence_parallel = true});
    run.strategy.block.zigzag = true;
    compare({.cp = n}, run);
    run.strategy.recompute = {.kind = model::Recomputation::Kind::full};
    if (n == 4) compare({.cp = 2, .tp = 2}, run, {.sequence_parallel = true});
    change(run, [](auto& sizes) { sizes.experts = 4; });
    if (n == 4) compare({.ep = 2, .cp = 2}, run);
    if (n == 4) compare({.ep = 2, .tp = 2}, run, {.sequence_parallel = true});
}

TEST_CASE("strategies of attention") {
    int const n = world_size();
    if (n != 2 && n != 4) return;
    auto run = dense();
    change(run, [](auto& sizes) { sizes.kv_heads = 2; });
    for (auto const strategy :
         {ContextStrategy::double_ring, ContextStrategy::heads_ring, ContextStrategy::ring_heads}) {
        run.strategy.block.context = strategy;
        run.strategy.block.zigzag = true;
        compare({.cp = n}, run, {.inner_cp = 2});
        run.strategy.block.zigzag = false;
        if (n == 4) compare({.cp = 2, .tp = 2}, run, {.sequence_parallel = true, .inner_cp = 2});
    }
    run.strategy.block.context = ContextStrategy::heads_ring;
    compare({.cp = n}, run, {.inner_cp = n});
}

TEST_CASE("heads that are exchanged for sequence behind attention") {
    int const n = world_size();
    if (n > 4) return;
    auto run = dense();
    run.strategy.block.attention_output = model::AttentionOutput::all_to_all;
    compare({.tp = n}, run);
    compare({.tp = n}, run, {.sequence_parallel = true});
    run.strategy.recompute = {.kind = model::Recomputation::Kind::selective, .pieces = {model::Piece::attention}};
    run.strategy.sharding.stage = 3;
    if (n == 4) compare({.cp = 2, .tp = 2}, run, {.sequence_parallel = true});
}

TEST_CASE("blocks whose streams differ") {
    int const n = world_size();
    if (n == 1) return;
    model::BlockStrategy const shards{.sequence_parallel = true}, whole{},
        exchanges{.attention_output = model::AttentionOutput::all_to_all};
    auto run = dense(4);
    run.strategy.seq = 60; // is padded where tokens are dealt to tp
    std::vector<MeshShape> meshes{{.tp = n}};
    if (n >= 4) meshes.push_back({.pp = 2, .tp = n / 2});
    if (n == 4) meshes.push_back({.cp = 2, .tp = 2});
    for (auto const& m : meshes)
        for (bool const sequence_parallel : {false, true}) { // of the ends
            run.strategy.block.sequence_parallel = sequence_parallel;
            for (auto const& blocks : {std::vector{shards, whole, shards, whole}, {whole, whole, shards, shards}}) {
                run.strategy.blocks = blocks;
                run.strategy.recompute = {};
                compare(m, run, {.sequence_parallel = sequence_parallel});
                run.strategy.recompute = {.kind = model::Recomputation::Kind::full, .every = 2};
                compare(m, run, {.sequence_parallel = sequence_parallel});
            }
        }
    run.strategy.block.sequence_parallel = false;
    run.strategy.blocks = {exchanges, shards, exchanges, whole};
    run.strategy.recompute = {};
    if (n <= 4) compare({.tp = n}, run);
    change(run, [](auto& sizes) { sizes.experts = 4; });
    if (n == 4) compare({.ep = 2, .tp = 2}, run);
}

TEST_CASE("blocks with meshes of their own") {
    int const n = world_size();
    if (n == 1) return;
    auto const on = [](std::int64_t cp, std::int64_t tp, model::BlockStrategy block = {}) {
        block.mesh = model::BlockMesh{cp, tp};
        return block;
    };
    model::BlockStrategy const whole{}, shards{.sequence_parallel = true},
        grid{.tensor_kind = model::TensorKind::two_d};
    auto run = dense(4);
    run.strategy.batch = 32;
    run.strategy.seq = 60;
    for (int const stage : {0, 1, 3}) {
        run.strategy.sharding.stage = stage;
        run.strategy.blocks = {on(1, n), whole, on(n, 1), on(1, 1)};
        compare({.dp = n}, run);
        run.strategy.blocks = {on(1, 1), shards, whole, on(1, n, shards)};
        compare({.tp = n}, run);
        if (n == 4) {
            run.strategy.blocks = {on(1, 4, grid), whole, on(1, 4, grid), on(2, 2)};
            compare({.dp = 2, .tp = 2}, run);
            run.strategy.blocks = {on(2, 1), on(1, 1), on(1, 2), on(1, 2)};
            compare({.pp = 2, .tp = 2}, run);
        }
        if (n == 8) {
            run.strategy.blocks = {on(1, 4, grid), on(4, 1), whole, on(2, 2)};
            compare({.pp = 2, .cp = 2, .tp = 2}, run);
        }
    }
    run.strategy.sharding.stage = 0;
    run.strategy.blocks = {on(1, n), whole, on(n, 1), on(1, 1)};
    run.strategy.recompute = {.kind = model::Recomputation::Kind::full};
    compare({.dp = n}, run);
    run.strategy.recompute = {};
    change(run, [](auto& sizes) { sizes.experts = 8; });
    if (n == 4) run.strategy.blocks = {on(1, 2), on(2, 2), on(1, 1), whole};
    if (n == 4) compare({.dp = 2, .ep = 2}, run);
}

TEST_CASE("tensor parallelism on a grid") {
    using model::TensorKind;
    auto run = dense();
    run.strategy.batch = 32;
    if (world_size() == 4) {
        compare({.tp = 4}, run, {.tensor_kind = TensorKind::two_d});
        run.strategy.sharding.stage = 1;
        run.strategy.recompute = {.kind = model::Recomputation::Kind::selective};
        compare({.tp = 4}, run, {.tensor_kind = TensorKind::two_d});
    }
    if (world_size() != 8) return;
    compare({.tp = 8}, run, {.tensor_kind = TensorKind::two_and_half_d});
    compare({.tp = 8}, run, {.tensor_kind = TensorKind::three_d});
    run.strategy.sharding.stage = 2;
    compare({.pp = 2, .tp = 4}, run, {.tensor_kind = TensorKind::two_d});
    run.strategy.recompute = {.kind = model::Recomputation::Kind::full};
    compare({.dp = 2, .tp = 4}, run, {.tensor_kind = TensorKind::two_d});
    compare({.cp = 2, .tp = 4, .inside_out = true}, run, {.tensor_kind = TensorKind::two_d});
    run.strategy.sharding.stage = 3;
    compare({.tp = 8}, run, {.tensor_kind = TensorKind::two_and_half_d});
}

TEST_CASE("windows, and recurrent layers among attention") {
    int const n = world_size();
    if (n > 4) return;
    auto run = dense(4);
    change(run, [](auto& sizes) { sizes.kv_heads = 2; });
    auto const decoder = run.model;
    for (auto& block : run.model.blocks) {
        auto attention = *block.branches[0].part.as<model::Attention>();
        attention.sight.window = 20;
        block.branches[0].part = attention;
    }
    compare({.cp = n}, run);
    for (auto const& [pattern, groups] : {std::pair<char const*, std::size_t>{"a,m", 1}, {"a,m", 4}, {"a,l", 1}}) {
        run.model = model::with_mixers(
            decoder, model::mixers_of(pattern).value(),
            {.heads = 16, .head_dim = 16, .state = 32, .groups = groups, .norm_groups = groups, .chunk = 32},
            {.heads = 8, .head_dim = 16, .chunk = 32});
        run.strategy.block.zigzag = false;
        run.strategy.recompute = {};
        for (auto const strategy : {ContextStrategy::ring, ContextStrategy::all_gather}) {
            run.strategy.block.context = strategy;
            compare({.cp = n}, run);
        }
        run.strategy.block.context = ContextStrategy::ring;
        compare({.tp = n}, run, {.sequence_parallel = true});
        run.strategy.block.zigzag = true;
        run.strategy.recompute = {.kind = model::Recomputation::Kind::selective};
        compare({.cp = n}, run);
        if (n == 4) compare({.pp = 2, .tp = 2}, run);
    }
}

TEST_CASE("sinks are parameters, and are planned as they run; caps and ALiBi take no bytes") {
    int const n = world_size();
    if (n > 4) return;
    for (model::Scores const& scores :
         {model::Scores{.sinks = true}, model::Scores{.soft_cap = 30, .alibi = true, .sinks = true}}) {
        auto run = dense();
        for (auto& block : run.model.blocks) {
            auto attention = *block.branches[0].part.as<model::Attention>();
            attention.rotates = !scores.alibi;
            attention.scores = scores;
            block.branches[0].part = attention;
        }
        compare({.dp = n}, run);
        compare({.tp = n}, run, {.sequence_parallel = true});
        run.strategy.sharding.stage = 3;
        run.strategy.recompute = {.kind = model::Recomputation::Kind::selective, .pieces = {model::Piece::attention}};
        compare({.cp = n}, run);
        if (n == 1) continue;
        run.strategy.block.context = ContextStrategy::heads_ring;
        compare({.cp = n}, run, {.inner_cp = n});
        compare({.pp = 2, .cp = n / 2}, run);
    }
}

TEST_CASE("latent attention, whose latent vectors travel over cp") {
    int const n = world_size();
    if (n > 4) return;
    for (std::size_t const query_rank : {0, 48}) {
        auto run = dense(6);
        make_latent(run, query_rank);
        compare({.dp = n}, run);
        compare({.cp = n}, run);
        compare({.tp = n}, run);
        compare({.tp = n}, run, {.sequence_parallel = true});
        run.strategy.recompute = {.kind = model::Recomputation::Kind::selective,
                                  .pieces = {model::Piece::inputs, model::Piece::norms, model::Piece::attention}};
        compare({.tp = n}, run, {.sequence_parallel = true});
        run.strategy.sharding.stage = 3;
        run.strategy.block.zigzag = true;
        compare({.cp = n}, run);
        if (n == 4) compare({.cp = 2, .tp = 2}, run, {.sequence_parallel = true});
        if (n > 1) compare({.pp = 2, .cp = n / 2}, run);
    }
}

TEST_CASE("gradients and parameters that are sharded, or released") {
    int const n = world_size();
    if (n > 4) return;
    for (ZeroSharding const& sharding : std::vector<ZeroSharding>{{.stage = 2},
                                                                  {.stage = 3},
                                                                  {.stage = 2, .accumulates_gradients = true},
                                                                  {.stage = 3, .accumulates_gradients = true},
                                                                  {.stage = 3, .keeps_parameters = true},
                                                                  {.stage = 1, .releases_gradients = true},
                                                                  {.stage = 3, .releases_gradients = true}}) {
        auto run = dense();
        run.strategy.batch = 8;
        run.strategy.micro_batches = 2;
        run.clip = sharding.releases_gradients ? 0 : 1;
        run.strategy.sharding = sharding;
        compare({.dp = n}, run);
        change(run, [](auto& sizes) { sizes.ties_embeddings = true; });
        compare({.cp = n}, run);
        if (n == 1) continue;
        compare({.pp = 2, .tp = n / 2}, run, {.sequence_parallel = true});
        auto deeper = run;
        change(deeper, [](auto& sizes) { sizes.layers = 4; });
        compare({.dp = n / 2, .pp = 2}, deeper, {.schedule = "interleaved-1f1b", .chunks = 2});
        change(run, [](auto& sizes) { sizes.experts = 4; });
        compare({.dp = n / 2, .ep = 2}, run);
        if (!sharding.releases_gradients)
            compare({.dp = n / 2, .pp = 2}, deeper, {.schedule = "dualpipe-v", .chunks = 2});
        if (n < 4) continue;
        run.strategy.sharding.ranks = 2;
        compare({.dp = n}, run);
    }
}

TEST_CASE("activations that are offloaded") {
    int const n = world_size();
    if (n > 4) return;
    auto run = dense(4);
    run.strategy.offload.activations = true;
    for (std::size_t const window : {std::size_t{0}, std::size_t{3} << 20}) {
        test::Scratch const folder;
        run.strategy.offload.folder = folder.path().string();
        run.strategy.offload.window_bytes = window;
        compare({.dp = n}, run);
        compare({.tp = n}, run, {.sequence_parallel = true});
        if (n == 1) continue;
        compare({.pp = 2, .tp = n / 2}, run);
        compare({.pp = 2, .cp = n / 2}, run, {.schedule = "zb-h1"});
    }
    test::Scratch const folder;
    run.strategy.offload = {.optimizer = true, .activations = true, .folder = folder.path().string()};
    run.strategy.recompute = {.kind = model::Recomputation::Kind::selective};
    change(run, [](auto& sizes) { sizes.experts = 4; });
    compare({.dp = n}, run);
    run.strategy.recompute = {.kind = model::Recomputation::Kind::full, .every = 2};
    compare({.dp = n}, run);
}

TEST_CASE("gradients that travel and moments that are kept in fewer bits") {
    int const n = world_size();
    if (n > 4) return;
    for (int const stage : {0, 1, 2, 3})
        for (model::Precision const& precision :
             std::vector<model::Precision>{{.reduce = Compact::bf16},
                                           {.reduce = Compact::fp8, .moments = Compact::bf16},
                                           {.moments = Compact::fp8}}) {
            auto run = dense();
            run.strategy.micro_batches = 2;
            run.strategy.sharding.stage = stage;
            run.strategy.bucket_elements = 100000;
            run.strategy.precision = precision;
            compare({.dp = n}, run);
            if (n == 4) compare({.dp = 2, .tp = 2}, run, {.sequence_parallel = true});
        }
}

TEST_CASE("every optimizer, and what Muon gathers") {
    int const n = world_size();
    if (n > 4) return;
    for (model::Optimizer const& optimizer :
         std::vector<model::Optimizer>{model::Sgd{}, model::Sgd{.momentum = 0}, model::Lion{}, model::Muon{}})
        for (ZeroSharding const& sharding : std::vector<ZeroSharding>{
                 {}, {.stage = 1}, {.stage = 2}, {.stage = 3}, {.stage = 3, .releases_gradients = true}}) {
            auto run = dense(4);
            run.strategy.batch = 8;
            run.strategy.micro_batches = 2;
            run.clip = sharding.releases_gradients ? 0 : 1;
            run.strategy.bucket_elements = 100000;
            run.strategy.sharding = sharding;
            run.strategy.optimizer = optimizer;
            compare({.dp = n}, run);
            if (!model::needs_matrices(optimizer) || n == 1) continue;
            compare({.tp = n}, run, {.sequence_parallel = true});
            compare({.pp = 2, .tp = n / 2}, run);
            if (!sharding.releases_gradients)
                compare({.dp = n / 2, .pp = 2}, run, {.schedule = "dualpipe-v", .chunks = 2});
            change(run, [](auto& sizes) { sizes.experts = 4, sizes.ties_embeddings = true; });
            compare({.dp = n / 2, .ep = 2}, run);
            compare({.ep = 2, .tp = n / 2}, run);
            if (n < 4) continue;
            run.strategy.sharding.ranks = 2;
            if (sharding.stage > 0) compare({.dp = n}, run);
        }
}
TEST_CASE("local steps") {
    int const n = world_size();
    if (n < 2 || n > 4) return;
    for (auto const& local : {LocalSteps{.steps = 3}, LocalSteps{.steps = 2, .outer_learning_rate = 0.7},
                              LocalSteps{.steps = 4, .outer_learning_rate = 0.7, .outer_momentum = 0.9},
                              LocalSteps{.steps = 3, .ranks = 2}, LocalSteps{.steps = 1}}) {
        if (local.ranks == n) continue; // one group: refused
        auto run = dense();
        run.steps = 100;
        run.strategy.batch = 8;
        run.strategy.micro_batches = 2;
        run.strategy.local = local;
        compare({.dp = n}, run);
        run.strategy.sharding.stage = 3;
        compare({.dp = n}, run);
        run.strategy.sharding = {.stage = 2, .releases_gradients = true};
        run.clip = 0;
        compare({.dp = n}, run);
        run.strategy.sharding = {.stage = 1};
        change(run, [](auto& sizes) { sizes.ties_embeddings = true; });
        if (n == 4 && local.ranks == 1) compare({.dp = 2, .pp = 2}, run);
        change(run, [](auto& sizes) { sizes.experts = 4; });
        if (n == 4 && local.ranks == 2) compare({.dp = 2, .ep = 2}, run); // each group has all experts
    }
}

TEST_CASE("experts, with the rows that were exchanged") {
    int const n = world_size();
    if (n > 4) return;
    auto run = dense(4);
    change(run, [&](auto& sizes) { sizes.experts = 4; });
    change(run, [&](auto& sizes) { sizes.moe_every = 2; });
    compare({.ep = n}, run);
    if (n == 1) return;
    compare({.dp = n / 2, .ep = 2}, run);
    compare({.ep = n / 2, .tp = 2}, run, {.sequence_parallel = true});
    compare({.ep = n / 2, .tp = 2}, run);
    compare({.tp = n, .experts = model::ExpertMesh{n, 1}}, run);
    compare({.tp = n, .experts = model::ExpertMesh{n / 2, 2}}, run, {.sequence_parallel = true});
    compare({.dp = n / 2, .tp = 2, .experts = model::ExpertMesh{n, 1}}, run, {.sequence_parallel = true});
    compare({.dp = n / 2, .cp = 2, .experts = model::ExpertMesh{n, 1}}, run);
    auto sharded = run;
    sharded.strategy.sharding = {.stage = 3};
    compare({.dp = n / 2, .tp = 2, .experts = model::ExpertMesh{2, 1}}, sharded, {.sequence_parallel = true});
    compare({.dp = n, .experts = model::ExpertMesh{1, 2}}, sharded);
    run.strategy.recompute = {.kind = model::Recomputation::Kind::full};
    compare({.ep = 2, .cp = n / 2}, run);
}

TEST_CASE("DeepSeek-V3's blocks, and what routers send to choose") {
    int const n = world_size();
    if (n > 4) return;
    auto run = dense();
    model::Experts experts{.count = 8, .top_k = 2, .width = 96, .shared = 1, .router = model::deepseek_v3_router};
    experts.router.groups = 4;
    experts.router.top_groups = 2;
    auto const with = [&](model::Router const& router) {
        experts.router = router;
        run.model = model::deepseek(
            2, 128, 512, {.heads = 8, .head_dim = 16, .rope_dim = 8, .value_dim = 12, .query_rank = 48, .kv_rank = 32},
            1, 352, experts);
    };
    with(experts.router);
    compare({.ep = n}, run);
    run.strategy.sharding.stage = 1;
    compare({.cp = n}, run);
    compare({.tp = n}, run, {.sequence_parallel = true});
    run.strategy.sharding.stage = 3;
    run.strategy.recompute = {.kind = model::Recomputation::Kind::selective};
    if (n == 4) compare({.dp = 2, .ep = 2}, run);
    with({.choice = model::RouterChoice::expert_choice, .balance_loss = model::BalanceLoss::none, .capacity = 0.5});
    compare({.ep = n}, run);
    with({.choice = model::RouterChoice::sinkhorn, .balance_loss = model::BalanceLoss::none});
    compare({.cp = n}, run);
    with({.capacity = 1.25, .drop = model::Drop::score});
    if (n == 4) compare({.ep = 2, .tp = 2}, run, {.sequence_parallel = true});
}

TEST_CASE("experts on several nodes") {
    if (world_size() < 4) return;
    int const n = world_size();
    auto run = dense();
    run.strategy.micro_batches = 2;
    run.strategy.seq = 32;
    change(run, [&](auto& sizes) { sizes.experts = 16; });
    change(run, [&](auto& sizes) { sizes.top_k = 3; });
    change(run, [&](auto& sizes) { sizes.moe_every = 2; });
    compare({.ep = n}, run);
    compare({.ep = n / 2, .tp = 2}, run, {.sequence_parallel = true}); // with two ranks on a node: one of a group
    compare({.pp = 2, .ep = n / 2}, run);
    run.strategy.recompute = {.kind = model::Recomputation::Kind::full};
    compare({.dp = 2, .ep = n / 2, .inside_out = true}, run);
    run.strategy.recompute = {};
    compare({.dp = n / 2, .tp = 2, .experts = model::ExpertMesh{n, 1}}, run);
    compare({.dp = n / 2, .tp = 2, .experts = model::ExpertMesh{n / 2, 2}}, run);
    change(run, [&](auto& sizes) { sizes.top_k = 1; }); // at once
    compare({.ep = n}, run);
}

TEST_CASE("axes together") {
    if (world_size() < 4) return;
    int const n = world_size();
    auto run = dense(4);
    compare({.dp = n / 4, .pp = 2, .tp = 2}, run);
    compare({.dp = 2, .cp = n / 4, .tp = 2}, run, {.sequence_parallel = true});
    compare({.pp = 2, .cp = n / 4, .tp = 2}, run, {.schedule = "interleaved-1f1b", .chunks = 2});
    compare({.dp = n / 4, .pp = 4}, run, {.schedule = "dualpipe"});
    compare({.dp = n / 4, .pp = 4}, run, {.schedule = "zb-h1"});
    run.strategy.sharding.stage = 1;
    change(run, [&](auto& sizes) { sizes.ties_embeddings = true; });
    compare({.dp = n / 2, .pp = 2}, run);
    compare({.pp = n / 4, .cp = 2, .tp = 2}, run, {.schedule = "gpipe", .sequence_parallel = true});
}
