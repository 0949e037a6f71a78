// ranks: 1 2 4
//
// The biases that balance experts move as their loads say, are the same on every rank and in every sharding, and are
// read in accumulators whatever the weights are stored in.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/train/trainer.hpp>

#include <support/training.hpp>

#include <cmath>
#include <map>
#include <string>
#include <vector>

using namespace support;

namespace {

constexpr double rate = 0.001;
constexpr int steps = 6;

train::RunSettings settings() {
    auto run = small_with_experts();
    auto experts = *run.model.first<model::Experts>();
    experts.count = 8;
    experts.router = model::deepseek_v3_router;
    experts.router.groups = experts.router.top_groups = 1;
    experts.router.bias_rate = rate;
    for (auto& block : run.model.blocks)
        for (auto& branch : block.branches)
            if (branch.part.as<model::Experts>() != nullptr) branch.part = experts;
    run.steps = steps;
    return run;
}

/// What layers read of each bias, in steps of the rate; and that masters and what is exported are the same.
template <class T>
std::map<std::string, std::vector<double>> biases(train::Trainer<T, Exec>& trainer) {
    auto const on_host = [](auto const& view) {
        auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
        return std::vector<double>(host.data(), host.data() + host.size());
    };
    std::map<std::string, std::vector<double>> found, exported;
    trainer.model().for_each_parameter([&](auto const& parameter) {
        if (parameter.own_optimizer() && !trainer.settings().strategy.sharding.shards_parameters())
            found[parameter.name()] = on_host(parameter.exact_value());
    });
    trainer.store().for_each_exported([&](auto const& parameter) {
        if (parameter.own_optimizer()) exported[parameter.name()] = on_host(parameter.flat_gradient());
    });
    CHECK(exported.size() == 2);
    if (!trainer.settings().strategy.sharding.shards_parameters()) CHECK(found == exported);
    for (auto& [name, values] : exported)
        for (double& value : values) value /= rate;
    return exported;
}

template <class T>
std::map<std::string, std::vector<double>> trained(MeshShape const& m, int stage, Compact reduce = Compact::none) {
    auto run = settings();
    run.strategy.sharding.stage = stage;
    run.strategy.precision.reduce = reduce;
    OnMesh const mesh(m);
    Training<InvariantStream<T>> training(mesh, run);
    for (int step = 1; step <= steps; ++step) training.trainer.step(step);
    return biases<T>(training.trainer);
}

void check_whole_steps(std::map<std::string, std::vector<double>> const& biases) {
    double moved = 0;
    for (auto const& [name, values] : biases)
        for (double const value : values) {
            CHECK(std::abs(value - std::round(value)) < 1e-3); // which bf16 could not tell apart
            CHECK(std::abs(value) <= steps + 0.1);
            moved = std::max(moved, std::abs(value));
        }
    CHECK(moved >= 2);
}

template <class T>
void check() {
    auto const expected = trained<T>({.dp = world_size()}, 0);
    check_whole_steps(expected);
    check_whole_steps(trained<T>({.dp = world_size()}, 1, Compact::fp8)); // of gradients: loads are none
    for (int const stage : {1, 2, 3}) {
        INFO("ZeRO ", stage);
        CHECK(trained<T>({.dp = world_size()}, stage) == expected);
    }
}

} // namespace

TEST_CASE("biases of experts are whole steps, in f32 and in accumulators behind bf16, whatever ZeRO shards") {
    check<f32>();
    check<bf16>();
}

TEST_CASE(
    "a schedule that recomputes stages trains as one that does not: with jitter, Sinkhorn, and loads that count once") {
    int const n = world_size();
    using Stream = InvariantStream<f64>;
    for (model::Router const& router :
         {model::Router{.renormalises = false, .jitter = 0.05},
          model::Router{.choice = model::RouterChoice::sinkhorn, .balance_loss = model::BalanceLoss::none},
          model::Router{.score = model::RouterScore::sigmoid, .has_bias = true, .bias_rate = rate}}) {
        auto run = settings();
        auto experts = *run.model.first<model::Experts>();
        experts.router = router;
        for (auto& block : run.model.blocks)
            for (auto& branch : block.branches)
                if (branch.part.as<model::Experts>() != nullptr) branch.part = experts;
        auto const numbers = [&](bool recomputes) {
            auto const schedule = pipeline::generate(
                "1f1b",
                {.ranks = n, .micro_batches = static_cast<int>(run.strategy.micro_batches), .recompute = recomputes});
            MeshShape const shape{.pp = n};
            OnMesh const mesh(shape, mesh_of(shape, run, schedule));
            Training<Stream> training(mesh, run, schedule);
            auto found = support::steps(training, 1, 3);
            for (auto const& load : training.trainer.take_loads()) {
                CHECK(load.total() == static_cast<double>(3 * run.strategy.batch * run.strategy.seq * experts.top_k));
                found.insert(found.end(), load.choices.begin(), load.choices.end());
            }
            return found;
        };
        CHECK(worst(numbers(true), numbers(false)) <= 1e-12);
    }
}
