// Layouts, plans, schedules and models without MPI, Kokkos or anything else.
#include <pentad/layout.hpp>
#include <pentad/model.hpp>
#include <pentad/pipeline.hpp>

using namespace pentad;
using namespace pentad::ml;
using Whole = Layout<f32, Dims<Dim<batch>>>;
static_assert(Plan<Layout<f32, Dims<Dim<batch, dynamic, dp>>>, Whole>::text().starts_with("all_gather(dp)"));

int main() {
    auto const schedule = pipeline::generate("1f1b", {.ranks = 2, .micro_batches = 4, .chunks = 0});
    return schedule.ranks() == 2 && model::decoder({.layers = 3}).blocks.size() == 3 ? 0 : 1;
}
