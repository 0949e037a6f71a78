// ranks: 1 2 4
//
// The optimizer's state and activations in files instead of memory: the same bits, less memory, and errors of the disk
// on all ranks.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/planner/memory.hpp>
#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/checkpoint_saver.hpp>
#include <pentad/train/export.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/trainer.hpp>

#include <io/scratch.hpp>
#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace support;

namespace {

/// In a folder of each rank's own.
model::Offload to(std::filesystem::path const& folder, std::size_t window_bytes = 0) {
    return {.optimizer = true, .folder = folder.string(), .window_bytes = window_bytes};
}

train::RunSettings settings(ZeroSharding const& sharding, model::Optimizer const& optimizer) {
    return {.model = model::decoder({.layers = 4, .hidden = 32, .heads = 4, .kv_heads = 2, .ffn = 48, .vocab = 51}),
            .strategy = {.batch = 8,
                         .micro_batches = 2,
                         .seq = 16,
                         .sharding = sharding,
                         .bucket_elements = 3000,
                         .optimizer = optimizer},
            .steps = 6,
            .warmup = 1,
            .clip = sharding.releases_gradients ? 0.0 : 1.0};
}

/// What came of some steps, to the bit.
template <class T>
struct Outcome {
    std::vector<double> numbers;
    std::vector<std::vector<accumulator_t<T>>> states;
    bool operator==(Outcome const&) const = default;
};

template <class T, class Stream>
Outcome<T> outcome_of(Training<Stream>& training, std::vector<double> numbers) {
    using A = accumulator_t<T>;
    Outcome<T> result{std::move(numbers), {}};
    train::for_each_held_piece(training.trainer, true, [&](train::HeldPiece const& piece) {
        auto const* const data = static_cast<A const*>(piece.data);
        result.states.emplace_back(data, data + piece.stored.bytes() / sizeof(A));
    });
    return result;
}

template <class T>
void check_same_bits(MeshShape const& m, train::RunSettings run, std::string const& name = "1f1b", int chunks = 1) {
    using Stream = InvariantStream<T>;
    auto const schedule = pipeline::generate(
        name, {.ranks = m.pp, .micro_batches = static_cast<int>(run.strategy.micro_batches), .chunks = chunks});
    INFO(m.text(), " ", name, " ZeRO ", run.strategy.sharding.stage, " releases ",
         run.strategy.sharding.releases_gradients, " optimizer ", run.strategy.optimizer.index(), " bytes ", sizeof(T));
    OnMesh const mesh(m, train::for_schedule(OnMesh::mesh(m, 2), schedule));
    Outcome<T> expected;
    {
        Training<Stream> training(mesh, run, schedule);
        auto numbers = steps(training, 1, 2);
        (void)training.trainer.evaluate(3);
        auto const more = steps(training, 3, 3);
        numbers.insert(numbers.end(), more.begin(), more.end());
        expected = outcome_of<T>(training, numbers);
    }
    test::Scratch const folder;
    for (std::size_t const slots : {1, 2, 5}) {
        INFO("slots ", slots);
        run.strategy.offload = to(folder.path());
        if (slots != 2) { // the largest bucket, as the window of two has it
            Training<Stream> probe(mesh, run, schedule);
            auto const report = probe.trainer.store().offload_report().value();
            run.strategy.offload.window_bytes =
                slots * (static_cast<std::size_t>(report.window_bytes) - model::offload_page) / 2;
        }
        Training<Stream> training(mesh, run, schedule);
        auto numbers = steps(training, 1, 2);
        (void)training.trainer.evaluate(3);
        train::for_each_held_piece(training.trainer, true, [](auto const&) {}); // as a checkpoint does
        auto const more = steps(training, 3, 3);
        numbers.insert(numbers.end(), more.begin(), more.end());
        CHECK(outcome_of<T>(training, numbers) == expected);
        auto const report = training.trainer.store().offload_report().value();
        if (slots <= 2) CHECK(report.state_bytes > 0);
        CHECK(report.read_bytes >= 3 * report.state_bytes); // it really went through the file
        CHECK(report.written_bytes >= 3 * report.state_bytes);
    }
}

std::vector<model::Optimizer> const optimizers{model::AdamW{}, model::Sgd{}, model::Lion{}, model::Muon{}};
std::vector<ZeroSharding> const shardings{{},
                                          {.stage = 1},
                                          {.stage = 2},
                                          {.stage = 3},
                                          {.stage = 3, .keeps_parameters = true, .accumulates_gradients = true},
                                          {.releases_gradients = true},
                                          {.stage = 3, .releases_gradients = true}};

} // namespace

