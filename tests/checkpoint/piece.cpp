#include <pentad/checkpoint/piece.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

using namespace pentad;
using checkpoint::Piece;

namespace {

/// The places in the piece of the tensor's elements, one by one.
std::map<std::vector<std::int64_t>, std::uint64_t> elements(Piece const& piece) {
    std::map<std::vector<std::int64_t>, std::uint64_t> found;
    std::size_t const rank = piece.box.extents.size();
    for (std::uint64_t index = piece.begin; index < piece.end; ++index) {
        std::vector<std::int64_t> at(rank);
        std::uint64_t rest = index;
        for (std::size_t d = rank; d-- > 0;) {
            auto const extent = static_cast<std::uint64_t>(piece.box.extents[d]);
            at[d] = piece.box.offsets[d] + static_cast<std::int64_t>(rest % extent);
            rest /= extent;
        }
        found[at] = index - piece.begin;
    }
    return found;
}

} // namespace

TEST_CASE("the common runs of two pieces are their common elements, each once and in order") {
    std::mt19937 random(17);
    auto const below = [&](std::int64_t n) {
        return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
    };
    std::size_t with_runs = 0, longest = 0;
    for (int trial = 0; trial < 4000; ++trial) {
        std::size_t const rank = 1 + random() % 3;
        std::vector<std::int64_t> shape(rank);
        for (auto& extent : shape) extent = 1 + below(6);
        auto const draw = [&] {
            Piece piece;
            for (auto const extent : shape) {
                bool const is_whole = random() % 2 == 0;
                auto const offset = is_whole ? 0 : below(extent);
                piece.box.offsets.push_back(offset);
                piece.box.extents.push_back(is_whole ? extent : 1 + below(extent - offset));
            }
            auto const size = static_cast<std::int64_t>(io::detail::elements(piece.box));
            piece.begin = static_cast<std::uint64_t>(random() % 2 == 0 ? 0 : below(size + 1));
            piece.end =
                piece.begin + static_cast<std::uint64_t>(below(size - static_cast<std::int64_t>(piece.begin) + 1));
            return piece;
        };
        auto const a = draw(), b = draw();
        std::vector<std::pair<std::uint64_t, std::uint64_t>> expected, found;
        auto const in_b = elements(b);
        for (auto const& [at, place] : elements(a))
            if (auto const other = in_b.find(at); other != in_b.end()) expected.emplace_back(place, other->second);
        checkpoint::for_each_common_run(a, b, [&](std::uint64_t from, std::uint64_t to, std::uint64_t count) {
            REQUIRE(count > 0);
            longest = std::max(longest, static_cast<std::size_t>(count));
            for (std::uint64_t i = 0; i < count; ++i) found.emplace_back(from + i, to + i);
        });
        REQUIRE(found == expected);
        with_runs += found.empty() ? 0 : 1;
    }
    CHECK(with_runs > 500);
    CHECK(longest > 50);
}

TEST_CASE("a part of a large matrix is found without a look at each of its rows") {
    std::int64_t const rows = std::int64_t{1} << 40, columns = 1 << 10;
    Piece const whole{io::Box::whole({rows, columns}), 0, static_cast<std::uint64_t>(rows * columns)};
    Piece const part{{{0, 256}, {rows, 256}}, 1000, 2000};
    std::uint64_t count = 0;
    checkpoint::for_each_common_run(whole, part,
                                    [&](std::uint64_t, std::uint64_t, std::uint64_t run) { count += run; });
    CHECK(count == 1000);
}
