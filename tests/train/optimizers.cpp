// ranks: 1 2 4 8
//
// Every optimizer trains as its reference does, on one rank and on a mesh with tp, ep and ZeRO; on every mesh and with
// everything that ZeRO shards it gives the numbers of one rank; what it keeps can be saved and loaded by name.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/train/trainer.hpp>

#include <support/layer_check.hpp>
#include <support/on_mesh.hpp>
#include <support/outcome.hpp>
#include <support/parameters.hpp>
#include <support/training.hpp>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace support;

namespace {

using Invariant = InvariantStream<f64>;
using Sequence = SequenceStream<f64>;

model::Muon fast_muon() { return {.momentum = 0.9, .nesterov = false, .rate = model::MuonRate::match_rms_adamw}; }

// Against PyTorch.

/// The optimizers of tests/reference/golden.py.
std::vector<std::pair<std::string, model::Optimizer>> golden_optimizers() {
    auto muon = fast_muon();
    muon.others.beta2 = 0.95;
    return {{"adamw", model::AdamW{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1}},
            {"sgd", model::Sgd{.momentum = 0.9, .weight_decay = 0.1}},
            {"sgd_nesterov", model::Sgd{.momentum = 0.8, .nesterov = true, .weight_decay = 0.01}},
            {"lion", model::Lion{.beta1 = 0.9, .beta2 = 0.98, .weight_decay = 0.1}},
            {"muon", model::Muon{}},
            {"muon_match_rms", muon}};
}

/// A tensor of the golden file; of experts' weights all of them as one, as the layer holds them.
Whole golden_weight(Arrays const& arrays, std::string const& prefix, std::string const& name) {
    auto const mark = name.find("{}");
    if (mark == std::string::npos) return arrays.at(prefix + name);
    auto const experts = static_cast<std::size_t>(arrays.at("num_local_experts").values[0]);
    Whole all;
    for (std::size_t e = 0; e < experts; ++e) {
        auto one_name = name;
        one_name.replace(mark, 2, std::to_string(e));
        auto const& one = arrays.at(prefix + one_name);
        if (e == 0) {
            all.extents = one.extents;
            all.extents.insert(all.extents.begin(), experts);
        }
        all.values.insert(all.values.end(), one.values.begin(), one.values.end());
    }
    return all;
}

template <class Stream>
void check_golden(MeshShape const& m, ZeroSharding const& sharding) {
    auto const arrays = golden("optimizers");
    auto const number = [&](std::string const& name) { return arrays.at(name).values[0]; };
    auto const count = [&](char const* name) { return static_cast<std::size_t>(number(name)); };
    std::string text;
    for (double const token : arrays.at("text").values) text += static_cast<char>(token);
    for (auto const& [name, optimizer] : golden_optimizers()) {
        INFO(name, " ", m.text(), " zero ", sharding.stage, " over ", sharding.ranks);
        train::RunSettings const settings{.model = model::decoder({.layers = count("num_hidden_layers"),
                                                                   .hidden = count("hidden_size"),
                                                                   .heads = count("num_attention_heads"),
                                                                   .kv_heads = count("num_key_value_heads"),
                                                                   .ffn = count("intermediate_size"),
                                                                   .vocab = count("vocab_size"),
                                                                   .experts = count("num_local_experts"),
                                                                   .top_k = count("num_experts_per_tok")}),
                                          .strategy = {.batch = static_cast<std::int64_t>(count("batch")),
                                                       .seq = static_cast<std::int64_t>(count("seq")),
                                                       .sharding = sharding,
                                                       .bucket_elements = 700,
                                                       .optimizer = optimizer}, // several buckets
                                          .learning_rate = number(name + "/lr"),
                                          .min_learning_rate = number(name + "/lr"),
                                          .warmup = 0,
                                          .clip = number("clip"),
                                          .balance_coefficient = number("aux_coef"),
                                          .z_coefficient = number("z_coef"),
                                          .seed = count("seed")};
        OnMesh const mesh(m, OnMesh::mesh(m, 2).split<dp>(std::max(1, sharding.ranks)));
        Training<Stream> training(mesh, settings, text);
        auto& store = training.trainer.store();
        store.for_each_imported([&](auto const& p) { fill_imported(p, golden_weight(arrays, "", p.name())); });
        std::vector<double> losses;
        for (std::size_t step = 1; step <= count("steps"); ++step)
            losses.push_back(training.trainer.step(static_cast<std::int64_t>(step)).loss);
        CHECK(worst(losses, arrays.at(name + "/losses").values) < 1e-10);
        store.for_each_exported([&](auto const& p) {
            CHECK_MESSAGE(distance_with_padding(gather_exported(p), golden_weight(arrays, name + "/", p.name())) <
                              1e-10,
                          p.name());
        });
    }
}

// Against one rank.

std::vector<model::Optimizer> all_optimizers() {
    return {model::Sgd{.momentum = 0.9, .nesterov = true, .weight_decay = 0.01}, model::Lion{}, model::Muon{},
            fast_muon()};
}

/// What one rank computes, with nothing sharded.
Outcome const& alone(train::RunSettings const& of, std::size_t optimizer) {
    static std::map<std::vector<double>, Outcome> known;
    auto const [at, is_new] =
        known.try_emplace({static_cast<double>(sizes(of.model).experts), of.clip, static_cast<double>(optimizer)});
    if (!is_new) return at->second;
    auto settings = of;
    settings.strategy.sharding = {};
    return at->second =
               trained_alone<Invariant>(settings, [&](auto& training) { return outcome_of(training, settings.steps); });
}

template <class Stream>
void check(MeshShape const& m, train::RunSettings settings, std::string const& schedule = "1f1b", int chunks = 1) {
    auto const& sharding = settings.strategy.sharding;
    auto const generated = pipeline::generate(
        schedule,
        {.ranks = m.pp, .micro_batches = static_cast<int>(settings.strategy.micro_batches), .chunks = chunks});
    OnMesh const on(m, mesh_of(m, settings, generated));
    auto const optimizers = all_optimizers();
    for (std::size_t i = 0; i < optimizers.size(); ++i) {
        INFO("optimizer ", i, " ", m.text(), " ", schedule, " zero ", sharding.stage, " over ", sharding.ranks,
             " releases ", sharding.releases_gradients, " experts ", sizes(settings.model).experts);
        settings.strategy.optimizer = optimizers[i];
        Training<Stream> training(on, settings, generated);
        auto const found = outcome_of(training, settings.steps);
        auto const& expected = alone(settings, i);
        CHECK(worst(found.losses, expected.losses) < 1e-10);
        for (auto const& [name, whole] : found.weights)
            CHECK_MESSAGE(distance_with_padding(whole, expected.weights.at(name)) < 1e-9, name);
    }
}

} // namespace

