// The functions of <pentad/report/timeline.hpp>.
#pragma once

#include <pentad/report/timeline.hpp>

#include <pentad/io/atomic_file.hpp>
#include <pentad/mesh/inline.hpp>

#include <array>
#include <cstddef>
#include <cstdio>

namespace pentad::report::detail {

PENTAD_INLINE void append_json_text(std::string& out, std::string_view text) {
    out += '"';
    for (char const letter : text) {
        if (letter == '"' || letter == '\\') {
            out += '\\';
            out += letter;
        } else if (static_cast<unsigned char>(letter) < 0x20) {
            std::array<char, 8> escaped{};
            std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(letter));
            out += escaped.data();
        } else {
            out += letter;
        }
    }
    out += '"';
}

PENTAD_INLINE void append_time(std::string& out, std::int64_t nanoseconds) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%lld.%03lld", static_cast<long long>(nanoseconds / 1000),
                  static_cast<long long>(nanoseconds % 1000));
    out += text.data();
}

PENTAD_INLINE void append_event(std::string& out, observe::Span const& span, int rank, char phase, std::int64_t time) {
    out += ",\n{\"name\":";
    append_json_text(out, span.name);
    out += ",\"cat\":";
    append_json_text(out, span.category);
    out += ",\"ph\":\"";
    out += phase;
    out += "\",\"pid\":" + std::to_string(rank) + ",\"tid\":" + std::to_string(span.lane) + ",\"ts\":";
    append_time(out, time);
}

PENTAD_INLINE void append_arguments(std::string& out, observe::SpanDetail const& detail) {
    std::string_view separator = ",\"args\":{";
    auto const next = [&](std::string_view key) {
        out += separator;
        append_json_text(out, key);
        out += ':';
        separator = ",";
    };
    if (!detail.axis.empty()) {
        next("axis");
        append_json_text(out, detail.axis);
    }
    auto const number = [&](std::string_view key, std::int64_t value) {
        if (value < 0) return;
        next(key);
        out += std::to_string(value);
    };
    number("bytes", detail.bytes);
    number("micro_batch", detail.micro_batch);
    number("stage", detail.stage);
    number("slice", detail.slice);
    if (separator == ",") out += '}';
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE void write_timeline(std::filesystem::path const& path, std::span<std::string const> parts) {
    io::AtomicFile file(path);
    file.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (i > 0) file.write(",\n");
        file.write(parts[i]);
    }
    file.write("\n]}\n");
    file.commit();
}

PENTAD_INLINE std::string timeline_part(std::span<observe::Span const> spans, int rank, std::string_view label,
                                        std::int64_t dropped) {
    std::string const who = ",\"pid\":" + std::to_string(rank);
    std::string out = "{\"name\":\"process_name\",\"ph\":\"M\"" + who + ",\"args\":{\"name\":";
    detail::append_json_text(out, dropped == 0 ? std::string(label)
                                               : std::string(label) + ", " + std::to_string(dropped) +
                                                     " spans lost: the buffer was full");
    out += "}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\"" + who +
           ",\"args\":{\"sort_index\":" + std::to_string(rank) + "}}";
    std::int64_t flight = 0;
    for (observe::Span const& span : spans) {
        if (span.in_flight) {
            // A pair of events with an identity of its own; ids are shared by all processes, so the rank is part of it.
            std::string const id = ",\"id\":\"" + std::to_string(rank) + "." + std::to_string(flight++) + "\"";
            detail::append_event(out, span, rank, 'b', span.start_ns);
            out += id;
            detail::append_arguments(out, span.detail);
            out += '}';
            detail::append_event(out, span, rank, 'e', span.end_ns);
            out += id + '}';
        } else {
            detail::append_event(out, span, rank, 'X', span.start_ns);
            out += ",\"dur\":";
            detail::append_time(out, span.end_ns - span.start_ns);
            detail::append_arguments(out, span.detail);
            out += '}';
        }
    }
    return out;
}

} // namespace pentad::report
