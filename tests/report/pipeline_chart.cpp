#include <doctest/doctest.h>

#include <pentad/io/atomic_file.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/simulator.hpp>
#include <pentad/report/chart_svg.hpp>
#include <pentad/report/chart_text.hpp>
#include <pentad/report/measured_chart.hpp>
#include <pentad/report/pipeline_chart.hpp>
#include <pentad/report/timeline.hpp>

#include "../io/scratch.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;

namespace {

report::PipelineChart chart_of(std::string_view name, pipeline::GeneratorOptions const& options,
                               pipeline::Costs const& costs = {}) {
    return report::planned_chart(pipeline::generate(name, options), costs, std::string(name));
}
report::PipelineChart forwards_chart(pipeline::GeneratorOptions const& options) {
    auto const schedule = pipeline::forwards_of(pipeline::generate("gpipe", options), options.micro_batches);
    return report::planned_chart(schedule, {}, schedule.name);
}
std::string text_of(report::PipelineChart const& chart, report::TextStyle style) {
    return report::chart_text({&chart, 1}, style);
}
std::size_t count(std::string_view text, std::string_view what) {
    std::size_t found = 0;
    for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
    return found;
}
std::size_t widest_line(std::string const& text) {
    std::istringstream lines(text);
    std::size_t widest = 0;
    for (std::string line; std::getline(lines, line);) widest = std::max(widest, line.size());
    return widest;
}

} // namespace

TEST_CASE("a chart without colours says what is computed, as the text form of schedules does") {
    CHECK(text_of(chart_of("1f1b", {.ranks = 2, .micro_batches = 3}), {}) == "1f1b\n"
                                                                             "rank 0  F0F1    B0--F2B1--  B2--\n"
                                                                             "rank 1    F0B0--F1B1--F2B2--\n"
                                                                             "        0         5         10\n"
                                                                             "        F forward  B backward\n");
    CHECK(text_of(chart_of("zb-v", {.ranks = 2, .micro_batches = 2}), {}) ==
          "zb-v\n"
          "rank 0  F0F1  f0d0w0f1d1w1D0W0  D1W1\n"
          "rank 1    F0f0F1f1d0w0D0W0d1w1D1W1\n"
          "        0         5         10\n"
          "        F forward  D backward-data  W backward-weight  (small letter: every second stage of the rank)\n");
    CHECK(text_of(chart_of("terapipe", {.ranks = 1, .micro_batches = 1, .slices = 2, .recompute = true}), {}) ==
          "terapipe\n"
          "rank 0  F0.0F0.1R0.1B0.1----R0.0B0.0----\n"
          "        0                   5\n"
          "        F forward  B backward  R recompute\n");
}

TEST_CASE("with colours the number is enough, and its last digit where there is no room") {
    CHECK(text_of(forwards_chart({.ranks = 2, .micro_batches = 2}), {.colours = true}) ==
          "forwards of gpipe\n"
          "rank 0  \x1b[48;5;110;38;5;16m0 \x1b[48;5;110;38;5;16m1 \x1b[0m\n"
          "rank 1    \x1b[48;5;110;38;5;16m0 \x1b[48;5;110;38;5;16m1 \x1b[0m\n"
          "        0\n"
          "        \x1b[48;5;110;38;5;16m  \x1b[0m forward\n");
    auto const narrow = text_of(forwards_chart({.ranks = 1, .micro_batches = 12}), {.columns = 21, .colours = true});
    CHECK(narrow.find("m9\x1b[48;5;110;38;5;16m0\x1b[48;5;110;38;5;16m1\x1b[0m\n") != narrow.npos);
    CHECK(narrow.find("(numbers: last digit)") != narrow.npos);
}

