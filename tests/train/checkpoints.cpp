// ranks: 1 2 8
//
// A run that goes on from a checkpoint, on the same mesh or on any other, is the run that was not stopped.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/io/checkpoint.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/mixers.hpp>
#include <pentad/model/presets.hpp>
#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/checkpoint_saver.hpp>
#include <pentad/train/checkpoint_sink.hpp>
#include <pentad/train/import.hpp>
#include <pentad/train/trainer.hpp>

#include <support/folder.hpp>
#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
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
    MeshShape mesh{};
    ZeroSharding sharding{};
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

/// Blocks whose mixers are attention, or by turns attention, Mamba-2 and linear attention.
train::RunSettings settings(bool has_experts, bool tied, std::string const& mixers = "a") {
    auto const decoder = model::decoder({.layers = 4,
                                         .hidden = 16,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .ffn = 32,
                                         .vocab = 51, // padded where tp is 2 or 4
                                         .experts = has_experts ? 4u : 0u,
                                         .moe_every = 2,
                                         .ties_embeddings = tied});
    return {.model = model::with_mixers(
                decoder, model::mixers_of(mixers).value(),
                {.heads = 4, .head_dim = 8, .state = 4, .groups = 2, .norm_groups = 2, .convolution = 3, .chunk = 8},
                {.heads = 4, .head_dim = 4, .chunk = 8}),
            .strategy = {.batch = 16, .micro_batches = 4, .seq = 16},
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
        run.strategy.sharding = way.sharding;
        run.strategy.micro_batches = way.micro_batches;
        if (auto const layers = static_cast<std::int64_t>(run.model.blocks.size()); way.mesh.pp == 2 && layers % 2 == 1)
            run.strategy.stage_layers = {layers / 2, layers - layers / 2};
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
        saver.require_plan([&](auto const& take) { train::for_each_planned_piece(training.trainer, take); });
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
        std::string const mixers = std::array{"a", "a,m", "m", "a", "l,m,a"}[static_cast<std::size_t>(trial % 5)];
        auto const from = draws.way(n, has_experts), to = draws.way(n, has_experts);
        INFO("trial ", trial, ": ", from.text(), " -> ", to.text(), ", mixers ", mixers, has_experts ? ", experts" : "",
             tied ? ", tied" : "");
        Folder const folder;
        auto run = settings(has_experts, tied, mixers);
        run.strategy.optimizer = optimizer(trial / 2);
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
        run.strategy.optimizer = optimizer(trial);
        if (trial == 0) run.strategy.precision = {.moments = Compact::fp8, .keeps_masters = !std::is_same_v<T, bf16>};
        if (trial == 1) run.strategy.precision = {.reduce = Compact::bf16, .moments = Compact::bf16};
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
        larger.strategy.batch = 32;
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
    run.strategy.batch = 4 * static_cast<std::size_t>(world_size());
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
    run.strategy.batch = 4 * static_cast<std::size_t>(world_size());
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

namespace {

/// This rank's part of the state.
template <class T, class Stream>
std::vector<std::vector<accumulator_t<T>>> states_of(Run<Stream>& run) {
    using A = accumulator_t<T>;
    std::vector<std::vector<A>> states;
    train::for_each_held_piece(run.training.trainer, true, [&](train::HeldPiece const& piece) {
        auto const* const data = static_cast<A const*>(piece.data);
        states.emplace_back(data, data + piece.stored.piece.size());
    });
    return states;
}

/// Saved, read on the same mesh and on others, dumped and loaded: what a run with these settings has to save. On two
/// ranks.
/// @param worst_elsewhere how far numbers on another mesh may be from those of the first
template <class T>
void check_all_ways(std::string const& name, train::RunSettings run, std::vector<MeshShape> const& elsewhere,
                    double worst_elsewhere) {
    INFO(name, " ", io::safetensors_type<T>);
    run.strategy.batch = 8;
    using Stream = InvariantStream<T>;
    Way const way{.mesh = {.dp = 2}, .sharding = {.stage = 1}, .micro_batches = 2};
    auto const family = model::family_of(run.model);
    Folder const saved, dumped;
    std::vector<std::vector<accumulator_t<T>>> states;
    std::vector<double> expected;
    double loss = 0;
    {
        Run<Stream> first(way, run, MPI_COMM_WORLD);
        (void)first.steps(1, 2);
        first.save(saved.path(), 2);
        states = states_of<T>(first);
        loss = first.training.trainer.evaluate(3).loss;
        train::CheckpointSink<accumulator_t<T>> sink(dumped.path(), "{}");
        train::export_weights<T>(first.mesh.context, first.training.trainer.model(), first.training.trainer.store(),
                                 family, sink);
        expected = first.steps(3, 2);
    }
    {
        Run<Stream> second(way, run, MPI_COMM_WORLD);
        second.restore(saved.path());
        CHECK(states_of<T>(second) == states);
        // Rounding errors of gradients in fp8 are not saved.
        if (run.strategy.precision.reduce != Compact::fp8) CHECK(second.steps(3, 2) == expected);
    }
    for (MeshShape const& mesh : elsewhere) {
        INFO("on ", mesh.text());
        Run<Stream> third({.mesh = mesh, .micro_batches = 2}, run, MPI_COMM_WORLD);
        CHECK(std::abs(third.training.trainer.evaluate(3).loss - loss) > 1e-6);
        train::import_weights<T>(third.mesh.context, third.training.trainer.model(), third.training.trainer.store(),
                                 family, io::Checkpoint(dumped.path()));
        CHECK(std::abs(third.training.trainer.evaluate(3).loss - loss) < worst_elsewhere);
        third.restore(saved.path());
        CHECK(worst(third.steps(3, 2), expected) < worst_elsewhere);
    }
}

/// A block for each part.
model::Model blocks_of(std::vector<model::Part> const& parts) {
    model::Model model{.hidden = 32, .vocab = 50};
    for (auto const& part : parts) model.blocks.push_back({{{part, "part", "norm"}}});
    return model;
}

constexpr double f64_elsewhere = 1e-10, f32_elsewhere = 1e-3, rounded_elsewhere = 0.3;
std::vector<MeshShape> const dense_elsewhere{{.tp = 2}, {.pp = 2}}, elsewhere{{.tp = 2}, {.pp = 2}, {.ep = 2}};

} // namespace

TEST_CASE("every part that there is a layer for is saved and read, with each of its parameters") {
    if (world_size() != 2) return;
    // One of each kind without and one with all that switches add.
    std::vector<model::Part> const parts{
        model::Attention{.kv_heads = 2, .head_dim = 8},
        model::Attention{.kv_heads = 2,
                         .head_dim = 8,
                         .has_bias = true,
                         .norms_queries_and_keys = true,
                         .has_output_bias = true,
                         .scores = {.sinks = true}},
        model::LatentAttention{.head_dim = 8, .rope_dim = 4, .value_dim = 8, .kv_rank = 16},
        model::LatentAttention{.head_dim = 8, .rope_dim = 4, .value_dim = 8, .query_rank = 12, .kv_rank = 16},
        model::Mamba2{.head_dim = 8, .state = 4, .chunk = 8},
        model::Mamba2{.head_dim = 8, .state = 4, .groups = 2, .norm_groups = 2, .convolution = 2, .chunk = 8},
        model::LinearAttention{.head_dim = 8, .chunk = 8},
        model::LinearAttention{.head_dim = 8, .fading = model::Fading::retention, .chunk = 8},
        model::GatedMlp{.width = 24},
        model::PlainMlp{.width = 24},
        model::PlainMlp{.width = 24, .has_bias = true},
        model::Experts{.count = 4, .width = 12},
        model::Experts{.count = 4, .width = 12, .shared = 2, .router = {.has_bias = true}}};
    auto const registry = train::decoder_layers<f64, Exec>();
    auto const& stream = InvariantStream<f64>::value;
    std::set<std::string_view> kinds;
    for (auto const& part : parts) {
        CHECK(registry.contains(stream, part));
        kinds.insert(part.kind());
    }
    CHECK_MESSAGE(kinds.size() == registry.size(stream),
                  "a part that the registry has a layer for is not in this list");
    check_all_ways<f64>("every part", {.model = blocks_of(parts), .strategy = {.seq = 16}, .warmup = 1}, elsewhere,
                        f64_elsewhere);
    auto ends = blocks_of(parts);
    ends.blocks.resize(2);
    ends.norm = model::NormKind::layer;
    ends.positions = 16;
    ends.ties_embeddings = true;
    check_all_ways<f64>("positions, LayerNorm, a tied head", {.model = ends, .strategy = {.seq = 16}, .warmup = 1},
                        dense_elsewhere, f64_elsewhere);
    auto predicting = model::decoder({.layers = 2, .hidden = 32, .heads = 4, .ffn = 24, .vocab = 50});
    predicting.predictors = {predicting.blocks[0], predicting.blocks[1]};
    check_all_ways<f64>("predictors", {.model = predicting, .strategy = {.seq = 16}, .warmup = 1}, dense_elsewhere,
                        f64_elsewhere);
}

TEST_CASE("every router is saved and read") {
    if (world_size() != 2) return;
    std::vector<model::Part> parts;
    auto const add = [&](model::Router const& router) {
        if (router.refusal(4, 2).empty()) parts.push_back(model::Experts{.count = 4, .width = 8, .router = router});
    };
    for (auto const name : model::router_names)
        for (auto const balance : model::balance_names) {
            auto router = model::named_router(name);
            router.set_balance(balance);
            add(router);
        }
    CHECK(parts.size() >= model::router_names.size());
    for (std::size_t i = 0; i < model::drop_names.size(); ++i)
        add({.capacity = 1, .drop = static_cast<model::Drop>(i)});
    for (std::size_t i = 0; i < model::bias_step_names.size(); ++i)
        add({.has_bias = true, .bias_rate = 0.1, .bias_step = static_cast<model::BiasStep>(i)});
    check_all_ways<f64>("routers", {.model = blocks_of(parts), .strategy = {.seq = 16}, .warmup = 1}, elsewhere,
                        f64_elsewhere);
}

namespace {

template <std::size_t... I>
std::vector<model::Optimizer> all_optimizers(std::index_sequence<I...>) {
    return {std::variant_alternative_t<I, model::Optimizer>{}...};
}

} // namespace

TEST_CASE("every optimizer is saved and read") {
    if (world_size() != 2) return;
    auto all = all_optimizers(std::make_index_sequence<std::variant_size_v<model::Optimizer>>());
    all.push_back(model::Sgd{.momentum = 0});
    for (auto const& optimizer : all) {
        auto run = settings(true, true, "a,m");
        run.strategy.optimizer = optimizer;
        check_all_ways<f64>("optimizer " + std::to_string(optimizer.index()), run, elsewhere, f64_elsewhere);
    }
}

TEST_CASE("every precision is saved and read") {
    if (world_size() != 2) return;
    auto const run = settings(true, false, "m,a");
    auto const with = [&](model::Precision const& precision) {
        auto changed = run;
        changed.strategy.precision = precision;
        return changed;
    };
    check_all_ways<f32>("f32", run, {{.ep = 2}}, f32_elsewhere);
    std::vector<model::Precision> all{{}, {.keeps_masters = false}};
    for (std::size_t i = 1; i < compact_names.size(); ++i) {
        auto const how = static_cast<Compact>(i);
        check_all_ways<f32>("moments", with({.moments = how}), {{.tp = 2}}, rounded_elsewhere);
        for (model::Precision const& precision : {model::Precision{.reduce = how}, {.rows = how}, {.moments = how}})
            all.push_back(precision);
        all.push_back({.moments = how, .keeps_masters = false});
    }
    for (auto const& precision : all)
        check_all_ways<bf16>("precision", with(precision), {{.ep = 2}}, rounded_elsewhere);
}

namespace {

/// A small model of each family.
model::Model model_of(model::Family family) {
    using model::Family;
    auto model = model::decoder({.layers = 2,
                                 .hidden = 16,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .ffn = 24,
                                 .vocab = 50,
                                 .experts = model::has_experts(family) ? 4u : 0u});
    model::Mamba2 const mamba{.heads = 4, .head_dim = 8, .state = 4, .groups = 2, .norm_groups = 2, .chunk = 8};
    auto attention = *model.find<model::Attention>(0);
    switch (family) {
    case Family::llama:
    case Family::mixtral:
        break;
    case Family::mistral:
        attention.sight.window = 8;
        break;
    case Family::qwen2:
        attention.has_bias = true;
        break;
    case Family::qwen3:
    case Family::qwen3_moe:
        attention.norms_queries_and_keys = true;
        break;
    case Family::mamba2:
        return model::mamba2(2, 16, 50, mamba, true);
    case Family::bamba: {
        model::Branch const mlp{model::GatedMlp{24}, "feed_forward", "pre_ff_layernorm"};
        attention.rotary.share = 0.5;
        model.blocks = {{{{mamba, "mamba", "input_layernorm"}, mlp}},
                        {{{attention, "self_attn", "input_layernorm"}, mlp}}};
        return model;
    }
    case Family::deepseek_v3:
        return model::deepseek(
            2, 16, 50, {.heads = 4, .head_dim = 8, .rope_dim = 4, .value_dim = 8, .query_rank = 12, .kv_rank = 16}, 1,
            24,
            {.count = 4,
             .top_k = 2,
             .width = 8,
             .shared = 1,
             .router = {.score = model::RouterScore::sigmoid, .has_bias = true}});
    }
    for (auto& block : model.blocks) block.branches[0].part = attention;
    return model;
}

} // namespace

TEST_CASE("every family is saved and read") {
    if (world_size() != 2) return;
    for (std::size_t i = 0; i < model::family_names.size(); ++i) {
        auto const family = static_cast<model::Family>(i);
        train::RunSettings const run{.model = model_of(family), .strategy = {.seq = 16}, .warmup = 1};
        CHECK(model::family_of(run.model) == family);
        check_all_ways<f64>(std::string(model::name(family)), run, {{.tp = 2}}, f64_elsewhere);
    }
}

TEST_CASE("a state that can never be saved is refused on all ranks before the first step") {
    Way const way{.mesh = {.dp = world_size()}, .sharding = {.stage = 1}};
    auto run = settings(true, false, "m,a");
    run.strategy.batch = 4 * static_cast<std::size_t>(world_size());
    Folder const folder;
    on_ranks<f64>(way, [&]<class Stream>(MPI_Comm comm) {
        Run<Stream> first(way, run, comm);
        std::vector<std::string> planned, held;
        auto const note = [](std::vector<std::string>& into, train::HeldPiece const& piece) {
            into.push_back(checkpoint::text_of(checkpoint::StoredFile{.name = "f", .pieces = {piece.stored}}));
        };
        train::for_each_planned_piece(first.training.trainer, [&](auto const& piece) { note(planned, piece); });
        train::CheckpointSaver saver(comm, folder.path(), 1);
        auto const require = [&](auto const& change) {
            saver.require_plan([&](auto const& take) {
                std::size_t number = 0;
                train::for_each_planned_piece(first.training.trainer,
                                              [&](train::HeldPiece const& piece) { change(piece, take, number++); });
            });
        };
        require([](auto const& piece, auto const& take, std::size_t) { take(piece); });
        CHECK_THROWS_WITH_AS(require([](auto const& piece, auto const& take, std::size_t number) {
                                 take(piece);
                                 if (world_rank() == world_size() - 1 && number == 0) take(piece);
                             }),
                             doctest::Contains(" are there twice"), std::invalid_argument);
        CHECK_THROWS_WITH_AS(require([](auto const& piece, auto const& take, std::size_t number) {
                                 if (world_rank() < world_size() - 1 || number > 0) take(piece);
                             }),
                             doctest::Contains(" are missing"), std::invalid_argument);
        CHECK(checkpoint::detail::entries(folder.path()).empty());
        (void)first.steps(1, 1);
        train::for_each_held_piece(first.training.trainer, true, [&](auto const& piece) { note(held, piece); });
        CHECK(planned == held);
    });
}
