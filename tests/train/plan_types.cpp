// ranks: 1
//
// The types of a plan compile: a pasted plan is part of this program, and is what the report writes now.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/ring.hpp>
#include <pentad/io/file.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/pipeline/dealt_layers.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/report/plan_types.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/run_settings.hpp>

#include "../reference/golden/plan.inc"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

Strategy plain() {
    Strategy c;
    c.dp = 4, c.pp = 2, c.cp = 2, c.tp = 2;
    c.seq = 4096;
    c.batch = 64;
    c.micro_batches = 8;
    c.block.zigzag = true;
    c.sharding.stage = 1;
    c.schedule = "zb-v";
    c.recompute = {.kind = model::Recomputation::Kind::full};
    c.block.sequence_parallel = true;
    return c;
}

/// A plan with all that the optimizer can keep in another way.
Strategy pasted() {
    auto c = plain();
    c.stage_layers = {4, 5, 4, 3};
    c.bucket_elements = 100'000;
    c.optimizer = model::Muon{
        .momentum = 0.9, .nesterov = false, .rate = model::MuonRate::match_rms_adamw, .others = {.beta2 = 0.99}};
    c.precision = {.reduce = Compact::bf16, .rows = Compact::fp8, .moments = Compact::fp8, .keeps_masters = false};
    c.offload = {.optimizer = true, .activations = true, .folder = "a folder", .window_bytes = 1 << 30};
    return c;
}

/// The C++ of a plan, without the line that says it in words.
std::string code_of(planner::Model const& model, Strategy const& c) {
    auto const text = report::plan_types(model, c);
    return text.substr(text.find("namespace plan"));
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
    CHECK(plan::strategy() == c);
    CHECK(plan::settings({}).strategy == c);
}

