// ranks: 1
//
// The account of a part of a model, by a dry run, beside the planner's own, which says the same in formulas.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/planner/account.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/part_account.hpp>
#include <pentad/train/planned.hpp>

#include <support/on_mesh.hpp>
#include <support/training.hpp>

using namespace support;

namespace {

struct Sums {
    double products = 0, attention = 0;
    planner::PerAxis sent;
};

template <class Stream>
void compare(MeshShape const& m, train::RunSettings const& settings, int rank, bool sequence_parallel) {
    observe::DryRun run;
    auto const mesh = OnMesh::mesh(m, static_cast<int>(sizes(settings.model).kv_heads));
    comm::Communicators communicators(mesh, rank, mesh.size());
    Context<Exec> const context(communicators);
    Setup<Exec> const setup{
        context,      settings.model.hidden, settings.model.norm_epsilon, settings.batch / settings.micro_batches,
        settings.seq, settings.order,        settings.context_strategy};
    auto const registry = train::decoder_layers<Stream, Exec>();

    auto const model = train::planned_model(settings.model);
    planner::Configuration c{.dp = m.dp, .pp = m.pp, .ep = m.ep, .cp = m.cp, .tp = m.tp};
    c.sequence_parallel = sequence_parallel;
    c.element = planner::Element::f32;
    c = train::planned_configuration(settings, c);
    planner::Account const planned(model, c);

    std::size_t const last = settings.model.blocks.size() - 1;
    for (int part = 0; part < 3; ++part) { // embedding, the last block, head
        train::StageLayers const layers{0, part == 1 ? last : 0, part == 1 ? 1u : 0u, part == 0, part == 2};
        auto const account = train::account_of<Stream, Exec>(setup, settings.model, registry, layers, false);
        auto const& expected = *planned.parts()[part == 0                                            ? 0
                                                : part == 2                                          ? 3
                                                : model.has_experts(static_cast<std::int64_t>(last)) ? 2
                                                                                                     : 1];
        Sums dry, formula;
        for (auto const* pass : {&account.forward, &account.backward_data, &account.backward_weight})
            for (auto const& x : pass->work) {
                if (x.kind == observe::WorkKind::product) dry.products += x.flops;
                if (x.kind == observe::WorkKind::attention) dry.attention += x.flops;
                dry.sent.add(x.cost);
            }
        for (auto const& x : expected.operations) {
            if (x.kind == planner::Kind::product) formula.products += x.flops;
            if (x.kind == planner::Kind::attention) formula.attention += x.flops;
        }
        formula.sent = expected.sent;
        INFO(m.text(), " rank ", rank, " part ", part, " sp ", sequence_parallel);
        CHECK(dry.products == doctest::Approx(formula.products).epsilon(1e-12));
        // Formulas count half of the square, which is without half of the diagonal.
        CHECK(dry.attention == doctest::Approx(formula.attention).epsilon(0.01));
        for (auto const axis : planner::axis_order)
            CHECK_MESSAGE(dry.sent[axis] == doctest::Approx(formula.sent[axis]).epsilon(1e-12), axis);
        double weights = 0, elements = 0;
        for (auto const& weight : expected.weights) weights += weight.elements;
        for (auto const& parameter : account.parameters) elements += static_cast<double>(parameter.elements);
        CHECK(elements == weights);
        // The formula of experts lacks what each of them gave, which the backward pass of the weighted sum needs.
        bool const is_routed = part == 1 && model.has_experts(static_cast<std::int64_t>(last));
        CHECK(static_cast<double>(account.saved) == doctest::Approx(expected.saved).epsilon(is_routed ? 0.12 : 1e-3));
        CHECK(static_cast<double>(account.left) == doctest::Approx(expected.left).epsilon(is_routed ? 0.05 : 1e-3));
        CHECK(account.forward.peak >= account.saved);
    }
}

} // namespace

TEST_CASE("products, bytes sent, parameters and memory as the planner's formulas have them") {
    train::RunSettings dense{
        .model = model::decoder({.layers = 8, .hidden = 128, .heads = 8, .kv_heads = 4, .ffn = 352, .vocab = 512}),
        .batch = 64,
        .micro_batches = 4,
        .seq = 256};
    auto routed = dense;
    change(routed, [](auto& sizes) { sizes.experts = 8, sizes.top_k = 2, sizes.moe_every = 2; });
    for (auto const& m : {MeshShape{}, MeshShape{.dp = 4}, MeshShape{.tp = 4}, MeshShape{.tp = 8}, MeshShape{.cp = 4},
                          MeshShape{.dp = 2, .cp = 2, .tp = 2}}) {
        compare<InvariantStream<f32>>(m, dense, m.ranks() - 1, false);
        if (m.tp > 1) compare<SequenceStream<f32>>(m, dense, m.ranks() - 1, true);
    }
    for (auto const& m : {MeshShape{}, MeshShape{.ep = 4}, MeshShape{.dp = 2, .ep = 2, .tp = 2}})
        compare<InvariantStream<f32>>(m, routed, 0, false);
}
