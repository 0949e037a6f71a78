// Sums over the rows of a matrix, column by column: gradients of what all tokens share. Without atomics
// and without scratch: columns are shared out, and each sum has a fixed order.
#pragma once

#include <pentad/kernels/rows.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>

namespace pentad::kernels {

namespace detail {

/// The terms of row r: term.row(r), or term(r, j) as a function of j.
template <class Term>
struct TermsOfRow {
    Term const& term;
    i64 r;
    KOKKOS_FORCEINLINE_FUNCTION auto operator()(int j) const { return term(r, j); }
};
template <class Term>
KOKKOS_FORCEINLINE_FUNCTION auto terms_of_row(Term const& term, i64 r) {
    if constexpr (requires { term.row(r); })
        return term.row(r);
    else
        return TermsOfRow<Term>{term, r};
}

inline constexpr i64 largest_column_block = 1024; // its sums stay in L1

/// How many columns a host thread takes where columns are shared out: whole cache lines, a share for each thread.
inline i64 column_block(i64 columns, int threads) {
    return std::clamp<i64>(columns / threads / 64 * 64, 64, largest_column_block);
}

template <class A, class Term, class Store>
struct BlockOfColumns {                      // host: a thread sums a block of columns over all rows
    static constexpr i64 rows_per_part = 64; // sums of sums: the error grows slower than along one long chain
    Term term;
    Store store;
    i64 rows, columns, block;
    [[gnu::flatten]] KOKKOS_FUNCTION void operator()(i64 index) const { // as other host loops (rows.hpp)
        i64 const begin = index * block;
        int const size = static_cast<int>(columns - begin < block ? columns - begin : block);
        A total[largest_column_block] = {};
        for (i64 first = 0; first < rows; first += rows_per_part) {
            A part[largest_column_block];
            for (int i = 0; i < size; ++i) part[i] = A(0);
            i64 const last = first + rows_per_part < rows ? first + rows_per_part : rows;
            for (i64 r = first; r < last; ++r) {
                auto const terms = terms_of_row(term, r);
                PENTAD_INDEPENDENT
                for (int i = 0; i < size; ++i) part[i] += terms(static_cast<int>(begin) + i);
            }
            for (int i = 0; i < size; ++i) total[i] += part[i];
        }
        for (int i = 0; i < size; ++i) store(static_cast<int>(begin) + i, total[i]);
    }
};

template <class Exec, class A, class Term, class Store>
struct TeamOfColumns { // device: a team sums `lanes` columns, its threads taking rows in turn
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;
    using Scratch = Kokkos::View<A*, typename Exec::scratch_memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    Term term;
    Store store;
    i64 rows;
    int columns, lanes;
    KOKKOS_FUNCTION void operator()(Member const& team) const {
        int const begin = team.league_rank() * lanes;
        int const size = columns - begin < lanes ? columns - begin : lanes;
        int const threads = team.team_size();
        Scratch parts(team.team_scratch(0), threads * lanes);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, threads), [&](int thread) {
            Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, size), [&](int lane) {
                A part = 0;
                for (i64 r = thread; r < rows; r += threads) part += terms_of_row(term, r)(begin + lane);
                parts(thread * lanes + lane) = part;
            });
        });
        team.team_barrier();
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team, size), [&](int lane) {
            A total = 0;
            for (int thread = 0; thread < threads; ++thread) total += parts(thread * lanes + lane);
            store(begin + lane, total);
        });
    }
};

} // namespace detail

/// store(j, sum over r in [0, rows) of term(r, j)) for every column j; no atomics, and no scratch from the caller.
/// Where all columns of a row share what takes long to find, a term has row(r) instead, which gives a function of j.
template <class A, class Exec, class Term, class Store>
void sum_over_rows(char const* label, Exec const& exec, std::size_t rows, std::size_t columns, Term const& term,
                   Store const& store) {
    if (columns == 0) return;
    if constexpr (runs_on_host<Exec>) {
        using Block = detail::BlockOfColumns<A, Term, Store>;
        i64 const block = detail::column_block(static_cast<i64>(columns), exec.concurrency());
        i64 const blocks = (static_cast<i64>(columns) + block - 1) / block;
        Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, blocks),
                             Block{term, store, static_cast<i64>(rows), static_cast<i64>(columns), block});
    } else {
        using Team = detail::TeamOfColumns<Exec, A, Term, Store>;
        int const lanes = detail::vector_lanes<Exec>();
        int const threads = 512 / lanes;
        int const teams = (static_cast<int>(columns) + lanes - 1) / lanes;
        Kokkos::TeamPolicy<Exec> policy(exec, teams, threads, lanes);
        policy.set_scratch_size(0, Kokkos::PerTeam(Team::Scratch::shmem_size(threads * lanes)));
        Kokkos::parallel_for(label, policy,
                             Team{term, store, static_cast<i64>(rows), static_cast<int>(columns), lanes});
    }
}

} // namespace pentad::kernels
