// ranks: 1 2 8
//
// A run that goes on from a checkpoint, on the same mesh or on any other, is the run that was not stopped.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/checkpoint_saver.hpp>
#include <pentad/train/trainer.hpp>

#include <support/folder.hpp>
#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace support;

namespace {

/// The first ranks of all.
class FirstRanks {
  public:
    explicit FirstRanks(int count) { MPI_Comm_split(MPI_COMM_WORLD, world_rank() < count ? 0 : 1, 0, &comm_); }
    FirstRanks(FirstRanks const&) = delete;
    FirstRanks& operator=(FirstRanks const&) = delete;
    ~FirstRanks() { MPI_Comm_free(&comm_); }
    [[nodiscard]] MPI_Comm comm() const { return comm_; }

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
};

/// How a run is laid out.
struct Way {
    MeshShape mesh;
    ZeroSharding sharding;
    std::string schedule = "1f1b";
    int chunks = 1;
    bool sequence_parallel = false;
    std::size_t micro_batches = 4;

    [[nodiscard]] std::string text() const {
        return mesh.text() + " " + schedule + " ZeRO " + std::to_string(sharding.stage) + "/" +
               std::to_string(sharding.ranks) + (sequence_parallel ? " sequence parallel" : "");
    }
};

/// The optimizers that keep something else.
model::Optimizer optimizer(int number) {
    switch (number % 4) {
    case 0:
        return model::AdamW{};
    case 1:
        return model::Muon{};
    case 2:
        return model::Lion{};
    default:
        return model::Sgd{};
    }
}

train::RunSettings settings(bool has_experts, bool tied) {
    return {.model = model::decoder({.layers = 4,
                                     .hidden = 16,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .ffn = 32,
                                     .vocab = 51, // padded where tp is 2 or 4
                                     .experts = has_experts ? 4u : 0u,
                                     .moe_every = 2,
                                     .ties_embeddings = tied}),
            .batch = 16,
            .micro_batches = 4,
            .seq = 16,
            .steps = 6,
            .warmup = 1};
}

/// A trainer, on the first ranks of all.
template <class Stream>
struct Run {
    pipeline::Schedule schedule;
    OnMesh mesh;
    Training<Stream> training;

    Run(Way const& way, train::RunSettings run, MPI_Comm comm)
        : schedule(pipeline::generate(
              way.schedule,
              {.ranks = way.mesh.pp, .micro_batches = static_cast<int>(way.micro_batches), .chunks = way.chunks})),
          mesh(way.mesh,
               train::for_schedule(OnMesh::mesh(way.mesh, 2).template split<dp>(std::max(1, way.sharding.ranks)),
                                   schedule),
               comm),
          training(mesh, with(run, way), schedule) {}

