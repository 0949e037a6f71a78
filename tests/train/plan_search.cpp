// ranks: 1
//
// The search finds what timing every configuration finds.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/planner/hardware_presets.hpp>
#include <pentad/planner/search.hpp>
#include <pentad/train/planned.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::planner;
using pentad::planner::detail::comparable;

namespace {

/// All configurations that fit, timed one by one.
std::vector<Candidate> by_force(Request const& request) {
    std::vector<Candidate> found;
    Pipelines pipelines;
    for_each_configuration(
        request, pipelines, [](double, double) { return true; },
        [&](Strategy const& c, Bounds const& bounds) {
            Candidate const candidate{c, estimate(request.model, request.hardware, c, pipelines)};
            CHECK(bounds.seconds() <= candidate.estimate.step_s);
            CHECK(bounds.bytes() <= candidate.estimate.memory_peak);
            if (candidate.estimate.fits && !is_tried_twice(request, candidate)) found.push_back(candidate);
        });
    std::sort(found.begin(), found.end(),
              [](auto const& a, auto const& b) { return planner::detail::rank_of(a) < planner::detail::rank_of(b); });
    return found;
}

void compare(Request const& request) {
    auto const all = by_force(request);
    auto const found = search(request, 20);
    std::vector<Candidate> best; // of each plan and its variants the fastest
    for (auto one = all.begin(); one != all.end() && best.size() < 20; ++one)
        if (std::none_of(best.begin(), best.end(), [&](Candidate const& other) {
                return planner::detail::are_variants(one->strategy, other.strategy);
            }))
            best.push_back(*one);
    REQUIRE(found.best.size() == best.size());
    for (std::size_t i = 0; i < best.size(); ++i) {
        CHECK(comparable(found.best[i].estimate.step_s) == comparable(best[i].estimate.step_s));
        CHECK(comparable(found.best[i].estimate.memory_peak) == comparable(best[i].estimate.memory_peak));
    }
    // The front: none of it takes as much memory as one that is as fast, and every configuration finds one there.
    for (std::size_t i = 1; i < found.front.size(); ++i) {
        CHECK(comparable(found.front[i].estimate.step_s) >= comparable(found.front[i - 1].estimate.step_s));
        CHECK(found.front[i].estimate.memory_peak < found.front[i - 1].estimate.memory_peak);
    }
    for (auto const& [strategy, estimate] : all) {
        bool const is_slow = estimate.step_s > slowest_of_front * best.front().estimate.step_s;
        if (is_slow || strategy.recompute.kind == model::Recomputation::Kind::automatic) continue;
        CHECK(std::any_of(found.front.begin(), found.front.end(), [&](Candidate const& other) {
            return comparable(other.estimate.step_s) <= comparable(estimate.step_s) &&
                   comparable(memory_resolution * other.estimate.memory_peak) <= comparable(estimate.memory_peak);
        }));
    }
    CHECK(comparable(found.front.front().estimate.step_s) == comparable(best.front().estimate.step_s));
    CHECK(found.timed < static_cast<std::int64_t>(all.size()));
}

/// DeepSeek-V3 in small: latent attention, a dense layer, shared experts.
Model small_deepseek() {
    return train::planned_model(
        model::deepseek(
            9, 7168, 129280,
            {.heads = 128, .head_dim = 128, .rope_dim = 64, .value_dim = 128, .query_rank = 1536, .kv_rank = 512}, 1,
            18432, {.count = 16, .top_k = 8, .width = 2048, .shared = 1, .router = model::deepseek_v3_router}),
        "small");
}

/// Work is added up as a dry run of all of it has it.
void check_sums(Model const& model, Strategy const& c, std::int64_t nodes) {
    Account const sums(model, c, 1, nodes, false, PartsFrom::sums), run(model, c, 1, nodes);
    Rates const rates(find_hardware("h100"), c);
    auto const is_close = [](double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(a, b); };
    for (std::size_t i = 0; i < run.parts().size(); ++i) {
        CHECK(is_close(sums.parts()[i].memory.saved, run.parts()[i].memory.saved));
        auto const a = planner::detail::part_time(sums.parts()[i], rates, true),
                   b = planner::detail::part_time(run.parts()[i], rates, true);
        for (auto const pass : {&planner::detail::PassTimes::forward, &planner::detail::PassTimes::backward_data,
                                &planner::detail::PassTimes::backward_weight}) {
            CHECK(is_close((a.*pass).device, (b.*pass).device));
            CHECK(is_close((a.*pass).exchanges, (b.*pass).exchanges));
            CHECK(is_close((a.*pass).launches, (b.*pass).launches));
        }
    }
}

} // namespace

