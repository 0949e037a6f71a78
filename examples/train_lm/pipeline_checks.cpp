// Validates the pipeline options: the schedule, its file and the layers of each stage.
#include "flags.hpp"
#include "options.hpp"
#include "rules.hpp"

#include <pentad/io/schedule_file.hpp>
#include <pentad/pipeline/dealt_layers.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/validator.hpp>
#include <pentad/train/stages.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace train_lm {

namespace {

using O = Options;

pentad::pipeline::GeneratorOptions generator_options(O const& o) {
    return {.ranks = static_cast<int>(o.extent("pp")),
            .micro_batches = static_cast<int>(o.strategy.micro_batches),
            .chunks = static_cast<int>(o.strategy.chunks),
            .slices = static_cast<int>(o.slices),
            .pairs = o.pairs()};
}

/// The traits of the schedule; the traits of a schedule from a file are not known here.
pentad::pipeline::ScheduleTraits traits_of(O const& o) {
    if (!o.schedule_file.empty()) return {};
    return pentad::pipeline::traits(o.strategy.schedule, generator_options(o));
}

std::string list_text(std::vector<std::int64_t> const& numbers) {
    std::string list;
    for (auto const number : numbers) list += (list.empty() ? "" : ",") + std::to_string(number);
    return list;
}

bool offloads_activations(O const& o) { return o.offload == "activations" || o.offload == "both"; }

/// The schedule with the fewest demands.
void take_1f1b(O& o, Complaint& complaint) {
    if (o.strategy.chunks > 1) complaint.add("", "--chunks");
    if (o.slices > 1) complaint.add("", "--slices");
    o.strategy.schedule = "1f1b";
    o.strategy.chunks = std::min<std::int64_t>(o.strategy.chunks, 1);
    o.slices = 1;
}

/// Repairs what the library refuses of the schedule, each field in its own way.
void repair_traits(O& o, Complaint& complaint) {
    for (int round = 0; round < 8; ++round) {
        pentad::train::RunSettings settings; // without the model, whose sizes may be refused
        settings.strategy = strategy_of(o);
        settings.clip = o.clip;
        settings.model.ties_embeddings = o.tie_embeddings;
        settings.model.predictors.resize(o.mtp > 0 ? 1 : 0);
        auto const traits = traits_of(o);
        auto refused = pentad::train::clip_refusal(settings, o.strategy.schedule, traits);
        if (!refused)
            refused = pentad::schedule_refusal(settings.model, settings.strategy, o.strategy.schedule, traits);
        if (!refused) return;
        complaint.add(in_flags(refused->why, o), flag_of_field(refused->field, o));
        if (refused->field == "clip") {
            o.clip = 0;
        } else if (refused->field == "pairs") {
            o.pair = "off";
        } else if (refused->field == "local.steps") {
            if (o.strategy.local.ranks > 1) complaint.add("", "--local-ranks");
            o.strategy.local.steps = 0;
            o.strategy.local.ranks = 1;
        } else {
            take_1f1b(o, complaint);
        }
    }
}

} // namespace

bool Options::pairs() const {
    auto const* const generator = pentad::pipeline::find_generator(strategy.schedule);
    bool const helps = experts > 0 && experts_on().ep > 1 && !offloads_activations(*this);
    return pair == "on" || (pair == "auto" && helps && generator != nullptr && generator->has_pairs);
}

bool updates_often(O const& o) { return traits_of(o).updates > 1; }

