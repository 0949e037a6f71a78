// ranks: 1
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/planner/hardware_presets.hpp>
#include <pentad/report/plan_remarks.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/train/planned.hpp>

#include <string>
#include <string_view>
#include <vector>

using namespace pentad;

namespace {

Strategy plan(std::int64_t dp, std::int64_t pp, std::int64_t ep, std::int64_t cp, std::int64_t tp) {
    Strategy c;
    c.dp = dp, c.pp = pp, c.ep = ep, c.cp = cp, c.tp = tp;
    c.seq = 4096;
    c.batch = 256;
    c.use_micro_batch(1);
    c.block.zigzag = true;
    c.sharding.stage = 1;
    c.block.sequence_parallel = tp > 1;
    return c;
}

std::vector<report::Remark> remarks_on(std::string_view model, Strategy const& c) {
    return report::plan_remarks(train::planned_preset(model),
                                planner::with_devices(planner::find_hardware("h100"), c.devices()), c);
}

bool is_there(std::vector<report::Remark> const& list, std::string_view beginning) {
    for (auto const& x : list)
        if (x.text.starts_with(beginning)) return true;
    return false;
}
/// The remark that begins so.
report::Remark find(std::vector<report::Remark> const& list, std::string_view beginning) {
    CAPTURE(beginning);
    REQUIRE(is_there(list, beginning));
    for (auto const& x : list)
        if (x.text.starts_with(beginning)) return x;
    return {};
}

bool has(report::Remark const& remark, std::string_view part) { return remark.text.find(part) != std::string::npos; }

} // namespace

TEST_CASE("tp within a node is praised with its speed, and across nodes set against a node's") {
    auto const within = find(remarks_on("llama-3-8b", plan(4, 1, 1, 1, 8)), "tp = 8 stays within a node");
    CHECK(within.follows);
    CHECK(has(within, "at 327 GiB/s")); // 0.78 x 450 GB/s
    auto const across = find(remarks_on("llama-3-8b", plan(2, 1, 1, 1, 16)), "tp = 16 spans 2 nodes");
    CHECK(!across.follows);
    CHECK(has(across, "at 36.3 GiB/s")); // 0.78 x 50 GB/s
    CHECK(has(across, "dp=4,tp=8 takes "));
}

TEST_CASE("cp is for activations that do not fit") {
    auto few = plan(4, 1, 1, 2, 4);
    auto const needless = find(remarks_on("llama-3-8b", few), "cp = 2 leaves");
    CHECK(!needless.follows);
    CHECK(has(needless, "dp=8,tp=4 has"));
    CHECK(has(needless, "which fits"));
    auto many = plan(1, 1, 1, 8, 8);
    many.seq = 1 << 19;
    many.batch = 8;
    many.use_micro_batch(1);
    auto const list = remarks_on("llama-3-8b", many);
    auto const needed = find(list, "cp = 8 leaves");
    CHECK(needed.follows);
    CHECK(has(needed, "and does not fit"));
    CHECK(!find(list, "cp = 8 spans 8 nodes: keys and values take").follows);
    CHECK(find(remarks_on("llama-3-8b", few), "cp = 2 stays within a node").follows);
    few.cp = 2, few.tp = 8, few.dp = 2; // whether tp is around it or inside
    CHECK(has(find(remarks_on("llama-3-8b", few), "cp = 2 spans"), "cp = 2 spans 2 nodes"));
    few.order = {"dp", "pp", "ep", "tp", "cp"};
    CHECK(has(find(remarks_on("llama-3-8b", few), "cp = 2 stays"), "at 327 GiB/s"));
}

TEST_CASE("padding is said where there is any, with what it costs") {
    auto c = plan(4, 1, 1, 4, 1);
    CHECK(!is_there(remarks_on("llama-3-8b", c), "the mesh does not divide"));
    c.seq = 4090; // in 8 pieces for zigzag order
    auto const little = find(remarks_on("llama-3-8b", c), "the mesh does not divide sequences of 4090 tokens");
    CHECK(little.follows);
    CHECK(has(little, "padded to 4096"));
    c.seq = 9;
    CHECK(!find(remarks_on("llama-3-8b", c), "the mesh does not divide sequences of 9 tokens").follows);
}

TEST_CASE("the nodes of a group are those of its ranks, whatever lies between them") {
    auto c = plan(8, 16, 4, 4, 8);
    c.order = {"dp", "pp", "tp", "cp", "ep"}; // ranks 0, 16, ..., 112
    c.batch = 1024;
    c.use_micro_batch(1);
    auto const list = remarks_on("mixtral-8x22b", c);
    auto const tensor = find(list, "tp = 8 spans 8 nodes");
    CHECK(has(tensor, "; dp=8,pp=16,cp=4,ep=4,tp=8 takes ")); // the same, as neighbours
    CHECK(!find(list, "cp = 4 spans 2 nodes").follows);
    CHECK(find(list, "ep = 4 divides the experts, 2 of 8 on each rank, and stays within a node").follows);
    // Groups of six: the second one begins on one node and ends on the next.
    c = plan(4, 1, 1, 1, 6);
    c.block.sequence_parallel = false;
    c.seq = 2048; // as many as it has positions
    auto const uneven = find(remarks_on("gpt-3-175b", c), "tp = 6 spans 2 nodes");
    CHECK(has(uneven, "at 36.3 GiB/s"));
    CHECK(!has(uneven, ";"));
}

