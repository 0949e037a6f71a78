// Checkpoints: golden files, what a model expects of them, and files that lie.
#include <doctest/doctest.h>

#include <pentad/io/checkpoint.hpp>

#include "safetensors_bytes.hpp"

#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
using test::entry, test::file_of;
namespace fs = std::filesystem;

namespace {

template <class T>
std::vector<T> read(io::Checkpoint const& checkpoint, std::string_view name) {
    auto const box = io::Box::whole(checkpoint.tensor(name).shape);
    std::vector<T> values(io::detail::elements(box));
    checkpoint.read<T>(name, box, values);
    return values;
}

fs::path golden(std::string const& name) { return fs::path(PENTAD_GOLDEN_DIR) / "io" / name; }

/// A shard with one f32 in each tensor.
std::string shard(std::vector<std::string> const& names) {
    std::string header, data;
    for (auto const& name : names) {
        header +=
            (header.empty() ? "{" : ",") +
            entry(name, "F32", "[1]", "[" + std::to_string(data.size()) + "," + std::to_string(data.size() + 4) + "]");
        data += test::bytes_of(std::vector{static_cast<float>(name[0])});
    }
    return file_of(header + "}", data);
}

/// A folder with an index of a (in one.safetensors), b and c (in two.safetensors), and these.
struct Sharded {
    test::Scratch scratch;

    Sharded() {
        index(R"("a": "one.safetensors", "b": "two.safetensors", "c": "two.safetensors")");
        write("one.safetensors", shard({"a"}));
        write("two.safetensors", shard({"b", "c"}));
    }
    void index(std::string const& weight_map) const {
        write("model.safetensors.index.json",
              R"({"metadata": {"total_size": 12}, "weight_map": {)" + weight_map + "}}");
    }
    void write(std::string const& name, std::string const& text) const { test::write_text(scratch / name, text); }
    [[nodiscard]] std::string refusal() const {
        std::string const sentence = test::file_error([&] { io::Checkpoint{scratch.path()}; });
        std::string const start = "cannot read the checkpoint " + scratch.path().string() + ": ";
        return sentence.starts_with(start) ? sentence.substr(start.size()) : test::without(sentence, scratch.path());
    }
};

} // namespace

TEST_CASE("golden checkpoints, of one file and of shards, have the tensors that were written") {
    for (auto const* const name :
         {"single", "sharded", "single/model.safetensors", "sharded/model.safetensors.index.json"}) {
        io::Checkpoint const checkpoint(golden(name));
        CHECK(checkpoint.tensors().size() == 9);
        CHECK(checkpoint.files().size() == (std::string_view(name).starts_with("single") ? 1 : 3));
        struct Expected {
            std::string name, type;
            std::vector<std::int64_t> shape;
        };
        for (auto const& [tensor, type, shape] : std::vector<Expected>{{"vector.f64", "F64", {5}},
                                                                       {"matrix.f32", "F32", {4, 6}},
                                                                       {"matrix.bf16", "BF16", {4, 6}},
                                                                       {"cube.f16", "F16", {2, 3, 4}},
                                                                       {"scalar.f32", "F32", {}},
                                                                       {"nothing.bf16", "BF16", {0, 3}}}) {
            CAPTURE(tensor);
            REQUIRE(checkpoint.contains(tensor));
            CHECK(checkpoint.tensor(tensor).type == type);
            CHECK(checkpoint.tensor(tensor).shape == shape);
            auto const doubles = read<double>(checkpoint, tensor);
            auto const floats = read<float>(checkpoint, tensor);
            auto const halves = read<bf16>(checkpoint, tensor);
            CHECK(doubles.size() == io::detail::elements(io::Box::whole(shape)));
            for (std::size_t i = 0; i < doubles.size(); ++i) {
                double const expected = (static_cast<double>(i) - 3) / 4;
                CHECK(doubles[i] == expected);
                CHECK(static_cast<double>(floats[i]) == expected);
                CHECK(static_cast<double>(static_cast<float>(halves[i])) == expected);
            }
        }
        std::vector<float> columns(8);
        checkpoint.read<float>("matrix.bf16", {{0, 3}, {4, 2}}, columns);
        CHECK(columns == std::vector<float>{0, 0.25, 1.5, 1.75, 3, 3.25, 4.5, 4.75});

        double const infinity = std::numeric_limits<double>::infinity();
        auto const f16 = read<double>(checkpoint, "special.f16"), b16 = read<double>(checkpoint, "special.bf16");
        std::vector<double> const f16_expected{0, -0.0, 0x1p-24, 1023 * 0x1p-24, 0x1p-14, 65504, infinity, -infinity};
        std::vector<double> const b16_expected{0, -0.0, 0x1p-133, 0x1p-126, 255 * 0x1p120, infinity, -infinity};
        auto const is_same = [](std::vector<double> const& found, std::vector<double> const& expected) {
            bool same = found.size() == expected.size() + 1 && std::isnan(found.back());
            for (std::size_t i = 0; same && i < expected.size(); ++i)
                same = std::bit_cast<std::uint64_t>(found[i]) == std::bit_cast<std::uint64_t>(expected[i]);
            return same;
        };
        CHECK(is_same(f16, f16_expected));
        CHECK(is_same(b16, b16_expected));
    }
}

