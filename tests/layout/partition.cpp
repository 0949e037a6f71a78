#include <doctest/doctest.h>

#include <pentad/layout/partition.hpp>

#include <stdexcept>
#include <vector>

using namespace pentad;

namespace {

// Three shards of 12: contiguous 0-3 | 4-7 | 8-11; in zigzag order 0 1 10 11 | 2 3 8 9 | 4 5 6 7.
constexpr Partition contiguous(Order::contiguous, 12, 3), zigzag(Order::zigzag, 12, 3);
static_assert(contiguous.pieces() == 1 && zigzag.pieces() == 2 && contiguous.local_extent() == 4 &&
              zigzag.local_extent() == 4);
static_assert(contiguous.global_index(1, 2) == 6 && contiguous.shard_of(6) == 1 && contiguous.local_index(6) == 2);
static_assert(zigzag.global_index(0, 2) == 10 && zigzag.global_index(1, 3) == 9 && zigzag.global_index(2, 2) == 6);
static_assert(zigzag.shard_of(10) == 0 && zigzag.local_index(10) == 2 && zigzag.shard_of(5) == 2 &&
              zigzag.local_index(5) == 1);
static_assert(zigzag.segment(1, 1).global == 8 && zigzag.segment(1, 1).local == 2 && zigzag.segment(1, 1).length == 2);

} // namespace

TEST_CASE("every global index lives in exactly one place, contiguous and zigzag") {
    for (auto const order : {Order::contiguous, Order::zigzag})
        for (std::size_t shards = 1; shards <= 6; ++shards)
            for (std::size_t length = 1; length <= 3; ++length) {
                std::size_t const extent = length * 2 * shards;
                CAPTURE(shards);
                CAPTURE(extent);
                Partition const partition(order, extent, shards);
                std::vector<int> seen(extent);
                std::size_t visible_pairs_least = extent * extent, visible_pairs_most = 0;
                for (std::size_t shard = 0; shard < shards; ++shard) {
                    std::size_t visible_pairs = 0;
                    for (std::size_t local = 0; local < partition.local_extent(); ++local) {
                        std::size_t const global = partition.global_index(shard, local);
                        REQUIRE(global < extent);
                        ++seen[global];
                        CHECK(partition.shard_of(global) == shard);
                        CHECK(partition.local_index(global) == local);
                        visible_pairs += global + 1;
                    }
                    visible_pairs_least = std::min(visible_pairs_least, visible_pairs);
                    visible_pairs_most = std::max(visible_pairs_most, visible_pairs);
                }
                CHECK(seen == std::vector<int>(extent, 1));
                // What zigzag is for: under a causal mask every shard has the same work.
                CHECK((visible_pairs_least == visible_pairs_most) == (order == Order::zigzag || shards == 1));
            }
}

TEST_CASE("pieces dealt by a list are where the list says, and those that follow each other are one run") {
    // 0 1 2 | 3 4 5 | ...: shard 0 holds pieces 1, 2 and 5, shard 1 holds 0, 3 and 4.
    Partition const dealt(18, 2, {1, 2, 5, 0, 3, 4});
    CHECK(dealt.pieces() == 3);
    CHECK(dealt.local_extent() == 9);
    for (std::size_t shard = 0; shard < 2; ++shard)
        for (std::size_t local = 0; local < 9; ++local) {
            std::size_t const global = dealt.global_index(shard, local);
            CHECK(dealt.shard_of(global) == shard);
            CHECK(dealt.local_index(global) == local);
        }
    CHECK(dealt.global_index(0, 0) == 3);
    CHECK(dealt.global_index(0, 8) == 17);
    CHECK(dealt.global_index(1, 3) == 9);
    auto const runs = dealt.segments(0);
    REQUIRE(runs.size() == 2);
    CHECK((runs[0].global == 3 && runs[0].local == 0 && runs[0].length == 6));
    CHECK((runs[1].global == 15 && runs[1].local == 6 && runs[1].length == 3));
    CHECK(Partition(Order::zigzag, 12, 3).segments(2).size() == 1); // 4 5 6 7
    for (auto const& wrong :
         std::vector<std::vector<std::uint32_t>>{{0, 1, 2}, {0, 1, 2, 2}, {0, 1, 2, 4}, {0, 1, 2, 3, 4}})
        CHECK_THROWS_AS(Partition(18, 2, wrong), std::invalid_argument);
}

TEST_CASE("an extent that cannot be dealt evenly is refused") {
    CHECK_THROWS_WITH_AS(Partition(Order::contiguous, 10, 4), "an extent of 10 cannot be dealt evenly to 4 shards",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(Partition(Order::zigzag, 12, 4), "an extent of 12 cannot be dealt in zigzag order to 4 shards",
                         std::invalid_argument);
}

TEST_CASE("every element of a sequence lives on one rank, however two factors of cp share it out") {
    using enum ContextStrategy;
    for (auto const strategy : {ring, all_gather, double_ring, heads_ring, ring_heads})
        for (auto const order : {Order::contiguous, Order::zigzag})
            for (std::size_t outer = 1; outer <= 4; ++outer)
                for (std::size_t inner = 1; inner <= 4; ++inner) {
                    std::size_t const ranks = outer * inner, extent = 4 * ranks;
                    INFO(name(strategy), " ", outer, " x ", inner);
                    auto const dealt = DealtSequence::of(order, strategy, extent, outer, inner);
                    REQUIRE(dealt.ranks() == ranks);
                    CHECK(dealt.local_extent() == 4);
                    std::vector<int> seen(extent);
                    bool follows = true;
                    for (std::size_t rank = 0; rank < ranks; ++rank)
                        for (std::size_t local = 0; local < 4; ++local) {
                            std::size_t const global = dealt.global_index(rank, local);
                            REQUIRE(global < extent);
                            ++seen[global];
                            CHECK(dealt.rank_of(global) == rank);
                            CHECK(dealt.local_index(global) == local);
                            follows = follows && global == 4 * rank + local;
                        }
                    CHECK(seen == std::vector<int>(extent, 1));
                    CHECK(dealt.is_contiguous() == follows);
                }
    CHECK_THROWS_WITH_AS(DealtSequence(Partition(Order::contiguous, 12, 2), 4),
                         "a shard of 6 elements cannot be dealt evenly to 4 ranks", std::invalid_argument);
}
