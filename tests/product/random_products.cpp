// ranks: 1 2 3 4 6 8
//
// Products of matrices whose three layouts, meshes, orders of dimensions, extents and elements are drawn at random,
// beside the product computed by one loop: exactly, in whole numbers. The bytes sent are those of the plan, and no
// choice of roles sends fewer.
#include <doctest/doctest.h>

#include "support/holding.hpp"
#include "support/pairing.hpp"
#include "support/world.hpp"

#include <pentad/layout/ml.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/product.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
using namespace pentad::ml;
using support::Holding;
using support::pairing;
using support::world_rank;
using support::world_size;

namespace {

using Exec = Kokkos::DefaultExecutionSpace;
using Numbers = std::vector<double>;
using M = Mesh<Axis<dp>, Axis<cp>, Axis<tp>>;
constexpr std::array<std::string_view, 3> axes{"dp", "cp", "tp"};

/// A matrix of the drawn product: its layout, its extents, and what this rank holds of it.
struct Matrix {
    LayoutValue layout;
    std::array<std::size_t, 2> extents{};
    std::span<MeshAxisValue const> mesh;

    [[nodiscard]] Holding holding() const { return {layout, extents, mesh, world_rank()}; }
    [[nodiscard]] Matrix dual() const { return {support::dual(layout), extents, mesh}; }
    [[nodiscard]] Numbers shard(int seed) const { return support::shard(holding(), seed); }
    /// The whole matrix: sums of the summands of each element.
    [[nodiscard]] Numbers whole(int seed) const {
        int summands = 1;
        for (auto const axis : layout.partial) summands *= find_axis(mesh, axis).extent;
        Numbers sums(extents[0] * extents[1]);
        for (std::size_t e = 0; e < sums.size(); ++e)
            for (int i = 0; i < summands; ++i) sums[e] += support::number(seed, e, i);
        return sums;
    }
    /// The element in this row of dimension `name`, and in that of the other one.
    [[nodiscard]] std::size_t at(std::string_view name, std::size_t row, std::size_t column) const {
        return layout.dimensions[0].name == name ? row * extents[1] + column : column * extents[1] + row;
    }
};

ProductExtents extents_of(Matrix const& a, Matrix const& b, ProductDimensions const& at) {
    return {a.extents[at.a_rows], b.extents[at.b_columns], a.extents[at.a_inner]};
}

template <class T>
detail::Shard<T, Exec> made(Context<Exec> const& context, Matrix const& matrix, Numbers const& numbers) {
    auto const shard =
        detail::Shard<T, Exec>::make(context, shard_shape(matrix.layout, matrix.extents, matrix.mesh, world_rank()));
    std::vector<T> host(numbers.size());
    std::transform(numbers.begin(), numbers.end(), host.begin(),
                   [](double x) { return T(static_cast<accumulator_t<T>>(x)); });
    memory::copy_from_host(context.exec(), shard.data, host.data(), host.size() * sizeof(T));
    return shard;
}
template <class T>
Numbers read(Context<Exec> const& context, detail::Shard<T, Exec> const& shard) {
    std::vector<T> host(shard.size());
    memory::copy_to_host(context.exec(), host.data(), shard.data, host.size() * sizeof(T));
    Numbers numbers;
    for (auto const x : host) numbers.push_back(static_cast<double>(static_cast<accumulator_t<T>>(x)));
    return numbers;
}

/// This rank's part of C + A B, or of A B where there is no C.
template <class T>
Numbers multiplied(Context<Exec> const& context, Matrix a, Matrix b, Matrix c, Numbers const& x, Numbers const& y,
                   Numbers const* z, std::size_t panel_bytes) {
    for (auto* matrix : {&a, &b, &c}) matrix->layout.element_size = sizeof(T);
    auto const at = product_dimensions(a.layout, b.layout, c.layout);
    REQUIRE(at.valid());
    auto const extents = extents_of(a, b, at);
    detail::PreparedProduct product({a.layout, b.layout, c.layout, extents, a.mesh, a.mesh, a.mesh, world_rank()},
                                    plan_product(a.layout, b.layout, c.layout, extents, a.mesh));
    auto const left = detail::carry_out(context, product.a_sum(), made<T>(context, a, x)),
               right = detail::carry_out(context, product.b_sum(), made<T>(context, b, y));
    if (z == nullptr) return read(context, detail::multiply_shards<T>(context, product, panel_bytes, left, right));
    auto const sum = made<T>(context, c, *z);
    detail::multiply_shards_into(context, product, panel_bytes, left, right, sum);
    return read(context, sum);
}

using Run = Numbers (*)(Context<Exec> const&, Matrix, Matrix, Matrix, Numbers const&, Numbers const&, Numbers const*,
                        std::size_t);
struct OfElement {
    std::size_t size;
    Run run;
};
/// Whole numbers of the products here are exact in f64 and f32; in bf16 where they are small.
constexpr std::array of_elements{OfElement{sizeof(f64), &multiplied<f64>}, OfElement{sizeof(f32), &multiplied<f32>}};

/// The fewest bytes of all roles and orders of the axes that the layouts name, by going through all.
double least_bytes(Matrix const& a, Matrix const& b, Matrix const& c) {
    auto const at = product_dimensions(a.layout, b.layout, c.layout);
    double least = std::numeric_limits<double>::infinity();
    auto order = axes;
    std::sort(order.begin(), order.end());
    do
        for (std::size_t roles = 0; roles < 64; ++roles) {
            std::array<AxisNames, 4> cut;
            for (std::size_t i = 0; i < 3; ++i) {
                bool is_named = false;
                for (auto const* of : {&a, &b, &c})
                    is_named = is_named || of->layout.placement(order[i]) != Placement::invariant;
                cut[is_named ? roles >> (2 * i) & 3 : 3].push(order[i]);
            }
            auto const [rows, columns, inner, none] = cut;
            auto used_a = a.layout, used_b = b.layout, computed = c.layout;
            for (auto* layout : {&used_a, &used_b, &computed}) layout->partial = layout->replicated = AxisNames();
            used_a.dimensions[at.a_rows].axes = computed.dimensions[at.c_rows].axes = rows;
            used_b.dimensions[at.b_columns].axes = computed.dimensions[at.c_columns].axes = columns;
            used_a.dimensions[at.a_inner].axes = used_b.dimensions[at.b_inner].axes = inner;
            computed.partial = inner;
            try {
                for (auto const& [layout, of] : {std::pair(&used_a, &a), {&used_b, &b}, {&computed, &c}})
                    (void)local_extents(*layout, of->extents, a.mesh);
            } catch (std::invalid_argument const&) {
                continue;
            }
            auto const cost = [&](Matrix const& of, LayoutValue const& from, LayoutValue const& to) {
                return cost_of(make_plan(from, to), from, of.extents, a.mesh).total();
            };
            least =
                std::min(least, cost(a, a.layout, used_a) + cost(b, b.layout, used_b) + cost(c, computed, c.layout));
        }
    while (std::next_permutation(order.begin(), order.end()));
    return least;
}

double sum_over_ranks(double x) {
    PMPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return x;
}

void check_products(int draws) {
    std::mt19937 draw(static_cast<unsigned>(world_size()));
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(draw()) % n; };
    constexpr int on_a_mesh = 50;
    for (int done = 0; done < draws; done += on_a_mesh) {
        auto const ranks = support::drawn_mesh(world_size(), below);
        M const mesh(ranks[0], ranks[1], ranks[2]);
        comm::Communicators communicators(MPI_COMM_WORLD, mesh);
        Context<Exec> const context(communicators);
        for (int i = 0; i < on_a_mesh; ++i) {
            std::array<std::size_t, 3> of{};
            std::array<bool, 3> is_uneven{};
            for (std::size_t d = 0; d < 3; ++d) {
                auto const ranks_of_world = static_cast<std::size_t>(world_size());
                is_uneven[d] = below(3) == 0;
                of[d] = is_uneven[d] ? below(4 * ranks_of_world) + below(2)
                                     : (below(3) == 0 ? 1 : ranks_of_world) * (1 + below(4));
            }
            OfElement const element = of_elements[below(of_elements.size())];
            auto const drawn = [&](std::size_t p, std::size_t q) {
                constexpr std::array<std::string_view, 3> names{"i", "j", "k"};
                LayoutValue bare;
                bare.element_size = element.size;
                bare.rank = 2;
                bool const is_turned = below(2) == 0;
                if (is_turned) std::swap(p, q);
                Matrix matrix{bare, {of[p], of[q]}, communicators.mesh()};
                for (std::size_t d = 0; d < 2; ++d) {
                    matrix.layout.dimensions[d].name = names[d == 0 ? p : q];
                    matrix.layout.dimensions[d].is_uneven = is_uneven[d == 0 ? p : q];
                }
                auto const unplaced = matrix.layout;
                for (;;) { // until all extents divide
                    auto order = axes;
                    std::shuffle(order.begin(), order.end(), draw);
                    matrix.layout = support::placed(unplaced, order, [&](std::string_view) { return below(5); });
                    try {
                        (void)local_extents(matrix.layout, matrix.extents, matrix.mesh);
                        return matrix;
                    } catch (std::invalid_argument const&) {
                    }
                }
            };
            auto const a = drawn(0, 2), b = drawn(2, 1), c = drawn(0, 1);
            std::size_t const panel_bytes = below(2) == 0 ? 32 : std::size_t{1} << 20;
            CAPTURE(to_string(a.layout, a.extents.data()));
            CAPTURE(to_string(b.layout, b.extents.data()));
            CAPTURE(to_string(c.layout, c.extents.data()));
            auto const x = a.shard(1), y = b.shard(2), g = c.dual().shard(3);
            bool const adds = below(2) == 0;
            auto const z = c.shard(4);
            observe::ledger().clear();
            auto const product = element.run(context, a, b, c, x, y, adds ? &z : nullptr, panel_bytes);
            double sent = 0;
            for (auto const axis : axes) sent += observe::ledger().bytes(axis);

            // The value.
            auto const at = product_dimensions(a.layout, b.layout, c.layout);
            auto const whole_a = a.whole(1), whole_b = b.whole(2), whole_c = c.whole(4);
            auto const wanted = [&](std::size_t e) {
                std::size_t const row = e / c.extents[1], column = e % c.extents[1];
                std::size_t const p = at.c_rows == 0 ? row : column, q = at.c_rows == 0 ? column : row;
                double sum = adds ? whole_c[e] : 0;
                for (std::size_t k = 0; k < of[2]; ++k) sum += whole_a[a.at("i", p, k)] * whole_b[b.at("k", k, q)];
                return sum;
            };
            auto const target = c.holding();
            REQUIRE(product.size() == target.size());
            if (c.layout.partial.empty())
                for (std::size_t e = 0; e < product.size(); ++e) CHECK(product[e] == wanted(target.global(e)));

            // The bytes.
            auto const extents = extents_of(a, b, at);
            auto const plan = plan_product(a.layout, b.layout, c.layout, extents, a.mesh);
            // All ranks would search the same: they take turns.
            if (i % world_size() == world_rank()) CHECK(plan.bytes <= least_bytes(a, b, c) * (1 + 1e-9));
            CHECK(sum_over_ranks(sent) == doctest::Approx(plan.bytes * world_size()));

            // The adjoint law: <A B, G> = <A, G B^T> = <B, A^T G>.
            auto const ab = element.run(context, a, b, c, x, y, nullptr, panel_bytes);
            auto const da = element.run(context, c.dual(), b, a.dual(), g, y, nullptr, panel_bytes),
                       db = element.run(context, a, c.dual(), b.dual(), x, g, nullptr, panel_bytes);
            double const law = pairing(target, ab, g);
            CHECK(law == pairing(a.holding(), x, da));
            CHECK(law == pairing(b.holding(), y, db));
        }
    }
}

} // namespace

TEST_CASE("a product of matrices in any three layouts") { check_products(world_size() < 4 ? 300 : 200); }

TEST_CASE("the same where no rank reads another's memory") {
    auto const before = std::exchange(comm::forced_algorithm(), comm::Algorithm::mailbox);
    check_products(100);
    comm::forced_algorithm() = before;
}
