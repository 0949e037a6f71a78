// What pentad_plan is asked for.
#pragma once

#include <pentad/planner/search.hpp>
#include <pentad/planner/serving_search.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad_plan {

using namespace pentad;

/// @throws std::invalid_argument
[[noreturn]] inline void refuse(std::string const& why) { throw std::invalid_argument(why); }

using Extents = std::map<std::string, std::int64_t>; ///< of axes, by name

struct Options {
    enum class Task { search, evaluate, explain, serve, list, write_hardware };
    Task task = Task::search;
    std::string help; ///< to print, and nothing else

    planner::Model model;
    std::string model_file;     ///< that it was read from; empty: it is a published one
    planner::Hardware hardware; ///< with the devices that are to be used
    std::int64_t seq = 0, global_batch = 0;
    std::optional<std::int64_t> micro_batch, chunks, zero_ranks;
    std::optional<int> zero;
    pentad::model::Optimizer optimizer;
    pentad::model::Precision precision;
    pentad::model::Offload offload;
    std::optional<pentad::model::Recomputation> recompute;
    std::optional<std::string> schedule;
    std::optional<pentad::model::ContextChoice> context;
    pentad::model::TensorKind tensor_kind = pentad::model::TensorKind::one_d;
    pentad::model::AttentionOutput attention_output = pentad::model::AttentionOutput::reduce_scatter;
    std::optional<pentad::model::ExpertMesh> experts{}; ///< as of a Strategy
    std::optional<bool> sequence_parallel, zero_keep, zero_accumulate, pairs;
    std::vector<std::int64_t> stage_layers; ///< as of a Strategy
    bool balances_stages = false;
    bool gradient_release = false, zigzag = true;
    planner::Element element = planner::Element::bf16;
    bool fp8_products = false;
    Extents mesh;                   ///< of the axes that are given
    std::vector<std::string> order; ///< of axes, outermost first; none: as usual

    std::int64_t prompt = 0, output = 0;
    std::optional<double> rate, first_token_p95_s;
    planner::ServingObjective objective = planner::ServingObjective::throughput;

    std::size_t top = 5;
    bool json = false, types = false;
    std::string svg, hardware_out;

    [[nodiscard]] ZeroSharding sharding() const {
        return {.stage = zero.value_or(0),
                .ranks = static_cast<int>(zero_ranks.value_or(0)),
                .keeps_parameters = zero_keep.value_or(false),
                .accumulates_gradients = zero_accumulate.value_or(false),
                .releases_gradients = gradient_release};
    }
    [[nodiscard]] std::optional<std::int64_t> extent(std::string const& axis) const {
        auto const found = mesh.find(axis);
        return found == mesh.end() ? std::nullopt : std::optional(found->second);
    }
};

/// @throws std::invalid_argument or io::FileError with a sentence that says what to change
/// @param measured what --measure has measured
Options parse(int argc, char const* const* argv, std::optional<planner::Hardware> const& measured);

/// What the tasks print; files are written last.
std::string search(Options const& o);
std::string evaluate(Options const& o);
std::string explain(Options const& o);
std::string serve(Options const& o);

} // namespace pentad_plan