/// Without the search over the order of a sequence and the output of attention.
auto const of_one_stream = [] {
    auto open = searched_fields;
    open.remove(&model::BlockStrategy::zigzag);
    open.remove(&model::BlockStrategy::attention_output);
    return open;
}();

TEST_CASE("dense, on one node") {
    compare({.model = train::planned_preset("llama-2-7b"),
             .hardware = find_hardware("ascend-910b"),
             .given = {.batch = 64, .seq = 4096, .block = {.zigzag = true}},
             .open = of_one_stream,
             .most_micro_batch = 2});
}

TEST_CASE("with every order of a sequence and output of attention, over two nodes") {
    Request request{.model = train::planned_preset("llama-3-8b"),
                    .hardware = with_devices(find_hardware("h100"), 16),
                    .given = {.batch = 16, .seq = 4096},
                    .schedules = {"1f1b"},
                    .most_micro_batch = 1};
    request.keep(&Strategy::pp, 1);
    compare(request);
    // As if each had been asked for.
    auto const best = search(request, 1).best.front().estimate.step_s;
    double least = 1e300;
    for (bool const zigzag : {true, false})
        for (auto const output : {model::AttentionOutput::reduce_scatter, model::AttentionOutput::all_to_all}) {
            auto asked = request;
            asked.keep(&model::BlockStrategy::zigzag, zigzag);
            asked.keep(&model::BlockStrategy::attention_output, output);
            auto const found = search(asked, 1);
            REQUIRE(found.best.size() == 1);
            least = std::min(least, found.best.front().estimate.step_s);
        }
    CHECK(comparable(best) == comparable(least));
}

TEST_CASE("DeepSeek-V3 in small, over four nodes and little memory") {
    auto machine = with_devices(find_hardware("h800"), 32);
    machine.memory_bytes = 40e9;
    compare({.model = small_deepseek(),
             .hardware = machine,
             .given = {.batch = 64, .seq = 4096, .block = {.zigzag = true}},
             .open = of_one_stream,
             .schedules = {"1f1b", "zb-h1"},
             .most_micro_batch = 1});
}

TEST_CASE("how attention goes over cp adds as much on every mesh of experts") {
    auto const model = small_deepseek();
    int checked = 0;
    for (auto const& split : {model::ContextSplit{ContextStrategy::all_gather}, {ContextStrategy::heads_ring, 4}})
        for (bool const sequence_parallel : {false, true})
            for (auto const output : {model::AttentionOutput::reduce_scatter, model::AttentionOutput::all_to_all})
                for (bool const zigzag : {false, true})
                    for (auto const experts :
                         {model::ExpertMesh{8, 2}, model::ExpertMesh{16, 1}, model::ExpertMesh{4, 1}})
                        for (std::int64_t const nodes : {1, 2}) {
                            Strategy const c{.dp = 8,
                                             .cp = 4,
                                             .tp = 2,
                                             .order = {"pp", "dp", "ep", "cp", "tp"},
                                             .experts = experts,
                                             .seq = 1000,
                                             .block = {.sequence_parallel = sequence_parallel,
                                                       .context = split.strategy,
                                                       .inner_cp = split.inner,
                                                       .zigzag = zigzag,
                                                       .attention_output = output}};
                            REQUIRE(model.has_sums(c));
                            REQUIRE(model.why_not(c).empty());
                            check_sums(model, c, nodes);
                            ++checked;
                        }
    CHECK(checked == 96);
}

TEST_CASE("without the experts of a mesh a step is bounded from below, and not by nothing") {
    for (bool const pairs : {false, true}) {
        Request const request{.model = small_deepseek(),
                              .hardware = with_devices(find_hardware("h800"), 16),
                              .given = {.batch = 32, .seq = 4096, .pairs = pairs},
                              .most_micro_batch = 2};
        planner::detail::LeastTimes times(request.model, request.hardware);
        int meshes = 0;
        double closest = 0;
        planner::detail::for_each_mesh(request, [&](Strategy const& mesh) {
            for (auto const& way : planner::detail::ways_on(request, mesh)) {
                double const bound = times.step_beside_experts(way, pairs), known = times.step(way, pairs);
                CHECK(bound <= known);
                closest = std::max(closest, bound / known);
                ++meshes;
            }
        });
        CHECK(meshes > 500);
        CHECK(closest > 0.7);
    }
}