    static train::RunSettings with(train::RunSettings run, Way const& way) {
        run.sharding = way.sharding;
        run.micro_batches = way.micro_batches;
        return run;
    }
    std::vector<double> steps(std::int64_t first, std::int64_t count) {
        std::vector<double> numbers;
        for (auto step = first; step < first + count; ++step) {
            auto const result = training.trainer.step(step);
            numbers.insert(numbers.end(), {result.loss, result.balance_loss, result.gradient_norm});
        }
        return numbers;
    }
    void save(std::filesystem::path const& folder, std::int64_t step) {
        train::CheckpointSaver saver(mesh.context.communicators().world().handle(), folder, 3);
        saver.start(mesh.context.exec(), step, {{"sequences", training.trainer.position().sequences}},
                    [&](auto const& copy) { train::for_each_held_piece(training.trainer, true, copy); });
        auto const result = saver.wait();
        REQUIRE_MESSAGE(result.is_saved, result.failure);
        CHECK(saver.is_idle());
    }
    void restore(std::filesystem::path const& folder) {
        checkpoint::Reader const reader(checkpoint::list(folder).back().path);
        reader.verify([](std::string const& file, std::string const& why) { FAIL(file, ": ", why); });
        train::restore(
            training.trainer, reader,
            {.step = reader.manifest().step, .sequences = reader.manifest().run.at("sequences").get<std::int64_t>()});
    }
};

/// Calls f.operator()<Stream>() on the first ranks of a way.
template <class T, class F>
void on_ranks(Way const& way, F&& f) {
    FirstRanks const ranks(way.mesh.ranks());
    if (world_rank() < way.mesh.ranks()) {
        if (way.sequence_parallel)
            f.template operator()<SequenceStream<T>>(ranks.comm());
        else
            f.template operator()<InvariantStream<T>>(ranks.comm());
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/// The numbers of three steps after a save at step 3, without a break; on all ranks.
template <class T>
std::vector<double> undisturbed(Way const& way, train::RunSettings const& run, std::filesystem::path const& folder) {
    std::vector<double> numbers(9);
    on_ranks<T>(way, [&]<class Stream>(MPI_Comm comm) {
        Run<Stream> first(way, run, comm);
        (void)first.steps(1, 3);
        first.save(folder, 3);
        numbers = first.steps(4, 3);
    });
    MPI_Bcast(numbers.data(), 9, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return numbers;
}
template <class T>
std::vector<double> resumed(Way const& way, train::RunSettings const& run, std::filesystem::path const& folder) {
    std::vector<double> numbers(9);
    on_ranks<T>(way, [&]<class Stream>(MPI_Comm comm) {
        Run<Stream> second(way, run, comm);
        second.restore(folder);
        numbers = second.steps(4, 3);
    });
    MPI_Bcast(numbers.data(), 9, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return numbers;
}

class Draws {
  public:
    explicit Draws(unsigned seed) : random_(seed) {}
    template <class Value>
    Value one_of(std::vector<Value> const& values) {
        return values[random_() % values.size()];
    }
    /// A way on at most so many ranks.
    Way way(int most, bool has_experts) {
        for (;;) {
            Way way;
            auto& m = way.mesh;
            m.dp = one_of<int>({1, 2, 4}), m.pp = one_of<int>({1, 1, 2, 4}), m.cp = one_of<int>({1, 1, 2});
            m.tp = one_of<int>({1, 1, 2, 4}), m.ep = has_experts ? one_of<int>({1, 2, 4}) : 1;
            m.inside_out = random_() % 2 == 0;
            if (m.ranks() > most || m.dp * m.ep > 4) continue;
            way.sequence_parallel = m.tp > 1 && random_() % 2 == 0;
            way.sharding.stage = one_of<int>({0, 1, 2, 3});
            if (way.sharding.stage > 0 && m.dp == 4 && random_() % 2 == 0) way.sharding.ranks = 2;
            // The auxiliary losses of experts are those of micro-batches.
            way.micro_batches = has_experts ? 4 : one_of<std::size_t>({2, 4});
            if (static_cast<std::size_t>(m.dp * m.ep) * way.micro_batches > 16) continue;
            if (m.pp == 2) {
                way.schedule = one_of<std::string>({"1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe"});
                way.chunks = way.schedule == "zb-v" ? 2 : 1;
                way.micro_batches = 4;
            }
            return way;
        }
    }

  private:
    std::mt19937 random_;
};

} // namespace

TEST_CASE("a run goes on from a checkpoint on another mesh, with another ZeRO stage and schedule") {
    int const n = world_size();
    Draws draws(20261124);
    for (int trial = 0; trial < (n == 8 ? 40 : 6); ++trial) {
        bool const has_experts = trial % 2 == 0, tied = trial % 3 == 0;
        auto const from = draws.way(n, has_experts), to = draws.way(n, has_experts);
        INFO("trial ", trial, ": ", from.text(), " -> ", to.text(), has_experts ? ", experts" : "",
             tied ? ", tied" : "");
        Folder const folder;
        auto run = settings(has_experts, tied);
        run.optimizer = optimizer(trial / 2);
        auto const expected = undisturbed<f64>(from, run, folder.path());
        CHECK(worst(resumed<f64>(to, run, folder.path()), expected) < 1e-10);
    }
}

namespace {

template <class T>
void check_same_bits() {
    Draws draws(7);
    for (int trial = 0; trial < 4; ++trial) {
        bool const has_experts = trial % 2 == 0;
        auto const way = draws.way(world_size(), has_experts);
        INFO(way.text());
        Folder const folder;
        auto run = settings(has_experts, trial < 2);
        run.optimizer = optimizer(trial);
        if (trial == 0) run.precision = {.moments = Compact::fp8, .keeps_masters = false};
        if (trial == 1) run.precision = {.reduce = Compact::bf16, .moments = Compact::bf16};
        auto const expected = undisturbed<T>(way, run, folder.path());
        CHECK(resumed<T>(way, run, folder.path()) == expected);
    }
}

} // namespace

TEST_CASE("on the same mesh it gives the same bits") {
    check_same_bits<f64>();
    check_same_bits<f32>();
    check_same_bits<bf16>();
}

TEST_CASE("a run goes on in another element type") {
    Way const way{.mesh = {.dp = world_size() > 1 ? 2 : 1}, .sharding = {.stage = 1}};
    Folder const folder;
    auto const run = settings(false, true);
    auto const expected = undisturbed<f32>(way, run, folder.path());
    CHECK(worst(resumed<f64>(way, run, folder.path()), expected) < 1e-4);
    CHECK(worst(resumed<bf16>(way, run, folder.path()), expected) < 0.2);
}

TEST_CASE("with another batch it goes on with the sequences that it has not seen") {
    Way const way{.mesh = {.dp = world_size() > 1 ? 2 : 1}, .sharding = {}};
    Folder const folder;
    auto run = settings(false, true);
    on_ranks<f64>(way, [&]<class Stream>(MPI_Comm comm) {
        Run<Stream> first(way, run, comm);
        (void)first.steps(1, 3);
        first.save(folder.path(), 3);
        auto larger = run;
        larger.batch = 32;
        Run<Stream> second(way, larger, comm);
        second.restore(folder.path());
        CHECK(second.training.trainer.position().sequences == 48);
        // Sequences 48 to 79 with the weights of step 3: what two batches of 16 have on average.
        double const whole = second.training.trainer.evaluate(4).loss;
        double const halves = (first.training.trainer.evaluate(4).loss + first.training.trainer.evaluate(5).loss) / 2;
        CHECK(std::abs(whole - halves) < 1e-12);
        (void)second.steps(4, 1);
        CHECK(second.training.trainer.position().sequences == 80);
    });
}

TEST_CASE("a checkpoint of another model, or one that is damaged, is refused on all ranks") {
    Way const way{.mesh = {.dp = world_size()}, .sharding = {.stage = 1}};
    auto run = settings(false, false);
    run.batch = 4 * static_cast<std::size_t>(world_size());
    Folder const folder;
    on_ranks<f64>(way, [&]<class Stream>(MPI_Comm comm) {
        Run<Stream> first(way, run, comm);
        (void)first.steps(1, 1);
        first.save(folder.path(), 1);
        auto other = run;
        change(other, [](auto& sizes) { sizes.ffn = 64; });
        Run<Stream> second(way, other, comm);
        CHECK_THROWS_WITH_AS(second.restore(folder.path()),
                             doctest::Contains("mlp.gate_proj.weight is [32, 16], not [64, 16]"),
                             std::invalid_argument);
        auto const file = checkpoint::list(folder.path())[0].path / "rank-00000.safetensors";
        if (world_rank() == 0) {
            auto text = test::text_of(file);
            text[text.size() - 5] = static_cast<char>(text[text.size() - 5] ^ 1);
            test::write_text(file, text);
        }
        MPI_Barrier(comm);
        checkpoint::Reader const reader(checkpoint::list(folder.path()).back().path);
        CHECK_THROWS_WITH_AS(train::restore(first.training.trainer, reader, {}),
                             doctest::Contains("is damaged: rank-00000.safetensors"), checkpoint::Damaged);
    });
}

TEST_CASE("a save that cannot be written leaves older checkpoints, and the run goes on") {
    Way const way{.mesh = {.dp = world_size()}, .sharding = {.stage = 1}};
    auto run = settings(false, false);
    run.batch = 4 * static_cast<std::size_t>(world_size());
    Folder const folder;
    on_ranks<f64>(way, [&]<class Stream>(MPI_Comm comm) {
        Run<Stream> first(way, run, comm);
        first.save(folder.path(), 1);
        if (world_rank() == world_size() - 1)
            test::write_text(checkpoint::partial_folder(folder.path(), 2), "in the way");
        MPI_Barrier(comm);
        train::CheckpointSaver saver(comm, folder.path(), 1);
        for (std::int64_t const step : {2, 3}) {
            saver.start(first.mesh.context.exec(), step, {{"sequences", 0}},
                        [&](auto const& copy) { train::for_each_held_piece(first.training.trainer, true, copy); });
            auto const result = saver.wait();
            CHECK(result.is_saved == (step == 3));
            if (world_rank() == 0 && step == 2) CHECK(result.failure.find("cannot write") != std::string::npos);
            auto const left = checkpoint::list(folder.path());
            REQUIRE(left.size() == 1);
            CHECK(left[0].step == (step == 2 ? 1 : 3));
            MPI_Barrier(comm);
        }
    });
}
