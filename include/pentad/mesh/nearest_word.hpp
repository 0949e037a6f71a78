// What somebody meant who misspelt a word.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad {

/// The candidate that is nearest to a misspelt word; there is at least one.
inline std::string_view nearest_word(std::string_view word, std::span<std::string_view const> candidates) {
    auto const distance = [&](std::string_view other) { // edits: letters put in, left out or exchanged
        std::vector<std::size_t> row(other.size() + 1);
        std::iota(row.begin(), row.end(), std::size_t{0});
        for (std::size_t i = 0; i < word.size(); ++i) {
            std::size_t diagonal = std::exchange(row[0], i + 1);
            for (std::size_t j = 0; j < other.size(); ++j)
                diagonal = std::exchange(
                    row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (word[i] == other[j] ? 0 : 1)}));
        }
        return row.back();
    };
    return *std::min_element(candidates.begin(), candidates.end(),
                             [&](auto a, auto b) { return distance(a) < distance(b); });
}

} // namespace pentad
