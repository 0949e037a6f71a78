// A product of distributed matrices, derived from three layouts: what each axis of the mesh cuts, the layouts in which
// the local products are computed, and the plans to and from these.
#pragma once

#include <pentad/layout/cost.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad {

/// What an axis cuts in C[i, j] = sum over k of A[i, k] B[k, j]. Its ranks compute different rows (i), columns (j) or
/// summands (k) of C; or the same.
enum class ProductRole : std::uint8_t { rows, columns, inner, none };

/// Why three layouts have no product.
enum class ProductError : std::uint8_t {
    none,
    not_matrices,
    dimensions_do_not_contract,
    elements_differ,
    extents_differ,
    other_reduction,
    part_of_axis,
    other_blocks,
};

/// One sentence for each ProductError: what is wrong and what to do.
inline constexpr std::array<std::string_view, 8> product_error_texts{
    "",
    "pentad: a product is of matrices: give each layout two dimensions",
    "pentad: no product: both factors have the dimension that is summed, and the result has the two others",
    "pentad: the factors and the result of a product have different elements: convert one first",
    "pentad: the layouts of a product give a dimension two different extents",
    "pentad: a partial maximum, minimum or log-sum-exp is neither multiplied nor made by a product: reduce it first",
    "pentad: one layout of a product names an axis and another a factor of it: name outer and inner in all",
    "pentad: a matrix in a product has no ghost cells, and a dimension has uneven blocks in both matrices or in "
    "neither: redistribute one first",
};

/// Where the dimensions of a product are: 0 or 1 in each layout.
struct ProductDimensions {
    ProductError error = ProductError::none;
    std::size_t a_rows = 0, a_inner = 1, b_inner = 0, b_columns = 1, c_rows = 0, c_columns = 1;

    [[nodiscard]] constexpr bool valid() const { return error == ProductError::none; }
};

namespace detail {

constexpr bool is_other_reduction(LayoutValue const& layout) {
    return !layout.partial_max.empty() || !layout.partial_min.empty() || !layout.partial_log_sum_exp.empty();
}

/// Every axis that one of the three layouts names, each once.
constexpr AxisNames axes_of_product(LayoutValue const& a, LayoutValue const& b, LayoutValue const& c) {
    AxisNames all;
    for (auto const* layout : {&c, &a, &b})
        for (auto const axis : layout->axes())
            if (!all.contains(axis) && all.size() < max_axes) all.push(axis);
    return all;
}

constexpr bool extents_agree(DimensionValue const& x, DimensionValue const& y) {
    return x.extent == y.extent || x.extent == dynamic || y.extent == dynamic;
}

} // namespace detail

/// Tells the dimensions of a product apart by their names.
constexpr ProductDimensions product_dimensions(LayoutValue const& a, LayoutValue const& b, LayoutValue const& c) {
    using enum ProductError;
    ProductDimensions at;
    if (a.rank != 2 || b.rank != 2 || c.rank != 2) return {not_matrices};
    auto const named = [](LayoutValue const& layout, std::string_view name) {
        return layout.dimensions[0].name == name ? 0u : layout.dimensions[1].name == name ? 1u : 2u;
    };
    at.a_inner = named(b, a.dimensions[0].name) < 2 ? 0 : 1;
    auto const summed = a.dimensions[at.a_inner].name;
    at.a_rows = 1 - at.a_inner;
    at.b_inner = named(b, summed);
    if (at.b_inner == 2) return {dimensions_do_not_contract};
    at.b_columns = 1 - at.b_inner;
    at.c_rows = named(c, a.dimensions[at.a_rows].name);
    at.c_columns = named(c, b.dimensions[at.b_columns].name);
    if (at.c_rows + at.c_columns != 1) return {dimensions_do_not_contract};
    if (a.element != b.element) return {elements_differ}; // of c: why_no_product
    if (!detail::extents_agree(a.dimensions[at.a_inner], b.dimensions[at.b_inner]) ||
        !detail::extents_agree(a.dimensions[at.a_rows], c.dimensions[at.c_rows]) ||
        !detail::extents_agree(b.dimensions[at.b_columns], c.dimensions[at.c_columns]))
        return {extents_differ};
    for (auto const* layout : {&a, &b, &c})
        if (detail::is_other_reduction(*layout)) return {other_reduction};
    for (auto const* layout : {&a, &b, &c})
        if (layout->has_halo()) return {other_blocks};
    if (a.dimensions[at.a_inner].is_uneven != b.dimensions[at.b_inner].is_uneven ||
        a.dimensions[at.a_rows].is_uneven != c.dimensions[at.c_rows].is_uneven ||
        b.dimensions[at.b_columns].is_uneven != c.dimensions[at.c_columns].is_uneven)
        return {other_blocks};
    if (detail::names_an_axis_twice(detail::axes_of_product(a, b, c))) return {part_of_axis};
    return at;
}

