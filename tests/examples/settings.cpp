// The flags of train_lm as a table: what a change of each does to a run that goes on, and that --mesh auto asks the
// planner for the run that they describe.
#include <doctest/doctest.h>

#include "train_lm/configuration.hpp"
#include "train_lm/flags.hpp"
#include "train_lm/rules.hpp"
#include "train_lm/settings.hpp"

#include <pentad/io/model_config.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/search.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace train_lm;

namespace {

std::optional<Options> accepted(std::string const& line, int ranks) {
    std::istringstream stream(line);
    std::vector<std::string> const words{std::istream_iterator<std::string>(stream), {}};
    std::vector<char const*> arguments{"train_lm"};
    for (auto const& word : words) arguments.push_back(word.c_str());
    return parse(static_cast<int>(arguments.size()), arguments.data(), ranks).options;
}

/// Values of a flag to try, from its entry in the table. None: what it names are files.
std::vector<std::string> values_of(Flag const& flag) {
    static std::map<std::string_view, std::vector<std::string>> const texts{
        {"--stages", {"1,3", "balanced"}},
        {"--expert-mesh", {"ep=2,etp=1", "ep=1,etp=2"}},
        {"--latent-attention", {"q=0,kv=8,rope=4,nope=4,v=4", "q=8,kv=8,rope=4,nope=4,v=4"}},
        {"--mixers", {"m,a", "l", "m"}},
        {"--recompute-parts", {"norms"}},
        {"--memory-limit", {"8GiB"}},
        {"--save-every", {"7"}}};
    std::vector<std::string> values;
    std::visit(Overloaded{
                   [&]<class Number, class Member>(NumberValue<Number, Member> const&) {
                       if constexpr (std::is_integral_v<Number>)
                           values = {"1", "2", "4", "64"};
                       else
                           values = {"0.5", "0.0005", "2"};
                   },
                   [&](ChoiceValue const& target) { values.assign(target.choices.begin(), target.choices.end()); },
                   [&](OnOffValue const&) { values = {"on", "off"}; },
                   [&](TextValue const&) {
                       if (auto const found = texts.find(flag.name); found != texts.end()) values = found->second;
                   },
                   [](ListValue const&) {},
                   [](MeshValue) {},
                   [&](Switch const&) { values = {"on"}; },
               },
               flag.value);
    return values;
}

std::string const small = " --layers 4 --hidden 32 --heads 4 --ffn 32 --seq 16 --batch 16 --micro-batches 4 ";
struct Context {
    int ranks;
    std::string line;
};
/// Runs in which flags say something.
std::vector<Context> const contexts{
    {2, "--mesh dp=2"},
    {2, "--mesh dp=2 --tokens t.bin --mtp 1 --optimizer muon"},
    {2, "--mesh tp=2 --optimizer sgd --dtype bf16"},
    {2, "--mesh pp=2 --schedule pipedream-2bw --clip 0 --optimizer lion"},
    {4, "--mesh pp=2,dp=2 --schedule interleaved-1f1b --recompute selective"},
    {4, "--mesh dp=4 --local-steps 2 --local-ranks 2"},
    {4, "--mesh dp=2,tp=2 --zero 3 --offload both --offload-folder ."},
    {4, "--mesh cp=4 --cp two-level --cp-heads 2"},
    {2, "--mesh dp=2 --mixers m,a,l --groups 2"},
    {2, "--mesh ep=2 --experts 4 --expert-groups 2 --balance bias --shared-experts 1 --expert-ffn 8"},
    {2, "--mesh dp=2 --experts 4 --router expert-choice"},
    {2, "--mesh dp=2 --experts 4 --capacity 1.5"},
    {4, "--mesh pp=2,ep=2 --schedule dualpipe --experts 4"},
};

struct Changed {
    Flag const* flag;
    Options base, other;
    int ranks;
    std::string line;
};
/// For every flag and run the first values with which the flag is accepted, and is another.
std::vector<Changed> const& changes() {
    static std::vector<Changed> const all = [] {
        std::vector<Changed> found;
        for (auto const& [ranks, line] : contexts) {
            auto const base = accepted(small + line, ranks);
            REQUIRE_MESSAGE(base, line);
            for (FlagGroup const& group : flag_groups())
                for (Flag const& flag : group.flags) {
                    // Each word may mean something else.
                    int wanted = std::holds_alternative<ChoiceValue>(flag.value) ? 3 : 1;
                    for (auto const& value : values_of(flag)) {
                        auto other = *base;
                        set_value(other, flag, value);
                        other.kv_heads_given = flag.name == "--kv-heads";
                        follow(other);
                        bool const is_switch = std::holds_alternative<Switch>(flag.value);
                        if (wanted == 0 || (!is_switch && value_text(flag, other) == value_text(flag, *base)) ||
                            !obeys_rules(other) || check(other, ranks))
                            continue;
                        found.push_back(
                            {&flag, *base, other, ranks, line + " " + std::string(flag.name) + " " + value});
                        --wanted;
                    }
                }
        }
        return found;
    }();
    return all;
}

/// The lines that a run prints when it goes on with other options.
std::string said(Options const& now, Options const& before) {
    return changed_settings(now, [&](std::string_view flag) { return value_text(*find_flag(flag), before); });
}
std::string said(std::string const& now, std::string const& before, int ranks = 1) {
    return said(accepted(now, ranks).value(), accepted(before, ranks).value());
}

} // namespace

