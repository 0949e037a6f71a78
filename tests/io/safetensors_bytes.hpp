// What tests of safetensors files share: files made byte by byte, and the sentence with which one is refused.
#pragma once

#include <doctest/doctest.h>

#include <pentad/io/file.hpp>
#include <pentad/mesh/one_line.hpp>

#include "scratch.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace test {

inline std::string file_of(std::string const& header, std::string const& data) {
    std::uint64_t const length = header.size();
    std::string text(sizeof length, '\0');
    std::memcpy(text.data(), &length, sizeof length);
    return text + header + data;
}

/// A member of a header.
inline std::string entry(std::string const& name, std::string const& type, std::string const& shape,
                         std::string const& offsets) {
    return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

template <class T>
std::string bytes_of(std::vector<T> const& values) {
    return {reinterpret_cast<char const*>(values.data()), values.size() * sizeof(T)};
}

/// What the FileError says, one printable sentence that is not too long; "" where there is none.
inline std::string file_error(std::function<void()> const& use) {
    try {
        use();
    } catch (pentad::io::FileError const& error) {
        std::string const sentence = error.what();
        CHECK(pentad::is_printable(sentence));
        CHECK(sentence.size() < 500);
        return sentence;
    }
    return "";
}

/// Without the name of the folder, which differs from run to run.
inline std::string without(std::string text, std::filesystem::path const& folder) {
    std::string const start = folder.string() + "/";
    for (auto at = text.find(start); at != text.npos; at = text.find(start)) text.erase(at, start.size());
    return text;
}

} // namespace test
