// Products of matrices in any layouts, on the grid that is best for their shapes.
#pragma once

#include <pentad/product/grid.hpp>
#include <pentad/product/multiply.hpp>

#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace pentad {

/// The ranks of a grid with what tensors on it need. It outlives the tensors.
template <class Exec = Kokkos::DefaultExecutionSpace>
class GridContext {
  public:
    /// Collective over `world`, which has the ranks of the grid.
    GridContext(MPI_Comm world, ProductGrid const& grid, Exec exec = Exec())
        : grid_(grid), communicators_(world, ProductMesh(grid.rows, grid.columns, grid.inner)),
          context_(communicators_, std::move(exec)) {}

    [[nodiscard]] ProductGrid const& grid() const { return grid_; }
    [[nodiscard]] Context<Exec> const& context() const { return context_; }

  private:
    ProductGrid grid_;
    comm::Communicators communicators_;
    Context<Exec> context_;
};

namespace detail {

/// The tag of the dimension of X that Y does not have.
template <class X, class Y>
struct OwnTag;
template <class T, class First, class Second, class... States, class Y>
struct OwnTag<Layout<T, Dims<First, Second>, States...>, Y> {
    static constexpr bool has_first = Y::value.rank == 2 && (Y::value.dimensions[0].name == First::tag::name ||
                                                             Y::value.dimensions[1].name == First::tag::name);
    using type = std::conditional_t<has_first, typename Second::tag, typename First::tag>;
};

/// The result on a grid of a product of matrices A and B.
template <class A, class B>
using grid_result_t = GridResult<typename A::element, typename OwnTag<A, B>::type, typename OwnTag<B, A>::type>;

/// The plan of a product on a grid: A, wherever it is, to [i@rows, k@inner], and B to [k@inner, j@columns].
inline ProductPlan plan_on_grid(ProductMatrices const& matrices) {
    ProductPlan plan;
    plan.at = product_dimensions(matrices.a, matrices.b, matrices.c);
    plan.a = without_single_ranks(matrices.a, matrices.mesh_of_a);
    plan.b = without_single_ranks(matrices.b, matrices.mesh_of_b);
    plan.c = without_single_ranks(matrices.c, matrices.mesh_of_c);
    AxisNames const rows(grid_rows::name), columns(grid_columns::name), inner(grid_inner::name);
    auto const placed = [&](LayoutValue const& layout, std::size_t first_at, AxisNames const& first,
                            AxisNames const& second) {
        return without_single_ranks(oriented(layout, first_at, first, second), matrices.mesh_of_c);
    };
    plan.a_used = placed(plan.a, plan.at.a_rows, rows, inner);
    plan.b_used = placed(plan.b, plan.at.b_inner, inner, columns);
    plan.computed = placed(plan.c, plan.at.c_rows, rows, columns);
    if (find_axis(matrices.mesh_of_c, grid_inner::name).extent > 1) plan.computed.partial = inner;
    auto const& [m, n, k] = matrices.extents;
    auto const require_division = [&](LayoutValue const& layout, std::size_t first_at, std::size_t first,
                                      std::size_t second) {
        (void)local_extents(layout, oriented(first_at, first, second), matrices.mesh_of_c);
    };
    require_division(plan.a_used, plan.at.a_rows, m, k);
    require_division(plan.b_used, plan.at.b_columns, n, k);
    plan.a_summed = plan.a;
    plan.b_summed = plan.b;
    plan.a_summed.partial = plan.b_summed.partial = AxisNames();
    return plan;
}

} // namespace detail

/// C = A B on a grid, wherever A and B are: on other meshes of the same ranks, numbered alike, in any layouts of the
/// same elements. C is shared out evenly. A rank gets, of each factor, its block of the grid, panel by panel, and of
/// these only what it does not hold. Collective over the ranks of the grid.
/// @throws std::invalid_argument where the extents do not fit each other or the grid, or the ranks are others
template <class Policy = Panels<>, class A, class B, class Exec, class M, class N>
[[nodiscard]] auto multiply(GridContext<Exec> const& grid, Tensor<A, Exec, M> const& a, Tensor<B, Exec, N> const& b) {
    static_assert(A::rank == 2 && B::rank == 2, "pentad: a product is of matrices: give each layout two dimensions");
    using C = detail::grid_result_t<A, B>;
    require_product<C, A, B>();
    auto const& context = grid.context();
    auto const& world = context.communicators().world();
    for (auto const* other : {&a.context().communicators().world(), &b.context().communicators().world()})
        if (other->size() != world.size() || other->rank() != world.rank())
            throw std::invalid_argument("the grid of a product has " + std::to_string(world.size()) +
                                        " ranks, and a factor's mesh others: make both from one communicator");
    constexpr auto at = product_dimensions(A::value, B::value, C::value);
    static detail::PreparedProducts products;
    auto& product =
        products.of({A::value, B::value, C::value,
                     detail::extents_of_product(A::value, B::value, at, a.extents().data(), b.extents().data()),
                     a.context().communicators().mesh(), b.context().communicators().mesh(),
                     context.communicators().mesh(), world.rank()},
                    &detail::plan_on_grid);
    auto c = detail::multiply_shards<typename C::element>(context, product, Policy::bytes,
                                                          detail::summed_factor(a, product.a_sum()),
                                                          detail::summed_factor(b, product.b_sum()));
    return Tensor<C, Exec>::unchecked(context, product.extents_of_result(), std::move(c.block), c.data);
}

} // namespace pentad