/// The extents of a product: m rows, n columns, k summands.
struct ProductExtents {
    std::size_t rows, columns, inner;
};

/// The layouts on the way: A is summed where it is partial, then goes to the layout in which it is multiplied; what is
/// computed goes to the layout of C.
struct ProductPlan {
    ProductDimensions at;
    AxisNames axes; ///< that any of the layouts names
    std::array<ProductRole, max_axes> roles{};
    LayoutValue a, b, c; ///< without axes along which there is one rank
    LayoutValue a_summed, a_used, b_summed, b_used, computed;
    double bytes = std::numeric_limits<double>::infinity(); ///< that a rank sends, the mean over the ranks
    double elements = 0;                                    ///< of a rank's parts of A, B and C as they are multiplied

    [[nodiscard]] constexpr ProductRole role(std::string_view axis) const {
        for (std::size_t i = 0; i < axes.size(); ++i)
            if (axes[i] == axis) return roles[i];
        return ProductRole::none;
    }
};

namespace detail {

/// A layout with its dimensions cut by these axes, invariant over all others.
constexpr LayoutValue cut(LayoutValue const& layout, AxisNames const& first, AxisNames const& second) {
    LayoutValue result = layout;
    result.replicated = result.partial = AxisNames();
    result.dimensions[0].axes = first;
    result.dimensions[1].axes = second;
    return result;
}

/// A layout of two dimensions, of which `first_at` is cut by `first` and the other by `second`.
constexpr LayoutValue oriented(LayoutValue const& layout, std::size_t first_at, AxisNames const& first,
                               AxisNames const& second) {
    return first_at == 0 ? cut(layout, first, second) : cut(layout, second, first);
}
constexpr std::array<std::size_t, 2> oriented(std::size_t first_at, std::size_t first, std::size_t second) {
    return first_at == 0 ? std::array{first, second} : std::array{second, first};
}

/// A layout without the axes along which there is one rank: they only hide that it is another one.
constexpr LayoutValue without_single_ranks(LayoutValue const& layout, std::span<MeshAxisValue const> mesh) {
    LayoutValue result = layout;
    for (auto const axis : layout.axes()) {
        if (find_axis(mesh, axis).extent > 1) continue;
        for (auto& dimension : result.dimensions) drop(dimension.axes, axis);
        drop(result.replicated, axis);
        drop(result.partial, axis);
    }
    return result;
}

/// Whether so many ranks can share out a dimension.
constexpr bool can_cut(DimensionValue const& dimension, std::size_t extent, std::size_t ranks) {
    return dimension.is_uneven || extent % ranks == 0;
}

/// Bytes that a rank sends from one layout to the other, the mean over the ranks. On more than 64 ranks uneven blocks
/// count as equal ones: going through all ranks would take long there.
constexpr double bytes_between(LayoutValue from, LayoutValue to, std::array<std::size_t, 2> extents,
                               std::span<MeshAxisValue const> mesh) {
    auto const ranks = static_cast<std::size_t>(rank_count(mesh));
    double share = 1; // of the elements in equal blocks that are there
    if (ranks > 64 && from.is_uneven()) {
        for (std::size_t d = 0; d < 2; ++d) {
            std::size_t const divisible = (extents[d] + ranks - 1) / ranks * ranks;
            if (divisible > 0) share *= static_cast<double>(extents[d]) / static_cast<double>(divisible);
            extents[d] = divisible;
            from.dimensions[d].is_uneven = to.dimensions[d].is_uneven = false;
        }
    }
    return share * cost_of(make_plan(from, to), from, extents, mesh).total();
}

/// A factor on its way to where it is multiplied.
struct FactorWay {
    LayoutValue summed; ///< of values, from which blocks go straight to where they are multiplied
    double bytes = 0;
};

/// What is sent least. Where the factor is partial it is summed first: sharded over all axes that shard it where it is
/// multiplied and divide it, so that sums are small, or else at once as it is multiplied.
constexpr FactorWay find_way(LayoutValue const& layout, LayoutValue const& used,
                             std::array<std::size_t, 2> const& extents, std::span<MeshAxisValue const> mesh) {
    FactorWay const straight{layout.partial.empty() ? layout : used, bytes_between(layout, used, extents, mesh)};
    if (layout.partial.empty()) return straight;
    LayoutValue small = layout;
    small.partial = small.replicated = AxisNames();
    for (std::size_t d = 0; d < 2; ++d)
        for (auto const axis : used.dimensions[d].axes) {
            if (small.dimension_of(axis) < 2) continue;
            auto more = small.dimensions[d].axes;
            more.push(axis);
            if (can_cut(small.dimensions[d], extents[d], ranks_along(mesh, more))) small.dimensions[d].axes = more;
        }
    FactorWay const stepwise{small,
                             bytes_between(layout, small, extents, mesh) + bytes_between(small, used, extents, mesh)};
    return stepwise.bytes <= straight.bytes ? stepwise : straight;
}

/// The search for the roles. What a factor costs depends only on the axes that cut its own dimensions, so it is found
/// once for each way of cutting these.
class RoleSearch {
  public:
    constexpr RoleSearch(LayoutValue const& a, LayoutValue const& b, LayoutValue const& c,
                         ProductExtents const& extents, std::span<MeshAxisValue const> mesh)
        : extents_(extents), mesh_(mesh) {
        best_.at = product_dimensions(a, b, c);
        a_ = best_.a = without_single_ranks(a, mesh);
        b_ = best_.b = without_single_ranks(b, mesh);
        c_ = best_.c = without_single_ranks(c, mesh);
        best_.axes = axes_of_product(a, b, c);
        best_.roles.fill(ProductRole::none); // also those along which there is one rank
        for (auto const axis : best_.axes)
            if (find_axis(mesh, axis).extent > 1) cutting_.push(axis);
    }

