// Saves and reads a checkpoint, and trains while one is saved: mpiexec -n 2 bench_checkpoints FOLDER HIDDEN LAYERS.
// ZeRO-1 over all ranks, f32 with the two moments of AdamW. Rank 0 prints a JSON line; checkpoints.py calls it beside
// PyTorch's.
#include "median.hpp"

#include <pentad/checkpoint/folder.hpp>
#include <pentad/checkpoint/reader.hpp>
#include <pentad/comm/threads.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/checkpoint_saver.hpp>
#include <pentad/train/trainer.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void bench(std::filesystem::path const& folder, std::size_t hidden, std::size_t layers) {
    int rank = 0, ranks = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    comm::Communicators communicators(MPI_COMM_WORLD, model::DenseMesh(ranks, 1, 1, 1));
    Context<Kokkos::DefaultExecutionSpace> const context(communicators);
    train::RunSettings const settings{
        .model = model::decoder(
            {.layers = layers, .hidden = hidden, .heads = 8, .kv_heads = 8, .ffn = 3 * hidden, .vocab = 4096}),
        .strategy = {.batch = 2 * ranks, .seq = 128, .sharding = {.stage = 1}}};
    std::string text(1 << 16, ' ');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i * i % 23);
    io::TokenData const data(text, "the text", 128, 1);
    train::Trainer<f32, Kokkos::DefaultExecutionSpace> trainer(
        context, InvariantStream<f32>::value, settings,
        train::ProvenSchedules(pipeline::generate("1f1b", {.ranks = 1, .micro_batches = 1})), data);

    std::int64_t step = 0;
    std::vector<double> alone;
    auto const train_step = [&] {
        auto const start = Clock::now();
        (void)trainer.step(++step);
        return since(start);
    };
    (void)train_step();
    for (int i = 0; i < 5; ++i) alone.push_back(train_step());
    double const usual = median(alone);

    train::CheckpointSaver saver(MPI_COMM_WORLD, folder, 1);
    auto const for_each_piece = [&](auto const& f) { train::for_each_held_piece(trainer, true, f); };
    auto const save = [&] { saver.start(context.exec(), step, {{"sequences", 0}}, for_each_piece); };
    double bytes = 0;
    for_each_piece([&](auto const& piece) { bytes += static_cast<double>(piece.stored.bytes()); });
    MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    auto const timed_save = [&] {
        (void)train_step();
        MPI_Barrier(MPI_COMM_WORLD);
        auto const start = Clock::now();
        save();
        auto const result = saver.wait();
        if (!result.is_saved && rank == 0) std::printf("%s\n", result.failure.c_str());
        return since(start);
    };
    (void)timed_save(); // allocates the copy
    double const new_files = timed_save();
    double const saved = timed_save(); // over the files of the first

    // Beside training: what the steps take longer while a checkpoint is written.
    (void)train_step();
    auto start = Clock::now();
    save();
    double slower = since(start), writing = 0;
    for (bool is_done = false; !is_done;) {
        slower += train_step() - usual;
        double sum = saver.progress();
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (auto const result = saver.advance(sum)) is_done = true, writing = result->seconds;
    }

    MPI_Barrier(MPI_COMM_WORLD);
    start = Clock::now();
    checkpoint::Reader const reader(checkpoint::list(folder).back().path);
    train::restore(trainer, reader, {});
    double const read = since(start);
    if (rank == 0)
        std::printf("{\"bytes\":%.0f,\"new_files\":%.4f,\"save\":%.4f,\"load\":%.4f,\"step\":%.4f,\"slower\":%.4f,"
                    "\"writing\":%.4f}\n",
                    bytes, new_files, saved, read, usual, slower, writing);
}

} // namespace

int main(int argc, char** argv) {
    comm::Environment const mpi(argc, argv);
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    if (argc != 4) return 2;
    bench(argv[1], std::strtoul(argv[2], nullptr, 10), std::strtoul(argv[3], nullptr, 10));
}
