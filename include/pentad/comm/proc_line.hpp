// A line of what the kernel tells about the machine.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace pentad::comm {

/// The first line that begins so, without its end, of a file of /proc. Empty where there is none.
inline std::string proc_line(char const* path, std::string_view begin = {}) {
    std::string line;
    std::FILE* const file = std::fopen(path, "re");
    if (file == nullptr) return line;
    char text[256]; // a part of a long line
    for (bool is_begin = true; std::fgets(text, sizeof text, file) != nullptr;) {
        std::string_view part(text);
        bool const is_end = part.ends_with('\n');
        if (is_end) part.remove_suffix(1);
        if (is_begin ? part.starts_with(begin) : !line.empty()) line += part;
        if (is_end && !line.empty()) break;
        is_begin = is_end;
    }
    std::fclose(file);
    return line;
}

} // namespace pentad::comm
