// Boxes of tensors, and elements as other elements.
#include <doctest/doctest.h>

#include <pentad/io/safetensors.hpp>
#include <pentad/io/tensor_box.hpp>
#include <pentad/random/philox.hpp>

#include "safetensors_bytes.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

using namespace pentad;

namespace {

/// The elements of a box, one by one.
std::vector<std::uint64_t> elements(std::vector<std::int64_t> const& shape, io::Box const& box) {
    std::vector<std::uint64_t> all;
    std::uint64_t const count = io::detail::elements(box);
    for (std::uint64_t i = 0; i < count; ++i) {
        std::uint64_t rest = i, element = 0, stride = 1;
        for (std::size_t d = shape.size(); d-- > 0;) {
            auto const extent = static_cast<std::uint64_t>(box.extents[d]);
            element += (rest % extent + static_cast<std::uint64_t>(box.offsets[d])) * stride;
            rest /= extent;
            stride *= static_cast<std::uint64_t>(shape[d]);
        }
        all.push_back(element);
    }
    return all;
}

/// A file with one tensor of f32 whose elements are their own numbers.
struct Counted {
    test::Scratch scratch;
    std::vector<std::int64_t> shape;

    explicit Counted(std::vector<std::int64_t> extents) : shape(std::move(extents)) {
        io::SafetensorsWriter writer(scratch / "t", {{"a", "F32", shape}});
        std::vector<float> values(io::detail::elements(io::Box::whole(shape)));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
        writer.append(std::span<float const>(values));
        writer.close();
    }
    template <class T>
    std::vector<T> read(io::Box const& box) const {
        std::vector<T> values(io::detail::elements(box));
        io::SafetensorsReader(scratch / "t").read_box<T>("a", box, values);
        return values;
    }
};

std::uint64_t bytes_read() {
    std::ifstream file("/proc/self/io");
    std::string word;
    std::uint64_t number = 0;
    file >> word >> number; // rchar: of all reads
    REQUIRE(word == "rchar:");
    return number;
}

} // namespace

TEST_CASE("a box holds the elements that its offsets and extents say") {
    for (auto const& shape : std::vector<std::vector<std::int64_t>>{{}, {7}, {5, 6}, {3, 4, 5}, {2, 3, 2, 3}}) {
        Counted const tensor(shape);
        for (std::uint64_t trial = 0; trial < 60; ++trial) {
            io::Box box = io::Box::whole(shape);
            for (std::size_t d = 0; d < shape.size(); ++d) {
                auto const draw = [&](std::uint64_t what, std::int64_t bound) {
                    return static_cast<std::int64_t>(
                        random::uniform_below(trial, d * 2 + what, 0, static_cast<std::uint64_t>(bound)));
                };
                if (trial % 3 == 0 && d > 0) continue; // all of the later dimensions
                box.offsets[d] = draw(0, shape[d] + 1);
                box.extents[d] = draw(1, shape[d] - box.offsets[d] + 1);
            }
            std::vector<double> expected;
            for (auto const element : elements(shape, box)) expected.push_back(static_cast<double>(element));
            CAPTURE(io::detail::shape_text(shape));
            CAPTURE(trial);
            CHECK(tensor.read<double>(box) == expected);
        }
    }
}

TEST_CASE("a box of a tensor of many pieces, and with far and near neighbours") {
    Counted const tensor({1500, 1000}); // 6 MB
    for (io::Box const& box : std::vector<io::Box>{{{0, 0}, {1500, 1000}},
                                                   {{0, 1}, {1500, 998}},
                                                   {{1, 250}, {1499, 500}},
                                                   {{700, 999}, {800, 1}},
                                                   {{1499, 0}, {1, 1000}}}) {
        auto const values = tensor.read<float>(box);
        auto const expected = elements(tensor.shape, box);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < values.size(); ++i) wrong += values[i] == static_cast<float>(expected[i]) ? 0 : 1;
        CHECK(wrong == 0);
    }
}

TEST_CASE("what is read from the file is what the box holds") {
    Counted const tensor({64, 65536}); // rows of 256 KiB
    io::SafetensorsReader const reader(tensor.scratch / "t");
    for (io::Box const& box : std::vector<io::Box>{{{16, 0}, {8, 65536}}, {{0, 8192}, {64, 8192}}}) {
        std::vector<float> values(io::detail::elements(box));
        auto const before = bytes_read();
        reader.read_box<float>("a", box, values);
        auto const read = bytes_read() - before;
        CHECK(read >= values.size() * sizeof(float));
        CHECK(read < values.size() * sizeof(float) + 4096); // what /proc/self/io itself has
    }
}

