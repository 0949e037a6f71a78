// Shows a pipeline schedule: a chart on the terminal, its bubble, memory and messages, SVG, a timeline for
// ui.perfetto.dev, and beside it what a run of it really did. See --help.
// Exit status: 0 done, 2 bad input, 3 a file cannot be written, 1 anything else.
#include "descriptions.hpp"
#include "facts.hpp"
#include "page.hpp"

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/schedule_file.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/search.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/report/chart_svg.hpp>
#include <pentad/report/chart_text.hpp>
#include <pentad/report/measured_chart.hpp>
#include <pentad/report/pipeline_chart.hpp>
#include <pentad/report/terminal.hpp>
#include <pentad/report/timeline.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace pentad;
using namespace pentad_schedule;

/// What a stage costs, as a flag: one number for all stages, or one for each.
struct CostFlag {
    char const* name;
    char const* help;
    Time StageCost::* member;
    Time least;
};
constexpr std::array cost_flags{
    CostFlag{"--forward", "time of a forward on a stage, or on each: 3,2,2,4 (default 1)", &StageCost::forward, 1},
    CostFlag{"--backward-data", "time of the part of a backward that the stage before waits for (default 1)",
             &StageCost::backward_data, 0},
    CostFlag{"--backward-weight", "time of the rest of a backward (default 1)", &StageCost::backward_weight, 0},
    CostFlag{"--activation", "memory that a micro-batch takes on a stage (default 1)", &StageCost::activation, 0},
    CostFlag{"--weight-part", "what of it is kept between the parts of a backward (default 1)", &StageCost::weight_part,
             0},
    CostFlag{"--input", "what of it is kept with --recompute (default 0)", &StageCost::input, 0}};
constexpr std::size_t times = 3; ///< of the flags
constexpr Time largest_cost = 1'000'000'000;

struct Options {
    std::string schedule, file;
    GeneratorOptions generator{.ranks = 4, .micro_batches = 8};
    std::array<std::vector<Time>, cost_flags.size()> costs;
    Time message = 0;
    std::vector<std::int64_t> memory;
    bool two_copies = false;
    std::string ran;
    std::vector<int> ran_ranks;
    std::string colour = "auto", svg, perfetto, text, json, docs;
    std::size_t width = 0;
};

[[noreturn]] void refuse(std::string const& why) { throw std::invalid_argument(why); }

void add_flags(CLI::App& app, Options& o) {
    std::string group;
    auto const flag = [&](std::string const& name, auto& value, char const* shown, std::string const& help) {
        return app.add_option(name, value, help)->option_text(shown)->group(group);
    };
    CLI::Range const counts(1, 1 << 16);

    group = "the schedule";
    auto* const name = flag("--schedule", o.schedule, "NAME",
                            generator_names() + "; or automatic: the fastest that is found for the times and the "
                                                "memory");
    auto* const file = flag("--schedule-file", o.file, "FILE", "one of your own, as text or JSON")->excludes(name);
    for (auto* const shape :
         {flag("--stages,--ranks", o.generator.ranks, "N",
               "ranks of the pipeline, which papers call stages (default 4)"),
          flag("--micro-batches", o.generator.micro_batches, "N", "micro-batches in a step (default 8)"),
          flag("--chunks", o.generator.chunks, "N", "stages of the model on each rank (default: as few as can be)"),
          flag("--slices", o.generator.slices, "N", "slices of each sequence, for terapipe (default 1)"),
          flag("--updates", o.generator.updates, "N",
               "optimizer steps, for pipedream-2bw (default: as many as can be)")})
        file->excludes(shape->check(counts));
    file->excludes(app.add_flag("--recompute", o.generator.recompute,
                                "keep only the inputs of stages, and compute the "
                                "forward again in the backward")
                       ->group(group));

    group = "times and memory, in units of your own";
    for (std::size_t at = 0; at < cost_flags.size(); ++at)
        flag(cost_flags[at].name, o.costs[at], "N or N,N,...", cost_flags[at].help)
            ->delimiter(',')
            ->check(CLI::Range(cost_flags[at].least, largest_cost));
    flag("--message", o.message, "N", "time of a message from rank to rank (default 0)")
        ->check(CLI::Range(Time{0}, largest_cost));

    flag("--memory", o.memory, "N or N,N,...",
         "most memory for activations on each rank, for --schedule automatic (default: any)")
        ->delimiter(',')
        ->check(CLI::Range(Time{0}, largest_cost));
    app.add_flag("--two-copies", o.two_copies, "--schedule automatic may lay each stage on two ranks")->group(group);

    group = "beside a run";
    auto* const ran =
        flag("--ran", o.ran, "TRACE",
             "what train_lm --trace wrote: its last whole step is drawn below the plan, whose times are the "
             "step's medians where none are given");
    flag("--ran-ranks", o.ran_ranks, "N,N,...", "the ranks of the run that are this pipeline, in order (default: all)")
        ->delimiter(',')
        ->check(CLI::NonNegativeNumber)
        ->needs(ran);

    group = "output";
    flag("--colour", o.colour, "auto|always|never", "colours in the chart (default: on a terminal)")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    flag("--width", o.width, "N", "columns of the chart (default: the terminal's)")->check(CLI::Range(20, 1 << 20));
    flag("--svg", o.svg, "FILE", "write a picture");
    flag("--perfetto", o.perfetto, "FILE", "write a timeline for ui.perfetto.dev, where a unit of time is 1 us");
    flag("--text", o.text, "FILE", "write the schedule as text");
    flag("--json", o.json, "FILE", "write the schedule as JSON");
    flag("--docs", o.docs, "FOLDER", "write the page of all schedules, and nothing else");
}