TEST_CASE("a run whose optimizer state is in files has the same bits") {
    int const n = world_size();
    for (std::size_t i = 0; i < optimizers.size(); ++i)
        for (std::size_t k = 0; k < shardings.size(); ++k) {
            auto const run = settings(shardings[k], optimizers[i]);
            if (i == 0 || (i + k) % 2 == 0) check_same_bits<f32>({.dp = n}, run);
            if (n == 4 && i == 0) check_same_bits<f32>({.dp = 2, .tp = 2}, run);
            if ((i + k) % 2 == 0) check_same_bits<bf16>({.dp = n}, run);
            if (k % 3 == i % 3) check_same_bits<f64>({.dp = n}, run);
        }
    check_same_bits<bf16>({.dp = n}, settings({}, model::Sgd{.momentum = 0})); // masters alone
}

TEST_CASE("with every kind of schedule, asynchronous ones and two copies of a stage included") {
    int const n = world_size();
    if (n < 2) return;
    auto run = settings({.stage = 1}, model::AdamW{});
    run.strategy.micro_batches = 4;
    check_same_bits<f32>({.pp = 2, .tp = n / 2}, run, "zb-h1");
    check_same_bits<f32>({.pp = 2, .tp = n / 2}, run, "interleaved-1f1b", 2);
    check_same_bits<bf16>({.pp = 2, .tp = n / 2}, run, "dualpipe");
    run.clip = 0;
    check_same_bits<bf16>({.pp = 2, .tp = n / 2}, run, "pipedream-2bw");
}

namespace {

std::int64_t held(observe::Memory kind) { return observe::counters()[kind].bytes; }

template <class T>
void check_memory(train::RunSettings run) {
    using Stream = InvariantStream<T>;
    using A = accumulator_t<T>;
    int const n = world_size();
    INFO("ZeRO ", run.strategy.sharding.stage, " bytes ", sizeof(T), " window ", run.strategy.offload.window_bytes);
    OnMesh const mesh({.dp = n});
    auto const before = held(observe::Memory::optimizer);
    test::Scratch const folder;
    std::int64_t whole = 0;
    {
        Training<Stream> training(mesh, run);
        (void)training.trainer.step(1);
        whole = held(observe::Memory::optimizer) - before;
    }
    run.strategy.offload.optimizer = true;
    run.strategy.offload.folder = folder.path().string();
    Training<Stream> training(mesh, run);
    observe::counters()[observe::Memory::optimizer].peak = held(observe::Memory::optimizer);
    (void)steps(training, 1, 2);
    auto const slabs = observe::counters()[observe::Memory::optimizer].allocations;
    (void)steps(training, 3, 2);
    CHECK(observe::counters()[observe::Memory::optimizer].allocations == slabs);
    auto const report = training.trainer.store().offload_report().value();
    auto const window = observe::counters()[observe::Memory::optimizer].peak - before;
    CHECK(window == held(observe::Memory::optimizer) - before);
    CHECK(window == static_cast<std::int64_t>(report.window_bytes));
    CHECK(window * 2 < whole);
    // All of the state is in the file; what differs is the rounding of small buckets.
    CHECK(report.state_bytes >= static_cast<double>(whole) * 0.99);
    // The planner sees the same window.
    auto c = support::on_mesh({.dp = n}, run.strategy);
    c.element = std::is_same_v<T, f64>   ? planner::Element::f64
                : std::is_same_v<T, f32> ? planner::Element::f32
                                         : planner::Element::bf16;
    auto const schedule =
        pipeline::generate("1f1b", {.ranks = 1, .micro_batches = static_cast<int>(run.strategy.micro_batches)});
    auto const planned = train::planned_memory(train::planned_model(run.model), c, pipeline::proven(schedule), {});
    CHECK(planned.at(0).optimizer == static_cast<double>(window));
    CHECK(planned.at(0).offloaded <= report.state_bytes);
    CHECK(planned.at(0).offloaded >= 0.7 * report.state_bytes);
    static_assert(sizeof(A) >= 4);
}

} // namespace