TEST_CASE("ZeRO-3 under a pipeline gathers for each micro-batch, and says how much") {
    auto c = plan(4, 4, 1, 1, 4);
    c.sharding.stage = 3;
    auto const list = remarks_on("llama-3-8b", c);
    auto const remark = find(list, "ZeRO-3 gathers the parameters twice and reduces the gradients for each of 64");
    CHECK(!remark.follows);
    CHECK(has(remark, "micro-batches of the pipeline: "));
    CHECK(has(remark, " with ZeRO-1, which takes "));
    CHECK(has(remark, ", and fits"));
    c.sharding.stage = 2;
    CHECK(!find(remarks_on("llama-3-8b", c), "ZeRO-2 reduces the gradients for each of 64").follows);
    c.sharding.stage = 0;
    CHECK(!find(remarks_on("llama-3-8b", c), "every rank holds the whole optimizer state").follows);
    c.sharding.stage = 1;
    for (auto const& x : remarks_on("llama-3-8b", c)) CHECK(x.text.find("ZeRO") == std::string::npos);
}

TEST_CASE("experts are divided, and ep across nodes costs what it says") {
    auto const within = find(remarks_on("mixtral-8x7b", plan(2, 2, 8, 1, 1)), "ep = 8 divides the experts, 1 of 8");
    CHECK(within.follows);
    CHECK(has(within, "stays within a node"));
    auto const across = find(remarks_on("mixtral-8x7b", plan(2, 1, 8, 1, 2)), "ep = 8 divides the experts, 1 of 8");
    CHECK(!across.follows);
    // 2 different ones of 8 experts lie on both nodes in 16 of 28 cases, on one in 12; half of them are elsewhere.
    CHECK(has(across, "spans 2 nodes: the rows, 0.79 for each token between nodes, take "));
    auto const large = find(remarks_on("deepseek-v3", plan(4, 1, 64, 1, 1)), "ep = 64 divides the experts, 4 of 256");
    CHECK(has(large, "spans 8 nodes: the rows, 3.18 for each token between nodes"));
}

TEST_CASE("micro-batches and layers are weighed against the stages") {
    auto c = plan(4, 8, 1, 1, 1);
    CHECK(find(remarks_on("llama-3-8b", c), "64 micro-batches on 8 ranks of the pipeline").follows);
    c.use_micro_batch(4);
    auto const few = find(remarks_on("llama-3-8b", c), "16 micro-batches on 8 ranks of the pipeline");
    CHECK(!few.follows);
    CHECK(has(few, "from 32 on it is small; a micro-batch of 1 makes 64"));
    CHECK(!is_there(remarks_on("llama-3-8b", c), "32 layers"));
    auto const uneven = find(remarks_on("llama-3-8b", plan(1, 5, 1, 1, 8)), "32 layers do not divide by pp = 5");
    CHECK(has(uneven, "some ranks have 7 and others wait for them with 6"));
}

TEST_CASE("what saves memory for nothing is asked for, and what costs time is questioned") {
    auto c = plan(4, 1, 1, 1, 8);
    c.block.sequence_parallel = false;
    CHECK(!find(remarks_on("llama-3-8b", c), "without sequence parallelism").follows);
    c.recompute = {.kind = model::Recomputation::Kind::full};
    auto const needless = find(remarks_on("llama-3-8b", c), "full recomputation leaves");
    CHECK(!needless.follows);
    CHECK(has(needless, "selective recomputation has"));
    CHECK(has(needless, "and fits"));
    auto tight = plan(8, 1, 1, 1, 1);
    tight.use_micro_batch(8);
    tight.recompute = {.kind = model::Recomputation::Kind::full};
    auto const needed = find(remarks_on("llama-3-8b", tight), "full recomputation leaves");
    CHECK(needed.follows);
    CHECK(has(needed, "but does not fit"));
    auto small = plan(8, 1, 1, 1, 8);
    small.seq = 128;
    CHECK(!find(remarks_on("llama-1b", small), "the device waits for the host").follows);
    CHECK(!is_there(remarks_on("llama-3-70b", plan(8, 1, 1, 1, 8)), "the device waits"));
}

TEST_CASE("a mesh is written as it is given") {
    CHECK(report::mesh_text(plan(2, 1, 1, 1, 8)) == "dp=2,tp=8");
    CHECK(report::mesh_text(plan(1, 1, 1, 1, 1)) == "dp=1");
}
