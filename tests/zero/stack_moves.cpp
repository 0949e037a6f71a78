// Which elements go from whom to whom where the matrices of stacks change places.
#include <doctest/doctest.h>

#include <pentad/zero/stack_moves.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

using namespace pentad;
using zero::StackMoves;

namespace {

/// Stacks of a bucket over parts x shards, and how their matrices move.
struct Trial {
    std::size_t parts, shards, extent; ///< the last of a shard
    std::vector<StackOrder> orders;
    std::vector<StackMoves::Stack> stacks;
    std::vector<StackMoves::Holder> holders; ///< by rank

    Trial(std::size_t part_count, std::size_t shard_count, unsigned seed) : parts(part_count), shards(shard_count) {
        std::mt19937 random(seed);
        std::size_t offset = 0;
        orders.reserve(3);
        for (int i = 0; i < 3; ++i) {
            std::size_t const each = 1 + random() % 3, elements = 1 + random() % 11;
            auto& order = orders.emplace_back(each * parts);
            for (auto* const next : {"now", "next"}) {
                std::vector<i32> numbers(order.now().begin(), order.now().end());
                std::shuffle(numbers.begin(), numbers.end(), random);
                order.plan(numbers);
                if (next[2] == 'w') order.arrive();
            }
            stacks.push_back({&order, offset + random() % 4, each, elements}); // behind something that stays
            offset = stacks.back().offset + each * elements;
        }
        extent = (offset + shards - 1) / shards;
        for (std::size_t shard = 0; shard < shards; ++shard)
            for (std::size_t part = 0; part < parts; ++part) holders.push_back({part, shard});
    }
    /// What all ranks hold: a number for each element of each matrix, and others in between.
    [[nodiscard]] std::vector<std::vector<int>> state(bool after) const {
        std::vector<std::vector<int>> buckets(parts, std::vector<int>(shards * extent));
        for (auto& bucket : buckets) std::iota(bucket.begin(), bucket.end(), -100000);
        for (std::size_t s = 0; s < stacks.size(); ++s) {
            auto const numbers = after ? stacks[s].order->next() : stacks[s].order->now();
            for (std::size_t place = 0; place < numbers.size(); ++place)
                for (std::size_t i = 0; i < stacks[s].elements; ++i)
                    buckets[place / stacks[s].matrices]
                           [stacks[s].offset + place % stacks[s].matrices * stacks[s].elements + i] =
                               static_cast<int>(s * 10000 + static_cast<std::size_t>(numbers[place]) * 100 + i);
        }
        std::vector<std::vector<int>> of_ranks;
        for (auto const& [part, shard] : holders) {
            auto const first = buckets[part].begin() + static_cast<std::ptrdiff_t>(shard * extent);
            of_ranks.emplace_back(first, first + static_cast<std::ptrdiff_t>(extent));
        }
        return of_ranks;
    }
};

} // namespace

TEST_CASE("each element goes from the rank that had it to the one that is to have it, across the borders of shards") {
    unsigned seed = 0;
    for (std::size_t const parts : {1, 2, 3, 4})
        for (std::size_t const shards : {1, 2, 3, 5})
            for (int repeat = 0; repeat < 20; ++repeat) {
                Trial const trial(parts, shards, ++seed);
                INFO(parts, " parts, ", shards, " shards, seed ", seed);
                auto const before = trial.state(false);
                auto moved = before;
                std::vector<StackMoves> moves;
                for (std::size_t rank = 0; rank < trial.holders.size(); ++rank)
                    moves.emplace_back(trial.holders, rank, trial.extent, trial.stacks);
                for (std::size_t to = 0; to < moves.size(); ++to)
                    for (std::size_t from = 0; from < moves.size(); ++from) {
                        std::vector<int> sent;
                        for (auto const& range : moves[from].leaving())
                            for (std::size_t i = 0; range.rank == to && i < range.count; ++i)
                                sent.push_back(before[from][range.first + i]);
                        std::size_t next = 0;
                        for (auto const& range : moves[to].arriving())
                            for (std::size_t i = 0; range.rank == from && i < range.count; ++i, ++next)
                                if (next < sent.size()) moved[to][range.first + i] = sent[next];
                        CHECK(next == sent.size());
                    }
                CHECK(moved == trial.state(true));
            }
}