TEST_CASE("the tensors of a checkpoint outlive one that is a temporary object") {
    std::size_t names = 0;
    for (auto const& tensor : io::Checkpoint(golden("sharded")).tensors()) names += tensor.name.size();
    CHECK(names == 93);
    for (auto const& tensor : io::SafetensorsReader(golden("single/model.safetensors")).tensors())
        names -= tensor.name.size();
    CHECK(names == 0);
}

TEST_CASE("long names are shown whole") {
    test::Scratch const scratch;
    std::string const name = "model.layers.61.mlp.shared_experts.gate_proj.weight_scale_inverse";
    test::write_text(scratch / "t", shard({name}));
    CHECK(io::Checkpoint(scratch / "t").refusal({}).value_or("").ends_with("(" + name + ")"));
}

TEST_CASE("what does not fit a model is named in one sentence") {
    io::Checkpoint const checkpoint(golden("sharded"));
    using Expected = std::vector<io::NamedShape>;
    Expected all;
    for (auto const& [name, type, shape] : checkpoint.tensors())
        if (type != "I64") all.push_back({name, shape});
    auto const integers = [](std::string_view name) { return name.ends_with(".i64"); };
    CHECK(!checkpoint.refusal(all, integers));
    auto const refusal = [&](Expected const& expected) {
        auto const sentence = checkpoint.refusal(expected).value_or("");
        CHECK(sentence.starts_with(golden("sharded").string() + " does not fit the model: "));
        return sentence.substr(std::min(sentence.size(), golden("sharded").string().size() + 25));
    };
    CHECK(refusal(all) == "it has 1 tensor that the model does not have (steps.i64)");
    CHECK(refusal({}) == "it has 9 tensors that the model does not have (matrix.f32, steps.i64, cube.f16 and 6 more)");
    Expected wrong = all;
    wrong.push_back({"steps.i64", {2}});
    CHECK(refusal(wrong) == "it has 1 tensor not of F64, F32, BF16 or F16 (steps.i64 holds I64)");
    for (char const* const name : {"a", "b\n", "c", "d", "e"}) wrong.push_back({name, {1}});
    wrong[0].shape = {6, 4};
    wrong[2].shape = {3};
    CHECK(wrong[2].name == "scalar.f32");
    CHECK(refusal(wrong) ==
          "it lacks 5 tensors (a, b\\x0a, c and 2 more); it has 2 tensors of another shape (matrix.f32 is [4, 6], "
          "not [6, 4], scalar.f32 is [], not [3]); it has 1 tensor not of F64, F32, BF16 or F16 (steps.i64 holds I64)");
}

TEST_CASE("a folder without a checkpoint, or with two, is refused") {
    Sharded const folder;
    CHECK(folder.refusal() == "");
    folder.write("model.safetensors", shard({"a"}));
    CHECK(folder.refusal() == "it has both model.safetensors and model.safetensors.index.json: name the one to read");
    CHECK(io::Checkpoint(folder.scratch / "model.safetensors").tensors().size() == 1);
    CHECK(io::Checkpoint(folder.scratch / "model.safetensors.index.json").tensors().size() == 3);
    fs::remove(folder.scratch / "model.safetensors");
    fs::remove(folder.scratch / "model.safetensors.index.json");
    CHECK(folder.refusal() == "it has neither model.safetensors nor model.safetensors.index.json");
    CHECK(test::file_error([&] {
              io::Checkpoint(folder.scratch / "none");
          }).ends_with("none: No such file or directory"));
    fs::create_symlink("nowhere", folder.scratch / "model.safetensors");
    CHECK(folder.refusal() == "cannot read model.safetensors: No such file or directory");
}

