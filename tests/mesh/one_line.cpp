// Text from outside in messages.
#include <doctest/doctest.h>

#include <pentad/mesh/one_line.hpp>

#include <string>

using namespace pentad;

TEST_CASE("a name is UTF-8 without control characters") {
    for (char const* const name : {"", "1f1b", "two words", "zé", "\u00a0", "\u07ff", "\u0800", "\ud7ff", "\ue000",
                                   "\uffff", "\U00010000", "\U0010ffff"}) {
        CAPTURE(name);
        CHECK(is_printable(name));
    }
    for (std::string const& name : {std::string("a\nb"), std::string("a\0b", 3), std::string("\x1b[31m"),
                                    std::string("\x7f"), std::string("\xc2\x85"),                   // NEL
                                    std::string("\xff"), std::string("a\x80"), std::string("\xc3"), // cut
                                    std::string("\xe2\x82"), std::string("\xf0\x9f\x98"), std::string("\xc0\x80"),
                                    std::string("\xc1\xbf"), std::string("\xe0\x9f\xbf"),         // long
                                    std::string("\xf0\x8f\xbf\xbf"), std::string("\xed\xa0\x80"), // half a pair
                                    std::string("\xf4\x90\x80\x80"), std::string("\xf5\x80\x80\x80")}) {
        CAPTURE(one_line(name));
        CHECK(!is_printable(name));
    }
}

TEST_CASE("a message quotes a text on one line, and only its beginning") {
    CHECK(one_line("two words, zé") == "two words, zé");
    CHECK(one_line(std::string("a\n\0\xff", 4)) == "a\\x0a\\x00\\xff");
    CHECK(one_line(std::string(60, 'x')) == std::string(60, 'x'));
    CHECK(one_line(std::string(61, 'x')) == std::string(57, 'x') + "...");
    CHECK(one_line(std::string(1'000'000, '\n')).size() <= 60);
    CHECK(one_line("aaaé", 5) == "aaaé");
    CHECK(one_line("aaaaé", 5) == "aa...");
    CHECK(one_line("aéaaa", 5) == "a...");
    CHECK(one_line("abc", std::string::npos) == "abc");
}
