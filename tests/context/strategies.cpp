// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/all_gather.hpp>
#include <pentad/context/ring.hpp>
#include <pentad/context/selected.hpp>
#include <pentad/layers/attention.hpp>
#include <pentad/layout/ml.hpp>

#include <formulas/context.hpp>
#include <support/layer_check.hpp>

#include <type_traits>
#include <utility>

using namespace support;

namespace {

constexpr std::size_t sequences = 2, length = 24, query_heads = 4, key_heads = 2, dim = 8;

struct Result {
    Whole output, dquery, dkey, dvalue, dsinks;
};

/// Queries, keys and values whose scores grow with the position, so that every block of keys brings a larger maximum
/// than those before it, rounded to T.
template <class T>
Arrays inputs(std::size_t query_count = query_heads, std::size_t key_count = key_heads) {
    Arrays arrays{{"query", drawn({sequences, length, query_count, dim}, "query")},
                  {"key", drawn({sequences, length, key_count, dim}, "key")},
                  {"value", drawn({sequences, length, key_count, dim}, "value")},
                  {"dy", drawn({sequences, length, query_count, dim}, "dy")},
                  {"sinks", drawn({query_count}, "sinks")}};
    auto& key = arrays["key"].values;
    for (std::size_t i = 0; i < key.size(); ++i)
        key[i] *= 1 + 0.1 * static_cast<double>(i / (key_count * dim) % length);
    for (auto& [name, whole] : arrays)
        for (auto& value : whole.values) value = as_double(T(static_cast<accumulator_t<T>>(value)));
    return arrays;
}

/// What attention sees: a sight, and documents that a token of 0 ends; and what its scores are.
struct Seen {
    Sight sight{};
    std::vector<i32> tokens{}; ///< [sequences, length]; none: one document
    model::Scores scores{};

    [[nodiscard]] bool sees(std::size_t sequence, std::size_t query, std::size_t key) const {
        std::size_t const first = std::min(query, key), last = std::max(query, key);
        if ((sight.causal && key > query) || (sight.window > 0 && last - first >= sight.window)) return false;
        auto const at = [&](std::size_t i) {
            return tokens.begin() + static_cast<std::ptrdiff_t>(sequence * length + i);
        };
        return tokens.empty() || std::find(at(first), at(last), 0) == at(last);
    }
};

/// A map for the documents, dealt as given.
struct Mapped {
    std::optional<Documents> documents;
    Tensor<Layout<i32, Dims<Dim<batch>, Dim<seq>>>, Exec> begins, ends;
    std::vector<std::vector<Segment>> runs;
    SequenceMap<Exec> map;

