// ranks: 4 8
//
// An axis of the user's own, replica, beside dp: gradients, their norm, ZeRO and the ledger take it from the layout of
// the stream and the mesh. Training on replica x dp is training on one dp of as many ranks.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/observe/ledger.hpp>

#include <support/training.hpp>

#include <string>
#include <string_view>
#include <vector>

using namespace support;

namespace {

struct replica {
    static constexpr std::string_view name = "replica";
};
using OwnStream = Layout<f64, Dims<Dim<batch, dynamic, replica, dp>, Dim<seq, dynamic, cp>, Dim<hidden>>>;
using OwnMesh = Mesh<Axis<replica>, Axis<dp>, Axis<pp>, Axis<cp>, Axis<tp>>;

struct Run {
    std::vector<train::StepResult> steps;
    double replica_bytes, dp_bytes, other_bytes;
};

template <class Stream, class M>
Run run(M const& mesh, train::RunSettings const& settings) {
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    Context<Exec> const context(communicators);
    std::string const text = varied_text();
    io::TokenData const data(text, "the text", static_cast<std::int64_t>(settings.strategy.seq), settings.seed);
    auto schedule = pipeline::generate("1f1b", {.ranks = communicators.extent("pp"),
                                                .micro_batches = static_cast<int>(settings.strategy.micro_batches)});
    auto layers = train::decoder_layers<f64, Exec>();
    train::add_decoder_layers<OwnStream>(layers);
    train::Trainer<f64, Exec> trainer(context, Stream::value, settings, train::ProvenSchedules(std::move(schedule)),
                                      data, layers);
    observe::ledger().clear();
    Run result{};
    for (int step = 1; step <= 3; ++step) result.steps.push_back(trainer.step(step));
    auto const& ledger = observe::ledger();
    result.replica_bytes = ledger.bytes("replica");
    result.dp_bytes = ledger.bytes("dp");
    for (auto const axis : ledger.axes())
        if (axis != "replica" && axis != "dp") result.other_bytes += ledger.bytes(axis);
    return result;
}

} // namespace

TEST_CASE("replica x dp trains as one dp of as many ranks, with and without ZeRO, experts and tied embeddings") {
    int const rest = world_size() / 4;
    for (bool const has_experts : {false, true})
        for (int const zero_stage : {0, 1}) {
            CAPTURE(has_experts);
            CAPTURE(zero_stage);
            train::RunSettings const settings{
                .model = model::decoder({.layers = 2,
                                         .hidden = 16,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .ffn = 12,
                                         .vocab = 40,
                                         .experts = has_experts ? 4u : 0u,
                                         .ties_embeddings = has_experts}),
                .strategy = {.batch = 16, .micro_batches = 2, .seq = 12, .sharding = {.stage = zero_stage}},
                .learning_rate = 0.01,
                .warmup = 0};
            // Beside them: tensor parallelism for the dense model, pipeline stages for the experts.
            int const pp_ranks = has_experts ? rest : 1, tp_ranks = has_experts ? 1 : rest;
            auto const own = run<OwnStream>(model::with_experts(OwnMesh(2, 2, pp_ranks, 1, tp_ranks), {}), settings);
            auto const usual =
                run<InvariantStream<f64>>(model::with_experts(model::RankMesh(4, pp_ranks, 1, 1, tp_ranks)), settings);
            for (std::size_t i = 0; i < own.steps.size(); ++i) {
                auto const close = [](double value) { return doctest::Approx(value).epsilon(1e-12); };
                CHECK(own.steps[i].loss == close(usual.steps[i].loss));
                CHECK(own.steps[i].balance_loss == close(usual.steps[i].balance_loss));
                CHECK(own.steps[i].gradient_norm == close(usual.steps[i].gradient_norm));
            }
            CHECK(own.replica_bytes > 0);
            CHECK(own.dp_bytes > 0);
            CHECK(own.replica_bytes + own.dp_bytes == doctest::Approx(usual.dp_bytes).epsilon(1e-12));
            CHECK(own.other_bytes == doctest::Approx(usual.other_bytes).epsilon(1e-12));
        }
}
