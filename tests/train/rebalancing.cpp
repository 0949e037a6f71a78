// ranks: 2 4 8
//
// Experts move between ranks during a run, with their weights and the optimizer's state, and the run stays the same.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/checkpoint_saver.hpp>
#include <pentad/train/trainer.hpp>

#include <formulas/experts.hpp>
#include <support/folder.hpp>
#include <support/training.hpp>

#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

using namespace support;

namespace {

constexpr std::size_t expert_count = 16, width = 24;
constexpr int all_steps = 6;

/// Experts that nothing balances but moves, after every second step.
train::RunSettings settings(std::int64_t every = 2) {
    auto run = small_with_experts();
    for (auto& block : run.model.blocks)
        for (auto& branch : block.branches)
            if (branch.part.as<model::Experts>() != nullptr)
                branch.part = model::Experts{.count = expert_count, .top_k = 2, .width = width};
    run.strategy.batch = 32;
    run.steps = all_steps;
    run.balance_coefficient = 0;
    run.rebalance_every = every;
    return run;
}

/// How a run is laid out.
struct Way {
    MeshShape mesh;
    int stage = 0; ///< of ZeRO
    std::string schedule = "1f1b";
    model::Optimizer optimizer = model::AdamW{};
    std::size_t bucket_elements = std::size_t{1} << 22;
    bool offloads = false; ///< the optimizer's state

    [[nodiscard]] std::string text() const {
        return mesh.text() + " ZeRO " + std::to_string(stage) + " " + schedule + ", optimizer " +
               std::to_string(optimizer.index());
    }
};

template <class Stream>
struct Run {
    pipeline::Schedule schedule;
    OnMesh mesh;
    Training<Stream> training;

    Run(Way const& way, train::RunSettings run, MPI_Comm comm = MPI_COMM_WORLD)
        : schedule(pipeline::generate(
              way.schedule, {.ranks = way.mesh.pp, .micro_batches = static_cast<int>(run.strategy.micro_batches)})),
          mesh(way.mesh, train::for_schedule(OnMesh::mesh(way.mesh, 2), schedule), comm),
          training(mesh, with(run, way), schedule) {}

    static train::RunSettings with(train::RunSettings run, Way const& way) {
        run.strategy.sharding.stage = way.stage;
        run.strategy.optimizer = way.optimizer;
        run.strategy.bucket_elements = way.bucket_elements;
        if (way.offloads)
            run.strategy.offload = {
                .optimizer = true, .folder = std::filesystem::temp_directory_path(), .window_bytes = 1};
        return run;
    }
    /// The numbers of steps, and how many experts have moved after them.
    std::vector<double> steps(std::int64_t first, std::int64_t last) {
        std::vector<double> numbers;
        for (auto step = first; step <= last; ++step) {
            auto const result = training.trainer.step(step);
            numbers.insert(numbers.end(), {result.loss, result.balance_loss, result.gradient_norm});
            moved += result.moved_experts;
        }
        numbers.push_back(training.trainer.evaluate(last + 1).loss);
        return numbers;
    }
    std::size_t moved = 0;
};

/// Of one rank, whose experts have nowhere to move.
template <class Stream>
std::vector<double> expected(model::Optimizer const& optimizer) {
    Run<Stream> run({.mesh = {}, .optimizer = optimizer}, settings(), MPI_COMM_SELF);
    auto const numbers = run.steps(1, all_steps);
    CHECK(run.moved == 0);
    return numbers;
}

std::vector<Way> ways() {
    int const n = world_size();
    std::vector<Way> ways{{.mesh = {.ep = n}}, {.mesh = {.ep = n}, .stage = 3, .bucket_elements = 500}};
    if (n == 2) return ways;
    for (int const stage : {1, 2, 3})
        ways.push_back({.mesh = {.dp = 2, .ep = n / 2}, .stage = stage, .bucket_elements = 3000});
    ways.push_back({.mesh = {.dp = 2, .ep = n / 2}, .stage = 1, .optimizer = model::Muon{}});
    ways.push_back({.mesh = {.dp = 2, .ep = n / 2}, .stage = 1, .bucket_elements = 3000, .offloads = true});
    ways.push_back({.mesh = {.dp = n / 2, .ep = 2, .inside_out = true}, .stage = 1, .optimizer = model::Lion{}});
    ways.push_back({.mesh = {.dp = 2, .tp = n / 2, .experts = model::ExpertMesh{.ep = n / 2, .etp = 2}}, .stage = 2});
    ways.push_back({.mesh = {.cp = n, .experts = model::ExpertMesh{.ep = n / 2, .etp = 1}}, .stage = 1});
    ways.push_back({.mesh = {.pp = 2, .ep = n / 2}, .stage = 1});
    ways.push_back({.mesh = {.pp = 2, .ep = n / 2}, .stage = 1, .schedule = "dualpipe"});
    return ways;
}

} // namespace

TEST_CASE("experts that move between steps change no number of the run") {
    using Stream = InvariantStream<f64>;
    for (auto const& way : ways()) {
        INFO(way.text());
        Run<Stream> run(way, settings());
        auto const numbers = run.steps(1, all_steps);
        CHECK(worst(numbers, expected<Stream>(way.optimizer)) <= 1e-10);
        CHECK(run.moved > 0);
        for (auto const& load : run.training.trainer.take_loads())
            CHECK(load.total() == static_cast<double>(all_steps * 32 * 16 * 2));
    }
}