TEST_CASE("a chart is as wide as it has room for, a column for each compute at least, and says where it is cut") {
    auto const chart = chart_of("gpipe", {.ranks = 2, .micro_batches = 12}); // 39 units of time
    CHECK(text_of(chart, {.columns = 8 + 39 * 3 + 1}).find("rank 0  F0-F1-") != std::string::npos);
    CHECK(text_of(chart, {.columns = 8 + 39 * 3}).find("rank 0  F0F1") != std::string::npos);
    CHECK(text_of(chart, {.columns = 8 + 39 + 1}).find("cut") == std::string::npos);
    for (std::size_t columns = 20; columns < 8 + 39 + 1; ++columns) {
        auto const cut = text_of(chart, {.columns = columns});
        CHECK(cut.find("        cut: the whole is 48 columns wide\n") != std::string::npos);
        CHECK(widest_line(cut.substr(0, cut.find("        cut"))) <= columns);
    }
    for (std::size_t columns = 20; columns < 200; ++columns)
        CHECK(widest_line(text_of(chart, {.columns = columns}).substr(0, 300)) <= std::max<std::size_t>(columns, 48));
}

TEST_CASE("charts of one unit have one scale, others the same width") {
    std::vector<report::PipelineChart> charts{chart_of("gpipe", {.ranks = 1, .micro_batches = 1}),
                                              chart_of("gpipe", {.ranks = 1, .micro_batches = 2})};
    CHECK(report::chart_text(charts, {}).find("rank 0  F0B0--\n") != std::string::npos);
    CHECK(report::chart_text(charts, {}).find("rank 0  F0F1B0--B1--\n") != std::string::npos);
    charts[1].unit = 1e-3;
    CHECK(report::chart_text(charts, {}).find("rank 0  FFB0B1\n        0\n") != std::string::npos);
}

TEST_CASE("what a planned chart shows is what the simulator says") {
    for (auto const& generator : pipeline::generators) {
        pipeline::Costs const costs{.stages = {{.forward = 10, .backward_data = 11, .backward_weight = 7}},
                                    .message = 2};
        auto const schedule = pipeline::generate(generator.name, {.ranks = 4, .micro_batches = 9});
        auto const simulated = pipeline::simulate(schedule, costs);
        auto const chart = report::planned_chart(schedule, costs, "");
        auto const shown = report::times_of(chart);
        CHECK(shown.makespan == simulated.makespan);
        CHECK(chart.end() == simulated.makespan);
        CHECK(shown.bubble() == simulated.bubble());
        for (std::size_t rank = 0; rank < 4; ++rank) {
            CHECK(shown.ranks[rank].start == simulated.ranks[rank].start);
            CHECK(shown.ranks[rank].busy == simulated.ranks[rank].busy);
        }
        // One box for each compute.
        std::size_t computes = 0;
        for (auto const& list : schedule.instructions)
            computes += static_cast<std::size_t>(
                std::count_if(list.begin(), list.end(), [](auto const& x) { return is_compute(x.operation); }));
        auto const picture = report::chart_svg({&chart, 1});
        CHECK(count(picture, "<rect") == computes);
        CHECK(picture.size() < 3000 + 100 * computes);
    }
}

TEST_CASE("an optimizer step is a mark in the picture, and titles are escaped") {
    auto chart = chart_of("pipedream", {.ranks = 2, .micro_batches = 3});
    chart.title = "<a & b>";
    auto const picture = report::chart_svg({&chart, 1});
    CHECK(picture.find(">&lt;a &amp; b></text>") != picture.npos);
    CHECK(picture.find(">optimizer-step</text>") != picture.npos);
    CHECK(count(picture, "-1v24") == 6);
}

