// What this process did and when, as spans in a buffer that is allocated once.
// Off, a Scope costs one branch; on, it never allocates: when the buffer is full, spans are dropped and counted.
// Written by the one host thread that drives Pentad; report/timeline.hpp turns the spans into a file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::observe {

/// What a span says beside its name. Left at these values, an entry is not written.
struct SpanDetail {
    std::string_view axis{};       ///< the mesh axes that a collective runs over, "dp.cp"
    std::int64_t bytes = -1;       ///< payload
    std::int64_t micro_batch = -1; ///< of a pipeline step
    std::int64_t stage = -1;       ///< of the model
    std::int64_t slice = -1;       ///< of the micro-batch
};

/// A stretch of time. The texts are not owned: they outlive the trace, as literals do.
struct Span {
    std::string_view name;
    std::string_view category; ///< "compute", "communication", "pipeline", ...
    SpanDetail detail{};
    std::int64_t start_ns = 0; ///< since the origin of the trace
    std::int64_t end_ns = 0;
    bool in_flight = false; ///< goes on beside other work (a non-blocking collective): may overlap other spans
    int lane = 0;           ///< of computations that take turns (comm/turns.hpp): spans of one lane nest
};

class Trace {
  public:
    /// Starts recording with room for `capacity` spans, from an empty buffer. Time counts from this call: ranks that
    /// make it right after a barrier share an origin as well as the barrier is tight, whatever their clocks say.
    void enable(std::size_t capacity);
    /// Stops recording; what was recorded stays readable.
    void disable() { enabled_ = false; }

    [[nodiscard]] bool enabled() const { return enabled_; }
    [[nodiscard]] std::span<Span const> spans() const { return {spans_.data(), size_}; }
    /// Spans that found the buffer full.
    [[nodiscard]] std::int64_t dropped() const { return dropped_; }
    /// Nanoseconds since the origin.
    [[nodiscard]] std::int64_t now() const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - origin_).count();
    }

    /// Spans are of this lane from now on.
    void set_lane(int lane) { lane_ = lane; }
    void record(Span const& span);

  private:
    using Clock = std::chrono::steady_clock;

    bool enabled_ = false;
    std::size_t size_ = 0;
    std::int64_t dropped_ = 0;
    int lane_ = 0;
    Clock::time_point origin_{};
    std::vector<Span> spans_;
};

namespace detail {
inline Trace trace_of_process; // in no function, where each use would first ask whether it has been made
}
/// The trace of this process.
inline Trace& trace() { return detail::trace_of_process; }

/// Where a dry run (observe/dry_run.hpp) notes what its work is part of; null where none is under way.
inline std::string_view*& scope_of_dry_run() {
    static std::string_view* instance = nullptr;
    return instance;
}

/// Records the time from its construction to its destruction: `Scope scope{"all-reduce", "communication", {.axis =
/// "dp"}};`
class [[nodiscard]] Scope {
  public:
    Scope(std::string_view name, std::string_view category, SpanDetail const& detail = {})
        : Scope(trace(), name, category, detail) {}
    Scope(Trace& into, std::string_view name, std::string_view category, SpanDetail const& detail = {})
        : trace_(into.enabled() ? &into : nullptr) {
        if (trace_ != nullptr) span_ = {name, category, detail, trace_->now(), 0, false};
        if (auto* const scope = scope_of_dry_run()) around_ = std::exchange(*scope, name);
    }
    ~Scope();
    Scope(Scope const&) = delete;
    Scope& operator=(Scope const&) = delete;

  private:
    Trace* trace_;
    Span span_{};
    std::string_view around_{}; ///< of a dry run
};

} // namespace pentad::observe

#if !PENTAD_COMPILED_TENSOR
#include <pentad/observe/impl/trace.hpp>
#endif
