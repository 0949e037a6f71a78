// A token's choices split by place, a rank or a node, where each place holds as many experts: at which places they are,
// and what is sent there about them.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// place[t, :] = the places of the experts that choice[t, :] names, each once, in the order in which they first appear;
/// then -1, as in choice where a token has fewer. The columns of `place` are enough for all that a token can have.
template <class Exec>
void places_of_choices(Exec const& exec, In<i32, 2, Exec> choice, int experts_per_place, Out<i32, 2, Exec> place) {
    detail::require_extent("places_of_choices", "choice", choice.extent(0), place.extent(0), "rows of place");
    int const top_k = static_cast<int>(choice.extent(1)), most = static_cast<int>(place.extent(1));
    if (dry("places_of_choices", choice, place)) return;
    Kokkos::parallel_for(
        "pentad::places_of_choices", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, choice.extent(0)),
        KOKKOS_LAMBDA(i64 t) {
            int found = 0;
            for (int k = 0; k < top_k && choice(t, k) >= 0; ++k) {
                i32 const here = choice(t, k) / experts_per_place;
                int j = 0;
                while (j < found && place(t, j) != here) ++j;
                if (j == found) place(t, found++) = here;
            }
            for (; found < most; ++found) place(t, found) = -1;
        });
}
PENTAD_KERNEL_OF_EXEC(places_of_choices)

