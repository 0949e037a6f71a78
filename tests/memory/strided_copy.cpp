#include <doctest/doctest.h>

#include <pentad/memory/strided_copy.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

using namespace pentad;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Bytes = Kokkos::View<std::byte*, Exec>;

std::vector<std::byte> on_host(Bytes const& bytes) {
    std::vector<std::byte> result(bytes.size());
    memory::copy_to_host(Exec(), result.data(), bytes.data(), result.size());
    return result;
}
Bytes on_device(std::vector<std::byte> const& bytes) {
    Bytes const result("bytes", bytes.size());
    memory::copy_from_host(Exec(), result.data(), bytes.data(), bytes.size());
    return result;
}

} // namespace

TEST_CASE("dimensions that are contiguous in both arrays are one run") {
    memory::Runs const whole = memory::Runs(4).add(5, 4, 4).add(3, 20, 20);
    CHECK(whole.bytes() == 60);
    CHECK(whole.count() == 1);
    memory::Runs const rows = memory::Runs(4).add(5, 4, 4).add(3, 20, 28).add(7, 60, 84);
    CHECK(rows.bytes() == 20);
    CHECK(rows.count() == 21);
    CHECK(rows.alignment() == 4);
    CHECK(memory::Runs(2).add(1, 100, 100).add(3, 2, 4).bytes() == 2);
}

TEST_CASE("more runs than an int counts are found") {
    std::size_t const rows = std::size_t{1} << 20, columns = std::size_t{1} << 13;
    memory::Runs const runs = memory::Runs(1).add(columns, 2, 3).add(rows, 5 * columns, 7 * columns);
    CHECK(runs.count() == rows * columns);
    std::size_t to = 0, from = 0;
    runs.find(900000 * columns + 11, to, from);
    CHECK(to == 900000 * 5 * columns + 11 * 2);
    CHECK(from == 900000 * 7 * columns + 11 * 3);
}

TEST_CASE("300 random arrays are copied between random strides, and nothing beside them is written") {
    std::mt19937 random(7);
    auto const upto = [&](std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random); };
    for (int trial = 0; trial < 300; ++trial) {
        CAPTURE(trial);
        std::size_t const element = std::size_t{1} << upto(4);
        std::size_t const rank = upto(4);
        std::vector<std::size_t> extents(rank);
        for (auto& extent : extents) extent = trial % 17 == 0 ? upto(2) : 1 + upto(6);
        if (trial % 50 == 1 && rank > 0) extents.back() = 40000; // longer than a piece of a run
        // Strides in elements, from the innermost dimension (the last) outwards; some with room between rows.
        auto const strides = [&] {
            std::vector<std::size_t> result(rank);
            std::size_t next = 1 + (upto(3) == 0 ? 1 : 0);
            for (std::size_t d = rank; d-- > 0; next = result[d] * extents[d] + upto(2)) result[d] = next;
            return std::pair(result, next + 1);
        };
        auto const [to_strides, to_size] = strides();
        auto const [from_strides, from_size] = strides();
        memory::Runs runs(element);
        for (std::size_t d = rank; d-- > 0;) runs.add(extents[d], to_strides[d] * element, from_strides[d] * element);

        std::vector<std::byte> source(from_size * element);
        for (auto& byte : source) byte = static_cast<std::byte>(upto(255));
        std::vector<std::byte> expected(to_size * element, std::byte{0xee});
        std::size_t const count = std::accumulate(extents.begin(), extents.end(), std::size_t{1}, std::multiplies<>());
        for (std::size_t i = 0; i < count; ++i) {
            std::size_t to = 0, from = 0, rest = i;
            for (std::size_t d = rank; d-- > 0; rest /= extents[d]) {
                to += rest % extents[d] * to_strides[d];
                from += rest % extents[d] * from_strides[d];
            }
            for (std::size_t b = 0; b < element; ++b) expected[to * element + b] = source[from * element + b];
        }
        auto const target = on_device(std::vector<std::byte>(expected.size(), std::byte{0xee}));
        auto const from = on_device(source);
        memory::copy("copied", Exec(), runs, target.data(), from.data());
        Exec().fence();
        CHECK(on_host(target) == expected);

        // The same on the host in parts that begin and end anywhere.
        std::vector<std::byte> parts(expected.size(), std::byte{0xee});
        std::size_t const bytes = runs.count() * runs.bytes();
        for (std::size_t first = 0; first < bytes;) {
            std::size_t const part = std::min(bytes - first, upto(bytes / 3 + 1));
            memory::copy_part(runs, first, part, parts.data(), source.data(), memory::copy_line);
            first += part;
        }
        CHECK(parts == expected);
    }
}

