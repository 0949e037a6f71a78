// What cannot run is refused by field, in one sentence; what can is not.
#include <doctest/doctest.h>

#include <pentad/model/decoder.hpp>
#include <pentad/model/mixers.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/strategy/why_not.hpp>

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;

namespace {

model::Model const dense = model::decoder({.layers = 4, .hidden = 48, .heads = 6, .kv_heads = 2, .ffn = 36});
model::Model const with_experts = model::decoder({.layers = 4, .hidden = 48, .heads = 6, .ffn = 36, .experts = 4});

std::string refusal(model::Model const& model, Strategy const& strategy, std::int64_t ranks = 0) {
    auto const refused = why_not(model, strategy, ranks);
    return refused ? std::string(refused->field) + ": " + refused->why : "";
}

struct Refused {
    Strategy strategy;
    std::string sentence;
    bool has_experts = false;
};

} // namespace

TEST_CASE("each rule has a sentence with the field to change") {
    using model::TensorKind;
    std::vector<Refused> const all{
        {{.dp = 0}, "dp: dp = 0 is less than 1"},
        {{.chunks = -1}, "chunks: chunks = -1 is less than 0"},
        {{.tp = 3, .experts = model::ExpertMesh{2, 1}}, "experts: a mesh of experts, and the model has none"},
        {{.dp = 2, .ep = 2, .experts = model::ExpertMesh{2, 1}},
         "experts: ep = 2 and a mesh of experts: leave out one of the two",
         true},
        {{.tp = 4}, "heads: heads = 6 is not divisible by tp = 4"},
        {{.cp = 4, .block = {.context = ContextStrategy::heads_ring, .inner_cp = 4}},
         "heads: heads = 6 over tp = 1 gives 6, which are not divisible by the 4 ranks of cp that exchange heads"},
        {{.cp = 4, .block = {.inner_cp = 3}}, "block.inner_cp: block.inner_cp = 3 does not divide cp = 4"},
        {{.ep = 3, .batch = 6}, "expert_count: expert_count = 4 is not divisible by ep = 3", true},
        {{.tp = 5, .block = {.tensor_kind = TensorKind::two_d}},
         "block.tensor_kind: tp = 5 is no 2d grid: that has rows x columns, both above 1, such as 4 = 2 x 2 ranks"},
        {{.tp = 4, .block = {.tensor_kind = TensorKind::two_d}},
         "block.tensor_kind: block.tensor_kind = 2d is of attention and MLPs, not of experts",
         true},
        {{.tp = 4, .batch = 8, .block = {.tensor_kind = TensorKind::two_d, .sequence_parallel = true}},
         "block.sequence_parallel: block.tensor_kind = 2d shards tokens anyway: sequence parallelism is of one "
         "dimension"},
        {{.dp = 3}, "batch: batch = 8 is not divisible by dp x micro-batches = 3 x 1 = 3"},
        {{.dp = 4, .sharding = {.stage = 1, .ranks = 3}}, "sharding.ranks: sharding.ranks = 3 does not divide dp = 4"},
        {{.sharding = {.ranks = 1}}, "sharding.stage: sharding.ranks = 1 shards nothing with sharding.stage = 0"},
        {{.sharding = {.stage = 4}}, "sharding.stage: sharding.stage = 4 is not between 0 and 3"},
        {{.local = {.ranks = 2}}, "local.ranks: local.ranks = 2 does not divide dp = 1"},
        {{.dp = 2, .local = {.ranks = 2}}, "local.ranks: local.ranks = 2 says nothing with local.steps = 0"},
        {{.dp = 2, .local = {.steps = 3, .ranks = 2}},
         "local.steps: local.steps = 3 with local.ranks = 2 and dp = 2: there is one group, with none to average with"},
        {{.dp = 4, .sharding = {.stage = 1, .ranks = 2}, .local = {.steps = 3, .ranks = 2}},
         "sharding.ranks: sharding.ranks = 2 and local.steps = 3 both split dp: ZeRO shards over the ranks that share "
         "every step, local.ranks = 2"},
        {{.recompute = {.every = 0}}, "recompute.every: recompute.every = 0 is less than 1"},
        {{.precision = {.keeps_masters = false}, .element = model::Element::f32},
         "precision.keeps_masters: precision.keeps_masters = off is for element = bf16: f32 weights are updated as "
         "they "
         "are"},
        {{.schedule = "none"}, "schedule: schedule = none is no schedule; there are " + pipeline::generator_names()},
        {{.pp = 2, .micro_batches = 2, .schedule = "dualpipe", .sharding = {.releases_gradients = true}},
         "schedule: schedule = dualpipe reduces gradients at times of its own: they cannot be released"},
        {{.dp = 2, .pp = 2, .micro_batches = 2, .schedule = "pipedream", .local = {.steps = 1}},
         "local.steps: schedule = pipedream updates each stage on its own: ranks that train apart have no common step "
         "to average after"},
        {{.pp = 2, .micro_batches = 2, .schedule = "dualpipe", .pairs = true, .offload = {.activations = true}},
         "pairs: schedule = dualpipe has pairs of passes, whose activations cannot be offloaded one after the other"},
        {{.pp = 3}, "layers: layers = 4 is not divisible by pp = 3"},
        {{.pp = 2, .schedule = "interleaved-1f1b", .chunks = 3},
         "layers: layers = 4 is less than the stages of the pipeline, pp x chunks = 2 x 3 = 6"},
        {{.pp = 2, .stage_layers = {1, 2}}, "stage_layers: stage_layers = 1,2 is of 3 layers, and the model has 4"},
        {{.pp = 2, .stage_layers = {4}}, "stage_layers: stage_layers = 4 is for 1 stages, and the pipeline has 2"},
    };
    std::set<std::string_view> fields;
    for (auto const& [strategy, sentence, has_experts] : all) {
        auto const& model = has_experts ? with_experts : dense;
        CHECK(refusal(model, strategy) == sentence);
        if (auto const refused = all_refusals(model, strategy); !refused.empty()) {
            CHECK(std::string(refused.front().field) + ": " + refused.front().why == sentence);
            fields.insert(refused.front().field);
        }
    }
    CHECK(fields.size() >= 18);
    CHECK(refusal(dense, {.dp = 2}, 3) == "dp: a mesh of 2 ranks, and the run has 3");
    CHECK(refusal(dense, {.dp = 3, .batch = 12}, 3).empty());
}

