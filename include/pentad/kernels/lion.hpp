// Lion in one pass over memory (Chen et al. 2023, algorithm 2): a step by the sign of an average of momentum and
// gradient.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// The numbers of one Lion update.
struct LionSettings {
    f64 learning_rate = 1e-4;
    f64 beta1 = 0.9;
    f64 beta2 = 0.99;
    f64 weight_decay = 0.1; // decoupled
    f64 gradient_scale = 1; // what gradients are multiplied with first: clipping
};

/// One update of a flat range. `master` holds the weights in the accumulator type and `parameters` what the layers use;
/// for f32 and f64 both may be the same memory. Where the average is exactly 0 only decay changes the weight.
template <class T, class Exec>
void lion(Exec const& exec, Out<T, 1, Exec> parameters, Out<accumulator_t<T>, 1, Exec> master,
          In<accumulator_t<T>, 1, Exec> gradients, Out<accumulator_t<T>, 1, Exec> momentum,
          LionSettings const& settings) {
    using A = accumulator_t<T>;
    std::size_t const n = parameters.extent(0);
    detail::require_extent("lion", "master", master.extent(0), n, "as parameters");
    detail::require_extent("lion", "gradients", gradients.extent(0), n, "as parameters");
    detail::require_extent("lion", "momentum", momentum.extent(0), n, "as parameters");
    A const rate = static_cast<A>(settings.learning_rate), clip = static_cast<A>(settings.gradient_scale);
    A const keep = static_cast<A>(1 - settings.learning_rate * settings.weight_decay);
    A const new1 = static_cast<A>(1 - settings.beta1), new2 = static_cast<A>(1 - settings.beta2);
    T* const used = parameters.data();
    A* const weights = master.data();
    A const* const gradient = gradients.data();
    A* const average = momentum.data();
    if (dry("lion", parameters, master, master, gradients, momentum, momentum)) return;
    for_each_element(
        "pentad::lion", exec, n, KOKKOS_LAMBDA(i64 i) {
            A const g = gradient[i] * clip, m = average[i];
            A const direction = m + (g - m) * new1;
            A const sign = static_cast<A>(direction > 0) - static_cast<A>(direction < 0);
            A const w = weights[i] * keep - rate * sign;
            average[i] = m + (g - m) * new2;
            weights[i] = w;
            used[i] = T(w);
        });
}
PENTAD_KERNEL(lion)

} // namespace pentad::kernels
