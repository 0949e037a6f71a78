// ranks: 1 2 4 8
//
// Whatever is recomputed, training gives the same bits on the same mesh; what is kept is what the planner says; and
// automatic recomputation keeps within its limit.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/planned.hpp>
#include <pentad/train/trainer.hpp>

#include <support/layer_check.hpp>
#include <support/on_mesh.hpp>
#include <support/outcome.hpp>
#include <support/parameters.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

using namespace support;

namespace {

using Invariant = InvariantStream<f64>;
using Sequence = SequenceStream<f64>;
using Kind = model::Recomputation::Kind;
using model::Piece;

/// Every kind: each piece alone, all together, every second block, and blocks that differ.
std::vector<model::Recomputation> recomputations() {
    std::vector<model::Recomputation> all{{.kind = Kind::full}, {.kind = Kind::full, .every = 2}};
    model::PieceSet together;
    for (std::size_t i = 0; i < model::piece_names.size(); ++i) {
        all.push_back({.kind = Kind::selective, .pieces = {static_cast<Piece>(i)}});
        together.add(static_cast<Piece>(i));
    }
    all.push_back({.kind = Kind::selective, .every = 2, .pieces = together});
    all.push_back({.kind = Kind::planned,
                   .blocks = {{.whole = true},
                              {.pieces = {Piece::norms, Piece::rows}},
                              {},
                              {.pieces = {Piece::inputs, Piece::attention, Piece::activations}}}});
    return all;
}

struct Case {
    std::string schedule = "1f1b";
    int chunks = 1, slices = 1;
};

template <class Stream>
void check(MeshShape const& m, train::RunSettings settings, Case const& how = {}) {
    settings.strategy.batch = std::max(settings.strategy.batch, m.dp * m.ep * settings.strategy.micro_batches);
    auto const schedule =
        pipeline::generate(how.schedule, {.ranks = m.pp,
                                          .micro_batches = static_cast<int>(settings.strategy.micro_batches),
                                          .chunks = how.chunks,
                                          .slices = how.slices});
    OnMesh const on(m,
                    train::for_schedule(OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads)), schedule));
    auto const outcome_with = [&](model::Recomputation const& recompute) {
        settings.strategy.recompute = recompute;
        Training<Stream> training(on, settings, schedule);
        return outcome_of(training, settings.steps);
    };
    auto const expected = outcome_with({});
    // Blocks that are recomputed are other units, which add to the norm in another order: where gradients are sharded
    // by unit, bits of rounding differ.
    double const tolerance = settings.strategy.sharding.has_temporary_gradients() ? 1e-12 : 0;
    auto const differ = [tolerance](std::vector<double> const& a, std::vector<double> const& b) {
        return !std::equal(a.begin(), a.end(), b.begin(), b.end(), [tolerance](double x, double y) {
            return std::abs(x - y) <= tolerance * std::max(1.0, std::abs(y));
        });
    };
    for (auto const& recompute : recomputations()) {
        INFO(m.text(), " ", how.schedule, " zero ", settings.strategy.sharding.stage, " experts ",
             sizes(settings.model).experts, " recomputes ", model::text(recompute));
        auto const found = outcome_with(recompute);
        CHECK_FALSE(differ(found.losses, expected.losses));
        for (auto const& [name, whole] : found.weights)
            CHECK_MESSAGE(!differ(whole.values, expected.weights.at(name).values), name);
    }
}

/// A model whose sizes are not small against the rounding of the allocator, in f32.
train::RunSettings larger() {
    auto settings = small_dense();
    settings.model = model::decoder({.layers = 8, .hidden = 128, .heads = 8, .kv_heads = 4, .ffn = 352, .vocab = 512});
    settings.strategy.seq = 64;
    return settings;
}
Strategy strategy_on(MeshShape const& m, train::RunSettings const& settings, bool sequence_parallel,
                     std::string const& schedule = "1f1b", int chunks = 1) {
    auto c = support::on_mesh(m, settings.strategy);
    c.block.sequence_parallel = sequence_parallel;
    c.element = planner::Element::f32;
    c.schedule = schedule;
    c.chunks = chunks;
    return c;
}

