// The example of README.md, to the letter (a test compares them).
#include <cstdio>
#include <pentad/comm.hpp>
#include <pentad/layers.hpp>
#include <pentad/program.hpp>
using namespace pentad;
using namespace pentad::ml;

// Activations: the batch sharded over dp, the same on every rank of tp and used there for different work.
using X = Layout<float, Dims<Dim<batch, dynamic, dp>, Dim<hidden>>, Replicated<tp>>;
using Up = ColumnParallel<ffn, hidden, X, Kokkos::DefaultExecutionSpace>; // weight [ffn@tp, hidden]
using Y = Up::output_layout;                                              // [batch@dp, ffn@tp]
using Down = RowParallel<hidden, ffn, Y, Kokkos::DefaultExecutionSpace>;  // weight [hidden, ffn@tp]
using Z = Down::output_layout;                                            // [batch@dp, hidden]{tp: partial}
using Out = invariant_t<Z>;

static_assert(Plan<Z, Out>::text() == "all_reduce(tp)");     // forward: one all-reduce,
static_assert(AdjointPlan<Z, Out>::text() == "relabel(tp)"); // backward: nothing is sent,
using Gradient = Up::parameter_type::gradient_layout;        // and the weight's gradient is partial
static_assert(layout_text<Gradient>.view() == "f32[ffn@tp:?, hidden:?]{dp: partial}"); // over dp alone.

int main(int argc, char** argv) {
    return program::run_on_ranks("thirty_lines", argc, argv, [&](program::Ranks& ranks) { // an error is one sentence
        Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
        Mesh<Axis<dp>, Axis<tp, 2>> const mesh(2); // four ranks
        comm::Communicators communicators(MPI_COMM_WORLD, mesh);
        MeshContext const context(communicators, mesh); // tensors that do not fit the mesh do not compile

        auto partial = make_tensor<Z>(context, {8, 16});
        Kokkos::deep_copy(partial.summands(), 1.0f);
        auto const whole = redistribute<Out>(std::move(partial)); // the collective follows from the types
        if (ranks.is_first()) std::printf("%s holds %g everywhere\n", whole.describe().c_str(), whole.view()(0, 0));
        return program::done;
    });
}
