#include <doctest/doctest.h>

#include <pentad/memory/strided_copy.hpp>

#include <Kokkos_Core.hpp>

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
    }
}
