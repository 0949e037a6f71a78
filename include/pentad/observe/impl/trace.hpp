// The functions of <pentad/observe/trace.hpp>.
#pragma once

#include <pentad/observe/trace.hpp>

#include <pentad/mesh/inline.hpp>

namespace pentad::observe {

PENTAD_INLINE void Trace::enable(std::size_t capacity) {
    origin_ = Clock::now(); // first: a large buffer takes some ranks milliseconds longer than others
    spans_ = std::vector<Span>(capacity);
    size_ = 0;
    dropped_ = 0;
    enabled_ = true;
}

PENTAD_INLINE void Trace::record(Span const& span) {
    if (!enabled_) return;
    if (size_ == spans_.size()) {
        ++dropped_;
        return;
    }
    spans_[size_] = span;
    spans_[size_++].lane = lane_;
}

PENTAD_INLINE Scope::~Scope() {
    if (auto* const scope = scope_of_dry_run()) *scope = around_;
    if (trace_ == nullptr) return;
    span_.end_ns = trace_->now();
    trace_->record(span_);
}

} // namespace pentad::observe
