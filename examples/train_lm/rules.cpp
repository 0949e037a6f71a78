#include "rules.hpp"

#include "flags.hpp"
#include "options.hpp"

#include <pentad/model/batch_shape.hpp>
#include <pentad/model/parameter_count.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/model/tensor_kind.hpp>

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
std::string axis(std::string_view name, O const& o) { return std::string(name) + " = " + text(o.extent(name)); }

pentad::model::BatchShape batch_shape(O const& o) {
    using pentad::model::NamedProduct;
    return {.batch = o.batch,
            .micro_batches = o.micro_batches,
            .batch_axes = pentad::model::batch_axes(
                NamedProduct().times("dp", o.extent("dp")).times("ep", o.extent("ep")), o.tensor_divisors())};
}
/// "dp = 4": the ranks that share out the batch.
std::string data_ranks(O const& o) {
    if (o.extent("ep") == 1) return axis("dp", o);
    return pentad::model::NamedProduct().times("dp", o.extent("dp")).times("ep", o.extent("ep")).text();
}
/// Whether these can be cut into groups of n neighbours; 0: they are not.
bool cuts_data(O const& o, std::int64_t n) {
    auto const ep = o.extent("ep");
    return n == 0 || (divides(n, product({o.extent("dp"), ep})) && (divides(n, ep) || divides(ep, n)));
}
/// "tp = 4", and on a grid "6 of --tp-kind 2d".
std::string tensor_divisor(std::int64_t divisor, O const& o) {
    return o.tp_kind == "1d" ? axis("tp", o) : text(divisor) + " of --tp-kind " + o.tp_kind;
}

/// Whether the user says which layers are where; a file may.
bool has_own_stages(O const& o) { return !o.stages.empty() || !o.schedule_file.empty(); }

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