TEST_CASE("what many threads share is copied whole") {
    for (std::size_t const element : {1, 2, 4, 8, 12, 16, 32, 64, 100, 5000}) {
        CAPTURE(element);
        std::size_t const rows = 1 + (std::size_t{1} << 20) / element / 7; // 7 runs a row, of every other of the source
        std::vector<std::byte> source(14 * rows * element), expected;
        for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 2654435761U >> 13);
        for (std::size_t run = 0; run < 7 * rows; ++run)
            expected.insert(expected.end(), source.begin() + static_cast<std::ptrdiff_t>(2 * run * element),
                            source.begin() + static_cast<std::ptrdiff_t>((2 * run + 1) * element));
        auto const from = on_device(source);
        auto const target = on_device(std::vector<std::byte>(expected.size()));
        auto const runs = memory::Runs(element).add(7, element, 2 * element).add(rows, 7 * element, 14 * element);
        memory::copy("copied", Exec(), runs, target.data(), from.data());
        Exec().fence();
        CHECK(on_host(target) == expected);
    }
}

TEST_CASE("arrays are transposed, in any order of their dimensions") {
    std::mt19937 random(9);
    auto const between = [&](std::size_t least, std::size_t most) {
        return std::uniform_int_distribution<std::size_t>(least, most)(random);
    };
    for (int trial = 0; trial < 60; ++trial) {
        CAPTURE(trial);
        std::size_t const element = std::size_t{1} << between(0, 4);
        std::array const extents{between(1, 3), between(20, 90), between(20, 90)};
        std::array<std::size_t, 3> order{0, 1, 2}, strides{};
        std::shuffle(order.begin(), order.end(), random);
        std::size_t size = 1;
        for (auto const d : order) { // innermost first
            strides[d] = size;
            size *= extents[d];
        }
        std::vector<std::byte> array(size * element), expected(size * element);
        for (auto& byte : array) byte = static_cast<std::byte>(between(0, 255));
        memory::Runs packing(element), unpacking(element);
        std::size_t contiguous = 1;
        for (std::size_t d = 3; d-- > 0; contiguous *= extents[d]) {
            packing.add(extents[d], contiguous * element, strides[d] * element);
            unpacking.add(extents[d], strides[d] * element, contiguous * element);
        }
        for (std::size_t i = 0; i < size; ++i) {
            std::size_t const from = i / (extents[1] * extents[2]) * strides[0] +
                                     i / extents[2] % extents[1] * strides[1] + i % extents[2] * strides[2];
            for (std::size_t b = 0; b < element; ++b) expected[i * element + b] = array[from * element + b];
        }
        auto const source = on_device(array);
        auto const packed = on_device(std::vector<std::byte>(array.size()));
        auto const unpacked = on_device(std::vector<std::byte>(array.size()));
        memory::copy("copied", Exec(), packing, packed.data(), source.data());
        memory::copy("copied", Exec(), unpacking, unpacked.data(), packed.data());
        Exec().fence();
        CHECK(on_host(packed) == expected);
        CHECK(on_host(unpacked) == array);
    }
}
