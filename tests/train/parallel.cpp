// ranks: 1 2 4
//
// It is really parallel: what a rank holds, computes and sends, with one axis at 1, 2 and 4 and the others at 1, is
// what the layouts say. Memory is counted where it is allocated, FLOPs at the GEMM seam, bytes in the library's ledger
// and, apart from it, behind the MPI profiling interface.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/strategy/strategy.hpp>
#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/pmpi_counter.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace support;

namespace {

using Invariant = InvariantStream<f32>;
using Sequential = SequenceStream<f32>;

// The model: L layers of width H, heads of q and width of k and v, width F of the feed-forward block, vocabulary V, E
// experts of which a token goes to K. A micro-batch is T tokens in 4 sequences, a step M micro-batches.
constexpr double L = 4, H = 32, heads = 8, kv = 16, F = 64, V = 64, E = 4, K = 2, T = 256, M = 2;
constexpr double attention_weights = 2 * H * H + 2 * kv * H, ffn_weights = 3 * H * F;

train::RunSettings dense() {
    return {.model = model::decoder({.layers = 4, .hidden = 32, .heads = 8, .kv_heads = 4, .ffn = 64, .vocab = 64}),
            .strategy = {.batch = 8, .micro_batches = 2, .seq = 64},
            .steps = 2,
            .learning_rate = 0.01,
            .warmup = 0};
}

/// A buffer's bytes, as the pool hands them out.
double block(double bytes) { return std::ceil(bytes / 256) * 256; }
/// A bucket of f32 parameters over ranks that share it out.
double bucket(double elements, double shards = 1) { return block(4 * elements / shards); }

/// What one rank counted.
struct Counted {
    double parameters, optimizer, saved, flops;
    std::array<double, 7> bytes;                ///< in a step, along pentad::view_axes
    std::array<double, 7> bytes_through_memory; ///< the same, with the shared memory of the node
    double pmpi;                                ///< of all axes, behind the profiling interface
    /// With experts, in a step: rows of tokens sent to other ranks, and received from them.
    double rows_sent = 0, rows_received = 0;
};

template <class Stream>
Counted count(MeshShape const& m, train::RunSettings const& settings) {
    auto held = [](observe::Memory kind) { return static_cast<double>(observe::counters()[kind].bytes); };
    double const nothing[] = {held(observe::Memory::parameters), held(observe::Memory::optimizer)};
    OnMesh const mesh(m, sizes(settings.model).kv_heads);
    Training<Stream> training(mesh, settings);
    auto& trainer = training.trainer;
    Counted result{};
    result.parameters = held(observe::Memory::parameters) - nothing[0];
    trainer.evaluate(1);
    CHECK(held(observe::Memory::optimizer) == nothing[1]); // which evaluation does not need

    trainer.step(1);
    result.optimizer = held(observe::Memory::optimizer) - nothing[1];
    auto const bytes_of_step = [&](std::int64_t number) {
        observe::ledger().clear();
        trainer.step(number);
        std::array<double, 7> bytes{};
        for (std::size_t i = 0; i < 7; ++i) bytes[i] = observe::ledger().bytes(pentad::view_axes[i]);
        return bytes;
    };
    observe::counters().gemm_flops = 0;
    pmpi::clear();
    comm::forced_algorithm() = comm::Algorithm::mpi;
    result.bytes = bytes_of_step(2);
    comm::forced_algorithm() = comm::Algorithm::automatic;
    result.flops = observe::counters().gemm_flops;
    result.pmpi = pmpi::count().bytes;
    for (auto const& sent : pmpi::exchanged_counts()) {
        auto received = sent;
        auto const each = static_cast<int>(sent.size()) / world_size();
        PMPI_Alltoall(sent.data(), each, MPI_INT64_T, received.data(), each, MPI_INT64_T, MPI_COMM_WORLD);
        for (int r = 0; r < world_size(); ++r)
            for (int e = 0; e < each; ++e)
                if (auto const at = static_cast<std::size_t>(r * each + e); r != world_rank()) {
                    result.rows_sent += static_cast<double>(sent[at]);
                    result.rows_received += static_cast<double>(received[at]);
                }
    }

    result.bytes_through_memory = sizes(settings.model).experts == 0 ? bytes_of_step(3) : result.bytes;

    // What the forward pass of one micro-batch keeps for its backward pass, what came from the stage before included.
    train::Batch<Exec> batch(trainer.setup(), Stream::value, settings.strategy.micro_batches, {});
    batch.load(training.data, 3);
    Pass<Exec> pass{.context = mesh.context, .tokens = batch.tokens(0, 0), .targets = batch.targets(0, 0)};
    int const stage = trainer.model().stages().front();
    train::LanguageModel<f32, Exec>::Saved saved;
    double const before = held(observe::Memory::activations);
    AnyTensor<f32, Exec> x;
    if (stage > 0) {
        Tensor<Stream, Exec> const received(
            mesh.context,
            {trainer.setup().batch, static_cast<std::size_t>(settings.strategy.seq), sizes(settings.model).hidden});
        received.clear();
        x = received;
    }
    auto y = trainer.model().forward(stage, pass, std::move(x), saved);
    y = {};
    result.saved = held(observe::Memory::activations) - before;
    return result;
}

/// The bytes of a step on each axis; the same on the wire.
void sent(Counted const& counted, std::array<double, 7> const& expected) {
    double total = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(counted.bytes[i] == expected[i]);
        CHECK(counted.bytes_through_memory[i] == expected[i]);
        total += expected[i];
    }
    CHECK(counted.pmpi == total);
}
/// The literal for 1, 2 or 4 ranks.
double literal(double two, double four) { return world_size() == 1 ? 0 : world_size() == 2 ? two : four; }