/// The costs of so many stages.
Costs make_costs(Options const& o, int stages) {
    Costs costs{.message = o.message};
    costs.stages.resize(static_cast<std::size_t>(stages));
    for (std::size_t at = 0; at < cost_flags.size(); ++at) {
        auto const& given = o.costs[at];
        if (given.size() > 1 && given.size() != costs.stages.size())
            refuse(std::string(cost_flags[at].name) + " has " + std::to_string(given.size()) +
                   " numbers, and there are " + std::to_string(costs.stages.size()) +
                   " stages: give one for all, or one for each");
        for (std::size_t stage = 0; !given.empty() && stage < costs.stages.size(); ++stage)
            costs.stages[stage].*cost_flags[at].member = given[given.size() == 1 ? 0 : stage];
    }
    return costs;
}

Schedule make_schedule(Options const& o) {
    bool const searches = o.schedule == "automatic";
    if (!searches && (!o.memory.empty() || o.two_copies))
        refuse("--memory and --two-copies are for --schedule automatic");
    if (!o.file.empty()) return io::read_schedule(o.file);
    if (o.schedule.empty())
        refuse("--schedule NAME or --schedule-file FILE says which; there are " + generator_names());
    auto const& g = o.generator;
    if (4.0 * g.ranks * std::max(g.chunks, 1) * g.micro_batches * g.slices > 1 << 28)
        refuse("that is more than 2^28 instructions: ask for fewer --micro-batches");
    if (!searches) return generate(o.schedule, g);
    auto found =
        automatic(g, make_costs(o, g.ranks * std::max(g.chunks, 1)), {.memory = o.memory, .two_copies = o.two_copies});
    std::puts(found.optimal ? "automatic: no order of the computes is faster on the placements that were tried"
                            : "automatic: the fastest that was found");
    return std::move(found.schedule);
}

/// The lines below the chart.
std::string summary(Schedule const& schedule, Facts const& facts, Costs const& costs, double unit) {
    auto const peer = schedule.name == "1f1b" ? std::nullopt : as_1f1b(schedule, costs);
    auto const time = [&](Time value) {
        return unit == 0 ? std::to_string(value) : report::duration(static_cast<double>(value) * unit);
    };
    auto const beside = [&](std::string const& of_peer) { return peer ? " (1f1b " + of_peer + ")" : std::string(); };
    std::string text = "\ntime      " + time(facts.times.makespan) + beside(peer ? time(peer->makespan) : "") + "\n" +
                       "bubble    " + percent(facts.times.bubble()) + beside(peer ? percent(peer->bubble()) : "") +
                       "\n";
    if (auto const* known = schedule.recomputes ? nullptr : description_of(schedule.name))
        text += "waits     " + std::string(known->wait) + " where stages are alike, messages take no time" +
                (known->domain == "always" ? "" : " and " + std::string(known->domain)) + "\n";
    text += "memory   ";
    for (auto const& rank : facts.times.ranks) text += " " + std::to_string(rank.peak_memory);
    text += ": each rank's peak, of activations\n";
    text += "messages  " + short_number(facts.sends) + ": most that a rank sends for a micro-batch\n";
    text += "weights   " + std::to_string(facts.copies) + " x " + std::to_string(facts.versions) +
            ": copies of a stage x versions of it\n";
    return text;
}

