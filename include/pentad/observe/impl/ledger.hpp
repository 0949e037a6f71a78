// The functions of <pentad/observe/ledger.hpp>.
#pragma once

#include <pentad/observe/ledger.hpp>

#include <pentad/mesh/inline.hpp>

namespace pentad::observe {

PENTAD_INLINE void Ledger::record(Operation operation, Cost const& cost, bool modelled, double network_bytes,
                                  bool network_modelled) {
    double const total = cost.total();
    for (std::size_t i = 0; i < cost.axes.size(); ++i) {
        auto& entry = entries_[index_of(whole_axis_name(cost.axes[i]))][static_cast<std::size_t>(operation)];
        entry.bytes += cost.bytes[i];
        if (total > 0) entry.network_bytes += network_bytes * cost.bytes[i] / total;
        ++entry.calls;
        entry.modelled = entry.modelled || modelled;
        entry.network_modelled = entry.network_modelled || network_modelled;
    }
}

PENTAD_INLINE double Ledger::sum(std::string_view axis, double LedgerEntry::* what) const {
    double total = 0;
    for (std::size_t operation = 0; operation < operation_names.size(); ++operation)
        total += entry(axis, static_cast<Operation>(operation)).*what;
    return total;
}

PENTAD_INLINE std::size_t Ledger::index_of(std::string_view axis) {
    for (std::size_t i = 0; i < count_; ++i)
        if (names_[i] == axis) return i;
    if (count_ == max_entries) return max_entries - 1; // more axes than any mesh has: the last entry takes the rest
    names_[count_] = axis;
    return count_++;
}

} // namespace pentad::observe
