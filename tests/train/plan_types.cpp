// ranks: 1
//
// The types of a plan compile: a pasted plan is part of this program, and is what the report writes now.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/ring.hpp>
#include <pentad/io/file.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/report/plan_types.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/run_settings.hpp>

#include "../reference/golden/plan.inc"

#include <string>
#include <type_traits>

using namespace pentad;

namespace {

planner::Configuration pasted() {
    planner::Configuration c;
    c.dp = 4, c.pp = 2, c.cp = 2, c.tp = 2;
    c.seq = 4096;
    c.global_batch = 64;
    c.micro_batch = 2;
    c.zero = 1;
    c.schedule = "zb-v";
    c.recompute = planner::Recompute::full;
    c.sequence_parallel = true;
    return c;
}

} // namespace

TEST_CASE("a pasted plan is what is written now, and says the same") {
    auto const c = pasted();
    CHECK(report::plan_types(train::planned_preset("llama-1b"), c) ==
          io::read_file(PENTAD_GOLDEN_DIR "/plan.inc", 1 << 20));
    static_assert(std::is_same_v<plan::Stream, SequenceStream<bf16>>);
    static_assert(std::is_same_v<plan::Attention, context::Ring<>>);
    constexpr plan::Mesh mesh;
    static_assert(mesh.size() == 32 && mesh.extent<dp>() == 4 && mesh.extent<pp>() == 2 && mesh.extent<tp>() == 2);
    CHECK(pipeline::generate(plan::schedule, plan::schedule_options).micro_batches == 8);
    auto const settings = plan::settings({});
    CHECK(settings.batch == 64);
    CHECK(settings.micro_batches == 8);
    CHECK(settings.seq == 4096);
    CHECK(settings.order == Order::zigzag);
    CHECK(settings.recompute);
    CHECK_FALSE(settings.recomputes_activations);
    CHECK(settings.sharding.stage == 1);
}

TEST_CASE("what the trainer does not do is said, and not made a type") {
    auto c = pasted();
    c.zero = 3;
    c.recompute = planner::Recompute::selective;
    auto const text = report::plan_types(train::planned_preset("deepseek-v3"), c);
    for (auto const* const what : {"ZeRO-3", "latent attention", "routers with a bias"})
        CHECK(text.find(std::string("// The trainer does not do this yet: ") + what) != std::string::npos);
    CHECK(report::not_in_trainer(train::planned_preset("llama-3-8b"), pasted()).empty());
    CHECK(report::not_in_trainer(train::planned_preset("mixtral-8x7b"), pasted()).empty());
    CHECK(report::not_in_trainer(train::planned_preset("gpt-3-175b"), pasted()).empty());
    CHECK(report::not_in_trainer(train::planned_preset("mamba2-7b"), pasted()).size() == 1);
}
