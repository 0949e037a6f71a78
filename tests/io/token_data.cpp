// Text and tokens as training data.
#include <doctest/doctest.h>

#include <pentad/io/known_beginnings.hpp>
#include <pentad/io/token_data.hpp>
#include <pentad/io/token_index.hpp>

#include "safetensors_bytes.hpp"

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace pentad;

namespace {

/// The window of a sequence in data of this seq.
std::string window(io::TokenData const& data, std::size_t seq, std::int64_t sequence) {
    std::vector<unsigned char> bytes(seq + 1);
    data.read(sequence, bytes);
    return {bytes.begin(), bytes.end()};
}

std::vector<std::int32_t> tokens(io::TokenData const& data, std::size_t seq, std::int64_t sequence) {
    std::vector<std::int32_t> window(seq + 1);
    data.read(sequence, window);
    return window;
}

/// The files that tests/reference/io_files.py writes: 60 tokens, of which token i is 7 i mod 303.
std::filesystem::path golden(std::string const& name) { return std::filesystem::path(PENTAD_GOLDEN_DIR) / "io" / name; }

std::string npy_file(std::string const& header, std::string const& data, char version = 1) {
    std::string text = std::string("\x93NUMPY") + version + '\0';
    for (std::size_t i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(header.size() >> (8 * i));
    return text + header + data;
}
std::string npy_header(std::string const& type, std::string const& shape, std::string const& order = "False") {
    return "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

/// The sentence with which a file of these bytes is refused as tokens; "" if it is not.
std::string refusal_of(std::string const& bytes, io::TokenFormat format = io::TokenFormat::npy) {
    test::Scratch const scratch;
    test::write_text(scratch / "t", bytes);
    return test::without(test::file_error([&] { io::TokenData({{scratch / "t", format}}, 1000, 3, 1); }),
                         scratch.path());
}

} // namespace

TEST_CASE("a file of exactly seq + 1 bytes always gives the same window") {
    test::Scratch const scratch;
    test::write_text(scratch / "a", "abcde");
    io::TokenData const data({scratch / "a"}, 4, 1);
    CHECK(data.windows() == 1);
    for (int i = 0; i < 20; ++i) CHECK(window(data, 4, i) == "abcde");
}

TEST_CASE("every window that fits is drawn equally often, and none crosses files") {
    test::Scratch const scratch;
    test::write_text(scratch / "a", "abcdef"); // 4 windows of 3 bytes
    test::write_text(scratch / "b", "ABC");    // 1
    test::write_text(scratch / "c", "0123");   // 2
    io::TokenData const data({scratch / "a", scratch / "b", scratch / "c"}, 2, 5);
    CHECK(data.windows() == 7);
    CHECK(data.tokens() == 13);
    std::map<std::string, int> drawn;
    for (int i = 0; i < 70'000; ++i) ++drawn[window(data, 2, i)];
    std::vector<std::string> const expected{"012", "123", "ABC", "abc", "bcd", "cde", "def"};
    CHECK(drawn.size() == expected.size());
    for (auto const& window : expected) CHECK(std::abs(drawn[window] - 10'000) < 5 * 93);
}

TEST_CASE("the window of a sequence depends on the seed and its number, and on nothing else") {
    std::string story;
    for (int i = 0; i < 100'000; ++i) story += static_cast<char>('a' + std::int64_t{i} * i / 97 % 23);
    io::TokenData const data(story, "the story", 16, 1);
    io::TokenData const same(story, "the story", 16, 1);
    io::TokenData const other(story, "the story", 16, 2);
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
    io::TokenData const data({scratch / "a", scratch / "b"}, 9, 12345678901234);
    std::vector<int> first;
    for (int i = 24; i < 32; ++i) first.push_back(window(data, 9, i)[0]);
    CHECK(first == std::vector<int>{81, 108, 69, 8, 60, 87, 69, 43}); // the same numbers stand in tools_test.py
}

TEST_CASE("files that cannot give a window are refused by name, with what would fit") {
    test::Scratch const scratch;
    auto const path = (scratch / "a").string();
    auto const read = [&] { return io::TokenData({path}, 8, 1); };
    CHECK_THROWS_WITH_AS(read(), ("cannot read " + path + ": No such file or directory").c_str(), io::FileError);
    test::write_text(path, "");
    CHECK_THROWS_WITH_AS(read(), (path + " is empty: a window of seq = 8 needs 9 bytes").c_str(), io::FileError);
    test::write_text(path, "x");
    CHECK_THROWS_WITH_AS(read(), (path + " has 1 bytes, and a window of seq = 8 needs 9: no seq fits").c_str(),
                         io::FileError);
    test::write_text(path, "12345678");
    CHECK_THROWS_WITH_AS(read(), (path + " has 8 bytes, and a window of seq = 8 needs 9: seq <= 7 would fit").c_str(),
                         io::FileError);
    CHECK(io::TokenData({path}, 7, 1).windows() == 1);
    CHECK_THROWS_WITH_AS(io::TokenData({scratch.path()}, 8, 1),
                         ("cannot read " + scratch.path().string() + ": it is a folder").c_str(), io::FileError);
    auto const pipe = (scratch / "pipe").string();
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    CHECK_THROWS_WITH_AS(io::TokenData({pipe}, 8, 1), ("cannot read " + pipe + ": it is no regular file").c_str(),
                         io::FileError);
    std::string const long_name(300, 'x');
    CHECK_THROWS_WITH_AS(io::TokenData({long_name}, 8, 1),
                         ("cannot read " + long_name + ": File name too long").c_str(), io::FileError);
}

TEST_CASE("data that are cut short, or replaced, while they are used") {
    test::Scratch const scratch;
    auto const path = (scratch / "a").string();
    test::write_text(path, std::string(100'000, 'x'));
    io::TokenData const data({path}, 8, 1);
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
    CHECK(io::TokenData(paths, 2, 1).windows() == 300);
    ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("bytes are read as numbers too") {
    io::TokenData const data(std::string_view("ab\xff\0c", 5), "the text", 3, 1);
    for (int i = 0; i < 10; ++i) {
        auto const letters = window(data, 3, i);
        std::vector<std::int32_t> expected;
        for (char const letter : letters) expected.push_back(static_cast<unsigned char>(letter));
        CHECK(tokens(data, 3, i) == expected);
    }
    CHECK(data.vocabulary() == 256);
}

TEST_CASE("tokens are the same from every format") {
    using enum io::TokenFormat;
    std::size_t const seq = 7;
    io::TokenData const first({{golden("tokens.u16"), uint16}}, 303, seq, 11);
    CHECK(first.windows() == 53);
    CHECK(first.tokens() == 60);
    for (auto const& [name, format] :
         std::initializer_list<std::pair<char const*, io::TokenFormat>>{{"tokens.u32", uint32},
                                                                        {"tokens_u2.npy", npy},
                                                                        {"tokens_u4.npy", npy},
                                                                        {"tokens_i4.npy", npy},
                                                                        {"tokens_i8.npy", npy}}) {
        io::TokenData const same({{golden(name), format}}, 303, seq, 11);
        CHECK(same.tokens() == 60);
        for (int i = 0; i < 200; ++i) CHECK(tokens(same, seq, i) == tokens(first, seq, i));
    }
    std::map<std::int32_t, int> starts;
    for (int i = 0; i < 2000; ++i) {
        auto const window = tokens(first, seq, i);
        ++starts[window[0]];
        for (std::size_t k = 1; k <= seq; ++k) CHECK(window[k] == (window[k - 1] + 7) % 303);
    }
    CHECK(starts.size() == 53);
}

TEST_CASE("the window of a sequence is the one that a text of as many bytes has there") {
    std::string text;
    for (int i = 0; i < 60; ++i) text += static_cast<char>(i);
    io::TokenData const letters(text, "the text", 9, 5);
    io::TokenData const numbers({{golden("tokens.u16"), io::TokenFormat::uint16}}, 50'000, 9, 5);
    for (int i = 0; i < 100; ++i) CHECK(tokens(numbers, 9, i)[0] == 7 * window(letters, 9, i)[0] % 303);
}

TEST_CASE("no window crosses the rows of an array, or its file") {
    std::vector<io::TokenFile> const files{{golden("tokens_rows.npy"), io::TokenFormat::npy},
                                           {golden("tokens.u32"), io::TokenFormat::uint32}};
    io::TokenData const data(files, 303, 9, 3);
    CHECK(data.windows() == 5 * 3 + 51);
    CHECK(data.tokens() == 120);
    std::map<std::int32_t, int> starts;
    for (int i = 0; i < 10'000; ++i) {
        auto const window = tokens(data, 9, i);
        ++starts[window[0]];
        CHECK(window[9] == (window[0] + 63) % 303);
    }
    // Where windows of rows begin is drawn twice as often, 303 times.
    for (int i = 0; i < 51; ++i) CHECK((starts[7 * i % 303] > 220) == (i % 12 < 3));
    CHECK(
        test::file_error([&] {
            io::TokenData({files[0]}, 303, 12, 3);
        }).ends_with("tokens_rows.npy has rows of 12 tokens, and a window of seq = 12 needs 13: seq <= 11 would fit"));
}

TEST_CASE("a long window is read in pieces") {
    test::Scratch const scratch;
    std::vector<std::uint32_t> values(50'000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(i);
    test::write_text(scratch / "t", test::bytes_of(values));
    io::TokenData const data({{scratch / "t", io::TokenFormat::uint32}}, 50'000, 49'990, 3);
    for (int i = 0; i < 5; ++i) {
        auto const window = tokens(data, 49'990, i);
        std::size_t wrong = 0;
        for (std::size_t k = 1; k < window.size(); ++k) wrong += window[k] == window[k - 1] + 1 ? 0 : 1;
        CHECK(wrong == 0);
    }
}

TEST_CASE("a token that is not in the vocabulary is named with its file, position and value") {
    test::Scratch const scratch;
    std::string const path = scratch / "t";
    auto const refusal = [&](std::string const& bytes, io::TokenFormat format, std::int64_t vocabulary) {
        test::write_text(path, bytes);
        io::TokenData const data({{path, format}}, vocabulary, 2, 1);
        return test::without(test::file_error([&] { (void)tokens(data, 2, 0); }), scratch.path());
    };
    auto const raw = [](auto... values) { return test::bytes_of(std::vector{values...}); };
    using enum io::TokenFormat;
    std::uint16_t const two = 2, most = 65535;
    CHECK(refusal(raw(two, two, most), uint16, 65536) == "");
    CHECK(refusal(raw(two, two, most), uint16, 65535) ==
          "t: token 2 (counted from 0) is 65535, which is not in a vocabulary of 65535");
    CHECK(refusal(raw(3u, 2u, 1u), uint32, 3) == "t: token 0 (counted from 0) is 3, which is not in a vocabulary of 3");
    CHECK(refusal(raw(~0u, 2u, 1u), uint32, io::TokenData::largest_vocabulary)
              .starts_with("t: token 0 (counted from 0) is 4294967295, "));
    CHECK(refusal("abc", bytes, 99) == "t: token 2 (counted from 0) is 99, which is not in a vocabulary of 99");
    CHECK(refusal(npy_file(npy_header("<i4", "(3,)"), raw(1, -1, 1)), npy, 10)
              .starts_with("t: token 1 (counted from 0) is -1, "));
    CHECK(refusal(npy_file(npy_header("<i8", "(3,)"), raw(1l, 1l, -5l)), npy, 10)
              .starts_with("t: token 2 (counted from 0) is -5, "));
    CHECK(refusal(npy_file(npy_header("<i8", "(3,)"), raw(1l, 1l, 1l << 32)), npy, 10)
              .starts_with("t: token 2 (counted from 0) is 4294967296, "));
    for (std::int64_t const vocabulary : {std::int64_t{0}, std::int64_t{-1}, io::TokenData::largest_vocabulary + 1})
        CHECK_THROWS_AS(io::TokenData({{path, npy}}, vocabulary, 2, 1), std::invalid_argument);
    std::vector<unsigned char> letters(3);
    CHECK_THROWS_WITH_AS(io::TokenData({{path, npy}}, 257, 2, 1).read(0, letters),
                         "tokens of a vocabulary of 257 are no bytes", std::invalid_argument);
}

TEST_CASE("files that are no arrays of tokens are refused with a sentence") {
    std::string const data(8, '\0');
    for (char const version : {'\1', '\2', '\3'})
        CHECK(refusal_of(npy_file(npy_header("<u2", "(4,)"), data, version)) == "");
    CHECK(refusal_of(npy_file(R"({"shape":(1,4),"fortran_order":False,"descr":"<u2"})", data)) == "");
    CHECK(refusal_of(npy_file(npy_header("<u2", "(4,)", "True"), data)) == ""); // in one dimension there is one order
    CHECK(refusal_of(npy_file(npy_header("<u2", "(2, 2)", "True"), data)) ==
          "cannot read t as tokens: it is in Fortran order, and C order is read");
    CHECK(refusal_of("\x93NUMPX") == "cannot read t as .npy: it does not begin as such a file");
    CHECK(refusal_of("") == "cannot read t as .npy: it does not begin as such a file");
    CHECK(refusal_of(npy_file("", "", '\4')) ==
          "cannot read t as .npy: it is of version 4, and versions 1 to 3 are read");
    CHECK(refusal_of(std::string("\x93NUMPY\1\0\5\0", 10)) ==
          "cannot read t as .npy: its header would be 5 bytes long, and the file has 10");
    CHECK(refusal_of("\x93NUMPY\1") == "cannot read t as .npy: its header would be 0 bytes long, and the file has 7");
    CHECK(refusal_of(npy_file(std::string(20'000, ' '), "")) ==
          "cannot read t as .npy: its header would be 20000 bytes long, and the file has 20010");
    std::string const expected =
        "cannot read t as .npy: its header is not {'descr': TEXT, 'fortran_order': False, 'shape': NUMBERS}: ";
    for (std::string const header :
         {"", "{", "{}", "[]", "{'descr': '<u2', 'fortran_order': False}", "{'descr': '<u2', 'descr': '<u2'}",
          "{'descr': '<u2', 'fortran_order': False, 'shape': (4,), 'more': 3}"})
        CHECK(refusal_of(npy_file(header, data)) == expected + one_line(header));
    for (std::string const shape :
         {"4", "(4)", "(4", "(,)", "(4,,)", "(-4,)", "(4.0,)", "(4L,)", "(99999999999999999999,)"})
        CHECK(refusal_of(npy_file(npy_header("<u2", shape), data)).starts_with(expected));
    CHECK(refusal_of(npy_file(npy_header("<u2", "(4,)") + "x", data)).starts_with(expected));
    CHECK(refusal_of(npy_file(npy_header("<u2", "(4,)", "0"), data)).starts_with(expected));
    for (std::string const type : {">u2", "<f4", "<u8", "|u1", "|O", "<U4", "<i2", ""})
        CHECK(refusal_of(npy_file(npy_header(type, "(4,)"), data)) ==
              "cannot read t as tokens: it holds '" + type + "', and '<u2', '<u4', '<i4' and '<i8' are read");
    CHECK(refusal_of(npy_file(npy_header("<u2", "()"), data)) ==
          "cannot read t as tokens: it has 0 dimensions, and 1 or 2 are read");
    CHECK(refusal_of(npy_file(npy_header("<u2", "(1,2,2)"), data)) ==
          "cannot read t as tokens: it has 3 dimensions, and 1 or 2 are read");
    CHECK(refusal_of(npy_file(npy_header("<u2", "(0,)"), "")) == "t is empty: a window of seq = 3 needs 4 tokens");
    CHECK(refusal_of(npy_file(npy_header("<u2", "(7, 0)"), "")) == "t is empty: a window of seq = 3 needs 4 tokens");
    for (std::string const shape : {"(3,)", "(5,)", "(2, 3)", "(0, 4)", "(4, 0)", "(4611686018427387904, 4)"})
        CHECK(refusal_of(npy_file(npy_header("<u2", shape), data))
                  .starts_with("cannot read t as tokens: it has 8 bytes of data, which are no array of "));
    CHECK(refusal_of(npy_file(npy_header("<u2", "(4,)"), data + "x")) ==
          "cannot read t as tokens: it has 9 bytes of data, which are no array of 4 times 2 bytes");
    CHECK(refusal_of("1234567", io::TokenFormat::uint16) ==
          "t has 7 bytes, which are no whole number of tokens of 2 bytes");
    CHECK(refusal_of("123456", io::TokenFormat::uint32) ==
          "t has 6 bytes, which are no whole number of tokens of 4 bytes");
    CHECK(refusal_of("123456", io::TokenFormat::uint16) ==
          "t has 3 tokens, and a window of seq = 3 needs 4: seq <= 2 would fit");
    CHECK_THROWS_AS(io::TokenData(std::vector<io::TokenFile>{}, 10, 2, 1), std::invalid_argument);
}

TEST_CASE("the name of a file says whether it has a header") {
    CHECK(io::token_format("a/b.npy", io::TokenFormat::uint16) == io::TokenFormat::npy);
    CHECK(io::token_format("a/b.bin", io::TokenFormat::uint16) == io::TokenFormat::uint16);
    CHECK(io::token_format("npy", io::TokenFormat::bytes) == io::TokenFormat::bytes);
}

TEST_CASE("an array that is cut while it is used is a sentence") {
    test::Scratch const scratch;
    std::string const path = scratch / "t";
    std::filesystem::copy_file(golden("tokens_u4.npy"), path);
    io::TokenData const data({{path, io::TokenFormat::npy}}, 303, 20, 1);
    std::filesystem::resize_file(path, 150);
    auto const sentence = test::file_error([&] {
        for (int i = 0; i < 20; ++i) (void)tokens(data, 20, i);
    });
    CHECK(test::without(sentence, scratch.path()).starts_with("cannot read t: it has 150 bytes, and had "));
}

namespace {

/// NAME.idx of Megatron-LM for sequences of these lengths.
std::string megatron_index(unsigned char type, std::vector<std::int32_t> const& lengths, std::uint64_t version = 1) {
    auto const count = static_cast<std::uint64_t>(lengths.size());
    std::string text(io::megatron_beginning);
    text += test::bytes_of(std::vector{version}) + static_cast<char>(type) +
            test::bytes_of(std::vector{count, std::uint64_t{1}}) + test::bytes_of(lengths) +
            test::bytes_of(std::vector<std::int64_t>(lengths.size())) + test::bytes_of(std::vector<std::int64_t>(1));
    return text;
}

/// Tokens 0, 7, 14, ... as the golden files have them.
template <class Token>
std::string multiples_of_seven(std::size_t count) {
    std::vector<Token> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<Token>(7 * i % 303);
    return test::bytes_of(values);
}

} // namespace

TEST_CASE("what begins as another format is named, and read as no text and no tokens") {
    for (auto const& known : io::known_beginnings) {
        std::string bytes(known.at, '\0');
        if (known.at > 0) bytes[0] = 16; // a length
        bytes += std::string(known.bytes) + std::string(64, '\0');
        for (auto const format :
             {io::TokenFormat::uint16, io::TokenFormat::uint32, io::TokenFormat::automatic, io::TokenFormat::bytes}) {
            auto const refusal = refusal_of(bytes, format);
            bool const is_read = known.bytes == io::npy_beginning && format != io::TokenFormat::bytes;
            if (!is_read)
                CHECK(refusal == "t is " + std::string(known.name) + ": " + std::string(known.advice));
            else
                CHECK(refusal.starts_with("cannot read t as .npy: "));
        }
        CHECK(!refusal_of(bytes.substr(0, known.at + known.bytes.size() - 1), io::TokenFormat::bytes)
                   .starts_with("t is "));
    }
    auto const tokens_of_a_name = npy_file(npy_header("<u2", "(4,)"), std::string(8, '\0'));
    CHECK(refusal_of(tokens_of_a_name, io::TokenFormat::uint32).empty());
    std::string const text = "{\"text\": \"In the beginning God created the heaven and the earth.\"}\n";
    CHECK(refusal_of(text, io::TokenFormat::automatic) == "t is text, and tokens are numbers");
    CHECK(refusal_of(text, io::TokenFormat::uint16) == "t is text, and tokens are numbers");
    CHECK(refusal_of(text, io::TokenFormat::bytes).empty());
}

TEST_CASE("how wide tokens are is guessed nowhere where 16 bits can hardly be meant") {
    using enum io::TokenFormat;
    test::Scratch const scratch;
    std::string const path = scratch / "t";
    auto const refusal = [&](std::string const& bytes, io::TokenFormat format, std::int64_t vocabulary) -> std::string {
        test::write_text(path, bytes);
        try {
            (void)io::TokenData({{path, format}}, vocabulary, 3, 1);
        } catch (io::UnknownTokenWidth const& error) {
            return test::without(error.what(), scratch.path());
        }
        return "";
    };
    std::string const unsaid = "t does not say whether its tokens are uint16 or uint32, and ";
    auto const narrow = multiples_of_seven<std::uint16_t>(400), wide = multiples_of_seven<std::uint32_t>(400);
    CHECK(refusal(narrow, automatic, 65536).empty());
    CHECK(refusal(narrow, automatic, 65537) == unsaid + "uint16 cannot name all of a vocabulary of 65537");
    CHECK(refusal(wide, automatic, 303) ==
          unsaid + "every second of its 16-bit words is 0, 1 or 2, as in numbers of 32 bits");
    CHECK(refusal(std::string(800, '\0'), automatic, 303).empty());
    CHECK(refusal(narrow, uint16, 80'000).empty()); // as the caller says
    CHECK(refusal(wide, uint32, 80'000).empty());
}

TEST_CASE("numbers that are wider than tokens are read as are refused, whoever says how wide tokens are") {
    using enum io::TokenFormat;
    test::Scratch const scratch;
    std::string const path = scratch / "t";
    auto const refusal = [&](std::string const& bytes, io::TokenFormat format) -> std::string {
        test::write_text(path, bytes);
        try {
            (void)io::TokenData({{path, format}}, 303, 3, 1);
        } catch (io::FileError const& error) {
            return test::without(error.what(), scratch.path());
        }
        return "";
    };
    struct Kind {
        std::size_t bits;
        std::string bytes;
    };
    std::vector<Kind> const kinds{{8, multiples_of_seven<std::uint8_t>(400)},
                                  {16, multiples_of_seven<std::uint16_t>(400)},
                                  {32, multiples_of_seven<std::uint32_t>(400)},
                                  {64, multiples_of_seven<std::uint64_t>(400)}};
    struct Read {
        io::TokenFormat format;
        std::size_t bits;
        std::string as;
    };
    for (auto const& [format, read_bits, as] :
         {Read{bytes, 8, "bytes"}, Read{uint16, 16, "tokens of 16 bits"}, Read{uint32, 32, "tokens of 32 bits"}})
        for (auto const& [bits, bytes] : kinds) {
            auto const said = refusal(bytes, format);
            bool const is_wider = bits > read_bits;
            CHECK_MESSAGE(said.empty() == !is_wider, said);
            if (is_wider)
                CHECK(said.starts_with("t looks like numbers of " + std::to_string(bits) + " bits, and is read as " +
                                       as + ": "));
        }
    CHECK(refusal(kinds.back().bytes, automatic) ==
          "t looks like numbers of 64 bits, and is read as tokens of 16 bits: make a .npy file of them");
    CHECK(refusal(kinds.back().bytes.substr(0, 8 * 63), automatic).empty()); // too few to tell
}

TEST_CASE("tokens of Megatron-LM are what the index beside them says") {
    using enum io::TokenFormat;
    test::Scratch const scratch;
    std::string const path = scratch / "meg.bin", index = scratch / "meg.idx";
    auto const data = [&](io::TokenFormat format = automatic) {
        return io::TokenData({{path, format}}, 80'000, 7, 11);
    };
    auto const refusal = [&](io::TokenFormat format = automatic) {
        return test::without(test::without(test::file_error([&] { (void)data(format); }), scratch.path()),
                             scratch.path());
    };
    for (auto const& [type, bytes, same, other] :
         {std::tuple{4, multiples_of_seven<std::int32_t>(400), uint32, uint16},
          std::tuple{5, multiples_of_seven<std::int64_t>(400), automatic, uint16},
          std::tuple{8, multiples_of_seven<std::uint16_t>(400), uint16, uint32}}) {
        test::write_text(path, bytes);
        test::write_text(index, megatron_index(static_cast<unsigned char>(type), {100, 250, 50}));
        auto const found = data();
        CHECK(found.tokens() == 400);
        for (int i = 0; i < 50; ++i) {
            auto const window = tokens(found, 7, i);
            for (std::size_t k = 1; k < window.size(); ++k) CHECK(window[k] == (window[k - 1] + 7) % 303);
        }
        CHECK(refusal(same).empty());
        CHECK(refusal(other).starts_with("meg.bin: the index beside it, "));
        CHECK(refusal(other).find("says that its tokens are ") != std::string::npos);
    }
    test::write_text(index, megatron_index(8, {100, 250}));
    CHECK(refusal().ends_with("says that it has 350 tokens of 2 bytes, and it has 800 bytes"));
    auto const whole = megatron_index(8, {100, 250, 50});
    for (auto const& [content, why] :
         {std::pair{whole.substr(0, 20), std::string("it has 20 bytes, and its header has 34")},
          {whole.substr(0, 60), "it has 60 bytes, which are too few for 3 sequences of 1 documents"},
          {megatron_index(8, {400}, 2), "it is of version 2, and version 1 is read"},
          {megatron_index(8, {-1, 401}), "sequence 0 would have -1 tokens"},
          {megatron_index(7, {400}), "its tokens are of type 7 (float32), and uint8, int32, int64 and uint16 are read"},
          {megatron_index(9, {400}), "its tokens are of type 9, and uint8, int32, int64 and uint16 are read"}}) {
        test::write_text(index, content);
        CHECK(refusal().ends_with("meg.idx as an index of tokens: " + why));
    }
    test::write_text(index, "of something else");
    CHECK(refusal(uint16).empty());
    CHECK(!io::index_beside(scratch / "none.bin"));
    CHECK(!io::index_beside(index));
}