    Mapped(Context<Exec> const& context, Seen const& seen, DealtSequence const& dealt)
        : begins(context, {sequences, length}), ends(context, {sequences, length}) {
        for (std::size_t shard = 0; shard < dealt.shards().shards(); ++shard)
            runs.push_back(dealt.shards().segments(shard));
        map.shards = &runs;
        if (seen.tokens.empty()) return;
        documents.emplace(seen.tokens, length, 0);
        begins.set(documents->begins().data());
        ends.set(documents->ends().data());
        map.documents = &*documents;
        map.begins = begins.view();
        map.ends = ends.view();
    }
};

template <class T, class Strategy>
Result attend(OnMesh const& mesh, Dealing const& dealing, Arrays const& arrays, Seen const& seen = {}) {
    using Layer = typename Attention<Strategy>::template on<InvariantStream<T>, Exec>;
    using Query = typename Layer::Query;
    using Key = typename Layer::Key;
    LayerSetup<Exec> const setup{.context = mesh.context,
                                 .batch = sequences,
                                 .seq = length,
                                 .block = {.context = dealing.strategy, .zigzag = dealing.order == Order::zigzag}};
    typename Layer::StrategyOn const strategy(setup, {.head_dim = dim, .sight = seen.sight, .scores = seen.scores});
    typename Layer::StrategyOn::Saved saved;
    Mapped const mapped(mesh.context, seen, dealing.of(mesh.context.communicators(), length));
    typename Layer::StrategyOn::Part pass{.map = &mapped.map};
    if (seen.scores.sinks) pass.sinks = shard<sinks_t<Query>>(mesh, arrays.at("sinks"), dealing);
    Result result;
    auto const output =
        strategy.forward(shard<Query>(mesh, arrays.at("query"), dealing), shard<Key>(mesh, arrays.at("key"), dealing),
                         shard<Key>(mesh, arrays.at("value"), dealing), saved, pass);
    result.output = gather(output, dealing);
    strategy.drop_output(saved);
    CHECK(worst(gather(strategy.output_again(saved, pass), dealing).values, result.output.values) == 0);
    auto const dsinks = strategy.backward(
        saved, output, shard<dual_t<Query>>(mesh, arrays.at("dy"), dealing),
        [&](auto dq, auto dk, auto dv) {
            result.dquery = gather(dq, dealing);
            result.dkey = gather(dk, dealing);
            result.dvalue = gather(dv, dealing);
        },
        pass);
    CHECK(dsinks.empty() != seen.scores.sinks);
    if (seen.scores.sinks) result.dsinks = gather(dsinks, dealing);
    return result;
}

/// @param query_count, key_count heads
template <class T, class Strategy>
void check_strategy(double tolerance, ContextStrategy kind = ContextStrategy::ring,
                    std::size_t query_count = query_heads, std::size_t key_count = key_heads, Seen const& seen = {}) {
    Arrays const arrays = inputs<T>(query_count, key_count);
    Result const alone = attend<f64, context::Ring<>>(Alone(), Order::contiguous, arrays, seen);
    auto const all = static_cast<int>(query_count), kv = static_cast<int>(key_count);
    for (auto const& m : meshes([all, kv](MeshShape const& m) {
             return m.pp * m.dp * m.ep == 1 && (m.tp < 3 || m.cp == 1) && all % m.tp == 0 &&
                    (kv % m.tp == 0 || m.tp % kv == 0);
         }))
        for (int const inner_cp : {1, 2, 3, 6})
            for (int const dealt : {0, 1, 2}) { // contiguous, zigzag, by a list
                auto const order = dealt == 1 ? Order::zigzag : Order::contiguous;
                bool const is_split = kind != ContextStrategy::ring && kind != ContextStrategy::all_gather;
                int const over = kind == ContextStrategy::heads_ring   ? inner_cp
                                 : kind == ContextStrategy::ring_heads ? m.cp / inner_cp
                                                                       : 1;
                if (m.cp % inner_cp != 0 || (inner_cp > 1 && !is_split) || all / m.tp % std::max(over, 1) != 0)
                    continue;
                INFO(m.text(), " inner(cp)=", inner_cp,
                     dealt == 0   ? " contiguous, "
                     : dealt == 1 ? " zigzag, "
                                  : " list, ",
                     Element<T>::name, " kv heads ", key_count, " window ", seen.sight.window, seen.scores.text());
                OnMesh const mesh(m, OnMesh::mesh(m, static_cast<int>(key_count), inner_cp));
                // Four pieces for each block, which a list of 24 / 4 deals in an order of its own.
                auto const blocks = static_cast<std::size_t>(m.cp / std::max(over, 1));
                std::vector<std::uint32_t> pieces;
                for (std::size_t i = 0; dealt == 2 && i < 2 * blocks; ++i)
                    pieces.push_back(static_cast<std::uint32_t>((i * 5 + 1) % (2 * blocks)));
                if (dealt == 2 && (blocks == 1 || blocks % 5 == 0)) continue;
                Result const found = attend<T, Strategy>(mesh, {order, kind, pieces}, arrays, seen);
                CHECK_MESSAGE(distance(found.output, alone.output) < tolerance, "output");
                // Rounding alone where each query sees one key: relative to the gradient of values, which is not.
                auto const distance_of = [&](Whole const& one, Whole const& expected) {
                    return worst(one.values, expected.values) / std::max(expected.scale(), alone.dvalue.scale());
                };
                CHECK_MESSAGE(distance_of(found.dquery, alone.dquery) < tolerance, "dquery");
                CHECK_MESSAGE(distance_of(found.dkey, alone.dkey) < tolerance, "dkey");
                CHECK_MESSAGE(distance(found.dvalue, alone.dvalue) < tolerance, "dvalue");
                if (seen.scores.sinks) CHECK_MESSAGE(distance(found.dsinks, alone.dsinks) < tolerance, "dsinks");
            }
}

} // namespace

