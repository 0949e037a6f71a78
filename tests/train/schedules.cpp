// ranks: 1 2 4 8
//
// Every synchronous schedule gives the losses and the weights of one rank, with other axes inside the stages; every
// asynchronous one those of a serial emulation of the same staleness.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/pipeline/search.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/train/trainer.hpp>

#include <pipeline/mutator.hpp>
#include <support/on_mesh.hpp>
#include <support/outcome.hpp>
#include <support/parameters.hpp>
#include <support/training.hpp>

#include <map>
#include <string>
#include <vector>

using namespace support;

namespace {

using Stream = InvariantStream<f64>;
using Sequence = SequenceStream<f64>;

train::RunSettings of_dense() {
    return {.model = model::decoder({.layers = 8, .hidden = 16, .heads = 4, .kv_heads = 2, .ffn = 32, .vocab = 48}),
            .strategy = {.batch = 16, .micro_batches = 8, .seq = 16},
            .steps = 2,
            .warmup = 1};
}
train::RunSettings of_experts() {
    auto settings = of_dense();
    change(settings, [&](auto& sizes) { sizes.experts = 4; });
    change(settings, [&](auto& sizes) { sizes.moe_every = 2; });
    return settings;
}
train::RunSettings of_tied() {
    auto settings = of_dense();
    change(settings, [&](auto& sizes) { sizes.ties_embeddings = true; });
    return settings;
}

/// What one rank does; each is computed once.
Outcome const& alone(train::RunSettings const& settings) {
    static std::map<std::vector<double>, Outcome> known;
    std::vector<double> const key{
        static_cast<double>(sizes(settings.model).experts), static_cast<double>(sizes(settings.model).ties_embeddings),
        static_cast<double>(sizes(settings.model).layers), static_cast<double>(settings.strategy.micro_batches),
        static_cast<double>(settings.strategy.batch)};
    auto const [at, is_new] = known.try_emplace(key);
    if (!is_new) return at->second;
    return at->second =
               trained_alone<Stream>(settings, [&](auto& training) { return outcome_of(training, settings.steps); });
}

/// A layer more or less here and there; with more stages than layers some have none.
std::vector<std::int64_t> uneven_layers(std::size_t layers, int stages) {
    auto const parts = static_cast<std::size_t>(stages);
    std::vector<std::int64_t> counts(parts, static_cast<std::int64_t>(layers / parts));
    for (std::size_t i = 0; i < layers % parts; ++i) ++counts[i * parts / (layers % parts)];
    if (parts > 1 && counts[0] > 0) --counts[0], ++counts[parts - 1];
    return counts;
}

struct Variant {
    std::string name;
    pipeline::GeneratorOptions options{};
    MeshShape rest{}; ///< the axes inside the stages
    bool sequence_parallel = false;
    int zero_stage = 0;
    Order order = Order::contiguous;
    ContextStrategy strategy = ContextStrategy::ring;
};

/// The numbers that a run is judged by.
template <class S>
void check_outcome(train::RunSettings const& settings, Training<S>& training, Outcome const& expected) {
    auto const found = outcome_of(training, settings.steps);
    CHECK(worst(found.losses, expected.losses) < 1e-11);
    for (auto const& [name, whole] : found.weights)
        CHECK_MESSAGE(distance(whole, expected.weights.at(name)) < 1e-11, name);
}

template <class S>
void same_as_alone(train::RunSettings settings, Variant const& how, pipeline::Schedule schedule) {
    auto const& expected = alone(settings);
    MeshShape m = how.rest;
    m.pp = schedule.ranks();
    OnMesh const mesh(m,
                      train::for_schedule(OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads)), schedule));
    settings.strategy.sharding.stage = how.zero_stage;
    settings.strategy.block.zigzag = how.order == Order::zigzag;
    settings.strategy.block.context = how.strategy;
    settings.strategy.stage_layers = uneven_layers(sizes(settings.model).layers, schedule.stages());
    Training<S> training(mesh, settings, std::move(schedule));
    check_outcome(settings, training, expected);
}

