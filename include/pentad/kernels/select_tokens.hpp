// Each expert selects tokens among those of all ranks: the candidates with the largest keys, which are rounded scores,
// and of equal keys those with the lowest number. Ranks count candidates by the digits of keys and numbers, from the
// highest digit on, and add up the counts; the selection is exact in keys, and sends 256 counts for each expert and
// digit. These are its kernels; the sums over ranks are in experts/selection.hpp.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/router.hpp>
#include <pentad/kernels/rows.hpp>

#include <Kokkos_Core.hpp>

#include <cstdint>
#include <type_traits>

namespace pentad::kernels {

inline constexpr int digit_bits = 8, digits = 1 << digit_bits;

/// The digits of a key, from its highest bits on. The other bits of a score are lost in rounding errors, which depend
/// on the mesh: tokens with the same past must get equal keys on all of them.
template <class A>
inline constexpr int key_digits = sizeof(A) == 8 ? 6 : 3;

/// An unsigned number that is ordered as x, of which the highest key_digits<A> digits count: 36 bits of an f64's
/// mantissa, or 15 of an f32's.
template <class A>
KOKKOS_FUNCTION std::uint64_t key_of(A x) {
    std::uint64_t bits = 0;
    if constexpr (sizeof(A) == 8)
        bits = Kokkos::bit_cast<std::uint64_t>(x);
    else
        bits = std::uint64_t{Kokkos::bit_cast<std::uint32_t>(x)} << 32;
    bits = bits >> 63 != 0 ? ~bits : bits | std::uint64_t{1} << 63;
    constexpr int dropped = 64 - key_digits<A> * digit_bits;
    return bits >> dropped << dropped;
}

/// Up to where an expert selects: the candidates with larger keys, and those with the same key up to a number.
struct SelectionLimit {
    std::uint64_t key = 0;
    i64 number = -1;

    [[nodiscard]] KOKKOS_FUNCTION bool contains(std::uint64_t of_key, i64 of_number) const {
        return of_key > key || (of_key == key && of_number <= number);
    }
};

/// Candidates: in slot k of row t the expert expert[t, k], or k where `expert` has no rows, may take token number[t],
/// the better the larger scores[t, that expert]; where `scores` has no columns all are equally good. Slots that are
/// negative are none, nor is padding.
template <class A, class Exec>
struct SelectionCandidates {
    In<A, 2, Exec> scores;
    In<i32, 2, Exec> expert;
    In<i32, 1, Exec> number;
    int slots;
    TokenRows rows;

    [[nodiscard]] KOKKOS_FUNCTION i32 expert_of(i64 t, int k) const {
        if (!rows.contains(t)) return -1;
        return expert.extent(0) == 0 ? k : expert(t, k);
    }
    [[nodiscard]] KOKKOS_FUNCTION std::uint64_t key(i64 t, i32 e) const {
        return scores.extent(1) == 0 ? 0 : key_of(scores(t, e));
    }
};

/// Which digit is counted, of those candidates whose higher digits are those that an expert has found already.
struct SelectionDigit {
    bool of_key = true; ///< else of the number, of candidates with the key that was found
    int shift = 0;      ///< bits below the digit
};

/// counts[e, d] = candidates of expert e with the digit d. found[e] are its key and number so far.
template <class A, class Exec>
void count_digits(Exec const& exec, SelectionCandidates<A, Exec> const& candidates, SelectionDigit const& digit,
                  In<SelectionLimit, 1, Exec> found, Out<i64, 2, Exec> counts) {
    if (dry("count_digits", candidates.scores, counts)) return;
    Kokkos::deep_copy(exec, counts, i64(0));
    int const slots = candidates.slots, shift = digit.shift, above = digit.shift + digit_bits;
    bool const of_key = digit.of_key;
    Kokkos::parallel_for(
        "pentad::count_digits", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, candidates.number.extent(0)),
        KOKKOS_LAMBDA(i64 t) {
            for (int k = 0; k < slots; ++k) {
                i32 const e = candidates.expert_of(t, k);
                if (e < 0) continue;
                auto const key = candidates.key(t, e);
                auto const number = static_cast<std::uint64_t>(candidates.number(t));
                auto const reference = of_key ? found(e).key : static_cast<std::uint64_t>(found(e).number);
                auto const value = of_key ? key : number;
                bool const fits =
                    (above >= 64 || value >> above == reference >> above) && (of_key || key == found(e).key);
                // Integers add up to the same in any order.
                if (fits) Kokkos::atomic_inc(&counts(e, static_cast<int>(value >> shift & (digits - 1))));
            }
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(count_digits)

/// Tells the tokens which of their choices are taken: those stay in front, in their order, and slots of the others
/// become -2 - expert behind them. The candidates are these choices.
template <class A, class Exec>
void drop_choices(Exec const& exec, SelectionCandidates<A, Exec> const& candidates, In<SelectionLimit, 1, Exec> limit,
                  Out<i32, 2, Exec> index) {
    detail::require_extent("drop_choices", "number", candidates.number.extent(0), index.extent(0), "rows of index");
    int const slots = static_cast<int>(index.extent(1));
    if (dry("drop_choices", index, candidates.number, index)) return;
    Kokkos::parallel_for(
        "pentad::drop_choices", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, index.extent(0)),
        KOKKOS_LAMBDA(i64 t) {
            int kept = 0;
            for (int k = 0; k < slots; ++k) {
                i32 const e = index(t, k);
                if (e < 0) continue;
                if (limit(e).contains(candidates.key(t, e), candidates.number(t))) {
                    for (int j = k; j > kept; --j) index(t, j) = index(t, j - 1);
                    index(t, kept++) = e;
                } else
                    index(t, k) = -2 - e;
            }
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(drop_choices)

/// index[t, :] = the experts that selected token t, ascending, then -1. There are as many slots as experts.
template <class A, class Exec>
void selecting_experts(Exec const& exec, SelectionCandidates<A, Exec> const& candidates,
                       In<SelectionLimit, 1, Exec> limit, Out<i32, 2, Exec> index) {
    detail::require_extent("selecting_experts", "index, dimension 1,", index.extent(1), limit.extent(0), "experts");
    int const slots = static_cast<int>(index.extent(1));
    if (dry("selecting_experts", candidates.scores, index)) return;
    Kokkos::parallel_for(
        "pentad::selecting_experts", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, index.extent(0)),
        KOKKOS_LAMBDA(i64 t) {
            int found = 0;
            for (int e = 0; e < slots; ++e)
                if (candidates.expert_of(t, e) >= 0 && limit(e).contains(candidates.key(t, e), candidates.number(t)))
                    index(t, found++) = e;
            for (; found < slots; ++found) index(t, found) = -1;
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(selecting_experts)

} // namespace pentad::kernels
