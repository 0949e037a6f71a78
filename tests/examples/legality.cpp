// One list of rules: of random models and strategies, legal and not, why_not() refuses those that a trainer, the
// planner and train_lm refuse, and no others.
#include <doctest/doctest.h>

#include "train_lm/configuration.hpp"
#include "train_lm/flags.hpp"
#include "train_lm/rules.hpp"
#include "train_lm/settings.hpp"

#include <pentad/io/strategy_file.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/report/field_flags.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/strategy/fields.hpp>
#include <pentad/strategy/why_not.hpp>
#include <pentad/train/elements.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/trainer.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

using namespace train_lm;
using pentad::Strategy;

namespace {

class Draw {
  public:
    explicit Draw(unsigned seed) : random_(seed) {}
    template <class T>
    T of(std::vector<T> const& list) {
        return list[std::uniform_int_distribution<std::size_t>(0, list.size() - 1)(random_)];
    }
    std::int64_t number(std::vector<std::int64_t> const& list) { return of(list); }
    bool once_in(int n) { return std::uniform_int_distribution<int>(1, n)(random_) == 1; }

  private:
    std::mt19937 random_;
};

/// A strategy on 24 ranks at most; a part of what it draws is legal.
Strategy drawn(Draw& draw, bool has_experts) {
    using namespace pentad;
    Strategy s;
    s.dp = draw.number({1, 1, 2, 3, 4});
    s.pp = draw.number({1, 1, 1, 2, 3});
    s.cp = draw.number({1, 1, 1, 2, 4});
    s.tp = draw.number({1, 1, 2, 3, 4});
    if (has_experts || draw.once_in(8)) s.ep = draw.number({1, 1, 2, 3});
    if (has_experts && draw.once_in(4)) s.experts = model::ExpertMesh{draw.of<int>({1, 2, 3}), draw.of<int>({1, 2})};
    s.micro_batches = draw.number({1, 2, 4});
    s.batch = draw.number({12, 24, 48, 96});
    s.seq = draw.number({16, 17, 32});
    if (s.pp > 1) {
        s.schedule =
            draw.of<std::string>({"1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "zb-v", "dualpipe", "pipedream"});
        s.chunks = draw.number({0, 0, 0, 2, 3});
        s.pairs = s.schedule == "dualpipe" && draw.once_in(2);
        if (draw.once_in(3)) s.stage_layers = draw.of<std::vector<std::int64_t>>({{1, 3}, {2, 2}, {2, 1, 1}, {4, 0}});
    }
    if (draw.once_in(6))
        s.block.tensor_kind = draw.of<model::TensorKind>({model::TensorKind::two_d, model::TensorKind::three_d});
    s.block.sequence_parallel = draw.once_in(4);
    if (draw.once_in(4)) s.block.attention_output = model::AttentionOutput::all_to_all;
    if (s.cp > 1) {
        s.block.use(
            model::ContextChoice{static_cast<model::ContextChoice::Kind>(draw.number({0, 1, 2})), 0, 0}.on(s.cp));
        s.block.zigzag = draw.once_in(2);
    }
    if (draw.once_in(4))
        for (auto i = draw.number({1, 2, 4}); i-- > 0;) {
            auto& block = s.blocks.emplace_back(s.block);
            if (draw.once_in(2)) block.sequence_parallel = !block.sequence_parallel;
            if (draw.once_in(4)) block.attention_output = model::AttentionOutput::all_to_all;
            if (draw.once_in(16)) block.row_parts = draw.number({0, 2});
            if (draw.once_in(3)) {
                block.mesh = model::BlockMesh{draw.number({1, 1, 2, 3}), draw.number({1, 2, 4, 5})};
                block.use({});
            }
            if (draw.once_in(16)) block.tensor_kind = model::TensorKind::two_d;
        }
    while (!s.blocks.empty() && s.blocks.back() == s.block) s.blocks.pop_back();
    s.sharding.stage = static_cast<int>(draw.number({0, 0, 1, 2, 3}));
    s.sharding.ranks = draw.once_in(4) ? static_cast<int>(draw.number({1, 2, 3})) : 0;
    s.sharding.keeps_parameters = draw.once_in(6);
    s.sharding.accumulates_gradients = draw.once_in(6);
    s.sharding.releases_gradients = draw.once_in(8);
    if (draw.once_in(6)) s.local = {.steps = 2, .ranks = static_cast<int>(draw.number({1, 2, 3}))};
    s.element = draw.of<model::Element>({model::Element::f64, model::Element::f32, model::Element::bf16});
    s.precision.keeps_masters = !draw.once_in(6);
    if (draw.once_in(4)) s.recompute = {.kind = model::Recomputation::Kind::full, .every = 1};
    return s;
}

/// The sizes of a model, as flags.
std::string drawn_sizes(Draw& draw, bool has_experts) {
    auto const flag = [](std::string const& name, std::int64_t value) {
        return name + " " + std::to_string(value) + " ";
    };
    auto const heads = draw.number({2, 4, 6, 12}), kv_heads = heads / draw.number({1, 1, 2});
    std::string line = flag("--layers", draw.number({2, 3, 4, 6})) + flag("--heads", heads) +
                       flag("--kv-heads", std::max<std::int64_t>(kv_heads, 1)) +
                       flag("--hidden", heads * draw.number({4, 8})) + flag("--ffn", draw.number({16, 24, 36})) +
                       "--clip 0 ";
    if (draw.once_in(5)) line += "--mixers m,a --state 8 " + flag("--groups", draw.number({1, 2}));
    if (draw.once_in(5)) line += "--tie-embeddings ";
    if (has_experts) line += flag("--experts", draw.number({2, 4, 6})) + flag("--expert-ffn", draw.number({8, 12, 15}));
    if (has_experts && draw.once_in(3)) line += flag("--shared-experts", 1);
    return line;
}

/// What flags say, whether it is legal or not.
Options options_of(std::string const& line) {
    Options o;
    o.mesh = mesh_of("dp=1");
    std::istringstream words(line);
    Flag const* flag = nullptr;
    for (std::string word; words >> word;) {
        if (!word.starts_with("--")) {
            REQUIRE(flag != nullptr);
            set_value(o, *flag, word);
            continue;
        }
        flag = find_flag(word);
        REQUIRE_MESSAGE(flag != nullptr, word);
        if (flag->is_switch()) set_value(o, *flag, "on");
    }
    o.kv_heads_given = o.batch_given = true;
    return o;
}

template <class T>
void make_dry(Options const& o, pentad::pipeline::Schedule const& schedule) {
    using Exec = Kokkos::DefaultExecutionSpace;
    pentad::observe::DryRun const run;
    pentad::comm::Communicators communicators(make_mesh(o, schedule), 0, 64);
    pentad::Context<Exec> const context(communicators);
    auto const& stream = pentad::model::stream_layout<T>(o.strategy.block);
    static std::string const text(4000, 'x');
    pentad::io::TokenData const data(text, "a text", o.strategy.seq, 1);
    pentad::train::Trainer<T, Exec> const trainer(context, stream, make_settings(o),
                                                  pentad::train::ProvenSchedules(schedule), data);
}
/// Why no trainer can be made; empty where one can.
std::string refused_by_trainer(Options const& o) {
    try {
        auto const schedule = make_schedule(o);
        pentad::train::with_element(o.strategy.element, [&]<class T>(T) { make_dry<T>(o, schedule); });
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return {};
}

constexpr int trials = 5000;

} // namespace

TEST_CASE("the flags of fields are flags of train_lm, and the fields are of a strategy or sizes of a model") {
    std::set<std::string> fields{"layers", "hidden", "heads",          "kv_heads", "ffn",         "expert_count",
                                 "clip",   "groups", "shared_experts", "state",    "norm_groups", "expert_ffn"};
    pentad::for_each_field<Strategy>([&](auto const& field) {
        fields.insert(std::string(field.name));
        using Member = std::remove_cvref_t<decltype(Strategy{}.*field.member)>;
        if constexpr (pentad::HasFields<Member>)
            pentad::for_each_field<Member>(
                [&](auto const& inner) { fields.insert(std::string(field.name) + "." + std::string(inner.name)); });
    });
    for (auto const& known : pentad::report::field_flags) {
        CHECK_MESSAGE(find_flag(known.flag) != nullptr, known.flag);
        CHECK_MESSAGE(fields.contains(std::string(known.field)), known.field);
        CHECK(find_flag(known.flag)->is_switch() == known.is_switch);
    }
    auto const any = [](std::string_view) { return true; };
    CHECK(pentad::report::in_flags("heads = 6 is not divisible by tp = 4", any) ==
          "--heads 6 is not divisible by tp = 4");
    CHECK(pentad::report::in_flags("sharding.releases_gradients = on updates", any) == "--gradient-release updates");
    CHECK(pentad::report::in_flags("norm_groups = 2", [](auto flag) { return flag != "--groups"; }) ==
          "norm_groups = 2");
}

TEST_CASE("a trainer, the planner and train_lm refuse what why_not() refuses, in its words") {
    Draw draw(7);
    std::map<std::string, pentad::planner::Model> models;
    int legal = 0, same_words = 0, refused = 0;
    std::map<std::string_view, int> fields;
    for (int trial = 0; trial < trials; ++trial) {
        bool const has_experts = draw.once_in(2);
        auto const sizes = drawn_sizes(draw, has_experts);
        auto const strategy = drawn(draw, has_experts);
        auto const line = sizes + pentad::report::run_flags(strategy);
        auto const options = options_of(line);
        auto const ranks = static_cast<int>(strategy.devices());
        auto const model = make_model(options);
        auto const of_flags = strategy_of(options);
        auto const why = pentad::why_not(model, of_flags, ranks);
        CAPTURE(line);
        CAPTURE((why ? why->why : "legal"));
        auto const own = refusal(options, ranks);
        CHECK_MESSAGE(own.empty() == !why, "train_lm: ", own);
        auto const made = models.try_emplace(sizes, pentad::train::planned_model(model)).first;
        auto uneven = of_flags; // the planner deals layers by itself
        bool const deals = why && why->field == "layers";
        auto const planned = pentad::planner::misfit(made->second, uneven);
        CHECK_MESSAGE((planned.empty() == !why || deals), "the planner: ", planned);
        auto const trained = refused_by_trainer(options);
        bool const is_twice =
            strategy.ep > 1 && strategy.experts.has_value(); // a trainer has a mesh, which says it once
        CHECK_MESSAGE((trained.empty() == !why || is_twice), "the trainer: ", trained);
        if (!why) {
            ++legal;
            continue;
        }
        ++refused;
        ++fields[why->field];
        auto const all = pentad::all_refusals(model, of_flags, ranks);
        CHECK(all.front() == *why);
        same_words += std::any_of(all.begin(), all.end(), [&](pentad::Refusal const& other) {
            return own.starts_with(in_flags(other.why, options));
        });
    }
    std::string counts;
    for (auto const& [field, count] : fields) counts += " " + std::string(field) + " " + std::to_string(count);
    MESSAGE(legal, " legal, ", refused, " refused, ", same_words, " by train_lm in the same words;", counts);
    CHECK(legal > trials / 10);
    CHECK(refused > trials / 10);
    CHECK(fields.size() > 10);
}
