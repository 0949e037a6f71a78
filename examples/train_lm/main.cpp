// Trains a LLaMA, Mistral, Mixtral or Qwen shaped language model on text over a mesh of dp, pp, ep, cp and tp. See
// --help. Exit status: 0 done, 2 bad input (refused before the first step), 3 a failure of the outside world, 1
// anything else.
#include "auto_mesh.hpp"
#include "options.hpp"
#include "run.hpp"

#include <pentad/comm/threads.hpp>
#include <pentad/program/ranks.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>
#include <optional>
#include <string>

int main(int argc, char** argv) {
    namespace program = pentad::program;
    return program::run_on_ranks("train_lm", argc, argv, [&](program::Ranks& ranks) -> int {
        std::optional<Kokkos::ScopeGuard> guard;
        auto const start_kokkos = [&] {
            if (!guard) guard.emplace(pentad::comm::kokkos_settings());
        };
        // What the command line means depends on this file: all ranks must see the same one before they go on.
        if (auto const file = train_lm::model_file(argc, argv); !file.empty())
            ranks.require_same(train_lm::file_facts({file}));
        auto const parsed = train_lm::parse(argc, argv, ranks.size(), [&](train_lm::Options const& options) {
            start_kokkos(); // the machine is measured
            return train_lm::planned_mesh(options, ranks);
        });
        if (!parsed.help.empty()) {
            if (ranks.is_first()) std::fputs(parsed.help.c_str(), stdout);
            return program::done;
        }
        ranks.on_first([&] {
            if (!parsed.options) throw program::BadInput(parsed.sentence());
        });
        auto const& options = *parsed.options;
        ranks.on_first([&] {
            if (auto const refusal = train_lm::check_files(options)) throw program::BadInput(*refusal);
        });
        ranks.require_same(train_lm::input_facts(options));
        start_kokkos();
        return train_lm::run(options, ranks) ? program::done : program::outside_failure;
    });
}
