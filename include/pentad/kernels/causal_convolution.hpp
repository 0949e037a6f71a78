// The short causal convolution in front of a state-space scan: each channel by itself, SiLU behind it, forward and
// backward (Dao and Gu 2024, arXiv 2405.21060, figure 6; conv1d of transformers' Mamba2Mixer).
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/math.hpp>
#include <pentad/kernels/rows.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

namespace pentad::kernels {

// y_t = silu(bias + sum over j < taps of weight[taps - 1 - j] x_{t-j}), in each document by itself.
//
// Shapes, throughout: x, y and their gradients are rows [batch * seq, channels]; weight is [channels, taps], bias
// [channels]. `before` are the rows [batch * (taps - 1), channels] in front of each sequence: without memory there is
// nothing in front of it. `positions` are those of the tokens [batch * seq] in their documents, of which a tap sees no
// others: without memory all tokens of a sequence are of one.

namespace detail {

/// The rows that a token's taps see.
template <class T>
struct ConvolvedRows {
    T const *x, *before; // the latter may be null
    i64 x_stride, before_stride, seq;
    int taps;
    i32 const* positions;

    /// Taps that have something to see at row `row` of x.
    KOKKOS_FUNCTION int seen(i64 row) const {
        i64 const at = row % seq;
        int const there = before != nullptr || at >= taps - 1 ? taps : static_cast<int>(at) + 1;
        return positions == nullptr || positions[row] >= there ? there : positions[row] + 1;
    }
    /// What is `lag` tokens in front of row `row`, which sees it.
    KOKKOS_FUNCTION T const* at(i64 row, int lag) const {
        i64 const token = row % seq - lag;
        return token >= 0 ? x + (row - lag) * x_stride
                          : before + (row / seq * (taps - 1) + taps - 1 + token) * before_stride;
    }
};

/// store(c, sum over lag < seen of weight[c, taps - 1 - lag] in(lag)[c]) for every channel c of a row.
/// @param in the row at a distance of `lag`
template <class A, class T, class RowOf, class Input, class Store>
KOKKOS_FORCEINLINE_FUNCTION void convolve(RowOf const& row, int channels, int taps, int seen, T const* weight,
                                          Input const& in, Store const& store) {
    if (taps == 4 && seen == 4) { // as in all published models: the weights of neighbours are loaded as vectors
        auto const* const at = in(0);
        auto const* const before = in(1);
        auto const* const second = in(2);
        auto const* const third = in(3);
        row.each(channels, [&](int c) {
            T const* const w = weight + 4 * c;
            store(c, A(w[3]) * A(at[c]) + A(w[2]) * A(before[c]) + A(w[1]) * A(second[c]) + A(w[0]) * A(third[c]));
        });
    } else {
        row.template accumulate<A>(
            channels, seen, [&](int lag, int c) { return A(weight[c * taps + taps - 1 - lag]) * A(in(lag)[c]); },
            store);
    }
}

/// Terms of the gradient of one tap's weights: the input that the tap reads times the gradient of its output.
template <class T>
struct TapTerms {
    using A = accumulator_t<T>;
    struct OfRow {
        A const* gradient;
        T const* seen; // null: nothing
        KOKKOS_FUNCTION A operator()(int c) const { return seen == nullptr ? A(0) : gradient[c] * A(seen[c]); }
    };
    ConvolvedRows<T> rows;
    A const* gradient;
    i64 stride;
    int lag;

