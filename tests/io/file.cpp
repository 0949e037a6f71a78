// Files that are read whole: which are, and that nothing else is waited for, or fills the memory.
#include <doctest/doctest.h>

#include <pentad/io/file.hpp>
#include <pentad/io/hardware_file.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/io/schedule_file.hpp>

#include "scratch.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>

using namespace pentad;

namespace {

std::string refusal(std::function<void()> const& read) {
    auto const start = std::clock(); // of the processor: a busy machine does not stretch it
    std::string sentence = "none";
    try {
        read();
    } catch (io::FileError const& error) {
        sentence = error.what();
    }
    CHECK(std::clock() - start < CLOCKS_PER_SEC / 5);
    return sentence;
}

} // namespace

TEST_CASE("a file is read whole up to the size that is allowed") {
    test::Scratch const scratch;
    auto const path = scratch / "a";
    test::write_text(path, "12345");
    CHECK(io::read_file(path, 5) == "12345");
    CHECK(refusal([&] { io::read_file(path, 4); }) ==
          "cannot read " + path.string() + ": it has 5 bytes, and at most 4 are allowed");
    test::write_text(path, "");
    CHECK(io::read_file(path, 5).empty());
}

TEST_CASE("what is no regular file, or too large, is refused at once, whatever kind of file is read") {
    test::Scratch const scratch;
    std::string const pipe = scratch / "pipe", large = scratch / "large", folder = scratch.path();
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    test::write_text(large, "{");
    std::filesystem::resize_file(large, 1'000'000'000);
    for (auto const& [read, most] : std::initializer_list<std::pair<std::function<void(std::string)>, std::string>>{
             {[](std::string const& path) { io::read_hardware(path); }, "1048576"},
             {[](std::string const& path) { io::read_model(path); }, "16777216"},
             {[](std::string const& path) { io::read_schedule(path); }, "67108864"}}) {
        auto const of = [&](std::string const& path) { return refusal([&] { read(path); }); };
        CHECK(of(pipe) == "cannot read " + pipe + ": it is no regular file");
        CHECK(of("/dev/zero") == "cannot read /dev/zero: it is no regular file");
        CHECK(of("/dev/tty") == "cannot read /dev/tty: it is no regular file");
        bool const is_model = most == "16777216"; // of a folder, its config.json
        CHECK(of(folder) ==
              "cannot read " + folder + (is_model ? "/config.json: No such file or directory" : ": it is a folder"));
        CHECK(of(large) == "cannot read " + large + ": it has 1000000000 bytes, and at most " + most + " are allowed");
        // Files of the kernel say that they are empty. Of this one a read would wait for the next message.
        CHECK(of("/proc/kmsg").starts_with("cannot read "));
        CHECK(of("/proc/self/maps").starts_with("cannot read the "));
    }
}

TEST_CASE("a file that becomes shorter while it is read is a sentence") {
    test::Scratch const scratch;
    std::string const path = scratch / "a";
    test::write_text(path, "0123456789");
    auto const file = io::File::open_for_reading(path);
    std::filesystem::resize_file(path, 4);
    char bytes[6];
    CHECK(refusal([&] { file.read_at(2, bytes, 6); }) ==
          "cannot read " + path + ": it has 4 bytes, and had 8 or more when it was opened");
}
