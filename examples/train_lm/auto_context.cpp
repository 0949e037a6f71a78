#include "auto_context.hpp"

#include "configuration.hpp"

#include <pentad/comm/communicator.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/planner/orders_on_nodes.hpp>
#include <pentad/program/exit_status.hpp>
#include <pentad/report/format.hpp>
#include <pentad/train/machine.hpp>
#include <pentad/train/planned.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace train_lm {

namespace {

void set(Options& options, pentad::model::ContextChoice const& choice) {
    options.cp = pentad::model::name(choice.kind);
    options.cp_heads = choice.heads;
    options.cp_inner = choice.inner;
}

/// Rank 0 prints it.
void say(Options const& options, std::string const& text) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0 && !options.quiet) std::printf("%s %s\n", options.context().flags().c_str(), text.c_str());
}

Options split_by_nodes(Options options) {
    using pentad::program::BadInput;
    pentad::comm::Communicators const communicators(MPI_COMM_WORLD, strategy_of(options).views());
    auto const& world = communicators.world();
    std::vector<int> node_of;
    for (int rank = 0; rank < world.size(); ++rank) node_of.push_back(world.nodes().of(rank));
    auto const neighbours = pentad::planner::neighbours_on_nodes(strategy_of(options), "cp", node_of);
    if (auto const why = options.context().refused_nodes(options.extent("cp"), neighbours); !why.empty())
        throw BadInput(why);
    options.cp_inner = neighbours;
    if (auto const why = check(options, world.size())) throw BadInput(*why);
    say(options, "follows the nodes");
    return options;
}

/// The options with the context split that is planned to be the fastest: the first one if several are equally fast.
Options planned(Options options) {
    std::int64_t const cp = options.extent("cp");
    std::vector<std::int64_t> insides(static_cast<std::size_t>(cp));
    std::iota(insides.begin(), insides.end(), 1);
    std::erase_if(insides, [cp](std::int64_t n) { return cp % n != 0; });
    auto const splits =
        pentad::model::context_splits(options.context(), cp, options.heads / options.extent("tp"), insides);
    if (splits.size() == 1) {
        set(options, pentad::model::ContextChoice::of(splits.front(), cp));
        return options;
    }
    auto const model = pentad::train::planned_model(make_model(options));
    auto const machine = pentad::train::measured_machine(Kokkos::DefaultExecutionSpace());
    auto const fastest = pentad::planner::fastest_context(model, machine, strategy_of(options), splits);
    set(options, pentad::model::ContextChoice::of(fastest.split, cp));
    say(options, "is planned to be the fastest: " + pentad::report::duration(fastest.seconds) + " a step");
    return options;
}

} // namespace

Options with_context(Options options) {
    if (options.cp == "auto") return planned(std::move(options));
    bool const follows_nodes = options.context().follows_nodes() && options.extent("cp") > 1;
    return follows_nodes ? split_by_nodes(std::move(options)) : options;
}

} // namespace train_lm
