// Validates --recompute, what belongs to it, and --memory-limit.
#include "flags.hpp"
#include "options.hpp"
#include "rules.hpp"

#include <pentad/mesh/nearest_word.hpp>
#include <pentad/model/recomputation.hpp>
#include <pentad/report/format.hpp>

#include <cstddef>
#include <string>

namespace train_lm {

pentad::model::Recomputation recomputation_of(Options const& o) {
    using Kind = pentad::model::Recomputation::Kind;
    return {.kind = o.recompute == "full"        ? Kind::full
                    : o.recompute == "selective" ? Kind::selective
                    : o.recompute == "auto"      ? Kind::automatic
                                                 : Kind::none,
            .every = static_cast<std::size_t>(o.strategy.recompute.every),
            .pieces = pentad::model::pieces_of(o.recompute_parts).value_or(pentad::model::PieceSet{})};
}

void repair_recomputation(Options& o, Complaint& complaint) {
    Options const defaults;
    if (!pentad::model::pieces_of(o.recompute_parts)) {
        complaint.add("--recompute-parts " + o.recompute_parts + " is not a list of " +
                          joined(pentad::model::piece_names),
                      "--recompute-parts");
        auto const word = o.recompute_parts.substr(0, o.recompute_parts.find(','));
        o.recompute_parts = pentad::nearest_word(word, pentad::model::piece_names);
    }
    if (o.recompute_parts != defaults.recompute_parts && o.recompute != "selective") {
        complaint.add("--recompute-parts belongs to --recompute selective, not to " + o.recompute, "--recompute");
        o.recompute = "selective";
    }
    if (o.strategy.recompute.every > 1 && (o.recompute == "none" || o.recompute == "auto")) {
        complaint.add(given(of_strategy("--recompute-every"), o) +
                          " belongs to --recompute selective or full, not to " + o.recompute,
                      "--recompute");
        o.recompute = "full";
    }
    if (o.recompute == "auto" && o.stages == "balanced") {
        complaint.add("--recompute auto needs the layers of each stage, which --stages balanced measures later",
                      "--recompute");
        o.recompute = "full";
    }
    if (!o.memory_limit.empty() && !pentad::report::bytes_in(o.memory_limit)) {
        complaint.add("--memory-limit " + o.memory_limit + " is not a size such as 8GiB, 500MiB or 1000000000",
                      "--memory-limit");
        o.memory_limit = "8GiB";
    }
}

} // namespace train_lm
