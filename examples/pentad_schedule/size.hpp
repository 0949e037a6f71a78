// How large a schedule may be, for what is asked of it: known before it is made.
#pragma once

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/pipeline/search.hpp>
#include <pentad/report/format.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace pentad_schedule {

using namespace pentad::pipeline;

constexpr double most_instructions = 1 << 27; ///< of which a proof takes a few GiB
constexpr double most_steps = 1 << 28;        ///< of a generator: some seconds
constexpr int most_drawn_ranks = 1024;        ///< as lines of a chart
constexpr double most_drawn_computes = 1 << 22;
constexpr double most_drawn_characters = 1 << 26;
constexpr double most_svg_computes = 1 << 18; ///< viewers take no larger pictures
constexpr double most_timeline_computes = 1 << 21;

/// A schedule's size, counted, or estimated before it is made.
struct Size {
    std::string name;
    int ranks = 0, micro_batches = 0;
    double computes = 0, instructions = 0; ///< of all ranks

    /// "1f1b on 4096 ranks with 4096 micro-batches has about 101 M instructions"
    [[nodiscard]] std::string text() const {
        return name + " on " + std::to_string(ranks) + " ranks with " + std::to_string(micro_batches) +
               " micro-batches has about " + pentad::report::count(instructions) + " instructions";
    }
    /// Measured: what the generators and the proof hold at their peak, with the schedule.
    [[nodiscard]] std::string memory() const { return pentad::report::bytes(28 * instructions); }
    [[nodiscard]] bool can_be_drawn() const { return ranks <= most_drawn_ranks && computes <= most_drawn_computes; }
};

inline Size size_of(Schedule const& schedule) {
    Size size{.name = schedule.name, .ranks = schedule.ranks(), .micro_batches = schedule.micro_batches};
    for (auto const& list : schedule.instructions) {
        size.instructions += static_cast<double>(list.size());
        size.computes += static_cast<double>(
            std::count_if(list.begin(), list.end(), [](auto const& x) { return is_compute(x.operation); }));
    }
    return size;
}

/// The size of the schedule `name` before it is made. A small schedule of the same generator tells the number of
/// computes for each chunk, micro-batch and slice of a rank.
inline Size size_of(std::string const& name, GeneratorOptions options) {
    Size size{.name = name, .ranks = options.ranks, .micro_batches = options.micro_batches};
    auto const cells = [](GeneratorOptions const& o) {
        return static_cast<double>(o.ranks) * o.chunks * o.micro_batches * o.slices;
    };
    double computes = 3; // as the search makes them
    if (auto const* generator = find_generator(name)) {
        if (options.chunks == 0) options.chunks = generator->least_chunks;
        GeneratorOptions small{.ranks = 2, .micro_batches = 8, .chunks = generator->least_chunks, .slices = 1};
        computes = size_of(generator->order(small)).computes / cells(small);
    } else
        options.chunks = std::max(options.chunks, 1);
    computes += options.recompute ? 1 : 0;
    size.computes = computes * cells(options);
    size.instructions = size.computes + (options.ranks > 1 ? 4 : 0) * cells(options);
    return size;
}

/// @throws std::invalid_argument where it is too large to be made, or proven
inline void check_size(Size const& size) {
    auto const* generator = find_generator(size.name);
    if (generator != nullptr && generator->made_full && 2.0 * size.ranks * size.ranks > most_steps)
        throw std::invalid_argument(size.name + " on " + std::to_string(size.ranks) + " ranks takes " +
                                    pentad::report::count(2.0 * size.ranks * size.ranks) +
                                    " steps to make, however few its micro-batches: ask for " +
                                    std::to_string(std::lround(std::floor(std::sqrt(most_steps / 2)))) +
                                    " or fewer --stages");
    if (size.instructions <= most_instructions) return;
    auto const fewer = static_cast<std::int64_t>(most_instructions / size.instructions * size.micro_batches);
    throw std::invalid_argument(size.text() + ", and a proof of it takes " + size.memory() + "; the most is " +
                                pentad::report::count(most_instructions) + ": ask for " +
                                (fewer > 0 ? std::to_string(fewer) + " or fewer --micro-batches" : "fewer --stages"));
}

/// @throws std::invalid_argument where the search would be too long
inline void check_search(GeneratorOptions const& options) {
    auto const stages = std::int64_t{options.ranks} * std::max(options.chunks, 1);
    auto const computes = 3 * stages * options.micro_batches;
    if (computes <= most_computes) return;
    auto const micro_batches = most_computes / 3 / stages, fewer_stages = most_computes / 3 / options.micro_batches;
    throw std::invalid_argument("--schedule automatic searches for schedules of up to " +
                                std::to_string(most_computes) + " computes, and " + std::to_string(stages) +
                                " stages with " + std::to_string(options.micro_batches) + " micro-batches have " +
                                std::to_string(computes) + ": ask for " +
                                (micro_batches > 0  ? std::to_string(micro_batches) + " or fewer --micro-batches"
                                 : fewer_stages > 0 ? std::to_string(fewer_stages) + " or fewer stages"
                                                    : "fewer stages and --micro-batches") +
                                ", or for a schedule with a name");
}

} // namespace pentad_schedule
