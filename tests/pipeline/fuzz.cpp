#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/pipeline/validator.hpp>

#include "interpreter.hpp"
#include "mutator.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace pentad::pipeline;

namespace {

/// Small schedules of every kind, with and without what may be added to them.
std::vector<Schedule> small_schedules() {
    std::vector<Schedule> all;
    for (Generator const& generator : generators)
        for (int p = 1; p <= 4; ++p)
            for (int const m : {1, 2, 4, 5}) {
                if (generator.even_ranks && p % 2 != 0) continue;
                GeneratorOptions options{.ranks = p, .micro_batches = m};
                all.push_back(generate(generator.name, options));
                if (generator.chunk_step != 0 && p <= 2) {
                    options.chunks = generator.least_chunks + generator.chunk_step;
                    all.push_back(generate(generator.name, options));
                    options.chunks = 0;
                }
                if (generator.takes_slices)
                    for (options.slices = 2; options.slices <= 3; ++options.slices)
                        all.push_back(generate(generator.name, options));
                options.slices = 1;
                options.recompute = true;
                options.stage_operations = {.gather = all.back().updates <= 1, .reduce = true, .step = m % 2 == 0};
                all.push_back(generate(generator.name, options));
            }
    return all;
}

/// Nothing, or what is wrong with running a schedule by the rules.
std::string wrong_with(Schedule const& schedule, unsigned seed) {
    constexpr int steps = 2;
    auto const truth = test::train_serially(schedule, steps);
    for (std::size_t const buffers : {std::size_t{1}, std::size_t{1} << 40}) {
        auto const trained = test::Interpreter(schedule, buffers, steps, seed).run();
        if (!trained) return "does not run with " + std::to_string(buffers) + " send buffers";
        if (trained->gradients != truth.gradients) return "has other gradients than the serial run";
        if (trained->weights != truth.weights) return "has other weights than the serial run";
    }
    return "";
}

using test::erase, test::insert, test::Mutator;

} // namespace

TEST_CASE("every generated schedule trains like the serial run, with one send buffer and with any number") {
    for (Schedule const& schedule : small_schedules()) {
        CAPTURE(to_string(schedule));
        CHECK(!validate(schedule).refusal);
        CHECK(wrong_with(schedule, 1) == "");
    }
}

TEST_CASE("every dropped and every doubled instruction is refused") {
    for (Schedule const& schedule : small_schedules())
        for (std::size_t rank = 0; rank < schedule.instructions.size(); ++rank)
            for (std::size_t at = 0; at < schedule.instructions[rank].size(); ++at) {
                auto mutant = schedule;
                auto& list = mutant.instructions[rank];
                auto const x = list[at];
                erase(list, at);
                bool const dropped = validate(mutant).refusal.has_value();
                insert(list, at, x);
                bool doubled = true;
                for (std::size_t const again : {std::size_t{0}, at, at + 1, list.size()}) {
                    insert(list, again, x);
                    doubled = doubled && validate(mutant).refusal;
                    erase(list, again);
                }
                CHECK_MESSAGE((dropped && doubled), to_string(x), " on rank ", rank, " of ", to_string(schedule));
            }
}

TEST_CASE("a mutated schedule is refused, or shown harmless by the interpreter") {
    auto const originals = small_schedules();
    Mutator mutator(20264);
    std::map<Fault, int> refused;
    int accepted = 0, changed = 0, misjudged = 0;
    for (int trial = 0; trial < 100'000; ++trial) {
        Schedule const& original = originals[mutator.below(originals.size())];
        auto mutant = original;
        for (auto mutations = 1 + mutator.below(3); mutations > 0; --mutations) mutator.mutate(mutant);
        auto const verdict = validate(mutant);
        // A rank that is in its second step has posted all that the first one of others waits for.
        if (validate(mutant, {.steps = 1}).refusal.has_value() != verdict.refusal.has_value()) ++misjudged;
        if (verdict.refusal) {
            ++refused[verdict.refusal->fault];
            // Nothing is refused in vain, but what would be done twice or for nothing.
            auto const operation = verdict.refusal->instruction.operation;
            if (!is_of_update(operation) && operation != Operation::recompute &&
                wrong_with(mutant, static_cast<unsigned>(trial)).empty() && misjudged++ < 3)
                FAIL_CHECK("in vain: " << verdict.refusal->message() << ":\n" << to_string(mutant));
            continue;
        }
        ++accepted;
        if (mutant == original) continue;
        if (parse_schedule(to_string(mutant)) != mutant) ++misjudged;
        ++changed;
        auto const wrong = wrong_with(mutant, static_cast<unsigned>(trial));
        if (!wrong.empty() && misjudged++ < 3) FAIL_CHECK(wrong << ":\n" << to_string(mutant));
    }
    CHECK(misjudged == 0);
    CHECK(changed > 5'000);
    for (Fault const fault : {Fault::misplaced, Fault::repeated, Fault::missing, Fault::disordered, Fault::stale,
                              Fault::mismatched, Fault::deadlocked})
        CHECK_MESSAGE(refused[fault] > 20, "faults of class ", static_cast<int>(fault));
    MESSAGE(accepted, " of 100000 mutants accepted, ", changed, " of them changed");
}