TEST_CASE("no field of a plan is left out of its types, and none that has a flag of its flags") {
    using Kind = model::Recomputation::Kind;
    auto const model = train::planned_preset("mixtral-8x7b");
    Strategy base;
    base.dp = 4, base.pp = 2, base.cp = 4, base.tp = 4;
    base.seq = 4096, base.batch = 64;
    base.use_micro_batch(1);
    base.block.zigzag = true;
    base.sharding.stage = 2;
    base.schedule = "dualpipe";
    struct Change {
        bool in_types, in_flags;
        std::function<void(Strategy&)> make;
    };
    using C = Strategy;
    std::vector<Change> const changes{
        {true, false, [](C& c) { c.dp = 8, c.batch = 128; }},
        {true, false, [](C& c) { c.pp = 4; }},
        {true, false, [](C& c) { c.tp = 8; }},
        {true, true,
         [](C& c) { c.ep = 2, c.use_micro_batch(1); }}, // beside whose exchanges passes are pairs by default
        {true, true, [](C& c) { c.order = {"tp", "dp", "pp", "ep", "cp"}; }},
        {true, true, [](C& c) { c.experts = model::ExpertMesh{4, 1}; }},
        {true, false, [](C& c) { c.seq = 2048; }},
        {true, false, [](C& c) { c.batch = 128, c.use_micro_batch(1); }},
        {true, true, [](C& c) { c.use_micro_batch(2); }},
        {true, true, [](C& c) { c.sharding.stage = 3; }},
        {true, true, [](C& c) { c.sharding.ranks = 2; }},
        {true, true, [](C& c) { c.sharding.stage = 3, c.sharding.keeps_parameters = true; }},
        {true, true, [](C& c) { c.sharding.accumulates_gradients = true; }},
        {true, true, [](C& c) { c.sharding.releases_gradients = true; }},
        {true, true, [](C& c) { c.optimizer = model::Sgd(); }},
        {true, true, [](C& c) { c.optimizer = model::Lion(); }},
        {true, true, [](C& c) { c.optimizer = model::Muon(); }},
        {true, false, [](C& c) { c.optimizer = model::AdamW{.beta1 = 0.8}; }},
        {true, false, [](C& c) { c.optimizer = model::AdamW{.epsilon = 1e-7}; }},
        {true, true, [](C& c) { c.local.steps = 8; }},
        {true, true, [](C& c) { c.precision.reduce = Compact::fp8; }},
        {true, true, [](C& c) { c.precision.rows = Compact::bf16; }},
        {true, true, [](C& c) { c.precision.moments = Compact::bf16; }},
        {true, true, [](C& c) { c.precision.keeps_masters = false; }},
        {true, true, [](C& c) { c.offload.optimizer = true; }},
        {true, true, [](C& c) { c.offload.activations = true; }},
        {true, true, [](C& c) { c.offload.optimizer = c.offload.activations = true; }},
        {true, true, [](C& c) { c.offload.optimizer = true, c.offload.window_bytes = 1 << 20; }},
        {true, true, [](C& c) { c.schedule = "dualpipe-v"; }},
        {true, true, [](C& c) { c.chunks = 2; }},
        {true, true, [](C& c) { c.pairs = true; }},
        {true, true, [](C& c) { c.stage_layers = {15, 17}; }},
        {true, true, [](C& c) { c.balances_stages = true; }},
        {true, false, [](C& c) { c.bucket_elements = 1000; }},
        {true, true, [](C& c) { c.recompute.kind = Kind::full; }},
        {true, true, [](C& c) { c.recompute.kind = Kind::selective; }},
        {true, true, [](C& c) { c.recompute = {.kind = Kind::full, .every = 2}; }},
        {true, true, [](C& c) { c.recompute = {.kind = Kind::selective, .pieces = {model::Piece::norms}}; }},
        {true, true, [](C& c) { c.block.tensor_kind = model::TensorKind::two_d; }},
        {true, true, [](C& c) { c.block.sequence_parallel = true; }},
        {true, true, [](C& c) { c.block.context = ContextStrategy::all_gather; }},
        {true, true, [](C& c) { c.block.context = ContextStrategy::double_ring, c.block.inner_cp = 2; }},
        {true, true, [](C& c) { c.block.attention_output = model::AttentionOutput::all_to_all; }},
        {true, true, [](C& c) { c.block.zigzag = false; }},
        {true, false, [](C& c) { c.block.row_parts = 2; }},
        {true, true, [](C& c) { c.element = planner::Element::f32; }},
        {true, true, [](C& c) { c.fp8_products = true; }}};
    std::set<std::string> codes{code_of(model, base)}, flags{report::settings_text(base)};
    std::size_t in_types = 1, in_flags = 1;
    for (auto const& change : changes) {
        auto c = base;
        change.make(c);
        in_types += change.in_types ? 1 : 0;
        in_flags += change.in_flags ? 1 : 0;
        CAPTURE(report::settings_text(c));
        CHECK(codes.insert(code_of(model, c)).second == change.in_types);
        CHECK(flags.insert(report::settings_text(c)).second == change.in_flags);
    }
    CHECK(codes.size() == in_types);
    CHECK(flags.size() == in_flags);
}

TEST_CASE("planner and program deal layers to stages in the same way") {
    auto const model = train::planned_preset("llama-1b");
    for (std::int64_t stages = 1; stages <= model.layers(); ++stages) {
        std::vector<std::int64_t> planned;
        for (auto const& shape : planner::stage_shapes(model, Strategy{}, stages)) planned.push_back(shape.count);
        CHECK(planned == pipeline::dealt_layers(model.layers(), stages));
        auto const [least, most] = std::minmax_element(planned.begin(), planned.end());
        CHECK(*most - *least <= 1);
        CHECK(std::accumulate(planned.begin(), planned.end(), std::int64_t{0}) == model.layers());
    }
}

TEST_CASE("what ZeRO shards, and for how long, is in the settings and the flags of a plan") {
    auto c = plain();
    c.sharding = {.stage = 3, .ranks = 2, .keeps_parameters = true, .accumulates_gradients = true};
    auto const text = report::plan_types(train::planned_preset("llama-1b"), c);
    for (auto const* const part :
         {"model::split_data(mesh, 2)", " --zero 3 --zero-ranks 2 --zero-keep on --zero-accumulate on --schedule zb-v",
          ".sharding = {.stage = 3, .ranks = 2, .keeps_parameters = true, .accumulates_gradients = true}};\n"})
        CHECK_MESSAGE(text.find(part) != std::string::npos, part, " in ", text);
    c.sharding = {.stage = 1, .releases_gradients = true};
    auto const released = report::plan_types(train::planned_preset("llama-1b"), c);
    CHECK(released.find(" --zero 1 --gradient-release ") != std::string::npos);
    CHECK(released.find(".strategy = strategy(), .clip = 0};") != std::string::npos);
}
