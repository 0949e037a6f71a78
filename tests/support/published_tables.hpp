// Published step times that the planner is held against: every mesh of dp, pp, tp and cp of eight Ascend 910B, 1,024
// sequences of 4,096 tokens in micro-batches of one (Amer, Karim et al., "Distributed Hybrid Parallelism for Large
// Language Models: Comparative Study and System Design Guide", section 6: table 10 and those of the other three models;
// figures 6 and 7).
#pragma once

#include <pentad/model/decoder.hpp>
#include <pentad/model/presets.hpp>
#include <pentad/planner/names.hpp>

#include <array>
#include <string_view>
#include <vector>

namespace pentad::test {

struct PublishedRow {
    int dp, pp, tp, cp;
    double step_s, memory_gb; ///< of a device on average
};

struct PublishedTable {
    std::string_view name;
    model::Model model;
    std::vector<PublishedRow> rows;
};

/// Percent of the device's busy time, by what it does; what the paper leaves out of a bar is its smallest class.
struct PublishedComposition {
    std::string_view table;
    int dp, pp, tp, cp;
    double products, attention, passes, tensor, context;
};
inline constexpr std::array published_compositions{
    PublishedComposition{"LLaMA-7B", 4, 2, 1, 1, 77.2, 9.6, 12.3, 0, 0},
    PublishedComposition{"LLaMA-7B", 1, 1, 4, 2, 46.5, 5.9, 13.1, 22.4, 12.1},
    PublishedComposition{"LLaMA-1B", 8, 1, 1, 1, 64.0, 11.7, 24.2, 0, 0},
    PublishedComposition{"LLaMA-1B", 1, 1, 4, 2, 34.3, 6.6, 18.4, 26.0, 14.7}};

/// LLaMA as table 9 has it. The vocabulary of LLaMA-1B, and the sizes of Mamba-2, are assumptions: 32,000 tokens; as
/// many layers of the usual widths, with 8 groups, as the measured times and FLOPs for a token allow.
inline std::vector<PublishedTable> const& published_tables() {
    static std::vector<PublishedTable> const tables{
        {"LLaMA-7B",
         planner::detail::find_preset(model::presets(), "llama-2-7b", "model").model,
         {{4, 1, 2, 1, 157.3, 41.2},
          {4, 2, 1, 1, 101.8, 45.9},
          {4, 1, 1, 2, 145.7, 60.0},
          {2, 1, 4, 1, 172.4, 26.6},
          {2, 4, 1, 1, 108.5, 33.7},
          {2, 1, 1, 4, 180.6, 55.3},
          {2, 2, 2, 1, 162.2, 29.2},
          {2, 2, 1, 2, 149.2, 38.9},
          {2, 1, 2, 2, 213.9, 36.3},
          {1, 1, 8, 1, 353.6, 18.6},
          {1, 8, 1, 1, 125.5, 27.2},
          {1, 1, 1, 8, 363.8, 53.3},
          {1, 4, 2, 1, 190.8, 22.6},
          {1, 1, 2, 4, 434.6, 33.8},
          {1, 2, 4, 1, 214.9, 20.1},
          {1, 1, 4, 2, 437.1, 24.0},
          {1, 4, 1, 2, 172.5, 21.5},
          {1, 2, 1, 4, 214.9, 35.3}}},
        {"LLaMA-1B",
         model::decoder({.layers = 16, .hidden = 2048, .heads = 32, .kv_heads = 4, .ffn = 8192, .vocab = 32000}),
         {{8, 1, 1, 1, 28.3, 17.3},
          {4, 1, 2, 1, 61.7, 11.0},
          {4, 2, 1, 1, 32.1, 12.1},
          {4, 1, 1, 2, 43.7, 14.1},
          {2, 1, 4, 1, 75.2, 7.3},
          {2, 4, 1, 1, 33.9, 9.4},
          {2, 1, 1, 4, 83.2, 12.6},
          {2, 2, 2, 1, 46.8, 8.3},
          {2, 2, 1, 2, 47.0, 10.0},
          {2, 1, 2, 2, 96.7, 9.4},
          {1, 1, 8, 1, 150.9, 4.8},
          {1, 8, 1, 1, 43.6, 7.6},
          {1, 1, 1, 8, 174.4, 11.4},
          {1, 4, 2, 1, 59.2, 6.6},
          {1, 2, 4, 1, 75.7, 5.9},
          {1, 1, 4, 2, 197.0, 6.5},
          {1, 4, 1, 2, 53.4, 7.7},
          {1, 2, 1, 4, 87.1, 8.9}}},
        {"Mamba-7B",
         model::mamba2(40, 4096, 32000, {.heads = 128, .groups = 8}, true),
         {{4, 1, 2, 1, 191.6, 56.0},
          {2, 1, 4, 1, 210.9, 33.2},
          {2, 2, 2, 1, 215.0, 40.7},
          {2, 2, 1, 2, 217.3, 53.8},
          {2, 1, 2, 2, 247.5, 45.0},
          {1, 1, 8, 1, 299.9, 20.5},
          {1, 1, 1, 8, 461.1, 59.2},
          {1, 4, 2, 1, 254.2, 31.1},
          {1, 1, 2, 4, 435.1, 38.2},
          {1, 2, 4, 1, 232.3, 25.0},
          {1, 1, 4, 2, 359.3, 27.3},
          {1, 4, 1, 2, 264.0, 38.8},
          {1, 2, 1, 4, 295.2, 42.7}}},
        {"Mamba-1B",
         model::mamba2(16, 2048, 32000, {.heads = 64, .groups = 8}, true),
         {{8, 1, 1, 1, 29.1, 24.8},
          {4, 1, 2, 1, 47.7, 14.7},
          {4, 2, 1, 1, 48.2, 16.8},
          {4, 1, 1, 2, 48.2, 18.1},
          {2, 1, 4, 1, 68.2, 9.3},
          {2, 4, 1, 1, 81.3, 11.6},
          {2, 1, 1, 4, 97.7, 15.4},
          {2, 2, 2, 1, 64.5, 11.6},
          {2, 1, 2, 2, 84.6, 11.6},
          {2, 2, 1, 2, 66.9, 13.5},
          {1, 1, 8, 1, 128.9, 5.8},
          {1, 8, 1, 1, 148.1, 8.7},
          {1, 1, 1, 8, 191.1, 14.2},
          {1, 4, 2, 1, 98.8, 7.6},
          {1, 1, 2, 4, 187.4, 9.8},
          {1, 2, 4, 1, 84.1, 6.9},
          {1, 1, 4, 2, 166.6, 7.6},
          {1, 4, 1, 2, 104.5, 9.3},
          {1, 2, 1, 4, 118.0, 11.4}}},
    };
    return tables;
}

} // namespace pentad::test
