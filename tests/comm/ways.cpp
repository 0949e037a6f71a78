// How ranks of a node learn which way of copying is the fastest.
#include <doctest/doctest.h>

#include <pentad/comm/node/ways.hpp>

#include <array>
#include <cstddef>
#include <numeric>

using namespace pentad::comm::node;
using pentad::observe::Operation;

namespace {

using Seconds = std::array<double, way_count>;
constexpr PossibleWays all{Way::streamed, Way::lent_streamed}, in_segments{Way::streamed, Way::cached},
    small{Way::cached, Way::mail_streamed};

/// Makes exchanges, as all ranks of a group do, that take as long as `seconds` says of their way.
/// @return how often each way was taken
std::array<int, way_count> exchange(Ways::Kind& kind, int times, Seconds const& seconds, PossibleWays possible = all,
                                    bool shared = false) {
    std::array<int, way_count> taken{};
    for (int i = 0; i < times; ++i) {
        Way const way = kind.agreed(possible, shared);
        ++taken[static_cast<std::size_t>(way)];
        kind.agree(kind.suggest(possible, shared), shared);
        kind.learn(way, shared, seconds[static_cast<std::size_t>(way)]);
    }
    return taken;
}
constexpr std::size_t at(Way way) { return static_cast<std::size_t>(way); }

} // namespace

TEST_CASE("all ways are tried, then the fastest is taken, and hardly anything is spent on others") {
    for (std::size_t fastest = 0; fastest < way_count; ++fastest) {
        Ways::Kind kind;
        Seconds seconds;
        seconds.fill(4);
        seconds[fastest] = 3;
        auto const first = exchange(kind, 40, seconds);
        for (int const taken : first) CHECK(taken >= 4);
        CHECK(kind.agreed(all, false) == static_cast<Way>(fastest));
        CHECK(exchange(kind, 2000, seconds)[fastest] > 1900);
    }
}

TEST_CASE("a way that came close is tried again soon, one that was much slower after a thousand exchanges") {
    Ways::Kind kind;
    Seconds const seconds{2.1, 2, 9, 9, 9, 9, 9, 9};
    exchange(kind, 40, seconds);
    auto const taken = exchange(kind, 400, seconds);
    CHECK(taken[at(Way::streamed)] >= 4);
    CHECK(std::accumulate(taken.begin() + at(Way::mail_streamed), taken.end(), 0) == 0);
    exchange(kind, 700, {2.1, 2, 9, 9, 1, 9, 9, 9}); // ranks have moved to other cores
    CHECK(kind.agreed(all, false) == Way::process);
}

TEST_CASE("what hardly differs, and what was slow once, changes nothing; what has become slower is left") {
    Ways::Kind kind;
    exchange(kind, 40, {4, 3, 5, 5, 5, 5, 5, 5});
    exchange(kind, 1, {4, 300, 5, 5, 5, 5, 5, 5});
    CHECK(exchange(kind, 20, {2.9, 3, 5, 5, 5, 5, 5, 5})[at(Way::cached)] == 20);
    exchange(kind, 60, {4, 8, 5, 5, 5, 5, 5, 5});
    CHECK(kind.agreed(all, false) == Way::streamed);
}

TEST_CASE("buffers in segments are learnt apart, and only take what is possible") {
    Ways::Kind kind;
    Seconds const seconds{2, 3, 2.5, 4, 1, 9, 9, 9};
    exchange(kind, 40, seconds);
    CHECK(kind.agreed(all, false) == Way::process);
    CHECK(kind.agreed(in_segments, true) == Way::cached);
    exchange(kind, 40, seconds, in_segments, true);
    CHECK(kind.agreed(in_segments, true) == Way::streamed);
    CHECK(kind.agreed(all, false) == Way::process);
    CHECK(kind.agreed(small, false) == Way::mail_streamed);
    CHECK(kind.agreed({Way::process_streamed, Way::process_streamed}, false) == Way::process_streamed);
}

TEST_CASE("operations and sizes are learnt apart") {
    Ways ways;
    auto& kind = ways.of(Operation::all_gather, 1 << 20);
    CHECK(&ways.of(Operation::all_gather, (1 << 20) - 5) == &kind);
    CHECK(&ways.of(Operation::all_gather, (1 << 20) + 1) != &kind);
    CHECK(&ways.of(Operation::all_to_all, 1 << 20) != &kind);
}
