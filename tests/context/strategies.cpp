// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/all_gather.hpp>
#include <pentad/context/ring.hpp>
#include <pentad/layers/attention.hpp>

#include <support/layer_check.hpp>

using namespace support;

namespace {

constexpr std::size_t sequences = 2, length = 24, query_heads = 4, key_heads = 2, dim = 8;

struct Result {
    Whole output, dquery, dkey, dvalue;
};

/// Queries, keys and values whose scores grow with the position, so that every block of keys brings a larger maximum
/// than those before it, rounded to T.
template <class T>
Arrays inputs() {
    Arrays arrays{{"query", drawn({sequences, length, query_heads, dim}, "query")},
                  {"key", drawn({sequences, length, key_heads, dim}, "key")},
                  {"value", drawn({sequences, length, key_heads, dim}, "value")},
                  {"dy", drawn({sequences, length, query_heads, dim}, "dy")}};
    auto& key = arrays["key"].values;
    for (std::size_t i = 0; i < key.size(); ++i)
        key[i] *= 1 + 0.1 * static_cast<double>(i / (key_heads * dim) % length);
    for (auto& [name, whole] : arrays)
        for (auto& value : whole.values) value = as_double(T(static_cast<accumulator_t<T>>(value)));
    return arrays;
}

template <class T, class Strategy>
Result attend(OnMesh const& mesh, Order order, Arrays const& arrays) {
    using Layer = typename Attention<Strategy>::template on<InvariantStream<T>, Exec>;
    using Query = typename Layer::Query;
    using Key = typename Layer::Key;
    LayerSetup<Exec> const setup{.context = mesh.context, .batch = sequences, .seq = length, .order = order};
    typename Layer::StrategyOn const strategy(setup);
    typename Layer::StrategyOn::Saved saved;
    saved.query = shard<Query>(mesh, arrays.at("query"), order);
    saved.key = shard<Key>(mesh, arrays.at("key"), order);
    saved.value = shard<Key>(mesh, arrays.at("value"), order);
    Result result;
    result.output = gather(strategy.forward(saved), order);
    strategy.backward(saved, shard<dual_t<Query>>(mesh, arrays.at("dy"), order), [&](auto dq, auto dk, auto dv) {
        result.dquery = gather(dq, order);
        result.dkey = gather(dk, order);
        result.dvalue = gather(dv, order);
    });
    return result;
}

template <class T, class Strategy>
void check_strategy(double tolerance) {
    Arrays const arrays = inputs<T>();
    Result const alone = attend<f64, context::Ring<>>(Alone(), Order::contiguous, arrays);
    for (auto const& m :
         meshes([](MeshShape const& m) { return m.pp * m.dp * m.ep == 1 && (m.tp < 3 || m.cp == 1) && 4 % m.tp == 0; }))
        for (auto const order : {Order::contiguous, Order::zigzag}) {
            INFO(m.text(), std::string(order == Order::zigzag ? " zigzag, " : " contiguous, "), Element<T>::name);
            OnMesh const mesh(m, key_heads);
            Result const found = attend<T, Strategy>(mesh, order, arrays);
            CHECK_MESSAGE(distance(found.output, alone.output) < tolerance, "output");
            CHECK_MESSAGE(distance(found.dquery, alone.dquery) < tolerance, "dquery");
            CHECK_MESSAGE(distance(found.dkey, alone.dkey) < tolerance, "dkey");
            CHECK_MESSAGE(distance(found.dvalue, alone.dvalue) < tolerance, "dvalue");
        }
}

} // namespace

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
TEST_CASE("attention over gathered keys and values is attention") {
    check_strategy<f64, context::AllGather>(1e-12);
    check_strategy<f32, context::AllGather>(1e-5);
    check_strategy<bf16, context::AllGather>(1e-2);
}

TEST_CASE("attention on one rank is softmax(QK^T / sqrt(d)) V over the keys that are not in the future") {
    Arrays const arrays = inputs<f64>();
    auto const found = attend<f64, context::Ring<>>(Alone(), Order::contiguous, arrays).output.values;
    auto const& q = arrays.at("query").values;
    auto const& k = arrays.at("key").values;
    auto const& v = arrays.at("value").values;
    double largest = 0;
    for (std::size_t row = 0; row < sequences * length * query_heads; ++row) {
        std::size_t const head = row % query_heads / (query_heads / key_heads), position = row / query_heads % length,
                          sequence = row / query_heads / length;
        auto const at = [&](std::size_t key) { return ((sequence * length + key) * key_heads + head) * dim; };
        std::vector<double> scores;
        for (std::size_t key = 0; key <= position; ++key) {
            double score = 0;
            for (std::size_t i = 0; i < dim; ++i) score += q[row * dim + i] * k[at(key) + i];
            scores.push_back(score / std::sqrt(static_cast<double>(dim)));
        }
        double const peak = *std::max_element(scores.begin(), scores.end());
        double sum = 0;
        for (auto& score : scores) sum += score = std::exp(score - peak);
        for (std::size_t i = 0; i < dim; ++i) {
            double expected = 0;
            for (std::size_t key = 0; key <= position; ++key) expected += scores[key] / sum * v[at(key) + i];
            largest = std::max(largest, std::abs(expected - found[row * dim + i]));
        }
    }
    CHECK(largest < 1e-12);
}