TEST_CASE("ticks are at 1, 2, 5, 10, ... and no more than there is room for") {
    CHECK(report::detail::tick_step(10, 10) == 1);
    CHECK(report::detail::tick_step(11, 10) == 2);
    CHECK(report::detail::tick_step(50, 10) == 5);
    CHECK(report::detail::tick_step(51, 10) == 10);
    CHECK(report::detail::tick_step(1'000'001, 10) == 200'000);
    CHECK(report::detail::tick_step(7, 0) == 10);
}

namespace {

/// A run of 1F1B on 2 ranks with 2 micro-batches: rank 0's compute k takes k + 1 us after waiting 1 us. A step begins
/// 100 us after the last.
class Run {
  public:
    void compute(std::string_view name, int micro_batch, int stage = -1) {
        now_ += 1000;
        observe::SpanDetail const detail{.micro_batch = micro_batch, .stage = stage};
        spans_.push_back({name, "pipeline", detail, now_, now_ + length_, false});
        now_ += length_;
        length_ += 1000;
    }
    void other(std::string_view name, std::string_view category) {
        spans_.push_back({name, category, {}, now_, now_ + 500, false});
    }
    void step(int first_stage = -1) {
        now_ += 100'000;
        length_ = 1000;
        for (auto const& [name, micro_batch] : order) {
            compute(name, micro_batch, first_stage);
            other("send-activation", "pipeline");
            other("gemm", "compute");
        }
    }
    [[nodiscard]] std::string part(int rank) const { return report::timeline_part(spans_, rank, "rank"); }
    std::vector<std::pair<std::string_view, int>> order;

  private:
    std::int64_t now_ = 0, length_ = 1000;
    std::vector<observe::Span> spans_;
};

} // namespace

TEST_CASE(
    "the last whole step of a timeline is found among evaluations, other spans and steps that were not finished") {
    test::Scratch const scratch;
    auto const path = scratch / "trace.json";
    auto const planned = chart_of("1f1b", {.ranks = 2, .micro_batches = 2});
    Run first, last;
    first.order = {{"forward", 0}, {"forward", 1}, {"backward", 0}, {"backward", 1}};
    last.order = {{"forward", 0}, {"backward", 0}, {"forward", 1}, {"backward", 1}};
    first.compute("forward", 0);
    first.compute("forward", 1);
    first.step();
    first.step(0);
    last.step();
    last.step(1);
    last.step();
    first.compute("forward", 0);
    auto const write = [&](std::vector<std::string> const& parts) { report::write_timeline(path, parts); };
    write({first.part(3), last.part(5), Run().part(7)});

    auto const chart = report::measured_chart(path, planned);
    CHECK(chart.title == "measured: step 2 of 2");
    CHECK(chart.unit == 1e-9);
    // Rank 0 begins its second step 2 x 101 us after 5 us of evaluation and 14 us of its first; rank 1 without the
    // former.
    auto const& bars = chart.ranks[0];
    REQUIRE(bars.size() == 4);
    CHECK(bars[0].start == 5000);
    CHECK(bars[0].end == 6000);
    CHECK(bars[3].instruction == pipeline::Instruction{pipeline::Operation::backward, 0, 1});
    CHECK(bars[3].start == 5000 + 1000 + 1000 + 2000 + 1000 + 3000 + 1000);
    CHECK(bars[3].end == bars[3].start + 4000);
    CHECK(chart.ranks[1][0].start == 0);
    auto const times = report::times_of(chart);
    CHECK(times.bubble() == doctest::Approx(1 - 10.0 / 13));

    pipeline::Costs costs{.stages = {{}, {}}};
    report::set_times(costs, chart);
    CHECK(costs.stages[0].forward == 2000); // of 1 and 2
    CHECK(costs.stages[1].forward == 3000); // of 1 and 3
    CHECK(costs.stages[1].of(pipeline::Operation::backward) == 4000);

    CHECK(report::measured_chart(path, planned, {3, 5}).ranks[0][3].end == bars[3].end);
    auto const refusal = [&](report::PipelineChart const& plan, std::vector<int> processes = {}) {
        try {
            report::measured_chart(path, plan, processes);
        } catch (io::FileError const& error) {
            std::string const what = error.what(), start = "cannot read the timeline " + path.string() + ": ";
            CHECK(what.starts_with(start));
            return what.substr(std::min(start.size(), what.size()));
        }
        return std::string();
    };
    CHECK(refusal(chart_of("gpipe", {.ranks = 2, .micro_batches = 2})) ==
          "its rank 5 does not do what the schedule says, in no step: is it a run of this schedule?");
    CHECK(refusal(chart_of("gpipe", {.ranks = 3, .micro_batches = 2})) ==
          "it has pipeline steps of 2 ranks, and the schedule is for 3");
    CHECK(refusal(planned, {5, 3}) ==
          "its rank 5 does not do what the schedule says, in no step: is it a run of this schedule?");
    io::write_file(path, "{\"traceEvents\":[{\"cat\":\"pipeline\",\"name\":\"forward\",\"ph\":\"X\",\"pid\":0}]}");
    CHECK(refusal(planned).starts_with("it is none that train_lm --trace writes ("));
    io::write_file(path, "{}");
    CHECK(refusal(planned).starts_with("it is none that train_lm --trace writes ("));
}

TEST_CASE("a file that is no timeline is refused soon, with a sentence") {
    test::Scratch const scratch;
    auto const path = scratch / "trace.json";
    auto const planned = chart_of("gpipe", {.ranks = 1, .micro_batches = 1});
    auto const of_file = [&] {
        auto const start = std::clock(); // of the processor: a busy machine does not stretch it
        std::string what = "none";
        try {
            report::measured_chart(path, planned);
        } catch (io::FileError const& error) {
            what = error.what();
        }
        CHECK(std::clock() - start < 2 * CLOCKS_PER_SEC);
        CHECK(what.size() < 400);
        return what;
    };
    auto const event = [](std::string const& change, std::string const& instead) {
        std::string text =
            R"({"name":"forward","cat":"pipeline","ph":"X","pid":0,"ts":1,"dur":2,"args":{"micro_batch":0}})";
        auto const at = text.find(change);
        REQUIRE(at != text.npos);
        return text.replace(at, change.size(), instead);
    };
    auto const of = [&](std::string const& events) {
        io::write_file(path, "{\"traceEvents\":[" + events + "]}");
        auto const what = of_file();
        auto const from = what.find(" (");
        return from == what.npos ? what : what.substr(from + 2, what.size() - from - 3);
    };
    std::string const none = " does not do what the schedule says, in no step: is it a run of this schedule?";
    CHECK(of(event("", "")).ends_with("its rank 0" + none)); // no backward
    CHECK(of(event("pipeline", "compute")).ends_with("pipeline steps of 0 ranks, and the schedule is for 1"));
    CHECK(of(event("\"pid\":0", "\"pid\":1e300")) == "pid: expected a whole number from 0 to 2147483647, not 1e+300");
    CHECK(of(event("\"pid\":0", "\"pid\":-1")) == "pid: expected a whole number from 0 to 2147483647, not -1");
    CHECK(of(event("\"ts\":1", "\"ts\":1e300")) == "ts: expected microseconds from 0 to 1e15, not 1e+300");
    CHECK(of(event("\"dur\":2", "\"dur\":-2")) == "dur: expected microseconds from 0 to 1e15, not -2");
    CHECK(of(event("{\"micro_batch\":0}", "[]")) == "micro_batch: expected a value, and there is none");
    CHECK(of(event("\"dur\":2,", "")) == "dur: expected a value, and there is none");
    CHECK(of(event("0}}", "99999999999}}")) ==
          "micro_batch: expected a whole number from 0 to 2147483647, not 99999999999");
    CHECK(of(event("0}}", "0,\"stage\":-5}}")) == "stage: expected a whole number from 0 to 2147483647, not -5");
    CHECK(of(event("\"X\"", "8")).ends_with("steps of 0 ranks, and the schedule is for 1"));
    CHECK(of(std::string(70'000, '[')) == "the file: expected lists and objects at most 64 deep");
    std::string many = event("pipeline", "compute");
    for (int i = 0; i < 200'000; ++i) many += i % 2 == 0 ? ",{}" : ",[]";
    CHECK(of(many).ends_with("steps of 0 ranks, and the schedule is for 1"));

    io::write_file(path, "{\"traceEvents\":[");
    std::filesystem::resize_file(path, 1'000'000'000);
    CHECK(of_file().find("line 1, column 17: syntax error") != std::string::npos);
    io::write_file(path, "{\"traceEvents\":[]}");
    std::filesystem::resize_file(path, 1'000'000'000);
    CHECK(of_file().find("the file: expected one JSON object") != std::string::npos);
    std::filesystem::resize_file(path, 20'000'000'000);
    CHECK(of_file() ==
          "cannot read " + path.string() + ": it has 20000000000 bytes, and at most 17179869184 are allowed");
    std::filesystem::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK(of_file() == "cannot read " + path.string() + ": it is no regular file");
}
