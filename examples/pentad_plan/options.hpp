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

    /// The fields of a training that flags give, and those left open. A single plan has the defaults for these.
    planner::Request request;
    std::string model_file; ///< that the model was read from; empty: it is a published one
    std::optional<pentad::model::ContextChoice>
        context;                    ///< attention over cp; none: automatic in a search, else a ring
    Extents mesh;                   ///< of the axes that are given
    std::vector<std::string> order; ///< of axes, outermost first; none: as usual
    std::string blocks;             ///< of one plan: blocks that differ from the rest

    std::int64_t prompt = 0, output = 0;
    std::optional<double> rate, first_token_p95_s;
    planner::ServingObjective objective = planner::ServingObjective::throughput;

    std::size_t top = 5;
    bool json = false, types = false;
    std::string svg, hardware_out;

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
