// ranks: 1
//
// The parts of a model that the planner puts together, each run dry once and for two ranks along dp, beside dry runs on
// the very mesh; and beside the closed forms of what products compute and what is sent.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/model/mixers.hpp>
#include <pentad/planner/account.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/part_account.hpp>
#include <pentad/train/planned.hpp>

#include <formulas/experts.hpp>
#include <support/on_mesh.hpp>
#include <support/training.hpp>

#include <array>

using namespace support;

namespace {

template <class Stream>
void compare(MeshShape const& m, train::RunSettings const& settings, bool sequence_parallel) {
    auto const model = train::planned_model(settings.model);
    auto c = support::on_mesh(m, settings.strategy);
    c.block.sequence_parallel = sequence_parallel;
    c.element = planner::Element::f32;
    planner::Account const planned(model, c);

    observe::DryRun run;
    auto const mesh = OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads));
    comm::Communicators communicators(mesh, m.ranks() - 1, mesh.size());
    Context<Exec> const context(communicators);
    LayerSetup<Exec> const setup{
        .context = context,
        .hidden = settings.model.hidden,
        .norm_epsilon = settings.model.norm_epsilon,
        .batch = static_cast<std::size_t>(settings.strategy.batch / settings.strategy.micro_batches),
        .seq = static_cast<std::size_t>(settings.strategy.seq),
        .block = settings.strategy.block};
    auto const registry = train::decoder_layers<f32, Exec>();
    for (std::size_t part = 0; part < model.kinds() + 2; ++part) { // embedding, a block of each kind, head
        bool const is_first = part == 0, is_last = part == model.kinds() + 1, is_block = !is_first && !is_last;
        std::size_t block = 0;
        while (is_block && model.kind_of(static_cast<std::int64_t>(block)) != part - 1) ++block;
        train::StageLayers const layers{0, block, is_block ? 1u : 0u, is_first, is_last};
        auto const account = train::account_of({setup, Stream::value}, settings.model, registry, layers,
                                               settings.strategy.recompute.of(0));
        auto const& expected = planned.parts()[part];
        INFO(m.text(), " part ", part, " sp ", sequence_parallel);
        planner::PerAxis sent;
        double products = 0, attention = 0, planned_products = 0, planned_attention = 0;
        for (auto const* pass : {&account.forward, &account.backward_data, &account.backward_weight})
            for (auto const& x : pass->work) {
                if (x.kind == observe::WorkKind::product) products += x.flops;
                if (x.kind == observe::WorkKind::attention) attention += x.flops;
                sent.add(x.cost);
            }
        for (auto const* pass : expected.passes()) {
            planned_products += pass->product_flops;
            planned_attention += pass->attention_flops;
        }
        CHECK(products == planned_products);
        // Of several pieces of a sequence in one order the last rank sees the most, and the planner's rank the least.
        if (m.cp == 1 || settings.strategy.block.zigzag)
            CHECK(attention == doctest::Approx(planned_attention).epsilon(1e-12));
        for (auto const axis : pentad::view_axes)
            CHECK_MESSAGE(expected.sent[axis] == doctest::Approx(sent[axis]).epsilon(1e-12), axis);
        double elements = 0, planned_elements = 0;
        for (auto const& parameter : account.parameters) elements += parameter.elements;
        expected.for_each_parameter([&](auto const& parameter) { planned_elements += parameter.elements; });
        CHECK(elements == planned_elements);
        CHECK(account.saved == expected.sums->memory.saved);
        CHECK(account.left == expected.sums->memory.left);
    }
}

train::RunSettings dense() {
    return {.model = model::decoder({.layers = 8, .hidden = 128, .heads = 8, .kv_heads = 4, .ffn = 352, .vocab = 512}),
            .strategy = {.batch = 64, .micro_batches = 4, .seq = 256}};
}

} // namespace

TEST_CASE("a part that was run dry for two ranks along dp is that of any number") {
    auto run = dense();
    run.strategy.block.zigzag = true;
    auto routed = run;
    change(routed, [](auto& sizes) { sizes.experts = 8, sizes.top_k = 2, sizes.moe_every = 2; });
    for (auto const& m : {MeshShape{}, MeshShape{.dp = 4}, MeshShape{.tp = 4}, MeshShape{.tp = 8}, MeshShape{.cp = 4},
                          MeshShape{.dp = 2, .cp = 2, .tp = 2}}) {
        compare<InvariantStream<f32>>(m, run, false);
        if (m.tp > 1) compare<SequenceStream<f32>>(m, run, true);
    }
    for (auto const& m : {MeshShape{}, MeshShape{.ep = 4}, MeshShape{.dp = 8, .ep = 2, .tp = 2}}) {
        compare<InvariantStream<f32>>(m, routed, false);
        if (m.tp > 1) compare<SequenceStream<f32>>(m, routed, true);
    }
    run.strategy.recompute = {.kind = model::Recomputation::Kind::full};
    compare<InvariantStream<f32>>({.dp = 4, .tp = 2}, run, false);
}

