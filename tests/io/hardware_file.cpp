#include <doctest/doctest.h>

#include <pentad/io/file.hpp>
#include <pentad/io/hardware_file.hpp>
#include <pentad/planner/hardware_presets.hpp>

#include "scratch.hpp"

#include <string>
#include <utility>

using namespace pentad;

namespace {

/// A machine that is right, its every number different.
std::string const good = R"({"name": "lab", "devices": 16, "devices_per_node": 8,
  "peak_flops": {"bf16": 3e14, "f32": 2e13}, "memory_bytes": 8e10, "memory_bandwidth": 2e12,
  "links": [{"devices": 8, "latency_s": 3e-6, "bandwidth": 3e11, "topology": "mesh"},
            {"devices": 16, "latency_s": 1e-5, "bandwidth": 25000000000}],
  "product_efficiency": 0.8, "bandwidth_efficiency": 0.7, "launch_s": 9e-6, "overlap": 0.5})";

/// The right machine with one text in the place of another.
std::string with(std::string const& found, std::string const& instead) {
    std::string text = good;
    auto const at = text.find(found);
    REQUIRE(at != std::string::npos);
    return text.replace(at, found.size(), instead);
}

} // namespace

TEST_CASE("a hardware file says what it says, and what it leaves out has its default") {
    auto const machine = io::hardware_from_json(good);
    CHECK(machine.name == "lab");
    CHECK(machine.devices == 16);
    CHECK(machine.devices_per_node == 8);
    CHECK(machine.peak_bf16 == 3e14);
    CHECK(machine.peak_f32 == 2e13);
    CHECK(machine.memory_bytes == 8e10);
    CHECK(machine.memory_bandwidth == 2e12);
    REQUIRE(machine.links.size() == 2);
    CHECK(machine.links[0].devices == 8);
    CHECK(machine.links[0].latency_s == 3e-6);
    CHECK(machine.links[0].bandwidth == 3e11);
    CHECK(machine.links[0].topology == planner::Topology::mesh);
    CHECK(machine.links[1].bandwidth == 25e9);
    CHECK(machine.links[1].topology == planner::Topology::switched);
    CHECK(machine.product_efficiency == 0.8);
    CHECK(machine.bandwidth_efficiency == 0.7);
    CHECK(machine.launch_s == 9e-6);
    CHECK(machine.overlap == 0.5);

    auto const alone = io::hardware_from_json(R"({"devices": 1, "devices_per_node": 4, "peak_flops": {"bf16": 1,
        "f32": 1}, "memory_bytes": 1, "memory_bandwidth": 1, "links": []})");
    planner::Hardware const defaults;
    CHECK(alone.links.empty());
    CHECK(alone.product_efficiency == defaults.product_efficiency);
    CHECK(alone.bandwidth_efficiency == defaults.bandwidth_efficiency);
    CHECK(alone.launch_s == defaults.launch_s);
    CHECK(alone.overlap == defaults.overlap);
}

TEST_CASE("every machine is read back from a file as it was written") {
    test::Scratch const scratch;
    auto machines = planner::machines();
    machines.push_back(io::hardware_from_json(good));
    for (auto const& machine : machines) {
        io::write_hardware(scratch / "machine.json", machine);
        auto const read = io::read_hardware(scratch / "machine.json");
        CAPTURE(io::to_json(read));
        CHECK(io::to_json(read) == io::to_json(machine));
        CHECK(read.name == machine.name);
        CHECK(read.peak_f32 == machine.peak_f32);
        CHECK(read.peak_bf16 == machine.peak_bf16);
        CHECK(read.memory_bandwidth == machine.memory_bandwidth);
        CHECK(read.links.size() == machine.links.size());
        CHECK(read.links[0].topology == machine.links[0].topology);
        CHECK(read.product_efficiency == machine.product_efficiency);
        CHECK(read.overlap == machine.overlap);
    }
}

