#include <doctest/doctest.h>

#include <pentad/io/text_data.hpp>

#include "scratch.hpp"

#include <sys/resource.h>

#include <map>
#include <string>
#include <vector>

using namespace pentad;

namespace {

/// The window of a sequence in data of this seq.
std::string window(io::TextData const& data, std::size_t seq, std::int64_t sequence) {
    std::vector<unsigned char> bytes(seq + 1);
    data.read(sequence, bytes);
    return {bytes.begin(), bytes.end()};
}

} // namespace

TEST_CASE("a file of exactly seq + 1 bytes always gives the same window") {
    test::Scratch const scratch;
    test::write_text(scratch / "a", "abcde");
    io::TextData const data({scratch / "a"}, 4, 1);
    CHECK(data.windows() == 1);
    for (int i = 0; i < 20; ++i) CHECK(window(data, 4, i) == "abcde");
}

TEST_CASE("every window that fits is drawn equally often, and none crosses files") {
    test::Scratch const scratch;
    test::write_text(scratch / "a", "abcdef"); // 4 windows of 3 bytes
    test::write_text(scratch / "b", "ABC");    // 1
    test::write_text(scratch / "c", "0123");   // 2
    io::TextData const data({scratch / "a", scratch / "b", scratch / "c"}, 2, 5);
    CHECK(data.windows() == 7);
    CHECK(data.bytes() == 13);
    std::map<std::string, int> drawn;
    for (int i = 0; i < 70'000; ++i) ++drawn[window(data, 2, i)];
    std::vector<std::string> const expected{"012", "123", "ABC", "abc", "bcd", "cde", "def"};
    CHECK(drawn.size() == expected.size());
    for (auto const& window : expected) CHECK(std::abs(drawn[window] - 10'000) < 5 * 93);
}

TEST_CASE("the window of a sequence depends on the seed and its number, and on nothing else") {
    std::string story;
    for (int i = 0; i < 100'000; ++i) story += static_cast<char>('a' + std::int64_t{i} * i / 97 % 23);
    io::TextData const data(story, "the story", 16, 1);
    io::TextData const same(story, "the story", 16, 1);
    io::TextData const other(story, "the story", 16, 2);
    int equal = 0;
    for (int i : {9, 3, 1, 0, 77, 1'000'000'000}) {
        CHECK(window(data, 16, i) == window(same, 16, i));
        equal += window(data, 16, i) == window(other, 16, i) ? 1 : 0;
    }
    CHECK(equal == 0);
}

TEST_CASE("the windows are those that tests/reference/text_windows.py finds") {
    test::Scratch const scratch;
    std::string bytes;
    for (int i = 0; i < 150; ++i) bytes += static_cast<char>(i);
    test::write_text(scratch / "a", bytes.substr(0, 100));
    test::write_text(scratch / "b", bytes.substr(100));
    io::TextData const data({scratch / "a", scratch / "b"}, 9, 12345678901234);
    std::vector<int> first;
    for (int i = 24; i < 32; ++i) first.push_back(window(data, 9, i)[0]);
    CHECK(first == std::vector<int>{81, 108, 69, 8, 60, 87, 69, 43}); // the same numbers stand in tools_test.py
}

TEST_CASE("files that cannot give a window are refused by name, with what would fit") {
    test::Scratch const scratch;
    auto const path = (scratch / "a").string();
    auto const read = [&] { return io::TextData({path}, 8, 1); };
    CHECK_THROWS_WITH_AS(read(), ("cannot read " + path + ": No such file or directory").c_str(), io::FileError);
    test::write_text(path, "");
    CHECK_THROWS_WITH_AS(read(), (path + " is empty: a window of seq = 8 needs 9 bytes").c_str(), io::FileError);
    test::write_text(path, "x");
    CHECK_THROWS_WITH_AS(read(), (path + " has 1 bytes, and a window of seq = 8 needs 9: no seq fits").c_str(),
                         io::FileError);
    test::write_text(path, "12345678");
    CHECK_THROWS_WITH_AS(read(), (path + " has 8 bytes, and a window of seq = 8 needs 9: seq <= 7 would fit").c_str(),
                         io::FileError);
    CHECK(io::TextData({path}, 7, 1).windows() == 1);
    CHECK_THROWS_WITH_AS(io::TextData({scratch.path()}, 8, 1),
                         ("cannot read " + scratch.path().string() + ": it is a folder").c_str(), io::FileError);
    auto const pipe = (scratch / "pipe").string();
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THROWS_WITH_AS(io::TextData({pipe}, 8, 1), ("cannot read " + pipe + ": it is no regular file").c_str(),
                         io::FileError);
    std::string const long_name(300, 'x');
    CHECK_THROWS_WITH_AS(io::TextData({long_name}, 8, 1), ("cannot read " + long_name + ": File name too long").c_str(),
                         io::FileError);
}

TEST_CASE("data that are cut short, or replaced, while they are used") {
    test::Scratch const scratch;
    auto const path = (scratch / "a").string();
    test::write_text(path, std::string(100'000, 'x'));
    io::TextData const data({path}, 8, 1);
    std::filesystem::rename(path, path + ".old");
    test::write_text(path, "y");
    CHECK(window(data, 8, 3) == "xxxxxxxxx"); // of the file that was opened
    std::filesystem::resize_file(path + ".old", 10);
    std::string sentence;
    try {
        for (int i = 0; i < 100; ++i) (void)window(data, 8, i);
    } catch (io::FileError const& error) {
        sentence = error.what();
    }
    CAPTURE(sentence);
    CHECK(sentence.starts_with("cannot read " + path + ": it has 10 bytes, and had "));
    CHECK_THROWS_AS((void)window(data, 7, 0), std::invalid_argument);
}

TEST_CASE("data may be more files than a process has open by default") {
    test::Scratch const scratch;
    std::vector<std::filesystem::path> paths;
    for (int i = 0; i < 300; ++i) test::write_text(paths.emplace_back(scratch / std::to_string(i)), "abc");
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(before.rlim_max >= 1000);
    rlimit few = before;
    few.rlim_cur = 256;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(io::TextData(paths, 2, 1).windows() == 300);
    ::setrlimit(RLIMIT_NOFILE, &before);
}
