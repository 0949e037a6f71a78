// Products of distributed matrices: multiply<LC>(a, b), multiply_into(c, a, b), and the gradients of their factors.
// What is sent, and where the work is done, follows from the three layouts (roles.hpp).
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/product/detail/compute.hpp>
#include <pentad/product/detail/prepared.hpp>
#include <pentad/product/roles.hpp>
#include <pentad/tensor/tensor.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad {

/// How much of the factors a rank has of others at once, where they arrive in messages: panels of the summed dimension
/// in two buffers of at most `Bytes` together. One is multiplied while the next arrives. What can be read in place, in
/// the memory of a node, takes none.
template <std::size_t Bytes = std::size_t{32} << 20>
struct Panels {
    static constexpr std::size_t bytes = Bytes;
};

namespace detail {

/// The extents of a product. @throws std::invalid_argument where the factors' do not fit
inline ProductExtents extents_of_product(LayoutValue const& a, LayoutValue const& b, ProductDimensions const& at,
                                         std::size_t const* of_a, std::size_t const* of_b) {
    if (of_a[at.a_inner] != of_b[at.b_inner])
        throw std::invalid_argument("no product of " + to_string(a, of_a) + " and " + to_string(b, of_b) + ": " +
                                    std::string(a.dimensions[at.a_inner].name) + " has two extents");
    return {of_a[at.a_rows], of_b[at.b_columns], of_a[at.a_inner]};
}

inline ProductPlan plan_on_mesh(ProductMatrices const& matrices) {
    return plan_product(matrices.a, matrices.b, matrices.c, matrices.extents, matrices.mesh_of_c);
}

/// What is kept of the last products of some layouts.
class PreparedProducts {
  public:
    using Planner = ProductPlan (*)(ProductMatrices const&);

    PreparedProduct& of(ProductMatrices const& matrices, Planner planner) {
        for (auto& known : known_)
            if (known.is_of(matrices)) return known;
        require_result(matrices);
        auto const plan = planner(matrices);
        if (known_.size() < most) return known_.emplace_back(matrices, plan);
        return known_[next_++ % most] = PreparedProduct(matrices, plan);
    }

  private:
    /// @throws std::invalid_argument where the result's layout does not fit its extents
    static void require_result(ProductMatrices const& matrices) {
        auto const& c = matrices.c;
        auto const at = product_dimensions(matrices.a, matrices.b, c);
        auto const extents = oriented(at.c_rows, matrices.extents.rows, matrices.extents.columns);
        for (std::size_t d = 0; d < 2; ++d)
            if (c.dimensions[d].extent != dynamic && c.dimensions[d].extent != extents[d])
                throw std::invalid_argument("the product has " + std::string(c.dimensions[d].name) + " = " +
                                            std::to_string(extents[d]) + " and its layout is " + to_string(c));
        (void)local_extents(c, extents, matrices.mesh_of_c);
    }

    static constexpr std::size_t most = 16;
    std::vector<PreparedProduct> known_;
    std::size_t next_ = 0;
};

template <class C, class A, class B, class Exec, class M>
PreparedProduct& prepared_product(Tensor<A, Exec, M> const& a, Tensor<B, Exec, M> const& b) {
    if (&a.context() != &b.context())
        throw std::invalid_argument("the factors of a product are tensors of two contexts: make both from one");
    static PreparedProducts products; // for the one thread that drives Pentad
    constexpr auto at = product_dimensions(A::value, B::value, C::value);
    auto const& communicators = a.context().communicators();
    auto const mesh = communicators.mesh();
    return products.of({A::value, B::value, C::value,
                        extents_of_product(A::value, B::value, at, a.extents().data(), b.extents().data()), mesh, mesh,
                        mesh, communicators.world().rank()},
                       &plan_on_mesh);
}

/// The shard of a factor, summed where it is partial.
template <class L, class Exec, class M>
Shard<typename L::element, Exec> summed_factor(Tensor<L, Exec, M> const& factor, PlanValue const& sum) {
    return carry_out(factor.context(), sum, shard_of(factor));
}

} // namespace detail

/// C = A B in layout C, where the names of the dimensions say what is summed: the one that both factors have. Each may
/// have its dimensions in either order. A and B are as they were. Collective over the groups of the axes that the
/// layouts name. Blocks until the result is there.
///
/// Each axis cuts rows, columns or summands, or none of them: the choice that sends the fewest bytes (plan_product).
/// Sums over summands of one rank are in accumulators, rounded once; those over ranks are a redistribution.
/// @tparam C a layout of the two other dimensions, with the elements of A and B (f64, f32 or bf16) or their
/// accumulators
/// @throws std::invalid_argument where the extents do not fit each other
template <class C, class Policy = Panels<>, class A, class B, class Exec, class M>
[[nodiscard]] Tensor<C, Exec, M> multiply(Tensor<A, Exec, M> const& a, Tensor<B, Exec, M> const& b) {
    require_product<C, A, B>();
    if constexpr (MatrixProduct<C, A, B>) {
        auto& product = detail::prepared_product<C>(a, b);
        auto c = detail::multiply_shards<typename C::element>(a.context(), product, Policy::bytes,
                                                              detail::summed_factor(a, product.a_sum()),
                                                              detail::summed_factor(b, product.b_sum()));
        return Tensor<C, Exec, M>::unchecked(a.context(), product.extents_of_result(), std::move(c.block), c.data);
    }
}

/// C += A B; otherwise as `multiply`. A copy of C's buffer sees the sum too.
/// @throws std::invalid_argument also where C has other extents than the product, or is one of its factors
template <class Policy = Panels<>, class C, class A, class B, class Exec, class M>
void multiply_into(Tensor<C, Exec, M> const& c, Tensor<A, Exec, M> const& a, Tensor<B, Exec, M> const& b) {
    require_product<C, A, B>();
    if constexpr (MatrixProduct<C, A, B>) {
        auto& product = detail::prepared_product<C>(a, b);
        (void)c.context(); // where it was moved from, all ranks throw, also those without elements
        if (c.extents() != product.extents_of_result())
            throw std::invalid_argument("the product of " + a.describe() + " and " + b.describe() +
                                        " is not added to " + c.describe() + ", which has other extents");
        void const* const result = c.array_data();
        if (result == a.array_data() || result == b.array_data())
            throw std::invalid_argument("a product is not added to one of its factors: copy " + c.describe());
        detail::multiply_shards_into(a.context(), product, Policy::bytes, detail::summed_factor(a, product.a_sum()),
                                     detail::summed_factor(b, product.b_sum()), detail::shard_of(c));
    }
}

/// The gradient of A in C = A B, from that of C: dA = dC B^T, as a product of duals.
/// @param dc in the dual of the layout of C
template <class A, class Policy = Panels<>, class DC, class B, class Exec, class M>
[[nodiscard]] Tensor<dual_t<A>, Exec, M> multiply_backward_a(Tensor<DC, Exec, M> const& dc,
                                                             Tensor<B, Exec, M> const& b) {
    return multiply<dual_t<A>, Policy>(dc, b);
}
/// The gradient of B: dB = A^T dC.
template <class B, class Policy = Panels<>, class A, class DC, class Exec, class M>
[[nodiscard]] Tensor<dual_t<B>, Exec, M> multiply_backward_b(Tensor<A, Exec, M> const& a,
                                                             Tensor<DC, Exec, M> const& dc) {
    return multiply<dual_t<B>, Policy>(a, dc);
}

} // namespace pentad