TEST_CASE("windows, packed documents and attention without a mask are the same over cp") {
    std::vector<i32> tokens(sequences * length, 1), short_ones(sequences * length, 1);
    for (std::size_t const at : {0, 1, 7, 8, 15, 26, 40}) tokens[at] = 0;
    for (std::size_t at = 2; at < short_ones.size(); at += 3) short_ones[at] = 0;
    for (Seen const& seen :
         {Seen{{true, 5}}, Seen{{true, 1}}, Seen{{false, 0}}, Seen{{false, 4}}, Seen{{true, 0}, tokens},
          Seen{{true, 0}, short_ones}, Seen{{true, 3}, tokens}, Seen{{false, 0}, tokens}}) {
        check_strategy<f64, context::Ring<>>(1e-12, ContextStrategy::ring, 4, 2, seen);
        check_strategy<f64, context::AllGather<>>(1e-12, ContextStrategy::all_gather, 4, 2, seen);
        check_strategy<f64, context::DoubleRing<>>(1e-12, ContextStrategy::double_ring, 4, 2, seen);
        check_strategy<f64, context::HeadsRing>(1e-12, ContextStrategy::heads_ring, 6, 3, seen);
        check_strategy<f64, context::RingHeads>(1e-12, ContextStrategy::ring_heads, 6, 3, seen);
    }
    SimulatedNodes const nodes("1");
    check_strategy<f64, context::Ring<Overlap<16, 1>>>(1e-12, ContextStrategy::ring, 4, 2, {{true, 3}, tokens});
    check_strategy<f64, context::Ring<Blocking>>(1e-12, ContextStrategy::ring, 4, 2, {{true, 3}, tokens});
}

