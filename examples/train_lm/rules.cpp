#include "rules.hpp"

#include "flags.hpp"
#include "options.hpp"

#include <pentad/model/parameter_count.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/report/field_flags.hpp>
#include <pentad/strategy/why_not.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace train_lm {

namespace {

/// Something that has to hold, and the flag to change where it does not. Rules are asked thousands of times in the
/// search for a value that works, also about numbers that break others of them: none divides by zero or overflows.
struct Rule {
    Integer flag;
    bool (*holds)(Options const&);
    std::string (*reason)(Options const&);
};

using O = Options;

std::string indivisible(Integer member, O const& o, std::string const& by) {
    return given(member, o) + " is not divisible by " + by;
}
bool has_mamba(O const& o);

/// At most: as if every layer had each of the parts. Without the model itself, which other rules may refuse.
double parameters(O const& o) {
    namespace model = pentad::model;
    if (o.described) return o.described_parameters;
    auto const size = [](std::int64_t number) { return static_cast<std::size_t>(std::max<std::int64_t>(number, 1)); };
    auto const of = [&](model::Part const& part) { return model::parameter_count(part, size(o.hidden)); };
    double layer = o.latent_attention.empty() ? of(model::Attention{.heads = size(o.heads),
                                                                    .kv_heads = size(o.kv_heads),
                                                                    .head_dim = size(o.hidden) / size(o.heads)})
                                              : of(latent_of(o).part);
    if (has_mamba(o)) layer += of(mamba_of(o));
    layer += o.experts > 0 ? of(model::Experts{.count = size(o.experts),
                                               .width = size(o.expert_ffn > 0 ? o.expert_ffn : o.ffn),
                                               .shared = static_cast<std::size_t>(o.shared_experts)})
                           : of(model::GatedMlp{size(o.ffn)});
    return static_cast<double>(o.layers) * layer +
           model::parameter_count(model::Model{.hidden = size(o.hidden), .vocab = size(o.vocab)});
}
constexpr double most_parameters = 0x1p42;
constexpr std::int64_t most_tokens = std::int64_t{1} << 36;

/// Whether the sizes of Mamba-2 are of the model.
bool has_mamba(O const& o) { return !o.described && o.mixers.find('m') != o.mixers.npos; }
std::string refused_cp_heads(O const& o) { return o.context().refused_heads(o.extent("cp")); }
std::string refused_cp_inner(O const& o) { return o.context().refused_inner(o.extent("cp")); }
/// Whether a token finds --top-k experts in --top-groups groups.
bool has_enough_in_groups(O const& o) {
    return o.top_groups < 1 || o.expert_groups < 1 || o.top_k <= product({o.top_groups, o.experts}) / o.expert_groups;
}
/// What the library does not ask: the sizes of models that flags describe, flags that are words of the library's
/// values, and what is not of a strategy.
constexpr std::array rules{
    Rule{&O::cp_heads, [](O const& o) { return refused_cp_heads(o).empty(); }, refused_cp_heads},
    Rule{&O::cp_inner, [](O const& o) { return refused_cp_inner(o).empty(); }, refused_cp_inner},
    Rule{&O::kv_heads, [](O const& o) { return divides(o.kv_heads, o.heads); },
         [](O const& o) { return given(&O::kv_heads, o) + " does not divide " + given(&O::heads, o); }},
    Rule{&O::hidden, [](O const& o) { return o.described || divides(o.heads, o.hidden); },
         [](O const& o) { return indivisible(&O::hidden, o, given(&O::heads, o)); }},
    Rule{&O::hidden,
         [](O const& o) {
             return o.described || !has_grouped_attention(o) || o.positions != "rope" || o.heads < 1 ||
                    !divides(o.heads, o.hidden) || o.hidden / o.heads % 2 == 0;
         },
         [](O const& o) {
             return given(&O::hidden, o) + " over " + given(&O::heads, o) + " gives heads of " +
                    text(o.hidden / o.heads) + ", and rotary embedding turns pairs";
         }},
    Rule{&O::top_k, [](O const& o) { return o.experts < 1 || o.top_k <= o.experts; },
         [](O const& o) { return given(&O::top_k, o) + " is more than " + given(&O::experts, o); }},
    Rule{&O::moe_every, [](O const& o) { return o.experts < 1 || o.moe_every <= o.layers; },
         [](O const& o) {
             return given(&O::moe_every, o) + " is more than " + given(&O::layers, o) +
                    ", so that no layer has experts";
         }},
    Rule{&O::dense_layers,
         [](O const& o) {
             return o.experts < 1 || o.described || o.moe_every < 1 ||
                    o.dense_layers < std::max<std::int64_t>(o.layers / o.moe_every * o.moe_every, 1);
         },
         [](O const& o) {
             return given(&O::dense_layers, o) + " of " + given(&O::layers, o) + " leaves no layer with experts";
         }},
    Rule{&O::expert_groups, [](O const& o) { return o.experts < 1 || divides(o.expert_groups, o.experts); },
         [](O const& o) { return given(&O::expert_groups, o) + " does not divide " + given(&O::experts, o); }},
    Rule{&O::top_groups, [](O const& o) { return o.experts < 1 || o.top_groups <= o.expert_groups; },
         [](O const& o) { return given(&O::top_groups, o) + " is more than " + given(&O::expert_groups, o); }},
    Rule{&O::top_groups, [](O const& o) { return o.experts < 1 || o.described || has_enough_in_groups(o); },
         [](O const& o) {
             return given(&O::top_groups, o) + " of " + given(&O::expert_groups, o) + " have fewer experts than " +
                    given(&O::top_k, o);
         }},
    Rule{&O::vocab,
         [](O const& o) {
             return !o.tokens.empty() || (o.described ? o.vocab == bytes_of_text : o.vocab >= bytes_of_text);
         },
         [](O const& o) {
             if (!o.described)
                 return given(&O::vocab, o) + " is less than the " + text(bytes_of_text) + " bytes of text";
             return "its vocabulary has " + text(o.vocab) + " tokens, and those of text are its " +
                    text(bytes_of_text) + " bytes: give the model's own with --tokens FILE";
         }},
    Rule{&O::validate_every, [](O const& o) { return divides(o.strategy.local.steps, o.validate_every); },
         [](O const& o) {
             return given(&O::validate_every, o) + " is not divisible by " + given(of_strategy("--local-steps"), o) +
                    ", between which there is no one model";
         }},
    Rule{&O::batch, [](O const& o) { return product({o.batch, o.strategy.seq}) <= most_tokens; },
         [](O const& o) {
             return given(&O::batch, o) + " x " + given(of_strategy("--seq"), o) + " is more than " +
                    text(most_tokens) + " tokens in a step";
         }},
};

/// The limits of each flag, as rules of the table.
bool in_range(LimitedInteger const& value, O const& o) {
    return value.number.get(o) >= value.least && value.number.get(o) <= value.most;
}

std::vector<LimitedInteger> const& integer_values() {
    static std::vector<LimitedInteger> const values = [] {
        std::vector<LimitedInteger> found;
        for (FlagGroup const& group : flag_groups())
            for (Flag const& flag : group.flags)
                if (auto const value = integer_of(flag)) found.push_back(*value);
        return found;
    }();
    return values;
}

/// Options with which a model can be made, the nearest to these: what the library refuses is asked also where sizes of
/// the model do not go together, which the rules above say.
O with_model(O o) {
    if (o.described) return o;
    auto const heads = std::max<std::int64_t>(o.heads, 1);
    if (o.hidden % (2 * heads) != 0) o.hidden = std::max<std::int64_t>(o.hidden / (2 * heads), 1) * 2 * heads;
    if (!divides(o.kv_heads, heads)) o.kv_heads = heads;
    o.top_k = std::min(o.top_k, std::max<std::int64_t>(o.experts, 1));
    o.moe_every = std::min(o.moe_every, o.layers);
    if (!divides(o.expert_groups, o.experts) || o.top_groups > o.expert_groups) o.expert_groups = o.top_groups = 1;
    return o;
}

/// The refusals of the library, as faults of flags; none where numbers are beyond their limits.
std::vector<Fault> library_faults(O const& given) {
    for (auto const& value : integer_values())
        if (!in_range(value, given)) return {};
    if (parameters(given) > most_parameters) return {};
    auto const o = with_model(given);
    auto strategy = strategy_of(o);
    if (!o.schedule_file.empty()) { // which says all of the schedule
        strategy.balances_stages = true;
        strategy.pairs = false;
    }
    std::vector<Fault> faults;
    for (auto const& refused : pentad::all_refusals(make_model(o), strategy))
        faults.push_back({flag_of_field(refused.field, o), in_flags(refused.why, o)});
    return faults;
}

/// Which of the ranges and of the rules above are broken, and the flags that the library refuses.
struct Broken {
    std::vector<bool> rules;
    std::vector<std::string_view> flags{};