/// Bytes that this rank keeps of a micro-batch after the forward pass of all blocks, one after the other, as the run
/// counts them and as the planner does.
/// @param query_rank of latent attention; none: attention is not latent
template <class Stream>
void check_saved(MeshShape const& m, std::optional<std::size_t> query_rank = {}) {
    auto settings = larger();
    settings.strategy.batch = 4 * static_cast<std::size_t>(m.dp);
    settings.strategy.micro_batches = 1;
    change(settings, [](auto& sizes) { sizes.layers = 4; });
    if (query_rank) make_latent(settings, *query_rank);
    OnMesh const on(m, static_cast<int>(sizes(settings.model).kv_heads));
    LayerSetup<Exec> const setup{.context = on.context,
                                 .hidden = settings.model.hidden,
                                 .batch = static_cast<std::size_t>(settings.strategy.batch),
                                 .seq = static_cast<std::size_t>(settings.strategy.seq)};
    auto const& held = observe::counters()[observe::Memory::activations];
    auto const model = train::planned_model(settings.model);
    auto kinds = recomputations();
    kinds.emplace_back();
    double none = 0, full = 0;
    for (auto const& recompute : kinds) {
        settings.strategy.recompute = recompute;
        using T = typename Stream::element;
        Stack<T, Exec> blocks({setup, Stream::value}, settings.model, train::decoder_layers<T, Exec>(), 0, 4,
                              recompute);
        Parameters<T> const parameters(blocks, [](std::string const&) { return Whole{}; });
        typename Stack<T, Exec>::Saved saved;
        Pass<Exec> pass{.context = on.context};
        Tensor<Stream, Exec> x(on.context, {setup.batch, setup.seq, setup.hidden});
        x.clear();
        auto const before = held.bytes;
        auto const y = blocks.forward(pass, x, saved);
        auto const kept = static_cast<double>(held.bytes - before); // x was there, and y passes on
        auto const c = strategy_on(m, settings, std::is_same_v<Stream, SequenceStream<f32>>);
        planner::Account const account(model, c);
        double planned = 0;
        auto shape = planner::whole_shape(model, c);
        shape.is_first = shape.is_last = false;
        account.for_each_kind(
            shape, [&](planner::MeshPart const& part, double count) { planned += count * part.sums->memory.saved; });
        INFO(m.text(), " recomputes ", model::text(recompute));
        CHECK(kept == planned);
        if (recompute.kind == Kind::none) none = kept;
        if (recompute == model::Recomputation{.kind = Kind::full}) full = kept;
        if (recompute.kind != Kind::none && none > 0) CHECK(kept < none);
        saved.clear();
        CHECK(held.bytes - before == static_cast<std::int64_t>(account.stream())); // y alone
    }
    CHECK(full < 0.2 * none);
}

/// Bytes of activations of this rank at their peak in a step.
template <class Stream>
double peak_of_step(OnMesh const& on, train::RunSettings const& settings, pipeline::Schedule const& schedule) {
    auto const& held = observe::counters()[observe::Memory::activations];
    auto const before = held.bytes;
    Training<Stream> training(on, settings, schedule);
    training.trainer.step(1);
    observe::counters()[observe::Memory::activations].peak = held.bytes;
    training.trainer.step(2);
    return static_cast<double>(held.peak - before);
}

} // namespace

TEST_CASE("whatever is recomputed, the same bits") {
    int const n = world_size();
    std::vector<MeshShape> shapes{{.dp = n}};
    if (n > 1) shapes = {{.dp = n / 2, .ep = 2}, {.dp = n / 2, .cp = 2}, {.dp = n / 2, .pp = 2}};
    if (n >= 4) shapes.push_back({.ep = 2, .cp = n / 4, .tp = 2});
    for (auto const& m : shapes) {
        check<Invariant>(m, small_with_experts());
        if (m.tp > 1) check<Sequence>(m, small_with_experts());
    }
    if (n == 1) return;
    MeshShape const tp{.dp = n / 2, .tp = 2};
    check<Invariant>(tp, small_dense());
    check<Sequence>(tp, small_dense());
    check<Sequence>({.dp = n / 2, .tp = 2}, small_with_experts());
}

TEST_CASE("latent attention gives the same bits whatever is recomputed") {
    int const n = world_size();
    if (n > 4) return;
    for (std::size_t const query_rank : {0, 6}) {
        auto settings = small_dense();
        make_latent(settings, query_rank);
        check<Invariant>({.dp = n}, settings);
        check<Invariant>({.cp = n}, settings);
        check<Sequence>({.tp = n}, settings);
        if (n > 1) check<Invariant>({.dp = n / 2, .pp = 2}, settings, {.schedule = "zb-h1"});
        if (n > 1) check<Invariant>({.pp = 2, .cp = n / 2}, settings, {.schedule = "terapipe", .slices = 2});
    }
}

TEST_CASE("with schedules that split backward passes, hold two copies of a stage, or cut sequences") {
    int const n = world_size();
    if (n == 1 || n > 4) return;
    int const pp = n, dp = 1;
    check<Invariant>({.dp = dp, .pp = pp}, small_with_experts(), {.schedule = "zb-h1"});
    if (2 * pp <= 4) check<Invariant>({.dp = dp, .pp = pp}, small_with_experts(), {.schedule = "zb-v", .chunks = 2});
    check<Invariant>({.dp = dp, .pp = pp}, small_dense(), {.schedule = "dualpipe"});
    if (n == 4) check<Sequence>({.pp = 2, .tp = 2}, small_dense(), {.schedule = "zb-v", .chunks = 2});
    check<Invariant>({.dp = dp, .pp = pp}, small_with_experts(), {.schedule = "terapipe", .slices = 2});
}