// Where nothing else is said, in the comments: n ranks; f = 2 (n-1)/n, what an all-reduce sends of a byte; m = 2
// micro-batches; X = 256 tokens x 32 x 4 bytes = 32768; P = 41248 parameters, of which 288 are norm weights; KV = 256
// tokens x 16 x 4 bytes = 16384. Every step sends f 8 bytes for the norm of the gradient along all axes, f 8 for the
// loss along all but tp, f 8 for the number of valid targets along dp and cp, and f 16 for auxiliary losses along all.

/// Elements of the activations that a dense model saves, in f32: `here` tokens, of which the stream has `streamed`.
double saved_by_layers(double count, double here, double streamed, double tp) {
    return count * (2 * (streamed * H + streamed)                  // the norms: input and 1 / rms
                    + 2 * here * H                                 // inputs of attention and feed-forward block
                    + here * (2 * H + 2 * kv + heads + 3 * F) / tp // q, output, k, v, lse; gate, up, inner
                   );
}
double saved_by_head(double here, double streamed, double tp) {
    return streamed * H + streamed + here * H + here * V / tp + here;
}
/// FLOPs of a step with all of the tokens, on the weights of products: forward, and twice that backward.
double flops(double weights) { return 6 * weights * T * M; }

constexpr double all_matrices = L * (attention_weights + ffn_weights) + 2 * V * H;
constexpr double all_vectors = (2 * L + 1) * H;
constexpr double all_products = all_matrices - V * H; // the embedding is none

void same_weights(Counted const& counted, double optimizer_shards = 1) {
    CHECK(counted.parameters == bucket(all_matrices) + bucket(all_vectors));
    CHECK(counted.optimizer == 2 * (bucket(all_matrices, optimizer_shards) + bucket(all_vectors, optimizer_shards)));
}
void shared_tokens(Counted const& counted) {
    double const here = T / world_size();
    CHECK(counted.flops == flops(all_products) / world_size());
    CHECK(counted.saved == 4 * (saved_by_layers(L, here, here, 1) + saved_by_head(here, here, 1)));
}

} // namespace

TEST_CASE("dp shares out the tokens; ZeRO-1 the optimizer state too, for the same bytes") {
    auto const m = MeshShape{.dp = world_size()};
    auto run = dense();
    auto const replicated = count<Invariant>(m, run);
    sent(replicated, {literal(165032, 247548), 0, 0, 0, 0}); // f (4 P + 40)
    same_weights(replicated);
    shared_tokens(replicated);
    run.strategy.sharding.stage = 1;
    auto const sharded = count<Invariant>(m, run);
    sent(sharded, {literal(165032, 247548), 0, 0, 0, 0}); // (n-1)/n (4 P + 4 P) + f 40
    same_weights(sharded, world_size());
    shared_tokens(sharded);
}

TEST_CASE("ep is part of dp for a dense model") {
    auto const counted = count<Invariant>({.ep = world_size()}, dense());
    sent(counted, {literal(165032, 247548), 0, 0, 0, 0}); // f (4 P + 40)
    same_weights(counted);
    shared_tokens(counted);
}