    [[nodiscard]] std::size_t count() const {
        return flags.size() + static_cast<std::size_t>(std::count(rules.begin(), rules.end(), true));
    }
    /// Whether something is broken here that was not `before`, but for what was broken first.
    [[nodiscard]] bool has_more_than(Broken const& before) const {
        auto const first = before.first();
        for (std::size_t i = 0; i < rules.size(); ++i)
            if (rules[i] && (i == first || !before.rules[i])) return true;
        return std::any_of(flags.begin(), flags.end(), [&](std::string_view flag) {
            bool const was = std::find(before.flags.begin(), before.flags.end(), flag) != before.flags.end();
            return !was || (first == before.rules.size() && flag == before.flags.front());
        });
    }
    /// Whether what was broken first is so no more.
    [[nodiscard]] bool has_mended(Broken const& before) const {
        auto const first = before.first();
        if (first < rules.size()) return !rules[first];
        return std::find(flags.begin(), flags.end(), before.flags.front()) == flags.end();
    }
    [[nodiscard]] std::size_t first() const {
        return static_cast<std::size_t>(std::find(rules.begin(), rules.end(), true) - rules.begin());
    }
};

Broken broken_rules(O const& o) {
    Broken broken;
    auto const ask = [&](bool holds) { broken.rules.push_back(!holds); };
    for (auto const& value : integer_values()) ask(in_range(value, o));
    for (auto const& rule : rules) ask(rule.holds(o));
    ask(parameters(o) <= most_parameters);
    for (auto const& fault : library_faults(o)) broken.flags.push_back(fault.flag);
    return broken;
}

/// The flag that makes the model too large: the one most above its default.
Integer largest_size(O const& o) {
    static constexpr std::array sizes{&O::layers, &O::hidden, &O::ffn, &O::experts, &O::vocab};
    O const defaults;
    auto const excess = [&](std::int64_t O::* size) {
        return static_cast<double>(o.*size) / static_cast<double>(std::max<std::int64_t>(defaults.*size, 8));
    };
    return *std::max_element(sizes.begin(), sizes.end(), [&](auto a, auto b) { return excess(a) < excess(b); });
}

void set(O& o, Integer number, std::int64_t value) {
    number.set(o, value);
    if (number == &O::batch) o.batch_given = true;
    if (number == &O::kv_heads) o.kv_heads_given = true;
    follow(o);
}

} // namespace

