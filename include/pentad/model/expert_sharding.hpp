// How experts lie on the ranks of tp.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace pentad::model {

/// With e ranks of ep and t of tp.
enum class ExpertSharding {
    /// The ranks of ep hold different experts, and tp shards the width of each, as of the dense layers: every rank of
    /// tp
    /// sends all tokens to the experts, and what these give is summed over tp (etp = t: Singh et al. 2023,
    /// arXiv 2303.06318).
    width,
    /// Each of the e t ranks of ep and tp holds whole experts: a rank of tp sends its part of the tokens only, and
    /// nothing is summed (etp = 1: Liu et al. 2025, arXiv 2504.14960).
    whole
};
inline constexpr std::array<std::string_view, 2> expert_sharding_names{"width", "whole"};
inline std::string_view name(ExpertSharding sharding) {
    return expert_sharding_names[static_cast<std::size_t>(sharding)];
}

} // namespace pentad::model
