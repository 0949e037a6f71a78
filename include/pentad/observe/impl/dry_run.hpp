// The functions of <pentad/observe/dry_run.hpp>.
#pragma once

#include <pentad/observe/dry_run.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/observe/trace.hpp>

#include <utility>

namespace pentad::observe {

PENTAD_INLINE auto DecodingState::operator+=(DecodingState const& other) -> DecodingState& {
    token += other.token;
    sequence += other.sequence;
    flops += other.flops;
    return *this;
}

PENTAD_INLINE DryRun::DryRun() {
    if (current() != nullptr) throw std::logic_error("a dry run is under way: there is one at a time");
    current() = this;
    counters_before_ = std::exchange(current_counters(), &counters_);
    ledger_before_ = std::exchange(current_ledger(), &ledger_);
    scope_of_dry_run() = &scope_;
}

PENTAD_INLINE DryRun::~DryRun() {
    current() = nullptr;
    scope_of_dry_run() = nullptr;
    current_counters() = counters_before_;
    current_ledger() = ledger_before_;
}

PENTAD_INLINE void DryRun::exchange(Operation operation, Cost const& cost, int ranks, bool is_started,
                                    double network_bytes, bool network_modelled) {
    ledger_.record(operation, cost, false, network_bytes, network_modelled);
    add({.kind = WorkKind::exchange,
         .name = observe::name(operation),
         .bytes = cost.total(),
         .operation = operation,
         .cost = cost,
         .ranks = ranks,
         .is_started = is_started});
}

} // namespace pentad::observe
