// The update of biases that keep the load of experts even (model::LoadBalance).
#pragma once

#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// One update of a flat range: a bias falls by `rate` where its expert's load exceeds the mean by more than
/// `tolerance`, and rises by it where it falls short by more. `master` holds the biases in accumulators, `parameters`
/// what layers store.
template <class T, class Exec>
void load_balance(Exec const& exec, Out<T, 1, Exec> parameters, Out<accumulator_t<T>, 1, Exec> master,
                  In<accumulator_t<T>, 1, Exec> excess, double rate, double tolerance) {
    using A = accumulator_t<T>;
    std::size_t const n = parameters.extent(0);
    detail::require_extent("load_balance", "master", master.extent(0), n, "as parameters");
    detail::require_extent("load_balance", "excess", excess.extent(0), n, "as parameters");
    if (dry("load_balance", parameters, master, master, excess)) return;
    A const step = static_cast<A>(rate), equal = static_cast<A>(tolerance);
    for_each_element(
        "pentad::load_balance", exec, n, KOKKOS_LAMBDA(i64 i) {
            A const more = excess(i) > equal ? step : excess(i) < -equal ? -step : A(0);
            master(i) -= more;
            parameters(i) = T(master(i));
        });
}

} // namespace pentad::kernels
