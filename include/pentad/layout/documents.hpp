// Packed sequences: several documents one after the other, none of which sees another. How much attention each part of
// such a sequence is, and how its pieces are dealt so that all shards have the same.
#pragma once

#include <pentad/layout/partition.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace pentad {

/// Sequences hold several documents. No token sees another document, positions begin anew in each, and the token that
/// ends one predicts nothing.
struct Packing {
    std::int32_t last = 0;     ///< the token that ends a document
    bool deals_by_work = true; ///< over cp: each rank gets as many tokens, and as nearly as can be as much attention

    friend bool operator==(Packing const&, Packing const&) = default;
};

/// The documents of some sequences of equal length: for each token where its own begins and ends.
class Documents {
  public:
    /// The documents of tokens [sequences, length]: a document ends with each token that is `last`, if that is given,
    /// and with the sequence. The last `padding` tokens of each sequence are a document of their own.
    Documents(std::span<std::int32_t const> tokens, std::size_t length, std::optional<std::int32_t> last,
              std::size_t padding = 0)
        : length_(length), begins_(tokens.size()), ends_(tokens.size()) {
        std::size_t const real = length - padding;
        for (std::size_t row = 0; row < sequences(); ++row) {
            auto* const begins = begins_.data() + row * length;
            auto* const ends = ends_.data() + row * length;
            for (std::size_t i = 1; i < length; ++i) {
                bool const is_first = i == real || (i < real && last && tokens[row * length + i - 1] == *last);
                begins[i] = is_first ? static_cast<std::int32_t>(i) : begins[i - 1];
            }
            for (std::size_t i = length; i-- > 0;)
                ends[i] =
                    i + 1 == length || begins[i + 1] != begins[i] ? static_cast<std::int32_t>(i + 1) : ends[i + 1];
        }
    }

    [[nodiscard]] std::size_t sequences() const { return length_ == 0 ? 0 : begins_.size() / length_; }
    [[nodiscard]] std::size_t length() const { return length_; }
    /// [sequences, length]: the position at which the document of a token begins, and that after its end.
    [[nodiscard]] std::vector<std::int32_t> const& begins() const { return begins_; }
    [[nodiscard]] std::vector<std::int32_t> const& ends() const { return ends_; }

  private:
    std::size_t length_;
    std::vector<std::int32_t> begins_, ends_;
};

/// What attention lets a query see, beside the documents.
struct Sight {
    bool causal = true;
    std::size_t window = 0; ///< a key is less far away than this; 0: any distance

    friend bool operator==(Sight const&, Sight const&) = default;
};

/// Positions [begin, end).
struct PositionRange {
    std::size_t begin = 0, end = 0;
};

namespace detail {

/// All that the queries see of a range of keys, which holds what documents let each of them see.
constexpr PositionRange visible_within(PositionRange keys, PositionRange queries, Sight const& sight) {
    if (sight.causal) keys.end = std::min(keys.end, queries.end);
    if (sight.window == 0) return keys;
    if (queries.begin + 1 > sight.window) keys.begin = std::max(keys.begin, queries.begin + 1 - sight.window);
    keys.end = std::min(keys.end, queries.end - 1 + sight.window);
    return keys;
}

} // namespace detail

/// All that the queries at positions [begin, end) of some sequence see; `documents` may be null.
inline PositionRange visible_to(PositionRange queries, Sight const& sight, std::size_t length,
                                Documents const* documents) {
    if (queries.begin >= queries.end) return {};
    if (documents == nullptr) return detail::visible_within({0, length}, queries, sight);
    PositionRange all{length, 0};
    for (std::size_t row = 0; row < documents->sequences(); ++row) {
        std::size_t const first = row * documents->length();
        PositionRange const around{static_cast<std::size_t>(documents->begins()[first + queries.begin]),
                                   static_cast<std::size_t>(documents->ends()[first + queries.end - 1])};
        auto const seen = detail::visible_within(around, queries, sight);
        all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
    }
    return all;
}

/// Pairs of a query and a key that it sees, of the queries in each of `pieces` equal parts of the sequences.
inline std::vector<std::uint64_t> visible_pairs(Documents const& documents, Sight const& sight, std::size_t pieces) {
    std::vector<std::uint64_t> pairs(pieces);
    std::size_t const length = documents.length(), piece = length / pieces;
    for (std::size_t i = 0; i < documents.begins().size(); ++i) {
        std::size_t const position = i % length;
        PositionRange const document{static_cast<std::size_t>(documents.begins()[i]),
                                     static_cast<std::size_t>(documents.ends()[i])};
        auto const seen = detail::visible_within(document, {position, position + 1}, sight);
        pairs[position / piece] += seen.end - seen.begin;
    }
    return pairs;
}

/// Deals pieces to shards, the same number to each, so that the heaviest shard is light: the heaviest pieces first,
/// each to the lightest shard that has room, and then exchanges of two pieces as long as the heaviest shard becomes
/// lighter (as MagiAttention, SandAI 2025, shares out the areas of masks). The pieces of a shard are in ascending
/// order.
/// @pre shards divides the number of pieces
inline std::vector<std::uint32_t> deal_by_work(std::span<std::uint64_t const> work, std::size_t shards) {
    std::size_t const room = work.size() / shards;
    std::vector<std::uint32_t> heaviest_first(work.size());
    std::iota(heaviest_first.begin(), heaviest_first.end(), 0u);
    std::stable_sort(heaviest_first.begin(), heaviest_first.end(), [&](auto a, auto b) { return work[a] > work[b]; });
    std::vector<std::vector<std::uint32_t>> held(shards);
    std::vector<std::uint64_t> load(shards);
    for (auto const piece : heaviest_first) {
        std::size_t lightest = shards;
        for (std::size_t s = 0; s < shards; ++s)
            if (held[s].size() < room && (lightest == shards || load[s] < load[lightest])) lightest = s;
        held[lightest].push_back(piece);
        load[lightest] += work[piece];
    }
    for (;;) {
        auto const top = static_cast<std::size_t>(std::max_element(load.begin(), load.end()) - load.begin());
        std::uint64_t least = load[top];
        std::uint32_t *best = nullptr, *other = nullptr;
        std::size_t to = 0;
        for (std::size_t s = 0; s < shards; ++s)
            for (auto& mine : held[top])
                for (auto& theirs : held[s]) {
                    if (work[mine] <= work[theirs]) continue;
                    std::uint64_t const difference = work[mine] - work[theirs];
                    std::uint64_t const after = std::max(load[top] - difference, load[s] + difference);
                    if (s == top || after >= least) continue;
                    least = after;
                    best = &mine;
                    other = &theirs;
                    to = s;
                }
        if (best == nullptr) break;
        std::uint64_t const difference = work[*best] - work[*other];
        load[top] -= difference;
        load[to] += difference;
        std::swap(*best, *other);
    }
    std::vector<std::uint32_t> dealt;
    for (auto& pieces : held) {
        std::sort(pieces.begin(), pieces.end());
        dealt.insert(dealt.end(), pieces.begin(), pieces.end());
    }
    return dealt;
}

} // namespace pentad