void repair_schedule(O& o, Complaint& complaint) {
    if (!o.schedule_file.empty()) {
        repair_traits(o, complaint);
        if (!o.schedule_given) return;
        complaint.must_leave_out = !complaint.reason.empty();
        complaint.add("--schedule-file " + o.schedule_file +
                          " says all of the schedule: leave out --schedule, --chunks and --slices",
                      "--schedule-file");
        o.schedule_given = false;
        return;
    }
    auto const why = pentad::pipeline::undefined(o.strategy.schedule, generator_options(o));
    if (!why.empty()) {
        auto const works = [](O const& candidate) {
            return pentad::pipeline::undefined(candidate.strategy.schedule, generator_options(candidate)).empty();
        };
        std::optional<O> repaired;
        if (O other = o; o.pair == "on" && (other.pair = "auto", works(other))) {
            complaint.add("--schedule " + why, "--pair");
            repaired = other;
        }
        for (std::string_view const more : {"interleaved-1f1b", "terapipe"}) { // 1F1B with chunks, and with slices
            O other = o;
            other.strategy.schedule = more;
            if (o.strategy.schedule != "1f1b" || repaired || !works(other)) continue;
            complaint.add("--schedule " + why, "--schedule");
            repaired = other;
        }
        if (!repaired && (repaired = nearest(o, of_strategy("--chunks"), works)))
            complaint.add("--schedule " + why, "--chunks");
        if (!repaired && (repaired = nearest(o, &O::slices, works))) complaint.add("--schedule " + why, "--slices");
        if (repaired) {
            o = std::move(*repaired);
        } else {
            complaint.add("--schedule " + why, "--schedule");
            take_1f1b(o, complaint);
        }
    }
    repair_traits(o, complaint);
}

void deal_stages(O& o, std::int64_t count) { o.stages = list_text(pentad::pipeline::dealt_layers(o.layers, count)); }

void repair_stages(O& o, std::int64_t count, Complaint& complaint) {
    if (o.stages.empty() || o.stages == "balanced") return;
    auto const layers = stage_layers(o.stages);
    std::string why = "--stages " + o.stages + " is neither a list of numbers nor balanced";
    if (layers) {
        auto const refused = pentad::stages_refusal(*layers, count, o.layers);
        if (!refused) return;
        why = in_flags(refused->why, o);
    }
    complaint.add(why, "--stages");
    deal_stages(o, count);
}

std::optional<std::string> check_schedule_file(O const& o) {
    if (o.schedule_file.empty()) return std::nullopt;
    std::string const flag = "--schedule-file " + o.schedule_file;
    try {
        auto const schedule = make_schedule(o);
        if (auto const verdict = pentad::pipeline::validate(schedule); verdict.refusal)
            return flag + ": " + verdict.refusal->message();
        auto const ranks = static_cast<int>(o.extent("pp"));
        if (auto const refused = pentad::train::schedule_misfit(schedule, make_settings(o), ranks)) {
            std::string const named = "schedule = " + schedule.name;
            auto const& why = refused->why;
            return (why.starts_with(named) ? flag + why.substr(named.size()) : in_flags(why, o)) +
                   (refused->field == "micro_batches" ? ": try --micro-batches " + text(schedule.micro_batches)
                    : refused->field == "clip"        ? ": try --clip 0"
                    : o.strategy.sharding.releases_gradients && why.ends_with("released")
                        ? ": leave out --gradient-release"
                        : "");
        }
        if (schedule.recomputes && o.recompute != "none")
            return flag + " already sets recomputation: leave out --recompute";
        O sliced = o;
        sliced.slices = schedule.slices;
        if (auto const fault = first_fault(sliced)) return flag + ": " + fault->reason;
        if (o.stages.empty() && !divides(schedule.stages(), o.layers))
            return given(&O::layers, o) + " is not divisible by the " + text(schedule.stages()) + " stages of " + flag +
                   ": say how many each has with --stages";
        O stages = o;
        Complaint complaint;
        repair_stages(stages, schedule.stages(), complaint);
        if (!complaint.reason.empty()) return complaint.reason + ": try --stages " + stages.stages;
    } catch (std::exception const& error) {
        return std::string("--schedule-file: ") + error.what();
    }
    return std::nullopt;
}

std::int64_t Options::stage_count() const {
    auto const* generator = pentad::pipeline::find_generator(strategy.schedule);
    std::int64_t const least = generator == nullptr ? 1 : generator->least_chunks;
    return product({extent("pp"), strategy.chunks == 0 ? least : strategy.chunks});
}

pentad::pipeline::Schedule make_schedule(Options const& options) {
    return options.schedule_file.empty()
               ? pentad::pipeline::generate(options.strategy.schedule, generator_options(options))
               : pentad::io::read_schedule(options.schedule_file);
}

} // namespace train_lm