    constexpr ~RoleSearch() = default; // nvcc takes the implicit one for not constexpr

    constexpr ProductPlan run() {
        std::size_t assignments = 1;
        for (std::size_t i = 0; i < cutting_.size(); ++i) assignments *= 4;
        auto const try_order = [&](bool is_first) {
            for (auto* table : {&of_a_, &of_b_}) table->assign(assignments, unknown);
            for (std::size_t assignment = 0; assignment < assignments; ++assignment)
                if (is_first || depends_on_order(assignment)) consider(assignment);
        };
        try_order(true);
        if (cutting_.size() <= most_in_any_order) {
            auto const first = cutting_;
            cutting_ = sorted(cutting_);
            auto const end = cutting_.names.begin() + static_cast<std::ptrdiff_t>(cutting_.size());
            do
                if (!(cutting_ == first)) try_order(false);
            while (std::next_permutation(cutting_.names.begin(), end));
        }
        return best_;
    }

  private:
    static constexpr double unknown = -1;
    /// Axes of which every order is tried in which they may cut a dimension together. More axes are tried only in the
    /// order in which C, A and B name them: the number of orders grows as a factorial.
    static constexpr std::size_t most_in_any_order = 4;

    static constexpr ProductRole role_of(std::size_t assignment, std::size_t axis) {
        return static_cast<ProductRole>(assignment >> (2 * axis) & 3);
    }
    /// Whether two axes have one role.
    constexpr bool depends_on_order(std::size_t assignment) const {
        for (std::size_t i = 0; i < cutting_.size(); ++i)
            for (std::size_t j = 0; j < i; ++j)
                if (role_of(assignment, i) == role_of(assignment, j) && role_of(assignment, i) != ProductRole::none)
                    return true;
        return false;
    }
    constexpr AxisNames cutting(std::size_t assignment, ProductRole role) const {
        AxisNames axes;
        for (std::size_t i = 0; i < cutting_.size(); ++i)
            if (role_of(assignment, i) == role) axes.push(cutting_[i]);
        return axes;
    }
    /// The assignment in which `role` is no role: what a matrix without that dimension sees of it.
    constexpr std::size_t without(std::size_t assignment, ProductRole role) const {
        for (std::size_t i = 0; i < cutting_.size(); ++i)
            if (role_of(assignment, i) == role) assignment |= std::size_t{3} << (2 * i);
        return assignment;
    }
    /// Bytes from the layout of a factor to the one in which it is multiplied.
    constexpr double factor(double& known, LayoutValue const& layout, LayoutValue const& used,
                            std::array<std::size_t, 2> const& extents) const {
        if (known == unknown) known = find_way(layout, used, extents, mesh_).bytes;
        return known;
    }
    constexpr void consider(std::size_t assignment) {
        auto const rows = cutting(assignment, ProductRole::rows), columns = cutting(assignment, ProductRole::columns),
                   inner = cutting(assignment, ProductRole::inner);
        std::size_t const m = ranks_along(mesh_, rows), n = ranks_along(mesh_, columns), k = ranks_along(mesh_, inner);
        auto const& at = best_.at;
        if (!can_cut(a_.dimensions[at.a_rows], extents_.rows, m) ||
            !can_cut(b_.dimensions[at.b_columns], extents_.columns, n) ||
            !can_cut(a_.dimensions[at.a_inner], extents_.inner, k))
            return;
        auto const a_used = oriented(a_, at.a_rows, rows, inner), b_used = oriented(b_, at.b_inner, inner, columns);
        auto const a_extents = oriented(at.a_rows, extents_.rows, extents_.inner),
                   b_extents = oriented(at.b_inner, extents_.inner, extents_.columns),
                   c_extents = oriented(at.c_rows, extents_.rows, extents_.columns);
        double bytes = factor(of_a_[without(assignment, ProductRole::columns)], a_, a_used, a_extents) +
                       factor(of_b_[without(assignment, ProductRole::rows)], b_, b_used, b_extents);
        if (bytes > best_.bytes * tolerance) return;
        auto computed = oriented(c_, at.c_rows, rows, columns);
        computed.partial = inner;
        bytes += bytes_between(computed, c_, c_extents, mesh_);
        auto const in_all = [](double x, double y, double ranks) { return x * y / ranks; };
        auto const i = static_cast<double>(extents_.rows), j = static_cast<double>(extents_.columns),
                   s = static_cast<double>(extents_.inner);
        double const elements = in_all(i, s, static_cast<double>(m * k)) + in_all(s, j, static_cast<double>(k * n)) +
                                in_all(i, j, static_cast<double>(m * n));
        bool const sends_less = bytes * tolerance < best_.bytes;
        bool const as_much = bytes <= best_.bytes * tolerance;
        if (!sends_less && !(as_much && elements * tolerance < best_.elements)) return;
        for (std::size_t axis = 0; axis < best_.axes.size(); ++axis)
            for (std::size_t place = 0; place < cutting_.size(); ++place)
                if (cutting_[place] == best_.axes[axis]) best_.roles[axis] = role_of(assignment, place);
        best_.bytes = bytes;
        best_.elements = elements;
        best_.a_used = a_used;
        best_.b_used = b_used;
        best_.a_summed = find_way(a_, a_used, a_extents, mesh_).summed;
        best_.b_summed = find_way(b_, b_used, b_extents, mesh_).summed;
        best_.computed = computed;
    }