TEST_CASE("every flag that changes the numbers of a run that goes on is listed, and no other") {
    std::set<std::string_view> listed;
    for (auto const& c : changes()) {
        auto const text = said(c.other, c.base);
        bool const is_listed = text.find(std::string(c.flag->name) + " ") != text.npos;
        CHECK_MESSAGE((!is_listed || c.flag->effect == Effect::numbers || c.flag->effect == Effect::model), c.line,
                      ": ", text);
        if (is_listed) listed.insert(c.flag->name);
    }
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (flag.effect == Effect::numbers && !values_of(flag).empty())
                CHECK_MESSAGE(listed.contains(flag.name), flag.name, " is listed in none of these runs");
}

TEST_CASE("a flag that changes the model changes the description that checkpoints are compared by, or is listed") {
    std::set<std::string_view> seen;
    for (auto const& c : changes()) {
        auto const before = make_model(c.base), now = make_model(c.other);
        auto const description = [](pentad::model::Model const& model) {
            return pentad::io::family_config(model, 16, "float32", 0.01).dump();
        };
        bool const is_refused = description(before) != description(now);
        bool const is_said = said(c.other, c.base).find(std::string(c.flag->name) + " ") != std::string::npos;
        if (is_refused || is_said) seen.insert(c.flag->name);
        bool const is_same = before.blocks == now.blocks && before.predictors == now.predictors &&
                             before.hidden == now.hidden && before.vocab == now.vocab &&
                             before.ties_embeddings == now.ties_embeddings;
        CHECK_MESSAGE((is_same || is_refused || is_said), c.line);
        CHECK_MESSAGE((!is_refused || c.flag->effect == Effect::model || c.flag->name == "--balance"), c.line);
    }
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (flag.effect == Effect::model && !values_of(flag).empty())
                CHECK_MESSAGE(seen.contains(flag.name), flag.name, " changes none of these models");
}

TEST_CASE("settings that changed are said as they are given, by what they stand for") {
    CHECK(said("--min-lr 0", "") == "--min-lr 0 (was a tenth of --lr)");
    CHECK(said("", "--min-lr 0") == "--min-lr a tenth of --lr (was 0)");
    CHECK(said("--min-lr 0.0001", "").empty()); // a tenth of --lr
    CHECK(said("--lr 0.002", "") == "--lr 0.002 (was 0.001)");
    CHECK(said("--pack 10", "") == "--pack 10 (was none)");
    CHECK(said("--optimizer sgd", "") == "--optimizer sgd (was adamw)");
    CHECK(said("--optimizer sgd --momentum 0.9", "--optimizer sgd").empty());
    CHECK(said("--optimizer muon --nesterov off", "--optimizer muon") == "--nesterov off (was on)");
    CHECK(said("--experts 4 --capacity 0.5", "--experts 4") == "--capacity 0.5 (was 0)");
    CHECK(said("--experts 4 --capacity 0.5 --drop score", "--experts 4") ==
          "--capacity 0.5 (was 0), --drop score (was without effect)");
    CHECK(said("--optimizer sgd --momentum 0.5", "") ==
          "--optimizer sgd (was adamw), --momentum 0.5 (was without effect)");
    CHECK(said("--experts 4 --router expert-choice --capacity 1", "--experts 4 --router expert-choice").empty());
    CHECK(said("--experts 4 --router hash --aux-coef 1", "--experts 4 --router hash").empty());
    CHECK(said("--aux-coef 1 --z-coef 1 --mtp-coef 0.3", "").empty());
    std::string const pipeline = "--mesh pp=2 --layers 4 --batch 24 --micro-batches 4 --clip 0 --schedule ";
    CHECK(said(pipeline + "zb-h1", pipeline + "1f1b", 2).empty());
    CHECK(said(pipeline + "pipedream", pipeline + "1f1b", 2) == "--schedule pipedream (was 1f1b)");
    CHECK(said(pipeline + "pipedream --stages 1,3", pipeline + "pipedream", 2) == "--stages 1,3 (was none)");
    CHECK(said("--mesh dp=2 --reduce-dtype bf16", "--mesh dp=2", 2) == "--reduce-dtype bf16 (was full)");
    CHECK(said(pipeline + "1f1b", "--mesh dp=2 --layers 4 --batch 24 --clip 0", 2).empty());
}

