// Damaged texts, the same in every run.
#pragma once

#include <pentad/random/philox.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace test {

namespace random = pentad::random;

/// Numbers below a bound, the same in every run.
class Draws {
  public:
    explicit Draws(std::uint64_t seed) : seed_(seed) {}
    std::size_t below(std::size_t bound) {
        return static_cast<std::size_t>(random::uniform_below(seed_, random::stream("mutants"), next_++, bound));
    }

  private:
    std::uint64_t seed_, next_ = 0;
};

/// Changes one to three places among the first `bytes` of a text; where it keeps the length, single bytes.
inline std::string mutant(std::string text, std::size_t bytes, bool keeps_length, Draws& draws) {
    std::string const digits = "0123456789";
    for (std::size_t change = draws.below(3) + 1; change > 0; --change) {
        std::size_t const end = std::min(bytes, text.size());
        if (end == 0) return text;
        std::size_t const at = draws.below(end), length = std::min(draws.below(40) + 1, text.size() - at);
        switch (draws.below(keeps_length ? 2 : 7)) {
        case 0:
            text[at] = static_cast<char>(draws.below(256));
            break;
        case 1:
            text[at] = static_cast<char>(text[at] ^ 1 << draws.below(8));
            break;
        case 2:
            text.erase(at, length);
            break;
        case 3:
            text.insert(at, text.substr(draws.below(text.size()), length));
            break;
        case 4:
            text.resize(at);
            break;
        case 5: { // another digit
            auto const digit = text.find_first_of(digits, at);
            if (digit < end) text[digit] = digits[draws.below(10)];
            break;
        }
        default: { // a number that is far too large, or none
            auto const digit = text.find_first_of(digits, at);
            if (digit < end)
                text.replace(
                    digit, 1,
                    std::array{"18446744073709551615", "9223372036854775807", "-1", "1e3", "\"\""}[draws.below(5)]);
        }
        }
    }
    return text;
}

} // namespace test
