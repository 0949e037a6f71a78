#include <doctest/doctest.h>

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/line_file.hpp>

#include "scratch.hpp"

#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>

using namespace pentad;
namespace fs = std::filesystem;

namespace {

auto entries(fs::path const& folder) { return std::distance(fs::directory_iterator(folder), fs::directory_iterator()); }

} // namespace

TEST_CASE("a file appears when it is committed, with all of its text") {
    test::Scratch const scratch;
    auto const path = scratch / "a.json";
    {
        io::AtomicFile file(path);
        file.write("one ");
        file.write("two");
        CHECK(!fs::exists(path));
        file.commit();
    }
    CHECK(test::text_of(path) == "one two");
    CHECK(entries(scratch.path()) == 1);
}

TEST_CASE("a file that is not committed leaves the old one and no rest") {
    test::Scratch const scratch;
    auto const path = scratch / "a";
    io::write_file(path, "old");
    {
        io::AtomicFile file(path);
        file.write("new");
    }
    CHECK(test::text_of(path) == "old");
    CHECK(entries(scratch.path()) == 1);
    io::write_file(path, "newer");
    CHECK(test::text_of(path) == "newer");
}

TEST_CASE("two writers of one file do not meet") {
    test::Scratch const scratch;
    io::AtomicFile first(scratch / "a");
    io::AtomicFile second(scratch / "a");
    first.write("first");
    second.write("second");
    second.commit();
    first.commit();
    CHECK(test::text_of(scratch / "a") == "first");
}

TEST_CASE("a link is followed, not replaced") {
    test::Scratch const scratch;
    io::write_file(scratch / "target", "old");
    fs::create_symlink("target", scratch / "link");
    io::write_file(scratch / "link", "new");
    CHECK(fs::is_symlink(scratch / "link"));
    CHECK(test::text_of(scratch / "target") == "new");
}

TEST_CASE("a device is written, not replaced") {
    io::write_file("/dev/null", "gone");
    CHECK(fs::is_character_file("/dev/null"));
    CHECK_THROWS_WITH_AS(io::write_file("/dev/full", "text"), "cannot write /dev/full: No space left on device",
                         io::FileError);
    CHECK(fs::is_character_file("/dev/full"));
}

TEST_CASE("errors name the path and say why") {
    test::Scratch const scratch;
    auto const missing = (scratch / "no" / "a").string();
    CHECK_THROWS_WITH_AS(io::AtomicFile{missing}, ("cannot write " + missing + ": No such file or directory").c_str(),
                         io::FileError);
    CHECK_THROWS_WITH_AS(io::LineFile{missing}, ("cannot write " + missing + ": No such file or directory").c_str(),
                         io::FileError);
    auto const folder = scratch.path().string();
    CHECK_THROWS_WITH_AS(io::LineFile{folder}, ("cannot write " + folder + ": Is a directory").c_str(), io::FileError);
    CHECK_THROWS_AS(io::write_file(folder, "text"), io::FileError);
}

TEST_CASE("a file that grows beyond the limit of the process is a sentence, and leaves no rest") {
    test::Scratch const scratch;
    auto const path = scratch / "a";
    auto const former = std::signal(SIGXFSZ, SIG_IGN); // as programs do
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit const small{.rlim_cur = 10'000, .rlim_max = before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::string sentence;
    try {
        io::write_file(path, std::string(20'000, 'x'));
    } catch (io::FileError const& error) {
        sentence = error.what();
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, former);
    CHECK(sentence == "cannot write " + path.string() + ": File too large");
    CHECK(entries(scratch.path()) == 0);
}

TEST_CASE("a name as long as the file system allows") {
    test::Scratch const scratch;
    std::string const name(255, 'x');
    io::write_file(scratch / name, "text");
    CHECK(test::text_of(scratch / name) == "text");
    CHECK(entries(scratch.path()) == 1);
}

TEST_CASE("lines are in the file as soon as they are written, and a full disk is noticed at once") {
    test::Scratch const scratch;
    io::LineFile log(scratch / "log");
    log.write("one");
    CHECK(test::text_of(scratch / "log") == "one\n");
    log.write("two");
    CHECK(test::text_of(scratch / "log") == "one\ntwo\n");
    io::LineFile full("/dev/full");
    CHECK_THROWS_WITH_AS(full.write("one"), "cannot write /dev/full: No space left on device", io::FileError);
}
