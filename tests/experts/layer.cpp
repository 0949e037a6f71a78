// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/experts/layer.hpp>

#include <support/layer_check.hpp>
#include <support/product_rows.hpp>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace support;

namespace {

template <class Stream, class Communication = Blocking>
using LayerOn = experts::Layer<Communication>::template on<Stream, Exec>;

constexpr std::size_t expert_count = 12, width = 12, size = 6, top_k = 2;

/// 12 sequences of 4 tokens over dp and ep, and over cp and tp; 12 experts over ep, 12 wide over tp.
bool fits(MeshShape const& m) { return m.pp == 1 && 12 % (m.dp * m.ep) == 0 && 4 % (m.cp * m.tp) == 0; }
bool fits_experts(model::ExpertMesh const& m) { return expert_count % m.ep == 0 && width % m.etp == 0; }

LayerSetup<Exec> setup_on(OnMesh const& mesh) {
    return {
        .context = mesh.context, .hidden = size, .batch = 12, .seq = 4, .block = {.zigzag = 2 % mesh.shape.cp == 0}};
}
template <class Stream, class Communication = Blocking>
auto make(std::size_t choices = top_k) {
    return [choices](LayerSetup<Exec> const& s) {
        return LayerOn<Stream, Communication>(s, {.count = expert_count, .top_k = choices, .width = width}, "moe");
    };
}

constexpr double balance = 0.7, z = 0.05;

/// The file's arrays under the layer's names; the gradients are those of <y, dy> + balance aux_loss + z z_loss.
Arrays published() {
    Arrays arrays = golden("moe");
    for (char const* name : {"x", "gate"}) {
        auto& gradient = arrays.at("d" + std::string(name)).values;
        auto const& aux = arrays.at("d" + std::string(name) + "_aux").values;
        auto const& squares = arrays.at("d" + std::string(name) + "_z").values;
        for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] += balance * aux[i] + z * squares[i];
    }
    for (std::string const d : {"", "d"}) {
        arrays[d + "moe.gate.weight"] = arrays.at(d + "gate");
        for (std::string const w : {"w1", "w2", "w3"}) arrays[d + "moe.experts.{}." + w + ".weight"] = arrays.at(d + w);
    }
    return arrays;
}

template <class Stream>
void check_published(std::vector<MeshShape> const& on) {
    Arrays const arrays = published();
    for (auto const& m : on) {
        INFO(m.text());
        OnMesh const mesh(m);
        check_layer(mesh, setup_on(mesh), make<Stream>(), arrays, 1e-12, balance, z);
        // The losses of the micro-batch are over the tokens of all ranks, and every rank knows them.
        using Layer = LayerOn<Stream>;
        Trial<Layer> trial{.mesh = mesh,
                           .order = setup_on(mesh).block.order(),
                           .layer = make<Stream>()(setup_on(mesh)),
                           .arrays = arrays,
                           .pass = {.context = mesh.context}};
        (void)trial.forward(shard<typename Layer::input_layout>(mesh, arrays.at("x"), trial.order));
        CHECK(trial.auxiliary()[0] == doctest::Approx(arrays.at("aux_loss").values[0]).epsilon(1e-13));
        CHECK(trial.auxiliary()[1] == doctest::Approx(arrays.at("z_loss").values[0]).epsilon(1e-13));
    }
}

/// Drawn weights, and a router that sends every token to `chosen`.
Arrays routed_to(std::size_t chosen) {
    Arrays arrays{{"x", drawn({12, 4, size}, "x")},
                  {"dy", drawn({12, 4, size}, "dy")},
                  {"moe.gate.weight", {{expert_count, size}, std::vector<double>(expert_count * size, 0.0)}},
                  {"moe.experts.{}.w1.weight", drawn({expert_count, width, size}, "w1")},
                  {"moe.experts.{}.w2.weight", drawn({expert_count, size, width}, "w2")},
                  {"moe.experts.{}.w3.weight", drawn({expert_count, width, size}, "w3")}};
    for (std::size_t i = 0; i < arrays["x"].values.size(); i += size)
        arrays["x"].values[i] = 1; // a dimension to route by
    arrays["moe.gate.weight"].values[chosen * size] = 20;
    return arrays;
}

