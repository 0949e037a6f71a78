// The words of plans: how a mesh, its settings and what it lacks are written.
#pragma once

#include <pentad/model/context_choice.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/report/format.hpp>
#include <pentad/strategy/fields.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::report {

inline constexpr auto element_names = WordsOf<model::Element>::words;
/// Names of optimizers, in the order of model::Optimizer.
inline constexpr std::array<std::string_view, 4> optimizer_names{"adamw", "sgd", "lion", "muon"};

/// "selective", "full /2": every second block.
inline std::string recompute_text(model::Recomputation const& recompute) {
    return std::string(model::name(recompute.kind)) +
           (recompute.every > 1 ? " /" + std::to_string(recompute.every) : "");
}
/// "layers 0 to 3: all; layers 4 to 7: norms,activations".
std::string recomputed_layers(model::Recomputation const& recompute, std::size_t layers);
inline std::string_view name(planner::Element element) { return word_of(element); }

/// "12.3 %"
inline std::string percent(double part) { return detail::three_figures(100 * part) + " %"; }

/// "dp=2,tp=4"; axes of extent 1 are left out.
std::string mesh_text(Strategy const& c);

/// The axes that join more than one rank, outermost first, where these are not as usual; or nothing.
std::string order_text(Strategy const& c);

/// How attention goes over cp, as the flags that ask for it.
inline model::ContextChoice context_choice(Strategy const& c) {
    return model::ContextChoice::of(c.block.context_split(), c.cp);
}

/// The layers of stages, "3,3,2".
std::string stages_text(std::vector<std::int64_t> const& layers);

/// "stage 7 of 0 to 7, with 2 layers and the head, takes 17.8 ms for a micro-batch, and the mean of all stages is 8.1
/// ms": the slowest stage.
std::string stages_account(planner::Estimate const& estimate);

/// The flags of train_lm that say all of a strategy but FP8 products, which nothing here trains with, and the blocks of
/// planned recomputation, which --recompute auto finds.
std::string run_flags(Strategy const& c);
/// The command that trains as a plan says. @param model the config.json of the model
std::string run_command(Strategy const& c, std::string const& model);

/// Whether gradients must not be clipped: they are released, or stages update their weights apart.
bool needs_no_clipping(Strategy const& c);

/// All else that sets a plan apart from another, as flags of pentad_plan, which has none for the numbers of an
/// optimizer and for what changes no plan.
std::string settings_text(Strategy const& c);

/// The kinds of memory, as the words for them and bytes.
std::array<std::pair<std::string_view, double>, 5> memory_kinds(planner::Memory const& memory);
/// The largest of them.
inline std::pair<std::string_view, double> largest_kind(planner::Memory const& memory) {
    auto const kinds = memory_kinds(memory);
    return *std::max_element(kinds.begin(), kinds.end(),
                             [](auto const& a, auto const& b) { return a.second < b.second; });
}
/// "exceeds memory by 3.1 GiB in optimizer state": the kind that takes most.
inline std::string what_is_lacking(planner::Estimate const& estimate, planner::Hardware const& hardware) {
    return "exceeds memory by " + bytes(estimate.memory_peak - hardware.memory_bytes) + " in " +
           std::string(largest_kind(estimate.fullest).first);
}

} // namespace pentad::report

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/report/impl/plan_text.hpp>
#endif