TEST_CASE("cp shares out the sequence; keys and values travel") {
    auto run = dense();
    int const n = world_size(), r = world_rank();
    auto const ring = count<Invariant>({.cp = n}, run);
    // Contiguous: of the 3 (n-1) blocks that go round, a rank sends on those of the ranks before it and its own, twice,
    // while a rank that sees them follows, and the gradients of those before it.
    double const blocks = 2 * (r + 1 < n ? r + 1 : 0) + r;
    sent(ring, {0, 0, 0, literal(165032 + 131072 * blocks, 247548 + 65536 * blocks), 0}); // f (4 P + 40)
    same_weights(ring);
    shared_tokens(ring);
    if (n > 1) {
        run.strategy.block.zigzag = true;
        auto const zigzag = count<Invariant>({.cp = n}, run);
        // 4 m 6 (n-1) KV/n: K and V forward, again backward, their gradients home; f (4 P + 40)
        sent(zigzag, {0, 0, 0, literal(558248, 837372), 0});
        same_weights(zigzag);
        shared_tokens(zigzag);
        run.strategy.block.zigzag = false;
    }
    run.strategy.block.context = ContextStrategy::all_gather;
    auto const gathered = count<Invariant>({.cp = world_size()}, run);
    sent(gathered, {0, 0, 0, literal(558248, 837372), 0}); // 4 m 6 (n-1) KV/n; f (4 P + 40)
    same_weights(gathered);
    shared_tokens(gathered);
}

TEST_CASE("tp shares out the weights; with sequence parallelism the stream too, for the same bytes") {
    double const n = world_size();
    auto const m = MeshShape{.tp = world_size()};
    auto const whole_stream = count<Invariant>(m, dense());
    // m f (18 X + 2 x 1024): an all-reduce after the embedding, after and before each of 8 blocks, before the head;
    // log-sum-exp and target logit of each token. f 8
    sent(whole_stream, {0, 0, 0, 0, literal(1183768, 1775652)});
    CHECK(whole_stream.saved == 4 * (saved_by_layers(L, T, T, n) + saved_by_head(T, T, n)));
    auto const shared_stream = count<Sequential>(m, dense());
    sent(shared_stream, {0, 0, 0, 0, literal(1184920, 1777380)}); // the same, and f 4 x 288 for the norms' gradients
    CHECK(shared_stream.saved == 4 * (saved_by_layers(L, T, T / n, n) + saved_by_head(T, T / n, n)));
    for (auto const& counted : {whole_stream, shared_stream}) {
        CHECK(counted.parameters == bucket(all_matrices / n) + bucket(all_vectors));
        CHECK(counted.optimizer == 2 * counted.parameters);
        CHECK(counted.flops == flops(all_products) / n);
    }
}

TEST_CASE("pp shares out the layers") {
    auto const counted = count<Invariant>({.pp = world_size()}, dense());
    bool const first = world_rank() == 0, last = world_rank() + 1 == world_size();
    // m X to the next stage, m X to the one before; f 8 x 4 for norm, loss and auxiliary losses
    double const inner = world_size() == 4 && !first && !last;
    sent(counted, {0, inner != 0 ? 131120 : literal(65568, 65584), 0, 0, 0});
    double const own = L / world_size(), table = V * H;
    double const products = own * (attention_weights + ffn_weights) + last * table;
    CHECK(counted.parameters == bucket(products + first * table) + bucket((2 * own + last) * H));
    CHECK(counted.optimizer == 2 * counted.parameters);
    CHECK(counted.flops == flops(products));
    CHECK(counted.saved == 4 * (saved_by_layers(own, T, T, 1) + last * saved_by_head(T, T, 1)));
}

TEST_CASE("1F1B holds micro-batches for the stages behind, however many a step has") {
    double const n = world_size();
    auto const peak = [&](std::size_t micro_batches) {
        auto run = dense();
        run.strategy.batch = 4 * micro_batches;
        run.strategy.micro_batches = micro_batches;
        OnMesh const mesh({.pp = world_size()}, sizes(run.model).kv_heads);
        Training<Invariant> training(mesh, run);
        auto& activations = observe::counters()[observe::Memory::activations];
        activations.peak = activations.bytes;
        training.trainer.step(1);
        return static_cast<double>(activations.peak);
    };
    // Of 8 micro-batches more: their tokens and targets, and gradients that are still on their way.
    double const tokens = 8 * T * 2 * 4, gradient = T * H * 4;
    CHECK(peak(16) - peak(8) <= tokens + (n + 1) * gradient);
}