/// The width of dense blocks beside blocks with experts, which have that of --ffn; else that.
std::int64_t other_width(O const& o) {
    if (!o.described || o.experts == 0) return o.ffn;
    for (std::size_t i = 0; i < o.described->blocks.size(); ++i)
        if (auto const* mlp = o.described->find<pentad::model::GatedMlp>(i))
            return static_cast<std::int64_t>(mlp->width);
    return o.ffn;
}
/// Whether the sizes of Mamba-2, and of MLPs, are of the model.
bool has_mamba(O const& o) { return !o.described && o.mixers.find('m') != o.mixers.npos; }
bool has_mlp(O const& o) {
    return !o.described || o.described->first<pentad::model::GatedMlp>() != nullptr ||
           o.described->first<pentad::model::Experts>() != nullptr;
}
/// Whether no layer has another mixer.
bool is_alone(O const& o, char mixer) {
    return o.described ? !has_attention(o) : o.mixers.find_first_not_of(std::string(1, mixer) + ",") == o.mixers.npos;
}
/// Why the ranks of tp cannot share the recurrent layers.
std::string refused_recurrence(O const& o) {
    auto const ranks = static_cast<std::size_t>(std::max<std::int64_t>(o.extent("tp"), 1));
    if (o.described) return pentad::model::tensor_refusal(*o.described, ranks);
    return has_mamba(o) ? mamba_of(o).refusal(ranks) : "";
}
std::string refused_cp_heads(O const& o) { return o.context().refused_heads(o.extent("cp")); }
std::string refused_cp_inner(O const& o) { return o.context().refused_inner(o.extent("cp")); }
/// The ranks of tp that share out the heads.
std::int64_t head_ranks(O const& o) { return pentad::model::ranks_of_heads(o.tensor_kind(), o.extent("tp")); }
/// Whether the heads of a rank of tp can be exchanged as --cp says.
bool can_exchange_heads(O const& o) {
    if (!has_grouped_attention(o)) return true;
    if (!divides(o.tensor_divisors().heads, o.heads) || !refused_cp_heads(o).empty() || !refused_cp_inner(o).empty())
        return true;
    return o.context_split().refusal(o.extent("cp"), o.heads / head_ranks(o)).empty();
}
/// Whether a token finds --top-k experts in --top-groups groups.
bool has_enough_in_groups(O const& o) {
    return o.top_groups < 1 || o.expert_groups < 1 || o.top_k <= product({o.top_groups, o.experts}) / o.expert_groups;
}
constexpr std::array rules{
    Rule{&O::layers, [](O const& o) { return has_own_stages(o) || divides(o.stage_count(), o.layers); },
         [](O const& o) {
             return indivisible(&O::layers, o,
                                o.stage_count() == o.extent("pp")
                                    ? axis("pp", o)
                                    : "pp x chunks = " + text(o.extent("pp")) + " x " +
                                          text(o.stage_count() / o.extent("pp")) + " = " + text(o.stage_count()));
         }},
    Rule{&O::heads, [](O const& o) { return is_alone(o, 'm') || divides(o.tensor_divisors().heads, o.heads); },
         [](O const& o) { return indivisible(&O::heads, o, tensor_divisor(o.tensor_divisors().heads, o)); }},
    Rule{&O::heads, can_exchange_heads,
         [](O const& o) {
             return given(&O::heads, o) + " over " + tensor_divisor(head_ranks(o), o) + " gives " +
                    text(o.heads / head_ranks(o)) + ", which are not divisible by the " +
                    text(o.context_split().head_ranks(o.extent("cp"))) + " ranks of --cp " + o.cp;
         }},
    Rule{&O::cp_heads, [](O const& o) { return refused_cp_heads(o).empty(); }, refused_cp_heads},
    Rule{&O::cp_inner, [](O const& o) { return refused_cp_inner(o).empty(); }, refused_cp_inner},
    Rule{&O::kv_heads, [](O const& o) { return divides(o.kv_heads, o.heads); },
         [](O const& o) { return given(&O::kv_heads, o) + " does not divide " + given(&O::heads, o); }},
    Rule{&O::kv_heads,
         [](O const& o) {
             if (o.tp_kind != "1d") return divides(o.tensor_divisors().kv_heads, o.kv_heads);
             return !has_grouped_attention(o) || divides(o.extent("tp"), o.kv_heads) ||
                    divides(o.kv_heads, o.extent("tp"));
         },
         [](O const& o) {
             if (o.tp_kind != "1d")
                 return indivisible(&O::kv_heads, o, tensor_divisor(o.tensor_divisors().kv_heads, o));
             return given(&O::kv_heads, o) + " and " + axis("tp", o) + ": neither divides the other";
         }},
    Rule{&O::groups, [](O const& o) { return refused_recurrence(o).empty(); }, refused_recurrence},
    Rule{&O::hidden, [](O const& o) { return o.described || divides(o.heads, o.hidden); },
         [](O const& o) { return indivisible(&O::hidden, o, given(&O::heads, o)); }},
    Rule{&O::hidden, [](O const& o) { return divides(o.tensor_divisors().hidden, o.hidden); },
         [](O const& o) { return indivisible(&O::hidden, o, tensor_divisor(o.tensor_divisors().hidden, o)); }},
    Rule{&O::hidden,
         [](O const& o) {
             return o.described || !has_grouped_attention(o) || o.positions != "rope" || o.heads < 1 ||
                    !divides(o.heads, o.hidden) || o.hidden / o.heads % 2 == 0;
         },
         [](O const& o) {
             return given(&O::hidden, o) + " over " + given(&O::heads, o) + " gives heads of " +
                    text(o.hidden / o.heads) + ", and rotary embedding turns pairs";
         }},
    Rule{&O::ffn, [](O const& o) { return !has_mlp(o) || divides(o.tensor_divisors().width, o.ffn); },
         [](O const& o) { return indivisible(&O::ffn, o, tensor_divisor(o.tensor_divisors().width, o)); }},
    Rule{&O::ffn, [](O const& o) { return !has_mlp(o) || divides(o.tensor_divisors().width, other_width(o)); },
         [](O const& o) {
             return "intermediate_size " + text(other_width(o)) + " is not divisible by " +
                    tensor_divisor(o.tensor_divisors().width, o);
         }},
    Rule{&O::experts, [](O const& o) { return o.experts < 1 || divides(o.experts_on().ep, o.experts); },
         [](O const& o) { return indivisible(&O::experts, o, "ep = " + text(o.experts_on().ep)); }},
    Rule{&O::top_k, [](O const& o) { return o.experts < 1 || o.top_k <= o.experts; },
         [](O const& o) { return given(&O::top_k, o) + " is more than " + given(&O::experts, o); }},
    Rule{&O::moe_every, [](O const& o) { return o.experts < 1 || o.moe_every <= o.layers; },
         [](O const& o) {
             return given(&O::moe_every, o) + " is more than " + given(&O::layers, o) +
                    ", so that no layer has experts";
         }},
    Rule{&O::expert_ffn, [](O const& o) { return o.experts < 1 || divides(o.experts_on().etp, o.expert_ffn); },
         [](O const& o) {
             return indivisible(&O::expert_ffn, o,
                                (o.expert_mesh.empty() ? "tp = " : "etp = ") + text(o.experts_on().etp));
         }},
    Rule{&O::expert_ffn,
         [](O const& o) {
             return o.experts < 1 || divides(o.tensor_divisors().width, product({o.shared_experts, o.expert_ffn}));
         },
         [](O const& o) {
             return given(&O::shared_experts, o) + " of " + given(&O::expert_ffn, o) + " are not divisible by " +
                    tensor_divisor(o.tensor_divisors().width, o);
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
    Rule{&O::batch, [](O const& o) { return !batch_shape(o).refusal(); },
         [](O const& o) { return given(&O::batch, o) + " " + batch_shape(o).refusal()->why(); }},
    Rule{&O::zero, [](O const& o) { return o.zero_ranks < 1 || o.zero > 0; },
         [](O const& o) { return given(&O::zero_ranks, o) + " shards nothing with " + given(&O::zero, o); }},
    Rule{&O::zero, [](O const& o) { return !o.zero_keep || o.zero == 3; },
         [](O const& o) {
             return "--zero-keep on keeps gathered parameters, and " + given(&O::zero, o) + " gathers none";
         }},
    Rule{&O::zero, [](O const& o) { return !o.zero_accumulate || o.zero >= 2; },
         [](O const& o) {
             return "--zero-accumulate on is a choice of --zero 2 and 3: with " + given(&O::zero, o) +
                    " whole gradients are accumulated anyway";
         }},
    Rule{&O::zero_ranks, [](O const& o) { return cuts_data(o, o.zero_ranks); },
         [](O const& o) { return given(&O::zero_ranks, o) + " does not divide " + data_ranks(o); }},
    Rule{&O::zero_ranks, [](O const& o) { return o.zero_ranks == 0 || o.local_steps == 0; },
         [](O const& o) {
             return given(&O::zero_ranks, o) + " and " + given(&O::local_steps, o) +
                    " both split dp: ZeRO shards over the ranks that share every step (--local-ranks)";
         }},
    Rule{&O::local_ranks, [](O const& o) { return o.local_steps > 0 || o.local_ranks == 1; },
         [](O const& o) { return given(&O::local_ranks, o) + " says nothing without --local-steps"; }},
    Rule{&O::local_ranks, [](O const& o) { return cuts_data(o, o.local_ranks); },
         [](O const& o) { return given(&O::local_ranks, o) + " does not divide " + data_ranks(o); }},
    Rule{&O::local_ranks, [](O const& o) { return o.experts < 1 || o.local_steps == 0 || groups_hold_experts(o); },
         [](O const& o) {
             auto const on = o.experts_on();
             return "groups of " + given(&O::local_ranks, o) +
                    " hold no whole copies of the experts, which are on ep = " + text(on.ep) + " ranks";
         }},
    Rule{&O::local_steps,
         [](O const& o) { return o.local_steps == 0 || product({o.extent("dp"), o.extent("ep")}) > o.local_ranks; },
         [](O const& o) {
             return given(&O::local_steps, o) + " with " + given(&O::local_ranks, o) + " and " + data_ranks(o) +
                    ": there is one group, with none to average with";
         }},
    Rule{&O::validate_every, [](O const& o) { return divides(o.local_steps, o.validate_every); },
         [](O const& o) {
             return given(&O::validate_every, o) + " is not divisible by " + given(&O::local_steps, o) +
                    ", between which there is no one model";
         }},
    Rule{&O::batch, [](O const& o) { return product({o.batch, o.seq}) <= most_tokens; },
         [](O const& o) {
             return given(&O::batch, o) + " x " + given(&O::seq, o) + " is more than " + text(most_tokens) +
                    " tokens in a step";
         }},
};

/// The limits of each flag, as rules of the table.
bool in_range(IntegerValue const& value, O const& o) {
    return o.*value.member >= value.least && o.*value.member <= value.most;
}

std::vector<IntegerValue> const& integer_values() {
    static std::vector<IntegerValue> const values = [] {
        std::vector<IntegerValue> found;
        for (FlagGroup const& group : flag_groups())
            for (Flag const& flag : group.flags)
                if (auto const* value = std::get_if<IntegerValue>(&flag.value)) found.push_back(*value);
        return found;
    }();
    return values;
}

/// The rules that are broken: the ranges, the table above, the size of the model.
using Broken = std::vector<bool>;

Broken broken_rules(O const& o) {
    Broken broken;
    auto const ask = [&](bool holds) { broken.push_back(!holds); };
    for (auto const& value : integer_values()) ask(in_range(value, o));
    for (auto const& rule : rules) ask(rule.holds(o));
    ask(parameters(o) <= most_parameters);
    return broken;
}

/// The flag that makes the model too large: the one most above its default.
Integer largest_size(O const& o) {
    static constexpr std::array sizes{&O::layers, &O::hidden, &O::ffn, &O::experts, &O::vocab};
    O const defaults;
    auto const excess = [&](Integer size) {
        return static_cast<double>(o.*size) / static_cast<double>(std::max<std::int64_t>(defaults.*size, 8));
    };
    return *std::max_element(sizes.begin(), sizes.end(), [&](auto a, auto b) { return excess(a) < excess(b); });
}

void set(O& o, Integer member, std::int64_t value) {
    o.*member = value;
    if (member == &O::batch) o.batch_given = true;
    if (member == &O::kv_heads) o.kv_heads_given = true;
    follow(o);
}

} // namespace

bool has_attention(O const& o) {
    return o.described ? o.described->first<pentad::model::Attention>() != nullptr ||
                             o.described->first<pentad::model::LatentAttention>() != nullptr
                       : o.mixers.find('a') != o.mixers.npos;
}
bool has_grouped_attention(O const& o) {
    return o.described ? o.described->first<pentad::model::Attention>() != nullptr
                       : o.latent_attention.empty() && has_attention(o);
}

bool is_of_model(Integer flag) {
    for (Integer const size :
         {&O::layers, &O::hidden, &O::heads, &O::kv_heads, &O::ffn, &O::vocab, &O::experts, &O::top_k, &O::moe_every,
          &O::expert_ffn, &O::shared_experts, &O::dense_layers, &O::expert_groups, &O::top_groups, &O::state,
          &O::groups, &O::expand, &O::conv, &O::chunk})
        if (flag == size) return true;
    return false;
}

bool obeys_rules(Options const& options) {
    auto const broken = broken_rules(options);
    return std::find(broken.begin(), broken.end(), true) == broken.end();
}

std::optional<Fault> first_fault(O const& o) {
    for (auto const& value : integer_values())
        if (!in_range(value, o))
            return Fault{value.member,
                         given(value.member, o) + " is not between " + text(value.least) + " and " + text(value.most)};
    for (auto const& rule : rules)
        if (!rule.holds(o)) return Fault{rule.flag, rule.reason(o)};
    if (parameters(o) > most_parameters) {
        auto const flag = largest_size(o);
        return Fault{flag, given(flag, o) + " makes a model of more than 4e12 parameters"};
    }
    return std::nullopt;
}

std::optional<O> nearest(O o, Integer member, std::function<bool(Options const&)> const& works) {
    auto flag = std::get<IntegerValue>(flag_of(member).value);
    if (member == &O::experts && o.experts > 0) flag.least = 1; // a model with experts stays one
    // From far outside one does not look at the edge, but around the default.
    bool const outside =
        o.*member > flag.most || parameters(o) > most_parameters || product({o.batch, o.seq}) > most_tokens;
    for (std::int64_t const start : {outside ? O{}.*member : std::max(o.*member, flag.least), O{}.*member}) {
        std::int64_t const furthest = std::min(std::max(flag.most - start, start - flag.least), std::int64_t{1} << 20);
        for (std::int64_t distance = 0; distance <= furthest; ++distance)
            for (std::int64_t const candidate : {start + distance, start - distance}) {
                if (candidate < flag.least || candidate > flag.most) continue;
                set(o, member, candidate);
                if (works(o)) return o;
            }
    }
    return std::nullopt;
}

void repair(O& o, Fault const& fault) {
    if (parameters(o) > most_parameters)
        return set(o, fault.flag, O{}.*fault.flag); // which of the sizes is left is not for us to say
    Broken const before = broken_rules(o);
    auto const first = static_cast<std::size_t>(std::find(before.begin(), before.end(), true) - before.begin());
    auto repaired = nearest(o, fault.flag, [&](O const& candidate) {
        Broken const now = broken_rules(candidate);
        for (std::size_t i = 0; i < now.size(); ++i)
            if (now[i] && (i == first || !before[i])) return false;
        return true;
    });
    if (!repaired)
        repaired = nearest(o, fault.flag, [&](O const& candidate) { return !broken_rules(candidate)[first]; });
    if (repaired)
        o = std::move(*repaired);
    else
        set(o, fault.flag, O{}.*fault.flag);
}

} // namespace train_lm
