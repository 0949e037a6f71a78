// The update of biases that keep the load of experts even (model::LoadBalance).
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// One update of a flat range: a bias falls by `rate` where its expert's load exceeds the mean by more than
/// `tolerance`, and rises by it where it falls short by more; by |excess| / whole of it where that is less than 1.
/// `master` holds the biases in accumulators, `parameters` what layers store.
template <class T, class Exec>
void load_balance(Exec const& exec, Out<T, 1, Exec> parameters, Out<accumulator_t<T>, 1, Exec> master,
                  In<accumulator_t<T>, 1, Exec> excess, double rate, double tolerance, double whole = 0) {
    using A = accumulator_t<T>;
    std::size_t const n = parameters.extent(0);
    detail::require_extent("load_balance", "master", master.extent(0), n, "as parameters");
    detail::require_extent("load_balance", "excess", excess.extent(0), n, "as parameters");
    if (dry("load_balance", parameters, master, master, excess)) return;
    A const step = static_cast<A>(rate), equal = static_cast<A>(tolerance), most = static_cast<A>(whole);
    for_each_element(
        "pentad::load_balance", exec, n, KOKKOS_LAMBDA(i64 i) {
            A const size = excess(i) < A(0) ? -excess(i) : excess(i);
            A const part = size <= equal ? A(0) : size < most ? size / most : A(1);
            master(i) -= excess(i) < A(0) ? -part * step : part * step;
            parameters(i) = T(master(i));
        });
}
PENTAD_KERNEL(load_balance)

} // namespace pentad::kernels
