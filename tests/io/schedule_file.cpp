#include <doctest/doctest.h>

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/schedule_file.hpp>
#include <pentad/pipeline/generators.hpp>

#include "scratch.hpp"

#include <stdexcept>
#include <string>

using namespace pentad;

TEST_CASE("every schedule is read back from JSON as it was written, and from a file in either form") {
    test::Scratch const scratch;
    for (auto const& generator : pipeline::generators) {
        pipeline::GeneratorOptions options{.ranks = 2, .micro_batches = 4};
        options.slices = generator.takes_slices ? 2 : 1;
        options.recompute = true;
        options.stage_operations = {.gather = generator.name.substr(0, 9) != "pipedream", .reduce = true, .step = true};
        auto const schedule = pipeline::generate(generator.name, options);
        CHECK(io::schedule_from_json(io::to_json(schedule)) == schedule);
        io::write_file(scratch / "json", io::to_json(schedule));
        io::write_file(scratch / "text", to_string(schedule));
        CHECK(io::read_schedule(scratch / "json") == schedule);
        CHECK(io::read_schedule(scratch / "text") == schedule);
    }
}

TEST_CASE("the JSON of a schedule has a line for each rank") {
    CHECK(io::to_json(pipeline::generate("1f1b", {.ranks = 2, .micro_batches = 1})) ==
          "{\"schedule\":\"1f1b\",\"micro-batches\":1,\"stages on ranks\":[[0,1]],\n"
          "\"ranks\": [\n"
          "[\"F0\",\">a0\",\"<g0\",\"B0\"],\n"
          "[\"<a0\",\"F0\",\"B0\",\">g0\"]]}\n");
}

TEST_CASE("a file that is wrong is refused with its name, the place and what is expected") {
    test::Scratch const scratch;
    auto const refusal = [&](std::string const& text) -> std::string {
        io::write_file(scratch / "f", text);
        try {
            io::read_schedule(scratch / "f");
        } catch (io::FileError const& error) {
            std::string const start = "cannot read the schedule " + (scratch / "f").string() + ": ";
            std::string const what = error.what();
            CHECK(what.substr(0, start.size()) == start);
            return what.substr(start.size());
        }
        return "";
    };
    auto const with = [&](std::string const& ranks) {
        return refusal(R"({"schedule": "x", "micro-batches": 1, "stages on ranks": [[0, 1]], "ranks": )" + ranks + "}");
    };
    CHECK(with(R"([["F0"], []])") == "");
    CHECK(with(R"([["F0", "Q0"], []])").substr(0, 34) == "ranks[0][1]: 'Q0' is no instructio");
    CHECK(with(R"([["F0", 1], []])") == "ranks[0][1]: expected an instruction, as in \"F0\", not 1");
    CHECK(with(R"([{}, []])") == "ranks[0]: expected a list of instructions, as in [\"F0\", \">a0\"]");
    CHECK(with("3") == "ranks: expected a list for each rank");
    CHECK(refusal("{}") == "the object: expected 'schedule' in it");
    CHECK(refusal(R"({"schedule": 1})") == "schedule: expected a name, not 1");
    CHECK(refusal(R"({"slices": -1})") == "slices: expected a number from 0 on, not -1");
    CHECK(refusal(R"({"slices": 99999999999})") == "slices: expected a number from 0 on, not 99999999999");
    CHECK(refusal(R"({"slices": 1e999})") == "number overflow parsing '1e999'");
    CHECK(refusal(R"({"slices": 1, "slices": 2})") == "'slices': expected once in an object");
    CHECK(refusal(R"({"gathers": 1})") == "gathers: expected true or false, not 1");
    CHECK(refusal(R"({"delay": [0, "x"]})") == "delay[1]: expected a number from 0 on, not \"x\"");
    CHECK(refusal(R"({"stages on ranks": [0]})") == "stages on ranks[0]: expected a list of numbers, not 0");
    CHECK(refusal(R"({"chunks": 2})").substr(0, 28) == "'chunks': expected schedule,");
    CHECK(refusal("{\"schedule\": \"x\",\n \"slices\" 2}").substr(0, 16) == "line 2, column 1");
    CHECK(refusal("slices two") == "line 1: 'two' is not a number from 0 on");
    CHECK_THROWS_AS(io::read_schedule(scratch / "nothing"), io::FileError);
}