TEST_CASE("capped scores, ALiBi and sinks are the same over cp") {
    std::vector<i32> tokens(sequences * length, 1);
    for (std::size_t const at : {0, 1, 7, 8, 15, 26, 40}) tokens[at] = 0;
    model::Scores const all{.soft_cap = 1.5, .alibi = true, .sinks = true};
    for (Seen const& seen :
         {Seen{.scores = {.soft_cap = 2}}, Seen{.scores = {.alibi = true}}, Seen{.scores = {.sinks = true}},
          Seen{{true, 0}, tokens, all}, Seen{{true, 5}, {}, all}, Seen{{false, 0}, {}, all}}) {
        check_strategy<f64, context::Ring<>>(1e-12, ContextStrategy::ring, 4, 2, seen);
        check_strategy<f64, context::AllGather<>>(1e-12, ContextStrategy::all_gather, 4, 2, seen);
        check_strategy<f64, context::DoubleRing<>>(1e-12, ContextStrategy::double_ring, 4, 2, seen);
        check_strategy<f64, context::HeadsRing>(1e-12, ContextStrategy::heads_ring, 6, 3, seen);
        check_strategy<f64, context::RingHeads>(1e-12, ContextStrategy::ring_heads, 6, 3, seen);
    }
    check_strategy<f64, context::HeadsRing>(1e-12, ContextStrategy::heads_ring, 12, 4, {.scores = all});
    check_strategy<f64, context::Selected>(1e-12, ContextStrategy::ring_heads, 6, 1, {.scores = all});
    check_strategy<f32, context::HeadsRing>(1e-5, ContextStrategy::heads_ring, 6, 3, {.scores = all});
    check_strategy<bf16, context::HeadsRing>(1e-2, ContextStrategy::heads_ring, 6, 3, {.scores = all});
    check_strategy<bf16, context::Ring<>>(1e-2, ContextStrategy::ring, 4, 2, {.scores = all});
    SimulatedNodes const nodes("1");
    check_strategy<f64, context::Ring<Overlap<16, 1>>>(1e-12, ContextStrategy::ring, 4, 2, {{true, 5}, tokens, all});
    check_strategy<f64, context::AllGather<Overlap<3, 1>>>(1e-12, ContextStrategy::all_gather, 4, 2, {{}, tokens, all});
}
TEST_CASE("ring attention over cp is attention") {
    check_strategy<f64, context::Ring<>>(1e-12);
    check_strategy<f32, context::Ring<>>(1e-5);
    check_strategy<bf16, context::Ring<>>(1e-2);
}
TEST_CASE("ring attention across nodes, whose blocks travel in pieces, is attention") {
    SimulatedNodes const nodes("1");
    check_strategy<f64, context::Ring<Overlap<3, 1>>>(1e-12);
    check_strategy<f64, context::Ring<Overlap<16, 1>>>(1e-12); // pieces of a key or none
    check_strategy<bf16, context::Ring<Overlap<2, 1>>>(1e-2);
    check_strategy<f64, context::Ring<Blocking>>(1e-12);
}
TEST_CASE("a ring of nodes around rings inside of them is attention") {
    check_strategy<f64, context::DoubleRing<>>(1e-12, ContextStrategy::double_ring);
    check_strategy<bf16, context::DoubleRing<>>(1e-2, ContextStrategy::double_ring);
    SimulatedNodes const nodes("1");
    check_strategy<f64, context::DoubleRing<Overlap<3, 1>>>(1e-12, ContextStrategy::double_ring);
}
TEST_CASE("heads exchanged for sequence over one factor of cp, and a ring over the other, is attention") {
    for (auto const& [queries, keys] : {std::pair<std::size_t, std::size_t>{4, 2}, {6, 1}, {6, 2}, {6, 3}, {12, 4}}) {
        check_strategy<f64, context::HeadsRing>(1e-12, ContextStrategy::heads_ring, queries, keys);
        check_strategy<f64, context::RingHeads>(1e-12, ContextStrategy::ring_heads, queries, keys);
    }
    check_strategy<f32, context::HeadsRing>(1e-5, ContextStrategy::heads_ring, 6, 3);
    check_strategy<bf16, context::HeadsRing>(1e-2, ContextStrategy::heads_ring, 6, 3);
}
namespace {

/// What a rank sends along cp.
template <class T, class Strategy>
planner::SentBytes sent(int inner_cp, ContextStrategy kind, std::size_t queries, std::size_t keys,
                        Dealing const& dealing, Seen const& seen = {}) {
    using Layer = typename Attention<Strategy>::template on<InvariantStream<T>, Exec>;
    using Query = typename Layer::Query;
    using Key = typename Layer::Key;
    OnMesh const mesh({.cp = world_size()}, OnMesh::mesh({.cp = world_size()}, 0, inner_cp));
    LayerSetup<Exec> const setup{.context = mesh.context,
                                 .batch = sequences,
                                 .seq = length,
                                 .block = {.context = kind, .zigzag = dealing.order == Order::zigzag}};
    typename Layer::StrategyOn const strategy(setup, {.head_dim = dim, .sight = seen.sight, .scores = seen.scores});
    typename Layer::StrategyOn::Saved saved;
    Mapped const mapped(mesh.context, seen, dealing.of(mesh.context.communicators(), length));
    Arrays const arrays = inputs<T>(queries, keys);
    typename Layer::StrategyOn::Part pass{.map = &mapped.map};
    if (seen.scores.sinks) pass.sinks = shard<sinks_t<Query>>(mesh, arrays.at("sinks"), dealing);
    auto const of = [&]<class L>(std::type_identity<L>, char const* name) {
        return shard<L>(mesh, arrays.at(name), dealing);
    };
    auto const query = of(std::type_identity<Query>(), "query");
    auto const key = of(std::type_identity<Key>(), "key"), value = of(std::type_identity<Key>(), "value");
    auto const dy = of(std::type_identity<dual_t<Query>>(), "dy");
    auto const bytes = [] { return observe::ledger().bytes("cp"); };
    observe::ledger().clear();
    auto const output = strategy.forward(query, key, value, saved, pass);
    double const forward = bytes();
    observe::ledger().clear();
    strategy.backward(saved, output, dy, [](auto const&...) {}, pass);
    return {forward, bytes()};
}

} // namespace

