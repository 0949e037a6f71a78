// Checkpoints that are written: their files, and what is left of those before them, at any moment.
#include <doctest/doctest.h>

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/checkpoint.hpp>
#include <pentad/io/checkpoint_writer.hpp>

#include "interrupted.hpp"
#include "safetensors_bytes.hpp"

#include <sys/resource.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using namespace pentad;
namespace fs = std::filesystem;

namespace {

std::set<std::string> names_in(fs::path const& folder) {
    std::set<std::string> names;
    for (auto const& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
    return names;
}

using Entries = std::vector<io::TensorEntry>;
/// 24, 0, 8, 40, 8 and 8 bytes.
Entries const entries{{"b", "F32", {2, 3}},   {"nothing", "F32", {0}}, {"a", "F32", {2}},
                      {"large", "F32", {10}}, {"c", "F32", {1, 2}},    {"d", "F32", {2}}};

std::vector<float> numbers(Entries const& tensors, float first) {
    std::uint64_t count = 0;
    for (auto const& tensor : tensors) count += io::detail::elements(io::Box::whole(tensor.shape));
    std::vector<float> values;
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
    return values;
}

/// A checkpoint of these tensors with the elements first, first + 1, ..., given in pieces.
void save(fs::path const& folder, Entries const& tensors, std::uint64_t shard_bytes, float first,
          std::size_t piece = 5) {
    io::CheckpointWriter writer(folder, tensors, shard_bytes);
    auto const values = numbers(tensors, first);
    std::span<float const> left(values);
    while (!left.empty()) {
        std::size_t const count = std::min(left.size(), piece);
        writer.append(left.first(count));
        left = left.subspan(count);
    }
    io::AtomicFile config(folder / "config.json");
    config.write(std::to_string(first));
    writer.publish(config);
}

/// Whether the folder has all of that checkpoint.
bool holds(fs::path const& folder, Entries const& tensors, float first) {
    io::Checkpoint const checkpoint(folder);
    if (checkpoint.tensors().size() != tensors.size()) return false;
    auto const values = numbers(tensors, first);
    std::size_t next = 0;
    for (auto const& [name, type, shape] : tensors) {
        auto const box = io::Box::whole(shape);
        std::vector<float> found(io::detail::elements(box));
        checkpoint.read<float>(name, box, found);
        for (float const value : found)
            if (value != values[next++]) return false;
    }
    return true;
}

std::string const shard = "model-0000";

} // namespace

TEST_CASE("a checkpoint is one file, or shards of at most so many bytes and an index") {
    struct Case {
        std::uint64_t bytes;
        std::size_t shards;
    };
    for (auto const& [bytes, shards] :
         {Case{88, 1}, {87, 2}, {48, 3}, {40, 3}, {39, 3}, {31, 4}, {8, 5}, {1, 5}, {0, 5}})
        for (std::size_t const piece : {1, 5, 100}) {
            test::Scratch const scratch;
            CAPTURE(bytes);
            save(scratch.path(), entries, bytes, 7, piece);
            CHECK(holds(scratch.path(), entries, 7));
            std::set<std::string> expected{"config.json"};
            if (shards == 1) expected.insert("model.safetensors");
            if (shards > 1) expected.insert("model.safetensors.index.json");
            for (std::size_t i = 1; shards > 1 && i <= shards; ++i)
                expected.insert(shard + std::to_string(i) + "-of-0000" + std::to_string(shards) + ".safetensors");
            CHECK(names_in(scratch.path()) == expected);
        }
}

TEST_CASE("the index is laid out as transformers lays it out") {
    test::Scratch const scratch;
    save(scratch.path(), entries, 48, 1);
    CHECK(test::text_of(scratch / "model.safetensors.index.json") == R"({
  "metadata": {
    "total_size": 88
  },
  "weight_map": {
    "a": "model-00001-of-00003.safetensors",
    "b": "model-00001-of-00003.safetensors",
    "c": "model-00002-of-00003.safetensors",
    "d": "model-00003-of-00003.safetensors",
    "large": "model-00002-of-00003.safetensors",
    "nothing": "model-00001-of-00003.safetensors"
  }
}
)");
    CHECK(io::SafetensorsReader(scratch / "model-00002-of-00003.safetensors").metadata().at("format") == "pt");
}

