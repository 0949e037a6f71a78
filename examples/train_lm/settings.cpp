#include "settings.hpp"

#include "flags.hpp"

#include <pentad/mesh/number.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/router.hpp>

#include <algorithm>
#include <exception>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace train_lm {

namespace {

/// Whether stages update their weights at times of their own. The answer for a schedule file that cannot be read is
/// true, the likely one.
bool is_asynchronous(Options const& o) {
    if (o.schedule_file.empty()) return updates_often(o);
    try {
        return make_schedule(o).updates > 1;
    } catch (std::exception const&) {
        return true;
    }
}

/// Options with what their values stand for, and the flags that say nothing in such a run.
struct InForce {
    Options options;
    std::set<std::string_view> silent{};
};

void set_optimizer(InForce& f) {
    auto& o = f.options;
    for (auto const* const flag : {"--beta1", "--beta2", "--epsilon", "--momentum", "--nesterov", "--muon-rate"})
        if (auto const with = optimizers_with(flag); std::find(with.begin(), with.end(), o.optimizer) == with.end())
            f.silent.insert(flag);
    bool const is_muon = o.optimizer == "muon";
    if (o.momentum < 0) o.momentum = is_muon ? pentad::model::Muon().momentum : pentad::model::Sgd().momentum;
    if (o.nesterov.empty()) o.nesterov = is_muon ? "on" : "off";
}

void set_router(InForce& f) {
    namespace model = pentad::model;
    auto& o = f.options;
    auto const described = make_model(o);
    auto const* const experts = described.first<model::Experts>();
    model::Router const router = experts != nullptr ? experts->router : model::Router{};
    bool const experts_choose = router.choice == model::RouterChoice::expert_choice;
    if (experts_choose && o.capacity == 0) o.capacity = 1;
    if (experts == nullptr)
        f.silent.insert(
            {"--aux-coef", "--z-coef", "--row-dtype", "--bias-rate", "--bias-step", "--capacity", "--drop"});
    if (router.balance_loss == model::BalanceLoss::none) f.silent.insert("--aux-coef");
    if (!router.has_bias) f.silent.insert({"--bias-rate", "--bias-step"});
    if (o.capacity == 0 || experts_choose) f.silent.insert("--drop");
    // Whatever looks at the tokens of a micro-batch together.
    bool const sees_micro_batch =
        experts != nullptr && (router.balance_loss == model::BalanceLoss::micro_batch || router.capacity > 0 ||
                               experts_choose || router.choice == model::RouterChoice::sinkhorn || router.jitter > 0);
    if (!is_asynchronous(o) && !sees_micro_batch) f.silent.insert("--micro-batches");
}

InForce in_force(Options const& given) {
    InForce f{given};
    auto& o = f.options;
    if (o.min_lr < 0) o.min_lr = 0.1 * o.lr;
    set_optimizer(f);
    set_router(f);
    if (o.mtp == 0) f.silent.insert("--mtp-coef");
    if (o.strategy.element != pentad::model::Element::bf16) f.silent.insert("--master-weights");
    if (std::all_of(o.tokens.begin(), o.tokens.end(), [](auto const& path) { return path.ends_with(".npy"); }))
        f.silent.insert("--token-type");
    if (o.token_type.empty()) o.token_type = "uint16";
    if (o.strategy.local.steps == 0) f.silent.insert({"--local-ranks", "--outer-lr", "--outer-momentum"});
    // The mesh is in the numbers where stages are apart in time, groups train apart, or what travels is rounded.
    bool const is_apart = is_asynchronous(o);
    if (!is_apart && o.strategy.local.steps == 0 && pentad::Compact::none == o.strategy.precision.reduce &&
        pentad::Compact::none == o.strategy.precision.rows)
        f.silent.insert("--mesh");
    if (is_apart) return f;
    f.silent.insert("--stages");
    o.strategy.schedule = Options{}.strategy.schedule; // one synchronous schedule is as good as another
    o.schedule_file.clear();
    return f;
}

/// A value as a user would give it, or what it is where it is not given: "a tenth of --lr".
std::string shown(Flag const& flag, Options const& given, Options const& effective) {
    auto const* const real = std::get_if<RealValue>(&flag.value);
    constexpr std::string_view mark = "(default: ";
    auto const at = flag.help.find(mark);
    bool const stands_for_default = real != nullptr && given.*real->member < real->least;
    if (stands_for_default && at != flag.help.npos && at == flag.help.rfind(mark)) {
        auto const text = flag.help.substr(at + mark.size());
        return text.substr(0, text.find(')'));
    }
    bool const is_schedule =
        flag.name == "--schedule" || flag.name == "--schedule-file"; // in force is any that is alike
    auto text = value_text(flag, is_schedule ? given : effective);
    return text.empty() ? "none" : text;
}

bool is_same(pentad::model::Model const& a, pentad::model::Model const& b) {
    return a.blocks == b.blocks && a.predictors == b.predictors && a.hidden == b.hidden && a.vocab == b.vocab &&
           a.ties_embeddings == b.ties_embeddings;
}

/// Whether a flag of the model makes another one, of which config.json says nothing: it would have been refused.
bool changes_model(Flag const& flag, Options const& now, std::string const& before) {
    if (flag.is_switch() || value_text(flag, now) == before) return false;
    Options other = now;
    set_value(other, flag, before);
    return !is_same(make_model(other), make_model(now));
}

} // namespace

