// ranks: 1 2 4 8
//
// A dry run of a rank is what the rank does: a whole training step, dry and for real, sends the same bytes in the same
// calls along each axis, and as many of them to other nodes, holds the same memory at its peak and computes the same
// products.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/observe/dry_run.hpp>
#include <pentad/train/schedules.hpp>
#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

using namespace support;

namespace {

/// What a step has done, on this rank.
struct Done {
    observe::Ledger ledger;
    double gemm_flops = 0;
    std::array<std::int64_t, observe::memory_names.size()> peak{};
};

/// The second of two steps, whatever the mesh is made of.
template <class Stream, class Make>
Done step(Make&& make, train::RunSettings const& settings) {
    std::array<std::int64_t, observe::memory_names.size()> before{};
    auto& counters = observe::counters();
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = counters.memory[i].bytes;
    auto const training = make();
    training->trainer.step(1);
    for (auto& count : counters.memory) count.peak = count.bytes;
    observe::ledger().clear();
    double const flops = counters.gemm_flops;
    training->trainer.step(2);
    Done done{observe::ledger(), counters.gemm_flops - flops};
    for (std::size_t i = 0; i < before.size(); ++i) done.peak[i] = counters.memory[i].peak - before[i];
    (void)settings;
    return done;
}

template <class Stream>
void compare(MeshShape const& m, train::RunSettings const& settings, std::string const& name, int chunks,
             int ranks_per_node) {
    SimulatedNodes const nodes(std::to_string(ranks_per_node));
    auto const schedule = pipeline::generate(
        name, {.ranks = m.pp, .micro_batches = static_cast<int>(settings.strategy.micro_batches), .chunks = chunks});
    auto const mesh = train::for_schedule(OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads)), schedule);
    OnMesh const on(m, mesh);
    auto const real =
        step<Stream>([&] { return std::make_unique<Training<Stream>>(on, settings, schedule); }, settings);

    observe::DryRun const run;
    comm::Communicators communicators(mesh, world_rank(), ranks_per_node);
    Context<Exec> const context(communicators);
    auto const text = varied_text();
    io::TokenData const data(text, "the text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed);
    struct Dry {
        train::Trainer<typename Stream::element, Exec> trainer;
    };
    auto const dry = step<Stream>(
        [&] {
            return std::unique_ptr<Dry>(
                new Dry{{context, Stream::value, settings, train::ProvenSchedules(schedule), data}});
        },
        settings);

    INFO(m.text(), " ", name, " zero ", settings.strategy.sharding.stage, " recompute ",
         model::text(settings.strategy.recompute));
    for (auto const& axis : mesh.axes())
        for (std::size_t i = 0; i < observe::operation_names.size(); ++i) {
            auto const operation = static_cast<observe::Operation>(i);
            auto const expected = real.ledger.entry(axis.name, operation), got = dry.ledger.entry(axis.name, operation);
            CHECK_MESSAGE(got.bytes == expected.bytes, axis.name, " ", observe::operation_names[i]);
            CHECK_MESSAGE(got.calls == expected.calls, axis.name, " ", observe::operation_names[i]);
            CHECK_MESSAGE(got.network_bytes == expected.network_bytes, axis.name, " ", observe::operation_names[i]);
            CHECK(got.network_modelled == expected.network_modelled);
        }
    CHECK(dry.gemm_flops == real.gemm_flops);
    for (std::size_t i = 0; i < observe::memory_names.size(); ++i)
        // A dry run does not count the copies of pieces that lie apart, which are sent across nodes.
        if (ranks_per_node == world_size() || static_cast<observe::Memory>(i) != observe::Memory::communication)
            CHECK_MESSAGE(dry.peak[i] == real.peak[i], observe::memory_names[i]);
    CHECK(!run.work().empty());
}

struct How {
    bool sequence_parallel = false;
    std::string schedule = "1f1b";
    int chunks = 0;
    int ranks_per_node = world_size();
};
void compare(MeshShape const& m, train::RunSettings const& settings, How const& how = {}) {
    if (how.sequence_parallel)
        compare<SequenceStream<f32>>(m, settings, how.schedule, how.chunks, how.ranks_per_node);
    else
        compare<InvariantStream<f32>>(m, settings, how.schedule, how.chunks, how.ranks_per_node);
}

train::RunSettings dense() {
    return {.model = model::decoder({.layers = 8, .hidden = 64, .heads = 8, .kv_heads = 4, .ffn = 96, .vocab = 128}),
            .strategy = {.batch = 16, .micro_batches = 4, .seq = 32},
            .steps = 4};
}

} // namespace

