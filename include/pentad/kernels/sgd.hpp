// Stochastic gradient descent with momentum in one pass over memory, as torch.optim.SGD without dampening.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// The numbers of one SGD update.
struct SgdSettings {
    f64 learning_rate = 1e-3;
    f64 momentum = 0.9; // 0: none
    bool nesterov = false;
    f64 weight_decay = 0;   // L2: times the weights, added to the gradient
    f64 gradient_scale = 1; // what gradients are multiplied with first: clipping
};

/// One update of a flat range: with g = gradient + weight_decay w, m becomes momentum m + g, and the step is m, or with
/// Nesterov's g + momentum m. `master` holds the weights in the accumulator type and `parameters` what the layers use;
/// for f32 and f64 both may be the same memory.
/// @param momentum of no elements where there is none
template <class T, class Exec>
void sgd(Exec const& exec, Out<T, 1, Exec> parameters, Out<accumulator_t<T>, 1, Exec> master,
         In<accumulator_t<T>, 1, Exec> gradients, Out<accumulator_t<T>, 1, Exec> momentum,
         SgdSettings const& settings) {
    using A = accumulator_t<T>;
    std::size_t const n = parameters.extent(0);
    bool const has_momentum = settings.momentum != 0;
    detail::require_extent("sgd", "master", master.extent(0), n, "as parameters");
    detail::require_extent("sgd", "gradients", gradients.extent(0), n, "as parameters");
    detail::require_extent("sgd", "momentum", momentum.extent(0), has_momentum ? n : 0,
                           has_momentum ? "as parameters" : "without momentum");
    A const rate = static_cast<A>(settings.learning_rate), clip = static_cast<A>(settings.gradient_scale);
    A const decay = static_cast<A>(settings.weight_decay), keep = static_cast<A>(settings.momentum);
    // The step is from_gradient g + from_momentum m.
    A const from_gradient = settings.nesterov ? A(1) : A(0), from_momentum = settings.nesterov ? keep : A(1);
    T* const used = parameters.data();
    A* const weights = master.data();
    A const* const gradient = gradients.data();
    A* const average = momentum.data();
    if (dry("sgd", parameters, master, master, gradients, momentum, momentum)) return;
    if (!has_momentum)
        return for_each_element(
            "pentad::sgd", exec, n, KOKKOS_LAMBDA(i64 i) {
                A const w = weights[i] - rate * (gradient[i] * clip + decay * weights[i]);
                weights[i] = w;
                used[i] = T(w);
            });
    for_each_element(
        "pentad::sgd", exec, n, KOKKOS_LAMBDA(i64 i) {
            A const g = gradient[i] * clip + decay * weights[i];
            A const m = keep * average[i] + g;
            A const w = weights[i] - rate * (from_gradient * g + from_momentum * m);
            average[i] = m;
            weights[i] = w;
            used[i] = T(w);
        });
}
PENTAD_KERNEL(sgd)

} // namespace pentad::kernels
