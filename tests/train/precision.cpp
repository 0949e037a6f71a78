// ranks: 1 2 4
//
// Gradients that travel, and optimizer state that is kept, in fewer bits: what is summed, what is sent, what is held,
// and that runs are the same bits however the state is sharded, saved or offloaded.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/layout/ml.hpp>
#include <pentad/train/checkpoint_restore.hpp>
#include <pentad/train/checkpoint_saver.hpp>
#include <pentad/train/planned.hpp>
#include <pentad/train/trainer.hpp>
#include <pentad/zero/reduction.hpp>

#include <io/scratch.hpp>
#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

using namespace support;

namespace {

using f32s = std::vector<f32>;

/// Summands of a rank, the same wherever they are asked for.
f32s summands(int rank, int step, std::size_t n) {
    f32s x(n);
    for (std::size_t i = 0; i < n; ++i)
        x[i] = static_cast<f32>(random::normal(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank), i));
    return x;
}
template <class Layout>
Tensor<Layout, Exec> tensor_of(Context<Exec> const& context, f32s const& values) {
    Tensor<Layout, Exec> const tensor(context, {values.size()});
    tensor.set(values.data());
    return tensor;
}
f32s values_of(Context<Exec> const& context, pentad::detail::Shard<f32, Exec> shard) {
    f32s values(shard.size());
    Tensor<zero::Whole<f32>, Exec>::unchecked(context, {shard.size()}, std::move(shard.block), shard.data)
        .get(values.data());
    return values;
}
f32s rounded(Context<Exec> const& context, f32s const& values, Compact element, f32s* errors = nullptr) {
    memory::Buffer<typename Exec::memory_space> const memory =
        context.take(compact_bytes(element, values.size(), 4), observe::Memory::activations);
    zero::CompactValues const kept(element, true, values.size(), memory.data());
    auto const x = tensor_of<zero::Whole<f32>>(context, values);
    auto const residual = tensor_of<zero::Whole<f32>>(context, errors ? *errors : f32s(values.size(), 0));
    zero::compress<f32>(context.exec(), x.flat(), kept, {}, errors ? residual.data() : nullptr);
    if (errors) residual.get(errors->data());
    zero::expand<f32>(context.exec(), kept, x.flat());
    f32s result(values.size());
    x.get(result.data());
    return result;
}

train::RunSettings settings(std::size_t stage, model::Precision const& precision) {
    return {.model = model::decoder({.layers = 2, .hidden = 32, .heads = 4, .kv_heads = 2, .ffn = 48, .vocab = 51}),
            .strategy = {.batch = 8,
                         .micro_batches = 2,
                         .seq = 16,
                         .sharding = {.stage = static_cast<int>(stage)},
                         .bucket_elements = 3000,
                         .precision = precision},
            .steps = 30,
            .learning_rate = 3e-3,
            .warmup = 2};
}
std::vector<model::Precision> precisions() {
    return {{.reduce = Compact::bf16},  {.reduce = Compact::fp8},
            {.moments = Compact::bf16}, {.moments = Compact::fp8},
            {.keeps_masters = false},   {.reduce = Compact::fp8, .moments = Compact::fp8, .keeps_masters = false}};
}

} // namespace

TEST_CASE("a reduction in fewer bits is the sum of rounded summands, on all ranks the same") {
    OnMesh const mesh({.dp = world_size()});
    auto const& context = mesh.context;
    auto const ranks = static_cast<std::size_t>(world_size());
    for (auto const element : {Compact::bf16, Compact::fp8})
        for (bool const scatters : {true, false})
            for (std::size_t const n : {std::size_t{4}, std::size_t{1001}, std::size_t{2048}}) {
                std::size_t const part = (n + ranks - 1) / ranks, all = scatters ? part * ranks : n;
                INFO("element ", compact_names[static_cast<std::size_t>(element)], " scatters ", scatters, " n ", all);
                LayoutValue from = zero::Whole<f32>::value, to = from;
                from.partial.push(dp::name);
                if (scatters) to.dimensions[0].axes.push(dp::name);
                auto const plan = make_plan(from, to);
                zero::RoundingErrors<f32, Exec> errors;
                std::vector<f32s> kept(ranks, f32s(all, 0));
                std::vector<f32s> second(ranks);
                for (int step = 1; step <= 3; ++step) {
                    // Each rank rounds its summand of each part by itself.
                    f32s expected;
                    for (std::size_t k = 0; k < ranks; ++k) {
                        std::size_t const first = std::min(all, k * part), last = std::min(all, first + part);
                        f32s sum(last - first, 0);
                        for (std::size_t r = 0; r < ranks; ++r) {
                            auto const x = summands(static_cast<int>(r), step, all);
                            auto const from_part = x.begin() + static_cast<std::ptrdiff_t>(first);
                            f32s own(from_part, x.begin() + static_cast<std::ptrdiff_t>(last));
                            auto const error_part = kept[r].begin() + static_cast<std::ptrdiff_t>(first);
                            f32s error(error_part, kept[r].begin() + static_cast<std::ptrdiff_t>(last));
                            auto const sent =
                                rounded(context, own, element, element == Compact::fp8 ? &error : nullptr);
                            std::copy(error.begin(), error.end(), error_part);
                            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = r == 0 ? sent[i] : sum[i] + sent[i];
                        }
                        if (!scatters) {
                            second[k].resize(sum.size(), 0);
                            sum = rounded(context, sum, element, element == Compact::fp8 ? &second[k] : nullptr);
                        }
                        if (!scatters || k == static_cast<std::size_t>(context.communicators().world().rank()))
                            expected.insert(expected.end(), sum.begin(), sum.end());
                    }
                    if (ranks == 1) expected = summands(0, step, all); // nothing travels
                    auto own = tensor_of<zero::Whole<f32>>(context,
                                                           summands(context.communicators().world().rank(), step, all));
                    auto shard = pentad::detail::shard_of(own);
                    own = {};
                    zero::StartedReduction<f32, Exec> reduction(context, plan, std::move(shard), element, errors);
                    if (step == 2) reduction.advance();
                    CHECK(values_of(context, reduction.wait()) == expected);
                }
            }
}

