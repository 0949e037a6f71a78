// The three parts of a Muon update (Jordan et al. 2024; torch.optim.Muon): the momentum of this rank's elements, the
// orthogonalisation of a whole matrix, and the step of this rank's elements.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/memory/copy.hpp>

#include <cstddef>
#include <utility>

namespace pentad::kernels {

/// The momentum becomes momentum m + (1 - momentum) g, and the gradient becomes it, or with Nesterov's
/// (1 - momentum) g + momentum m, which is what is orthogonalised.
template <class A, class Exec>
void muon_momentum(Exec const& exec, Out<A, 1, Exec> gradients, Out<A, 1, Exec> momentum, f64 decay, bool nesterov,
                   f64 gradient_scale) {
    std::size_t const n = gradients.extent(0);
    detail::require_extent("muon_momentum", "momentum", momentum.extent(0), n, "as gradients");
    A const clip = static_cast<A>(gradient_scale), fresh = static_cast<A>(1 - decay);
    A const from_gradient = nesterov ? fresh : A(0), from_momentum = nesterov ? static_cast<A>(decay) : A(1);
    A* const gradient = gradients.data();
    A* const average = momentum.data();
    if (dry("muon_momentum", gradients, gradients, momentum, momentum)) return;
    for_each_element(
        "pentad::muon_momentum", exec, n, KOKKOS_LAMBDA(i64 i) {
            A const g = gradient[i] * clip;
            A const m = average[i] + (g - average[i]) * fresh;
            average[i] = m;
            gradient[i] = from_gradient * g + from_momentum * m;
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(muon_momentum)

/// w becomes (1 - learning_rate weight_decay) w - learning_rate update. `master` holds the weights in the accumulator
/// type and `parameters` what the layers use; for f32 and f64 both may be the same memory.
template <class T, class Exec>
void muon_step(Exec const& exec, Out<T, 1, Exec> parameters, Out<accumulator_t<T>, 1, Exec> master,
               In<accumulator_t<T>, 1, Exec> update, f64 learning_rate, f64 weight_decay) {
    using A = accumulator_t<T>;
    std::size_t const n = parameters.extent(0);
    detail::require_extent("muon_step", "master", master.extent(0), n, "as parameters");
    detail::require_extent("muon_step", "update", update.extent(0), n, "as parameters");
    A const rate = static_cast<A>(learning_rate), keep = static_cast<A>(1 - learning_rate * weight_decay);
    T* const used = parameters.data();
    A* const weights = master.data();
    A const* const step = update.data();
    if (dry("muon_step", parameters, master, master, update)) return;
    for_each_element(
        "pentad::muon_step", exec, n, KOKKOS_LAMBDA(i64 i) {
            A const w = weights[i] * keep - rate * step[i];
            weights[i] = w;
            used[i] = T(w);
        });
}
PENTAD_KERNEL(muon_step)

namespace detail {
/// to = from / max(root of *squares, epsilon)
template <class A, class Exec>
void normalise(Exec const& exec, In<A, 1, Exec> from, Out<A, 1, Exec> to, In<f64, 0, Exec> squares, f64 epsilon) {
    A const* const x = from.data();
    A* const y = to.data();
    f64 const* const square = squares.data();
    if (dry("normalise", from, to)) return;
    for_each_element(
        "pentad::normalise", exec, to.extent(0), KOKKOS_LAMBDA(i64 i) {
            f64 const norm = math::root(*square);
            y[i] = static_cast<A>(static_cast<f64>(x[i]) / (norm > epsilon ? norm : epsilon));
        });
}
} // namespace detail

/// Elements of memory that newton_schulz() needs.
constexpr std::size_t newton_schulz_workspace(std::size_t rows, std::size_t columns) {
    std::size_t const less = rows < columns ? rows : columns;
    return rows * columns + 2 * less * less;
}

/// x becomes `scale` times a matrix with its singular vectors and with singular values near 1: x / |x| (Frobenius),
/// then x := a x + b (x x') x + c (x x')^2 x, `iterations` times, of the smaller of the two Gram matrices (Jordan et
/// al. 2024, whose a, b and c make small singular values grow fast, and leave all between about 0.7 and 1.2).
/// @param x [rows, columns], contiguous @param workspace newton_schulz_workspace(rows, columns) elements
/// @param squares a number of its own
template <class A, class Exec>
void newton_schulz(Exec const& exec, Out<A, 2, Exec> x, Out<A, 1, Exec> workspace, Out<f64, 0, Exec> squares,
                   int iterations, f64 epsilon, f64 scale) {
    constexpr f64 a = 3.4445, b = -4.7750, c = 2.0315;
    std::size_t const rows = x.extent(0), columns = x.extent(1), size = rows * columns;
    detail::require_extent("newton_schulz", "workspace", workspace.extent(0), newton_schulz_workspace(rows, columns),
                           "rows x columns + 2 min(rows, columns)^2");
    if (size == 0) return;
    bool const is_wide = rows <= columns;
    std::size_t const less = is_wide ? rows : columns;
    using Matrix = View<A, 2, Exec>;
    using List = View<A, 1, Exec>;
    Matrix const gram(workspace.data() + size, less, less);
    Matrix const polynomial(gram.data() + less * less, less, less);
    Matrix now(x.data(), rows, columns), next(workspace.data(), rows, columns);
    List const elements(x.data(), size);
    sum_of_squares<A>(exec, elements, squares);
    if (iterations % 2 != 0) std::swap(now, next); // the last one ends in x
    detail::normalise<A>(exec, elements, List(now.data(), size), squares, epsilon);
    constexpr auto plain = Transpose::no, transposed = Transpose::yes;
    for (int i = 0; i < iterations; ++i) {
        f64 const factor = i + 1 == iterations ? scale : 1;
        gemm(exec, is_wide ? plain : transposed, is_wide ? transposed : plain, 1.0, now, now, 0.0, gram);
        memory::copy(exec, polynomial.data(), gram.data(), less * less * sizeof(A));
        gemm(exec, plain, plain, c, gram, gram, b, polynomial);
        memory::copy(exec, next.data(), now.data(), size * sizeof(A));
        if (is_wide)
            gemm(exec, plain, plain, factor, polynomial, now, factor * a, next);
        else
            gemm(exec, plain, plain, factor, now, polynomial, factor * a, next);
        std::swap(now, next);
    }
}
PENTAD_KERNEL_OF_ACCUMULATORS(newton_schulz)

} // namespace pentad::kernels
