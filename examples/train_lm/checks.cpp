// What the command line says of sizes, mesh and pipeline: rules, and the search for flags that would keep them.
#include "flags.hpp"
#include "options.hpp"

#include <pentad/io/schedule_file.hpp>
#include <pentad/model/batch_shape.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/validator.hpp>
#include <pentad/train/stages.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace train_lm {

namespace {

// --- the rules
// --------------------------------------------------------------------------------------------------------

/// Something that has to hold, and the flag to change where it does not. Rules are asked thousands of times in the
/// search for a value that works, also about numbers that break others of them: none divides by zero or overflows.
struct Rule {
    Integer flag;
    bool (*holds)(Options const&);
    std::string (*reason)(Options const&);
};

using O = Options;

std::string text(std::int64_t number) { return std::to_string(number); }

std::string indivisible(Integer member, O const& o, std::string const& by) {
    return given(member, o) + " is not divisible by " + by;
}
std::string axis(std::string_view name, O const& o) { return std::string(name) + " = " + text(o.extent(name)); }

bool divides(std::int64_t divisor, std::int64_t number) { return divisor < 1 || number % divisor == 0; }

pentad::model::BatchShape batch_shape(O const& o) {
    using pentad::model::NamedProduct;
    auto seq_axes = NamedProduct().times("cp", o.extent("cp"));
    if (o.sequence_parallel) seq_axes.times("tp", o.extent("tp"));
    return {.batch = o.batch,
            .micro_batches = o.micro_batches,
            .seq = o.seq,
            .slices = o.slices,
            .batch_axes = NamedProduct().times("dp", o.extent("dp")).times("ep", o.extent("ep")),
            .seq_axes = seq_axes,
            .zigzag = o.zigzag};
}
/// What the library says of a number, of the flag that sets it.
std::string of_flag(Integer member, O const& o, std::optional<pentad::model::Indivisible> const& refused) {
    std::string const flag = refused->cut == pentad::model::Cut::zigzag              ? " (--zigzag)"
                             : refused->cut == pentad::model::Cut::sequence_parallel ? " (--sequence-parallel on)"
                                                                                     : "";
    return given(member, o) + " " + refused->why() + flag;
}

/// Whether the user says which layers are where; a file may.
bool has_own_stages(O const& o) { return !o.stages.empty() || !o.schedule_file.empty(); }

double parameters(O const& o) {
    auto const real = [](std::int64_t number) { return static_cast<double>(number); };
    double const head_dim = real(o.hidden) / std::max(real(o.heads), 1.0);
    double const attention = 2 * real(o.hidden) * (real(o.hidden) + head_dim * real(o.kv_heads));
    double const ffn = 3 * real(o.hidden) * real(o.ffn) * std::max(real(o.experts), 1.0);
    return real(o.layers) * (attention + ffn) + 2 * real(o.vocab) * real(o.hidden);
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
/// Whether a flag is a size that --model says.
bool is_of_model(Integer flag) {
    for (Integer const size :
         {&O::layers, &O::hidden, &O::heads, &O::kv_heads, &O::ffn, &O::vocab, &O::experts, &O::top_k, &O::moe_every})
        if (flag == size) return true;
    return false;
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
    Rule{&O::heads, [](O const& o) { return divides(o.extent("tp"), o.heads); },
         [](O const& o) { return indivisible(&O::heads, o, axis("tp", o)); }},
    Rule{&O::kv_heads, [](O const& o) { return divides(o.kv_heads, o.heads); },
         [](O const& o) { return given(&O::kv_heads, o) + " does not divide " + given(&O::heads, o); }},
    Rule{&O::kv_heads,
         [](O const& o) { return divides(o.extent("tp"), o.kv_heads) || divides(o.kv_heads, o.extent("tp")); },
         [](O const& o) { return given(&O::kv_heads, o) + " and " + axis("tp", o) + ": neither divides the other"; }},
    Rule{&O::hidden, [](O const& o) { return o.described || divides(o.heads, o.hidden); },
         [](O const& o) { return indivisible(&O::hidden, o, given(&O::heads, o)); }},
    Rule{&O::hidden,
         [](O const& o) {
             return o.described || o.heads < 1 || !divides(o.heads, o.hidden) || o.hidden / o.heads % 2 == 0;
         },
         [](O const& o) {
             return given(&O::hidden, o) + " over " + given(&O::heads, o) + " gives heads of " +
                    text(o.hidden / o.heads) + ", and rotary embedding turns pairs";
         }},
    Rule{&O::ffn, [](O const& o) { return divides(o.extent("tp"), o.ffn); },
         [](O const& o) { return indivisible(&O::ffn, o, axis("tp", o)); }},
    Rule{&O::ffn, [](O const& o) { return divides(o.extent("tp"), other_width(o)); },
         [](O const& o) {
             return "intermediate_size " + text(other_width(o)) + " is not divisible by " + axis("tp", o);
         }},
    Rule{&O::experts, [](O const& o) { return o.experts < 1 || divides(o.extent("ep"), o.experts); },
         [](O const& o) { return indivisible(&O::experts, o, axis("ep", o)); }},
    Rule{&O::top_k, [](O const& o) { return o.experts < 1 || o.top_k <= o.experts; },
         [](O const& o) { return given(&O::top_k, o) + " is more than " + given(&O::experts, o); }},
    Rule{&O::moe_every, [](O const& o) { return o.experts < 1 || o.moe_every <= o.layers; },
         [](O const& o) {
             return given(&O::moe_every, o) + " is more than " + given(&O::layers, o) +
                    ", so that no layer has experts";
         }},
    Rule{&O::vocab, [](O const& o) { return !o.tokens.empty() || o.vocab >= 256; },
         [](O const& o) { return given(&O::vocab, o) + " is less than the 256 bytes of text"; }},
    Rule{&O::batch, [](O const& o) { return !batch_shape(o).refused_batch(); },
         [](O const& o) { return of_flag(&O::batch, o, batch_shape(o).refused_batch()); }},
    Rule{&O::seq, [](O const& o) { return !batch_shape(o).refused_seq(); },
         [](O const& o) { return of_flag(&O::seq, o, batch_shape(o).refused_seq()); }},
    Rule{&O::seq, [](O const& o) { return !batch_shape(o).refused_seq_over_all(); },
         [](O const& o) { return of_flag(&O::seq, o, batch_shape(o).refused_seq_over_all()); }},
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

// --- the search for what works
// ----------------------------------------------------------------------------------------

/// The rules that are broken, a bit each: the ranges, the table above, the size of the model.
using Broken = std::uint64_t;

Broken broken_rules(O const& o) {
    Broken broken = 0;
    Broken bit = 1;
    auto const ask = [&](bool holds) {
        if (!holds) broken |= bit;
        bit <<= 1;
    };
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

struct Fault {
    Integer flag;
    std::string reason;
};

/// The first broken rule.
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

void set(O& o, Integer member, std::int64_t value) {
    o.*member = value;
    if (member == &O::batch) o.batch_given = true;
    if (member == &O::kv_heads) o.kv_heads_given = true;
    follow(o);
}

/// The value of a flag nearest to where it stands for which `works`; of two as near, the larger.
template <class Works>
std::optional<O> nearest(O o, Integer member, Works const& works) {
    auto const& flag = std::get<IntegerValue>(flag_of(member).value);
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

/// Mends the first fault: by one flag that breaks nothing new where there is such a value, else by the nearest that
/// mends it, and what that breaks is mended next; else by its default, where several flags share the fault.
void mend(O& o, Fault const& fault) {
    if (parameters(o) > most_parameters)
        return set(o, fault.flag, O{}.*fault.flag); // which of the sizes is left is not for us to say
    Broken const before = broken_rules(o);
    auto const first = before & (~before + 1);
    auto mended = nearest(o, fault.flag, [&](O const& candidate) {
        Broken const now = broken_rules(candidate);
        return (now & first) == 0 && (now & ~before) == 0;
    });
    if (!mended)
        mended = nearest(o, fault.flag, [&](O const& candidate) { return (broken_rules(candidate) & first) == 0; });
    if (mended)
        o = std::move(*mended);
    else
        set(o, fault.flag, O{}.*fault.flag);
}

// --- the mesh
// ---------------------------------------------------------------------------------------------------------

std::optional<std::string> mesh_fault(O const& o, int ranks) {
    std::int64_t size = 1;
    for (auto const& [name, extent] : o.mesh) {
        if (extent < 1) return "--mesh " + mesh_text(o.mesh) + " has an extent that is not positive";
        size = product({size, extent});
    }
    if (size == ranks) return std::nullopt;
    return "--mesh " + mesh_text(o.mesh) + " is a mesh of " + text(size) + " ranks, and the run has " + text(ranks);
}

/// Calls `visit` with every way to write `ranks` as a product of the axes from `axis` on.
template <class Visit>
void for_each_mesh(O& o, std::size_t axis, std::int64_t ranks, Visit const& visit) {
    if (axis + 1 == o.mesh.size()) {
        o.mesh[axis].extent = ranks;
        follow(o);
        visit(o);
        return;
    }
    for (std::int64_t extent = 1; extent <= ranks; ++extent)
        if (ranks % extent == 0) {
            o.mesh[axis].extent = extent;
            for_each_mesh(o, axis + 1, ranks / extent, visit);
        }
}

/// The mesh of this many ranks that is nearest to the one asked for, among those with which everything else works, or
/// among all. Distance is counted in doublings and halvings: dp, which changes no size of the model, is the cheapest to
/// change, an axis that was not asked for the dearest.
O nearest_mesh(O const& asked, int ranks) {
    struct Best {
        bool works = false;
        double distance = std::numeric_limits<double>::infinity();
        O options;
    } best;
    O candidate = asked;
    for_each_mesh(candidate, 0, ranks, [&](O const& o) {
        double distance = 0;
        for (std::size_t i = 0; i < o.mesh.size(); ++i) {
            auto const old = static_cast<double>(std::max<std::int64_t>(asked.mesh[i].extent, 1));
            double const weight = o.mesh[i].name == "dp" ? 0.5 : old > 1 ? 1 : 2;
            distance += weight * std::abs(std::log2(static_cast<double>(o.mesh[i].extent) / old));
        }
        bool const works = obeys_rules(o);
        if (std::pair(!works, distance) < std::pair(!best.works, best.distance - 1e-9)) best = {works, distance, o};
    });
    return best.options;
}

// --- the pipeline
// -----------------------------------------------------------------------------------------------------

pentad::pipeline::GeneratorOptions generator_options(O const& o) {
    return {.ranks = static_cast<int>(o.extent("pp")),
            .micro_batches = static_cast<int>(o.micro_batches),
            .chunks = static_cast<int>(o.chunks),
            .slices = static_cast<int>(o.slices)};
}

/// What is wrong with the choice of a schedule, mended by the nearest chunks, or slices, or by 1F1B.
void mend_schedule(O& o, Complaint& complaint) {
    if (!o.schedule_file.empty()) {
        if (!o.schedule_given) return;
        complaint.must_leave_out = !complaint.reason.empty();
        complaint.add("--schedule-file " + o.schedule_file +
                          " says all of the schedule: leave out --schedule, --chunks and --slices",
                      "--schedule-file");
        o.schedule_given = false;
        return;
    }
    auto const why = pentad::pipeline::undefined(o.schedule, generator_options(o));
    if (!why.empty()) {
        auto const works = [](O const& candidate) {
            return pentad::pipeline::undefined(candidate.schedule, generator_options(candidate)).empty();
        };
        std::optional<O> mended;
        for (std::string_view const more : {"interleaved-1f1b", "terapipe"}) { // 1F1B with chunks, and with slices
            O other = o;
            other.schedule = more;
            if (o.schedule != "1f1b" || mended || !works(other)) continue;
            complaint.add("--schedule " + why, "--schedule");
            mended = other;
        }
        if (!mended && (mended = nearest(o, &O::chunks, works))) complaint.add("--schedule " + why, "--chunks");
        if (!mended && (mended = nearest(o, &O::slices, works))) complaint.add("--schedule " + why, "--slices");
        if (mended) {
            o = std::move(*mended);
        } else {
            complaint.add("--schedule " + why, "--schedule");
            if (o.chunks > 1) complaint.add("", "--chunks");
            if (o.slices > 1) complaint.add("", "--slices");
            o.schedule = "1f1b";
            o.chunks = std::min<std::int64_t>(o.chunks, 1);
            o.slices = 1;
        }
    }
    bool const updates_often =
        o.schedule == "pipedream"
            ? o.micro_batches > 1
            : o.schedule == "pipedream-2bw" && pentad::pipeline::detail::updates_of_2bw(generator_options(o)) > 1;
    if (!updates_often) return;
    std::string const own = "--schedule " + o.schedule + " updates each stage on its own";
    if (o.clip > 0) {
        complaint.add(own + ", so that the norm of all gradients, which --clip limits, is not known", "--clip");
        o.clip = 0;
    }
    if (o.tie_embeddings) complaint.add(own + ": its two ends cannot share --tie-embeddings", "--schedule");
    if (o.tie_embeddings) o.schedule = "1f1b";
}

/// A value as a shell takes it.
std::string as_argument(std::string const& value) {
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
    if (!value.empty() && value.find_first_not_of(plain) == value.npos) return value;
    std::string quoted = "'";
    for (char const c : value) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

std::string list_text(std::vector<std::size_t> const& numbers) {
    std::string list;
    for (auto const number : numbers) list += (list.empty() ? "" : ",") + std::to_string(number);
    return list;
}

/// --stages, mended by a deal as even as can be; of a schedule in a file when that has been read.
void mend_stages(O& o, std::int64_t count, Complaint& complaint) {
    if (o.stages.empty() || o.stages == "balanced") return;
    auto const layers = stage_layers(o.stages);
    std::size_t sum = 0;
    for (auto const number : layers.value_or(std::vector<std::size_t>{})) sum += number;
    std::string why;
    if (!layers)
        why = " is neither a list of numbers nor balanced";
    else if (layers->size() != static_cast<std::size_t>(count))
        why = " is for " + std::to_string(layers->size()) + " stages, and the pipeline has " + text(count);
    else if (sum != static_cast<std::size_t>(o.layers))
        why = " is of " + std::to_string(sum) + " layers, and the model has " + text(o.layers);
    if (why.empty()) return;
    complaint.add("--stages " + o.stages + why, "--stages");
    auto const stages = static_cast<std::size_t>(count), all = static_cast<std::size_t>(o.layers);
    std::vector<std::size_t> even(stages);
    for (std::size_t i = 0; i < stages; ++i) even[i] = all * (i + 1) / stages - all * i / stages;
    o.stages = list_text(even);
}

} // namespace

std::string given(Integer member, Options const& options) {
    Flag const& flag = flag_of(member);
    return std::string(flag.name) + " " + value_text(flag, options);
}

bool obeys_rules(Options const& options) { return broken_rules(options) == 0; }

std::optional<std::string> check_schedule_file(O const& o) {
    if (o.schedule_file.empty()) return std::nullopt;
    std::string const flag = "--schedule-file " + o.schedule_file;
    try {
        auto const schedule = make_schedule(o);
        if (auto const verdict = pentad::pipeline::validate(schedule); verdict.refusal)
            return flag + ": " + verdict.refusal->message();
        pentad::train::RunSettings settings;
        settings.model.ties_embeddings = o.tie_embeddings;
        settings.micro_batches = static_cast<std::size_t>(o.micro_batches);
        settings.seq = static_cast<std::size_t>(o.seq);
        settings.clip = o.clip;
        if (auto const why = pentad::train::misfit(schedule, settings, static_cast<int>(o.extent("pp"))); !why.empty())
            return flag + " " + why +
                   (schedule.micro_batches != o.micro_batches ? ": try --micro-batches " + text(schedule.micro_batches)
                    : schedule.updates > 1 && o.clip > 0      ? ": try --clip 0"
                                                              : "");
        if (schedule.recomputes && o.recompute) return flag + " says what is computed again: leave out --recompute";
        O sliced = o;
        sliced.slices = schedule.slices;
        if (auto const fault = first_fault(sliced)) return flag + ": " + fault->reason;
        if (o.stages.empty() && !divides(schedule.stages(), o.layers))
            return given(&O::layers, o) + " is not divisible by the " + text(schedule.stages()) + " stages of " + flag +
                   ": say how many each has with --stages";
        O stages = o;
        Complaint complaint;
        mend_stages(stages, schedule.stages(), complaint);
        if (!complaint.reason.empty()) return complaint.reason + ": try --stages " + stages.stages;
    } catch (std::exception const& error) {
        return std::string("--schedule-file: ") + error.what();
    }
    return std::nullopt;
}

Conclusion conclude(Options options, Complaint complaint, int ranks) {
    if (auto const fault = mesh_fault(options, ranks)) {
        complaint.add(*fault, "--mesh");
        options = nearest_mesh(options, ranks);
    }
    mend_schedule(options, complaint);
    // Each round mends a fault, and may make one of a flag that is checked later.
    auto fault = first_fault(options);
    for (int round = 0; fault && round < 32; ++round, fault = first_fault(options)) {
        if (options.described && is_of_model(fault->flag)) { // another mesh, if any
            complaint.add("--model " + options.model + ": " + fault->reason, "--mesh");
            options = nearest_mesh(options, ranks);
            fault = first_fault(options);
            break;
        }
        complaint.add(fault->reason, flag_of(fault->flag).name);
        mend(options, *fault);
    }
    if (options.schedule_file.empty() && !fault) mend_stages(options, options.stage_count(), complaint);
    Conclusion const without{complaint.reason, {}, {}};
    if (complaint.reason.empty() || fault || complaint.must_leave_out) return without;
    if (check_schedule_file(options)) return without; // it would refuse any suggestion
    std::string suggestion;
    for (auto const name : complaint.changed) {
        Flag const& flag = *find_flag(name);
        auto const value = value_text(flag, options);
        auto const* const real = std::get_if<RealValue>(&flag.value);
        if (real != nullptr && !(options.*real->member >= real->least)) return without; // it has no default
        if (flag.shown.empty())
            suggestion += " " + std::string(name);
        else if (!value.empty())
            suggestion += " " + std::string(name) + " " + as_argument(value);
        else // of a file, no name of ours would be right
            return without;
    }
    return {complaint.reason, std::move(suggestion), std::move(options)};
}

std::vector<std::string_view> schedule_names() {
    std::vector<std::string_view> names;
    for (auto const& generator : pentad::pipeline::generators) names.push_back(generator.name);
    return names;
}

std::int64_t Options::stage_count() const {
    auto const* generator = pentad::pipeline::find_generator(schedule);
    std::int64_t const least = generator == nullptr ? 1 : generator->least_chunks;
    return product({extent("pp"), chunks == 0 ? least : chunks});
}

pentad::pipeline::Schedule make_schedule(Options const& options) {
    return options.schedule_file.empty() ? pentad::pipeline::generate(options.schedule, generator_options(options))
                                         : pentad::io::read_schedule(options.schedule_file);
}

std::optional<std::string> check(Options const& options, int ranks) {
    Options completed = options;
    for (auto const name : axis_names)
        if (std::none_of(completed.mesh.begin(), completed.mesh.end(),
                         [&](MeshAxis const& known) { return known.name == name; }))
            completed.mesh.push_back({std::string(name), completed.mesh.empty() ? ranks : 1});
    follow(completed);
    auto const conclusion = conclude(std::move(completed), {}, ranks);
    if (conclusion.reason.empty()) return std::nullopt;
    return conclusion.reason + (conclusion.suggestion.empty() ? "" : ": try" + conclusion.suggestion);
}

} // namespace train_lm