TEST_CASE("memory falls from the state to the window, which the planner knows to the byte") {
    for (auto const& sharding : shardings)
        for (std::size_t const window : {std::size_t{0}, std::size_t{100000}}) {
            auto run = settings(sharding, model::AdamW{});
            change(run, [](auto& sizes) { sizes.layers = 8, sizes.hidden = 64, sizes.ffn = 128; });
            run.strategy.bucket_elements = 20000;
            run.strategy.offload.window_bytes = window;
            check_memory<f32>(run);
            check_memory<bf16>(run);
            run.strategy.optimizer = model::Muon{};
            check_memory<f32>(run);
        }
}

TEST_CASE("a window that holds all of the state needs no file") {
    OnMesh const mesh({.dp = world_size()});
    auto run = settings({}, model::AdamW{});
    run.strategy.offload = to("/nonexistent", std::size_t{1} << 30);
    for (int const with_folder : {1, 0}) { // without one there is no limit
        Training<InvariantStream<f32>> training(mesh, run);
        (void)steps(training, 1, 2);
        auto const report = training.trainer.store().offload_report().value();
        CHECK(report.state_bytes == 0);
        CHECK(report.written_bytes == 0);
        if (with_folder == 1) run.strategy.offload = {.optimizer = true, .window_bytes = 1};
    }
}

