// Rotary embedding of queries and keys: the tables of the positions, and which of these a pass has.
#pragma once

#include <pentad/kernels/rope.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/rotary.hpp>

#include <cstddef>

namespace pentad {

/// @tparam T the element of queries and keys
template <class T, class Exec>
class RotaryEmbedding {
  public:
    using A = accumulator_t<T>;

    /// @param width of a head
    RotaryEmbedding(LayerSetup<Exec> const& setup, model::Rotary const& rotary, std::size_t width)
        : slices_(setup.slices), heads_{.width = width, .is_interleaved = rotary.is_interleaved},
          positions_(setup.context, {setup.slices * setup.partition().local_extent()}) {
        auto const dealt = setup.partition();
        positions_.set(setup.positions(dealt, AxisNames(ml::cp::name), dealt.local_extent()).data());
        std::size_t const half = rotary.turned(width) / 2, positions = setup.real_length();
        std::size_t fine = 1; // about as many rows as the coarse tables have
        while (fine * fine < positions) fine *= 2;
        std::size_t const coarse = (positions + fine - 1) / fine;
        Tensor<Layout<f64, Dims<Dim<ml::head_dim>>>, Exec> const frequencies(setup.context, {half});
        frequencies.set(rotary.frequencies(rotary.turned(width)).data());
        for (auto* table : {&fine_cosine_, &fine_sine_}) *table = Table(setup.context, {fine, half});
        for (auto* table : {&coarse_cosine_, &coarse_sine_}) *table = Table(setup.context, {coarse, half});
        auto const& exec = setup.context.exec();
        kernels::rope_tables<A>(exec, 1, frequencies.view(), fine_cosine_.view(), fine_sine_.view());
        kernels::rope_tables<A>(exec, static_cast<i64>(fine), frequencies.view(), coarse_cosine_.view(),
                                coarse_sine_.view(), rotary.yarn.amplitude());
        exec.fence("pentad: rope tables");
    }
    /// Turns x [batch * seq, heads * width] in place.
    template <class V>
    void forward(Pass<Exec> const& pass, V const& x) const {
        kernels::rope_forward<T>(pass.context.exec(), x, positions(pass), tables(), heads_);
    }
    /// Turns a gradient back.
    template <class V>
    void backward(Pass<Exec> const& pass, V const& dx) const {
        kernels::rope_backward<T>(pass.context.exec(), dx, positions(pass), tables(), heads_);
    }
    /// The rotation of heads that have `before` elements more in front.
    template <class V>
    void forward(Pass<Exec> const& pass, V const& x, std::size_t before) const {
        kernels::rope_forward<T>(pass.context.exec(), x, positions(pass), tables(), behind(before));
    }
    template <class V>
    void backward(Pass<Exec> const& pass, V const& dx, std::size_t before) const {
        kernels::rope_backward<T>(pass.context.exec(), dx, positions(pass), tables(), behind(before));
    }

  private:
    using Table = Tensor<Layout<A, Dims<Dim<ml::position>, Dim<ml::head_dim>>>, Exec>;

    [[nodiscard]] View<i32 const, 1, Exec> positions(Pass<Exec> const& pass) const {
        if (pass.ragged != nullptr) return pass.ragged->positions();
        if (pass.map != nullptr) return pass.map->positions;
        std::size_t const length = positions_.size() / slices_;
        return View<i32 const, 1, Exec>(positions_.data() + pass.slice * length, length);
    }
    [[nodiscard]] kernels::RotaryHeads behind(std::size_t before) const {
        return {.width = before + heads_.width, .first = before, .is_interleaved = heads_.is_interleaved};
    }
    [[nodiscard]] kernels::RotaryTables<A, Exec> tables() const {
        return {fine_cosine_.view(), fine_sine_.view(), coarse_cosine_.view(), coarse_sine_.view()};
    }

    std::size_t slices_;
    kernels::RotaryHeads heads_;
    Tensor<Layout<i32, Dims<Dim<ml::seq>>>, Exec> positions_; ///< of passes without a map
    Table fine_cosine_, fine_sine_, coarse_cosine_, coarse_sine_;
};

} // namespace pentad