void write_perfetto(std::string const& path, std::vector<report::PipelineChart> const& charts) {
    std::vector<std::string> parts;
    for (auto const& chart : charts) {
        double const nanoseconds = chart.unit == 0 ? 1000 : chart.unit * 1e9;
        for (std::size_t rank = 0; rank < chart.ranks.size(); ++rank) {
            std::vector<observe::Span> spans;
            for (auto const& [what, start, end] : chart.ranks[rank])
                spans.push_back({name(what.operation),
                                 "pipeline",
                                 {.micro_batch = what.micro_batch, .stage = what.stage, .slice = what.slice},
                                 std::llround(static_cast<double>(start) * nanoseconds),
                                 std::llround(static_cast<double>(end) * nanoseconds),
                                 false});
            std::string const who =
                (&chart == &charts[0] ? "planned, rank " : "measured, rank ") + std::to_string(rank);
            parts.push_back(report::timeline_part(spans, static_cast<int>(parts.size()), who));
        }
    }
    report::write_timeline(path, parts);
}

/// What the program says about a schedule; files are written last.
void show(Options const& o, Schedule const& schedule, bool& writing) {
    auto const verdict = validate(schedule);
    if (verdict.refusal) refuse((o.file.empty() ? schedule.name : o.file) + ": " + verdict.refusal->message());
    std::vector<report::PipelineChart> charts{report::planned_chart(schedule, {}, "")};
    Costs costs = make_costs(o, schedule.stages());
    if (!o.ran.empty()) {
        charts.push_back(report::measured_chart(o.ran, charts[0], o.ran_ranks));
        bool const timed =
            std::any_of(o.costs.begin(), o.costs.begin() + times, [](auto const& x) { return !x.empty(); });
        if (!timed) {
            report::set_times(costs, charts[1]);
            charts[0].unit = charts[1].unit;
        }
    }
    auto const facts = facts_of(schedule, verdict, costs);
    double const unit = charts[0].unit;
    charts[0] =
        report::planned_chart(schedule, costs, headline(schedule) + ": bubble " + percent(facts.times.bubble()));
    charts[0].unit = unit;
    if (charts.size() > 1) charts[1].title += ": bubble " + percent(report::times_of(charts[1]).bubble());

    bool const colours = o.colour == "always" || (o.colour == "auto" && report::is_terminal(stdout));
    std::size_t const width = o.width > 0 ? o.width : report::columns_of(stdout);
    std::fputs(report::chart_text(charts, {.columns = width, .colours = colours}).c_str(), stdout);
    std::fputs(summary(schedule, facts, costs, unit).c_str(), stdout);
    writing = true;
    if (!o.svg.empty()) io::write_file(o.svg, report::chart_svg(charts));
    if (!o.perfetto.empty()) write_perfetto(o.perfetto, charts);
    if (!o.text.empty()) io::write_file(o.text, to_string(schedule));
    if (!o.json.empty()) io::write_file(o.json, io::to_json(schedule));
}

} // namespace

int main(int argc, char** argv) {
    constexpr int bad_input = 2, outside_failure = 3, internal_error = 1;
    auto const complain = [](char const* what, int status) {
        std::fprintf(stderr, "pentad_schedule: %s\n", what);
        return status;
    };
    bool writing = false;
    try {
        Options options;
        CLI::App app("Shows a pipeline schedule, and beside it what a run of it did.", "pentad_schedule");
        add_flags(app, options);
        try {
            app.parse(argc, argv);
        } catch (CLI::CallForHelp const&) {
            std::fputs(app.help().c_str(), stdout);
            return 0;
        }
        if (!options.docs.empty()) {
            if (argc > 3) refuse("--docs is alone: the page has every schedule");
            writing = true;
            write_page(options.docs);
        } else {
            show(options, make_schedule(options), writing);
        }
        return 0;
    } catch (CLI::ParseError const& error) {
        return complain(error.what(), bad_input);
    } catch (std::invalid_argument const& error) {
        return complain(error.what(), bad_input);
    } catch (io::FileError const& error) {
        return complain(error.what(), writing ? outside_failure : bad_input);
    } catch (std::exception const& error) {
        return complain(error.what(), internal_error);
    }
}