/// Whether all elements of expert e of a [experts, ...] array are zero.
bool is_zero(Whole const& whole, std::size_t e) {
    std::size_t const n = whole.values.size() / expert_count;
    return std::all_of(whole.values.begin() + static_cast<std::ptrdiff_t>(e * n),
                       whole.values.begin() + static_cast<std::ptrdiff_t>((e + 1) * n),
                       [](double g) { return g == 0; });
}

using Invariant = InvariantStream<f64>;
using Sharded = SequenceStream<f64>;
using Tokens = Sharded; ///< as experts take them

} // namespace

TEST_CASE("the experts are Mixtral's on any mesh, and so are the router's losses") {
    check_published<Invariant>(meshes(fits));
    using Gate = experts::Router<Sharded, Exec>::Weight;
    using Layer = LayerOn<Invariant>;
    static_assert(std::is_same_v<Layer::input_layout, Sharded> && std::is_same_v<Layer::output_layout, Sharded>);
    CHECK(layout_text<dual_t<used_t<Gate, Layer::input_layout>>>.view() ==
          "f64[expert:?, hidden:?]{dp.cp.tp: partial}");
    CHECK(layout_text<dual_t<used_t<Layer::Up, Layer::Row>>>.view() ==
          "f64[expert@ep:?, ffn@etp:?, hidden:?]{edp: partial}");
    CHECK(layout_text<dual_t<used_t<Layer::Down, Layer::Row>>>.view() ==
          "f64[expert@ep:?, hidden:?, ffn@etp:?]{edp: partial}");
}
TEST_CASE("where tp shards the sequence they are the same") { check_published<Sharded>(meshes(fits)); }

TEST_CASE("so they are however the experts' ranks are folded over those of dp, cp and tp") {
    check_published<Invariant>(foldings(fits, fits_experts));
    check_published<Sharded>(foldings(fits, fits_experts));
}

/// Output, gradients of the input and of the parameters, and in how many parts rows have travelled.
template <class Communication>
std::pair<std::vector<std::vector<double>>, std::size_t> passes(OnMesh const& mesh, LayerSetup<Exec> const& setup,
                                                                model::Experts const& part, Arrays const& arrays) {
    using Layer = LayerOn<Invariant, Communication>;
    Trial<Layer> trial{.mesh = mesh,
                       .order = setup.block.order(),
                       .layer = Layer(setup, part, "moe"),
                       .arrays = arrays,
                       .pass = {.context = mesh.context, .balance_scale = balance, .z_scale = z}};
    auto const y = trial.forward(shard<typename Layer::input_layout>(mesh, arrays.at("x"), trial.order));
    std::size_t const parts = trial.saved.dispatch.parts();
    auto const dy = shard<dual_t<typename Layer::output_layout>>(mesh, arrays.at("dy"), trial.order);
    auto const dx = trial.layer.backward_data(trial.pass, dy, trial.saved);
    trial.layer.backward_weight(trial.pass, trial.saved);
    std::vector results{gather(y, trial.order).values, gather(dx, trial.order).values};
    trial.layer.for_each_parameter(
        [&](auto const& parameter) { results.push_back(reduced_gradient(parameter).values); });
    return {results, parts};
}
/// That results are the same: the same bits, or up to `tolerance` of the largest of an array.
void check_results(std::vector<std::vector<double>> const& found, std::vector<std::vector<double>> const& expected,
                   double tolerance) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t a = 0; a < found.size(); ++a)
        if (tolerance == 0)
            CHECK(found[a] == expected[a]);
        else
            CHECK(distance({{found[a].size()}, found[a]}, {{expected[a].size()}, expected[a]}) <= tolerance);
}
/// That rows which travel in parts give the results of rows that do not, up to `tolerance`: by default the same bits.
void check_parts(OnMesh const& mesh, LayerSetup<Exec> const& setup, model::Experts const& part, Arrays const& arrays,
                 std::size_t expected_parts, double tolerance = 0) {
    auto const [expected, together] = passes<Blocking>(mesh, setup, part, arrays);
    auto const [found, parts] = passes<Overlap<3, 1>>(mesh, setup, part, arrays);
    CHECK(together == 1);
    CHECK(parts == expected_parts);
    check_results(found, expected, parts > 1 ? tolerance : 0);
    for (std::size_t const most : {0, 1, 2}) {
        auto limited = setup;
        limited.block.row_parts = static_cast<std::int64_t>(most);
        auto const [with_fewer, fewer] = passes<Overlap<3, 1>>(mesh, limited, part, arrays);
        CHECK(fewer == std::min(std::max<std::size_t>(most, 1), expected_parts));
        check_results(with_fewer, expected, fewer > 1 ? tolerance : 0);
    }
}

