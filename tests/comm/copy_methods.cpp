// How ranks of a node learn which copy method is the fastest.
#include <doctest/doctest.h>

#include <pentad/comm/node/copy_methods.hpp>

#include <array>
#include <cstddef>
#include <numeric>

using namespace pentad::comm::node;
using pentad::observe::Operation;

namespace {

using Seconds = std::array<double, copy_method_count>;
constexpr PossibleMethods all{CopyMethod::streamed, CopyMethod::lent_streamed},
    in_segments{CopyMethod::streamed, CopyMethod::cached}, small{CopyMethod::cached, CopyMethod::mail_streamed};

/// Makes exchanges, as all ranks of a group do, that take as long as `seconds` says of their method.
/// @return how often each method was taken
std::array<int, copy_method_count> exchange(CopyMethods::Kind& kind, int times, Seconds const& seconds,
                                            PossibleMethods possible = all, bool shared = false) {
    std::array<int, copy_method_count> taken{};
    for (int i = 0; i < times; ++i) {
        CopyMethod const method = kind.agreed(possible, shared);
        ++taken[static_cast<std::size_t>(method)];
        kind.agree(kind.suggest(possible, shared), shared);
        kind.learn(method, shared, seconds[static_cast<std::size_t>(method)]);
    }
    return taken;
}
constexpr std::size_t at(CopyMethod method) { return static_cast<std::size_t>(method); }

} // namespace

TEST_CASE("all methods are tried, then the fastest is taken, and hardly anything is spent on others") {
    for (std::size_t fastest = 0; fastest < copy_method_count; ++fastest) {
        CopyMethods::Kind kind;
        Seconds seconds;
        seconds.fill(4);
        seconds[fastest] = 3;
        auto const first = exchange(kind, 40, seconds);
        for (int const taken : first) CHECK(taken >= 4);
        CHECK(kind.agreed(all, false) == static_cast<CopyMethod>(fastest));
        CHECK(exchange(kind, 2000, seconds)[fastest] > 1900);
    }
}

TEST_CASE("a method that came close is tried again soon, one that was much slower after a thousand exchanges") {
    CopyMethods::Kind kind;
    Seconds const seconds{2.1, 2, 9, 9, 9, 9, 9, 9};
    exchange(kind, 40, seconds);
    auto const taken = exchange(kind, 400, seconds);
    CHECK(taken[at(CopyMethod::streamed)] >= 4);
    CHECK(std::accumulate(taken.begin() + at(CopyMethod::mail_streamed), taken.end(), 0) == 0);
    exchange(kind, 700, {2.1, 2, 9, 9, 1, 9, 9, 9}); // ranks have moved to other cores
    CHECK(kind.agreed(all, false) == CopyMethod::process);
}

TEST_CASE("what hardly differs, and what was slow once, changes nothing; what has become slower is left") {
    CopyMethods::Kind kind;
    exchange(kind, 40, {4, 3, 5, 5, 5, 5, 5, 5});
    exchange(kind, 1, {4, 300, 5, 5, 5, 5, 5, 5});
    CHECK(exchange(kind, 20, {2.9, 3, 5, 5, 5, 5, 5, 5})[at(CopyMethod::cached)] == 20);
    exchange(kind, 60, {4, 8, 5, 5, 5, 5, 5, 5});
    CHECK(kind.agreed(all, false) == CopyMethod::streamed);
}

TEST_CASE("buffers in segments are learnt apart, and only take what is possible") {
    CopyMethods::Kind kind;
    Seconds const seconds{2, 3, 2.5, 4, 1, 9, 9, 9};
    exchange(kind, 40, seconds);
    CHECK(kind.agreed(all, false) == CopyMethod::process);
    CHECK(kind.agreed(in_segments, true) == CopyMethod::cached);
    exchange(kind, 40, seconds, in_segments, true);
    CHECK(kind.agreed(in_segments, true) == CopyMethod::streamed);
    CHECK(kind.agreed(all, false) == CopyMethod::process);
    CHECK(kind.agreed(small, false) == CopyMethod::mail_streamed);
    CHECK(kind.agreed({CopyMethod::process_streamed, CopyMethod::process_streamed}, false) ==
          CopyMethod::process_streamed);
}

TEST_CASE("operations and sizes are learnt apart") {
    CopyMethods methods;
    auto& kind = methods.of(Operation::all_gather, 1 << 20);
    CHECK(&methods.of(Operation::all_gather, (1 << 20) - 5) == &kind);
    CHECK(&methods.of(Operation::all_gather, (1 << 20) + 1) != &kind);
    CHECK(&methods.of(Operation::all_to_all, 1 << 20) != &kind);
}