std::string_view flag_of_field(std::string_view field, O const& o) {
    bool const is_of_all = field == "expert_ffn" && o.expert_ffn == 0; // experts have the width of other layers
    return pentad::report::flag_of(is_of_all ? "ffn" : field);
}

std::string in_flags(std::string const& why, O const& o) {
    auto text = pentad::report::in_flags(why, [](std::string_view flag) { return find_flag(flag) != nullptr; });
    constexpr std::string_view own = "--expert-ffn ";
    if (auto const at = text.find(own); o.expert_ffn == 0 && at != text.npos) text.replace(at, own.size(), "--ffn ");
    return text;
}

bool has_attention(O const& o) {
    return o.described ? o.described->first<pentad::model::Attention>() != nullptr ||
                             o.described->first<pentad::model::LatentAttention>() != nullptr
                       : o.mixers.find('a') != o.mixers.npos;
}
bool has_grouped_attention(O const& o) {
    return o.described ? o.described->first<pentad::model::Attention>() != nullptr
                       : o.latent_attention.empty() && has_attention(o);
}

Integer integer_of(std::string_view name) {
    auto const* const flag = find_flag(name);
    auto const value = flag == nullptr ? std::nullopt : integer_of(*flag);
    return value ? value->number : Integer();
}

bool is_of_model(std::string_view name) {
    auto const flag = integer_of(name);
    if (!flag) return false;
    for (Integer const size : std::initializer_list<Integer>{
             &O::layers, &O::hidden, &O::heads, &O::kv_heads, &O::ffn, &O::vocab, &O::experts, &O::top_k, &O::moe_every,
             &O::expert_ffn, &O::shared_experts, &O::dense_layers, &O::expert_groups, &O::top_groups, &O::state,
             &O::groups, &O::expand, &O::conv, &O::chunk})
        if (flag == size) return true;
    return false;
}

