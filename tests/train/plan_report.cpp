// ranks: 1
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/planner/hardware_presets.hpp>
#include <pentad/report/plan_account.hpp>
#include <pentad/report/plan_svg.hpp>
#include <pentad/report/plan_table.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/train/planned.hpp>

#include "../support/near.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
using planner::Candidate;
using test::is_near;

namespace {

std::size_t count_of(std::string const& text, std::string_view part) {
    std::size_t n = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
}
bool has(std::string const& text, std::string_view part) { return count_of(text, part) > 0; }

/// With GiB of each kind of memory.
Candidate candidate(std::int64_t dp, std::int64_t tp, double weights, double optimizer, double mfu) {
    Candidate plan;
    plan.strategy.dp = dp;
    plan.strategy.tp = tp;
    constexpr double gibibyte = 1 << 30;
    auto& e = plan.estimate;
    e.fullest = {.weights = weights * gibibyte, .optimizer = optimizer * gibibyte};
    e.memory_peak = e.fullest.total();
    e.mfu = mfu;
    e.step_s = 1 / mfu;
    e.bytes["dp"] = 3 * gibibyte;
    if (tp > 1) e.bytes["tp"] = 5 * gibibyte;
    return plan;
}

planner::Hardware machine() {
    planner::Hardware hardware;
    hardware.name = "a <machine>";
    hardware.memory_bytes = 80.0 * (1 << 30);
    return hardware;
}

} // namespace

TEST_CASE("the table has a line for each plan, columns for axes that send, and why near misses lost") {
    std::vector<Candidate> const best{candidate(4, 2, 30, 40, 0.4), candidate(2, 4, 20, 10, 0.3)};
    std::vector<Candidate> const misses{candidate(8, 1, 23.1, 60, 0.5), candidate(1, 8, 81, 2, 0.6)};
    auto const text = report::plan_table(best, misses, machine());
    CHECK(count_of(text, "\n") == 5);
    CHECK(has(text, "by dp     by tp\n"));
    CHECK(!has(text, "by cp"));
    CHECK(has(text, "1  dp=4,tp=2"));
    CHECK(has(text, "70.0 GiB  2.50 s  40.0 %  3.00 GiB  5.00 GiB\n"));
    CHECK(has(text, "-  dp=8"));
    CHECK(has(text, "0 B  exceeds memory by 3.10 GiB in optimizer state\n"));
    CHECK(has(text, "5.00 GiB  exceeds memory by 3.00 GiB in weights\n"));
    CHECK(report::plan_table({}, {misses.data(), 1}, machine()).find("\n-  dp=8") != std::string::npos);
}

TEST_CASE("the settings of a plan are flags, and an unusual order is one of them") {
    Strategy c;
    c.dp = 8, c.tp = 2;
    CHECK(report::settings_text(c) == "--micro-batch 1");
    c.order = {"tp", "pp", "ep", "cp", "dp"};
    c.sharding.stage = 1;
    c.sharding.ranks = 4;
    CHECK(report::mesh_text(c) == "tp=2,dp=8");
    CHECK(report::settings_text(c) == "--order tp,dp --micro-batch 1 --zero 1 --zero-ranks 4");
    c.tp = 1, c.pp = 2;
    c.order = {"tp", "dp", "pp", "ep", "cp"};
    c.schedule = "zb-v";
    c.chunks = 2;
    c.block.sequence_parallel = true;
    CHECK(report::settings_text(c) ==
          "--micro-batch 1 --zero 1 --zero-ranks 4 --schedule zb-v --chunks 2 --sequence-parallel on");
}

TEST_CASE("the command of a plan does not clip gradients that are released, or that stages use apart") {
    Strategy c;
    c.pp = 2, c.batch = 8, c.micro_batches = 4;
    auto const clips = [&] { return report::run_flags(c).find(" --clip 0") == std::string::npos; };
    CHECK(clips());
    c.schedule = "pipedream";
    CHECK(!clips());
    c.schedule = "1f1b";
    c.sharding.releases_gradients = true;
    CHECK(!clips());
}

