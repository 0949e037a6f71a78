// Tokens in the order of their experts and back: a stable counting sort of the slots (token, choice),
// the gather of rows that dispatch is made of, the weighted sum that combine is, and the adjoint of each.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace pentad::kernels {

/// Rows of the scratch that sort_by_expert works fast with: as many blocks of slots are sorted at the same time.
template <class Exec>
int sort_scratch_rows(Exec const& exec, std::size_t slots) {
    std::size_t const shares = runs_on_host<Exec> ? static_cast<std::size_t>(exec.concurrency()) : slots / 64;
    return static_cast<int>(std::clamp<std::size_t>(shares, 1, 1024));
}
PENTAD_KERNEL_OF_EXEC(sort_scratch_rows)

/// Whether every slot has chosen an expert; one that has not has a negative index.
enum class Chosen { always, sometimes };

namespace detail {

/// A stable counting sort in blocks of consecutive slots. `offsets` [blocks, experts] holds how many slots of a block
/// chose an expert, then (after a scan in the order expert, block) where the first of them goes. The result does not
/// depend on the number of blocks.
template <class Exec, Chosen chosen>
struct CountingSort {
    struct Count {};
    struct Total {};
    struct Scan {};
    struct Place {};

    i32 const* index;
    i64 slots, block;
    i32 blocks, experts;
    Out<i32, 2, Exec> offsets;
    Out<i64, 1, Exec> counts;
    i32 *position, *source;

    KOKKOS_FUNCTION void operator()(Count, i64 b) const {
        for (int e = 0; e < experts; ++e) offsets(b, e) = 0;
        for (i64 slot = b * block; slot < end_of(b); ++slot)
            if (has_chosen(slot)) ++offsets(b, index[slot]);
    }
    KOKKOS_FUNCTION void operator()(Total, i64 e) const {
        i64 total = 0;
        for (int b = 0; b < blocks; ++b) total += offsets(b, e);
        counts(e) = total;
    }
    KOKKOS_FUNCTION void operator()(Scan, i64 i, i32& before, bool final) const {
        i32& here = offsets(i % blocks, i / blocks);
        i32 const count = here;
        if (final) here = before;
        before += count;
    }
    KOKKOS_FUNCTION void operator()(Place, i64 b) const {
        for (i64 slot = b * block; slot < end_of(b); ++slot) {
            i32 const to = has_chosen(slot) ? offsets(b, index[slot])++ : -1;
            position[slot] = to;
            if (chosen == Chosen::always || to >= 0) source[to] = static_cast<i32>(slot);
        }
    }
    KOKKOS_FUNCTION bool has_chosen(i64 slot) const { return chosen == Chosen::always || index[slot] >= 0; }
    KOKKOS_FUNCTION i64 end_of(i64 b) const { return (b + 1) * block < slots ? (b + 1) * block : slots; }

    template <class Tag>
    static auto range(Exec const& exec, i64 n) {
        return Kokkos::RangePolicy<Exec, Tag, Kokkos::IndexType<i64>>(exec, 0, n);
    }
    void run(Exec const& exec) const {
        Kokkos::parallel_for("pentad::sort_by_expert::count", range<Count>(exec, blocks), *this);
        Kokkos::parallel_for("pentad::sort_by_expert::total", range<Total>(exec, experts), *this);
        Kokkos::parallel_scan("pentad::sort_by_expert::scan", range<Scan>(exec, i64(blocks) * experts), *this);
        Kokkos::parallel_for("pentad::sort_by_expert::place", range<Place>(exec, blocks), *this);
    }
    using value_type = i32;
};

/// How many choices a row has: they end with the first whose position is negative.
KOKKOS_FUNCTION inline int choices_of(i32 const* position, int top_k) {
    int n = 0;
    while (n < top_k && position[n] >= 0) ++n;
    return n;
}

} // namespace detail

