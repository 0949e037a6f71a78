// Whether a model can be trained so: the one list of rules. Trainers, the planner and programs ask it; each refusal
// names the field to change.
#pragma once

#include <pentad/mesh/refusal.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/part_ranks.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/strategy/strategy.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentad {

/// The ranks of a stage, as the parts of a model share themselves out to them.
[[nodiscard]] model::PartRanks part_ranks(Strategy const& strategy);
/// The options of the generator of its schedule.
[[nodiscard]] pipeline::GeneratorOptions generator_options(Strategy const& strategy);
/// The stages of the pipeline: pp x chunks.
[[nodiscard]] std::int64_t stages(Strategy const& strategy);

/// Why so many ranks cannot train the model so; nothing where they can. Whether its layers exist, and whether they fit
/// into memory, is not asked. @param ranks 0: whatever the strategy has
[[nodiscard]] std::optional<Refusal> why_not(model::Model const& model, Strategy const& strategy,
                                             std::int64_t ranks = 0);
/// The first refusal for each field, in the order in which why_not() asks.
[[nodiscard]] std::vector<Refusal> all_refusals(model::Model const& model, Strategy const& strategy,
                                                std::int64_t ranks = 0);

/// Why a schedule cannot run the model so, whatever its ranks and stages are; nothing where it can.
[[nodiscard]] std::optional<Refusal> schedule_refusal(model::Model const& model, Strategy const& strategy,
                                                      std::string_view name, pipeline::ScheduleTraits const& traits);
/// Why the blocks of a model do not lie on their ranks so beside each other; nothing where they do. Attention over cp
/// deals sequences once for all blocks of a mesh, and a grid has one stream.
[[nodiscard]] std::optional<Refusal> blocks_refusal(model::Model const& model, Strategy const& strategy);
/// Why the layers of a model are not dealt so to the stages of a pipeline; nothing where they are.
[[nodiscard]] std::optional<Refusal> stages_refusal(std::span<std::int64_t const> stage_layers, std::int64_t stages,
                                                    std::int64_t layers);
/// Why what is sharded, kept or computed again does not go together; nothing where it does.
[[nodiscard]] std::optional<Refusal> state_refusal(Strategy const& strategy);

} // namespace pentad

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/strategy/impl/why_not.hpp>
#endif