TEST_CASE("the picture has every plan once, the front, and the limit where the memory ends") {
    planner::Findings findings;
    findings.best = {candidate(4, 2, 30, 40, 0.4), candidate(2, 4, 20, 10, 0.3)};
    findings.near_misses = {candidate(8, 1, 23.1, 60, 0.5)};
    findings.front = {findings.best[0], findings.best[1], candidate(1, 8, 10, 5, 0.1)};
    auto const text = report::plan_svg(findings, machine());
    CHECK(count_of(text, "<title>") == 6);
    CHECK(count_of(text, "<circle") == 6 + 3); // and the legend
    CHECK(has(text, "a &lt;machine>"));
    CHECK(has(text, "dp=8 --micro-batch 1: 83.1 GiB, 2.00 s, 50.0 %"));
    // 0 to 100 GiB, 0 to 60 %: 640 wide from 58, 320 high from 34.
    CHECK(has(text, "<path id=\"limit\" d=\"M570 34v320\""));
    CHECK(has(text, "<circle cx=\"506\" cy=\"140.7\" r=\"4\" fill=\"#2c6fbb\">"));
    CHECK(has(text, "<path id=\"front\" d=\"M154 300.7L250 194L506 140.7\""));
    CHECK(has(text, ">2</text>"));
    findings.best[1] = candidate(2, 4, 30, 39.9, 0.399); // its number would lie on the first one's
    CHECK(has(report::plan_svg(findings, machine()), ">1</text>"));
    CHECK(!has(report::plan_svg(findings, machine()), ">2</text>"));
    CHECK(has(report::plan_svg({}, machine()), "id=\"limit\"")); // nothing was found
}

TEST_CASE("an account adds up: shares to the step, kinds to the memory, operations to a whole") {
    auto const model = train::planned_preset("llama-3-8b");
    auto const hardware = planner::with_devices(planner::find_hardware("h100"), 16);
    Strategy c;
    c.dp = 1, c.pp = 4, c.tp = 4;
    c.seq = 4096;
    c.batch = c.micro_batches = 8;
    c.sharding.stage = 1;
    auto const estimate = planner::estimate(model, hardware, c);
    double sum = 0;
    for (auto const& [what, seconds] : report::time_shares(estimate.shares)) sum += seconds;
    CHECK(is_near(sum, estimate.step_s, 0.02));
    sum = 0;
    for (auto const& [what, held] : report::memory_kinds(estimate.fullest)) sum += held;
    CHECK(is_near(sum, estimate.memory_peak, 1e-9));

    auto const times = report::detail::operation_times(model, hardware, c);
    for (std::size_t i = 1; i < times.size(); ++i) CHECK(times[i - 1].seconds() >= times[i].seconds());
    auto const find = [&](std::string_view name, bool sends) {
        for (auto const& x : times)
            if (x.name == name && x.sends == sends) return x;
        FAIL("no operation " << name);
        return times[0];
    };
    CHECK(find("feed-forward: gemm", false).bound == planner::Bound::compute);
    CHECK(find("attention: all reduce", true).bound == planner::Bound::network);
    CHECK(find("feed-forward: swiglu", false).bound == planner::Bound::memory);
    c.recompute = {.kind = model::Recomputation::Kind::full}; // what blocks do forward they do again
    for (auto const& x : report::detail::operation_times(model, hardware, c))
        if (x.name.starts_with("feed-forward") || x.name.starts_with("attention")) {
            CAPTURE(x.name);
            CHECK(is_near(x.backward, find(x.name, x.sends).backward + x.forward, 1e-9));
        }
    auto const text = report::plan_account(model, hardware, c);
    for (auto const* const part :
         {"llama-3-8b on 16 x h100: pp=4,tp=4 --micro-batch 1", "a step, on average over the ranks of the pipeline",
          "waits for the slowest stage", "layers of the stages: 8,8,8,8; stage 3 of 0 to 3",
          "memory of the fullest rank", "sent in a step, by axis", "\n  feed-forward", "bound by",
          "guidelines (+ followed, - not)\n+ tp = 4 stays within a node"})
        CHECK(has(text, part));
}