/// Sorts the slots of index [rows, k] (each the number of an expert) by (expert, row, choice): counts[e] slots chose
/// expert e, slot s = row * k + choice becomes row position[s] of the permuted buffer, and row p of it comes from slot
/// source[p]. A slot that has not chosen is left out; its position is -1. scratch is [sort_scratch_rows(...),
/// experts]; fewer rows sort as well, more slowly.
template <Chosen chosen, class Exec>
void sort_by_expert(Exec const& exec, In<i32, 2, Exec> index, Out<i64, 1, Exec> counts, Out<i32, 2, Exec> position,
                    Out<i32, 1, Exec> source, Out<i32, 2, Exec> scratch) {
    i64 const slots = static_cast<i64>(index.extent(0) * index.extent(1));
    detail::require_same_shape("sort_by_expert", "position", position, "index", index);
    detail::require_extent("sort_by_expert", "source", source.extent(0), slots, "slots of index");
    detail::require_extent("sort_by_expert", "scratch, dimension 1,", scratch.extent(1), counts.extent(0), "experts");
    if (scratch.extent(0) == 0) throw std::invalid_argument("sort_by_expert: scratch has no rows, it must have one");
    if (slots > std::numeric_limits<i32>::max())
        throw std::invalid_argument("sort_by_expert: " + std::to_string(slots) +
                                    " slots, at most 2^31 - 1 can be numbered");
    if (index.stride(0) != index.extent(1) || position.stride(0) != position.extent(1))
        throw std::invalid_argument(
            "sort_by_expert: the rows of index and position must follow each other without gaps");
    if (dry("sort_by_expert", index, index, counts, position, source, scratch, scratch)) return;
    i64 const blocks = static_cast<i64>(scratch.extent(0));
    detail::CountingSort<Exec, chosen>{index.data(),
                                       slots,
                                       (slots + blocks - 1) / blocks,
                                       static_cast<i32>(blocks),
                                       static_cast<i32>(counts.extent(0)),
                                       scratch,
                                       counts,
                                       position.data(),
                                       source.data()}
        .run(exec);
}
PENTAD_KERNEL_OF_EXEC(sort_by_expert, Chosen::always)
PENTAD_KERNEL_OF_EXEC(sort_by_expert, Chosen::sometimes)

/// y[r] = x[index[r] / divisor]; rows whose index is negative become zeros. divisor > 1 gathers tokens by slot.
template <class T, class Exec>
void gather_rows(Exec const& exec, In<T, 2, Exec> x, In<i32, 1, Exec> index, Out<T, 2, Exec> y, int divisor = 1) {
    detail::require_extent("gather_rows", "index", index.extent(0), y.extent(0), "rows of y");
    detail::require_extent("gather_rows", "x, dimension 1,", x.extent(1), y.extent(1), "hidden of y");
    int const hidden = static_cast<int>(y.extent(1));
    if (dry("gather_rows", y, index, y)) return;
    for_each_row(
        "pentad::gather_rows", exec, y.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            i32 const from = index(row.index());
            T* const out = row.of(y);
            if (from >= 0) {
                row.copy(hidden, row_of(x, from / divisor), out);
            } else {
                row.each(hidden, [&](int i) { out[i] = T(0); });
            }
        });
}
PENTAD_KERNEL(gather_rows)
PENTAD_KERNEL_OF_I32(gather_rows)

/// y[index[r]] = x[r]; rows whose index is negative are left out. No two rows may have the same index.
template <class T, class Exec>
void scatter_rows(Exec const& exec, In<T, 2, Exec> x, In<i32, 1, Exec> index, Out<T, 2, Exec> y) {
    detail::require_extent("scatter_rows", "index", index.extent(0), x.extent(0), "rows of x");
    detail::require_extent("scatter_rows", "x, dimension 1,", x.extent(1), y.extent(1), "hidden of y");
    int const hidden = static_cast<int>(y.extent(1));
    if (dry("scatter_rows", x, index, x)) return;
    for_each_row(
        "pentad::scatter_rows", exec, x.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            i32 const to = index(row.index());
            if (to < 0) return;
            row.copy(hidden, row.of(x), row_of(y, to));
        });
}
PENTAD_KERNEL(scatter_rows)

/// permuted[p] = x[source[p] / k]: the rows of x [rows, hidden] in the order of their experts.
template <class T, class Exec>
void permute_forward(Exec const& exec, In<T, 2, Exec> x, In<i32, 1, Exec> source, int top_k, Out<T, 2, Exec> permuted) {
    gather_rows<T>(exec, x, source, permuted, top_k);
}
PENTAD_KERNEL(permute_forward)