    KOKKOS_FUNCTION OfRow row(i64 r) const {
        return {gradient + r * stride, lag < rows.seen(r) ? rows.at(r, lag) : nullptr};
    }
};

template <class T, class Exec>
ConvolvedRows<T> convolved_rows(char const* kernel, In<T, 2, Exec> x, In<T, 2, Exec> before, In<T, 2, Exec> weight,
                                In<T, 1, Exec> bias, In<i32, 1, Exec> positions, std::size_t seq) {
    require_extent(kernel, "weight", weight.extent(0), x.extent(1), "channels of x");
    require_extent(kernel, "bias", bias.extent(0), x.extent(1), "channels of x");
    if (positions.data() != nullptr) require_extent(kernel, "positions", positions.extent(0), x.extent(0), "rows of x");
    std::size_t const taps = weight.extent(1);
    if (seq == 0 || x.extent(0) % seq != 0)
        throw std::invalid_argument(std::string(kernel) + ": " + std::to_string(x.extent(0)) +
                                    " rows are not sequences of " + std::to_string(seq));
    if (before.data() != nullptr)
        require_extent(kernel, "before", before.extent(0), x.extent(0) / seq * (taps - 1), "sequences * (taps - 1)");
    return {x.data(),
            before.data(),
            static_cast<i64>(x.stride(0)),
            static_cast<i64>(before.data() == nullptr ? 0 : before.stride(0)),
            static_cast<i64>(seq),
            static_cast<int>(taps),
            positions.data()};
}

} // namespace detail

template <class T, class Exec>
void causal_convolution_forward(Exec const& exec, In<T, 2, Exec> x, In<T, 2, Exec> before, In<T, 2, Exec> weight,
                                In<T, 1, Exec> bias, In<i32, 1, Exec> positions, std::size_t seq, Out<T, 2, Exec> y) {
    using A = accumulator_t<T>;
    auto const rows =
        detail::convolved_rows<T, Exec>("causal_convolution_forward", x, before, weight, bias, positions, seq);
    detail::require_same_shape("causal_convolution_forward", "y", y, "x", x);
    if (dry("causal_convolution_forward", x, before, weight, y)) return;
    int const channels = static_cast<int>(x.extent(1)), taps = rows.taps;
    for_each_row(
        "pentad::causal_convolution_forward", exec, x.extent(0), x.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            T* const out = row.of(y);
            T const* const w = weight.data();
            T const* const b = bias.data();
            detail::convolve<A>(
                row, channels, taps, rows.seen(row.index()), w, [&](int lag) { return rows.at(row.index(), lag); },
                [&](int c, A total) { out[c] = T(math::silu(total + A(b[c]))); });
        });
}
PENTAD_KERNEL(causal_convolution_forward)

/// gradient = dy silu'(what is in front of it), which the next two take; it may be dy.
template <class T, class Exec>
void causal_convolution_backward(Exec const& exec, In<T, 2, Exec> x, In<T, 2, Exec> before, In<T, 2, Exec> weight,
                                 In<T, 1, Exec> bias, In<i32, 1, Exec> positions, std::size_t seq,
                                 In<accumulator_t<T>, 2, Exec> dy, Out<accumulator_t<T>, 2, Exec> gradient) {
    using A = accumulator_t<T>;
    auto const rows =
        detail::convolved_rows<T, Exec>("causal_convolution_backward", x, before, weight, bias, positions, seq);
    detail::require_same_shape("causal_convolution_backward", "dy", dy, "x", x);
    detail::require_same_shape("causal_convolution_backward", "gradient", gradient, "x", x);
    if (dry("causal_convolution_backward", x, before, weight, dy, gradient)) return;
    int const channels = static_cast<int>(x.extent(1)), taps = rows.taps;
    for_each_row(
        "pentad::causal_convolution_backward", exec, x.extent(0), x.extent(1), KOKKOS_LAMBDA(Row<Exec> const& row) {
            A const* const in = row.of(dy);
            A* const out = row.of(gradient);
            T const* const w = weight.data();
            T const* const b = bias.data();
            detail::convolve<A>(
                row, channels, taps, rows.seen(row.index()), w, [&](int lag) { return rows.at(row.index(), lag); },
                [&](int c, A total) {
                    A const value = total + A(b[c]), s = math::sigmoid(value);
                    out[c] = in[c] * s * (A(1) + value * (A(1) - s));
                });
        });
}
PENTAD_KERNEL(causal_convolution_backward)

