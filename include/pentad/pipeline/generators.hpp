// The published schedules by name. A new one is an order of computes in generators/ and
// a line of the table here; nothing else in the library learns of it.
#pragma once

#include <pentad/pipeline/generators/chunks.hpp>
#include <pentad/pipeline/generators/greedy.hpp>
#include <pentad/pipeline/generators/one_stage.hpp>
#include <pentad/pipeline/generators/two_ended.hpp>
#include <pentad/pipeline/generators/v_shape.hpp>
#include <pentad/pipeline/messages.hpp>
#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace pentad::pipeline {

struct GeneratorOptions {
    int ranks = 1;
    int micro_batches = 1;
    int chunks = 0;  ///< stages of the model on each rank; 0: as few as the schedule is defined for
    int slices = 1;  ///< of each sequence
    int updates = 0; ///< of pipedream-2bw; 0: as many as have `ranks` micro-batches or more, equally many each
    bool recompute = false;
    bool pairs = false;                    ///< of a schedule that has pairs: its forwards and backwards take turns
    StageOperations stage_operations = {}; ///< the optimizer steps of PipeDream are always there
};

/// What a schedule is defined for, and the order of its computes.
struct Generator {
    std::string_view name;
    Schedule (*order)(GeneratorOptions const&);
    int least_chunks = 1;
    int chunk_step = 0; ///< from one number of chunks to the next; 0: there is no other
    bool even_ranks = false;
    bool takes_slices = false;
    bool made_full =
        false;      ///< made as for 2 x ranks micro-batches at least: that takes time, also where fewer are left
    int copies = 1; ///< of each stage, on different ranks
    bool has_pairs = false;
    /// How often each stage updates its weights in a run, with its own gradients alone; null: once, with all.
    int (*updates)(GeneratorOptions const&) = nullptr;

    [[nodiscard]] constexpr bool takes_chunks(int chunks) const {
        int const more = chunks - least_chunks;
        return more == 0 || (more > 0 && chunk_step != 0 && more % chunk_step == 0);
    }
    [[nodiscard]] constexpr bool is_defined(int ranks, int chunks) const {
        return takes_chunks(chunks) && (!even_ranks || ranks % 2 == 0);
    }
};

namespace detail {

inline int updates_of_pipedream(GeneratorOptions const& o) { return o.micro_batches; }
inline int updates_of_2bw(GeneratorOptions const& o) {
    for (int size = o.ranks; o.updates == 0 && size <= o.micro_batches; ++size)
        if (o.micro_batches % size == 0) return o.micro_batches / size;
    int const updates = std::max(1, o.updates);
    if (o.micro_batches % updates != 0 || (updates > 1 && o.micro_batches / updates < o.ranks))
        throw std::invalid_argument("pipedream-2bw needs updates of equally many micro-batches, at least " +
                                    std::to_string(o.ranks) + " on " + std::to_string(o.ranks) +
                                    " ranks: " + std::to_string(o.micro_batches) + " micro-batches do not make " +
                                    std::to_string(updates));
    return updates;
}

/// An order of ranks and micro-batches alone, or of chunks too.
template <Schedule (*Order)(int, int)>
Schedule plain(GeneratorOptions const& o) {
    return Order(o.ranks, o.micro_batches);
}
template <Schedule (*Order)(int, int, int)>
Schedule chunked(GeneratorOptions const& o) {
    return Order(o.ranks, o.micro_batches, o.chunks);
}
template <Schedule (*Order)(int, int, bool)>
Schedule paired(GeneratorOptions const& o) {
    return Order(o.ranks, o.micro_batches, o.pairs);
}
inline Schedule gpipe(GeneratorOptions const& o) {
    return order::all_forwards_first("gpipe", o.ranks, o.micro_batches, 1);
}
inline Schedule terapipe(GeneratorOptions const& o) {
    return order::all_forwards_first("terapipe", o.ranks, o.micro_batches, o.slices);
}
inline Schedule pipedream_2bw(GeneratorOptions const& o) {
    return order::pipedream_2bw(o.ranks, o.micro_batches, updates_of_2bw(o));
}
inline Schedule hanayo(GeneratorOptions const& o) { return order::hanayo(o.ranks, o.micro_batches, o.chunks / 2); }

} // namespace detail