TEST_CASE("what the folder held of an earlier checkpoint disappears, and nothing else") {
    test::Scratch const scratch;
    std::set<std::string> const others{"model-00001-of-00002.safetensors.old", "model-1-of-2.safetensors",
                                       "consolidated.safetensors", "tokenizer.json",
                                       "model-0000a-of-00002.safetensors"};
    for (auto const& name : others) test::write_text(scratch / name, "not ours");
    fs::create_directory(scratch / "model-00009-of-00009.safetensors");
    for (std::uint64_t const bytes : {40u, 1u, 88u, 31u, 88u, 88u}) {
        save(scratch.path(), entries, bytes, static_cast<float>(bytes));
        CHECK(holds(scratch.path(), entries, static_cast<float>(bytes)));
        auto names = names_in(scratch.path());
        for (auto const& name : others) CHECK(names.erase(name) == 1);
        CHECK(names.erase("model-00009-of-00009.safetensors") == 1);
        CHECK(names.size() == (bytes == 88 ? 2 : bytes == 40 ? 5 : bytes == 31 ? 6 : 7));
    }
}

TEST_CASE("tensors that do not fit are refused before any data, and what is not complete is not published") {
    test::Scratch const scratch;
    auto const refusal = [&](Entries const& tensors) -> std::string {
        try {
            io::CheckpointWriter(scratch.path(), tensors, 4);
        } catch (std::invalid_argument const& error) {
            return error.what();
        }
        return "";
    };
    CHECK(refusal({{"a", "F32", {1}}, {"b", "F32", {1}}, {"a", "F32", {1}}}) ==
          "tensor a is given twice, or has the name that the format keeps for itself");
    CHECK(refusal({{"a", "F32", {1}}, {"b", "F33", {1}}}) ==
          "tensor b has a type or a shape that safetensors cannot hold");
    {
        std::vector<float> const values(100);
        std::vector<double> const doubles(1);
        io::CheckpointWriter writer(scratch.path(), entries, 40);
        io::AtomicFile config(scratch / "config.json");
        CHECK_THROWS_WITH_AS(writer.publish(config), "tensor b is not complete", std::logic_error);
        CHECK_THROWS_AS(writer.append(std::span<double const>(doubles)), std::logic_error);
        writer.append(std::span<float const>(values).first(8));
        CHECK_THROWS_WITH_AS(writer.publish(config), "tensor large is not complete", std::logic_error);
        writer.append(std::span<float const>(values).first(14));
        CHECK_THROWS_WITH_AS(writer.append(std::span<float const>(values).first(1)),
                             doctest::Contains("more data than tensors"), std::logic_error);
    }
    CHECK(fs::is_empty(scratch.path()));
    CHECK(test::file_error([&] { io::CheckpointWriter(scratch / "none", entries); }).starts_with("cannot write "));
}

TEST_CASE("more shards than a process may open by default") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = 64;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    test::Scratch const scratch;
    Entries tensors;
    for (int i = 0; i < 100; ++i) tensors.push_back({"t" + std::to_string(i), "F32", {2}});
    save(scratch.path(), tensors, 8, 1);
    CHECK(names_in(scratch.path()).size() == 102);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(holds(scratch.path(), tensors, 1));
    ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("killed at any system call, the folder has the old checkpoint, the new one, or none that is described") {
    struct Case {
        bool unnamed;
        std::uint64_t old_bytes, new_bytes;
    };
    // One file after shards, shards after one file, and shards after others.
    for (auto const& [unnamed, old_bytes, new_bytes] :
         {Case{true, 44, 88}, {true, 88, 44}, {false, 44, 20}, {false, 20, 88}}) {
        test::Unnamed const mode(unnamed);
        Entries const small{{"a", "F32", {5}}, {"b", "F32", {6}}, {"c", "F32", {11}}};
        bool was_old = false, was_new = false, was_neither = false;
        for (int n = 0;; n += n < 30 ? 7 : 1) {
            test::Scratch const scratch;
            auto const& folder = scratch.path();
            save(folder, small, old_bytes, 1);
            int const status = test::interrupted(n, SIGKILL, [&] { save(folder, small, new_bytes, 2); });
            CAPTURE(n);
            bool const is_described = fs::exists(folder / "config.json");
            if (is_described) {
                bool const is_old = test::text_of(folder / "config.json") == std::to_string(1.0f);
                CHECK(holds(folder, small, is_old ? 1.0f : 2.0f));
                was_old = was_old || is_old;
                was_new = was_new || !is_old;
            }
            was_neither = was_neither || !is_described;
            save(folder, small, old_bytes, 3); // whose number of shards is another
            CHECK(holds(folder, small, 3));
            CHECK(names_in(folder).size() == (old_bytes == 88 ? 2 : old_bytes == 44 ? 4 : 5));
            if (WIFEXITED(status)) {
                CHECK(WEXITSTATUS(status) == 0);
                break;
            }
            REQUIRE(WTERMSIG(status) == SIGKILL);
        }
        CHECK(was_old);
        CHECK(was_new);
        CHECK(was_neither);
    }
}