/// dx from the gradient behind the taps. @param after what the tokens behind each sequence add to the gradients of its
/// last min(taps - 1, seq) rows, [batch * that, channels]; without memory nothing
template <class T, class Exec>
void causal_convolution_backward_data(Exec const& exec, In<accumulator_t<T>, 2, Exec> gradient, In<T, 2, Exec> weight,
                                      In<i32, 1, Exec> positions, std::size_t seq, In<accumulator_t<T>, 2, Exec> after,
                                      Out<T, 2, Exec> dx) {
    using A = accumulator_t<T>;
    detail::require_same_shape("causal_convolution_backward_data", "dx", dx, "gradient", gradient);
    if (dry("causal_convolution_backward_data", gradient, weight, after, dx)) return;
    int const channels = static_cast<int>(dx.extent(1)), taps = static_cast<int>(weight.extent(1));
    i64 const length = static_cast<i64>(seq);
    i32 const* const place = positions.data();
    i64 const kept = length < taps - 1 ? length : taps - 1;
    for_each_row(
        "pentad::causal_convolution_backward_data", exec, dx.extent(0), dx.extent(1),
        KOKKOS_LAMBDA(Row<Exec> const& row) {
            T* const out = row.of(dx);
            T const* const w = weight.data();
            i64 const at = row.index() % length, left = length - 1 - at;
            int seen = left >= taps - 1 ? taps : static_cast<int>(left) + 1;
            for (int lag = 1; place != nullptr && lag < seen; ++lag)
                if (place[row.index() + lag] < lag) seen = lag;
            bool const has_more = after.data() != nullptr && left < kept;
            A const* const more = has_more ? &after(row.index() / length * kept + kept - 1 - left, 0) : nullptr;
            detail::convolve<A>(
                row, channels, taps, seen, w, [&](int lag) { return &gradient(row.index() + lag, 0); },
                [&](int c, A total) { out[c] = T(more == nullptr ? total : total + more[c]); });
        });
}
PENTAD_KERNEL(causal_convolution_backward_data)

/// The gradient of `before`, [batch * (taps - 1), channels].
template <class T, class Exec>
void causal_convolution_backward_before(Exec const& exec, In<accumulator_t<T>, 2, Exec> gradient, In<T, 2, Exec> weight,
                                        In<i32, 1, Exec> positions, std::size_t seq,
                                        Out<accumulator_t<T>, 2, Exec> d_before) {
    using A = accumulator_t<T>;
    if (dry("causal_convolution_backward_before", gradient, weight, d_before)) return;
    int const channels = static_cast<int>(d_before.extent(1)), taps = static_cast<int>(weight.extent(1));
    i64 const length = static_cast<i64>(seq);
    i32 const* const place = positions.data();
    for_each_row(
        "pentad::causal_convolution_backward_before", exec, d_before.extent(0), d_before.extent(1),
        KOKKOS_LAMBDA(Row<Exec> const& row) {
            A* const out = row.of(d_before);
            T const* const w = weight.data();
            // The row is `behind` tokens in front of its sequence: taps `behind` and later of the first tokens see it.
            int const behind = taps - 1 - static_cast<int>(row.index() % (taps - 1));
            i64 const first = row.index() / (taps - 1) * length;
            int seen = 0;
            while (behind + seen < taps && seen < length && (place == nullptr || place[first + seen] >= behind + seen))
                ++seen;
            row.template accumulate<A>(
                channels, seen,
                [&](int t, int c) { return A(w[c * taps + taps - 1 - behind - t]) * gradient(first + t, c); },
                [&](int c, A total) { out[c] = total; });
        });
}
PENTAD_KERNEL(causal_convolution_backward_before)

/// The gradients of the weight and the bias, which are written.
template <class T, class Exec>
void causal_convolution_backward_weight(Exec const& exec, In<T, 2, Exec> x, In<T, 2, Exec> before,
                                        In<i32, 1, Exec> positions, std::size_t seq,
                                        In<accumulator_t<T>, 2, Exec> gradient, Out<accumulator_t<T>, 2, Exec> dweight,
                                        Out<accumulator_t<T>, 1, Exec> dbias) {
    using A = accumulator_t<T>;
    int const taps = static_cast<int>(dweight.extent(1));
    detail::ConvolvedRows<T> const rows{x.data(),
                                        before.data(),
                                        static_cast<i64>(x.stride(0)),
                                        static_cast<i64>(before.data() == nullptr ? 0 : before.stride(0)),
                                        static_cast<i64>(seq),
                                        taps,
                                        positions.data()};
    if (dry("causal_convolution_backward_weight", x, before, gradient, dweight, dbias)) return;
    for (int lag = 0; lag < taps; ++lag)
        sum_over_rows<A>(
            "pentad::causal_convolution_backward_weight", exec, x.extent(0), x.extent(1),
            detail::TapTerms<T>{rows, gradient.data(), static_cast<i64>(gradient.stride(0)), lag},
            KOKKOS_LAMBDA(int c, A total) { dweight(c, taps - 1 - lag) = total; });
    sum_over_rows<A>(
        "pentad::causal_convolution_backward_bias", exec, x.extent(0), x.extent(1),
        KOKKOS_LAMBDA(i64 r, int c) { return gradient(r, c); }, KOKKOS_LAMBDA(int c, A total) { dbias(c) = total; });
}
PENTAD_KERNEL(causal_convolution_backward_weight)

} // namespace pentad::kernels
