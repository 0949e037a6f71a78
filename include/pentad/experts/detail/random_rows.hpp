// What is drawn for tokens, by what they are or by their numbers, so that every mesh draws the same: experts of hash
// routing, and the jitter of a router's input.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/router.hpp>
#include <pentad/kernels/rows.hpp>
#include <pentad/random/philox.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace pentad::experts {

/// index[t, k] = the k-th expert of what token t is in the vocabulary: drawn from (stream, id), and the next that is
/// free where it is another of the token's; of padding -1. The experts of a token are in the order in which they were
/// drawn. Token t is tokens[t / length, first + t % length], with the length of `rows`.
template <class Exec>
void hashed_experts(Exec const& exec, kernels::In<i32, 2, Exec> tokens, std::size_t first,
                    kernels::TokenRows const& rows, int experts, std::uint64_t stream,
                    kernels::Out<i32, 2, Exec> index) {
    int const top_k = static_cast<int>(index.extent(1));
    if (top_k > experts)
        throw std::invalid_argument("hashed_experts: top_k is " + std::to_string(top_k) + ", it must be at most " +
                                    std::to_string(experts) + ", the number of experts");
    if (kernels::dry("hashed_experts", index)) return;
    Kokkos::parallel_for(
        "pentad::hashed_experts", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, index.extent(0)),
        KOKKOS_LAMBDA(i64 t) {
            for (int k = 0; k < top_k; ++k) {
                if (!rows.contains(t)) {
                    index(t, k) = -1;
                    continue;
                }
                auto const id = tokens(t / rows.length, static_cast<i64>(first) + t % rows.length);
                auto const drawn = random::bits(static_cast<std::uint64_t>(k), stream, static_cast<std::uint64_t>(id));
                int e = static_cast<int>(drawn.first % static_cast<std::uint64_t>(experts));
                for (int j = 0; j < k;) {
                    if (index(t, j) == e) {
                        e = (e + 1) % experts;
                        j = 0;
                    } else
                        ++j;
                }
                index(t, k) = e;
            }
        });
}
PENTAD_KERNEL_OF_EXEC(hashed_experts)

/// y = x times random numbers from 1 - jitter to 1 + jitter, of which row r has those of token number[r].
template <class T, class Exec>
void jittered(Exec const& exec, kernels::In<T, 2, Exec> x, kernels::In<i32, 1, Exec> number, double jitter,
              std::uint64_t seed, std::uint64_t stream, kernels::Out<T, 2, Exec> y) {
    kernels::detail::require_same_shape("jittered", "y", y, "x", x);
    kernels::detail::require_extent("jittered", "number", number.extent(0), x.extent(0), "rows of x");
    i64 const columns = static_cast<i64>(x.extent(1));
    if (kernels::dry("jittered", x, y)) return;
    kernels::for_each_row(
        "pentad::jittered", exec, x.extent(0), x.extent(1), KOKKOS_LAMBDA(kernels::Row<Exec> const& row) {
            using A = accumulator_t<T>;
            T const* const in = row.of(x);
            T* const out = row.of(y);
            auto const first = static_cast<std::uint64_t>(number(row.index()) * columns);
            row.each(static_cast<int>(columns), [&](int i) {
                double const drawn = random::uniform(seed, stream, first + static_cast<std::uint64_t>(i));
                out[i] = T(A(in[i]) * static_cast<A>(1 - jitter + 2 * jitter * drawn));
            });
        });
}
PENTAD_KERNEL(jittered)

} // namespace pentad::experts