TEST_CASE("a checkpoint of offloaded state is one of any other run") {
    using Stream = InvariantStream<bf16>;
    int const n = world_size();
    OnMesh const mesh({.dp = n});
    test::Scratch const own;
    std::filesystem::path const folder = comm::broadcast_text(MPI_COMM_WORLD, own.path().string(), 0);
    auto const run = settings({.stage = 1}, model::AdamW{});
    auto offloaded = run;
    offloaded.strategy.offload = to(own.path());
    for (bool const writes_offloaded : {false, true}) {
        Training<Stream> first(mesh, writes_offloaded ? offloaded : run);
        (void)steps(first, 1, 3);
        train::CheckpointSaver saver(MPI_COMM_WORLD, folder, 1);
        saver.start(mesh.context.exec(), writes_offloaded ? 2 : 1, {{"sequences", 0}},
                    [&](auto const& copy) { train::for_each_held_piece(first.trainer, true, copy); });
        auto const saved = saver.wait();
        REQUIRE_MESSAGE(saved.is_saved, saved.failure);
        auto const expected = outcome_of<bf16>(first, steps(first, 4, 2));
        for (bool const reads_offloaded : {false, true}) {
            Training<Stream> second(mesh, reads_offloaded ? offloaded : run);
            checkpoint::Reader const reader(checkpoint::list(folder).back().path);
            train::restore(second.trainer, reader, {.step = 3, .sequences = 24});
            CHECK(outcome_of<bf16>(second, steps(second, 4, 2)) == expected);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

namespace {

/// The weights that are written.
class Written final : public train::WeightSink<f32> {
  public:
    void begin(std::vector<io::NamedShape> const& entries) override {
        for (auto const& entry : entries) names.push_back(entry.name);
    }
    void append(std::span<f32 const> piece) override { values.insert(values.end(), piece.begin(), piece.end()); }
    void end() override { is_complete = true; }

    std::vector<std::string> names;
    std::vector<f32> values;
    bool is_complete = false;
};

} // namespace

TEST_CASE("weights of offloaded state are written from all stages") {
    using Stream = InvariantStream<bf16>;
    int const n = world_size();
    test::Scratch const own;
    // A head that MPI does not send before it is received.
    auto run = settings({.stage = 1}, model::AdamW{});
    run.model.vocab = 1 << 15;
    run.strategy.seq = 4;
    auto const written = [&] {
        OnMesh const mesh({.pp = n});
        Training<Stream> training(mesh, run);
        Written sink;
        train::export_weights<bf16>(mesh.context, training.trainer.model(), training.trainer.store(), std::nullopt,
                                    sink);
        CHECK(sink.is_complete == (world_rank() == 0));
        return std::pair(sink.names, sink.values);
    };
    auto const expected = written();
    run.strategy.offload = to(own.path());
    CHECK(written() == expected);
}

namespace {

void check_same_bits_with_activations(MeshShape const& m, train::RunSettings run, std::string const& name = "1f1b",
                                      int chunks = 1) {
    using Stream = SequenceStream<bf16>;
    auto const schedule = pipeline::generate(
        name, {.ranks = m.pp, .micro_batches = static_cast<int>(run.strategy.micro_batches), .chunks = chunks});
    INFO(m.text(), " ", name, " recompute ", static_cast<int>(run.strategy.recompute.kind));
    OnMesh const mesh(m, train::for_schedule(OnMesh::mesh(m, 2), schedule));
    auto const numbers_of = [&](Training<Stream>& training) {
        auto numbers = steps(training, 1, 2);
        numbers.push_back(training.trainer.evaluate(3).loss);
        auto const more = steps(training, 3, 2);
        numbers.insert(numbers.end(), more.begin(), more.end());
        return numbers;
    };
    Training<Stream> usual(mesh, run, schedule);
    auto const expected = outcome_of<bf16>(usual, numbers_of(usual));
    test::Scratch const folder;
    run.strategy.offload = {.activations = true, .folder = folder.path().string()};
    for (std::size_t const window : {std::size_t{0}, std::size_t{1}, std::size_t{1} << 30}) {
        INFO("window ", window);
        run.strategy.offload.optimizer = window == 1;
        run.strategy.offload.window_bytes = window;
        Training<Stream> training(mesh, run, schedule);
        CHECK(outcome_of<bf16>(training, numbers_of(training)) == expected);
        auto const report = training.trainer.activation_report().value();
        CHECK(report.state_bytes > 0);
        CHECK(report.written_bytes >= 4 * report.state_bytes); // in each of four steps
        if (window == 1) CHECK(report.read_bytes >= report.written_bytes / 2);
    }
    // Without a file: in the memory of the host, as a device has it.
    run.strategy.offload = {.activations = true};
    Training<Stream> training(mesh, run, schedule);
    CHECK(outcome_of<bf16>(training, numbers_of(training)) == expected);
}

} // namespace

TEST_CASE("a run whose activations are in files has the same bits") {
    using Kind = model::Recomputation::Kind;
    int const n = world_size();
    auto run = settings({.stage = 3}, model::AdamW{});
    check_same_bits_with_activations({.dp = n}, run);
    run.strategy.recompute = {.kind = Kind::full, .every = 2};
    check_same_bits_with_activations({.dp = n}, run);
    run.strategy.recompute = {.kind = Kind::selective, .pieces = {model::Piece::norms}};
    check_same_bits_with_activations({.tp = n}, run);
    run = settings({}, model::AdamW{});
    change(run, [](auto& sizes) { sizes.experts = 4, sizes.top_k = 2; });
    check_same_bits_with_activations({.dp = n == 4 ? 2 : 1, .ep = n == 1 ? 1 : 2}, run);
    if (n == 1) return;
    run = settings({}, model::AdamW{});
    run.strategy.micro_batches = 4;
    check_same_bits_with_activations({.pp = 2, .cp = n / 2}, run);
    check_same_bits_with_activations({.pp = 2, .tp = n / 2}, run, "zb-h1");
    check_same_bits_with_activations({.pp = 2, .tp = n / 2}, run, "interleaved-1f1b", 2);
    check_same_bits_with_activations({.pp = 2, .tp = n / 2}, run, "dualpipe");
}

namespace {

/// A run of blocks whose activations are large beside what else there is.
train::RunSettings of_layers(std::size_t layers, bool offloads, test::Scratch const& folder) {
    auto run = settings({}, model::AdamW{});
    change(run, [&](auto& sizes) { sizes.layers = layers, sizes.hidden = 64, sizes.ffn = 128; });
    run.strategy.offload = {.activations = offloads, .folder = folder.path().string()};
    return run;
}

} // namespace

TEST_CASE("what activations take in memory does not grow with the number of blocks when they are in files") {
    OnMesh const mesh({.dp = world_size()});
    test::Scratch const folder;
    auto& counter = observe::counters()[observe::Memory::activations];
    auto const peak = [&](std::size_t layers, bool offloads) {
        Training<InvariantStream<f32>> training(mesh, of_layers(layers, offloads, folder));
        (void)steps(training, 1, 2);
        counter.peak = counter.bytes;
        auto const slabs = counter.allocations;
        (void)steps(training, 3, 2);
        CHECK(counter.allocations == slabs);
        return counter.peak;
    };
    CHECK(static_cast<double>(peak(12, true)) < 1.03 * static_cast<double>(peak(6, true))); // a norm keeps sums
    CHECK(peak(12, false) - peak(6, false) > peak(6, true) / 2);
}

TEST_CASE("an evaluation holds the activations of one block, wherever those of training are") {
    OnMesh const mesh({.dp = world_size()});
    test::Scratch const folder;
    auto& counter = observe::counters()[observe::Memory::activations];
    auto const peak = [&](std::size_t layers, bool offloads) {
        Training<InvariantStream<f32>> training(mesh, of_layers(layers, offloads, folder));
        auto const before = counter.peak = counter.bytes;
        (void)training.trainer.evaluate(1);
        return counter.peak - before;
    };
    for (bool const offloads : {false, true}) CHECK(peak(12, offloads) == peak(2, offloads));
}

TEST_CASE("schedules whose activations cannot be in files say why") {
    int const n = world_size();
    if (n < 2) return;
    auto run = settings({}, model::AdamW{});
    run.strategy.micro_batches = 4;
    run.strategy.offload.activations = true;
    auto const why = [&](pipeline::GeneratorOptions options) {
        options.ranks = n;
        options.micro_batches = 4;
        auto const refused =
            train::schedule_misfit(pipeline::generate(options.slices > 1 ? "terapipe" : "1f1b", options), run, n);
        return refused ? refused->why : "";
    };
    CHECK(why({}).empty());
    CHECK(why({.slices = 2}).starts_with("schedule = terapipe cuts sequences into slices"));
    CHECK(why({.recompute = true}).starts_with("schedule = 1f1b recomputes whole stages"));
}

TEST_CASE("a folder that is not there is an error on all ranks") {
    OnMesh const mesh({.dp = world_size()});
    auto run = settings({}, model::AdamW{});
    test::Scratch const folder;
    run.strategy.offload = to(world_rank() == world_size() - 1 ? folder.path() / "gone" : folder.path());
    CHECK_THROWS_WITH_AS(Training<InvariantStream<f32>>(mesh, run), doctest::Contains("gone: No such file"),
                         io::FileError);
    run.strategy.offload.optimizer = false;
    run.strategy.offload.activations = true;
    CHECK_THROWS_WITH_AS(Training<InvariantStream<f32>>(mesh, run), doctest::Contains("gone: No such file"),
                         io::FileError);
}

namespace {
/// Files of this rank may not grow beyond so many bytes, as long as it lives.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) {
        old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
        ::getrlimit(RLIMIT_FSIZE, &old_);
        rlimit limit = old_;
        limit.rlim_cur = bytes;
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    FileSizeLimit(FileSizeLimit const&) = delete;
    FileSizeLimit& operator=(FileSizeLimit const&) = delete;
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &old_);
        (void)std::signal(SIGXFSZ, old_handler_);
    }

  private:
    rlimit old_{};
    void (*old_handler_)(int) = nullptr;
};
} // namespace