TEST_CASE("a box that is not inside, or has no room, is refused") {
    Counted const tensor({2, 3});
    auto const refusal = [&](io::Box const& box, std::size_t room) -> std::string {
        std::vector<float> into(room);
        try {
            io::SafetensorsReader(tensor.scratch / "t").read_box<float>("a", box, into);
        } catch (std::invalid_argument const& error) {
            return error.what();
        }
        return "";
    };
    std::int64_t const most = std::numeric_limits<std::int64_t>::max();
    CHECK(refusal({{0, 0}, {2, 3}}, 6) == "");
    CHECK(refusal({{2, 3}, {0, 0}}, 0) == "");
    CHECK(refusal({{1, 0}, {2, 3}}, 6) == "tensor a is [2, 3]: it has no box of [2, 3] at [1, 0]");
    CHECK(refusal({{0, 0}, {2, 4}}, 8) == "tensor a is [2, 3]: it has no box of [2, 4] at [0, 0]");
    CHECK(refusal({{0, -1}, {2, 3}}, 6) == "tensor a is [2, 3]: it has no box of [2, 3] at [0, -1]");
    CHECK(refusal({{0, 0}, {-1, 3}}, 0) == "tensor a is [2, 3]: it has no box of [-1, 3] at [0, 0]");
    CHECK(refusal({{0, most}, {2, most}}, 6).starts_with("tensor a is [2, 3]: it has no box of [2, 92"));
    CHECK(refusal({{0}, {6}}, 6) == "tensor a is [2, 3]: it has no box of [6] at [0]");
    CHECK(refusal({{0, 0}, {2}}, 2) == "tensor a is [2, 3]: it has no box of [2] at [0, 0]");
    CHECK(refusal({{0, 0}, {2, 2}}, 6) == "a box of [2, 2] of tensor a has 4 elements, and there is room for 6");
}

TEST_CASE("a file that is cut while boxes are read is a sentence") {
    Counted const tensor({64, 64});
    io::SafetensorsReader const reader(tensor.scratch / "t");
    std::filesystem::resize_file(tensor.scratch / "t", 1000);
    std::vector<bf16> into(64 * 64);
    auto const sentence = test::file_error([&] { reader.read_box<bf16>("a", io::Box::whole({64, 64}), into); });
    CHECK(test::without(sentence, tensor.scratch.path()).starts_with("cannot read t: it has 1000 bytes, and had "));
}

TEST_CASE("every f16 is the number that the standard says") {
    using io::detail::Half;
    std::size_t wrong = 0;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        auto const value = static_cast<float>(Half{static_cast<std::uint16_t>(bits)});
        int const exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
        float expected = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                       : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
        if (exponent == 31) expected = mantissa == 0 ? INFINITY : NAN;
        if (bits >= 32768) expected = -expected;
        bool const is_same = exponent == 31 && mantissa != 0
                                 ? std::isnan(value)
                                 : std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(expected);
        wrong += is_same ? 0 : 1;
    }
    CHECK(wrong == 0);
}

TEST_CASE("elements are rounded to nearest even, from each type to each") {
    test::Scratch const scratch;
    // 1 + 2^-8 is half-way between two bf16, of which the lower is even; 1 + 3 2^-8 between an odd and an even one.
    std::vector<double> const f64{1.00390625, 1.01171875, -0.0, 1e300, 1 + 0x1p-30};
    std::vector<float> const f32{1.00390625f, 1.01171875f, -0.0f};
    test::write_text(
        scratch / "t",
        test::file_of(
            "{" + test::entry("d", "F64", "[5]", "[0,40]") + "," + test::entry("f", "F32", "[3]", "[40,52]") + "," +
                test::entry("b", "BF16", "[1]", "[52,54]") + "," + test::entry("h", "F16", "[1]", "[54,56]") + "," +
                test::entry("i", "I64", "[1]", "[56,64]") + "}",
            test::bytes_of(f64) + test::bytes_of(f32) + std::string("\x81\x3f\x01\x3c", 4) + std::string(8, 'x')));
    io::SafetensorsReader const reader(scratch / "t");
    auto const bits = [&]<class T>(T, char const* name) {
        std::vector<std::uint64_t> all;
        std::vector<T> values(static_cast<std::size_t>(reader.tensor(name).shape[0]));
        reader.read_box<T>(name, io::Box::whole(reader.tensor(name).shape), values);
        for (T const value : values)
            if constexpr (sizeof(T) == 8)
                all.push_back(std::bit_cast<std::uint64_t>(value));
            else if constexpr (sizeof(T) == 4)
                all.push_back(std::bit_cast<std::uint32_t>(value));
            else
                all.push_back(value.bits);
        return all;
    };
    using All = std::vector<std::uint64_t>;
    CHECK(bits(bf16(), "d") == All{0x3f80, 0x3f82, 0x8000, 0x7f80, 0x3f80});
    CHECK(bits(float(), "d") == All{0x3f808000, 0x3f818000, 0x80000000, 0x7f800000, 0x3f800000});
    CHECK(bits(bf16(), "f") == All{0x3f80, 0x3f82, 0x8000});
    CHECK(bits(double(), "f")[2] == std::uint64_t{1} << 63);
    CHECK(bits(bf16(), "b") == All{0x3f81});
    CHECK(bits(float(), "b") == All{0x3f810000});
    CHECK(bits(double(), "h") == All{std::bit_cast<std::uint64_t>(1 + 0x1p-10)});
    CHECK(bits(bf16(), "h") == All{0x3f80});
    CHECK(test::without(test::file_error([&] { bits(double(), "i"); }), scratch.path()) ==
          "cannot read t as safetensors: tensor i holds I64; what is read is F64, F32, BF16 and F16");
}