/// On all ranks, of which pp has what the other axes leave.
void check(train::RunSettings const& settings, Variant how) {
    how.rest.pp = 1;
    how.options.ranks = world_size() / how.rest.ranks();
    how.options.micro_batches = static_cast<int>(settings.strategy.micro_batches);
    auto const schedule = pipeline::generate(how.name, how.options);
    INFO(schedule.name, " with ", how.options.chunks, " chunks and ", how.options.slices, " slices, ",
         how.options.pairs ? "pairs, " : "", "pp = ", how.options.ranks, " ", how.rest.text());
    if (how.sequence_parallel)
        same_as_alone<Sequence>(settings, how, schedule);
    else
        same_as_alone<Stream>(settings, how, schedule);
}

/// Stage after stage on one rank, micro-batch after micro-batch: each sees the weights that `version(stage, update)`
/// says, which are kept on the host; each group of micro-batches is followed by an update of every stage.
Outcome emulate(train::RunSettings const& settings, int stages, int updates, auto version) {
    Alone const mesh;
    auto const text = varied_text();
    io::TokenData const data(text, "the text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed);
    LayerSetup<Exec> const setup{
        .context = mesh.context,
        .hidden = settings.model.hidden,
        .batch = static_cast<std::size_t>(settings.strategy.batch / settings.strategy.micro_batches),
        .seq = static_cast<std::size_t>(settings.strategy.seq)};
    pipeline::Schedule here; // all stages on one rank
    here.placements = {std::vector<int>(static_cast<std::size_t>(stages), 0)};
    using Model = train::LanguageModel<f64, Exec>;
    Model model(
        {setup, Stream::value}, settings.model, train::decoder_layers<f64, Exec>(),
        train::stages_of(here, 0, uneven_layers(sizes(settings.model).layers, stages), sizes(settings.model).layers),
        {});
    zero::ParameterStore<f64, Exec> store(mesh.context, model, settings.seed, {}, 1 << 20);
    train::Batch<Exec> batch(setup, Stream::value, settings.strategy.micro_batches, {});

    using Weights = std::map<std::string, Whole>;
    std::vector<std::vector<Weights>> kept(static_cast<std::size_t>(stages)); // [stage][updates so far]
    auto const keep = [&](int stage) {
        auto& weights = kept[static_cast<std::size_t>(stage)].emplace_back();
        model.for_each_unit_of(stage, [&](auto const& unit) {
            for (auto const* const p : unit.parameters()) weights[p->name()] = gather(*p);
        });
    };
    auto const load = [&](int stage, int number) {
        auto const& weights = kept[static_cast<std::size_t>(stage)].at(static_cast<std::size_t>(number));
        model.for_each_unit_of(stage, [&](auto const& unit) {
            for (auto const* const p : unit.parameters()) fill(*p, weights.at(p->name()));
        });
    };
    for (int stage = 0; stage < stages; ++stage) keep(stage);

    Outcome outcome;
    int const group = static_cast<int>(settings.strategy.micro_batches) / updates;
    for (int step = 1; step <= settings.steps; ++step) {
        batch.load(data, step, updates);
        int const first = (step - 1) * updates;
        double loss = 0, valid = 0, squares = 0;
        for (int update = 0; update < updates; ++update) {
            store.clear_gradients();
            double const targets = batch.valid()[static_cast<std::size_t>(update)];
            valid += targets;
            for (int i = update * group; i < (update + 1) * group; ++i) {
                auto const at = static_cast<std::size_t>(i);
                Pass<Exec> pass{.context = mesh.context,
                                .tokens = batch.tokens(at, 0),
                                .targets = batch.targets(at, 0),
                                .loss_scale = 1 / targets};
                std::vector<typename Model::Saved> saved(static_cast<std::size_t>(stages));
                typename Model::Any x, dy;
                for (int stage = 0; stage < stages; ++stage) {
                    load(stage, first + version(stage, update));
                    x = model.forward(stage, pass, std::move(x), saved[static_cast<std::size_t>(stage)]);
                }
                for (int stage = stages; stage-- > 0;)
                    dy = model.backward(stage, pass, std::move(dy), saved[static_cast<std::size_t>(stage)]);
                loss += pass.loss_sum;
            }
            for (int stage = 0; stage < stages; ++stage) load(stage, first + update);
            double const norm = store.reduce_gradients();
            squares += norm * norm;
            store.update(first + update + 1, {.learning_rate = train::learning_rate(settings, step)});
            for (int stage = 0; stage < stages; ++stage) keep(stage);
        }
        outcome.losses.insert(outcome.losses.end(), {loss / valid, 0, 0, std::sqrt(squares / updates)});
    }
    batch.load(data, settings.steps + 1);
    double loss = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(settings.strategy.micro_batches); ++i) {
        Pass<Exec> pass{.context = mesh.context, .tokens = batch.tokens(i, 0), .targets = batch.targets(i, 0)};
        typename Model::Any x;
        for (int stage = 0; stage < stages; ++stage) {
            typename Model::Saved saved;
            x = model.forward(stage, pass, std::move(x), saved);
        }
        loss += pass.loss_sum;
    }
    outcome.losses.insert(outcome.losses.end(), {loss / batch.valid()[0], 0, 0});
    for (auto const& versions : kept) outcome.weights.insert(versions.back().begin(), versions.back().end());
    return outcome;
}

