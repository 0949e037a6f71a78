#include <doctest/doctest.h>

#include <pentad/layout/documents.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

using namespace pentad;

namespace {

/// By the definition.
bool sees(Documents const* documents, Sight const& sight, std::size_t row, std::size_t query, std::size_t key) {
    if (sight.causal && key > query) return false;
    if (sight.window > 0 && std::max(query, key) - std::min(query, key) >= sight.window) return false;
    auto const& begins = documents->begins();
    return begins[row * documents->length() + query] == begins[row * documents->length() + key];
}

} // namespace

TEST_CASE("a document ends with its last token, and with the sequence") {
    std::vector<std::int32_t> const tokens{5, 9, 9, 1, 2, 9, 3, 3, /* the second sequence */ 1, 1, 1, 1, 1, 1, 1, 9};
    Documents const documents(tokens, 8, 9);
    CHECK(documents.sequences() == 2);
    CHECK(documents.begins() == std::vector<std::int32_t>{0, 0, 2, 3, 3, 3, 6, 6, 0, 0, 0, 0, 0, 0, 0, 0});
    CHECK(documents.ends() == std::vector<std::int32_t>{2, 2, 3, 6, 6, 6, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8});
}

TEST_CASE("padding is a document of its own, behind one that ends with it") {
    std::vector<std::int32_t> const tokens{5, 9, 1, 2, 3, 9, 9, 9, /* the second sequence */ 1, 1, 1, 1, 9, 9, 1, 1};
    Documents const packed(tokens, 8, 9, 3);
    CHECK(packed.begins() == std::vector<std::int32_t>{0, 0, 2, 2, 2, 5, 5, 5, 0, 0, 0, 0, 0, 5, 5, 5});
    CHECK(packed.ends() == std::vector<std::int32_t>{2, 2, 5, 5, 5, 8, 8, 8, 5, 5, 5, 5, 5, 8, 8, 8});
    Documents const one_each(tokens, 8, {}, 3);
    CHECK(one_each.begins() == std::vector<std::int32_t>{0, 0, 0, 0, 0, 5, 5, 5, 0, 0, 0, 0, 0, 5, 5, 5});
    CHECK(visible_to({4, 5}, {.causal = false}, 8, &one_each).end == 5);
    CHECK(visible_to({5, 6}, {.causal = false}, 8, &one_each).begin == 5);
}

TEST_CASE("what queries see, and how much, is what the definition says") {
    std::mt19937 draw(1);
    for (int trial = 0; trial < 40; ++trial) {
        std::size_t const rows = 1 + draw() % 2, length = 24;
        std::vector<std::int32_t> tokens(rows * length);
        for (auto& token : tokens) token = static_cast<std::int32_t>(draw() % 6);
        Documents const documents(tokens, length, 0);
        for (Sight const sight : {Sight{}, Sight{false, 0}, Sight{true, 1}, Sight{true, 5}, Sight{false, 4}}) {
            auto const pairs = visible_pairs(documents, sight, 6);
            for (std::size_t piece = 0; piece < 6; ++piece) {
                std::uint64_t count = 0;
                std::size_t first = length, last = 0;
                for (std::size_t row = 0; row < rows; ++row)
                    for (std::size_t query = 4 * piece; query < 4 * piece + 4; ++query)
                        for (std::size_t key = 0; key < length; ++key)
                            if (sees(&documents, sight, row, query, key)) {
                                ++count;
                                first = std::min(first, key);
                                last = std::max(last, key + 1);
                            }
                CHECK(pairs[piece] == count);
                auto const range = visible_to({4 * piece, 4 * piece + 4}, sight, length, &documents);
                CHECK(range.begin == first);
                CHECK(range.end == last);
            }
        }
    }
    CHECK(visible_to({4, 8}, {true, 3}, 24, nullptr).begin == 2);
    CHECK(visible_to({4, 8}, {false, 3}, 24, nullptr).end == 10);
    CHECK(visible_to({4, 8}, {false, 0}, 24, nullptr).end == 24);
}

TEST_CASE("packed documents of 32k tokens are dealt to 8 ranks so that none has much more work than another") {
    constexpr std::size_t length = 32768, shards = 8, pieces = 8;
    std::mt19937_64 draw(7);
    for (double const mean : {6.5, 7.5, 8.5}) { // of the logarithm of their lengths
        std::vector<double> heaviest, in_zigzag;
        for (int trial = 0; trial < 100; ++trial) {
            std::lognormal_distribution<double> lengths(mean, 1.2);
            std::vector<std::int32_t> tokens(length, 1);
            for (std::size_t at = 0; at < length;) {
                at += static_cast<std::size_t>(std::max(1.0, lengths(draw)));
                if (at <= length) tokens[at - 1] = 0;
            }
            Documents const documents(tokens, length, 0);
            auto const work = visible_pairs(documents, {}, shards * pieces);
            auto const dealt = deal_by_work(work, shards);
            Partition const partition(length, shards, dealt); // each piece once, as many for each
            double sum = 0, most = 0, most_in_zigzag = 0;
            for (std::size_t shard = 0; shard < shards; ++shard) {
                double load = 0;
                for (std::size_t i = 0; i < pieces; ++i) load += static_cast<double>(work[dealt[shard * pieces + i]]);
                sum += load;
                most = std::max(most, load);
            }
            auto const halves = visible_pairs(documents, {}, 2 * shards);
            for (std::size_t shard = 0; shard < shards; ++shard)
                most_in_zigzag =
                    std::max(most_in_zigzag, static_cast<double>(halves[shard] + halves[2 * shards - 1 - shard]));
            heaviest.push_back(most / (sum / shards));
            in_zigzag.push_back(most_in_zigzag / (sum / shards));
        }
        for (auto* list : {&heaviest, &in_zigzag}) std::sort(list->begin(), list->end());
        std::string const of_zigzag = std::to_string(in_zigzag[50]) + ", at worst " + std::to_string(in_zigzag[99]);
        MESSAGE("the heaviest rank over the mean: median ", heaviest[50], ", at worst ", heaviest[99],
                "; in zigzag order ", of_zigzag);
        CHECK(heaviest[50] <= 1.01);
        CHECK(heaviest[99] <= 1.05);
        CHECK(in_zigzag[50] > 1.2);
    }
}

TEST_CASE("work is dealt the same number of pieces for each shard, whatever it is") {
    for (auto const& work : std::vector<std::vector<std::uint64_t>>{
             {0, 0, 0, 0, 0, 0}, {100, 1, 1, 1, 1, 1}, {6, 5, 4, 3, 2, 1}, {1, 2, 3, 4, 5, 6}})
        for (std::size_t const shards : {1u, 2u, 3u, 6u}) {
            auto const dealt = deal_by_work(work, shards);
            CHECK_NOTHROW(Partition(12, shards, dealt));
            for (std::size_t i = 1; i < dealt.size(); ++i)
                if (i % (work.size() / shards) != 0) CHECK(dealt[i - 1] < dealt[i]);
        }
    CHECK(deal_by_work(std::vector<std::uint64_t>{6, 5, 4, 3, 2, 1}, 3) ==
          std::vector<std::uint32_t>{0, 5, 1, 4, 2, 3});
}
