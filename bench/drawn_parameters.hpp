// The memory of a layer's parameters in benchmarks of one layer, without a trainer.
#pragma once

#include <pentad/kernels/elementwise.hpp>

#include <Kokkos_Core.hpp>

#include <deque>

/// Gives the parameters of a layer of element T memory for values and gradients, and draws their values. Lives as long
/// as the layer computes.
template <class T, class Exec>
class DrawnParameters {
  public:
    template <class Layer>
    DrawnParameters(Exec const& exec, Layer& layer) {
        layer.for_each_parameter([&](auto& parameter) {
            auto const& gradient = gradients_.emplace_back("gradient", parameter.size());
            auto const& value = values_.emplace_back("value", parameter.size());
            parameter.place_gradient(gradient.data());
            parameter.draw(1, gradient.data());
            pentad::kernels::convert<pentad::accumulator_t<T>, T>(exec, gradient, value);
            parameter.place_value(value.data());
        });
    }

  private:
    std::deque<Kokkos::View<T*, Exec>> values_;
    std::deque<Kokkos::View<pentad::accumulator_t<T>*, Exec>> gradients_;
};