    static constexpr double tolerance = 1 + 1e-12; ///< sums of the same terms in another order are equal

    LayoutValue a_, b_, c_;
    ProductExtents extents_;
    std::span<MeshAxisValue const> mesh_;
    AxisNames cutting_; ///< the axes along which there is more than one rank, in the order in which they cut
    std::vector<double> of_a_, of_b_;
    ProductPlan best_;
};

} // namespace detail

/// The roles, of all 4^axes, with which a rank sends the fewest bytes, by the costs of the plans; of these the ones
/// with the smallest parts of the three matrices. Where axes cut one dimension together, they do so in the best order.
/// C on many axes gives SUMMA (van de Geijn and Watts 1997) in the order of Cannon (1969), an axis on k the 2.5D and 3D
/// products (Solomonik and Demmel 2011; Agarwal et al. 1995), one axis the 1D products. Extents that the axes of a role
/// do not divide rule the role out, but where the dimension has uneven blocks.
/// @pre product_dimensions(a, b, c).valid(), and the extents are divided as the three layouts ask
constexpr ProductPlan plan_product(LayoutValue const& a, LayoutValue const& b, LayoutValue const& c,
                                   ProductExtents const& extents, std::span<MeshAxisValue const> mesh) {
    return detail::RoleSearch(a, b, c, extents, mesh).run();
}