TEST_CASE("with sharded parameters and gradients") {
    int const n = world_size();
    if (n == 1 || n > 4) return;
    for (ZeroSharding const& sharding :
         std::vector<ZeroSharding>{{.stage = 3}, {.stage = 3, .keeps_parameters = true}, {.stage = 2}}) {
        auto settings = small_with_experts();
        settings.strategy.sharding = sharding;
        check<Invariant>({.dp = n / 2, .ep = 2}, settings);
        if (n == 4 && sharding.stage == 3 && !sharding.keeps_parameters) {
            auto sequence = small_dense();
            sequence.strategy.sharding = sharding;
            check<Sequence>({.dp = 2, .tp = 2}, sequence);
            check<Invariant>({.dp = 2, .pp = 2}, settings, {.schedule = "zb-v", .chunks = 2});
        }
    }
}

TEST_CASE("blocks keep what the planner says, to the byte") {
    int const n = world_size();
    if (n > 4) return;
    check_saved<InvariantStream<f32>>({.dp = n});
    check_saved<InvariantStream<f32>>({.tp = n});
    check_saved<SequenceStream<f32>>({.tp = n});
    check_saved<InvariantStream<f32>>({.cp = n});
    for (std::size_t const query_rank : {0, 48}) {
        check_saved<InvariantStream<f32>>({.dp = n}, query_rank);
        check_saved<SequenceStream<f32>>({.tp = n}, query_rank);
        check_saved<InvariantStream<f32>>({.cp = n}, query_rank);
    }
}

TEST_CASE("automatic recomputation keeps within its limit, each stage by itself") {
    int const n = world_size();
    if (n > 4) return;
    using Stream = InvariantStream<f32>;
    for (auto const& [m, name, chunks] : std::vector<std::tuple<MeshShape, std::string, int>>{
             {{.dp = n}, "1f1b", 1}, {{.pp = n}, "1f1b", 1}, {{.pp = n}, "zb-v", 2}, {{.pp = n}, "dualpipe", 1}}) {
        if (n == 1 && m.pp == n && name != "1f1b") continue;
        auto settings = larger();
        settings.strategy.micro_batches = 8;
        settings.strategy.batch = 16 * static_cast<std::size_t>(m.dp);
        auto const schedule = pipeline::generate(name, {.ranks = m.pp, .micro_batches = 8, .chunks = chunks});
        OnMesh const on(m, train::for_schedule(OnMesh::mesh(m, 4), schedule));
        auto const model = train::planned_model(settings.model);
        auto c = strategy_on(m, settings, false, name, chunks);
        auto const memory_with = [&](model::Recomputation const& recompute) {
            auto changed = c;
            changed.recompute = recompute;
            return train::planned_memory(model, changed, schedule, {});
        };
        auto const most = [](std::vector<planner::Memory> const& ranks) {
            double bytes = 0;
            for (auto const& memory : ranks) bytes = std::max(bytes, memory.total());
            return bytes;
        };
        double const none = most(memory_with({})), full = most(memory_with({.kind = Kind::full}));
        planner::Hardware machine{.devices = m.ranks(),
                                  .devices_per_node = m.ranks(),
                                  .peak_f32 = 1e11,
                                  .peak_bf16 = 1e11,
                                  .memory_bandwidth = 1e10,
                                  .links = {{.devices = m.ranks(), .latency_s = 1e-6, .bandwidth = 1e9}}};
        INFO(m.text(), " ", name, " none ", none, " full ", full);
        auto const plan_within = [&](double limit) {
            machine.memory_bytes = limit;
            return train::planned_recomputation(model, machine, c, schedule, {});
        };
        CHECK(plan_within(none).recompute.kind == Kind::none);
        CHECK(plan_within(none).lacking == 0);
        CHECK(plan_within(0.2 * full).lacking > 0);
        double const limit = full + 0.4 * (none - full);
        auto const plan = plan_within(limit);
        CHECK(plan.lacking == 0);
        CHECK(plan.is_exact);
        CHECK(plan.recompute.kind == Kind::planned);
        auto const memory = memory_with(plan.recompute);
        CHECK(most(memory) <= limit);
        CHECK(most(memory) > 0.8 * limit);
        settings.strategy.recompute = plan.recompute;
        double const peak = peak_of_step<Stream>(on, settings, schedule);
        auto const rank =
            static_cast<std::size_t>(train::pipeline_rank(schedule, on.context.communicators().coordinate("pp")));
        // Tables of positions, tokens and messages that arrive early are not in the account.
        double const planned = memory[rank].activations + memory[rank].workspace;
        INFO("planned ", planned);
        CHECK(peak < 1.03 * planned);
        CHECK(peak > 0.95 * planned);
    }
}

TEST_CASE("recomputation that no run can have is refused in a sentence") {
    if (world_size() > 1) return;
    Alone const alone;
    auto const refusal = [&](model::Recomputation const& recompute) {
        auto settings = small_dense();
        settings.strategy.recompute = recompute;
        try {
            Training<Invariant> const training(alone, settings);
        } catch (std::invalid_argument const& error) {
            return std::string(error.what());
        }
        return std::string();
    };
    CHECK(refusal({.kind = Kind::automatic}) ==
          "automatic recomputation needs a memory limit: plan it with train::planned_recomputation()");
    CHECK(refusal({.kind = Kind::full, .every = 0}) == "recompute.every = 0 is less than 1");
    CHECK(refusal({.kind = Kind::full, .every = 3}).empty());
}