/// In how many parts rows travel, of at most 3.
std::size_t expected_parts(OnMesh const& mesh, std::size_t experts) {
    bool const by_node = experts::Dispatch<f64, Exec>::goes_by_node(mesh.context, top_k); // makes communicators
    auto& communicators = mesh.context.communicators();
    auto const& ranks = communicators.along(AxisNames(ep::name));
    auto const size = static_cast<std::size_t>(ranks.size());
    if (!ranks.crosses_network() || communicators.along(AxisNames(etp::name)).size() > 1) return 1;
    if (experts > size) return std::min<std::size_t>(3, experts / size);
    return by_node ? 1 : std::min<std::size_t>(3, size);
}

TEST_CASE("across a network rows travel in parts, and no bit changes") {
    Arrays const arrays = published();
    for (std::string const ranks_per_node : {"1", "2", "3"}) {
        SimulatedNodes const nodes(ranks_per_node);
        for (auto const& m : meshes(fits))
            for (auto const element : {Compact::none, Compact::fp8}) {
                INFO(m.text(), " ", ranks_per_node, " ranks a node, rows in ", static_cast<int>(element));
                OnMesh const mesh(m);
                auto setup = setup_on(mesh);
                setup.rows = element;
                if (element == Compact::none)
                    check_layer(mesh, setup, make<Invariant, Overlap<3, 1>>(), arrays, 1e-12, balance, z);
                check_parts(mesh, setup, {.count = expert_count, .top_k = top_k, .width = width}, arrays,
                            expected_parts(mesh, expert_count));
            }
    }
}

TEST_CASE("with one expert on each rank a part is what some of the ranks send") {
    // A product has the rows of a part then. Where their bits do not depend on how many they are, no bit changes.
    constexpr std::size_t most_rows = 12 * 4 * top_k;
    bool const same_bits =
        rows_keep_their_bits<f64>(most_rows, width, size) && rows_keep_their_bits<f64>(most_rows, size, width);
    if (world_rank() == 0)
        MESSAGE(std::string(same_bits ? "the same bits" : "the same up to rounding"), " with these kernels");
    for (std::string const ranks_per_node : {"1", "2"}) {
        SimulatedNodes const nodes(ranks_per_node);
        for (auto const& m : meshes(fits)) {
            if (m.ep == 1) continue;
            INFO(m.text(), " ", ranks_per_node, " ranks a node");
            auto const experts = static_cast<std::size_t>(m.ep);
            Arrays arrays = published();
            for (auto const& [name, weights] :
                 {std::pair("moe.gate.weight", drawn({experts, size}, "gate")),
                  std::pair("moe.experts.{}.w1.weight", drawn({experts, width, size}, "w1")),
                  std::pair("moe.experts.{}.w2.weight", drawn({experts, size, width}, "w2")),
                  std::pair("moe.experts.{}.w3.weight", drawn({experts, width, size}, "w3"))})
                arrays[name] = weights;
            OnMesh const mesh(m);
            check_parts(mesh, setup_on(mesh), {.count = experts, .top_k = top_k, .width = width}, arrays,
                        expected_parts(mesh, experts), same_bits ? 0 : 1e-14);
        }
    }
}

