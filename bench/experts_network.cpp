// Experts across hosts: tokens go to their experts and come back, a row for each choice or one for each node. A line of
// JSON. lab/network.py starts it on hosts joined by links of a known rate.
//   bench_experts_network [EXPERTS CHOICES HIDDEN TOKENS_A_RANK] [--device NAME]
#include "lab/link.hpp"
#include "variants.hpp"

#include <pentad/experts/dispatch.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/tensor/context.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;

struct Sizes {
    std::size_t experts = 16, choices = 4, hidden = 1024, tokens = 4096; ///< tokens of a rank
};

void measure(Sizes const& s) {
    int ranks = 1, rank = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    comm::Communicators communicators(MPI_COMM_WORLD,
                                      model::with_experts(model::DenseMesh(ranks, 1, 1, 1), {.ep = ranks}));
    Context<Exec> const context(communicators);
    auto const& group = communicators.along(AxisNames(ep::name));
    experts::RowBuffer<i32, Exec> const choice(context, s.tokens, s.choices);
    experts::RowBuffer<f32, Exec> const weight(context, s.tokens, s.choices), x(context, s.tokens, s.hidden),
        y(context, s.tokens, s.hidden), sums(context, s.tokens, s.hidden);
    std::mt19937 draw(static_cast<unsigned>(rank));
    double rows[2]{}; // to other nodes: (token, choice), (token, node)
    auto const node_of = [&](std::size_t expert) {
        return group.nodes().of(static_cast<int>(expert * static_cast<std::size_t>(ranks) / s.experts));
    };
    for (std::size_t t = 0; t < s.tokens; ++t) {
        std::set<std::size_t> chosen;
        std::set<int> elsewhere;
        while (chosen.size() < s.choices) chosen.insert(draw() % s.experts);
        std::size_t k = 0;
        for (auto const expert : chosen) {
            choice.view()(t, k) = static_cast<i32>(expert);
            weight.view()(t, k++) = 1.0F / static_cast<f32>(s.choices);
            if (node_of(expert) == group.nodes().mine()) continue;
            elsewhere.insert(node_of(expert));
            ++rows[0];
        }
        rows[1] += static_cast<double>(elsewhere.size());
    }
    for (std::size_t i = 0; i < x.flat().size(); ++i) x.flat()(i) = static_cast<f32>(draw() % 1000);
    MPI_Allreduce(MPI_IN_PLACE, rows, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);

    experts::RowExchange<Exec> exchange;
    experts::Dispatch<f32, Exec> dispatch;
    // The experts give what they are given.
    auto const by_choice = [&] {
        exchange.route(context, group, choice.view(), s.experts);
        auto const out = exchange.from_experts(context, exchange.forward<f32>(context, x.view()));
        kernels::combine_forward<f32>(context.exec(), out.view(), exchange.position(), weight.view(), y.view());
    };
    auto const by_node = [&] {
        dispatch.route(context, choice.view(), weight.view(), s.experts, {.choices = static_cast<double>(s.choices)});
        auto const rows = dispatch.forward(context, x.view());
        experts::Dispatch<f32, Exec>::Leaving leaving(sums.view());
        dispatch.combine(context, dispatch.part(0), rows.view(), weight.view(), leaving);
    };
    std::vector<Variant<lab::Sample>> variants{{"choice", by_choice}, {"node", by_node}, {"choice_again", by_choice}};
    for (auto& variant : variants) variant.call(); // first touches
    double wrong = 0;
    for (std::size_t i = 0; i < y.flat().size(); ++i)
        wrong = std::max(wrong, static_cast<double>(std::abs(y.flat()(i) - sums.flat()(i))));
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (wrong > 1e-3 && rank == 0) std::fprintf(stderr, "bench_experts_network: the two differ by %g\n", wrong);
    measure_in_turn(variants, 5, [&](auto const& f) { return lab::sample(group, f); });
    if (rank != 0) return;
    std::printf("{\"ranks\": %d, \"nodes\": %d, \"experts\": %zu, \"choices\": %zu, \"hidden\": %zu, \"tokens\": %zu, "
                "\"rows_by_choice\": %.0f, \"rows_by_node\": %.0f",
                ranks, group.nodes().count(), s.experts, s.choices, s.hidden, s.tokens, rows[0], rows[1]);
    print_and_end_line(variants);
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const environment(argc, argv);
    Kokkos::ScopeGuard const kokkos(argc, argv);
    std::vector<std::size_t> numbers;
    for (int i = 1; i < argc; ++i) {
        if (std::string(argv[i]) == "--device" && i + 1 < argc)
            lab::device() = argv[++i];
        else
            numbers.push_back(std::strtoull(argv[i], nullptr, 10));
    }
    if (numbers.size() == 4)
        measure({numbers[0], numbers[1], numbers[2], numbers[3]});
    else
        measure({});
}