TEST_CASE("ep shares out the experts; what it sends are the tokens that chose them") {
    double const n = world_size();
    auto run = dense();
    change(run, [&](auto& sizes) { sizes.experts = 4; });
    auto const counted = count<Invariant>({.ep = world_size()}, run);
    double const others = L * (attention_weights + E * H) + 2 * V * H;
    double const of_experts = L * E * ffn_weights;
    CHECK(counted.parameters == bucket(others) + bucket(of_experts, n) + bucket(all_vectors));
    CHECK(counted.optimizer == 2 * counted.parameters);
    // The rows of a rank are as many as chose its experts: all of them together are 2 for each token.
    double const same_for_all = flops(others - V * H) / n;
    CHECK(over_ranks(counted.flops) == n * same_for_all + flops(L * K * ffn_weights));
    double const f = 2 * (n - 1) / n, passes = M * L, rows = counted.rows_sent + counted.rows_received;
    sent(counted, {f * (4 * (others + all_vectors) + 40) // gradients that all ranks add to, numbers
                       + passes * f * 8 * (2 * E + 1),   // the sums of the auxiliary losses
                   0,
                   passes * (n - 1) * 8                   // how many rows will come
                       + 2 * rows * H * 4                 // rows and their results; the gradients of both
                       + counted.rows_sent * 2 * K * 4    // the choices and weights of a row
                       + counted.rows_received * K * 4}); // the gradients of the weights
    CHECK(over_ranks(rows) <= 2 * passes * T * K);
    CHECK((n == 1 || over_ranks(rows) > 0));
}

TEST_CASE("gradients are reduced while the backward pass goes on; the numbers do not depend on the buckets") {
    if (world_size() == 1) return;
    OnMesh const mesh({.dp = world_size()}, sizes(dense().model).kv_heads);
    auto const parameters = static_cast<std::size_t>(9 * L + 3);
    for (int const stage : {0, 1}) {
        auto run = dense();
        run.strategy.sharding.stage = stage;
        run.clip = 0; // the norm is summed bucket by bucket
        Training<Invariant> whole(mesh, run);
        run.strategy.bucket_elements = 1;
        Training<Invariant> cut(mesh, run);
        whole.trainer.step(1);
        whole.trainer.step(2);
        cut.trainer.step(1);
        observe::trace().enable(1 << 14);
        cut.trainer.step(2);
        observe::trace().disable();

        std::vector<std::vector<float>> weights;
        whole.trainer.model().for_each_parameter(
            [&](auto const& p) { weights.emplace_back(p.flat_value().data(), p.flat_value().data() + p.size()); });
        std::size_t at = 0;
        cut.trainer.model().for_each_parameter([&](auto const& p) {
            auto const& expected = weights[at++];
            CHECK(std::equal(expected.begin(), expected.end(), p.flat_value().data()));
        });
        CHECK(at == parameters);

        observe::Span backward, attention; // the last ones
        std::vector<std::int64_t> starts;
        for (auto const& span : observe::trace().spans()) {
            if (span.name == "backward") backward = span;
            if (span.name == "attention backward") attention = span;
            if (span.in_flight) starts.push_back(span.start_ns);
        }
        CHECK(starts.size() == parameters);
        for (auto const start : starts) CHECK((start > backward.start_ns && start < backward.end_ns));
        // Those of the head, the last norm and all layers but the attention of the first, with its norm, have begun
        // when that begins.
        auto const begun = std::count_if(starts.begin(), starts.end(), [&](auto t) { return t < attention.start_ns; });
        CHECK(begun == static_cast<std::ptrdiff_t>(9 * L - 5 + 2));
    }
}

TEST_CASE("a trainer refuses a batch and a model that the mesh does not divide, in one sentence each") {
    auto const refusal = [](MeshShape const& m, auto const& changed) -> std::string {
        auto settings = dense();
        changed(settings);
        OnMesh const mesh(m, sizes(settings.model).kv_heads);
        try {
            (void)Training<Sequential>(mesh, settings);
        } catch (std::invalid_argument const& error) {
            return error.what();
        }
        return "";
    };
    auto const nothing = [](train::RunSettings&) {};
    if (world_size() == 1) {
        CHECK(refusal({}, nothing) == "");
        CHECK(refusal({}, [](auto& s) { s.strategy.batch = 9; }) ==
              "batch = 9 is not divisible by dp x micro-batches = 1 x 2 = 2");
    }
    if (world_size() == 2) {
        CHECK(refusal({.dp = 2}, [](auto& s) { s.strategy.batch = 6; }) ==
              "batch = 6 is not divisible by dp x micro-batches = 2 x 2 = 4");
        CHECK(refusal({.tp = 2}, [](auto& s) { change(s, [](auto& x) { x.heads = x.kv_heads = 1; }); }) ==
              "heads = 1 is not divisible by tp = 2");
        CHECK(refusal({.tp = 2}, [](auto& s) { change(s, [](auto& x) { x.ffn = 63; }); }) ==
              "ffn = 63 is not divisible by tp = 2");
    }
}