TEST_CASE("the account of a part that says that it is not on the axes of experts does not depend on them") {
    auto run = dense();
    run.model.blocks.clear();
    for (model::Part const& part : std::initializer_list<model::Part>{
             model::Attention{.heads = 8, .kv_heads = 4, .head_dim = 16},
             model::LatentAttention{.heads = 8, .head_dim = 16, .rope_dim = 8, .value_dim = 16, .kv_rank = 32},
             model::Mamba2{.heads = 8, .head_dim = 16, .state = 8, .chunk = 16},
             model::LinearAttention{.heads = 8, .head_dim = 16, .chunk = 16}, model::GatedMlp{.width = 352},
             model::PlainMlp{.width = 352}, model::Experts{.count = 8, .top_k = 2, .width = 64}}) {
        CHECK(part.is_on_expert_axes() == (part.as<model::Experts>() != nullptr));
        run.model.blocks.push_back({{{part, "part", "norm"}}});
    }
    for (auto const& m : {MeshShape{.ep = 4}, MeshShape{.dp = 4, .ep = 2, .tp = 2}})
        compare<InvariantStream<f32>>(m, run, false);
}

TEST_CASE("a dense block in closed form") {
    auto const run = dense();
    auto const model = train::planned_model(run.model);
    pentad::Strategy const c{.tp = 4, .batch = 4, .seq = 256, .element = planner::Element::f32};
    planner::Account const account(model, c);
    auto const& block = account.parts()[1];
    double const tokens = 4 * 256, h = 128, ffn = 352;
    double const weights = 2 * h * h + 2 * h * 64 + 3 * h * ffn; // kv heads are half of the heads
    auto const& sums = *block.sums;
    for (auto const* pass : {&sums.forward, &sums.backward_data, &sums.backward_weight})
        CHECK(pass->product_flops == 2 * tokens * weights / 4);
    CHECK(sums.forward.attention_flops == 4 * 4 * 256 * 257 / 2 * h / 4); // pairs x two products
    // Two all-reduces of the stream forward, and two backward.
    double const stream = tokens * h * 4;
    CHECK(block.traffic[0][planner::traffic_index("tp")].bytes == 2 * 2 * stream * 3 / 4);
    CHECK(block.sent["tp"] == 4 * 2 * stream * 3 / 4);
    CHECK(block.traffic[0][planner::traffic_index("tp")].rounds == 2 * 2 * 3);
    CHECK(account.stream() == stream);
}

TEST_CASE("selective recomputation does not keep what lies between an MLP's products, and makes it again") {
    auto const run = dense();
    auto const model = train::planned_model(run.model);
    pentad::Strategy c{.batch = 1, .seq = 256, .element = planner::Element::f32};
    auto const kept = *planner::Account(model, c).parts()[1].sums;
    c.recompute = {.kind = model::Recomputation::Kind::selective};
    auto const made = *planner::Account(model, c).parts()[1].sums;
    CHECK(kept.memory.saved - made.memory.saved == 256 * 352 * 4);
    CHECK(made.backward_data.pass_bytes - kept.backward_data.pass_bytes == 3 * 256 * 352 * 4);
    CHECK(made.forward.pass_bytes == kept.forward.pass_bytes);
    c.recompute = {.kind = model::Recomputation::Kind::full};
    auto const full = *planner::Account(model, c).parts()[1].sums;
    CHECK(full.memory.saved == 256 * 128 * 4);
    CHECK(full.backward_data.product_flops == kept.backward_data.product_flops + kept.forward.product_flops);
}

TEST_CASE("experts out of balance come with more rows from other ranks") {
    auto model =
        train::planned_model(model::decoder({.layers = 1, .hidden = 64, .ffn = 128, .experts = 8, .top_k = 2}));
    pentad::Strategy const c{.ep = 4, .batch = 4, .seq = 512, .element = planner::Element::f32};
    auto const even = planner::Account(model, c).parts()[1].sums->forward.product_flops;
    model.imbalance = 1.5;
    auto const uneven = planner::Account(model, c).parts()[1].sums->forward.product_flops;
    double const rows = 512 * 2, per_row = 3 * 2 * 64 * 128;
    CHECK(uneven - even == doctest::Approx(0.5 * rows * per_row).epsilon(1e-2));
}

