// ranks: 1 2 4
//
// An evaluator computes what a trainer of the same weights computes, bit for bit, and holds weights and activations
// alone.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/observe/counters.hpp>
#include <pentad/train/evaluator.hpp>
#include <pentad/train/sampler.hpp>

#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

using namespace support;

namespace {

using Bytes = std::array<std::int64_t, observe::memory_names.size()>;

Bytes held() {
    Bytes bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = observe::counters().memory[i].bytes;
    return bytes;
}
std::int64_t of(Bytes const& bytes, observe::Memory what) { return bytes[static_cast<std::size_t>(what)]; }
Bytes operator-(Bytes a, Bytes const& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
    return a;
}

template <class Stream>
void compare(MeshShape const& m, train::RunSettings const& settings, std::string const& name = "1f1b", int chunks = 0,
             int slices = 1) {
    using T = typename Stream::element;
    using A = accumulator_t<T>;
    auto const schedule = pipeline::generate(name, {.ranks = m.pp,
                                                    .micro_batches = static_cast<int>(settings.strategy.micro_batches),
                                                    .chunks = chunks,
                                                    .slices = slices});
    INFO(m.text(), " ", name, " zero ", settings.strategy.sharding.stage);
    OnMesh const mesh(m, mesh_of(m, settings, schedule));
    Training<Stream> training(mesh, settings, schedule);
    auto const empty = held();
    train::Evaluator<T, Exec> evaluator(mesh.context, Stream::value, settings, train::ProvenSchedules(schedule),
                                        training.data);
    auto const of_evaluator = held() - empty;

    // Drawn alike.
    CHECK(evaluator.validate(training.data, 2).loss == training.trainer.validate(training.data, 2).loss);
    (void)steps(training, 1, 2);
    CHECK(evaluator.validate(training.data, 2).loss != training.trainer.validate(training.data, 2).loss);
    std::map<std::string, std::vector<A>> weights;
    training.trainer.store().for_each_exported([&](auto const& parameter) {
        auto& own = weights[parameter.name()];
        own.resize(parameter.size());
        memory::copy_to_host(mesh.context.exec(), own.data(), parameter.flat_gradient().data(), own.size() * sizeof(A));
    });
    evaluator.store().for_each_imported([&](auto const& parameter) {
        memory::copy_from_host(mesh.context.exec(), parameter.flat_gradient().data(),
                               weights.at(parameter.name()).data(), parameter.size() * sizeof(A));
    });
    auto& counters = observe::counters();
    auto const peaks_of = [&](auto&& f) {
        auto const before = held();
        for (auto& count : counters.memory) count.peak = count.bytes;
        f();
        Bytes peak{};
        for (std::size_t i = 0; i < peak.size(); ++i) peak[i] = counters.memory[i].peak;
        return peak - before;
    };
    train::StepResult by_evaluator, by_trainer;
    auto const peak = peaks_of([&] { by_evaluator = evaluator.validate(training.data, 2); });
    auto const peak_of_trainer = peaks_of([&] { by_trainer = training.trainer.validate(training.data, 2); });
    CHECK(by_evaluator.loss == by_trainer.loss);
    CHECK(evaluator.evaluate(3).loss == training.trainer.evaluate(3).loss);
    CHECK(by_evaluator.balance_loss == by_trainer.balance_loss);
    CHECK(by_evaluator.targets == by_trainer.targets);

    // Nothing to learn with; in the passes no more than a trainer's evaluation.
    CHECK(of(of_evaluator, observe::Memory::gradients) == 0);
    CHECK(of(of_evaluator, observe::Memory::optimizer) == 0);
    CHECK(of(peak, observe::Memory::gradients) == 0);
    CHECK(of(peak, observe::Memory::optimizer) == 0);
    CHECK(of(peak, observe::Memory::activations) == of(peak_of_trainer, observe::Memory::activations));
    if (!settings.strategy.sharding.shards_parameters()) {
        std::size_t elements = 0, parameters = 0;
        evaluator.model().for_each_parameter([&](auto const& parameter) {
            elements += parameter.size();
            ++parameters;
        });
        auto const bytes = of(of_evaluator, observe::Memory::parameters);
        auto const exact = static_cast<std::int64_t>(elements * sizeof(T));
        CHECK(bytes >= exact);
        CHECK(bytes <= exact + static_cast<std::int64_t>(256 * parameters)); // blocks of memory are rounded up
        CHECK(of(peak, observe::Memory::parameters) == 0);
    }
    CHECK(train::sample(evaluator, "abc", 5, 7) == train::sample(training.trainer, "abc", 5, 7));
}

} // namespace

TEST_CASE("an evaluator has the losses and texts of a trainer, and holds weights and activations alone") {
    int const n = world_size();
    auto dense = small_dense();
    change(dense, [](auto& sizes) { sizes.vocab = 256; });
    compare<InvariantStream<f32>>({.dp = n}, dense);
    compare<SequenceStream<f64>>({.cp = n == 1 ? 1 : 2, .tp = n == 4 ? 2 : 1}, dense);
    compare<InvariantStream<bf16>>({.dp = n}, dense);
    auto sharded = dense;
    sharded.strategy.sharding.stage = 3;
    compare<InvariantStream<f32>>({.dp = n}, sharded);
    auto experts = small_with_experts();
    change(experts, [](auto& sizes) { sizes.vocab = 256; });
    compare<InvariantStream<f64>>({.dp = n == 4 ? 2 : 1, .ep = n == 1 ? 1 : 2}, experts);
    if (n == 1) return;
    compare<InvariantStream<f64>>({.dp = n / 2, .pp = 2}, experts);
    compare<InvariantStream<f32>>({.dp = n / 2, .pp = 2}, dense, "dualpipe");
    compare<InvariantStream<f32>>({.dp = n / 2, .pp = 2}, dense, "interleaved-1f1b", 2);
    compare<InvariantStream<f64>>({.dp = n / 2, .pp = 2}, dense, "terapipe", 0, 2);
}
