// AdamW in one pass over memory, PyTorch's formula: decay first and apart from the gradient, then the
// moments, then a step by their bias-corrected quotient.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>

#include <cmath>
#include <stdexcept>
#include <string>

namespace pentad::kernels {

/// The numbers of one AdamW update.
struct AdamWSettings {
    f64 learning_rate = 1e-3;
    f64 beta1 = 0.9;
    f64 beta2 = 0.999;
    f64 epsilon = 1e-8;
    f64 weight_decay = 1e-2;
    f64 gradient_scale = 1; // what gradients are multiplied with first: clipping
};

/// One update of a flat range; `step` counts from 1. `master` holds the weights in the accumulator type and
/// `parameters` what the layers use; for f32 and f64 both may be the same memory.
template <class T, class Exec>
void adamw(Exec const& exec, Out<T, 1, Exec> parameters, Out<accumulator_t<T>, 1, Exec> master,
           In<accumulator_t<T>, 1, Exec> gradients, Out<accumulator_t<T>, 1, Exec> first_moment,
           Out<accumulator_t<T>, 1, Exec> second_moment, i64 step, AdamWSettings const& settings) {
    using A = accumulator_t<T>;
    std::size_t const n = parameters.extent(0);
    detail::require_extent("adamw", "master", master.extent(0), n, "as parameters");
    detail::require_extent("adamw", "gradients", gradients.extent(0), n, "as parameters");
    detail::require_extent("adamw", "first_moment", first_moment.extent(0), n, "as parameters");
    detail::require_extent("adamw", "second_moment", second_moment.extent(0), n, "as parameters");
    if (step < 1) throw std::invalid_argument("adamw: step is " + std::to_string(step) + ", it must be at least 1");
    f64 const correction1 = 1 - std::pow(settings.beta1, static_cast<f64>(step));
    f64 const correction2 = 1 - std::pow(settings.beta2, static_cast<f64>(step));
    A const keep = static_cast<A>(1 - settings.learning_rate * settings.weight_decay);
    A const rate = static_cast<A>(settings.learning_rate / correction1);
    A const root_scale = static_cast<A>(1 / std::sqrt(correction2));
    A const epsilon = static_cast<A>(settings.epsilon);
    A const beta2 = static_cast<A>(settings.beta2);
    A const new1 = static_cast<A>(1 - settings.beta1), new2 = static_cast<A>(1 - settings.beta2);
    A const clip = static_cast<A>(settings.gradient_scale);
    T* const used = parameters.data();
    A* const weights = master.data();
    A const* const gradient = gradients.data();
    A* const first = first_moment.data();
    A* const second = second_moment.data();
    if (dry("adamw", parameters, master, master, gradients, first_moment, first_moment, second_moment, second_moment))
        return;
    for_each_element(
        "pentad::adamw", exec, n, KOKKOS_LAMBDA(i64 i) {
            A const g = gradient[i] * clip;
            A const m = first[i] + (g - first[i]) * new1;
            A const v = second[i] * beta2 + g * g * new2;
            A const w = weights[i] * keep - rate * (m / (math::root(v) * root_scale + epsilon));
            first[i] = m;
            second[i] = v;
            weights[i] = w;
            used[i] = T(w);
        });
}
PENTAD_KERNEL(adamw)

} // namespace pentad::kernels