/// An asynchronous schedule on all ranks, of which pp has what dp leaves, against its emulation.
void check_asynchronous(std::string const& name, int dp, int zero_stage, int updates, auto version) {
    auto settings = of_dense();
    settings.clip = 0;
    settings.strategy.sharding.stage = zero_stage;
    int const p = world_size() / dp;
    pipeline::GeneratorOptions options{.ranks = p, .micro_batches = 8};
    if (name == "pipedream-2bw") options.updates = updates;
    auto const schedule = pipeline::generate(name, options);
    INFO(name, " of ", updates, " updates, pp = ", p, " dp = ", dp);
    CHECK(schedule.updates == updates);
    auto const expected = on_first_rank([&] { return emulate(settings, p, updates, version); });
    settings.strategy.stage_layers = uneven_layers(sizes(settings.model).layers, p);
    OnMesh const mesh({.dp = dp, .pp = p}, sizes(settings.model).kv_heads);
    Training<Stream> training(mesh, settings, schedule);
    check_outcome(settings, training, expected);
}

/// Every synchronous schedule on pp ranks, each with its numbers of chunks.
std::vector<Variant> synchronous(int ranks) {
    std::vector<Variant> found;
    for (auto const& generator : pipeline::generators) {
        if (generator.name.starts_with("pipedream")) continue;
        if (generator.even_ranks && ranks % 2 != 0) continue;
        int const least = generator.least_chunks;
        for (int chunks = least; chunks <= 4; chunks += std::max(generator.chunk_step, 1)) {
            Variant how{std::string(generator.name)};
            how.options.chunks = chunks;
            if (chunks > 1 || generator.chunk_step == 0 || least > 1) found.push_back(how);
            if (generator.chunk_step == 0) break;
        }
        if (generator.has_pairs) {
            Variant how{std::string(generator.name)};
            how.options.pairs = true;
            found.push_back(how);
        }
        if (generator.takes_slices)
            for (int const slices : {2, 4}) {
                Variant how{std::string(generator.name)};
                how.options.slices = slices;
                how.options.recompute = slices == 4;
                found.push_back(how);
            }
    }
    return found;
}

} // namespace