TEST_CASE("rows that travel in fewer bits are off by what these lack, and by the same again") {
    Arrays const arrays = published();
    for (auto const& m : meshes(fits)) {
        INFO(m.text());
        OnMesh const mesh(m);
        auto setup = setup_on(mesh);
        using Layer = LayerOn<Invariant>;
        struct Passes {
            Whole y, dx;
        };
        auto const passes = [&] {
            Trial<Layer> trial{.mesh = mesh,
                               .order = setup.block.order(),
                               .layer = make<Invariant>()(setup),
                               .arrays = arrays,
                               .pass = {.context = mesh.context, .balance_scale = balance, .z_scale = z}};
            auto const y = trial.forward(shard<typename Layer::input_layout>(mesh, arrays.at("x"), trial.order));
            auto const dy = shard<dual_t<typename Layer::output_layout>>(mesh, arrays.at("dy"), trial.order);
            return Passes{gather(y, trial.order),
                          gather(trial.layer.backward_data(trial.pass, dy, trial.saved), trial.order)};
        };
        for (auto const [element, least, most] :
             {std::tuple(Compact::none, 0.0, 1e-12), std::tuple(Compact::bf16, 1e-4, 0.01),
              std::tuple(Compact::fp8, 1e-3, 0.1)}) {
            setup.rows = element;
            auto const found = passes(), again = passes();
            CHECK(again.y.values == found.y.values);
            CHECK(again.dx.values == found.dx.values);
            for (double const error : {distance(found.y, arrays.at("y")), distance(found.dx, arrays.at("dx"))}) {
                CHECK(error <= (m.ep > 1 ? most : 1e-12));
                if (m.ep > 1) CHECK(error >= least);
            }
        }
    }
}

TEST_CASE("all tokens to one expert: it computes them all, the others get gradients of zero, and nothing hangs") {
    for (std::size_t const chosen : {std::size_t{0}, expert_count - 1}) {
        Arrays const arrays = routed_to(chosen);
        for (auto const& m : meshes(fits)) {
            INFO(m.text(), " expert ", chosen);
            OnMesh const mesh(m);
            auto const setup = setup_on(mesh);
            check_layer(mesh, setup, make<Invariant>(1), on_one_rank(setup, make<Invariant>(1), arrays), 1e-11);
            Trial<LayerOn<Invariant>> trial{.mesh = mesh,
                                            .order = setup.block.order(),
                                            .layer = make<Invariant>(1)(setup),
                                            .arrays = arrays,
                                            .pass = {.context = mesh.context}};
            (void)trial.forward(shard<Tokens>(mesh, arrays.at("x"), setup.block.order()));
            (void)trial.layer.backward_data(
                trial.pass,
                shard<dual_t<LayerOn<Invariant>::output_layout>>(mesh, arrays.at("dy"), setup.block.order()),
                trial.saved);
            trial.layer.backward_weight(trial.pass, trial.saved);
            CHECK(trial.auxiliary()[0] ==
                  doctest::Approx(expert_count).epsilon(1e-6)); // f = P = 1 for one, 0 for all others
            trial.layer.for_each_parameter([&](auto const& parameter) {
                auto const gradient = reduced_gradient(parameter);
                if (parameter.name() == "moe.gate.weight") return;
                for (std::size_t e = 0; e < expert_count; ++e)
                    CHECK_MESSAGE(is_zero(gradient, e) == (e != chosen), parameter.name(), " of expert ", e);
            });
        }
    }
}

TEST_CASE("a tie goes to the experts of the lowest numbers, wherever they live") {
    Arrays arrays = routed_to(0);
    arrays["moe.gate.weight"].values[0] = 0; // all scores are equal
    for (auto const& m : meshes(fits)) {
        INFO(m.text());
        OnMesh const mesh(m);
        auto const setup = setup_on(mesh);
        Trial<LayerOn<Invariant>> trial{.mesh = mesh,
                                        .order = setup.block.order(),
                                        .layer = make<Invariant>()(setup),
                                        .arrays = arrays,
                                        .pass = {.context = mesh.context}};
        (void)trial.forward(shard<Tokens>(mesh, arrays.at("x"), setup.block.order()));
        auto const choice = on_host(trial.saved.router.choice);
        for (std::size_t i = 0; i < choice.size(); ++i) CHECK(choice(i) == static_cast<i32>(i % top_k));
        CHECK(trial.auxiliary()[0] == doctest::Approx(top_k).epsilon(1e-13)); // E sum_e f_e / E
        (void)trial.layer.backward_data(
            trial.pass, shard<dual_t<LayerOn<Invariant>::output_layout>>(mesh, arrays.at("dy"), setup.block.order()),
            trial.saved);
        trial.layer.backward_weight(trial.pass, trial.saved);
        trial.layer.for_each_parameter([&](auto const& parameter) {
            if (parameter.name() == "moe.gate.weight") return;
            auto const gradient = reduced_gradient(parameter);
            for (std::size_t e = 0; e < expert_count; ++e)
                CHECK_MESSAGE(is_zero(gradient, e) == (e >= top_k), parameter.name(), " of expert ", e);
        });
    }
}
