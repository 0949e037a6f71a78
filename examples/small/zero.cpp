// ZeRO by itself, for parameters of one's own: with stage 1 a rank holds a part of the optimizer state, and the weights
// after three updates are those of stage 0.
//
// ranks: 4
#include <pentad/comm.hpp>
#include <pentad/observe.hpp>
#include <pentad/zero.hpp>

#include <cstdio>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using Exec = Kokkos::DefaultHostExecutionSpace;
using Stored = Layout<f32, Dims<Dim<ffn>, Dim<hidden>>>;
using Used = used_t<Stored, Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<hidden>>>>; // the batch is sharded over dp

/// Anything with parameters is a model.
struct Matrix {
    Parameter<Stored, Used, Exec> weight;
    template <class F>
    void for_each_parameter(F&& f) {
        f(weight);
    }
};

std::vector<float> trained(Context<Exec> const& context, int stage) {
    Matrix model{{context, "weight", {256, 64}}};
    observe::counters() = {};
    zero::ParameterStore<f32, Exec> store(context, model, 1, {.stage = stage}, 1 << 20);
    for (int step = 1; step <= 3; ++step) {
        store.clear_gradients();
        auto const gradient = model.weight.gradient().array_flat(); // each rank of dp has a summand of its own
        for (std::size_t i = 0; i < gradient.size(); ++i)
            gradient(i) = 0.01F * static_cast<float>(context.communicators().coordinate("dp") + 1) *
                          model.weight.value().flat()(i);
        store.reduce_gradients();
        store.update(step, {.learning_rate = 0.1});
        store.gather();
    }
    if (context.communicators().world().rank() == 0)
        std::printf("stage %d: %lld bytes of optimizer state on a rank\n", stage,
                    static_cast<long long>(observe::counters()[observe::Memory::optimizer].bytes));
    auto const values = model.weight.value().flat();
    return {values.data(), values.data() + values.size()};
}

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    Mesh<Axis<dp, 4>> const mesh;
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    Context<Exec> const context(communicators);
    return trained(context, 0) == trained(context, 1) ? 0 : 1;
}