namespace {

/// All of a configuration; of a field more the compiler tells.
std::string text_of(pentad::planner::Configuration const& c) {
    auto const& [dp, pp, ep, cp, tp, order, experts, seq, global_batch, micro_batch, sharding, optimizer, local,
                 precision, offload, schedule, chunks, pairs, stage_layers, balances_stages, bucket_elements, recompute,
                 tensor_kind, sequence_parallel, context, attention_output, inner_cp, zigzag, element, fp8_products] =
        c;
    (void)order; // those that differ on the machine are tried
    std::ostringstream text;
    bool const is_pipeline = pp > 1;
    auto const* const generator = pentad::pipeline::find_generator(is_pipeline ? schedule : "1f1b");
    text << "dp " << dp << " pp " << pp << " ep " << ep << " cp " << cp << " tp " << tp << " seq " << seq << " batch "
         << global_batch << " micro-batch " << micro_batch << " zero " << sharding.stage << " "
         << (sharding.stage > 0 ? sharding.ranks : 0) << " " << sharding.keeps_parameters << " "
         << sharding.accumulates_gradients << " " << sharding.releases_gradients << " local " << local.steps << " "
         << local.ranks << " " << local.outer_learning_rate << " " << local.outer_momentum << " offload "
         << offload.optimizer << offload.activations << " " << offload.folder << " " << offload.window_bytes << " "
         << generator->name << " " << (is_pipeline && chunks > 0 ? chunks : generator->least_chunks) << " "
         << (pairs && generator->has_pairs) << " bucket " << bucket_elements << " recompute "
         << static_cast<int>(recompute.kind) << " " << recompute.every << " " << pentad::model::text(recompute.pieces)
         << " kind " << static_cast<int>(tensor_kind) << " " << (tp > 1 && sequence_parallel) << " context "
         << static_cast<int>(context) << " " << inner_cp << " " << static_cast<int>(attention_output) << " zigzag "
         << zigzag << " element " << static_cast<int>(element) << " " << fp8_products << " precision "
         << static_cast<int>(precision.reduce) << static_cast<int>(precision.rows)
         << static_cast<int>(precision.moments) << precision.keeps_masters << " optimizer " << optimizer.index();
    if (is_pipeline) text << " stages " << (balances_stages ? "balanced" : "");
    for (auto const layers : stage_layers) text << " " << layers;
    if (experts) text << " experts " << experts->ep << " " << experts->etp;
    auto const add_adamw = [&](pentad::model::AdamW const& o) {
        text << " " << o.beta1 << " " << o.beta2 << " " << o.epsilon << " " << o.weight_decay;
    };
    if (auto const* o = std::get_if<pentad::model::AdamW>(&optimizer)) add_adamw(*o);
    if (auto const* o = std::get_if<pentad::model::Sgd>(&optimizer))
        text << " " << o->momentum << " " << o->nesterov << " " << o->weight_decay;
    if (auto const* o = std::get_if<pentad::model::Lion>(&optimizer))
        text << " " << o->beta1 << " " << o->beta2 << " " << o->weight_decay;
    if (auto const* o = std::get_if<pentad::model::Muon>(&optimizer)) {
        text << " " << o->momentum << " " << o->nesterov << " " << o->weight_decay << " " << static_cast<int>(o->rate);
        add_adamw(o->others);
    }
    return text.str();
}

} // namespace

TEST_CASE("what --mesh auto asks the planner for has the run that every flag describes among its plans") {
    namespace planner = pentad::planner;
    std::set<std::string> asked; // many flags change no plan
    int compared = 0;
    for (auto const& c : changes()) {
        if (c.other.stages == "1,3" || c.other.cp == "auto" || c.other.slices > 1) continue; // the planner has none
        auto const run = text_of(configuration_of(c.other));
        auto request = request_of(c.other, {.name = "any",
                                            .devices = c.ranks,
                                            .devices_per_node = c.ranks,
                                            .peak_f32 = 1e12,
                                            .peak_bf16 = 1e12,
                                            .memory_bytes = 1e18,
                                            .memory_bandwidth = 1e12,
                                            .links = {{.devices = c.ranks, .latency_s = 1e-6, .bandwidth = 1e10}}});
        auto key = run + " of " + std::to_string(c.other.layers) + c.other.mixers + c.other.router;
        if (!asked.insert(std::move(key)).second) continue;
        request.dp = c.other.extent("dp"), request.pp = c.other.extent("pp"), request.ep = c.other.extent("ep");
        request.cp = c.other.extent("cp"), request.tp = c.other.extent("tp");
        std::string nearest;
        bool found = false;
        planner::Pipelines pipelines;
        planner::for_each_configuration(
            request, pipelines, [&](double, double) { return !found; },
            [&](planner::Configuration const& plan, planner::Bounds const&) {
                nearest = text_of(plan);
                found = found || nearest == run;
            });
        ++compared;
        CHECK_MESSAGE(found, c.line, "\n  run     ", run, "\n  planned ", nearest);
    }
    CHECK(compared > 100);
}
