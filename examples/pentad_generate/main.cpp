// Writes texts by a language model: prompts come as lines of JSON, and answers go out as such. See --help. Exit status:
// 0 done, 2 bad input (refused before anything is written), 3 a failure of the outside world, 1 anything else.
#include "options.hpp"
#include "run.hpp"

#include <pentad/comm/threads.hpp>
#include <pentad/program/ranks.hpp>

#include <Kokkos_Core.hpp>

#include <cstdio>

int main(int argc, char** argv) {
    namespace program = pentad::program;
    return program::run_on_ranks("pentad_generate", argc, argv, [&](program::Ranks& ranks) -> int {
        auto const parsed = pentad_generate::parse(argc, argv, ranks.size());
        if (!parsed.options) {
            if (ranks.is_first()) std::fputs(parsed.help.c_str(), stdout);
            return program::done;
        }
        Kokkos::ScopeGuard const kokkos(pentad::comm::kokkos_settings());
        pentad_generate::run(*parsed.options, ranks);
        return program::done;
    });
}
