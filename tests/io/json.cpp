// JSON that is hostile, or broken: every reader refuses it with one short line, soon.
#include <doctest/doctest.h>

#include <pentad/io/hardware_file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/io/safetensors.hpp>
#include <pentad/io/schedule_file.hpp>
#include <pentad/mesh/one_line.hpp>

#include "scratch.hpp"

#include <cstdint>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <vector>

using namespace pentad;

namespace {

std::string refusal(auto const& read) {
    auto const start = std::clock(); // of the processor: a busy machine does not stretch it
    std::string sentence = "none";
    try {
        read();
    } catch (std::invalid_argument const& error) {
        sentence = error.what();
    } catch (io::FileError const& error) {
        sentence = error.what();
        sentence = sentence.substr(sentence.find("safetensors: ") + 13);
    }
    CHECK(sentence.size() < 300);
    CHECK(is_printable(sentence));
    CHECK(std::clock() - start < 5 * CLOCKS_PER_SEC);
    return sentence;
}

/// What each reader says of a text.
std::vector<std::string> refusals(std::string const& text) {
    test::Scratch const scratch;
    std::uint64_t const length = text.size();
    std::string header(sizeof length, '\0');
    std::memcpy(header.data(), &length, sizeof length);
    test::write_text(scratch / "t", header + text);
    return {refusal([&] { io::hardware_from_json(text); }), refusal([&] { io::model_from_config(text); }),
            refusal([&] { io::schedule_from_json(text); }), refusal([&] { io::SafetensorsReader(scratch / "t"); })};
}

std::string repeated(std::string const& text, std::size_t times) {
    std::string all;
    all.reserve(text.size() * times);
    for (std::size_t i = 0; i < times; ++i) all += text;
    return all;
}

} // namespace

TEST_CASE("deep values are refused by all readers") {
    for (auto const& open : {std::string("["), std::string("{\"a\":"), std::string("[{\"a\":")})
        for (std::size_t const levels : {65u, 70'000u})
            for (bool const closed : {false, true}) {
                std::string text = "{\"name\":" + repeated(open, levels);
                if (closed) {
                    text += '0';
                    for (std::size_t i = 0; i < levels; ++i)
                        text += open == "[" ? "]" : open == "[{\"a\":" ? "}]" : "}";
                    text += '}';
                }
                for (auto const& sentence : refusals(text))
                    CHECK(sentence.ends_with(": expected lists and objects at most 64 deep"));
            }
    // As deep as may be is still no name.
    CHECK(refusal([&] { io::schedule_from_json("{\"schedule\":" + repeated("[", 63) + repeated("]", 63) + "}"); }) ==
          "schedule: expected a name, not " + repeated("[", 57) + "...");
}

TEST_CASE("values and keys are quoted in part") {
    auto const of = [](std::string const& key, std::string const& value) {
        return refusal([&] { io::schedule_from_json("{\"" + key + "\":" + value + "}"); });
    };
    std::string const long_text = "\"" + std::string(1'000'000, 'x') + "\"";
    CHECK(of("slices", long_text) == "slices: expected a number from 0 on, not \"" + std::string(56, 'x') + "...");
    CHECK(of("slices", "[1,2,{\"a\":[null,true]}]") ==
          "slices: expected a number from 0 on, not [1,2,{\"a\":[null,true]}]");
    CHECK(of("slices", "[" + repeated("17,", 1'000'000) + "17]") ==
          "slices: expected a number from 0 on, not [" + repeated("17,", 18) + "17...");
    CHECK(of("slices", "{" + long_text + ":" + long_text + "}").size() < 110);
    CHECK(of("slices", "\"\\u001b[31m\\u0085\"") ==
          "slices: expected a number from 0 on, not \"\\u001b[31m\\xc2\\x85\"");
    CHECK(of(std::string(1'000'000, 'x'), "1").starts_with("'" + std::string(57, 'x') + "...': expected schedule,"));
    CHECK(of("slices", std::string(1'000'000, '1')).starts_with("number overflow parsing '111"));
    CHECK(of("slices", "\"" + std::string(1'000'000, 'x')).starts_with("line 1, column 10000"));
    CHECK(refusal([] {
              io::hardware_from_json("{\"" + std::string(500'000, 'x') + "\":1}");
          }).starts_with("'" + std::string(57, 'x') + "...': expected another key"));
}

TEST_CASE("text that is no JSON, or not UTF-8, is refused by all readers") {
    for (std::string const& text :
         {std::string("{\"name\": \"\xff\"}"), std::string("{\"name\": \"a\0b\"}", 15),
          std::string("{\"name\": 1}\0", 12), std::string("\0", 1), std::string(1000, '\0'),
          std::string("{\"name\": \"\\ud800\"}"), std::string("{\"name\": tru}"), std::string("{\"name\": 1e999}"),
          std::string("{\"name\": 01}"), std::string("{\"name\": 1} {}"), std::string("{\"name\": 1, \"name\": 2}"),
          std::string("{\"a\": {\"b\": 1, \"c\": [], \"b\": 2}}")})
        for (auto const& sentence : refusals(text)) {
            CAPTURE(sentence);
            CHECK((sentence.starts_with("line 1, column ") || sentence.starts_with("number overflow") ||
                   sentence.ends_with("': expected once in an object") ||
                   sentence.ends_with(": expected one JSON object")));
        }
}

TEST_CASE("names are refused that cannot be printed") {
    for (std::string const& name :
         {std::string("a\\u0000"), std::string("a\\nrank 0: F0"), std::string("\\u001b[31m")}) {
        CHECK(refusal([&] {
                  io::hardware_from_json("{\"name\": \"" + name + "\"}");
              }).starts_with("name: expected a text without control characters, not \""));
        CHECK(refusal([&] {
                  io::model_from_config("{\"model_type\": \"llama\", \"_name_or_path\": \"" + name + "\"}");
              }) != "none");
        CHECK(refusal([&] {
                  io::schedule_from_json("{\"schedule\": \"" + name + "\"}");
              }).starts_with("schedule: expected a name without #, control characters"));
    }
}

TEST_CASE("large objects and lists take time in proportion") {
    std::string members;
    for (int i = 0; i < 300'000; ++i) members += "\"" + std::to_string(i) + "\":{},";
    for (auto const& sentence : refusals("{" + members + "\"name\":[" + repeated("{},", 300'000) + "{}]}")) {
        CAPTURE(sentence);
        CHECK(sentence != "none");
    }
}
