// How a batch is cut, and how far sequences are padded for it.
#include <doctest/doctest.h>

#include <pentad/layout/partition.hpp>
#include <pentad/model/batch_shape.hpp>
#include <pentad/model/context_choice.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

using namespace pentad;
using model::BatchShape;
using model::NamedProduct;

namespace {

BatchShape shape(std::int64_t seq, std::int64_t cp, std::int64_t tp = 1) {
    auto axes = NamedProduct().times("cp", cp);
    if (tp > 1) axes.times("tp", tp);
    return {.seq = seq, .seq_axes = axes};
}

/// Whether every rank gets as many of `seq` tokens, in pieces that are equal.
bool can_be_dealt(std::size_t seq, std::size_t slices, Order order, model::ContextSplit const& split, std::size_t cp,
                  std::size_t tp) {
    auto const inner = static_cast<std::size_t>(split.inner);
    if (seq % slices != 0) return false;
    try {
        return DealtSequence::of(order, split.strategy, seq / slices, cp / inner, inner).local_extent() % tp == 0;
    } catch (std::invalid_argument const&) {
        return false;
    }
}

} // namespace

TEST_CASE("a sequence that the mesh divides is not padded, any other to the next length that it divides") {
    CHECK(shape(50, 1).padded_seq() == 50);
    CHECK(shape(50, 2).padded_seq() == 50);
    CHECK(shape(50, 3).padded_seq() == 51);
    CHECK(shape(37, 2, 2).padded_seq() == 40);
    CHECK(shape(1, 4).padded_seq() == 4);
    auto zigzag = shape(50, 2, 2);
    zigzag.zigzag = true;
    CHECK(zigzag.padded_seq() == 52); // 2 x cp divides it, and cp x tp
    zigzag.slices = 3;
    CHECK(zigzag.padded_seq() == 60);
    auto alone = shape(37, 1);
    alone.zigzag = true; // one shard has no early and late pieces
    CHECK(alone.padded_seq() == 37);
    auto heads = shape(50, 2);
    heads.zigzag = true;
    heads.head_ranks = 2; // which share the one shard that there is
    CHECK(heads.padded_seq() == 50);
}

TEST_CASE("padding is the least with which every rank gets as many tokens, whatever the strategy and the order") {
    using enum ContextStrategy;
    for (std::int64_t const cp : {1, 2, 3, 4, 6, 8})
        for (std::int64_t inner = 1; inner <= cp; ++inner)
            for (auto const strategy : {ring, all_gather, double_ring, heads_ring, ring_heads})
                for (auto const order : {Order::contiguous, Order::zigzag})
                    for (std::int64_t const tp : {1, 2, 3})
                        for (std::int64_t const slices : {1, 2, 3}) {
                            if (cp % inner != 0) continue;
                            model::ContextSplit const split{strategy, inner};
                            for (std::int64_t const seq : {1, 13, 24, 37}) {
                                auto asked = shape(seq, cp, tp);
                                asked.slices = slices;
                                asked.zigzag = order == Order::zigzag;
                                asked.head_ranks = split.head_ranks(cp);
                                auto least = static_cast<std::size_t>(seq);
                                while (!can_be_dealt(least, static_cast<std::size_t>(slices), order, split,
                                                     static_cast<std::size_t>(cp), static_cast<std::size_t>(tp)))
                                    ++least;
                                INFO("cp ", cp, " inner ", inner, " tp ", tp, " slices ", slices, " seq ", seq);
                                CHECK(asked.padded_seq() == static_cast<std::int64_t>(least));
                            }
                        }
}

TEST_CASE("a batch that the mesh does not divide is refused") {
    BatchShape shape{.batch = 9, .micro_batches = 2, .batch_axes = NamedProduct().times("dp", 3).times("ep", 1)};
    CHECK(shape.refusal()->message() == "batch = 9 is not divisible by dp x ep x micro-batches = 3 x 1 x 2 = 6");
    shape.batch = 12;
    CHECK(!shape.refusal());
}