void set_value(Options& o, Flag const& flag, std::string const& text) {
    Options const defaults;
    std::visit(Overloaded{
                   [&]<class Number, class Member>(NumberValue<Number, Member> const& target) {
                       auto const number = pentad::number_in<Number>(text);
                       o.*target.member = number ? Member(*number) : defaults.*target.member;
                   },
                   [&](ChoiceValue const& target) { o.*target.member = text.empty() ? defaults.*target.member : text; },
                   [&](TextValue const& target) { o.*target.member = text.empty() ? defaults.*target.member : text; },
                   [](ListValue const&) {},
                   [&](MeshValue) { o.mesh = mesh_of(text); },
                   [&](StrategyValue const& target) {
                       if (!pentad::report::set_flag(o.strategy, *target.row, text))
                           pentad::report::set_flag(o.strategy, *target.row,
                                                    pentad::report::flag_value(defaults.strategy, *target.row));
                   },
                   [&](Switch const& target) { o.*target.member = text == "on"; },
               },
               flag.value);
}

std::set<std::string_view> silent_flags(Options const& options) { return in_force(options).silent; }

std::string changed_settings(Options const& now, StoredValue const& before) {
    Options earlier = now;
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (flag.effect == Effect::numbers) set_value(earlier, flag, before(flag.name));
    auto const was = in_force(earlier), is = in_force(now);
    bool const is_described_alike = now.model.empty() == before("--model").empty(); // by flags, or by a file with flags
    std::string differences;
    auto const add = [&](Flag const& flag, std::string const& own, std::string const& theirs) {
        if (own == theirs) return; // it follows another, which is listed
        differences += (differences.empty() ? "" : ", ") + std::string(flag.name) + " " + own + " (was " + theirs + ")";
    };
    auto const or_none = [](std::string const& text) { return text.empty() ? std::string("none") : text; };
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags) {
            auto const name = flag.name;
            if (flag.effect == Effect::model && is_described_alike && changes_model(flag, now, before(name)))
                add(flag, or_none(value_text(flag, now)), or_none(before(name)));
            if (flag.effect != Effect::numbers || is.silent.contains(name) ||
                value_text(flag, is.options) == value_text(flag, was.options))
                continue;
            bool const had_effect = !was.silent.contains(name);
            if (!had_effect) { // a default that follows from another flag is listed with that one
                Options usual = now;
                set_value(usual, flag, "");
                if (value_text(flag, is.options) == value_text(flag, in_force(usual).options)) continue;
            }
            add(flag, shown(flag, now, is.options), had_effect ? shown(flag, earlier, was.options) : "without effect");
        }
    return differences;
}

} // namespace train_lm
