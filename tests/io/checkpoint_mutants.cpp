// Damaged checkpoints: each is refused in one sentence, or what is read is what its bytes say.
#include <doctest/doctest.h>

#include <pentad/io/checkpoint.hpp>

#include "mutants.hpp"
#include "safetensors_bytes.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
namespace fs = std::filesystem;

namespace {

double number_at(char const* bytes, std::string const& type) {
    auto const as = [&]<class T>(T value) {
        std::memcpy(&value, bytes, sizeof value);
        return value;
    };
    if (type == "F64") return as(double());
    if (type == "F32") return as(float());
    if (type == "BF16") return static_cast<float>(as(bf16()));
    return static_cast<float>(as(io::detail::Half()));
}

/// Whether all tensors of an accepted file are those that its bytes say: one after the other, to the end.
bool is_right(io::SafetensorsReader const& reader, std::string const& file) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    std::uint64_t at = sizeof length + length;
    for (auto const& [name, type, shape] : reader.tensors()) {
        auto const bytes = io::detail::tensor_bytes(type, shape);
        if (!bytes || at + *bytes > file.size() || !reader.contains(name)) return false;
        auto const box = io::Box::whole(shape);
        std::vector<double> values(io::detail::elements(box));
        if (io::detail::with_real_type(type, [](auto) {})) {
            reader.read_box<double>(name, box, values);
            for (std::size_t i = 0; i < values.size(); ++i) {
                double const expected = number_at(file.data() + at + i * io::detail::element_bytes(type), type);
                if (values[i] != expected && (values[i] == values[i] || expected == expected)) return false;
            }
        }
        at += *bytes;
    }
    return at == file.size();
}

std::string golden(std::string const& name) { return test::text_of(fs::path(PENTAD_GOLDEN_DIR) / "io" / name); }

} // namespace

TEST_CASE("of 300 damaged files of tensors each is refused in one sentence, or read as it is") {
    test::Scratch const scratch;
    std::string const good = golden("single/model.safetensors");
    std::uint64_t header = 0;
    std::memcpy(&header, good.data(), sizeof header);
    test::Draws draws(1);
    int refused = 0, read = 0;
    for (int i = 0; i < 300; ++i) {
        bool const is_anywhere = i % 3 == 0; // otherwise in the header
        std::string const text = test::mutant(good, is_anywhere ? good.size() : 8 + header, is_anywhere, draws);
        test::write_text(scratch / "t", text);
        CAPTURE(i);
        auto const sentence = test::file_error([&] {
            io::Checkpoint const checkpoint(scratch / "t");
            CHECK(is_right(io::SafetensorsReader(scratch / "t"), text));
        });
        CHECK((sentence.empty() || sentence.starts_with("cannot read ")));
        ++(sentence.empty() ? read : refused);
    }
    MESSAGE(refused << " refused, " << read << " read");
    CHECK(refused >= 100);
    CHECK(read >= 20);
}

TEST_CASE("of 300 damaged indices each is refused in one sentence, or the tensors are those of the files") {
    test::Scratch const scratch;
    auto const& folder = scratch.path();
    for (std::string const name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
        test::write_text(folder / name, golden("sharded/" + name));
    test::write_text(folder / "model-00003-of-00002.safetensors", golden("sharded/model-00001-of-00002.safetensors"));
    std::string const good = golden("sharded/model.safetensors.index.json");
    test::Draws draws(2);
    int refused = 0, read = 0;
    for (int i = 0; i < 300; ++i) {
        bool const is_in_metadata = i % 3 == 0; // which say nothing that is needed
        test::write_text(folder / "model.safetensors.index.json",
                         test::mutant(good, is_in_metadata ? 48 : good.size(), is_in_metadata, draws));
        CAPTURE(i);
        auto const sentence = test::file_error([&] {
            io::Checkpoint const checkpoint(folder);
            CHECK(checkpoint.files().size() == 3);
            std::size_t count = 0;
            for (std::size_t file = 1; file < checkpoint.files().size(); ++file) {
                CHECK(checkpoint.files()[file].parent_path() == folder);
                io::SafetensorsReader const shard(checkpoint.files()[file]);
                CHECK(is_right(shard, test::text_of(checkpoint.files()[file])));
                for (auto const& tensor : shard.tensors()) {
                    ++count;
                    CHECK(checkpoint.contains(tensor.name));
                    CHECK(checkpoint.tensor(tensor.name).shape == tensor.shape);
                }
            }
            CHECK(checkpoint.tensors().size() == count);
            CHECK(count == 9);
        });
        CHECK((sentence.empty() || sentence.starts_with("cannot read ")));
        ++(sentence.empty() ? read : refused);
    }
    MESSAGE(refused << " refused, " << read << " read");
    CHECK(refused >= 100);
    CHECK(read >= 5);
}
