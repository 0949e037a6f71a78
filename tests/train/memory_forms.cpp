// ranks: 1 2 4 8
//
// What a rank holds at the allocator, and what it sends, as each stage of ZeRO shards: exactly the closed forms of
// Rajbhandari et al. 2020 (sections 5 and 7) and, of hybrid sharding, of MiCS (Zhang et al. 2022, section 3).
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/comm/choice.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/observe/counters.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/zero/store.hpp>

#include <support/on_mesh.hpp>
#include <support/pmpi_counter.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <type_traits>
#include <vector>

using namespace support;

namespace {

// Every buffer of these sizes, and an eighth of it, is a multiple of the allocator's 256 bytes.
constexpr double h = 1024, vocab = 32, layers = 3, heads = 2, kv_heads = 1, width = 16, ffn = 16, tokens = 64;
// Parameters of the units: the embedding, a block's branches, the head with its norm; and of all of them.
constexpr double embedding = vocab * h, attention = 2 * h * (heads + kv_heads) * width + h,
                 feed_forward = 3 * h * ffn + h, head = vocab * h + h;
constexpr double all = embedding + layers * (attention + feed_forward) + head;

/// Bytes by what they hold.
struct Held {
    double parameters = 0, gradients = 0, optimizer = 0, activations = 0;
    bool operator==(Held const&) const = default;
};
std::ostream& operator<<(std::ostream& out, Held const& x) {
    return out << "parameters " << std::int64_t(x.parameters) << " gradients " << std::int64_t(x.gradients)
               << " optimizer " << std::int64_t(x.optimizer) << " activations " << std::int64_t(x.activations);
}

/// Since it was made.
class Watch {
  public:
    Watch() {
        for (std::size_t i = 0; i < before_.size(); ++i) before_[i] = observe::counters().memory[i].bytes;
    }
    [[nodiscard]] Held now() const {
        return of([](observe::MemoryCount const& count) { return count.bytes; });
    }
    /// The most at once since the last restart().
    [[nodiscard]] Held peak() const {
        return of([](observe::MemoryCount const& count) { return count.peak; });
    }
    static void restart() {
        for (auto& count : observe::counters().memory) count.peak = count.bytes;
    }

  private:
    template <class F>
    [[nodiscard]] Held of(F const& f) const {
        auto const at = [&](observe::Memory kind) {
            auto const i = static_cast<std::size_t>(kind);
            return static_cast<double>(f(observe::counters().memory[i]) - before_[i]);
        };
        return {at(observe::Memory::parameters), at(observe::Memory::gradients), at(observe::Memory::optimizer),
                at(observe::Memory::activations)};
    }
    std::array<std::int64_t, observe::memory_names.size()> before_{};
};

/// The ranks along dp and ep, which all share out a dense model's sequences, and the neighbours among them that share a
/// copy of it; 0: all do.
struct Ranks {
    int dp = 1, ep = 1, shared = 0;