TEST_CASE("a hardware file that is wrong is refused with its name, the field and what is expected there") {
    test::Scratch const scratch;
    auto const refusal = [&](std::string const& text) -> std::string {
        test::write_text(scratch / "f", text);
        try {
            io::read_hardware(scratch / "f");
        } catch (io::FileError const& error) {
            std::string const start = "cannot read the hardware " + (scratch / "f").string() + ": ";
            std::string const what = error.what();
            CHECK(what.substr(0, start.size()) == start);
            return what.substr(start.size());
        }
        return "";
    };
    CHECK(refusal(good) == "");
    for (auto const& [text, sentence] : std::initializer_list<std::pair<std::string, std::string>>{
             {"[]", "the file: expected one JSON object"},
             {"8", "the file: expected one JSON object"},
             {with("\"devices\": 16, ", ""), "devices: expected a value, and there is none"},
             {with("\"devices_per_node\": 8,", ""), "devices_per_node: expected a value, and there is none"},
             {with("\"devices\": 16", "\"devices\": 0"),
              "devices: expected a whole number from 1 to 1000000000, not 0"},
             {with("\"devices\": 16", "\"devices\": -16"),
              "devices: expected a whole number from 1 to 1000000000, not -16"},
             {with("\"devices\": 16", "\"devices\": 16.5"),
              "devices: expected a whole number from 1 to 1000000000, not 16.5"},
             {with("\"devices\": 16", "\"devices\": \"16\""),
              "devices: expected a whole number from 1 to 1000000000, not \"16\""},
             {with("\"devices\": 16", "\"devices\": 18446744073709551615"),
              "devices: expected a whole number from 1 to 1000000000, not 18446744073709551615"},
             {with("\"devices\": 16", "\"devices\": 12"), "devices: expected whole nodes of 8, not 12"},
             {with("\"devices\": 16", "\"devices\": 16, \"devices\": 32"), "'devices': expected once in an object"},
             {with("\"devices_per_node\": 8", "\"devices_per_node\": null"),
              "devices_per_node: expected a whole number from 1 to 1000000000, not null"},
             {with("\"name\": \"lab\"", "\"name\": 5"), "name: expected a text, not 5"},
             {with("memory_bytes", "memory_byte"), "'memory_byte': expected another key: did you mean memory_bytes?"},
             {with("\"name\"", "\"nome\""), "'nome': expected another key: did you mean name?"},
             {with("\"f32\": 2e13", "\"f32\": 2e13, \"f64\": 1e13"),
              "'peak_flops.f64': expected another key: did you mean f32?"},
             {with("\"peak_flops\": {\"bf16\": 3e14, \"f32\": 2e13},", ""),
              "peak_flops: expected a value, and there is none"},
             {with("{\"bf16\": 3e14, \"f32\": 2e13}", "3e14"), "peak_flops: expected an object, not 300000000000000.0"},
             {with(", \"f32\": 2e13", ""), "peak_flops.f32: expected a value, and there is none"},
             {with("3e14", "0"), "peak_flops.bf16: expected a number above 0 and at most 1e+18, not 0"},
             {with("3e14", "-3e14"),
              "peak_flops.bf16: expected a number above 0 and at most 1e+18, not -300000000000000.0"},
             {with("3e14", "3e20"), "peak_flops.bf16: expected a number above 0 and at most 1e+18, not 3e+20"},
             {with("3e14", "true"), "peak_flops.bf16: expected a number above 0 and at most 1e+18, not true"},
             {with("3e14", "null"), "peak_flops.bf16: expected a number above 0 and at most 1e+18, not null"},
             {with("8e10", "\"80 GB\""), "memory_bytes: expected a number above 0 and at most 1e+15, not \"80 GB\""},
             {with("8e10", "0.0"), "memory_bytes: expected a number above 0 and at most 1e+15, not 0.0"},
             {with("2e12", "-1"), "memory_bandwidth: expected a number above 0 and at most 1e+15, not -1"},
             {with("0.8", "1.1"), "product_efficiency: expected a number above 0 and at most 1, not 1.1"},
             {with("0.8", "0"), "product_efficiency: expected a number above 0 and at most 1, not 0"},
             {with("0.7", "-0.7"), "bandwidth_efficiency: expected a number above 0 and at most 1, not -0.7"},
             {with("9e-6", "-1e-6"), "launch_s: expected a number from 0 to 1, not -1e-06"},
             {with("9e-6", "9"), "launch_s: expected a number from 0 to 1, not 9"},
             {with("0.5", "1.5"), "overlap: expected a number from 0 to 1, not 1.5"},
             {with("0.5", "\"most\""), "overlap: expected a number from 0 to 1, not \"most\""},
             {with("\"links\"", "\"link\""), "'link': expected another key: did you mean links?"},
             {with("\"latency_s\": 3e-6", "\"latency_s\": -1"),
              "links[0].latency_s: expected a number from 0 to 1, not -1"},
             {with("\"latency_s\": 3e-6", "\"latency_s\": 3"),
              "links[0].latency_s: expected a number from 0 to 1, not 3"},
             {with("\"latency_s\": 3e-6, ", ""), "links[0].latency_s: expected a value, and there is none"},
             {with("25000000000", "0"), "links[1].bandwidth: expected a number above 0 and at most 1e+15, not 0"},
             {with("25000000000", "{}"), "links[1].bandwidth: expected a number above 0 and at most 1e+15, not {}"},
             {with("\"latency_s\": 1e-5", "\"latency\": 1e-5"),
              "'links[1].latency': expected another key: did you mean latency_s?"},
             {with("\"mesh\"", "\"ring\""), "links[0].topology: expected \"switched\" or \"mesh\", not \"ring\""},
             {with("\"mesh\"", "1"), "links[0].topology: expected \"switched\" or \"mesh\", not 1"},
             {with("{\"devices\": 8, ", "{\"devices\": 1, "),
              "links[0].devices: expected a whole number from 2 to 1000000000, not 1"},
             {with("{\"devices\": 8, ", "{"), "links[0].devices: expected a value, and there is none"},
             {with("{\"devices\": 8, ", "{\"devices\": 16, "),
              "links[1].devices: expected more than the 16 that the tier before joins, not 16"},
             {with("{\"devices\": 16, ", "{\"devices\": 12, "),
              "links: expected that the last tier joins all 16 devices, not 12"},
             {with("{\"devices\": 16, \"latency_s\": 1e-5, \"bandwidth\": 25000000000}", "16"),
              "links[1]: expected an object, not 16"},
         }) {
        CAPTURE(text);
        CHECK(refusal(text) == sentence);
    }
    // Of what is no JSON, the parser says where.
    for (auto const& text :
         {std::string(""), good.substr(0, 200), with("3e14", "NaN"), with("3e14", "Infinity"), good + "}"}) {
        CAPTURE(text);
        CHECK(refusal(text).substr(0, 5) == "line ");
    }
    CHECK(refusal(with("3e14", "1e999")).find("1e999") != std::string::npos);
    CHECK_THROWS_AS(io::read_hardware(scratch / "nothing"), io::FileError);
    CHECK_THROWS_AS(io::read_hardware(scratch.path()), io::FileError);
}