TEST_CASE("a schedule that keeps older weights goes on with those that have moved") {
    using Stream = InvariantStream<f64>;
    if (world_size() == 2) return;
    Way const way{.mesh = {.pp = 2, .ep = world_size() / 2}, .stage = 1, .schedule = "pipedream-2bw"};
    auto run = settings();
    run.clip = 0;
    run.model.ties_embeddings = false; // the ends are updated on their own
    Run<Stream> moves(way, run);
    run.rebalance_every = 0;
    Run<Stream> still(way, run);
    CHECK(worst(moves.steps(1, all_steps), still.steps(1, all_steps)) <= 1e-10);
    CHECK(moves.moved > 0);
}

namespace {

/// A number that depends on every bit of every state, and not on which rank holds it.
template <class Trainer>
std::uint64_t digest(Trainer& trainer) {
    std::uint64_t sum = 0;
    train::for_each_held_piece(trainer, true, [&](train::HeldPiece const& held) {
        auto const& piece = held.stored.piece;
        std::vector<float> values(piece.size());
        memory::copy_to_host(trainer.setup().context.exec(), values.data(), held.data, values.size() * sizeof(float));
        std::uint64_t const name = random::stream(held.stored.name());
        for (std::size_t i = 0; i < values.size(); ++i)
            sum += random::bits(name, std::bit_cast<std::uint32_t>(values[i]), piece.begin + i).first;
    });
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

} // namespace

TEST_CASE("bf16 weights, with f32 masters or without, and compact moments move with their experts") {
    using Stream = InvariantStream<bf16>;
    int const n = world_size();
    Way const way{.mesh = {.dp = n / 2, .ep = 2}, .stage = 1};
    for (bool const keeps_masters : {true, false})
        for (auto const moments : {Compact::none, Compact::bf16, Compact::fp8}) {
            auto run = settings(0);
            run.strategy.precision.keeps_masters = keeps_masters;
            run.strategy.precision.moments = moments;
            Run<Stream> still(way, run), moves(way, run);
            for (auto* const one : {&still, &moves}) one->steps(1, 3);
            auto& trainer = moves.training.trainer;
            auto const before = digest(trainer);
            CHECK(trainer.rebalance_experts(trainer.take_loads()) > 0);
            bool const has_blocks = moments == Compact::fp8; // which two experts may share: they are rounded again
            CHECK((has_blocks || digest(trainer) == before));
            double const elsewhere = trainer.evaluate(4).loss;
            trainer.move_experts({}); // back again
            CHECK(trainer.moved_expert_orders().empty());
            CHECK(std::abs(trainer.evaluate(4).loss - elsewhere) < 1e-2);
            CHECK(worst(moves.steps(4, all_steps), still.steps(4, all_steps)) <= (has_blocks ? 1e-2 : 0));
        }
}

TEST_CASE("a move sends the weights and the state of the experts that change rank, and nothing else") {
    using Stream = InvariantStream<f64>;
    int const n = world_size();
    Run<Stream> run({.mesh = {.ep = n}}, settings(0));
    run.steps(1, 2);
    auto& trainer = run.training.trainer;
    auto const loads = trainer.take_loads();
    auto const sent = [] {
        double all = 0;
        for (auto const axis : {"dp", "edp", "ep", "etp", "pp", "cp", "tp"}) all += observe::ledger().bytes(axis);
        return all;
    };
    double const before = sent();
    std::size_t const moved = trainer.rebalance_experts(loads);
    double bytes = sent() - before;
    MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(moved > 0);
    CHECK(bytes == static_cast<double>(moved) * planner::moved_expert_bytes(16, width, 2, sizeof(f64)));
    for (auto const& order : trainer.moved_expert_orders()) {
        auto evened = *std::ranges::find(loads, order.block, &train::BlockLoad::block);
        double const before_move = evened.imbalance(evened.ranks);
        evened.order = order.experts;
        CHECK(evened.imbalance(evened.ranks) < before_move);
    }
}

TEST_CASE("a checkpoint has experts by their numbers, and a run goes on from it to the bit") {
    using Stream = InvariantStream<f32>;
    int const n = world_size();
    Folder const folder;
    Way const way{.mesh = {.dp = n / 2, .ep = 2}, .stage = 1};
    Run<Stream> run(way, settings());
    run.steps(1, 3);
    auto const position = run.training.trainer.position();
    CHECK(!position.expert_orders.empty());
    {
        train::CheckpointSaver saver(MPI_COMM_WORLD, folder.path(), 3);
        saver.start(run.mesh.context.exec(), 3, io::detail::Json::object(),
                    [&](auto const& copy) { train::for_each_held_piece(run.training.trainer, true, copy); });
        REQUIRE(saver.wait().is_saved);
    }
    auto const expected = run.steps(4, all_steps);
    checkpoint::Reader const reader(checkpoint::list(folder.path()).back().path);
    Run<Stream> again(way, settings());
    train::restore(again.training.trainer, reader, position);
    CHECK(again.steps(4, all_steps) == expected);
    // Elsewhere places may be by number: what experts compute is the same.
    Run<Stream> alone({}, settings(), MPI_COMM_SELF);
    train::restore(alone.training.trainer, reader, {position.step, position.sequences, position.bad_steps, {}});
    CHECK(worst(alone.steps(4, all_steps), expected) <= 1e-4);

    auto wrong = position;
    wrong.expert_orders.front().experts.front() = wrong.expert_orders.front().experts.back();
    CHECK_THROWS_WITH_AS(train::restore(again.training.trainer, reader, wrong),
                         "the order of experts of block 1: it does not have each of the numbers from 0 to 15 once",
                         std::invalid_argument);
    wrong = position;
    wrong.expert_orders.front().block = 0; // has an MLP
    CHECK_THROWS_WITH_AS(train::restore(again.training.trainer, reader, wrong),
                         "the order of experts of block 0: the block has none", std::invalid_argument);
}