TEST_CASE("a search does not depend on how sums are rounded") {
    for (auto const& model : {train::planned_preset("llama-3-8b"), small_deepseek()}) {
        Request request{.model = model,
                        .hardware = with_devices(find_hardware("h100"), 16),
                        .given = {.batch = 64, .seq = 4096},
                        .schedules = {"1f1b", "interleaved-1f1b"},
                        .most_micro_batch = 2};
        auto const known = search(request, 10);
        CHECK(known.considered > 300);
        double const bit = std::numeric_limits<double>::epsilon();
        for (auto const& [work, sent] : {std::pair(1 + bit, 1.0), {1 - bit, 1 + bit}, {1.0, 1 - bit}}) {
            auto other = request;
            other.hardware.peak_bf16 *= work;
            for (auto& link : other.hardware.links) link.bandwidth *= sent;
            auto const found = search(other, 10);
            CHECK(found.considered == known.considered);
            CHECK(found.timed == known.timed);
            auto const are_same = [](Candidate const& a, Candidate const& b) { return a.strategy == b.strategy; };
            for (auto const of : {&Findings::best, &Findings::near_misses, &Findings::front})
                CHECK(std::equal((found.*of).begin(), (found.*of).end(), (known.*of).begin(), (known.*of).end(),
                                 are_same));
        }
    }
}

TEST_CASE("what is given is kept") {
    Request request{.model = train::planned_preset("llama-3-8b"),
                    .hardware = with_devices(find_hardware("h100"), 16),
                    .given = {.batch = 64, .seq = 8192, .block = {.zigzag = true}},
                    .open = of_one_stream};
    request.keep(&Strategy::tp, 4);
    request.keep(&ZeroSharding::stage, 2);
    request.keep(&Strategy::recompute, model::Recomputation{.kind = model::Recomputation::Kind::full});
    request.least_micro_batch = request.most_micro_batch = 2;
    auto const found = search(request, 3);
    REQUIRE(found.best.size() == 3);
    for (auto const& candidate : found.best) {
        CHECK(candidate.strategy.tp == 4);
        CHECK(candidate.strategy.sharding.stage == 2);
        CHECK(candidate.strategy.recompute.kind == model::Recomputation::Kind::full);
        CHECK(candidate.strategy.micro_batch() == 2);
        CHECK(candidate.strategy.devices() == 16);
    }
}

TEST_CASE("of the ways of attention over cp the fastest is found, as if each had been asked for") {
    Request request{.model = train::planned_preset("llama-3-8b"),
                    .hardware = with_devices(find_hardware("h100"), 32),
                    .given = {.batch = 8, .seq = 65536, .block = {.zigzag = true}},
                    .open = of_one_stream};
    request.keep(&Strategy::cp, 16);
    request.wants_front = false;
    using Kind = model::ContextChoice::Kind;
    std::vector<double> seconds;
    for (auto const& choice : std::vector<model::ContextChoice>{{Kind::ring},
                                                                {Kind::all_gather},
                                                                {Kind::ulysses},
                                                                {Kind::two_level, 8},
                                                                {Kind::two_level, 2, 8},
                                                                {Kind::double_ring, 0, 8}}) {
        request.context = choice;
        auto const found = search(request, 1);
        REQUIRE(found.best.size() == 1);
        auto const& c = found.best.front().strategy;
        CHECK(model::ContextSplit{c.block.context, c.block.inner_cp} == choice.on(16));
        seconds.push_back(found.best.front().estimate.step_s);
    }
    CHECK(*std::max_element(seconds.begin(), seconds.end()) > *std::min_element(seconds.begin(), seconds.end()));
    request.context = {.kind = Kind::automatic};
    CHECK(search(request, 1).best.front().estimate.step_s <= *std::min_element(seconds.begin(), seconds.end()));
    // What nodes decide.
    request.context = {.kind = Kind::double_ring};
    for (auto const& candidate : search(request, 5).best) CHECK(candidate.strategy.block.inner_cp > 1);
    // Of 32 heads a rank of tp has 8.
    request.context = {.kind = Kind::ulysses};
    request.keep(&Strategy::tp, 2);
    CHECK_FALSE(search(request, 1).best.empty());
    request.keep(&Strategy::cp, 8), request.keep(&Strategy::tp, 4);
    CHECK_FALSE(search(request, 1).best.empty());
    request.keep(&Strategy::cp, 16);
    request.hardware = with_devices(request.hardware, 64);
    CHECK(search(request, 1).best.empty());
    CHECK(search(request, 1).near_misses.empty());
}

