// ranks: 2 4
//
// Two models on different meshes of the same ranks, trained in turn in one process.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/observe/ledger.hpp>
#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <optional>
#include <vector>

using namespace support;

namespace {

/// A run on a mesh, with a ledger of its own.
template <class Stream>
struct Run {
    observe::Ledger ledger;
    OnMesh mesh;
    Training<Stream> training;
    std::vector<double> numbers; ///< of the steps so far

    Run(MeshShape const& m, train::RunSettings const& settings, pipeline::Schedule const& schedule)
        : mesh(m, mesh_of(m, settings, schedule), MPI_COMM_WORLD, ledger), training(mesh, settings, schedule) {}
    Run(MeshShape const& m, train::RunSettings const& settings)
        : Run(m, settings,
              pipeline::generate("1f1b",
                                 {.ranks = m.pp, .micro_batches = static_cast<int>(settings.strategy.micro_batches)})) {
    }

    void step(std::int64_t number) {
        auto const found = steps(training, number, 1);
        numbers.insert(numbers.end(), found.begin(), found.end());
    }
    /// Bytes along each axis.
    [[nodiscard]] std::vector<double> bytes() const {
        std::vector<double> sent;
        for (auto const axis : view_axes) sent.push_back(ledger.bytes(axis));
        return sent;
    }
};

} // namespace

TEST_CASE("two models on different meshes train in turn in one process as each alone, and each has a ledger") {
    constexpr std::int64_t count = 3;
    int const n = world_size();
    MeshShape const dense{.dp = n / 2, .tp = 2}, sparse{.pp = 2, .ep = n / 2};
    auto settings_a = small_dense(), settings_b = small_with_experts();
    settings_a.steps = settings_b.steps = count;
    settings_a.strategy = on_mesh(dense, settings_a.strategy);
    settings_b.strategy = on_mesh(sparse, settings_b.strategy);
    settings_a.strategy.sharding.stage = 2;
    using A = SequenceStream<f64>;
    using B = InvariantStream<f32>;
    std::optional<Run<A>> a;
    std::optional<Run<B>> b;
    auto const alone = [&](auto& run, MeshShape const& m, train::RunSettings const& settings) {
        run.emplace(m, settings);
        for (std::int64_t i = 1; i <= count; ++i) run->step(i);
        auto const found = std::pair(run->numbers, run->bytes());
        run.reset();
        return found;
    };
    auto const before = observe::ledger().axes().size();
    auto const a_alone = alone(a, dense, settings_a);
    auto const b_alone = alone(b, sparse, settings_b);
    CHECK(a_alone.second != b_alone.second);

    a.emplace(dense, settings_a);
    b.emplace(sparse, settings_b);
    for (std::int64_t i = 1; i <= count; ++i) {
        a->step(i);
        b->step(i);
    }
    CHECK(a->numbers == a_alone.first);
    CHECK(b->numbers == b_alone.first);
    CHECK(a->bytes() == a_alone.second);
    CHECK(b->bytes() == b_alone.second);
    CHECK(observe::ledger().axes().size() == before); // that of the process has nothing of either
}
