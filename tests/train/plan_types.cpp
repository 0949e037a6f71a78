// ranks: 1
//
// The types of a plan compile: a pasted plan is part of this program, and is what the report writes now.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/ring.hpp>
#include <pentad/io/file.hpp>
#include <pentad/layout/ml.hpp>
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
using namespace pentad::ml;

namespace {

planner::Configuration pasted() {
    planner::Configuration c;
    c.dp = 4, c.pp = 2, c.cp = 2, c.tp = 2;
    c.seq = 4096;
    c.global_batch = 64;
    c.micro_batch = 2;
    c.sharding.stage = 1;
    c.schedule = "zb-v";
    c.recompute = {.kind = model::Recomputation::Kind::full};
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
    CHECK(settings.recompute == model::Recomputation{.kind = model::Recomputation::Kind::full});
    CHECK(settings.sharding.stage == 1);
}

TEST_CASE("what ZeRO shards, and for how long, is in the settings and the flags of a plan") {
    auto c = pasted();
    c.sharding = {.stage = 3, .ranks = 2, .keeps_parameters = true, .accumulates_gradients = true};
    auto const text = report::plan_types(train::planned_preset("llama-1b"), c);
    for (auto const* const part :
         {"model::split_data(mesh, 2)", " --zero 3 --zero-ranks 2 --zero-keep on --zero-accumulate on --schedule zb-v",
          ".sharding = {.stage = 3, .ranks = 2, .keeps_parameters = true, .accumulates_gradients = true}};\n"})
        CHECK_MESSAGE(text.find(part) != std::string::npos, part, " in ", text);
    c.sharding = {.stage = 1, .releases_gradients = true};
    auto const released = report::plan_types(train::planned_preset("llama-1b"), c);
    CHECK(released.find(" --zero 1 --gradient-release ") != std::string::npos);
    CHECK(released.find(".sharding = {.stage = 1, .releases_gradients = true},\n            .clip = 0};") !=
          std::string::npos);
}