TEST_CASE("what each strategy sends is its closed form") {
    int const n = world_size();
    for (auto const& [queries, keys] : {std::pair<std::size_t, std::size_t>{12, 12}, {12, 4}, {12, 1}}) {
        planner::AttentionSizes const of{.batch = sequences,
                                         .seq = length,
                                         .heads = static_cast<std::int64_t>(queries),
                                         .kv_heads = static_cast<std::int64_t>(keys),
                                         .head_dim = dim};
        planner::BlockRanks const on{.cp = n};
        CHECK(sent<bf16, context::Ring<>>(1, ContextStrategy::ring, queries, keys,
                                          {Order::zigzag, ContextStrategy::ring}) ==
              planner::ring_attention_bytes(of, on, 2, 4));
        CHECK(sent<bf16, context::AllGather<>>(1, ContextStrategy::all_gather, queries, keys,
                                               {Order::zigzag, ContextStrategy::all_gather}) ==
              planner::gathered_attention_bytes(of, on, 2, 4));
        for (int const inner : {1, 2, 3, 4, 6}) {
            if (n % inner != 0) continue;
            INFO("inner(cp) = ", inner, " kv heads ", keys);
            auto const both = [](planner::TwoLevelBytes const& bytes) {
                return planner::SentBytes{bytes.inner.forward + bytes.outer.forward,
                                          bytes.inner.backward + bytes.outer.backward};
            };
            CHECK(sent<bf16, context::DoubleRing<>>(inner, ContextStrategy::double_ring, queries, keys,
                                                    {Order::zigzag, ContextStrategy::double_ring}) ==
                  both(planner::double_ring_attention_bytes(of, on, inner, 2, 4)));
            CHECK(sent<bf16, context::HeadsRing>(inner, ContextStrategy::heads_ring, queries, keys,
                                                 {Order::zigzag, ContextStrategy::heads_ring}) ==
                  both(planner::two_level_attention_bytes(of, on, inner, 2, 4)));
            CHECK(sent<bf16, context::RingHeads>(inner, ContextStrategy::ring_heads, queries, keys,
                                                 {Order::zigzag, ContextStrategy::ring_heads}) ==
                  both(planner::two_level_attention_bytes(of, on, n / inner, 2, 4)));
        }
        // Ulysses alone, whose kv heads divide by the ranks or are one for each.
        if (keys >= static_cast<std::size_t>(n) ? keys % static_cast<std::size_t>(n) == 0
                                                : n % static_cast<int>(keys) == 0)
            CHECK(sent<f32, context::HeadsRing>(n, ContextStrategy::heads_ring, queries, keys,
                                                {Order::zigzag, ContextStrategy::heads_ring}) ==
                  planner::exchanged_attention_bytes(of, on, 4) +
                      planner::SentBytes{0, planner::delta_bytes(of, on, n, 4)});
    }
}
TEST_CASE("sinks add no bytes to what a strategy sends") {
    int const n = world_size();
    for (auto const& [kind, inner] : {std::pair{ContextStrategy::ring, 1}, {ContextStrategy::heads_ring, n}}) {
        auto const bytes = [&](Seen const& seen) {
            return sent<bf16, context::Selected>(inner, kind, 12, 12, {Order::zigzag, kind}, seen);
        };
        CHECK(bytes({.scores = {.soft_cap = 1, .alibi = true, .sinks = true}}) == bytes({}));
    }
}
TEST_CASE("keys that none of the ranks that are still to come sees are not sent") {
    auto const n = static_cast<std::size_t>(world_size()), rank = static_cast<std::size_t>(world_rank());
    std::vector<i32> tokens(sequences * length, 1);
    for (std::size_t const at : {3, 4, 11, 19, 30, 36}) tokens[at] = 0;
    std::size_t const block = length / n, pieces = std::min<std::size_t>(block, 8);
    for (Seen const& seen : {Seen{}, Seen{{true, 3}}, Seen{{true, 9}}, Seen{{false, 0}}, Seen{{true, 0}, tokens}}) {
        bool const is_narrow = seen.sight.window > 0 || !seen.tokens.empty();
        std::size_t const count = is_narrow ? pieces : 1;
        // By the definition, key by key: a piece goes on as long as a rank to come sees any of it, and its gradient
        // from the first rank that sees it to the last, and home.
        double forward = 0, gradients = 0;
        for (std::size_t owner = 0; owner < n; ++owner)
            for (std::size_t piece = 0; piece < count; ++piece) {
                std::size_t const begin = block * piece / count, end = block * (piece + 1) / count;
                std::size_t first = 0, last = 0;
                for (std::size_t step = 1; step < n; ++step) {
                    bool sees = false;
                    for (std::size_t key = owner * block + begin; key < owner * block + end; ++key)
                        for (std::size_t query = 0; query < block; ++query)
                            for (std::size_t s = 0; s < sequences; ++s)
                                sees = sees || seen.sees(s, (owner + step) % n * block + query, key);
                    if (sees && first == 0) first = step;
                    if (sees) last = step;
                }
                std::size_t const here = (rank + n - owner) % n; // of the piece, in steps
                double const size = static_cast<double>(2 * sequences * (end - begin) * 4 * dim);
                if (here < last) forward += size;
                if (first > 0 && first <= here && here <= last) gradients += size;
            }
        INFO("window ", seen.sight.window, seen.sight.causal ? "" : ", not causal",
             seen.tokens.empty() ? "" : ", packed");
        auto const found = sent<bf16, context::Ring<>>(1, ContextStrategy::ring, 4, 4, Order::contiguous, seen);
        CHECK(found.forward == 2 * forward);
        CHECK(found.backward == 2 * forward + 4 * gradients);
    }
    if (n ==
        6) // two nodes, and two keys that the next rank sees: those of rank 2 go to rank 5, which sends them to rank 3
        CHECK(sent<bf16, context::DoubleRing<>>(3, ContextStrategy::double_ring, 4, 4,
                                                {Order::contiguous, ContextStrategy::double_ring}, {{true, 3}})
                  .forward == 2.0 * 2 * sequences * 2 * 4 * dim);
}
namespace {

/// Bytes of activations that a forward pass takes at most, and that are left when the output is gone.
template <class Strategy>
std::pair<std::int64_t, std::int64_t> held(int inner_cp, ContextStrategy kind, std::size_t heads) {
    using Layer = typename Attention<Strategy>::template on<InvariantStream<f32>, Exec>;
    OnMesh const mesh({.cp = world_size()}, OnMesh::mesh({.cp = world_size()}, 0, inner_cp));
    LayerSetup<Exec> const setup{
        .context = mesh.context, .batch = sequences, .seq = length, .block = {.context = kind}};
    typename Layer::StrategyOn const strategy(setup, {.head_dim = dim});
    typename Layer::StrategyOn::Saved saved;
    Arrays const arrays = inputs<f32>(heads, heads);
    auto query = shard<typename Layer::Query>(mesh, arrays.at("query"), {setup.block.order(), kind});
    auto key = shard<typename Layer::Key>(mesh, arrays.at("key"), {setup.block.order(), kind}),
         value = shard<typename Layer::Key>(mesh, arrays.at("value"), {setup.block.order(), kind});
    auto& count = observe::counters().memory[static_cast<std::size_t>(observe::Memory::activations)];
    auto const before = count.bytes - 3 * static_cast<std::int64_t>(query.size() * sizeof(f32));
    count.peak = count.bytes;
    (void)strategy.forward(std::move(query), std::move(key), std::move(value), saved);
    return {count.peak - before, count.bytes - before};
}

} // namespace