TEST_CASE("every synchronous schedule gives the numbers of one rank") {
    if (world_size() > 4) return;
    for (auto const& how : synchronous(world_size())) check(of_dense(), how);
}
TEST_CASE("with experts, whose losses are those of whole sequences") {
    if (world_size() > 4) return;
    for (auto const& how : synchronous(world_size())) check(of_experts(), how);
}
TEST_CASE("with tied embeddings, wherever the two ends are") {
    if (world_size() > 4) return;
    for (auto const& how : synchronous(world_size())) check(of_tied(), how);
}
TEST_CASE("with every other axis inside the stages, ZeRO across them, recomputation, and operations of whole stages") {
    if (world_size() < 4) return;
    std::vector<MeshShape> const inside{{.dp = 2, .tp = 2}, {.dp = 2, .cp = 2}, {.ep = 2, .cp = 2}, {.cp = 2, .tp = 2},
                                        {.ep = 2, .tp = 2}, {.dp = 2, .ep = 2}, {.tp = 4}};
    std::vector<MeshShape> const one{{.dp = 2}, {.ep = 2}, {.cp = 2}, {.tp = 2}};
    std::size_t number = 0;
    auto settings = of_experts();
    settings.strategy.batch = 32;
    auto variants = synchronous(2);
    std::size_t const with_pp_2 = variants.size();
    if (world_size() == 8)
        for (auto& how : synchronous(4)) variants.push_back(how);
    for (auto how : variants) {
        change(settings, [&](auto& sizes) { sizes.ties_embeddings = number / 2 % 2 == 0; });
        how.rest = world_size() == 8 && number < with_pp_2 ? inside[number % inside.size()] : one[number % one.size()];
        ++number;
        how.options.recompute = number % 5 == 0 || how.options.recompute;
        if (number % 4 < 2) how.options.stage_operations = {.gather = true, .reduce = true, .step = true};
        how.sequence_parallel = number % 2 == 0;
        how.zero_stage = number % 3 == 0 ? 0 : 1;
        how.order = number % 2 == 0 ? Order::contiguous : Order::zigzag;
        how.strategy = number % 3 == 0 ? ContextStrategy::all_gather : ContextStrategy::ring;
        check(settings, how);
        how.zero_stage = 2 + static_cast<int>(number % 2);
        check(settings, how);
    }
}
TEST_CASE("pairs whose rows cross a network, which hold their turn for short exchanges") {
    if (world_size() != 4) return;
    SimulatedNodes const nodes("1");
    auto settings = of_experts();
    settings.strategy.batch = 32;
    for (auto how : synchronous(2)) {
        if (!how.options.pairs) continue;
        how.rest = {.ep = 2};
        for (int const stage : {0, 3}) {
            how.zero_stage = stage;
            check(settings, how);
        }
    }
}
TEST_CASE("an automatic schedule, for stages that take different times") {
    int const p = world_size();
    if (p > 4) return;
    for (int const chunks : {1, 2}) {
        pipeline::Costs costs{.stages = {}};
        for (int stage = 0; stage < p * chunks; ++stage)
            costs.stages.push_back({.forward = 10 + stage % 3, .backward_data = 12, .backward_weight = 7 + stage % 2});
        auto const found = pipeline::automatic({.ranks = p, .micro_batches = 8, .chunks = chunks}, costs,
                                               {.memory = {p * chunks + 1}, .states = 20'000});
        INFO("pp = ", p, ", ", chunks, " chunks: ", found.schedule.name);
        same_as_alone<Stream>(of_experts(), {"automatic"}, found.schedule);
    }
}
TEST_CASE("copies of a stage that begin and end in different orders") {
    if (world_size() == 1 || world_size() > 4) return;
    auto settings = of_tied();
    settings.strategy.micro_batches = 1;
    Variant how{"dualpipe"};
    how.zero_stage = 1;
    how.options.stage_operations = {.gather = true, .reduce = true, .step = true};
    check(settings, how);
}
TEST_CASE("a synchronous schedule may keep more versions of the weights than it needs") {
    if (world_size() > 4) return;
    auto schedule = pipeline::generate("1f1b", {.ranks = world_size(), .micro_batches = 8});
    schedule.weight_versions = 2;
    same_as_alone<Stream>(of_dense(), {"1f1b"}, schedule);
}
TEST_CASE("PipeDream sees weights as old as its micro-batch, at each stage") {
    int const p = world_size();
    if (p > 4) return;
    check_asynchronous("pipedream", 1, 0, 8,
                       [p](int stage, int update) { return std::max(0, update - (p - 1 - stage)); });
    if (p == 4)
        for (int const zero_stage : {1, 2, 3})
            check_asynchronous("pipedream", 2, zero_stage, 8,
                               [](int stage, int update) { return std::max(0, update - (1 - stage)); });
}
TEST_CASE("PipeDream-2BW sees weights that are one update old, at every stage") {
    int const p = world_size();
    if (p > 4) return;
    for (int const updates : {2, 8 / p})
        check_asynchronous("pipedream-2bw", 1, 0, updates, [](int, int update) { return std::max(0, update - 1); });
    if (p == 4)
        for (int const zero_stage : {1, 2, 3})
            check_asynchronous("pipedream-2bw", 2, zero_stage, 4,
                               [](int, int update) { return std::max(0, update - 1); });
}
TEST_CASE("a thousand mutated schedules that are accepted give the gradients of those that they were made from") {
    int const p = world_size();
    if (p == 1 || p > 4) return;
    std::vector<pipeline::Schedule> originals;
    for (auto const& how : synchronous(p)) {
        auto options = how.options;
        options.ranks = p;
        options.micro_batches = 4;
        for (bool const recompute : {false, true}) {
            options.recompute = recompute;
            originals.push_back(pipeline::generate(how.name, options));
        }
    }
    constexpr std::size_t wanted = 1000;
    std::size_t const each = wanted / originals.size() + 1;
    test::Mutator mutator(20265); // the same on every rank
    std::size_t accepted = 0;
    for (auto const& original : originals) {
        OnMesh const mesh(MeshShape{.pp = p}, train::for_schedule(OnMesh::mesh({.pp = p}, 2), original));
        auto settings = of_dense();
        settings.strategy.micro_batches = 4;
        settings.strategy.batch = 4;
        change(settings, [&](auto& sizes) { sizes.layers = 4; });
        change(settings, [&](auto& sizes) { sizes.hidden = 8; });
        change(settings, [&](auto& sizes) { sizes.ffn = 8; });
        StateRegistry states;
        LayerSetup<Exec> const setup{.context = mesh.context,
                                     .hidden = settings.model.hidden,
                                     .batch = 1,
                                     .seq = static_cast<std::size_t>(settings.strategy.seq / original.slices),
                                     .slices = static_cast<std::size_t>(original.slices),
                                     .states = &states};
        auto const layers = uneven_layers(sizes(settings.model).layers, original.stages());
        using Model = train::LanguageModel<f64, Exec>;
        Model model({setup, Stream::value}, settings.model, train::decoder_layers<f64, Exec>(),
                    train::stages_of(original, train::pipeline_rank(original, world_rank()), layers,
                                     sizes(settings.model).layers),
                    {});
        zero::ParameterStore<f64, Exec> store(mesh.context, model, settings.seed, {}, 1 << 20);
        train::Batch<Exec> batch(setup, Stream::value, 4, {});
        auto const text = varied_text();
        io::TokenData const data(text, "the text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed);
        batch.load(data, 1);
        train::Executor<Model, f64, Exec> executor(mesh.context, model);
        // Copies of a stage each have the gradients of their micro-batches.
        auto const gradients = [&](pipeline::Schedule const& schedule) {
            store.clear_gradients();
            std::vector<Pass<Exec>> passes;
            for (std::size_t i = 0; i < 4; ++i)
                for (std::size_t k = 0; k < setup.slices; ++k)
                    passes.push_back({.context = mesh.context,
                                      .tokens = batch.tokens(i, k),
                                      .targets = batch.targets(i, k),
                                      .loss_scale = 1 / batch.valid()[0]});
            executor.run(schedule, passes);
            std::vector<double> all;
            model.for_each_parameter([&](auto const& parameter) {
                auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), parameter.flat_gradient());
                all.insert(all.end(), host.data(), host.data() + host.size());
            });
            return all;
        };
        auto const expected = gradients(original);
        for (std::size_t found = 0, tries = 0; found < each && tries < 200 * each; ++tries) {
            auto mutant = original;
            for (auto mutations = 1 + mutator.below(3); mutations > 0; --mutations) mutator.mutate(mutant);
            if (mutant == original || pipeline::validate(mutant).refusal) continue;
            ++found;
            ++accepted;
            auto const difference = worst(gradients(mutant), expected);
            CHECK_MESSAGE(difference < 1e-13, pipeline::to_string(mutant));
        }
    }
    CHECK(accepted >= wanted);
    if (world_rank() == 0) MESSAGE(accepted, " mutants accepted and run");
}
