#include <doctest/doctest.h>

#include <pentad/io/safetensors.hpp>

#include "safetensors_bytes.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace pentad;
using test::entry, test::file_of;

namespace {

/// The reason for which a file with these bytes is refused, "" if it is not.
std::string refusal_of(std::string const& bytes) {
    test::Scratch const scratch;
    auto const path = scratch / "t.safetensors";
    test::write_text(path, bytes);
    try {
        io::SafetensorsReader{path};
    } catch (io::FileError const& error) {
        std::string const message = error.what();
        std::string const start = "cannot read " + path.string() + " as safetensors: ";
        CHECK(message.starts_with(start));
        return message.substr(std::min(start.size(), message.size()));
    }
    return "";
}

} // namespace

TEST_CASE("what is written in pieces is read back") {
    test::Scratch const scratch;
    auto const path = scratch / "t.safetensors";
    std::vector<double> const a{1, 2, 3, 4, 5, 6};
    std::vector<float> const b{7.5f};
    {
        io::SafetensorsWriter writer(path, {{"a", "F64", {2, 3}}, {"nothing", "F64", {0, 4}}, {"b", "F32", {}}});
        writer.append(std::span(a).first(4));
        writer.append(std::span(a).subspan(4));
        writer.append(std::span(b));
        writer.close();
    }
    io::SafetensorsReader const reader(path);
    CHECK(reader.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
    REQUIRE(reader.tensors().size() == 3);
    CHECK(reader.tensors()[0].name == "a");
    CHECK(reader.tensor("a").shape == std::vector<std::int64_t>{2, 3});
    CHECK(reader.tensor("b").type == "F32");
    CHECK(reader.contains("nothing"));
    CHECK(!reader.contains("c"));
    CHECK(reader.read<double>("a") == a);
    CHECK(reader.read<float>("b") == b);
    CHECK(reader.read<double>("nothing").empty());
    std::vector<double> part(2);
    reader.read<double>("a", part, 3);
    CHECK(part == std::vector<double>{4, 5});
    CHECK_THROWS_AS(reader.read<double>("a", part, 5), io::FileError);
    CHECK_THROWS_AS(reader.read<double>("a", part, ~0ull), io::FileError);
    CHECK_THROWS_WITH_AS((void)reader.read<float>("a"),
                         ("cannot read " + path.string() + " as safetensors: tensor a holds F64, not F32").c_str(),
                         io::FileError);
    CHECK_THROWS_WITH_AS((void)reader.read<float>("c"),
                         ("cannot read " + path.string() + " as safetensors: it has no tensor c").c_str(),
                         io::FileError);
}

TEST_CASE("the file is laid out as the format says") {
    test::Scratch const scratch;
    auto const path = scratch / "t.safetensors";
    io::SafetensorsWriter writer(path, {{"a", "F32", {1}}});
    std::vector<float> const one{1};
    writer.append(std::span(one));
    writer.close();
    std::string header = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    CHECK(test::text_of(path) == file_of(header, std::string("\0\0\x80\x3f", 4)));
}

TEST_CASE("one piece may hold several tensors") {
    test::Scratch const scratch;
    std::vector<double> const values{1, 2, 3};
    io::SafetensorsWriter writer(scratch / "t", {{"a", "F64", {1}}, {"b", "F64", {2}}});
    writer.append(std::span(values));
    writer.close();
    CHECK(io::SafetensorsReader(scratch / "t").read<double>("b") == std::vector<double>{2, 3});
}

TEST_CASE("a writer that is used wrongly says so, and leaves no file") {
    test::Scratch const scratch;
    std::vector<double> const values{1, 2, 3};
    std::vector<float> const floats{1};
    {
        io::SafetensorsWriter writer(scratch / "t", {{"a", "F64", {2}}});
        CHECK_THROWS_WITH_AS(writer.append(std::span(floats)), "tensor a holds F64, and is given F32",
                             std::logic_error);
        writer.append(std::span(values).first(1));
        CHECK_THROWS_WITH_AS(writer.close(), "tensor a is not complete", std::logic_error);
        CHECK_THROWS_AS(writer.append(std::span(values)), std::logic_error);
    }
    CHECK_THROWS_AS(io::SafetensorsWriter(scratch / "t", {{"a", "F64", {1}}, {"a", "F64", {1}}}),
                    std::invalid_argument);
    CHECK_THROWS_AS(io::SafetensorsWriter(scratch / "t", {{"a", "F65", {1}}}), std::invalid_argument);
    CHECK_THROWS_AS(io::SafetensorsWriter(scratch / "t", {{"__metadata__", "F64", {1}}}), std::invalid_argument);
    CHECK(std::filesystem::is_empty(scratch.path()));
    CHECK_THROWS_WITH_AS(io::SafetensorsWriter("/dev/full", {{"a", "F64", {1}}}),
                         "cannot write /dev/full: No space left on device", io::FileError);
}

TEST_CASE("a file that is not right is refused with a sentence") {
    std::string const eight(8, 'x');
    CHECK(refusal_of(file_of("{" + entry("a", "F64", "[1]", "[0,8]") + "}", eight)) == "");
    CHECK(refusal_of(file_of("{}", "")) == "");
    CHECK(refusal_of("") == "it has 0 bytes, fewer than the 8 that say how long its header is");
    CHECK(refusal_of(std::string(8, '\xff')) ==
          "its header would be 18446744073709551615 bytes long, and the file has 8");
    CHECK(refusal_of(std::string("\x09\0\0\0\0\0\0\0{}", 10)) ==
          "its header would be 9 bytes long, and the file has 10");
    CHECK(refusal_of(file_of("{", "")).starts_with("line 1, column 2: syntax error"));
    CHECK(refusal_of(file_of("[]", "")) == "its header: expected one JSON object");
    CHECK(refusal_of(file_of(R"({"__metadata__":3})", "")) == "its __metadata__ is not an object");
    CHECK(refusal_of(file_of(R"({"__metadata__":{"a":3}})", "")) ==
          "its __metadata__ has a value that is not a text: a");

    std::string const undescribed = "tensor a is not described by dtype, shape and data_offsets";
    for (auto const* header : {R"({"a":3})", R"({"a":{}})", R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,8]}})",
                               R"({"a":{"dtype":"F64","shape":1,"data_offsets":[0,8]}})",
                               R"({"a":{"dtype":"F64","shape":[-1],"data_offsets":[0,8]}})",
                               R"({"a":{"dtype":"F64","shape":[1.0],"data_offsets":[0,8]}})",
                               R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0]}})",
                               R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,18446744073709551615]}})"})
        CHECK(refusal_of(file_of(header, eight)) == undescribed);

    CHECK(refusal_of(file_of("{" + entry("a", "F65", "[1]", "[0,8]") + "}", eight)) ==
          "tensor a has the unknown type F65 or a shape beyond any memory");
    CHECK(refusal_of(file_of("{" + entry("a", "F64", "[4611686018427387904,4611686018427387904]", "[0,8]") + "}",
                             eight)) == "tensor a has the unknown type F64 or a shape beyond any memory");
    CHECK(refusal_of(file_of("{" + entry("a", "F64", "[2]", "[0,8]") + "}", eight)) ==
          "tensor a takes 16 bytes, and its place is from 0 to 8");
    CHECK(refusal_of(file_of("{" + entry("a", "F64", "[1]", "[8,0]") + "}", eight)) ==
          "tensor a takes 8 bytes, and its place is from 8 to 0");
    CHECK(refusal_of(file_of("{" + entry("a", "F32", "[1]", "[4,8]") + "}", eight)) ==
          "tensor a begins at 4, where the one before it ends at 0");
    CHECK(refusal_of(file_of("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[2,6]") + "}",
                             eight)) == "tensor b begins at 2, where the one before it ends at 4");
    CHECK(refusal_of(file_of("{" + entry("a", "F32", "[1]", "[0,4]") + "}", eight)) ==
          "its tensors end at 4, its data at 8 (cut short?)");
    CHECK(refusal_of(file_of("{" + entry("a", "F64", "[2]", "[0,16]") + "}", eight)) ==
          "its tensors end at 16, its data at 8 (cut short?)");
    CHECK_THROWS_AS(io::SafetensorsReader("/no/such/file"), io::FileError);
}

TEST_CASE("a file cut anywhere is refused") {
    test::Scratch const scratch;
    std::vector<double> const values{1, 2, 3};
    io::SafetensorsWriter writer(scratch / "t", {{"a", "F64", {1}}, {"b", "F64", {2}}});
    writer.append(std::span(values));
    writer.close();
    std::string const whole = test::text_of(scratch / "t");
    for (std::size_t length = 0; length < whole.size(); ++length) CHECK(refusal_of(whole.substr(0, length)) != "");
}