std::size_t fault_count(Options const& options) { return broken_rules(options).count(); }

std::optional<Fault> first_fault(O const& o) {
    for (auto const& value : integer_values())
        if (!in_range(value, o))
            return Fault{flag_of(value.number).name,
                         given(value.number, o) + " is not between " + text(value.least) + " and " + text(value.most)};
    for (auto const& rule : rules)
        if (!rule.holds(o)) return Fault{flag_of(rule.flag).name, rule.reason(o)};
    if (parameters(o) > most_parameters) {
        auto const flag = largest_size(o);
        return Fault{flag_of(flag).name, given(flag, o) + " makes a model of more than 4e12 parameters"};
    }
    auto faults = library_faults(o);
    if (faults.empty()) return std::nullopt;
    return std::move(faults.front());
}

std::optional<O> nearest(O o, Integer number, std::function<bool(Options const&)> const& works) {
    auto flag = *integer_of(flag_of(number));
    if (number == &O::experts && o.experts > 0) flag.least = 1; // a model with experts stays one
    if (number == &O::batch)                                    // at once what the mesh divides, which may be far
        if (auto const divisor = o.batch_divisor(); divisor > o.batch && divisor <= flag.most) {
            auto rounded = o;
            set(rounded, number, divisor);
            if (works(rounded)) return rounded;
        }
    // From far outside one does not look at the edge, but around the default.
    bool const outside = number.get(o) > flag.most || parameters(o) > most_parameters ||
                         product({o.batch, o.strategy.seq}) > most_tokens;
    for (std::int64_t const start :
         {outside ? number.get(O{}) : std::max(number.get(o), flag.least), number.get(O{})}) {
        std::int64_t const furthest = std::min(std::max(flag.most - start, start - flag.least), std::int64_t{1} << 12);
        for (std::int64_t distance = 0; distance <= furthest; ++distance)
            for (std::int64_t const candidate : {start + distance, start - distance}) {
                if (candidate < flag.least || candidate > flag.most) continue;
                set(o, number, candidate);
                if (works(o)) return o;
            }
    }
    return std::nullopt;
}

bool repair(O& o, Fault const& fault) {
    auto const number = integer_of(fault.flag);
    if (!number) return false;
    if (parameters(o) > most_parameters) {
        set(o, number, number.get(O{})); // which of the sizes is left is not for us to say
        return true;
    }
    Broken const before = broken_rules(o);
    auto repaired = nearest(o, number, [&](O const& other) { return !broken_rules(other).has_more_than(before); });
    if (!repaired)
        repaired = nearest(o, number, [&](O const& other) { return broken_rules(other).has_mended(before); });
    if (repaired)
        o = std::move(*repaired);
    else
        set(o, number, number.get(O{}));
    return true;
}

} // namespace train_lm
