// The automatic schedule: for given times, messages and memory, a faster order of the
// computes than any that has a name, or the best of those.
#pragma once

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/timing.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace pentad::pipeline {

struct SearchOptions {
    /// The limits of the memory of activations, one for each rank or one for all, in the unit of the costs; empty: no
    /// limit.
    std::vector<std::int64_t> memory = {};
    bool two_copies = false;      ///< each stage may be on two ranks, as in Chimera and DualPipe
    std::size_t states = 400'000; ///< how many the search may look at: more take longer (some microseconds each)
    std::function<void(double)> progress = {}; ///< told now and then which part of the search is done, 0 to 1
};

/// The longest schedule that the search is made for, in computes: three for each stage and micro-batch. A longer one is
/// not searched with the default number of states: what comes out is the best schedule with a name.
inline constexpr std::int64_t most_computes = 50'000;

struct Automatic {
    Schedule schedule; ///< with the name of the one of the table, where no better one was found
    Time makespan;
    bool optimal; ///< no order of the computes on the placements that were tried is faster
};

namespace search {

/// One micro-batch after the other: what needs the least memory of all.
Schedule one_by_one(Schedule empty);

/// The ways to lay the stages on the ranks: dealt out in rounds, or there and back; with two copies, each of these from
/// both ends too.
std::vector<std::vector<std::vector<int>>> placements(int ranks, int chunks, bool two_copies);

} // namespace search

/// Searches for the synchronous schedule with the least makespan (as `simulate` gives it: the time of a step that all
/// ranks start together) whose activations fit into the memory of each rank. The stages are given: `chunks` on each
/// rank (0: as many as the costs are of, or 1), one cost for each or one for all. Each backward is done in one or in
/// two parts, whichever is better. It is never slower than a schedule of the table that has as many stages, fits, and,
/// unless two copies are allowed, has one copy of each. Small problems are solved to the end; `optimal` says so. The
/// same options always give the same schedule.
///
/// Throws std::invalid_argument where not even one micro-batch fits, with the memory that it takes, and for slices and
/// updates, which it does not know.
Automatic automatic(GeneratorOptions options, Costs const& costs, SearchOptions const& search_options = {});

} // namespace pentad::pipeline

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/pipeline/impl/search.hpp>
#endif
