#include <doctest/doctest.h>

#include <pentad/io/file.hpp>
#include <pentad/observe/trace.hpp>
#include <pentad/report/format.hpp>
#include <pentad/report/progress.hpp>
#include <pentad/report/timeline.hpp>

#include "../io/scratch.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <vector>

using namespace pentad;

TEST_CASE("bytes, rates and counts are three figures and a unit") {
    CHECK(report::bytes(0) == "0 B");
    CHECK(report::bytes(1023) == "1023 B");
    CHECK(report::bytes(1024) == "1.00 KiB");
    CHECK(report::bytes(1.5 * 1024 * 1024) == "1.50 MiB");
    CHECK(report::bytes(1023.7 * 1024) == "1.00 MiB");
    CHECK(report::bytes(1000.4 * 1024) == "1000 KiB");
    CHECK(report::flop_rate(312e9) == "312 GFLOP/s");
    CHECK(report::flop_rate(99.96e9) == "100 GFLOP/s");
    CHECK(report::count(950) == "950");
    CHECK(report::count(12345) == "12.3 k");
    CHECK(report::count(999.6e3) == "1.00 M");
    CHECK(report::count(0.5) == "0.50");
}

TEST_CASE("durations are in the units that people use") {
    CHECK(report::duration(0.00085) == "850 us");
    CHECK(report::duration(0.9994) == "999 ms");
    CHECK(report::duration(0.9996) == "1.00 s");
    CHECK(report::duration(59.94) == "59.9 s");
    CHECK(report::duration(59.96) == "1m 00s");
    CHECK(report::duration(125) == "2m 05s");
    CHECK(report::duration(3599.6) == "1h 00m");
    CHECK(report::duration(12000) == "3h 20m");
    CHECK(report::duration(187200) == "2d 04h");
    CHECK(report::duration(-1) == "?");
    CHECK(report::duration(std::numeric_limits<double>::quiet_NaN()) == "?");
    CHECK(report::duration(std::numeric_limits<double>::infinity()) == "more than 30 years");
}

TEST_CASE("a timeline is JSON in which each rank is a process") {
    std::vector<observe::Span> const spans{
        {"forward", "pipeline", {.micro_batch = 2}, 1000, 9500, false},
        {"all-reduce \"x\"\n", "communication", {.axis = "dp.cp", .bytes = 64}, 1500, 3001, true},
    };
    test::Scratch const scratch;
    std::vector<std::string> const parts{report::timeline_part(spans, 0, "rank 0 (dp 0)"),
                                         report::timeline_part({}, 1, "rank 1 (dp 1)", 7)};
    report::write_timeline(scratch / "t.json", parts);

    auto const file = nlohmann::json::parse(test::text_of(scratch / "t.json"));
    auto const& events = file.at("traceEvents");
    REQUIRE(events.size() == 7);
    CHECK(events[0].at("args").at("name") == "rank 0 (dp 0)");
    auto const& forward = events[2];
    CHECK(forward.at("ph") == "X");
    CHECK(forward.at("ts") == 1.0);
    CHECK(forward.at("dur") == 8.5);
    CHECK(forward.at("args") == nlohmann::json{{"micro_batch", 2}});
    auto const& begin = events[3];
    auto const& end = events[4];
    CHECK(begin.at("ph") == "b");
    CHECK(end.at("ph") == "e");
    CHECK(begin.at("id") == end.at("id"));
    CHECK(begin.at("name") == "all-reduce \"x\"\n");
    CHECK(begin.at("args") == nlohmann::json{{"axis", "dp.cp"}, {"bytes", 64}});
    CHECK(end.at("ts") == 3.001);
    CHECK(events[5].at("args").at("name") == "rank 1 (dp 1), 7 spans lost: the buffer was full");
    CHECK(events[5].at("pid") == 1);
}

TEST_CASE("a timeline that cannot be written is an error that names it") {
    CHECK_THROWS_WITH_AS(
        report::write_timeline("/dev/full", std::vector<std::string>{report::timeline_part({}, 0, "rank 0")}),
        "cannot write /dev/full: No space left on device", io::FileError);
}

TEST_CASE("progress in a file is a line a step, and nothing when quiet") {
    test::Scratch const scratch;
    auto const printed = [&](report::Progress::Style style, std::optional<double> first = 3.25) {
        std::FILE* const file = std::fopen((scratch / "out").c_str(), "w");
        {
            report::Progress progress(2, 100, style, file);
            progress.step(1, first);
            progress.step(2, 3.125);
        }
        std::fclose(file);
        return test::text_of(scratch / "out");
    };
    std::FILE* const file = std::fopen((scratch / "out").c_str(), "w");
    CHECK(report::Progress::style_for(file) == report::Progress::Style::lines);
    std::fclose(file);

    auto const lines = printed(report::Progress::Style::lines);
    CHECK(lines.starts_with("step 1/2  loss 3.2500  "));
    CHECK(lines.find("\nstep 2/2  loss 3.1250  ") != std::string::npos);
    CHECK(lines.find(" left\n") < lines.find("step 2/2"));
    CHECK(lines.ends_with(" tokens/s\n")); // the last step leaves none
    CHECK(printed(report::Progress::Style::quiet) == "");
    CHECK(printed(report::Progress::Style::lines, std::nullopt).starts_with("step 1/2  loss none  "));

    auto const bar = printed(report::Progress::Style::bar);
    CHECK(bar.starts_with("\r["));
    CHECK(bar.find("2/2  loss 3.1250") != std::string::npos); // the last step is always shown
    CHECK(bar.ends_with("\x1b[K\n"));                         // and the line is ended, once
    for (std::size_t begin = 0; begin < bar.size();) {        // no picture is wider than the 80 columns assumed
        auto const end = std::min(bar.find('\r', begin + 1), bar.size());
        CHECK(end - begin <= 80 + 4);
        begin = end;
    }
}
