// The flags of train_lm as a table: what a change of each does to a run that goes on, and that --mesh auto asks the
// planner for the run that they describe.
#include <doctest/doctest.h>

#include "train_lm/configuration.hpp"
#include "train_lm/flags.hpp"
#include "train_lm/rules.hpp"
#include "train_lm/settings.hpp"

#include <pentad/io/model_config.hpp>
#include <pentad/io/strategy_file.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/search.hpp>
#include <pentad/report/plan_text.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
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
                   [&](TextValue const&) {
                       if (auto const found = texts.find(flag.name); found != texts.end()) values = found->second;
                   },
                   [](ListValue const&) {},
                   [](MeshValue) {},
                   [&](StrategyValue const& target) {
                       pentad::Strategy const usual;
                       pentad::report::with_field(usual, target.row->field, [&]<class T>(T const&) {
                           if constexpr (std::is_same_v<T, bool>)
                               values = flag.is_switch() ? std::vector<std::string>{"on"}
                                                         : std::vector<std::string>{"on", "off"};
                           else if constexpr (pentad::HasWords<T>)
                               for (auto const word : pentad::report::flag_words<T>()) values.emplace_back(word);
                           else if constexpr (std::is_same_v<T, std::string>)
                               for (auto const name : pentad::pipeline::schedule_names) values.emplace_back(name);
                           else if constexpr (std::is_integral_v<T>)
                               values = {"1", "2", "4", "64"};
                           else
                               values = {"0.5", "0.0005", "2"};
                       });
                   },
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
                    bool const is_choice = flag.shown.find('|') != flag.shown.npos || flag.shown == "NAME";
                    int wanted = is_choice && !std::holds_alternative<TextValue>(flag.value) ? 3 : 1;
                    for (auto const& value : values_of(flag)) {
                        auto other = *base;
                        set_value(other, flag, value);
                        other.kv_heads_given = flag.name == "--kv-heads";
                        follow(other);
                        bool const is_switch = flag.is_switch();
                        if (wanted == 0 || (!is_switch && value_text(flag, other) == value_text(flag, *base)) ||
                            !refusal(other, ranks).empty())
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

TEST_CASE("a flag that says nothing in a run is refused") {
    // But for places: the mesh, cuts of the batch, stages; and a type of tokens beside files that say theirs.
    std::set<std::string_view> const harmless{"--mesh", "--micro-batches", "--stages", "--token-type"};
    std::set<std::string_view> compared;
    for (auto const& c : changes()) {
        if (harmless.contains(c.flag->name)) continue;
        compared.insert(c.flag->name);
        bool const is_silent = c.flag->effect == Effect::numbers && silent_flags(c.other).contains(c.flag->name);
        CHECK_MESSAGE((!is_silent || !accepted(small + c.line, c.ranks)), c.line);
        // With experts a flag may say what is so by default: --balance aux, --top-groups 1 of one.
        if (c.flag->effect == Effect::model && c.base.experts == 0) {
            auto const before = make_model(c.base), now = make_model(c.other);
            bool const is_same = before.blocks == now.blocks && before.predictors == now.predictors &&
                                 before.hidden == now.hidden && before.vocab == now.vocab &&
                                 before.ties_embeddings == now.ties_embeddings;
            CHECK_MESSAGE(!is_same, c.line);
        }
    }
    CHECK(compared.size() > 40);
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
    CHECK(said("--experts 4 --aux-coef 1 --z-coef 1 --mtp-coef 0.3", "--experts 4") ==
          "--aux-coef 1 (was 0.01), --z-coef 1 (was 0.001)");
    std::string const pipeline = "--mesh pp=2 --layers 4 --batch 24 --micro-batches 4 --clip 0 --schedule ";
    CHECK(said(pipeline + "zb-h1", pipeline + "1f1b", 2).empty());
    CHECK(said(pipeline + "pipedream", pipeline + "1f1b", 2) == "--schedule pipedream (was 1f1b)");
    CHECK(said(pipeline + "zb-v", pipeline + "pipedream", 2) == "--schedule zb-v (was pipedream)");
    CHECK(said(pipeline + "pipedream --stages 1,3", pipeline + "pipedream", 2) == "--stages 1,3 (was none)");
    CHECK(said("--mesh dp=2 --reduce-dtype bf16", "--mesh dp=2", 2) == "--reduce-dtype bf16 (was full)");
    CHECK(said(pipeline + "1f1b", "--mesh dp=2 --layers 4 --batch 24 --clip 0", 2).empty());
}

namespace {

/// A strategy as text, without what makes no difference in it, and without what the planner tries or does not look at.
std::string text_of(pentad::Strategy s) {
    s.order = pentad::axis_order;
    s.block.row_parts = pentad::Strategy().block.row_parts;
    bool const is_pipeline = s.pp > 1;
    auto const* const generator = pentad::pipeline::find_generator(is_pipeline ? s.schedule : "1f1b");
    s.schedule = generator->name;
    if (!is_pipeline || s.chunks == 0) s.chunks = generator->least_chunks;
    s.pairs = s.pairs && generator->has_pairs;
    if (!is_pipeline) s.balances_stages = false, s.stage_layers.clear();
    if (s.tp == 1) s.block.sequence_parallel = false;
    if (s.sharding.stage == 0) s.sharding.ranks = 0;
    return pentad::io::to_json(s);
}

} // namespace

TEST_CASE("what --mesh auto asks the planner for has the run that every flag describes among its plans") {
    namespace planner = pentad::planner;
    std::set<std::string> asked; // many flags change no plan
    int compared = 0;
    for (auto const& c : changes()) {
        if (c.other.stages == "1,3" || c.other.cp == "auto" || c.other.slices > 1) continue; // the planner has none
        auto const run = text_of(strategy_of(c.other));
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
        using pentad::Strategy;
        for (auto const axis : {&Strategy::dp, &Strategy::pp, &Strategy::ep, &Strategy::cp, &Strategy::tp})
            request.open.remove(axis);
        std::string nearest;
        bool found = false;
        planner::Pipelines pipelines;
        planner::for_each_configuration(
            request, pipelines, [&](double, double) { return !found; },
            [&](pentad::Strategy const& plan, planner::Bounds const&) {
                nearest = text_of(plan);
                found = found || nearest == run;
            });
        ++compared;
        CHECK_MESSAGE(found, c.line, "\n  run     ", run, "\n  planned ", nearest,
                      planner::misfit(request.model, strategy_of(c.other)));
    }
    CHECK(compared > 100);
}

namespace {

/// Draws how a run of eight layers may lie on 8 ranks; about half of what it draws is legal.
pentad::Strategy drawn_strategy(std::mt19937& random, bool has_experts) {
    using namespace pentad;
    auto const below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
    auto const one_of = [&]<class T>(std::vector<T> const& list) { return list[below(list.size())]; };
    auto const sometimes = [&] { return below(4) == 0; };
    Strategy s;
    for (int factor = 0; factor < 3; ++factor) {
        std::vector<std::int64_t*> axes{&s.dp, &s.pp, &s.cp, &s.tp};
        if (has_experts) axes.push_back(&s.ep);
        *one_of(axes) *= 2;
    }
    std::shuffle(s.order.begin(), s.order.end(), random);
    if (has_experts && s.ep == 1 && sometimes()) s.experts = model::ExpertMesh{2, 1};
    s.batch = one_of(std::vector<std::int64_t>{16, 32, 64});
    s.micro_batches = one_of(std::vector<std::int64_t>{1, 2, 4});
    s.seq = one_of(std::vector<std::int64_t>{32, 64});
    if (s.pp > 1) {
        s.schedule = one_of(
            std::vector<std::string>{"1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe", "pipedream"});
        if (sometimes()) s.chunks = 2;
        s.pairs = s.schedule == "dualpipe" && s.expert_mesh().ep > 1 && !sometimes();
        if (sometimes()) s.balances_stages = true;
    }
    if (s.tp == 4 && sometimes()) s.block.tensor_kind = model::TensorKind::two_d;
    if (s.tp > 1) s.block.sequence_parallel = sometimes();
    if (s.tp > 1 && sometimes()) s.block.attention_output = model::AttentionOutput::all_to_all;
    if (s.cp > 1) {
        s.block.use(model::ContextChoice{static_cast<model::ContextChoice::Kind>(below(4)), 0, 0}.on(s.cp));
        s.block.zigzag = sometimes();
    }
    if (has_experts && sometimes()) s.block.row_parts = 2;
    if (sometimes())
        for (auto left = 1 + below(8); left > 0; --left) {
            auto& block = s.blocks.emplace_back(s.block);
            if (sometimes()) block.sequence_parallel = !block.sequence_parallel;
            if (sometimes()) block.attention_output = model::AttentionOutput::all_to_all;
            if (sometimes()) block.mesh = model::BlockMesh{1, std::int64_t{1} << below(3)};
        }
    while (!s.blocks.empty() && s.blocks.back() == s.block) s.blocks.pop_back();
    using Kind = model::Recomputation::Kind;
    if (sometimes()) s.recompute = {.kind = Kind::full, .every = 1 + below(2)};
    if (sometimes()) s.recompute = {.kind = Kind::selective, .pieces = {model::Piece::norms, model::Piece::attention}};
    s.sharding.stage = static_cast<int>(below(4));
    if (s.sharding.stage == 3) s.sharding.keeps_parameters = sometimes();
    if (s.sharding.stage >= 2) s.sharding.accumulates_gradients = sometimes();
    if (s.sharding.stage > 0 && s.dp >= 4 && sometimes()) s.sharding.ranks = 2;
    s.sharding.releases_gradients = s.pp == 1 && sometimes();
    if (s.dp == 8 && sometimes())
        s.local = {.steps = 3, .ranks = 2, .outer_learning_rate = 0.7, .outer_momentum = 0.9}, s.sharding = {};
    if (sometimes()) s.bucket_elements = 1000;
    s.optimizer = one_of(std::vector<model::Optimizer>{
        model::AdamW(), model::AdamW{.beta1 = 0.8, .weight_decay = 0}, model::Sgd(), model::Sgd{.nesterov = true},
        model::Lion(), model::Muon(), model::Muon{.rate = model::MuonRate::match_rms_adamw, .others = {.beta2 = 0.9}}});
    s.element = one_of(std::vector<model::Element>{model::Element::f64, model::Element::f32, model::Element::bf16});
    if (sometimes()) s.precision.reduce = Compact::bf16;
    if (has_experts && sometimes()) s.precision.rows = Compact::fp8;
    if (sometimes()) s.precision.moments = Compact::bf16;
    if (s.element == model::Element::bf16) s.precision.keeps_masters = !sometimes();
    if (s.pp == 1 && sometimes()) s.offload = {.optimizer = true, .folder = ".", .window_bytes = below(2) << 20};
    return s;
}

/// Without the place of axes with one rank, which join nothing.
pentad::Strategy with_order_of_ranks(pentad::Strategy s) {
    std::stable_partition(s.order.begin(), s.order.end(), [&](std::string_view axis) { return s.extent(axis) > 1; });
    auto const ones = std::find_if(s.order.begin(), s.order.end(), [&](auto axis) { return s.extent(axis) == 1; });
    std::sort(ones, s.order.end());
    return s;
}

} // namespace

TEST_CASE("the command of a plan asks train_lm for an equal strategy") {
    std::mt19937 random(1);
    int equal = 0, refused = 0;
    for (int draw = 0; equal < 300 && draw < 3000; ++draw) {
        bool const has_experts = draw % 2 == 0;
        auto const strategy = drawn_strategy(random, has_experts);
        std::string const model = "--layers 8 --hidden 64 --heads 8 --kv-heads 8 --ffn 64";
        auto const line = model + (has_experts ? " --experts 4 " : " ") + pentad::report::run_flags(strategy);
        auto const options = accepted(line, 8);
        if (!options) {
            ++refused;
            continue;
        }
        ++equal;
        CHECK_MESSAGE(with_order_of_ranks(strategy_of(*options)) == with_order_of_ranks(strategy), line, "\n",
                      pentad::io::to_json(strategy_of(*options)), pentad::io::to_json(strategy));
    }
    CHECK(equal == 300);
    MESSAGE(equal, " accepted, ", refused, " refused");
}