TEST_CASE("every optimizer computes what PyTorch or a reference written apart computes") {
    if (world_size() == 1) check_golden<Invariant>({}, {});
    if (world_size() != 8) return;
    MeshShape const m{.dp = 2, .ep = 2, .tp = 2};
    for (ZeroSharding const& sharding : std::vector<ZeroSharding>{{.stage = 3}, {.stage = 1}, {}})
        check_golden<Invariant>(m, sharding);
    check_golden<Sequence>({.dp = 2, .ep = 2, .tp = 2, .inside_out = true}, {.stage = 3});
    check_golden<Sequence>({.dp = 4, .tp = 2}, {.stage = 3, .ranks = 2});
    check_golden<Invariant>({.dp = 2, .tp = 4}, {.stage = 2}); // two ranks of tp share a kv head
}

TEST_CASE("every optimizer gives the numbers of one rank, whatever is sharded") {
    for (auto const& m : meshes([](MeshShape const& m) {
             return !m.inside_out && m.pp <= 2 && m.tp <= 2 && m.cp <= 2 && 4 % (m.dp * m.ep) == 0 && 4 % m.ep == 0;
         }))
        for (int const stage : {0, 1, 2, 3}) {
            auto settings = m.dp * m.ep > 1 || m.cp > 1 ? small_with_experts() : small_dense();
            settings.strategy.sharding.stage = stage;
            if (m.tp > 1)
                check<Sequence>(m, settings);
            else
                check<Invariant>(m, settings);
            if (m.dp % 2 != 0 || stage == 0) continue;
            settings.strategy.sharding.ranks = 2;
            check<Invariant>(m, settings);
        }
}

TEST_CASE("gradients that are released") {
    for (auto const& m : meshes([](MeshShape const& m) {
             return !m.inside_out && m.pp <= 2 && m.tp <= 2 && m.cp == 1 && 4 % (m.dp * m.ep) == 0;
         }))
        for (int const stage : {0, 1, 3}) {
            auto settings = small_with_experts();
            settings.clip = 0;
            settings.strategy.sharding = {.stage = stage, .releases_gradients = true};
            check<Invariant>(m, settings);
        }
}

TEST_CASE("with schedules that hold two copies of a stage, or split backward passes") {
    int const n = world_size();
    if (n < 4) return;
    MeshShape const m{.dp = n / 2, .pp = 2};
    for (auto const& [name, chunks] :
         std::vector<std::pair<std::string, int>>{{"zb-v", 2}, {"dualpipe", 1}, {"dualpipe-v", 2}})
        for (int const stage : {0, 1, 3}) {
            auto settings = small_with_experts();
            settings.strategy.sharding.stage = stage;
            check<Invariant>(m, settings, name, chunks);
        }
}

TEST_CASE("what an optimizer keeps has names") {
    auto const names = [](model::Optimizer const& optimizer) {
        auto const all = model::state_names(optimizer);
        return std::vector<std::string>(all.begin(), all.end());
    };
    CHECK(names(model::AdamW{}) == std::vector<std::string>{"first_moment", "second_moment"});
    CHECK(names(model::Sgd{}) == std::vector<std::string>{"momentum"});
    CHECK(names(model::Sgd{.momentum = 0}).empty());
    CHECK(names(model::Lion{}) == std::vector<std::string>{"momentum"});
    CHECK(names(model::Muon{}) == std::vector<std::string>{"momentum"});
}