TEST_CASE("an exchange of heads saves no more than a ring, whose output the layer keeps") {
    int const n = world_size();
    auto const saved = [](std::pair<std::int64_t, std::int64_t> const& bytes) { return bytes.second; };
    auto const of_ring = saved(held<context::Ring<>>(1, ContextStrategy::ring, 12));
    CHECK(saved(held<context::HeadsRing>(n, ContextStrategy::heads_ring, 12)) == of_ring);
    CHECK(saved(held<context::RingHeads>(1, ContextStrategy::ring_heads, 12)) == of_ring);
}
TEST_CASE("across nodes, two pieces of keys and values are there at once") {
    if (world_size() < 3) return;
    auto const most = [](std::pair<std::int64_t, std::int64_t> const& bytes) { return bytes.first; };
    SimulatedNodes const nodes("1");
    auto const whole = most(held<context::AllGather<Blocking>>(1, ContextStrategy::all_gather, 12));
    CHECK(most(held<context::AllGather<Overlap<8, 1>>>(1, ContextStrategy::all_gather, 12)) < 0.7 * whole);
}

TEST_CASE("attention over gathered keys and values is attention") {
    check_strategy<f64, context::AllGather<>>(1e-12);
    check_strategy<f32, context::AllGather<>>(1e-5);
    check_strategy<bf16, context::AllGather<>>(1e-2);
}
TEST_CASE("attention over keys and values that are gathered in pieces, across nodes, is attention") {
    SimulatedNodes const nodes("1");
    check_strategy<f64, context::AllGather<Overlap<3, 1>>>(1e-12);
    check_strategy<f64, context::AllGather<Overlap<16, 1>>>(1e-12); // pieces of a key or none
    check_strategy<bf16, context::AllGather<Overlap<2, 1>>>(1e-2);
    check_strategy<f64, context::AllGather<Blocking>>(1e-12);
}

