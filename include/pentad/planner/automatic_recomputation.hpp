// Automatic recomputation: what each block recomputes so that every rank of the pipeline fits into its memory, with the
// least time. What a choice keeps and takes is what a dry run of a block with it says.
#pragma once

#include <pentad/planner/account.hpp>
#include <pentad/planner/detail/buckets.hpp>
#include <pentad/planner/model.hpp>
#include <pentad/planner/pipelines.hpp>
#include <pentad/planner/recomputation_problem.hpp>
#include <pentad/planner/stage_times.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace pentad::planner {

struct AutomaticRecomputation {
    model::Recomputation recompute; ///< planned; none, selective or full where all blocks are alike
    /// Bytes that the rank lacks that lacks most, with the least that can be kept; then `recompute` keeps that. 0:
    /// every rank fits.
    double lacking = 0;
    bool is_exact = true; ///< no other choice has less work
};

/// Whether weights are updated while micro-batches are in flight.
inline bool updates_between_passes(pipeline::Schedule const& schedule, Strategy const& c) {
    return c.sharding.releases_gradients || schedule.updates > 1;
}
/// The parts of the stages of a rank of the pipeline.
std::vector<HeldPart> held_parts(Account const& account, pipeline::Schedule const& schedule,
                                 std::vector<StageShape> const& shapes, int rank);
/// Bytes of messages to other stages that a rank keeps: an Executor uses so many buffers in turn.
inline double message_bytes(Account const& account, pipeline::Schedule const& schedule) {
    return schedule.ranks() > 1 ? 4 * account.stream() : 0;
}
/// What the passes of a rank of the pipeline, and updates between them, need beside its activations at their peak.
/// @param moments of the rank, from held_moments() @param activations bytes at the peak
/// @param updates bytes that updates need: update_workspace()
double workspace_of(Account const& account, pipeline::Schedule const& schedule, std::vector<StageShape> const& shapes,
                    int rank, std::vector<HeldMoment> const& moments, double activations, double updates,
                    bool updates_between_passes);
/// Bytes of the window of a rank of the pipeline whose activations are offloaded.
double activation_window(Account const& account, pipeline::Schedule const& schedule,
                         std::vector<StageShape> const& shapes, int rank, Strategy const& c);
/// The buckets of each stage of a rank of the pipeline.
std::vector<std::vector<Bucket>> held_buckets(Account const& account, pipeline::Schedule const& schedule,
                                              std::vector<StageShape> const& shapes, int rank);

namespace detail {

/// What blocks of some kind can recompute: each set of pieces of which every one saves memory, and all of it.
std::vector<model::BlockRecomputation> choices_of(Account const& account, AlikeLayers::Alike alike);

/// The recomputation problems of a pipeline's ranks; ranks that fit without recomputation have none.
struct RecomputationProblems {
    /// Ranks that have the same stages choose together: copies of a stage are on two of them.
    struct OfRanks {
        std::vector<int> ranks;
        RecomputationProblem problem;
        std::vector<std::int64_t> layers; ///< of each of its parts; -1: none
    };
    AlikeLayers kinds;
    std::vector<std::vector<model::BlockRecomputation>> choices{}; ///< of each kind of block
    std::vector<OfRanks> of_ranks{};
};
/// @param work the work of a block with these times, which a solution minimises; other arguments as of
/// automatic_recomputation()
RecomputationProblems recomputation_problems(Model const& model, Hardware const& hardware, Strategy const& c,
                                             pipeline::Schedule const& schedule,
                                             std::vector<std::vector<HeldMoment>> const& held,
                                             std::vector<StageShape> const& shapes, std::int64_t nodes,
                                             std::function<double(PassTimes const&)> const& work);

} // namespace detail

/// @param c with automatic recomputation, which hardware.memory_bytes limits on every rank
/// @param held held_moments() of the schedule
/// @param shapes of the stages
/// @param nodes to which dispatch takes a token once each: dispatch_nodes()
AutomaticRecomputation automatic_recomputation(Model const& model, Hardware const& hardware, Strategy const& c,
                                               pipeline::Schedule const& schedule,
                                               std::vector<std::vector<HeldMoment>> const& held,
                                               std::vector<StageShape> const& shapes, std::int64_t nodes);
/// Automatic recomputation for the schedule of a configuration, whose stages are not to be balanced any more.
AutomaticRecomputation automatic_recomputation(Model const& model, Hardware const& hardware, Strategy const& c,
                                               Pipelines& pipelines);
/// Seconds by which automatic recomputation makes the passes of a micro-batch through the stages of each rank of the
/// pipeline longer on the device, at the least; infinity where a rank cannot fit. Quickly found.
/// @param exchanges_are_hidden computation alone counts: exchanges overlap with it
std::vector<double> least_recomputed_seconds(Model const& model, Hardware const& hardware, Strategy const& c,
                                             Pipelines& pipelines, bool exchanges_are_hidden);

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/automatic_recomputation.hpp>
#endif
