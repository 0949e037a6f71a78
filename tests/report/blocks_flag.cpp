#include <pentad/report/blocks_flag.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <random>

using namespace pentad;

TEST_CASE("blocks that differ are read as they are written") {
    std::mt19937 random(3);
    auto const once_in = [&](unsigned n) { return random() % n == 0; };
    for (int trial = 0; trial < 300; ++trial) {
        Strategy strategy;
        strategy.block.sequence_parallel = once_in(2);
        strategy.block.zigzag = once_in(2);
        strategy.block.context = ContextStrategy::all_gather;
        strategy.blocks.resize(random() % 12, strategy.block);
        for (auto& block : strategy.blocks) {
            if (once_in(2)) block.sequence_parallel = !block.sequence_parallel;
            if (once_in(3)) block.attention_output = model::AttentionOutput::all_to_all;
            if (once_in(4)) block.row_parts = 2;
            if (once_in(5)) block.mesh = model::BlockMesh{1, std::int64_t{1} << random() % 4};
            if (block.mesh && once_in(2)) block.tensor_kind = model::TensorKind::two_d;
        }
        while (!strategy.blocks.empty() && strategy.blocks.back() == strategy.block) strategy.blocks.pop_back();
        auto bare = strategy;
        bare.blocks.clear();
        auto const text = report::blocks_text(strategy);
        CAPTURE(text);
        CHECK(text.empty() == strategy.blocks.empty());
        if (!text.empty()) CHECK(report::with_blocks(bare, text) == strategy);
    }
}

TEST_CASE("a list of blocks: ranges, and the flags of each") {
    Strategy expected;
    expected.blocks.resize(8);
    for (std::size_t const i : {0u, 1u, 2u, 7u}) expected.blocks[i].sequence_parallel = true;
    expected.blocks[5].row_parts = 2;
    expected.blocks[5].attention_output = model::AttentionOutput::all_to_all;
    auto const* const text = "0-2,7:sequence-parallel=on/5:row-parts=2,attention-output=all-to-all";
    CHECK(report::with_blocks({}, text) == expected);
    CHECK(report::blocks_text(expected) ==
          "0-2:sequence-parallel=on/5:row-parts=2,attention-output=all-to-all/7:sequence-parallel=on");
    for (auto const* const wrong : {"",
                                    "0",
                                    "0:",
                                    ":row-parts=2",
                                    "0:row-parts",
                                    "0:row-parts=",
                                    "0:row-parts=x",
                                    "0:zigzag=on",
                                    "x:row-parts=2",
                                    "2-1:row-parts=2",
                                    "-1:row-parts=2",
                                    "0-:row-parts=2",
                                    "0:row-parts=2/",
                                    "/0:row-parts=2",
                                    "0,:row-parts=2",
                                    "0:row-parts=2,",
                                    "99999999:row-parts=2",
                                    "0:seq=2",
                                    "0:cp=0",
                                    "0:tp=x",
                                    "0:dp=2",
                                    "0:block.row_parts=2"})
        CHECK_MESSAGE(!report::with_blocks({}, wrong), wrong);
}