TEST_CASE("a run in fewer bits learns as one in full precision does, and sends and holds what is planned") {
    using Stream = InvariantStream<bf16>;
    OnMesh const mesh({.dp = world_size()});
    std::map<std::size_t, double> full;
    for (std::size_t const stage : {0u, 1u, 2u, 3u}) {
        std::vector<model::Precision> all{{}};
        for (auto const& one : precisions()) all.push_back(one);
        for (auto const& precision : all) {
            INFO("ZeRO ", stage, " travel ", static_cast<int>(precision.reduce), " moments ",
                 static_cast<int>(precision.moments), " masters ", precision.keeps_masters);
            auto const run = settings(stage, precision);
            Training<Stream> training(mesh, run);
            auto const numbers = steps(training, 1, 30);
            double const last = numbers[numbers.size() - 2];
            CHECK(numbers[0] > 3.8);
            if (precision == model::Precision{}) full[stage] = last;
            CHECK(last < 0.85 * numbers[0]);
            CHECK(std::abs(last - full[stage]) < 0.03 * full[stage]);

            auto const held = observe::counters()[observe::Memory::optimizer].bytes;
            auto c = support::on_mesh({.dp = world_size()}, run.strategy);
            c.element = planner::Element::bf16;
            auto const planned = train::planned_memory(
                train::planned_model(run.model), c, pipeline::generate("1f1b", {.ranks = 1, .micro_batches = 2}), {2});
            // Each of the buckets' buffers takes whole 256 bytes.
            CHECK(std::abs(static_cast<double>(held) - planned[0].optimizer) < 0.02 * planned[0].optimizer + 8192);
        }
    }
}

TEST_CASE("bf16 weights without masters are the same bits on all copies and however they are sharded") {
    using Stream = InvariantStream<bf16>;
    OnMesh const mesh({.dp = world_size()});
    if (world_size() > 2) return; // sums of two are the same in any order
    std::vector<double> expected;
    for (std::size_t const stage : {0u, 1u, 2u, 3u}) {
        auto run = settings(stage, {.keeps_masters = false});
        run.strategy.micro_batches =
            1;        // otherwise the order of the sum over micro-batches and ranks depends on the stage
        run.clip = 0; // as does that of the squared norm
        Training<Stream> training(mesh, run);
        auto const numbers = steps(training, 1, 8);
        if (stage == 0) expected = numbers;
        for (std::size_t i = 0; i < numbers.size(); i += 2) CHECK(numbers[i] == expected[i]);
    }
}

TEST_CASE("updates below half of the last place of bf16 are made on average, without masters") {
    OnMesh const mesh({.dp = world_size()});
    auto const& context = mesh.context;
    std::size_t const n = 4096;
    using Optimizer = zero::Optimizer<zero::Whole<f32>, bf16, Exec>;
    zero::WeightRounding rounding{1, 0, {{0, n, 0, 77}}};
    Optimizer optimizer(context, n, model::Sgd{.momentum = 0}, {.keeps_masters = false}, rounding);
    Tensor<zero::Whole<bf16>, Exec> const weights(context, {n});
    std::vector<bf16> values(n, bf16(1.0F));
    weights.set(values.data());
    for (int step = 1; step <= 100; ++step)
        optimizer.update(weights, tensor_of<zero::Whole<f32>>(context, f32s(n, 1.0F)), step, {.learning_rate = 1e-3},
                         0);
    weights.get(values.data());
    double mean = 0;
    for (auto const value : values) mean += static_cast<double>(static_cast<float>(value)) / static_cast<double>(n);
    CHECK(std::abs(mean - 0.9) < 0.002); // to nearest it would be 1: half of the last place is 0.002
}

TEST_CASE("the same bits whether or not the state is shown, restored or offloaded on the way") {
    using Stream = InvariantStream<bf16>;
    OnMesh const mesh({.dp = world_size()});
    test::Scratch const folder;
    for (auto const& optimizer : {model::Optimizer(model::AdamW{}), model::Optimizer(model::Muon{})})
        for (auto const& precision : precisions()) {
            INFO("optimizer ", optimizer.index(), " travel ", static_cast<int>(precision.reduce), " moments ",
                 static_cast<int>(precision.moments), " masters ", precision.keeps_masters);
            auto run = settings(2, precision);
            run.strategy.optimizer = optimizer;
            Training<Stream> undisturbed(mesh, run);
            auto const expected = steps(undisturbed, 1, 6);

            Training<Stream> shown(mesh, run);
            auto numbers = steps(shown, 1, 3);
            shown.trainer.store().for_each_state(false, false, [](auto&&...) {});
            shown.trainer.store().for_each_state(false, true, [](auto&&...) {}); // rounds what has been rounded
            shown.trainer.store().restore();
            auto more = steps(shown, 4, 3);
            numbers.insert(numbers.end(), more.begin(), more.end());
            CHECK(numbers == expected);

            run.strategy.offload = {.optimizer = true, .folder = folder.path().string()};
            Training<Stream> offloaded(mesh, run);
            CHECK(steps(offloaded, 1, 6) == expected);
        }
}