TEST_CASE("gathered parameters that are kept, and gradients that are accumulated, are weighed") {
    Request request{.model = train::planned_preset("llama-3-8b"),
                    .hardware = with_devices(find_hardware("h100"), 16),
                    .given = {.batch = 256, .seq = 4096, .block = {.zigzag = true}},
                    .open = of_one_stream};
    for (auto const axis : {&Strategy::tp, &Strategy::pp, &Strategy::cp}) request.keep(axis, 1);
    request.most_micro_batch = 1;
    request.keep(&ZeroSharding::stage, 3);
    auto const fastest = [](Request const& asked) {
        auto const found = search(asked, 1);
        REQUIRE(found.best.size() == 1);
        return found.best.front();
    };
    auto const free = fastest(request);
    CHECK((free.strategy.sharding.keeps_parameters || free.strategy.sharding.accumulates_gradients));
    auto asked = request;
    asked.keep(&ZeroSharding::keeps_parameters, false);
    asked.keep(&ZeroSharding::accumulates_gradients, false);
    auto const without = fastest(asked);
    CHECK_FALSE(without.strategy.sharding.keeps_parameters);
    CHECK_FALSE(without.strategy.sharding.accumulates_gradients);
    CHECK(without.estimate.step_s > free.estimate.step_s);
    CHECK(without.estimate.bytes.total() > free.estimate.bytes.total());
    asked.keep(&ZeroSharding::keeps_parameters, true);
    CHECK(fastest(asked).strategy.sharding.keeps_parameters);
    asked.keep(&ZeroSharding::ranks, 4);
    CHECK(fastest(asked).strategy.sharding.ranks == 4);
    asked.keep(&ZeroSharding::ranks, 0);
    CHECK(fastest(asked).strategy.sharding.ranks == 0);
    asked.keep(&ZeroSharding::ranks, 3); // does not divide dp
    CHECK(search(asked, 1).best.empty());
    request.keep(&Strategy::pp, 2);
    request.schedules = {"1f1b", "dualpipe"};
    request.given.sharding.releases_gradients = true;
    for (auto const& candidate : search(request, 10).best) {
        CHECK(candidate.strategy.sharding.releases_gradients);
        CHECK(candidate.strategy.schedule != "dualpipe");
    }
}

TEST_CASE("where memory is short, automatic recomputation is found, and takes less time than what is tried beside it") {
    Request request{.model = train::planned_preset("llama-2-7b"),
                    .hardware = find_hardware("ascend-910b"),
                    .given = {.batch = 64, .seq = 4096, .block = {.zigzag = true}},
                    .open = of_one_stream};
    request.hardware.memory_bytes = 26e9;
    using Kind = model::Recomputation::Kind;
    auto const found = search(request, 1);
    REQUIRE(found.best.size() == 1);
    auto const& best = found.best.front();
    CHECK(best.strategy.recompute.kind == Kind::automatic);
    CHECK(best.estimate.recompute.kind == Kind::planned);
    CHECK(best.estimate.memory_peak <= request.hardware.memory_bytes);
    for (auto const kind : {Kind::none, Kind::selective, Kind::full}) {
        auto c = best.strategy;
        c.recompute.kind = kind;
        auto const other = estimate(request.model, request.hardware, c);
        CHECK((!other.fits || other.step_s > best.estimate.step_s));
    }
    // Planned by itself it is the same.
    auto c = best.strategy;
    c.recompute = best.estimate.recompute;
    CHECK(estimate(request.model, request.hardware, c).step_s == best.estimate.step_s);
}

TEST_CASE("near misses are faster than the best, and lack memory") {
    Request const request{.model = train::planned_preset("llama-2-7b"),
                          .hardware = find_hardware("ascend-910b"),
                          .given = {.batch = 1024, .seq = 4096, .block = {.zigzag = true}},
                          .open = of_one_stream};
    auto const found = search(request, 5);
    REQUIRE_FALSE(found.near_misses.empty());
    for (auto const& miss : found.near_misses) {
        CHECK(miss.estimate.step_s < found.best.front().estimate.step_s);
        CHECK(miss.estimate.memory_peak > request.hardware.memory_bytes);
    }
    auto impossible = request;
    impossible.hardware.memory_bytes = 1e9;
    auto const none = search(impossible, 5);
    CHECK(none.best.empty());
    CHECK_FALSE(none.near_misses.empty());
}
