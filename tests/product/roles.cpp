// The roles that axes get in products, found while compiling: the algorithms of the literature as layouts.
#include <doctest/doctest.h>

#include <pentad/layout/ml.hpp>
#include <pentad/product/detail/prepared.hpp>
#include <pentad/product/roles.hpp>

#include <array>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

using namespace pentad;
using namespace pentad::ml;

namespace {

struct i {
    static constexpr std::string_view name = "i";
};
struct j {
    static constexpr std::string_view name = "j";
};
struct k {
    static constexpr std::string_view name = "k";
};

template <class... D>
using L = Layout<f64, Dims<D...>>;

// One axis: where C is cut, B goes round; where the factors are cut along k, C is summed.
using OneAxis = Mesh<Axis<tp, 4>>;
using Row =
    ProductPlanOn<OneAxis, L<Dim<i, 64, tp>, Dim<j, 64>>, L<Dim<i, 64, tp>, Dim<k, 64>>, L<Dim<k, 64, tp>, Dim<j, 64>>>;
static_assert(Row::text() == "rows: tp; A: nothing; B: all_gather(tp) of k; C: nothing");
static_assert(Row::value.bytes == 8 * 64 * 64 * 3 / 4.0);
using Inner = ProductPlanOn<OneAxis, L<Dim<i, 64, tp>, Dim<j, 64>>, L<Dim<i, 64>, Dim<k, 256, tp>>,
                            L<Dim<k, 256, tp>, Dim<j, 64>>>;
static_assert(Inner::text() == "inner: tp; A: nothing; B: nothing; C: reduce_scatter(tp) of i");
using Partials = ProductPlanOn<OneAxis, Layout<f64, Dims<Dim<i, 64>, Dim<j, 64>>, Partial<tp>>,
                               L<Dim<i, 64>, Dim<k, 256, tp>>, L<Dim<k, 256, tp>, Dim<j, 64>>>;
static_assert(Partials::value.bytes == 0);
// The projections of tensor parallelism (column- and row-parallel).
using Column = ProductPlanOn<OneAxis, L<Dim<seq, 64>, Dim<ffn, 64, tp>>, L<Dim<seq, 64>, Dim<hidden, 32>>,
                             L<Dim<ffn, 64, tp>, Dim<hidden, 32>>>;
static_assert(Column::text() == "columns: tp; A: nothing; B: nothing; C: nothing");

std::string text_of(LayoutValue const& a, LayoutValue const& b, LayoutValue const& c, ProductExtents const& extents,
                    std::span<MeshAxisValue const> mesh) {
    Text out;
    write(out, plan_product(a, b, c, extents, mesh));
    return std::string(out.view());
}

} // namespace

TEST_CASE("axes of C cut C, as in SUMMA, while C is no smaller than the factors") {
    using A = L<Dim<i, dynamic, dp>, Dim<k, dynamic, tp>>;
    using B = L<Dim<k, dynamic, dp>, Dim<j, dynamic, tp>>;
    using C = L<Dim<i, dynamic, dp>, Dim<j, dynamic, tp>>;
    Mesh<Axis<dp>, Axis<tp>> const mesh(4, 4);
    auto const text = [&](std::size_t m, std::size_t n, std::size_t inner) {
        return text_of(A::value, B::value, C::value, {m, n, inner}, mesh.axes());
    };
    CHECK(text(1024, 1024, 1024) ==
          "rows: dp, columns: tp; A: all_gather(tp) of k; B: all_gather(dp) of k; C: nothing");
    // One of the factors stays where it is when it is the largest.
    CHECK(text(64, 1024, 4096).find("B: nothing") != std::string::npos);
    CHECK(text(1024, 64, 4096).find("A: nothing") != std::string::npos);
}

TEST_CASE("an axis along which the factors are cut in k sums, as in the products in three dimensions") {
    using A = L<Dim<i, dynamic, dp>, Dim<k, dynamic, cp, tp>>;
    using B = L<Dim<k, dynamic, cp, dp>, Dim<j, dynamic, tp>>;
    using C = L<Dim<i, dynamic, dp, cp>, Dim<j, dynamic, tp>>;
    Mesh<Axis<dp>, Axis<tp>, Axis<cp>> const mesh(2, 2, 2);
    CHECK(
        text_of(A::value, B::value, C::value, {1024, 1024, 1024}, mesh.axes()) ==
        "rows: dp, columns: tp, inner: cp; A: all_gather(tp) of k; B: all_gather(dp) of k; C: reduce_scatter(cp) of i");
}