/// What goes along with the row of token t for place place[t, j], which is row p = position[t, j]: packed[p, 0:top_k]
/// are the experts that the token chose there, by their numbers there, then -1; packed[p, top_k:] their weights. Choice
/// k of token t is element entry[t, k] of a [rows, top_k] array, -1 where there is none. An expert's number is exact as
/// an A (below 2^24).
template <class A, class Exec>
void pack_choices(Exec const& exec, In<i32, 2, Exec> choice, In<A, 2, Exec> weight, int experts_per_place,
                  In<i32, 2, Exec> place, In<i32, 2, Exec> position, Out<A, 2, Exec> packed, Out<i32, 2, Exec> entry) {
    detail::require_same_shape("pack_choices", "weight", weight, "choice", choice);
    detail::require_same_shape("pack_choices", "entry", entry, "choice", choice);
    detail::require_same_shape("pack_choices", "position", position, "place", place);
    detail::require_extent("pack_choices", "packed, dimension 1,", packed.extent(1), 2 * choice.extent(1), "2 top_k");
    int const top_k = static_cast<int>(choice.extent(1)), most = static_cast<int>(place.extent(1));
    if (dry("pack_choices", choice, weight, place, position, packed, entry)) return;
    Kokkos::parallel_for(
        "pentad::pack_choices", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, choice.extent(0)),
        KOKKOS_LAMBDA(i64 t) {
            for (int k = 0; k < top_k; ++k) entry(t, k) = -1;
            for (int j = 0; j < most && place(t, j) >= 0; ++j) {
                i32 const p = position(t, j);
                int i = 0;
                for (int k = 0; k < top_k; ++k) {
                    if (choice(t, k) < 0 || choice(t, k) / experts_per_place != place(t, j)) continue;
                    packed(p, i) = static_cast<A>(choice(t, k) % experts_per_place);
                    packed(p, top_k + i) = weight(t, k);
                    entry(t, k) = p * top_k + i++;
                }
                for (; i < top_k; ++i) {
                    packed(p, i) = -1;
                    packed(p, top_k + i) = 0;
                }
            }
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(pack_choices)

/// Takes apart what arrived: choice = packed[:, 0:top_k], weight = packed[:, top_k:].
template <class A, class Exec>
void unpack_choices(Exec const& exec, In<A, 2, Exec> packed, Out<i32, 2, Exec> choice, Out<A, 2, Exec> weight) {
    detail::require_same_shape("unpack_choices", "weight", weight, "choice", choice);
    detail::require_extent("unpack_choices", "packed, dimension 1,", packed.extent(1), 2 * choice.extent(1), "2 top_k");
    int const top_k = static_cast<int>(choice.extent(1));
    if (dry("unpack_choices", packed, choice, weight)) return;
    Kokkos::parallel_for(
        "pentad::unpack_choices", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, choice.extent(0)),
        KOKKOS_LAMBDA(i64 r) {
            for (int k = 0; k < top_k; ++k) {
                choice(r, k) = static_cast<i32>(packed(r, k));
                weight(r, k) = packed(r, top_k + k);
            }
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(unpack_choices)

/// y[i] = x[entry[i]], or zero where that is negative.
template <class A, class Exec>
void take_entries(Exec const& exec, In<A, 1, Exec> x, In<i32, 1, Exec> entry, Out<A, 1, Exec> y) {
    detail::require_extent("take_entries", "entry", entry.extent(0), y.extent(0), "extent of y");
    if (dry("take_entries", x, entry, y)) return;
    for_each_element(
        "pentad::take_entries", exec, y.extent(0), KOKKOS_LAMBDA(i64 i) { y(i) = entry(i) < 0 ? A(0) : x(entry(i)); });
}
PENTAD_KERNEL_OF_ACCUMULATORS(take_entries)

/// The experts of each rank in parts of consecutive ones.
struct ExpertParts {
    int experts = 1; ///< of a rank
    int count = 1;   ///< at most `experts`

    KOKKOS_FUNCTION int of(int expert) const { return expert % experts * count / experts; }
    /// The first expert of a part.
    [[nodiscard]] std::size_t begin(std::size_t part) const {
        auto const all = static_cast<std::size_t>(experts), parts = static_cast<std::size_t>(count);
        return (part * all + parts - 1) / parts;
    }
};

/// The first or the last of the parts with an expert that a token chose.
enum class Needed { first, last };

/// part[p] for row p of those that pack_choices describes: the first or the last part that needs it.
template <class A, class Exec>
void part_of_rows(Exec const& exec, In<A, 2, Exec> packed, ExpertParts const& parts, Needed needed,
                  Out<i32, 1, Exec> part) {
    detail::require_extent("part_of_rows", "part", part.extent(0), packed.extent(0), "rows of packed");
    int const top_k = static_cast<int>(packed.extent(1) / 2);
    if (dry("part_of_rows", packed, part)) return;
    bool const is_first = needed == Needed::first;
    for_each_element(
        "pentad::part_of_rows", exec, packed.extent(0), KOKKOS_LAMBDA(i64 p) {
            int found = parts.of(static_cast<int>(packed(p, 0)));
            for (int k = 1; k < top_k && packed(p, k) >= A(0); ++k) {
                int const other = parts.of(static_cast<int>(packed(p, k)));
                if (is_first ? other < found : other > found) found = other;
            }
            part(p) = found;
        });
}
PENTAD_KERNEL_OF_ACCUMULATORS(part_of_rows)

/// key[p] = part * ranks + rank for rows in the order of ranks, those of a rank up to row end[rank] - 1; the part is
/// that of the row, or of the rank where no rows have parts (`part_of_row` is empty).
template <class Exec>
void part_and_rank(Exec const& exec, In<i64, 1, Exec> end, In<i32, 1, Exec> part_of_row, In<i32, 1, Exec> part_of_rank,
                   Out<i32, 1, Exec> key) {
    int const ranks = static_cast<int>(end.extent(0));
    bool const by_row = part_of_row.extent(0) > 0;
    if (dry("part_and_rank", part_of_row, key)) return;
    for_each_element(
        "pentad::part_and_rank", exec, key.extent(0), KOKKOS_LAMBDA(i64 p) {
            int low = 0, high = ranks - 1;
            while (low < high) {
                int const middle = (low + high) / 2;
                if (end(middle) > p)
                    high = middle;
                else
                    low = middle + 1;
            }
            key(p) = (by_row ? part_of_row(p) : part_of_rank(low)) * ranks + low;
        });
}
PENTAD_KERNEL_OF_EXEC(part_and_rank)

/// out[i] = through[index[i] / divisor], or index[i] where that is negative.
template <class Exec>
void compose(Exec const& exec, In<i32, 1, Exec> index, int divisor, In<i32, 1, Exec> through, Out<i32, 1, Exec> out) {
    detail::require_extent("compose", "index", index.extent(0), out.extent(0), "as out");
    if (dry("compose", index, out, out)) return;
    for_each_element(
        "pentad::compose", exec, out.extent(0),
        KOKKOS_LAMBDA(i64 i) { out(i) = index(i) < 0 ? index(i) : through(index(i) / divisor); });
}
PENTAD_KERNEL_OF_EXEC(compose)

} // namespace pentad::kernels
