// A timeline of a run, for ui.perfetto.dev or chrome://tracing: each rank writes its spans as text, one
// rank puts the texts together. The format is Chrome's trace events: a process for each rank, times in microseconds.
#pragma once

#include <pentad/observe/trace.hpp>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace pentad::report {

namespace detail {

void append_json_text(std::string& out, std::string_view text);

/// Nanoseconds as microseconds, exactly.
void append_time(std::string& out, std::int64_t nanoseconds);

void append_event(std::string& out, observe::Span const& span, int rank, char phase, std::int64_t time);

void append_arguments(std::string& out, observe::SpanDetail const& detail);

} // namespace detail

/// The part of a timeline that one rank contributes. `label` says who it is: "rank 3 (dp 0, pp 1)". Spans of a lane
/// are on one line and nest, as scopes do; those in flight get lines of their own.
std::string timeline_part(std::span<observe::Span const> spans, int rank, std::string_view label,
                          std::int64_t dropped = 0);

/// Writes the file from the parts of all ranks.
void write_timeline(std::filesystem::path const& path, std::span<std::string const> parts);

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/timeline.hpp>
#endif
