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
            .micro_batches = static_cast<int>(o.micro_batches),
            .chunks = static_cast<int>(o.chunks),
            .slices = static_cast<int>(o.slices),
            .pairs = o.pairs()};
}

std::string list_text(std::vector<std::int64_t> const& numbers) {
    std::string list;
    for (auto const number : numbers) list += (list.empty() ? "" : ",") + std::to_string(number);
    return list;
}

void repair_release(O& o, Complaint& complaint) {
    if (!o.gradient_release) return;
    if (o.clip > 0) {
        complaint.add("--gradient-release updates weights before the norm of all gradients, which --clip limits, is "
                      "known",
                      "--clip");
        o.clip = 0;
    }
    if (!o.schedule_file.empty() || !pentad::pipeline::find_generator(o.schedule)->reduces_later) return;
    complaint.add("--gradient-release and --schedule " + o.schedule +
                      ", which reduces gradients at times of its own: they cannot be released",
                  "--schedule");
    o.schedule = "1f1b";
}

bool offloads_activations(O const& o) { return o.offload == "activations" || o.offload == "both"; }

void repair_pairs(O& o, Complaint& complaint) {
    if (o.pair != "on" || !offloads_activations(o)) return;
    complaint.add("--pair on and --offload " + o.offload + ", which takes the activations of one pass at a time",
                  "--pair");
    o.pair = "off";
}

} // namespace

bool Options::pairs() const {
    auto const* const generator = pentad::pipeline::find_generator(schedule);
    bool const helps = experts > 0 && experts_on().ep > 1 && !offloads_activations(*this);
    return pair == "on" || (pair == "auto" && helps && generator != nullptr && generator->has_pairs);
}

bool updates_often(O const& o) {
    return o.schedule == "pipedream"
               ? o.micro_batches > 1
               : o.schedule == "pipedream-2bw" && pentad::pipeline::detail::updates_of_2bw(generator_options(o)) > 1;
}

void repair_schedule(O& o, Complaint& complaint) {
    if (!o.schedule_file.empty()) {
        repair_release(o, complaint);
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
        std::optional<O> repaired;
        if (O other = o; o.pair == "on" && (other.pair = "auto", works(other))) {
            complaint.add("--schedule " + why, "--pair");
            repaired = other;
        }
        for (std::string_view const more : {"interleaved-1f1b", "terapipe"}) { // 1F1B with chunks, and with slices
            O other = o;
            other.schedule = more;
            if (o.schedule != "1f1b" || repaired || !works(other)) continue;
            complaint.add("--schedule " + why, "--schedule");
            repaired = other;
        }
        if (!repaired && (repaired = nearest(o, &O::chunks, works))) complaint.add("--schedule " + why, "--chunks");
        if (!repaired && (repaired = nearest(o, &O::slices, works))) complaint.add("--schedule " + why, "--slices");
        if (repaired) {
            o = std::move(*repaired);
        } else {
            complaint.add("--schedule " + why, "--schedule");
            if (o.chunks > 1) complaint.add("", "--chunks");
            if (o.slices > 1) complaint.add("", "--slices");
            o.schedule = "1f1b";
            o.chunks = std::min<std::int64_t>(o.chunks, 1);
            o.slices = 1;
        }
    }
    bool const is_asynchronous = updates_often(o);
    std::string const own = "--schedule " + o.schedule + " updates each stage on its own";
    if (is_asynchronous && o.clip > 0) {
        complaint.add(own + ", so that the norm of all gradients, which --clip limits, is not known", "--clip");
        o.clip = 0;
    }
    if (is_asynchronous && o.local_steps > 0) {
        complaint.add(own + ", and ranks that train apart have no common step to average after", "--local-steps");
        if (o.local_ranks > 1) complaint.add("", "--local-ranks");
        o.local_steps = 0;
        o.local_ranks = 1;
    }
    if (is_asynchronous && (o.tie_embeddings || o.mtp > 0)) {
        complaint.add(own + ": its two ends cannot share an embedding, which " +
                          (o.mtp > 0 ? "--mtp " + text(o.mtp) : "--tie-embeddings") + " needs",
                      "--schedule");
        o.schedule = "1f1b";
    }
    repair_pairs(o, complaint);
    repair_release(o, complaint);
}

void deal_stages(O& o, std::int64_t count) { o.stages = list_text(pentad::pipeline::dealt_layers(o.layers, count)); }

void repair_stages(O& o, std::int64_t count, Complaint& complaint) {
    if (o.stages.empty() || o.stages == "balanced") return;
    auto const layers = stage_layers(o.stages);
    std::int64_t sum = 0;
    for (auto const number : layers.value_or(std::vector<std::int64_t>{})) sum += number;
    std::string why;
    if (!layers)
        why = " is neither a list of numbers nor balanced";
    else if (layers->size() != static_cast<std::size_t>(count))
        why = " is for " + std::to_string(layers->size()) + " stages, and the pipeline has " + text(count);
    else if (sum != o.layers)
        why = " is of " + std::to_string(sum) + " layers, and the model has " + text(o.layers);
    if (why.empty()) return;
    complaint.add("--stages " + o.stages + why, "--stages");
    deal_stages(o, count);
}

std::optional<std::string> check_schedule_file(O const& o) {
    if (o.schedule_file.empty()) return std::nullopt;
    std::string const flag = "--schedule-file " + o.schedule_file;
    try {
        auto const schedule = make_schedule(o);
        if (auto const verdict = pentad::pipeline::validate(schedule); verdict.refusal)
            return flag + ": " + verdict.refusal->message();
        pentad::train::RunSettings settings;
        settings.model.ties_embeddings = o.tie_embeddings || o.mtp > 0; // whether the ends share it
        settings.clip = o.clip;
        settings.strategy.micro_batches = o.micro_batches;
        settings.strategy.seq = o.seq;
        settings.strategy.sharding.releases_gradients = o.gradient_release;
        settings.strategy.local.steps = static_cast<int>(o.local_steps);
        if (auto const why = pentad::train::misfit(schedule, settings, static_cast<int>(o.extent("pp"))); !why.empty())
            return flag + " " + why +
                   (schedule.micro_batches != o.micro_batches ? ": try --micro-batches " + text(schedule.micro_batches)
                    : o.gradient_release && why.ends_with("released") ? ": leave out --gradient-release"
                    : schedule.updates > 1 && o.clip > 0              ? ": try --clip 0"
                                                                      : "");
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

} // namespace train_lm