TEST_CASE("an index that lies is refused") {
    Sharded const folder;
    auto const with = [&](std::string const& weight_map) {
        folder.index(weight_map);
        return folder.refusal();
    };
    std::string const file = "model.safetensors.index.json: ";
    std::string const others = R"(, "b": "two.safetensors", "c": "two.safetensors")";
    fs::create_directory(folder.scratch / "folder");
    fs::copy_file(folder.scratch / "one.safetensors", folder.scratch / "folder" / "one.safetensors");
    for (std::string const& outside :
         {std::string("../") + folder.scratch.path().filename().string() + "/one.safetensors",
          (folder.scratch / "one.safetensors").string(), std::string("folder/one.safetensors"), std::string(".."),
          std::string("."), std::string("./one.safetensors"), std::string()}) {
        auto const sentence = with("\"a\": \"" + outside + "\"" + others);
        CAPTURE(sentence);
        CHECK(sentence.starts_with(file +
                                   "weight_map.a: expected the name of a file in the folder of the index, not \""));
    }
    CHECK(with(R"("a": "one\u0000.safetensors")" + others)
              .starts_with(file + "weight_map.a: expected a text without control characters, not "));
    CHECK(with(R"("a": 7)" + others) == file + "weight_map.a: expected a text, not 7");
    CHECK(with("") == file + "weight_map: expected an object of tensors and their files, not {}");
    CHECK(with(R"("a": "one.safetensors", "a": "one.safetensors")" + others) ==
          file + "'a': expected once in an object");
    CHECK(with(R"("a": "none.safetensors")" + others) == "cannot read none.safetensors: No such file or directory");
    CHECK(with(R"("a": "folder")" + others) == "cannot read folder: it is a folder");
    REQUIRE(::mkfifo((folder.scratch / "pipe").c_str(), 0600) == 0);
    CHECK(with(R"("a": "pipe")" + others) == "cannot read pipe: it is no regular file");
    fs::create_symlink("/dev/zero", folder.scratch / "zero");
    CHECK(with(R"("a": "zero")" + others) == "cannot read zero: it is no regular file");
    fs::create_symlink("folder/one.safetensors", folder.scratch / "link");
    CHECK(with(R"("a": "link")" + others) == ""); // as in caches of downloads
    CHECK(with(R"("a": "model.safetensors.index.json")" + others)
              .starts_with("cannot read model.safetensors.index.json as safetensors: its header would be "));

    std::string const a = R"("a": "one.safetensors")";
    CHECK(with(a + others) == "");
    CHECK(with(a + R"(, "b": "one.safetensors", "c": "two.safetensors")") ==
          "the index puts tensor b into one.safetensors, and it is in two.safetensors");
    CHECK(with(a + others + R"(, "d": "two.safetensors")") ==
          "the index puts tensor d into two.safetensors, which lacks it");
    CHECK(with(a + R"(, "b": "two.safetensors")") == "two.safetensors has tensor c, which the index does not name");
    folder.index(a + others);
    folder.write("one.safetensors", shard({"a", "c"}));
    CHECK(folder.refusal() == "tensor c is in both one.safetensors and two.safetensors");
    folder.write("one.safetensors", shard({}));
    CHECK(folder.refusal().starts_with("cannot read one.safetensors as safetensors: "));
    fs::remove(folder.scratch / "one.safetensors");
    fs::create_hard_link(folder.scratch / "two.safetensors", folder.scratch / "one.safetensors");
    CHECK(folder.refusal() == "tensor b is in both one.safetensors and two.safetensors");

    for (auto const& [text, refusal] : std::initializer_list<std::pair<std::string, std::string>>{
             {"", "line 1, column 1: attempting to parse an empty input"},
             {"{", "line 1, column 2: syntax error"},
             {"[]", "the file: expected one JSON object"},
             {"{}", "weight_map: expected a value, and there is none"},
             {R"({"weight_map": []})", "weight_map: expected an object of tensors and their files, not []"}}) {
        folder.write("model.safetensors.index.json", text);
        CAPTURE(folder.refusal());
        CHECK(folder.refusal().starts_with(file + refusal));
    }
    fs::resize_file(folder.scratch / "model.safetensors.index.json", std::uintmax_t{1} << 40);
    CHECK(folder.refusal() ==
          "cannot read model.safetensors.index.json: it has 1099511627776 bytes, and at most 67108864 are allowed");
}

TEST_CASE("names of files that begin alike are told apart") {
    test::Scratch const scratch;
    std::string const long_name(100, 'x');
    test::write_text(scratch / (long_name + "1"), shard({"a"}));
    test::write_text(scratch / (long_name + "2"), shard({"b"}));
    test::write_text(scratch / "i.json",
                     R"({"weight_map": {"a": ")" + long_name + R"(2", "b": ")" + long_name + R"(1"}})");
    CHECK(test::file_error([&] { io::Checkpoint(scratch / "i.json"); }).find("the index puts tensor a into xxx") !=
          std::string::npos);
}

TEST_CASE("a shard that is replaced or cut while it is read") {
    Sharded const folder;
    io::Checkpoint const checkpoint(folder.scratch.path());
    fs::rename(folder.scratch / "one.safetensors", folder.scratch / "old");
    folder.write("one.safetensors", shard({"x"}));
    CHECK(read<double>(checkpoint, "a") == std::vector<double>{'a'}); // of the file that was opened
    fs::resize_file(folder.scratch / "two.safetensors", 9);
    auto const sentence = test::file_error([&] { (void)read<double>(checkpoint, "c"); });
    CHECK(test::without(sentence, folder.scratch.path())
              .starts_with("cannot read two.safetensors: it has 9 bytes, and had "));
    CHECK(test::file_error([&] { (void)read<double>(checkpoint, "d"); }).ends_with(": it has no tensor d"));
}