TEST_CASE(
    "with as many tokens a rank, a mixer without attention computes and sends the same on any number of ranks of cp") {
    auto const decoder = model::decoder({.layers = 1, .hidden = 128, .heads = 8, .kv_heads = 8, .ffn = 352});
    constexpr std::size_t own_tokens = 256;
    for (auto const mixer : {model::Mixer::mamba2, model::Mixer::linear_attention}) {
        auto const model = model::with_mixers(
            decoder, {mixer}, {.heads = 8, .head_dim = 32, .state = 16, .groups = 2, .norm_groups = 1, .chunk = 64},
            {.heads = 8, .head_dim = 16, .chunk = 64});
        double flops_alone = 0, flops_beside_others = 0, most_sent = 0;
        for (int const ranks : {1, 2, 4, 8})
            for (int rank = 0; rank < ranks; ++rank) {
                observe::DryRun run;
                MeshShape const m{.cp = ranks};
                auto const mesh = OnMesh::mesh(m, 0);
                comm::Communicators communicators(mesh, rank, mesh.size());
                Context<Exec> const context(communicators);
                LayerSetup<Exec> const setup{.context = context,
                                             .hidden = model.hidden,
                                             .batch = 1,
                                             .seq = own_tokens * static_cast<std::size_t>(ranks)};
                auto const registry = train::decoder_layers<f32, Exec>();
                auto const account = train::account_of({setup, InvariantStream<f32>::value}, model, registry,
                                                       train::StageLayers{0, 0, 1, false, false}, {});
                double flops = 0, sent = 0;
                for (auto const* pass : {&account.forward, &account.backward_data, &account.backward_weight})
                    for (auto const& work : pass->work) {
                        if (work.kind != observe::WorkKind::exchange) flops += work.flops;
                        sent += work.cost.on("cp");
                    }
                CAPTURE(ranks);
                CAPTURE(rank);
                if (ranks == 1) flops_alone = flops;
                if (ranks == 2 && rank == 0) flops_beside_others = flops;
                // The states that a rank's tokens leave from zero are computed first, for the ranks behind it.
                if (ranks > 1) CHECK(flops == flops_beside_others);
                CHECK(flops <= 1.02 * flops_alone);
                // The first rank has nobody to send to backward, the last nobody forward.
                if (rank == 1 && ranks == 4) most_sent = sent;
                if (ranks == 1) CHECK(sent == 0);
                if (ranks >= 4 && rank > 0 && rank + 1 < ranks) CHECK(sent == most_sent);
                if (ranks == 8) CHECK(sent <= most_sent);
            }
        CHECK(most_sent > 0);
    }
}

TEST_CASE("ranks of tp send each token once to ep, gather what arrived over etp, and sum no output over tp") {
    auto const model = model::decoder({.layers = 1, .hidden = 64, .heads = 8, .ffn = 128, .experts = 16, .top_k = 2});
    using Stream = SequenceStream<f32>;
    auto const registry = train::decoder_layers<f32, Exec>();
    // Of 2 ranks of dp and 4 of tp: the width over tp, and whole experts on all.
    for (auto const on : {model::ExpertMesh{2, 4}, model::ExpertMesh{8, 1}}) {
        CAPTURE(on.ep);
        observe::DryRun run;
        auto const mesh = OnMesh::mesh({.dp = 2, .tp = 4, .experts = on}, 0);
        comm::Communicators communicators(mesh, 0, mesh.size());
        Context<Exec> const context(communicators);
        LayerSetup<Exec> const setup{.context = context, .hidden = model.hidden, .batch = 4, .seq = 64};
        auto const account =
            train::account_of({setup, Stream::value}, model, registry, train::StageLayers{0, 0, 1, false, false}, {});
        // 32 tokens on each rank.
        double const own = 4 * 64 / 8.0, chosen = planner::mean_groups_of_a_token({16, on.ep, 2}),
                     arrived = own * chosen, row = 64 * sizeof(f32), word = sizeof(f32);
        for (auto const* pass : {&account.forward, &account.backward_data}) {
            bool const is_forward = pass == &account.forward;
            double rows = 0, to_ep = 0, to_etp = 0, summed = 0;
            for (auto const& work : pass->work) {
                bool const is_of_experts = work.scope == "experts forward" || work.scope == "experts backward";
                if (!is_of_experts || work.kind != observe::WorkKind::exchange) continue;
                if (work.cost.axes[0] == ep::name) rows += work.rows;
                (work.cost.axes[0] == ep::name    ? to_ep
                 : work.cost.axes[0] == etp::name ? to_etp
                                                  : summed) += work.cost.total();
            }
            double const sent = rows / 3;
            CHECK(std::abs(sent - arrived * (on.ep - 1) / on.ep) < 1);
            // x goes with 2 choices and 2 weights, and y comes back; dy goes, and dx comes back with 2 gradients.
            CHECK(to_ep == sent * (2 * row + (is_forward ? 4 : 2) * word) + (is_forward ? 8.0 * (on.ep - 1) : 0));
            double const others = on.etp - 1.0,
                         here = (to_etp - (is_forward ? 8 * others : 0)) / (2 * row + (is_forward ? 4 : 2) * word);
            CHECK(std::abs(here - others * arrived) <= others);
            CHECK(here == std::round(here));
            CHECK(summed == doctest::Approx(is_forward ? 2 * 7.0 / 8 * 8 * (2 * 16 + 1) : 0).epsilon(1e-12));
        }
        for (auto const& parameter : account.parameters)
            if (parameter.sharded.contains("ep")) CHECK(parameter.elements == 64.0 * 128 * 16 / 8);
    }
}