inline constexpr std::array generators{
    Generator{"gpipe", detail::gpipe},
    Generator{.name = "terapipe", .order = detail::terapipe, .takes_slices = true},
    Generator{"1f1b", detail::plain<order::one_forward_one_backward>},
    Generator{"eager-1f1b", detail::plain<order::eager>},
    Generator{.name = "pipedream", .order = detail::plain<order::pipedream>, .updates = detail::updates_of_pipedream},
    Generator{.name = "pipedream-2bw", .order = detail::pipedream_2bw, .updates = detail::updates_of_2bw},
    Generator{"zb-h1", detail::plain<order::zero_bubble_1>},
    Generator{"zb-h2", detail::plain<order::zero_bubble_2>},
    Generator{.name = "interleaved-1f1b", .order = detail::chunked<order::interleaved>, .chunk_step = 1},
    Generator{.name = "looped-bfs", .order = detail::chunked<order::looped_breadth_first>, .chunk_step = 1},
    Generator{.name = "zb-v", .order = detail::plain<order::zero_bubble_v>, .least_chunks = 2, .made_full = true},
    Generator{.name = "v-half", .order = detail::plain<order::v_half>, .least_chunks = 2},
    Generator{.name = "v-min", .order = detail::plain<order::v_min>, .least_chunks = 2},
    Generator{.name = "dualpipe-v",
              .order = detail::paired<order::dualpipe_v>,
              .least_chunks = 2,
              .made_full = true,
              .has_pairs = true},
    Generator{.name = "hanayo", .order = detail::hanayo, .least_chunks = 2, .chunk_step = 2},
    Generator{.name = "dualpipe",
              .order = detail::paired<order::dualpipe>,
              .even_ranks = true,
              .made_full = true,
              .copies = 2,
              .has_pairs = true},
    Generator{.name = "chimera", .order = detail::plain<order::chimera>, .even_ranks = true, .copies = 2},
};

/// Their names, in this order.
inline constexpr auto schedule_names = [] {
    std::array<std::string_view, generators.size()> names{};
    for (std::size_t i = 0; i < names.size(); ++i) names[i] = generators[i].name;
    return names;
}();
/// "gpipe, terapipe, ..."
inline std::string generator_names() {
    std::string names;
    for (auto const name : schedule_names) names += (names.empty() ? "" : ", ") + std::string(name);
    return names;
}

inline Generator const* find_generator(std::string_view name) {
    auto const found = std::find_if(generators.begin(), generators.end(),
                                    [&](Generator const& generator) { return generator.name == name; });
    return found == generators.end() ? nullptr : &*found;
}

/// The traits of a schedule before it is made; the usual ones where there is none.
inline ScheduleTraits traits(std::string_view name, GeneratorOptions const& options) {
    auto const* const found = find_generator(name);
    if (found == nullptr) return {};
    return {.copies = found->copies,
            .updates = found->updates == nullptr ? 1 : std::max(1, found->updates(options)),
            .slices = options.slices,
            .has_pairs = options.pairs,
            .recomputes = options.recompute};
}

/// Why there is no such schedule, in a sentence that says what there is; empty where there is one.
inline std::string undefined(std::string_view name, GeneratorOptions const& options) {
    auto const refuse = [&](std::string const& why) { return std::string(name) + why; };
    auto const* found = find_generator(name);
    if (found == nullptr) return refuse(" is no schedule; there are " + generator_names());
    if (options.ranks < 1 || options.micro_batches < 1)
        return refuse(" needs at least one rank and one micro-batch, not " + std::to_string(options.ranks) + " and " +
                      std::to_string(options.micro_batches));
    if (found->even_ranks && options.ranks % 2 != 0)
        return refuse(" is defined for an even number of ranks, not " + std::to_string(options.ranks));
    if (options.chunks != 0 && !found->takes_chunks(options.chunks))
        return refuse(" is defined for " + std::to_string(found->least_chunks) +
                      (found->chunk_step == 0
                           ? (found->least_chunks == 1 ? " chunk a rank, not " : " chunks a rank, not ")
                       : found->chunk_step == 1 ? " or more chunks a rank, not "
                                                : ", 4, 6, ... chunks a rank, not ") +
                      std::to_string(options.chunks));
    if (options.slices < 1 || (options.slices > 1 && !found->takes_slices))
        return refuse(std::string(" is defined for ") + (found->takes_slices ? "1 or more slices" : "1 slice") +
                      " a sequence, not " + std::to_string(options.slices));
    if (options.pairs && !found->has_pairs)
        return refuse(" has no pairs of a forward and a backward, as dualpipe and dualpipe-v have");
    if (options.updates != 0 && name != "pipedream-2bw") return refuse(" does not take a number of updates");
    return {};
}

/// @throws std::invalid_argument where it is undefined
inline Schedule generate(std::string_view name, GeneratorOptions options) {
    if (auto const why = undefined(name, options); !why.empty()) throw std::invalid_argument(why);
    auto const& generator = *find_generator(name);
    if (options.chunks == 0) options.chunks = generator.least_chunks;
    Schedule order = generator.order(options);
    if (options.stage_operations.gather && order.updates > 1)
        throw std::invalid_argument(std::string(name) +
                                    " keeps several versions of its parameters whole: there is nothing to gather");
    if (options.recompute) order = with_recomputation(std::move(order));
    return with_messages(with_stage_operations(std::move(order), options.stage_operations));
}

} // namespace pentad::pipeline