/// dx[t] (+)= sum over k of dpermuted[position[t, k]]; `add` adds to what dx holds. Here and below, the sum over k ends
/// with the first position that is negative.
template <class T, class Exec>
void permute_backward(Exec const& exec, In<T, 2, Exec> dpermuted, In<i32, 2, Exec> position, Out<T, 2, Exec> dx,
                      bool add) {
    using A = accumulator_t<T>;
    detail::require_extent("permute_backward", "position, dimension 0,", position.extent(0), dx.extent(0),
                           "rows of dx");
    detail::require_extent("permute_backward", "dpermuted, dimension 1,", dpermuted.extent(1), dx.extent(1),
                           "hidden of dx");
    int const hidden = static_cast<int>(dx.extent(1));
    int const top_k = static_cast<int>(position.extent(1));
    if (dry("permute_backward", dpermuted, position, dx)) return;
    for_each_row(
        "pentad::permute_backward", exec, dx.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            i32 const* const at = row.of(position);
            T* const out = row.of(dx);
            row.template accumulate<A>(
                hidden, detail::choices_of(at, top_k), [&](int k, int i) { return A(dpermuted(at[k], i)); },
                [&](int i, A total) { out[i] = T(add ? A(out[i]) + total : total); });
        });
}
PENTAD_KERNEL(permute_backward)

/// y[t] = sum over k of weight[t, k] * expert_out[position[t, k]].
template <class T, class Exec>
void combine_forward(Exec const& exec, In<T, 2, Exec> expert_out, In<i32, 2, Exec> position,
                     In<accumulator_t<T>, 2, Exec> weight, Out<T, 2, Exec> y) {
    using A = accumulator_t<T>;
    detail::require_same_shape("combine_forward", "weight", weight, "position", position);
    detail::require_extent("combine_forward", "position, dimension 0,", position.extent(0), y.extent(0), "rows of y");
    detail::require_extent("combine_forward", "expert_out, dimension 1,", expert_out.extent(1), y.extent(1),
                           "hidden of y");
    int const hidden = static_cast<int>(y.extent(1));
    int const top_k = static_cast<int>(position.extent(1));
    if (dry("combine_forward", expert_out, position, weight, y)) return;
    for_each_row(
        "pentad::combine_forward", exec, y.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            i32 const* const at = row.of(position);
            A const* const w = row.of(weight);
            T* const out = row.of(y);
            row.template accumulate<A>(
                hidden, detail::choices_of(at, top_k), [&](int k, int i) { return w[k] * A(expert_out(at[k], i)); },
                [&](int i, A total) { out[i] = T(total); });
        });
}
PENTAD_KERNEL(combine_forward)

/// The adjoint for rows in the order of experts, some or all of them: row p is of slot source[p] (token x k + choice)
/// and gets its gradient from row dy_row[p] / divisor of dy.
///   dexpert_out[p] = weight[slot] * dy[row], dweight[slot] = <dy[row], expert_out[p]>.
/// dexpert_out may be expert_out. What dweight holds of other slots stays.
template <class T, class Exec>
void combine_backward(Exec const& exec, In<T, 2, Exec> dy, In<i32, 1, Exec> dy_row, int divisor,
                      In<T, 2, Exec> expert_out, In<i32, 1, Exec> source, In<accumulator_t<T>, 1, Exec> weight,
                      Out<T, 2, Exec> dexpert_out, Out<accumulator_t<T>, 1, Exec> dweight) {
    using A = accumulator_t<T>;
    detail::require_same_shape("combine_backward", "dexpert_out", dexpert_out, "expert_out", expert_out);
    detail::require_extent("combine_backward", "source", source.extent(0), expert_out.extent(0), "rows of expert_out");
    detail::require_extent("combine_backward", "dy_row", dy_row.extent(0), expert_out.extent(0), "rows of expert_out");
    detail::require_extent("combine_backward", "dweight", dweight.extent(0), weight.extent(0), "as weight");
    detail::require_extent("combine_backward", "expert_out, dimension 1,", expert_out.extent(1), dy.extent(1),
                           "hidden of dy");
    int const hidden = static_cast<int>(dy.extent(1));
    if (dry("combine_backward", expert_out, expert_out, dy_row, source, dexpert_out, weight, dweight)) return;
    for_each_row(
        "pentad::combine_backward", exec, expert_out.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            i32 const slot = source(row.index());
            T const *const d = row_of(dy, dy_row(row.index()) / divisor), *const in = row.of(expert_out);
            T* const out = row.of(dexpert_out);
            A const w = weight(slot);
            A const dot = row.template sum<A>(hidden, [&](int i) { return A(d[i]) * A(in[i]); });
            row.each(hidden, [&](int i) { out[i] = T(w * A(d[i])); });
            row.once([&] { dweight(slot) = dot; });
        });
}
PENTAD_KERNEL(combine_backward)

} // namespace pentad::kernels
