// What a part of a model asks of the ranks that share it.
#pragma once

#include <pentad/mesh/refusal.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/model/tensor_grid.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pentad::model {

/// The ranks of a stage, as far as a part shares itself out to them.
struct PartRanks {
    std::int64_t tp = 1, cp = 1;
    TensorKind tensor_kind = TensorKind::one_d;
    TensorDivisors by{};             ///< of tp
    std::int64_t ranks_of_heads = 1; ///< of tp
    ContextSplit context{};
    std::int64_t ep = 1, etp = 1; ///< of experts

    /// In one dimension, or on the grid that is nearest to a square or a cube; where tp is none, in one dimension.
    static constexpr PartRanks of_tensor(TensorKind kind, std::int64_t tp) {
        PartRanks ranks{.tp = tp, .tensor_kind = kind, .by = {.heads = tp, .width = tp}, .ranks_of_heads = tp};
        auto const grid = tensor_factors(kind, tp);
        if (!grid) return ranks;
        ranks.by = divisors(kind, *grid);
        ranks.ranks_of_heads = grid->columns;
        return ranks;
    }

    /// "tp = 4", and on a grid "6 of a 2d grid of tp = 8".
    [[nodiscard]] std::string tensor_text(std::int64_t divisor) const {
        auto const extent = "tp = " + std::to_string(tp);
        if (tensor_kind == TensorKind::one_d) return extent;
        return std::to_string(divisor) + " of block.tensor_kind = " + std::string(name(tensor_kind)) + " and " + extent;
    }
};

/// That a size is divisible. @param by the divisor as a text, which is asked for where it does not divide
template <class Text>
std::optional<Refusal> indivisible(std::string_view size, std::int64_t value, std::int64_t divisor, Text&& by) {
    if (divisor > 0 && value % divisor == 0) return std::nullopt;
    return Refusal{size, stated(size, value) + " is not divisible by " + by()};
}
/// Likewise over tp.
inline std::optional<Refusal> indivisible_by_tensor(std::string_view size, std::size_t value, std::int64_t divisor,
                                                    PartRanks const& on) {
    return indivisible(size, static_cast<std::int64_t>(value), divisor, [&] { return on.tensor_text(divisor); });
}

} // namespace pentad::model