TEST_CASE("attention on one rank is softmax(QK^T / sqrt(d)) V over the keys that a query sees, and a sink") {
    Arrays const arrays = inputs<f64>();
    std::vector<i32> tokens(sequences * length, 1);
    for (std::size_t const at : {5, 6, 20, 30}) tokens[at] = 0;
    for (Seen const& seen :
         {Seen{}, Seen{{true, 4}}, Seen{{false, 0}}, Seen{{true, 0}, tokens}, Seen{{false, 3}, tokens},
          Seen{{true, 0}, tokens, {.soft_cap = 2}}, Seen{{false, 0}, {}, {.alibi = true}},
          Seen{{true, 9}, tokens, {.soft_cap = 1.5, .alibi = true, .sinks = true}}}) {
        auto const found = attend<f64, context::Ring<>>(Alone(), Order::contiguous, arrays, seen).output.values;
        auto const& q = arrays.at("query").values;
        auto const& k = arrays.at("key").values;
        auto const& v = arrays.at("value").values;
        double largest = 0;
        for (std::size_t row = 0; row < sequences * length * query_heads; ++row) {
            std::size_t const head = row % query_heads / (query_heads / key_heads),
                              position = row / query_heads % length, sequence = row / query_heads / length;
            auto const at = [&](std::size_t key) { return ((sequence * length + key) * key_heads + head) * dim; };
            std::vector<double> scores;
            std::vector<std::size_t> keys;
            for (std::size_t key = 0; key < length; ++key)
                if (seen.sees(sequence, position, key)) keys.push_back(key);
            for (std::size_t const key : keys) {
                double score = 0;
                for (std::size_t i = 0; i < dim; ++i) score += q[row * dim + i] * k[at(key) + i];
                score /= std::sqrt(static_cast<double>(dim));
                if (double const cap = seen.scores.soft_cap; cap > 0) score = cap * std::tanh(score / cap);
                double const apart = std::abs(static_cast<double>(position) - static_cast<double>(key));
                if (seen.scores.alibi) score -= std::pow(0.25, static_cast<double>(row % query_heads + 1)) * apart;
                scores.push_back(score);
            }
            double const peak = *std::max_element(scores.begin(), scores.end());
            double sum = seen.scores.sinks ? std::exp(arrays.at("sinks").values[row % query_heads] - peak) : 0;
            for (auto& score : scores) sum += score = std::exp(score - peak);
            for (std::size_t i = 0; i < dim; ++i) {
                double expected = 0;
                for (std::size_t j = 0; j < keys.size(); ++j) expected += scores[j] / sum * v[at(keys[j]) + i];
                largest = std::max(largest, std::abs(expected - found[row * dim + i]));
            }
        }
        CHECK(largest < 1e-12);
    }
}
