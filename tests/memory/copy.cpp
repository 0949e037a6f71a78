// Copies and zeros of contiguous memory, in one piece and in many.
#include <doctest/doctest.h>

#include <pentad/memory/copy.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <vector>

namespace memory = pentad::memory;
using Exec = Kokkos::DefaultHostExecutionSpace;

TEST_CASE("copies and zeros reach every byte and none beside them, however many pieces there are") {
    Exec const exec;
    constexpr std::size_t piece = std::size_t{1} << 16, margin = 3;
    for (std::size_t const bytes : {std::size_t{1}, piece - 1, piece, piece + 1, 5 * piece + 7}) {
        std::vector<unsigned char> source(bytes), target(bytes + 2 * margin, 1);
        for (std::size_t i = 0; i < bytes; ++i) source[i] = static_cast<unsigned char>(i % 251 + 2);
        auto expected = target;

        memory::copy(exec, target.data() + margin, source.data(), bytes);
        exec.fence();
        for (std::size_t i = 0; i < bytes; ++i) expected[margin + i] = source[i];
        CHECK(target == expected);

        memory::clear(exec, target.data() + margin, bytes);
        exec.fence();
        for (std::size_t i = 0; i < bytes; ++i) expected[margin + i] = 0;
        CHECK(target == expected);
    }
}
