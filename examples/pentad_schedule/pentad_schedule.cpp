// Shows a pipeline schedule: a chart on the terminal, its bubble, memory and messages, SVG, a timeline for
// ui.perfetto.dev, and beside it what a run of it really did. See --help.
// Exit status: 0 done, 2 bad input, 3 a file cannot be written or memory is short, 1 anything else.
#include "command_line.hpp"
#include "descriptions.hpp"
#include "facts.hpp"
#include "page.hpp"
#include "size.hpp"

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/distinct_files.hpp>
#include <pentad/io/schedule_file.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/search.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/program/exit_status.hpp>
#include <pentad/report/activity.hpp>
#include <pentad/report/chart_svg.hpp>
#include <pentad/report/chart_text.hpp>
#include <pentad/report/format.hpp>
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
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
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

    [[nodiscard]] bool writes() const { return !svg.empty() || !perfetto.empty() || !text.empty() || !json.empty(); }
};

[[noreturn]] void refuse(std::string const& why) { throw std::invalid_argument(why); }

void add_flags(CLI::App& app, Options& o) {
    std::string group;
    auto const flag = [&](std::string const& name, auto& value, char const* shown, std::string const& help) {
        return app.add_option(name, value, help)->option_text(shown)->group(group);
    };
    auto const counts = command_line::whole_number(1, 1 << 16);

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

    file->excludes(app.add_flag("--pair", o.generator.pairs,
                                "forwards and backwards of dualpipe and dualpipe-v are pairs: each computes while the "
                                "other waits")
                       ->group(group));

    group = "times and memory, in units of your own";
    for (std::size_t at = 0; at < cost_flags.size(); ++at)
        flag(cost_flags[at].name, o.costs[at], "N or N,N,...", cost_flags[at].help)
            ->delimiter(',')
            ->check(command_line::whole_number(cost_flags[at].least, largest_cost));
    flag("--message", o.message, "N", "time of a message from rank to rank (default 0)")
        ->check(command_line::whole_number(0, largest_cost));

    flag("--memory", o.memory, "N or N,N,...",
         "most memory for activations on each rank, for --schedule automatic (default: any)")
        ->delimiter(',')
        ->check(command_line::whole_number(0, largest_cost));
    app.add_flag("--two-copies", o.two_copies, "--schedule automatic may lay each stage on two ranks")->group(group);

    group = "beside a run";
    auto* const ran =
        flag("--ran", o.ran, "TRACE",
             "what train_lm --trace wrote: its last whole step is drawn below the plan, whose times are the "
             "step's medians where none are given");
    flag("--ran-ranks", o.ran_ranks, "N,N,...", "the ranks of the run that are this pipeline, in order (default: all)")
        ->delimiter(',')
        ->check(command_line::whole_number(0, largest_cost))
        ->needs(ran);

    group = "output";
    flag("--colour", o.colour, "auto|always|never", "colours in the chart (default: on a terminal)")
        ->check(CLI::IsMember({"auto", "always", "never"}));
    flag("--width", o.width, "N", "columns of the chart (default: the terminal's)")
        ->check(command_line::whole_number(20, 1 << 20));
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

/// The files that are named, before any is opened: no two of them are one, and outputs can be written.
void check_files(CLI::App const& app, Options const& o) {
    std::vector<io::FlagFile> files;
    auto const add = [&](char const* flag, std::string const& path, bool is_output) {
        if (app.count(flag) > 0) files.push_back({flag, path, is_output});
    };
    add("--schedule-file", o.file, false);
    add("--ran", o.ran, false);
    add("--svg", o.svg, true);
    add("--perfetto", o.perfetto, true);
    add("--text", o.text, true);
    add("--json", o.json, true);
    add("--docs", o.docs, true);
    if (auto const why = io::refusal_of(files)) refuse(*why);
    for (auto const& file : files)
        if (file.is_output && file.flag != "--docs") io::check_writable(file.path);
}

/// That what is asked for can be made of a schedule of this size.
void check_outputs(Options const& o, Size const& size) {
    check_size(size);
    std::string const whole = "ask for fewer --micro-batches or --stages, or for --text FILE or --json FILE";
    auto const limit = [&](char const* flag, double most) {
        if (size.computes > most)
            refuse(std::string(flag) + " is for at most " + report::count(most) + " computes, and " + size.name +
                   " has about " + report::count(size.computes) + ": " + whole);
    };
    if (!o.svg.empty()) limit("--svg", most_svg_computes);
    if (!o.perfetto.empty()) limit("--perfetto", most_timeline_computes);
    if (!size.can_be_drawn() && !o.writes())
        refuse(size.text() + " (a proof takes " + size.memory() + "), and a chart shows at most " +
               std::to_string(most_drawn_ranks) + " ranks and " + report::count(most_drawn_computes) +
               " computes: " + whole);
    if (auto const most = std::floor(most_drawn_characters / size.ranks);
        size.can_be_drawn() && static_cast<double>(o.width) > most)
        refuse("--width " + std::to_string(o.width) + " is too wide for " + std::to_string(size.ranks) +
               " ranks: ask for " + std::to_string(std::llround(most)) + " columns or fewer");
}

/// @param said receives the line that a search prints above its schedule
Schedule make_schedule(Options const& o, report::Activity& activity, std::string& said) {
    bool const searches = o.schedule == "automatic";
    if (!searches && (!o.memory.empty() || o.two_copies))
        refuse("--memory and --two-copies are for --schedule automatic");
    if (!o.file.empty()) {
        activity.now("reading " + o.file);
        auto schedule = io::read_schedule(o.file);
        check_outputs(o, size_of(schedule));
        return schedule;
    }
    if (o.schedule.empty())
        refuse("--schedule NAME or --schedule-file FILE says which; there are " + generator_names());
    if (auto const why = searches ? "" : undefined(o.schedule, o.generator); !why.empty()) refuse(why);
    if (searches) check_search(o.generator);
    auto const size = size_of(o.schedule, o.generator);
    check_outputs(o, size);
    if (!searches) {
        activity.now("making " + report::count(size.instructions) + " instructions");
        return generate(o.schedule, o.generator);
    }
    activity.now("searching");
    auto found = automatic(
        o.generator, make_costs(o, o.generator.ranks * std::max(o.generator.chunks, 1)),
        {.memory = o.memory, .two_copies = o.two_copies, .progress = [&](double part) { activity.done(part); }});
    activity.hide();
    said = found.optimal ? "automatic: no order of the computes is faster on the placements that were tried\n"
                         : "automatic: the fastest that was found\n";
    return std::move(found.schedule);
}

/// Each rank's peak, or from the least to the most where they would fill the screen.
std::string peaks_text(Simulation const& times) {
    std::string text;
    if (times.ranks.size() <= 64) {
        for (auto const& rank : times.ranks) text += " " + std::to_string(rank.peak_memory);
        return text + ": each rank's peak, of activations\n";
    }
    auto const [least, most] =
        std::minmax_element(times.ranks.begin(), times.ranks.end(),
                            [](auto const& a, auto const& b) { return a.peak_memory < b.peak_memory; });
    return " " + std::to_string(least->peak_memory) + " to " + std::to_string(most->peak_memory) +
           ": the ranks' peaks, of activations\n";
}

/// The closed form of its description; of pairs, DualPipe's own.
std::string wait_of(Description const& known, Schedule const& schedule) {
    if (!has_pairs(schedule)) return std::string(known.wait);
    return schedule.placements.size() == 2 ? "(p/2 - 1)(P + B - 3W), P of a pair,"
                                           : "(p - 1)(P + B - 3W) of a chunk, P of a pair,";
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
        text += "waits     " + wait_of(*known, schedule) + " where stages are alike, messages take no time" +
                (known->domain == "always" ? "" : " and " + std::string(known->domain)) + "\n";
    text += "memory   " + peaks_text(facts.times);
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

/// A file that is written a rank at a time: a large schedule is in memory only once.
template <class WriteAll>
void write_by_ranks(std::string const& path, WriteAll const& write_all) {
    io::AtomicFile file(path);
    write_all([&](std::string const& text) { file.write(text); });
    file.commit();
}

/// What the program says about a schedule; files are written last.
void show(Options const& o, Schedule const& schedule, report::Activity& activity, std::string shown) {
    Size const size = size_of(schedule);
    activity.now("proving " + report::count(size.instructions) + " instructions");
    auto const verdict = validate(schedule);
    if (verdict.refusal) refuse((o.file.empty() ? schedule.name : o.file) + ": " + verdict.refusal->message());
    activity.now("timing " + report::count(size.instructions) + " instructions");
    bool const needs_charts = size.can_be_drawn() || !o.svg.empty() || !o.perfetto.empty() || !o.ran.empty();
    std::vector<report::PipelineChart> charts;
    Costs costs = make_costs(o, schedule.stages());
    double unit = 0; // of time, in seconds
    if (!o.ran.empty()) {
        charts.push_back(program::with_files_of_user(
            [&] { return report::measured_chart(o.ran, report::planned_chart(schedule, {}, ""), o.ran_ranks); }));
        bool const timed =
            std::any_of(o.costs.begin(), o.costs.begin() + times, [](auto const& x) { return !x.empty(); });
        if (!timed) {
            report::set_times(costs, charts[0]);
            unit = charts[0].unit;
        }
        charts[0].title += ": bubble " + percent(report::times_of(charts[0]).bubble());
    }
    auto const facts = facts_of(schedule, verdict, costs);
    std::string const title = headline(schedule) + ": bubble " + percent(facts.times.bubble());
    if (needs_charts) {
        charts.insert(charts.begin(), report::planned_chart(schedule, costs, title));
        charts[0].unit = unit;
    }
    if (size.can_be_drawn()) {
        bool const colours = o.colour == "always" || (o.colour == "auto" && report::is_terminal(stdout));
        std::size_t const width = o.width > 0 ? o.width : report::columns_of(stdout);
        shown += report::chart_text(charts, {.columns = width, .colours = colours});
    } else {
        shown += title + "\nnot drawn: a chart shows at most " + std::to_string(most_drawn_ranks) + " ranks and " +
                 report::count(most_drawn_computes) + " computes\n";
    }
    shown += summary(schedule, facts, costs, unit);
    activity.hide();
    std::fputs(shown.c_str(), stdout);

    auto const write = [&](std::string const& path, auto const& to_file) {
        if (path.empty()) return;
        activity.now("writing " + path);
        to_file();
    };
    write(o.svg, [&] { io::write_file(o.svg, report::chart_svg(charts)); });
    write(o.perfetto, [&] { write_perfetto(o.perfetto, charts); });
    write(o.text, [&] { write_by_ranks(o.text, [&](auto const& line) { write_text(schedule, line); }); });
    write(o.json, [&] { write_by_ranks(o.json, [&](auto const& line) { io::write_json(schedule, line); }); });
}

} // namespace

int main(int argc, char** argv) {
    return program::run_alone("pentad_schedule", [&] {
        Options options;
        CLI::App app("Shows a pipeline schedule, and beside it what a run of it did.", "pentad_schedule");
        add_flags(app, options);
        try {
            app.parse(argc, argv);
        } catch (CLI::CallForHelp const&) {
            std::fputs(app.help().c_str(), stdout);
            return program::done;
        } catch (CLI::ParseError const& error) {
            refuse(error.what());
        }
        program::with_files_of_user([&] { check_files(app, options); });
        if (app.count("--docs") > 0) {
            for (auto const* option : app.get_options())
                if (option->count() > 0 && option->get_name() != "--docs")
                    refuse("--docs is alone, without " + option->get_name() + ": the page has every schedule");
            write_page(options.docs);
            return program::done;
        }
        try {
            report::Activity activity;
            std::string said;
            auto const schedule = program::with_files_of_user([&] { return make_schedule(options, activity, said); });
            show(options, schedule, activity, std::move(said));
        } catch (std::bad_alloc const&) {
            throw program::OutsideFailure("there is not enough memory: ask for fewer --stages or --micro-batches");
        }
        return program::done;
    });
}
