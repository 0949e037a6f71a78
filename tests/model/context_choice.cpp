// What --cp asks for: words and rules, and the ways that a choice leaves open.
#include <doctest/doctest.h>

#include <pentad/model/context_choice.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

using namespace pentad;
using model::ContextChoice;
using model::ContextSplit;
using enum ContextStrategy;

namespace {
using Kind = ContextChoice::Kind;
constexpr std::array<std::int64_t, 4> divisors_of_8{1, 2, 4, 8};

std::vector<ContextSplit> splits(ContextChoice const& asked, std::int64_t cp, std::int64_t heads,
                                 std::vector<std::int64_t> const& insides) {
    return model::context_splits(asked, cp, heads, insides);
}
} // namespace

TEST_CASE("parts of cp are given where a strategy has them, and divide it") {
    CHECK(ContextChoice{Kind::two_level, 2}.refused_heads(4).empty());
    CHECK(ContextChoice{Kind::ring, 2}.refused_heads(4) == "--cp-heads 2 says nothing without --cp two-level");
    CHECK(ContextChoice{Kind::double_ring, 2, 2}.refused_heads(4) ==
          "--cp-heads 2 says nothing without --cp two-level");
    CHECK(ContextChoice{Kind::two_level, 3}.refused_heads(4) == "--cp-heads 3 does not divide cp = 4");
    CHECK(ContextChoice{Kind::two_level, 1}.refused_heads(4) ==
          "--cp-heads 1 exchanges no heads: take 2 or more, or --cp ring");
    CHECK(ContextChoice{Kind::two_level, 1}.refused_heads(1).empty());
    CHECK(ContextChoice{Kind::two_level, 4, 2}.refused_heads(8).empty()); // cp / inner
    CHECK(ContextChoice{Kind::two_level, 8, 4}.refused_heads(8) ==
          "--cp-heads 8 is neither --cp-inner 4 nor cp / --cp-inner = 2");
    for (auto const kind : {Kind::two_level, Kind::double_ring}) {
        CHECK(ContextChoice{kind, 0, 2}.refused_inner(4).empty());
        CHECK(ContextChoice{kind, 0, 3}.refused_inner(4) == "--cp-inner 3 does not divide cp = 4");
        CHECK(ContextChoice{kind, 0, 1}.refused_inner(4) ==
              "--cp-inner 1 splits nothing: take 2 or more, or --cp ring");
    }
    CHECK(ContextChoice{Kind::ulysses, 0, 2}.refused_inner(4) ==
          "--cp-inner 2 says nothing without --cp two-level or double-ring");
}

TEST_CASE("where no part is given, nodes split cp") {
    ContextChoice const rings{Kind::double_ring};
    CHECK(rings.follows_nodes());
    CHECK(rings.on(8, 4) == ContextSplit{double_ring, 4});
    CHECK(ContextChoice{Kind::two_level}.on(8, 4) == ContextSplit{heads_ring, 4});
    CHECK_FALSE(ContextChoice{Kind::two_level, 2}.follows_nodes());
    CHECK_FALSE(ContextChoice{Kind::ulysses}.follows_nodes());
    CHECK(rings.refused_nodes(8, 4).empty());
    for (std::int64_t const per_node : {0, 1})
        CHECK(rings.refused_nodes(8, per_node) ==
              "--cp double-ring splits cp = 8 by nodes, and not every node has 2 or more neighbours along it: give "
              "--cp-inner N, or take --cp ring");
    CHECK(rings.refused_nodes(1, 1).empty());
    CHECK(ContextChoice{Kind::double_ring, 0, 2}.refused_nodes(8, 1).empty());
}

TEST_CASE("the flags of every split are that split") {
    for (auto const strategy : {ring, all_gather, double_ring, heads_ring, ring_heads})
        for (auto const inner : divisors_of_8) {
            ContextSplit const split{strategy, inner};
            bool const is_split = strategy != ring && strategy != all_gather;
            if (is_split ? inner == 1 || (strategy == ring_heads && inner == 8) : inner > 1) continue;
            auto const choice = ContextChoice::of(split, 8);
            CHECK(choice.refused_heads(8).empty());
            CHECK(choice.refused_inner(8).empty());
            CHECK(choice.on(8) == split);
        }
    CHECK(ContextChoice::of({ring_heads, 4}, 8).flags() == "--cp two-level --cp-heads 2 --cp-inner 4");
    CHECK(ContextChoice::of({ring_heads, 4}, 8).text() == "two-level heads=2 inner=4");
    CHECK(ContextChoice::of({heads_ring, 8}, 8).flags() == "--cp ulysses");
    CHECK(ContextChoice{Kind::ulysses}.on(1) == ContextSplit());
}

TEST_CASE("heads are exchanged among ranks that divide them") {
    CHECK(ContextSplit{heads_ring, 4}.refusal(8, 4).empty());
    CHECK(ContextSplit{ring_heads, 4}.refusal(8, 2).empty());
    CHECK(ContextSplit{heads_ring, 4}.refusal(8, 6) ==
          "6 heads of a rank of tp are not divisible by the 4 ranks of cp that exchange heads");
    CHECK(ContextSplit{double_ring, 3}.refusal(8, 4) == "inner(cp) = 3 does not divide cp = 8");
    CHECK(ContextSplit{double_ring, 4}.refusal(8, 1).empty());
}

TEST_CASE("a choice leaves ways open, which are defined") {
    using Splits = std::vector<ContextSplit>;
    ContextChoice const any{Kind::automatic};
    CHECK(splits(any, 1, 32, {1}) == Splits{{}});
    CHECK(splits(any, 8, 32, {1, 8}) == Splits{{ring}, {all_gather}, {heads_ring, 8}});
    CHECK(splits(any, 8, 32, {4}) ==
          Splits{{ring}, {all_gather}, {heads_ring, 8}, {heads_ring, 4}, {ring_heads, 4}, {double_ring, 4}});
    // Four heads: no Ulysses of eight ranks, and heads among four of them whatever the nodes are.
    CHECK(splits(any, 8, 4, {2}) ==
          Splits{{ring}, {all_gather}, {heads_ring, 2}, {ring_heads, 2}, {double_ring, 2}, {heads_ring, 4}});
    CHECK(splits(any, 8, 1, {8}) == Splits{{ring}, {all_gather}});
    CHECK(splits({Kind::ulysses}, 8, 4, {2}).empty());
    CHECK(splits({Kind::two_level, 4}, 8, 4, {2}) == Splits{{heads_ring, 4}});
    CHECK(splits({Kind::two_level, 3}, 8, 3, {2}).empty());
    CHECK(splits({Kind::double_ring}, 8, 4, {0, 1, 2, 4}) == Splits{{double_ring, 2}, {double_ring, 4}});
}