TEST_CASE("what runs is not refused") {
    for (auto const& strategy : std::vector<Strategy>{
             {},
             {.dp = 2, .pp = 2, .tp = 2, .micro_batches = 2},
             {.ep = 2},
             {.cp = 3, .tp = 2, .seq = 17, .block = {.sequence_parallel = true, .zigzag = true}},
             {.pp = 3, .stage_layers = {2, 1, 1}},
             {.pp = 3, .balances_stages = true},
             {.pp = 2, .stage_layers = {4, 0}},
             {.pp = 2, .schedule = "pipedream"}, // one update: as 1F1B
             {.dp = 4, .local = {.steps = 3, .ranks = 2}},
         })
        CHECK(refusal(dense, strategy) == "");
    CHECK(refusal(with_experts, {.dp = 2, .ep = 2, .tp = 2}) == "");
    CHECK(refusal(with_experts, {.dp = 2, .tp = 2, .experts = model::ExpertMesh{4, 1}}) == "");
    auto tied = dense;
    tied.ties_embeddings = true;
    CHECK(refusal(tied, {.pp = 2, .micro_batches = 2, .schedule = "pipedream"})
              .ends_with("its two ends cannot share an embedding, which is tied"));
}

TEST_CASE("all refusals are found, one for each field") {
    std::set<std::string_view> fields;
    for (auto const& refused : all_refusals(dense, {.dp = 3, .pp = 3, .tp = 4, .sharding = {.ranks = 1}}))
        CHECK(fields.insert(refused.field).second);
    CHECK(fields == std::set<std::string_view>{"heads", "batch", "sharding.stage", "layers"});
}