TEST_CASE("a disk that has no room ends the run on all ranks, at its start and between steps") {
    using Stream = InvariantStream<f32>;
    OnMesh const mesh({.dp = world_size()});
    bool const is_last = world_rank() == world_size() - 1;
    for (auto const& sharding : {ZeroSharding{}, ZeroSharding{.stage = 3, .releases_gradients = true}}) {
        auto run = settings(sharding, model::AdamW{});
        test::Scratch const folder;
        run.strategy.offload = to(folder.path());
        {
            FileSizeLimit const limit(is_last ? 4096 : RLIM_INFINITY);
            CHECK_THROWS_WITH_AS(Training<Stream>(mesh, run), doctest::Contains("bytes for a file in"), io::FileError);
        }
        Training<Stream> training(mesh, run);
        (void)training.trainer.step(1);
        FileSizeLimit const limit(is_last ? 4096 : RLIM_INFINITY);
        auto const more = [&] { // a write of the last update may fail after its step
            for (int step = 2; step < 5; ++step) (void)training.trainer.step(step);
        };
        CHECK_THROWS_WITH_AS(more(), doctest::Contains("File too large"), io::FileError);
    }
    auto run = settings({}, model::AdamW{});
    change(run,
           [](auto& sizes) { sizes.experts = 4, sizes.layers = 8; }); // experts save indices, which must stay valid
    test::Scratch const folder;
    run.strategy.offload = {.activations = true, .folder = folder.path().string()};
    Training<Stream> training(mesh, run);
    FileSizeLimit const limit(is_last ? 4096 : RLIM_INFINITY);
    CHECK_THROWS_WITH_AS((void)training.trainer.step(1), doctest::Contains("File too large"), io::FileError);
}
