// The optimizer of a run as a value: which one, its numbers, and what it keeps for each element that it updates.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace pentad::model {

/// Loshchilov and Hutter 2019, algorithm 2, as torch.optim.AdamW.
struct AdamW {
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double weight_decay = 0.1; ///< decoupled: of the weights themselves, times the learning rate
    friend bool operator==(AdamW const&, AdamW const&) = default;
};
/// Stochastic gradient descent, as torch.optim.SGD without dampening.
struct Sgd {
    double momentum = 0.9;   ///< 0: none, and no state
    bool nesterov = false;   ///< the step looks ahead along the momentum (Sutskever et al. 2013)
    double weight_decay = 0; ///< L2: added to the gradient, times the weights
    friend bool operator==(Sgd const&, Sgd const&) = default;
};
/// Chen et al. 2023, algorithm 2: a step by the sign of an average of gradient and momentum.
struct Lion {
    double beta1 = 0.9, beta2 = 0.99;
    double weight_decay = 0.1; ///< decoupled
    friend bool operator==(Lion const&, Lion const&) = default;
};

/// What Muon's learning rate is multiplied with for a matrix of rows x columns.
enum class MuonRate {
    original,       ///< sqrt(max(1, rows / columns)) (Jordan et al. 2024)
    match_rms_adamw ///< 0.2 sqrt(max(rows, columns)): steps as large as AdamW's (Liu et al. 2025)
};
/// Jordan et al. 2024, as torch.optim.Muon, in the elements of accumulators instead of bf16: the momentum of each
/// matrix is orthogonalised by Newton-Schulz iterations. For the matrices of linear maps; embeddings, the head, norms
/// and biases are updated by `others`.
struct Muon {
    double momentum = 0.95;
    bool nesterov = true;
    double weight_decay = 0.1; ///< decoupled
    double epsilon = 1e-7;     ///< the least norm that a matrix is divided by
    int iterations = 5;
    MuonRate rate = MuonRate::original;
    AdamW others{};
    friend bool operator==(Muon const&, Muon const&) = default;
};

/// Wang et al. 2024 (arXiv 2408.15664; DeepSeek-V3, section 2.1.2): a bias falls by `rate` where its expert's load,
/// less the mean, is positive, and rises where it is negative; or, with `whole`, by less where the excess is small. The
/// biases of experts alone are updated so, whatever updates the weights.
struct LoadBalance {
    double rate = 1e-3;
    double tolerance = 0; ///< loads that differ from the mean by less are equal to it
    double whole = 0;     ///< excess from which on a step is whole, and below which it is in proportion; 0: any
    friend bool operator==(LoadBalance const&, LoadBalance const&) = default;
};

using Optimizer = std::variant<AdamW, Sgd, Lion, Muon, LoadBalance>;

/// The optimizer of parameters that are matrices of linear maps, or of all others.
inline Optimizer optimizer_for(Optimizer const& optimizer, bool are_matrices) {
    auto const* const muon = std::get_if<Muon>(&optimizer);
    if (muon != nullptr && !are_matrices) return muon->others;
    return optimizer;
}
/// Whether it updates whole matrices, each by itself.
inline bool needs_matrices(Optimizer const& optimizer) { return std::holds_alternative<Muon>(optimizer); }

/// The names of the tensors that it keeps from step to step, each with an accumulator for each element.
inline std::span<std::string_view const> state_names(Optimizer const& optimizer) {
    static constexpr std::array<std::string_view, 2> moments{"first_moment", "second_moment"};
    static constexpr std::array<std::string_view, 1> momentum{"momentum"};
    if (std::holds_alternative<AdamW>(optimizer)) return moments;
    auto const* const sgd = std::get_if<Sgd>(&optimizer);
    if ((sgd != nullptr && sgd->momentum == 0) || std::holds_alternative<LoadBalance>(optimizer)) return {};
    return momentum;
}

/// A matrix [rows, columns] of a linear map, [out, in].
struct MatrixShape {
    std::size_t rows = 0, columns = 0;
};

inline double rate_factor(MuonRate rate, MatrixShape const& shape) {
    auto const rows = static_cast<double>(shape.rows), columns = static_cast<double>(shape.columns);
    return rate == MuonRate::original ? std::sqrt(std::max(1.0, rows / columns))
                                      : 0.2 * std::sqrt(std::max(rows, columns));
}
/// FLOPs of Muon's products for a matrix: the Gram matrix, its square, and their product with the matrix.
inline double newton_schulz_flops(MatrixShape const& shape, int iterations) {
    auto const less = static_cast<double>(std::min(shape.rows, shape.columns));
    auto const more = static_cast<double>(std::max(shape.rows, shape.columns));
    return iterations * (4 * less * less * more + 2 * less * less * less);
}

/// Deals pieces of work out to ranks, the largest first, each to a rank that has least so far. Gives the rank of each.
inline std::vector<std::size_t> deal(std::span<double const> work, std::size_t ranks) {
    std::vector<std::size_t> order(work.size()), rank_of(work.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
    std::vector<double> load(ranks, 0);
    for (auto const piece : order) {
        rank_of[piece] = static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
        load[rank_of[piece]] += work[piece];
    }
    return rank_of;
}

} // namespace pentad::model