/// Writes who does what, and what moves: `rows: dp, columns: tp; A: all_gather(tp) of k; B: all_gather(dp) of k; C:
/// nothing`.
constexpr void write(Text& out, ProductPlan const& plan) {
    constexpr std::array<std::string_view, 4> names{"rows", "columns", "inner", "none"};
    bool first = true;
    for (std::size_t role = 0; role < names.size(); ++role) {
        bool is_named = false;
        for (std::size_t i = 0; i < plan.axes.size(); ++i) {
            if (static_cast<std::size_t>(plan.roles[i]) != role) continue;
            out << (is_named ? "." : first ? "" : ", ");
            if (!is_named) out << names[role] << ": ";
            out << plan.axes[i];
            is_named = true;
            first = false;
        }
    }
    auto const factor = [&](std::string_view name, LayoutValue const& from, LayoutValue const& summed,
                            LayoutValue const& used) {
        auto const sum = make_plan(from, summed), move = make_plan(summed, used);
        out << (first ? "" : "; ") << name << ": ";
        first = false;
        if (sum.count > 0) write(out, sum, from);
        if (sum.count > 0 && move.count > 0) out << ", ";
        if (sum.count == 0 || move.count > 0) write(out, move, summed);
    };
    factor("A", plan.a, plan.a_summed, plan.a_used);
    factor("B", plan.b, plan.b_summed, plan.b_used);
    factor("C", plan.computed, plan.computed, plan.c);
}

namespace detail {

template <class M>
inline constexpr bool is_static_mesh = false;
template <class... Axes>
inline constexpr bool is_static_mesh<Mesh<Axes...>> = ((Axes::extent != dynamic) && ...);

template <class... Layouts>
constexpr bool have_static_extents() {
    bool all = true;
    for (auto const* layout : {&Layouts::value...})
        for (std::size_t d = 0; d < layout->rank; ++d) all = all && layout->dimensions[d].extent != dynamic;
    return all;
}

} // namespace detail

/// The plan of a product while compiling, where all extents are static: `ProductPlanOn<M, C, A, B>::value`, `::text()`.
/// `multiply` finds the same when it runs, once for each shape. (clang needs a larger -fconstexpr-steps for three
/// axes.)
template <class M, class C, class A, class B>
struct ProductPlanOn {
    static_assert(detail::is_static_mesh<M> && detail::have_static_extents<A, B>(),
                  "pentad: a product is planned while compiling where the mesh and the factors have static extents: "
                  "elsewhere call plan_product");
    static constexpr ProductPlan value = [] {
        constexpr auto at = product_dimensions(A::value, B::value, C::value);
        static_assert(at.valid(), "pentad: there is no such product: require_product says why");
        return plan_product(A::value, B::value, C::value,
                            {A::value.dimensions[at.a_rows].extent, B::value.dimensions[at.b_columns].extent,
                             A::value.dimensions[at.a_inner].extent},
                            M().axes());
    }();
    static constexpr Text written = [] {
        Text out;
        write(out, value);
        return out;
    }();
    static constexpr std::string_view text() { return written.view(); }
};

namespace detail {

template <class T>
inline constexpr bool is_multiplied = std::is_same_v<T, f64> || std::is_same_v<T, f32> || std::is_same_v<T, bf16>;

template <class C, class A, class B>
constexpr std::string_view why_no_product() {
    using T = typename A::element;
    constexpr auto error = product_dimensions(A::value, B::value, C::value).error;
    if constexpr (error != ProductError::none)
        return product_error_texts[static_cast<std::size_t>(error)];
    else if constexpr (!std::is_same_v<T, typename B::element> ||
                       !(std::is_same_v<T, typename C::element> ||
                         std::is_same_v<accumulator_t<T>, typename C::element>))
        return product_error_texts[static_cast<std::size_t>(ProductError::elements_differ)];
    else if constexpr (!is_multiplied<T>)
        return "pentad: products are of f64, f32 and bf16: convert the factors first";
    else
        return "";
}

} // namespace detail

/// True when the product of A and B has a result of layout C.
template <class C, class A, class B>
concept MatrixProduct = detail::why_no_product<C, A, B>().empty();

/// Compiles only where the product of A and B has a result of layout C.
template <class C, class A, class B>
consteval void require_product() {
    if constexpr (!MatrixProduct<C, A, B>)
        refuse<Text() << detail::why_no_product<C, A, B>() << ": " << layout_text<A>.view() << " times "
                      << layout_text<B>.view() << " to " << layout_text<C>.view()>();
}

} // namespace pentad
