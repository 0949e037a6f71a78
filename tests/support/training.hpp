// What tests of whole training steps share.
#pragma once

#include <string>

namespace support {

/// Bytes below 40, none twice in a row: data for a vocabulary of 40 or more.
inline std::string varied_text() {
    std::string text;
    for (int i = 0; i < 997; ++i) text += static_cast<char>((i * i / 3 + 7 * i) % 39 + 1);
    return text;
}

} // namespace support
