#include <doctest/doctest.h>

#include <pentad/io/text_data.hpp>

#include "scratch.hpp"

#include <map>
#include <string>
#include <vector>

using namespace pentad;

namespace {

std::string text(io::TextData::Window window) { return {window.begin(), window.end()}; }

} // namespace

TEST_CASE("a file of exactly seq + 1 bytes always gives the same window") {
    test::Scratch const scratch;
    test::write_text(scratch / "a", "abcde");
    io::TextData const data({scratch / "a"}, 4, 1);
    CHECK(data.windows() == 1);
    for (int i = 0; i < 20; ++i) CHECK(text(data.window(i)) == "abcde");
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
    for (int i = 0; i < 70'000; ++i) ++drawn[text(data.window(i))];
    std::vector<std::string> const expected{"012", "123", "ABC", "abc", "bcd", "cde", "def"};
    CHECK(drawn.size() == expected.size());
    for (auto const& window : expected) CHECK(std::abs(drawn[window] - 10'000) < 5 * 93);
}

TEST_CASE("the window of a sequence depends on the seed and its number, and on nothing else") {
    std::string story;
    for (int i = 0; i < 100'000; ++i) story += static_cast<char>('a' + std::int64_t{i} * i % 23);
    io::TextData const data(story, "the story", 16, 1);
    io::TextData const same(story, "the story", 16, 1);
    io::TextData const other(story, "the story", 16, 2);
    int equal = 0;
    for (int i : {9, 3, 1, 0, 77, 1'000'000'000}) {
        CHECK(data.window(i).data() == same.window(i).data());
        equal += data.window(i).data() == other.window(i).data() ? 1 : 0;
        CHECK(data.window(i).size() == 17);
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
    for (int i = 24; i < 32; ++i) first.push_back(data.window(i)[0]);
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