    [[nodiscard]] double shards() const { return shared > 0 ? shared : dp * ep; }
    [[nodiscard]] double copies() const { return dp * ep / shards(); }
};

/// What a reduce-scatter, or the all-gather back, of `whole` bytes sends from a rank.
struct Sent {
    double bytes = 0;
    void scatter(double whole, Ranks const& ranks) { bytes += whole * (ranks.shards() - 1) / ranks.shards(); }
    void reduce_copies(double shard, Ranks const& ranks) { bytes += 2 * shard * (ranks.copies() - 1) / ranks.copies(); }
};

/// @param recomputes all of each block, which is a unit then
template <class T>
void check(Ranks const& ranks, ZeroSharding sharding, bool recomputes = true) {
    using Stream = InvariantStream<T>;
    using Model = train::LanguageModel<T, Exec>;
    using Tokens = Layout<i32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>>>;
    sharding.ranks = ranks.shared;
    INFO("dp ", ranks.dp, " ep ", ranks.ep, " shared by ", ranks.shared, " stage ", sharding.stage, " keeps ",
         sharding.keeps_parameters, " accumulates ", sharding.accumulates_gradients, " bytes ", sizeof(T),
         recomputes ? " recomputes" : "");
    MeshShape const shape{.dp = ranks.dp, .ep = ranks.ep};
    OnMesh const mesh(shape, model::split_data(OnMesh::mesh(shape, 1), std::max(1, ranks.shared)));

    // Bytes of an element of parameters, gradients and optimizer state: two moments, and where T is not what they are
    // in, a master (K = 12 of mixed precision).
    double const p = sizeof(T), g = sizeof(accumulator_t<T>), k = std::is_same_v<T, accumulator_t<T>> ? 2 * g : 3 * g;
    double const n = ranks.shards();
    bool const shards_gradients = sharding.stage >= 2 && !sharding.accumulates_gradients;
    bool const gathers = sharding.stage == 3 && n > 1;
    double const stored = p * (sharding.stage == 3 ? all / n : all);
    double const gathered = gathers && sharding.keeps_parameters ? p * all : 0;
    double const optimizer = sharding.stage > 0 ? k * all / n : k * all;
    double const first_optimizer = optimizer * (k - 2 * g) / k; // the moments come with the first update

    Watch const watch;
    auto const described = model::decoder({.layers = static_cast<std::size_t>(layers),
                                           .hidden = static_cast<std::size_t>(h),
                                           .heads = static_cast<std::size_t>(heads),
                                           .kv_heads = static_cast<std::size_t>(kv_heads),
                                           .head_dim = static_cast<std::size_t>(width),
                                           .ffn = static_cast<std::size_t>(ffn),
                                           .vocab = static_cast<std::size_t>(vocab)});
    auto const sequences = static_cast<std::size_t>(mesh.shape.ranks());
    LayerSetup<Exec> const setup{.context = mesh.context,
                                 .hidden = described.hidden,
                                 .batch = sequences,
                                 .seq = static_cast<std::size_t>(tokens)};
    Model model({setup, Stream::value}, described, train::decoder_layers<T, Exec>(),
                {{.count = static_cast<std::size_t>(layers)}},
                {.kind = recomputes ? model::Recomputation::Kind::full : model::Recomputation::Kind::none});
    zero::ParameterStore<T, Exec> store(mesh.context, model, 1, sharding, 1);
    double const whole_gradients = sharding.stage < 2 ? g * all : 0; // for good
    // Each block has the positions, and sines and cosines for two factors of them; the store has the sum of squares.
    double const fine = std::exp2(std::ceil(std::log2(tokens) / 2)), coarse = std::ceil(tokens / fine);
    auto const block = [](double bytes) { return std::ceil(bytes / 256) * 256; }; // as the pool hands them out
    double const tables =
        layers * (block(4 * tokens) + 2 * block(2 * width * fine) + 2 * block(2 * width * coarse)) + 256;
    CHECK(watch.now() == Held{stored, whole_gradients, first_optimizer, tables});

    Tensor<Tokens, Exec> const text(mesh.context, {sequences, setup.seq});
    text.clear();
    double const data = tables + 4 * tokens;
    Pass<Exec> const pass{.context = mesh.context, .tokens = text.view(), .targets = text.view(), .loss_scale = 1};
    std::vector<Pass<Exec>> passes{pass, pass};
    passes.back().completes_gradients = true;
    // Recomputed blocks keep their inputs, the last norm its input and a number for each token, the head its input, the
    // logits and a number for each token.
    double const activations = p * tokens * h * (layers + 2) + p * tokens * vocab + 2 * 4 * tokens;
    typename Model::Saved saved;
    Held worst;
    auto const step = [&](std::int64_t number, bool settled) {
        double const state = settled ? optimizer : first_optimizer;
        store.clear_gradients();
        store.begin_updates(number, {});
        Watch::restart();
        for (std::size_t i = 0; i < passes.size(); ++i) {
            (void)model.forward(0, passes[i], {}, saved);
            auto held = watch.now();
            held.activations -= data;
            double const summed = i == 0 ? 0 : shards_gradients ? g * (all / n) : sharding.stage >= 2 ? g * all : 0;
            // The embedding is the last to be reduced: its gradients are still there, and where they go to.
            double const reducing = i > 0 && shards_gradients && mesh.shape.ranks() > 1 ? g * embedding : 0;
            CHECK(held == Held{stored + gathered, whole_gradients + summed + reducing, state,
                               recomputes ? activations : held.activations});
            (void)model.backward(0, passes[i], {}, saved);
        }
        worst = watch.peak();
        store.reduce_gradients();
        CHECK(watch.now().gradients == (shards_gradients ? g * all / n : sharding.stage < 2 || n == 1 ? g * all : 0));
        store.update(number, {});
        store.gather();
        store.drop_gathered();
        auto const held = watch.now();
        CHECK(held == Held{stored, whole_gradients, optimizer, data});
    };
    step(1, false);
    observe::ledger().clear();
    comm::forced_algorithm() = comm::Algorithm::mpi; // what is sent is seen behind the profiling interface
    pmpi::clear();
    step(2, true);
    comm::forced_algorithm() = comm::Algorithm::automatic;

    // The most at once. Parameters: a unit's, and those of the next, which arrive. Gradients: a unit's, and those of
    // the one before, which are being reduced to shards.
    static_assert(attention > feed_forward && feed_forward > std::max(embedding, head));
    double const unit = recomputes ? attention + feed_forward : attention;
    double const two_units = (recomputes ? 2 : 1) * (attention + feed_forward);
    CHECK(worst.parameters == stored + (gathers ? gathered > 0 ? gathered : p * two_units : 0));
    CHECK(worst.gradients == (sharding.stage < 2        ? g * all
                              : !shards_gradients       ? g * all
                              : mesh.shape.ranks() == 1 ? g * (all + two_units)
                                                        : g * (all / n + two_units + unit / n)));
    CHECK(worst.optimizer == optimizer);

    double const micro_batches = 2;
    Sent sent;
    if (sharding.stage == 0) {
        sent.scatter(2 * g * all, ranks); // an all-reduce
    } else {
        sent.scatter((shards_gradients ? micro_batches : 1) * g * all, ranks);
        sent.reduce_copies(g * all / n, ranks);
        // The embedding's backward pass does not read its table.
        sent.scatter(p * (sharding.stage < 3 || sharding.keeps_parameters
                              ? all
                              : micro_batches * (2 * (all - embedding) + embedding)),
                     ranks);
    }
    Ranks const flat{ranks.dp, ranks.ep};
    sent.scatter(2 * 8, flat); // the norm
    CHECK(observe::ledger().bytes("dp") == sent.bytes);
    CHECK(pmpi::count().bytes == sent.bytes);
}

std::vector<ZeroSharding> const shardings{{.stage = 0},
                                          {.stage = 1},
                                          {.stage = 2},
                                          {.stage = 3},
                                          {.stage = 2, .accumulates_gradients = true},
                                          {.stage = 3, .accumulates_gradients = true},
                                          {.stage = 3, .keeps_parameters = true},
                                          {.stage = 3, .keeps_parameters = true, .accumulates_gradients = true}};

} // namespace

TEST_CASE("what a rank holds and sends in each stage of ZeRO") {
    int const n = world_size();
    for (auto const& sharding : shardings) {
        check<f32>({.dp = n}, sharding);
        if (n <= 4) {
            check<f32>({.dp = n}, sharding, false);
            check<bf16>({.dp = n}, sharding);
        }
        if (n > 2) check<f32>({.dp = n / 2, .ep = 2}, sharding);
    }
}

TEST_CASE("what a rank holds and sends where neighbours share a copy") {
    int const n = world_size();
    if (n < 4) return;
    for (auto const& sharding : shardings) {
        if (sharding.stage == 0) continue;
        check<f32>({.dp = n, .shared = n / 2}, sharding); // 2 x 4 of 8 ranks
        if (n == 4) check<f32>({.dp = n, .shared = n / 2}, sharding, false);
        check<bf16>({.dp = n, .shared = 2}, sharding);
        if (n == 8) check<f32>({.dp = 4, .ep = 2, .shared = 2}, sharding);
    }
}