TEST_CASE("a dense model on every axis alone") {
    int const n = world_size();
    for (auto const& m : {MeshShape{.dp = n}, MeshShape{.cp = n}, MeshShape{.tp = n}, MeshShape{.pp = n}}) {
        if (n == 8 && (m.dp == 8 || m.pp == 8)) continue; // batch, layers
        compare(m, dense());
        if (n == 1) break;
    }
    compare({.tp = n}, dense(), {.sequence_parallel = true});
}

TEST_CASE("ZeRO, recomputation, buckets, gathered keys") {
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
}

TEST_CASE("Muon, which gathers matrices and deals them out") {
    int const n = world_size();
    if (n > 4) return;
    auto run = dense();
    run.strategy.optimizer = model::Muon{};
    for (int const stage : {0, 1, 3}) {
        run.strategy.sharding.stage = stage;
        compare({.dp = n}, run);
        compare({.tp = n}, run, {.sequence_parallel = true});
        if (n == 4) compare({.dp = 2, .tp = 2}, run);
    }
}

TEST_CASE("schedules") {
    int const n = world_size();
    if (n < 2 || n > 4) return;
    auto run = dense();
    compare({.pp = n}, run, {.schedule = "zb-h1"});
    compare({.pp = n}, run, {.schedule = "interleaved-1f1b", .chunks = 2});
    if (n == 2) compare({.pp = n}, run, {.schedule = "dualpipe"});
    change(run, [](auto& sizes) { sizes.ties_embeddings = true; });
    compare({.pp = n}, run);
}

// Where every token goes to every expert, routing is even without a router's help.
TEST_CASE("experts") {
    int const n = world_size();
    if (n > 4) return;
    auto run = dense();
    change(run, [](auto& sizes) { sizes.experts = 4, sizes.top_k = 4, sizes.moe_every = 2; });
    compare({.ep = n}, run);
    if (n == 1) return;
    compare({.dp = n / 2, .ep = 2}, run);
    compare({.ep = n / 2, .tp = 2}, run, {.sequence_parallel = true});
}

TEST_CASE("several axes at once") {
    int const n = world_size();
    if (n == 4) compare({.dp = 2, .tp = 2}, dense(), {.sequence_parallel = true});
    if (n != 8) return;
    auto run = dense();
    run.strategy.sharding.stage = 1;
    compare({.dp = 2, .pp = 2, .tp = 2}, run, {.sequence_parallel = true});
    compare({.pp = 2, .cp = 2, .tp = 2, .inside_out = true}, run);
}

// Across nodes products run beside the pieces of what is gathered and reduced, keys travel in pieces, and tokens go by
// node.
TEST_CASE("several nodes") {
    int const n = world_size();
    if (n != 4) return;
    for (int const ranks_per_node : {1, 2}) {
        compare({.tp = n}, dense(), {.sequence_parallel = true, .ranks_per_node = ranks_per_node});
        compare({.cp = n}, dense(), {.ranks_per_node = ranks_per_node});
        compare({.dp = n}, dense(), {.ranks_per_node = ranks_per_node});
        auto run = dense();
        change(run, [](auto& sizes) { sizes.experts = 8, sizes.top_k = 8, sizes.moe_every = 2; });
        compare({.ep = n}, run, {.ranks_per_node = ranks_per_node});
    }
}

TEST_CASE("a rank of a mesh of 4,096 ranks runs dry") {
    if (world_size() > 1) return;
    observe::DryRun run;
    model::DenseMesh const mesh(16, 8, 4, 8);
    comm::Communicators communicators(mesh, 1234, 8);
    Context<Exec> const context(communicators);
    train::RunSettings settings{
        .model =
            model::decoder({.layers = 32, .hidden = 4096, .heads = 32, .kv_heads = 8, .ffn = 14336, .vocab = 32000}),
        .strategy = {.batch = 512, .micro_batches = 16, .seq = 32768},
        .steps = 1};
    settings.strategy.sharding.stage = 1;
    std::string const text(1 << 20, 'a');
    io::TokenData const data(text, "the text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed);
    auto schedule = pipeline::generate("1f1b", {.ranks = 8, .micro_batches = 16});
    train::Trainer<bf16, Exec> trainer(context, SequenceStream<bf16>::value, settings,
                                       train::ProvenSchedules(std::move(schedule)), data);
    trainer.step(1);
    CHECK(observe::ledger().bytes("tp") > 1e9);
    CHECK(observe::counters()[observe::Memory::parameters].peak > 200e6); // 7e9 parameters of 2 bytes over pp and tp
    CHECK(observe::counters()[observe::Memory::parameters].peak < 350e6);
}
