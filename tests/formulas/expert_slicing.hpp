// Expert slicing: each rank holds a slice of every expert (tensor parallelism within the
// experts) instead of a few whole ones. It evens out the load and sends more; this says which wins.
#pragma once

#include <formulas/volume.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace pentad::planner {

/// A layer of experts, each two maps hidden -> ffn -> output, over `ranks` ranks.
struct ExpertSlicing {
    std::int64_t tokens = 1; ///< of all ranks
    std::int64_t top_k = 1;
    std::int64_t hidden = 1;
    std::int64_t ffn = 1;
    std::int64_t output = 1;
    std::int64_t ranks = 1;
    double imbalance = 1; ///< rows of the busiest rank over the mean, from 1 to ranks (experts.hpp: load_imbalance)
    double flops_per_second = 1;
    double elements_per_second = 1; ///< that a rank sends, or receives

    /// Two for each multiply-add of a row.
    [[nodiscard]] constexpr double flops_of_a_row() const {
        return 2 * static_cast<double>(ffn) * static_cast<double>(hidden + output);
    }
    [[nodiscard]] constexpr double mean_rows() const {
        return static_cast<double>(tokens) * static_cast<double>(top_k) / static_cast<double>(ranks);
    }
};

/// Seconds for a batch.
struct ExpertSeconds {
    double computing = 0;
    double sending = 0;
    [[nodiscard]] constexpr double total() const { return computing + sending; }
};

/// T0: the time of one dispatch of whole experts (columns = hidden), or of one combine (columns = output). The busiest
/// rank receives its rows but those of its own tokens: imbalance x tokens top_k / n x (n-1)/n.
/// @throws std::invalid_argument when no routing has this imbalance
constexpr double exchange_seconds(ExpertSlicing const& of, std::int64_t columns) {
    if (!(of.imbalance >= 1 && of.imbalance <= static_cast<double>(of.ranks)))
        throw std::invalid_argument("an imbalance of " + std::to_string(of.imbalance) + " over " +
                                    std::to_string(of.ranks) + " ranks: it lies between 1 and the number of ranks");
    return all_to_all_bytes(of.imbalance * of.mean_rows() * static_cast<double>(columns), of.ranks) /
           of.elements_per_second;
}

/// Whole experts: the busiest rank sets the time, and its rows are sent there and back.
constexpr ExpertSeconds whole_experts_seconds(ExpertSlicing const& of) {
    return {of.imbalance * of.mean_rows() * of.flops_of_a_row() / of.flops_per_second,
            exchange_seconds(of, of.hidden) + exchange_seconds(of, of.output)};
}

/// Sliced experts: every rank computes 1/n of every row; all tokens are gathered, the outputs reduce-scattered.
constexpr ExpertSeconds sliced_experts_seconds(ExpertSlicing const& of) {
    auto const tokens = static_cast<double>(of.tokens);
    double const sent =
        all_gather_bytes(tokens / static_cast<double>(of.ranks) * static_cast<double>(of.hidden), of.ranks) +
        reduce_scatter_bytes(tokens * static_cast<double>(of.output), of.ranks);
    return {of.mean_rows() * of.flops_of_a_row() / of.flops_per_second, sent / of.elements_per_second};
}

/// delta: the seconds that slicing saves in a batch; negative where it loses.
constexpr double saved_by_slicing(ExpertSlicing const& of) {
    return whole_experts_seconds(of).total() - sliced_experts_seconds(of).total();
}

/// R: the time of sliced experts over that of whole ones. As experts grow it tends to 1 / imbalance.
constexpr double sliced_over_whole(ExpertSlicing const& of) {
    return sliced_experts_seconds(of).total() / whole_experts_seconds(of).total();
}

} // namespace pentad::planner
