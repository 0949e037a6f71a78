#include <doctest/doctest.h>

#include <pentad/io/distinct_files.hpp>
#include <pentad/io/file.hpp>

#include "scratch.hpp"

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>

using namespace pentad;
namespace fs = std::filesystem;

namespace {

using Sentence = std::optional<std::string>;

/// In a folder of the test's own, to which relative names refer.
struct Here {
    Here() { fs::current_path(scratch.path()); }
    ~Here() { fs::current_path(before); }

    fs::path before = fs::current_path();
    test::Scratch scratch;
};

Sentence input_and_output(fs::path const& input, fs::path const& output) {
    return io::refusal_of({{"--data", input, false}, {"--log", output, true}});
}
bool clash(fs::path const& one, fs::path const& other) {
    return io::refusal_of({{"--a", one, true}, {"--b", other, true}}).has_value();
}

} // namespace

TEST_CASE("an output that is an input is refused, with both flags") {
    Here const here;
    test::write_text("text", "some");
    CHECK(input_and_output("text", "log") == std::nullopt);
    CHECK(input_and_output("text", "./text") ==
          Sentence("--log ./text would overwrite --data text, which is read: write another file"));
    CHECK(io::refusal_of({{"--log", "text", true}, {"--data", here.scratch / "text", false}}) ==
          Sentence("--log text would overwrite --data " + (here.scratch / "text").string() +
                   ", which is read: write another file"));
    CHECK(io::refusal_of({{"--a", "text", false}, {"--b", "text", false}}) == std::nullopt);
    CHECK(test::text_of("text") == "some");
}

TEST_CASE("files that exist are compared as files") {
    Here const here;
    fs::create_directory("folder");
    test::write_text("folder/file", "");
    fs::create_hard_link("folder/file", "hard");
    fs::create_symlink("folder/file", "soft");
    fs::create_directory_symlink("folder", "other");
    for (char const* const name : {"hard", "soft", "other/file", "folder/../folder/./file", "folder//file"})
        CHECK_MESSAGE(clash("folder/file", name), name);
    test::write_text("folder/twin", "");
    CHECK(!clash("folder/file", "folder/twin"));
    CHECK(clash("folder", "other/"));
}

TEST_CASE("files that do not exist yet are compared by their folder and name") {
    Here const here;
    fs::create_directory("folder");
    fs::create_directory_symlink("folder", "other");
    fs::create_symlink("folder/new", "soft"); // to nothing yet
    fs::create_symlink("loop", "loop");
    for (char const* const name : {"./folder/new", "other/new", "folder/../other/new", "soft"})
        CHECK_MESSAGE(clash("folder/new", name), name);
    CHECK(clash("new", here.scratch / "new"));
    CHECK(clash("new", "new/"));
    CHECK(clash("none/new", "none/./new"));
    CHECK(!clash("folder/new", "new"));
    CHECK(!clash("none/new", "new"));
    CHECK(!clash("loop", "new"));
}

TEST_CASE("the first clash of many is named") {
    Here const here;
    CHECK(io::refusal_of({{"--a", "a", true}, {"--b", "b", true}, {"--c", "./b", true}, {"--d", "a", true}}) ==
          Sentence("--c ./b and --b b are the same file: give each a file of its own"));
}

TEST_CASE("a device may be written twice") {
    CHECK(!clash("/dev/null", "/dev/null"));
    CHECK(input_and_output("/dev/null", "/dev/null") == std::nullopt);
}

TEST_CASE("a file without a name is refused") {
    CHECK(io::refusal_of({{"--data", "a", false}, {"--log", "", true}}) == Sentence("--log '' names no file"));
    CHECK(io::refusal_of({{"--data", "", false}}) == Sentence("--data '' names no file"));
}

TEST_CASE("whether a file can be written is tried without a trace") {
    Here const here;
    test::write_text("file", "old");
    io::check_writable("file");
    io::check_writable("new");
    io::check_writable("/dev/full");
    CHECK(test::text_of("file") == "old");
    CHECK(std::distance(fs::directory_iterator("."), {}) == 1);
    CHECK_THROWS_WITH_AS(io::check_writable("none/file"), "cannot write none/file: No such file or directory",
                         io::FileError);
    CHECK_THROWS_WITH_AS(io::check_writable("."), "cannot write .: Is a directory", io::FileError);
    CHECK_THROWS_AS(io::check_writable(std::string(300, 'x')), io::FileError);
}
