// AdamW on a bucket, or on this rank's shard of it. A gradient that is still partial is refused by the
// compiler.
#pragma once

#include <pentad/kernels/adamw.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/tensor/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace pentad::zero {

/// AdamW (Loshchilov and Hutter 2019, algorithm 2) with state of layout `StateLayout`, in accumulators.
template <class StateLayout, class T, class Exec>
class AdamW {
  public:
    using A = typename StateLayout::element;
    static constexpr bool has_master = !std::is_same_v<T, A>; ///< f32 weights behind bf16 ones

    AdamW() = default;
    AdamW(Context<Exec> const& context, std::size_t extent) {
        if constexpr (has_master) master_ = Tensor<StateLayout, Exec>(context, {extent}, observe::Memory::optimizer);
    }

    /// The weights in accumulators: the masters, or the weights themselves.
    [[nodiscard]] Tensor<StateLayout, Exec> master(Tensor<with_element_t<StateLayout, T>, Exec> const& weights) const {
        if constexpr (has_master)
            return master_;
        else
            return weights;
    }

    /// One update; `step` counts from 1. The first allocates the moments: evaluation has none.
    /// @param decaying the first elements, which are subject to weight decay; the others are not
    /// @tparam Gradient must be the layout of the state.
    template <class Gradient>
    void update(Tensor<with_element_t<StateLayout, T>, Exec> const& weights, Tensor<Gradient, Exec> const& gradient,
                std::int64_t step, kernels::AdamWSettings settings, std::size_t decaying) {
        if constexpr (is_partial<Gradient>)
            refuse<Text() << "pentad: a gradient that is still partial cannot be given to the optimizer: redistribute "
                             "it to the layout of the optimizer state first: from "
                          << layout_text<Gradient>.view() << " to " << layout_text<StateLayout>.view()>();
        else if constexpr (!std::is_same_v<Gradient, StateLayout>)
            refuse<Text() << "pentad: the gradient does not have the layout of the optimizer state: "
                          << layout_text<Gradient>.view() << " is not " << layout_text<StateLayout>.view()>();
        else {
            if (first_.empty()) allocate_moments(weights);
            auto const update = [&](std::size_t begin, std::size_t end) {
                if (begin == end) return;
                auto const part = [&](auto const& tensor) {
                    return Kokkos::subview(tensor.flat(), std::pair(begin, end));
                };
                kernels::adamw<T>(weights.context().exec(), part(weights), part(master(weights)), part(gradient),
                                  part(first_), part(second_), step, settings);
            };
            update(0, decaying);
            settings.weight_decay = 0;
            update(decaying, weights.size());
        }
    }

  private:
    void allocate_moments(Tensor<with_element_t<StateLayout, T>, Exec> const& weights) {
        for (auto* const moment : {&first_, &second_}) {
            *moment = Tensor<StateLayout, Exec>(weights.context(), {weights.size()}, observe::Memory::optimizer);
            moment->clear();
        }
    }

    Tensor<StateLayout, Exec> first_, second_, master_;
};

} // namespace pentad::zero