TEST_CASE("of choices that send as much, the one with smaller parts is taken") {
    using A = L<Dim<i>, Dim<k>>;
    using B = L<Dim<k>, Dim<j>>;
    using C = L<Dim<i, dynamic, tp>, Dim<j>>;
    Mesh<Axis<tp>> const mesh(4);
    CHECK(text_of(A::value, B::value, C::value, {8, 8, 8}, mesh.axes()) ==
          "rows: tp; A: slice(tp) of i; B: nothing; C: nothing"); // not all of C on each rank, of which it keeps a part
}

TEST_CASE("an axis that does not divide a dimension does not cut it") {
    using A = L<Dim<i>, Dim<k>>;
    using B = L<Dim<k>, Dim<j, dynamic, tp>>;
    using C = L<Dim<i>, Dim<j>>;
    Mesh<Axis<tp>> const mesh(4);
    CHECK(text_of(A::value, B::value, C::value, {7, 8, 12}, mesh.axes()).find("columns: tp") == 0);
}

namespace {
struct u {
    static constexpr std::string_view name = "u";
    static constexpr bool has_uneven_blocks = true;
};
struct even_u {
    static constexpr std::string_view name = "u";
};
} // namespace

TEST_CASE("uneven blocks are cut by any number of ranks, and agree in all matrices") {
    using A = L<Dim<u>, Dim<k>>;
    using B = L<Dim<k>, Dim<j>>;
    using C = L<Dim<u, dynamic, tp>, Dim<j>>;
    CHECK(text_of(A::value, B::value, C::value, {7, 8, 12}, Mesh<Axis<tp>>(4).axes()).find("rows: tp") == 0);
    CHECK(text_of(A::value, B::value, C::value, {7, 8, 12}, Mesh<Axis<tp>>(512).axes()).find("rows: tp") == 0);
    CHECK(product_dimensions(A::value, B::value, L<Dim<even_u>, Dim<j>>::value).error == ProductError::other_blocks);
}

TEST_CASE("on a grid no two ranks take a block from one in a step, and no rank takes one twice") {
    using A = L<Dim<i, dynamic, dp>, Dim<k, dynamic, cp, tp>>;
    using B = L<Dim<k, dynamic, cp, dp>, Dim<j, dynamic, tp>>;
    using C = L<Dim<i, dynamic, dp, cp>, Dim<j, dynamic, tp>>;
    for (auto const& [rows, columns, inner] :
         {std::array{2, 2, 1}, {3, 3, 1}, {4, 4, 1}, {4, 2, 1}, {2, 2, 2}, {1, 5, 1}})
        for (std::size_t const most : {std::size_t{1} << 20, std::size_t{7}}) { // whole blocks, and pieces of them
            Mesh<Axis<dp>, Axis<tp>, Axis<cp>> const mesh(rows, columns, inner);
            ProductExtents const extents{360, 360, 360};
            auto const plan = plan_product(A::value, B::value, C::value, extents, mesh.axes());
            REQUIRE(plan.role("dp") == (rows > 1 ? ProductRole::rows : ProductRole::none));
            std::set<std::array<std::size_t, 3>> seen; // step, factor, holder
            std::size_t pieces = 0;
            for (int rank = 0; rank < mesh.size(); ++rank) {
                detail::PreparedProduct product(
                    {A::value, B::value, C::value, extents, mesh.axes(), mesh.axes(), mesh.axes(), rank}, plan);
                auto const& schedules = product.schedules(most);
                for (std::size_t factor = 0; factor < 2; ++factor) {
                    auto const& move = factor == 0 ? product.a() : product.b();
                    auto const& taken = factor == 0 ? schedules.a.taken : schedules.b.taken;
                    std::size_t elements = 0;
                    for (std::size_t step = 0; step < taken.size(); ++step)
                        for (auto const& piece : taken[step]) {
                            seen.insert({step, factor, static_cast<std::size_t>(move.members[piece.member])});
                            ++pieces;
                            elements += piece.block.size();
                        }
                    CHECK(elements == move.used_by(rank).size());
                }
            }
            CAPTURE(rows);
            CAPTURE(columns);
            CAPTURE(inner);
            CAPTURE(most);
            if (rows == columns || rows == 1) CHECK(seen.size() == pieces);
        }
}
