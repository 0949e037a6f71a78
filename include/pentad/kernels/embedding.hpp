// The embedding table, sharded over the vocabulary: a rank holds rows [vocab_begin, vocab_begin +
// vocab_local) and gives zeros for the tokens of others, so that the sum over the ranks is the embedding.
#pragma once

#include <pentad/kernels/column_sums.hpp>
#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// y[r] = table[tokens[r] - vocab_begin], or zeros where that row is not here.
template <class T, class Exec>
void embedding_forward(Exec const& exec, In<i32, 1, Exec> tokens, In<T, 2, Exec> table, i64 vocab_begin,
                       Out<T, 2, Exec> y) {
    detail::require_extent("embedding_forward", "tokens", tokens.extent(0), y.extent(0), "rows of y");
    detail::require_extent("embedding_forward", "table, dimension 1,", table.extent(1), y.extent(1), "hidden of y");
    int const hidden = static_cast<int>(y.extent(1));
    i64 const vocab = static_cast<i64>(table.extent(0));
    if (dry("embedding_forward", tokens, y, y)) return;
    for_each_row(
        "pentad::embedding_forward", exec, y.extent(0), hidden, KOKKOS_LAMBDA(Row<Exec> const& row) {
            i64 const entry = tokens(row.index()) - vocab_begin;
            T* const out = row.of(y);
            if (entry >= 0 && entry < vocab) {
                row.copy(hidden, row_of(table, entry), out);
            } else {
                row.each(hidden, [&](int i) { out[i] = T(0); });
            }
        });
}
PENTAD_KERNEL(embedding_forward)

namespace detail {

/// Columns are shared out, so that each sum is made by one thread, in the order of the rows.
template <class T>
struct EmbeddingColumns { // host
    i32 const* tokens;
    T const* dy;
    accumulator_t<T>* dtable;
    i64 rows, dy_stride, dtable_stride, vocab_begin, vocab, left_out, hidden, block;
    KOKKOS_FUNCTION void operator()(i64 index) const {
        i64 const begin = index * block;
        int const size = static_cast<int>(hidden - begin < block ? hidden - begin : block);
        for (i64 r = 0; r < rows; ++r) {
            i64 const entry = tokens[r] - vocab_begin;
            if (entry < 0 || entry >= vocab || entry == left_out) continue;
            T const* const in = dy + r * dy_stride + begin;
            accumulator_t<T>* const out = dtable + entry * dtable_stride + begin;
            PENTAD_INDEPENDENT
            for (int i = 0; i < size; ++i) out[i] += static_cast<accumulator_t<T>>(in[i]);
        }
    }
};

/// A team has a few columns, and each of its threads the entries that are its number modulo their number.
template <class T, class Exec>
struct EmbeddingTeam { // device
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    EmbeddingColumns<T> of;
    KOKKOS_FUNCTION void operator()(Member const& team) const {
        i64 const begin = team.league_rank() * of.block;
        int const size = static_cast<int>(of.hidden - begin < of.block ? of.hidden - begin : of.block);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, team.team_size()), [&](int thread) {
            for (i64 r = 0; r < of.rows; ++r) {
                i64 const entry = of.tokens[r] - of.vocab_begin;
                if (entry < 0 || entry >= of.vocab || entry == of.left_out || entry % team.team_size() != thread)
                    continue;
                T const* const in = of.dy + r * of.dy_stride + begin;
                accumulator_t<T>* const out = of.dtable + entry * of.dtable_stride + begin;
                Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, size),
                                     [&](int i) { out[i] += static_cast<accumulator_t<T>>(in[i]); });
            }
        });
    }
};

} // namespace detail

/// dtable[tokens[r] - vocab_begin] += dy[r] for the rows that are here.
/// @param padding a token whose row gets nothing; -1: there is none
template <class T, class Exec>
void embedding_backward(Exec const& exec, In<i32, 1, Exec> tokens, In<T, 2, Exec> dy, i64 vocab_begin,
                        Out<accumulator_t<T>, 2, Exec> dtable, i64 padding = -1) {
    detail::require_extent("embedding_backward", "tokens", tokens.extent(0), dy.extent(0), "rows of dy");
    detail::require_extent("embedding_backward", "dtable, dimension 1,", dtable.extent(1), dy.extent(1),
                           "hidden of dy");
    if (dy.extent(0) == 0 || dy.extent(1) == 0 || dry("embedding_backward", tokens, dy, dy, dy)) return;
    detail::EmbeddingColumns<T> columns{tokens.data(),
                                        dy.data(),
                                        dtable.data(),
                                        static_cast<i64>(dy.extent(0)),
                                        static_cast<i64>(dy.stride(0)),
                                        static_cast<i64>(dtable.stride(0)),
                                        vocab_begin,
                                        static_cast<i64>(dtable.extent(0)),
                                        padding - vocab_begin,
                                        static_cast<i64>(dy.extent(1)),
                                        0};
    if constexpr (runs_on_host<Exec>) {
        columns.block = detail::column_block(columns.hidden, exec.concurrency());
        i64 const blocks = (columns.hidden + columns.block - 1) / columns.block;
        Kokkos::parallel_for("pentad::embedding_backward",
                             Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, blocks), columns);
    } else {
        columns.block = detail::vector_lanes<Exec>();
        int const teams = static_cast<int>((columns.hidden + columns.block - 1) / columns.block);
        Kokkos::parallel_for(
            "pentad::embedding_backward",
            Kokkos::TeamPolicy<Exec>(exec, teams, 512 / detail::vector_lanes<Exec>(), detail::vector_lanes<Exec>()),
            detail::EmbeddingTeam<T, Exec>{columns});
    }
}
PENTAD_KERNEL(embedding_backward)

} // namespace pentad::kernels
