// Text of fixed capacity that can be written while compiling and can be a template
// argument, and how the compiler comes to say it when it refuses a program.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace pentad {

/// Words and numbers, appended with <<; what does not fit is cut.
struct Text {
    std::array<char, 512> characters{};
    std::size_t length = 0;

    constexpr Text& operator<<(std::string_view text) {
        for (char const c : text)
            if (length < characters.size()) characters[length++] = c;
        return *this;
    }
    constexpr Text& operator<<(std::size_t number) {
        char digits[20]{};
        int count = 0;
        do {
            digits[count++] = static_cast<char>('0' + number % 10);
            number /= 10;
        } while (number != 0);
        while (count > 0) *this << std::string_view(&digits[--count], 1);
        return *this;
    }
    [[nodiscard]] constexpr std::string_view view() const { return {characters.data(), length}; }
    // What a static_assert asks of its message:
    [[nodiscard]] constexpr char const* data() const { return characters.data(); }
    [[nodiscard]] constexpr std::size_t size() const { return length; }
};

/// Does not compile: the compiler says the sentence. Call it where `if constexpr` has found something wrong, so that a
/// right program never pays for the sentence.
template <Text Sentence, bool Allowed = false>
consteval void refuse() {
// A message that is computed (P2741) is C++26, and an extension before it.
#if !defined(__NVCC__) && (defined(__clang__) ? __clang_major__ >= 17 : __GNUC__ >= 14)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wc++26-extensions"
    static_assert(Allowed, Sentence);
#pragma GCC diagnostic pop
#else
    static_assert(Allowed, "pentad: the sentence stands in the template argument of refuse");
#endif
}

} // namespace pentad
