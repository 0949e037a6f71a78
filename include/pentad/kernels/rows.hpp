// The one place that decides how a row (a token) is worked on: on a host by one thread, whose inner
// loops the compiler vectorises; on a device by a team, whose lanes touch neighbouring elements. A kernel is written
// once, as a function of a Row. Every sum has a fixed order, so that the same run gives the same bits.
#pragma once

#include <pentad/kernels/dry.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/memory/view.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

// Elements of different indices never alias in these kernels (y may be x): spares GCC the run-time overlap tests.
#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define PENTAD_INDEPENDENT _Pragma("GCC ivdep")
#else
#define PENTAD_INDEPENDENT
#endif

namespace pentad::kernels {

using memory::runs_on_host; // there a thread takes a row, elsewhere a team

/// What a kernel reads and what it writes. Exec comes from the execution space instance and T is named by the caller
/// (rms_norm_forward<f32>(exec, ...)), so that any View which converts can be given: managed, mutable, a column range.
template <class T, int Rank, class Exec>
using In = View<T const, Rank, std::type_identity_t<Exec>>;
template <class T, int Rank, class Exec>
using Out = View<T, Rank, std::type_identity_t<Exec>>;

/// Columns [begin, end) of a matrix: its rows keep their distance.
template <class V>
auto columns(V const& view, std::size_t begin, std::size_t end) {
    return Kokkos::subview(view, Kokkos::ALL, Kokkos::pair<std::size_t, std::size_t>(begin, end));
}

/// The address of a row, in a view whose rows may be further apart than they are long.
template <class V>
KOKKOS_FUNCTION auto row_of(V const& view, i64 row) {
    return view.data() + row * static_cast<i64>(view.stride(0));
}

namespace detail {

/// Refuses, in words, an extent that does not fit: "rms_norm_forward: weight has extent 63, it must be 64 (hidden)".
inline void require_extent(char const* kernel, char const* what, std::size_t extent, std::size_t expected,
                           char const* reason) {
    if (extent != expected)
        throw std::invalid_argument(std::string(kernel) + ": " + what + " has extent " + std::to_string(extent) +
                                    ", it must be " + std::to_string(expected) + " (" + reason + ")");
}

template <class V, class W>
void require_same_shape(char const* kernel, char const* what, V const& view, char const* name, W const& reference) {
    static_assert(V::rank == 2 && W::rank == 2);
    if (view.extent(0) != reference.extent(0) || view.extent(1) != reference.extent(1))
        throw std::invalid_argument(std::string(kernel) + ": " + what + " is [" + std::to_string(view.extent(0)) +
                                    ", " + std::to_string(view.extent(1)) + "], it must be as " + name +
                                    ", which is [" + std::to_string(reference.extent(0)) + ", " +
                                    std::to_string(reference.extent(1)) + "]");
}

template <class Exec, bool = runs_on_host<Exec>>
class Row;

/// What a kernel sees of its row on a host: plain loops. Sums run over as many independent accumulators as fill four
/// AVX2 registers, then fold in halves: an order that depends on the length alone.
template <class Exec>
class Row<Exec, true> {
  public:
    KOKKOS_FUNCTION explicit Row(i64 index) : index_(index) {}
    KOKKOS_FUNCTION i64 index() const { return index_; }

    /// The address of this row in a view.
    template <class V>
    KOKKOS_FUNCTION auto of(V const& view) const {
        return row_of(view, index_);
    }

    /// f(i) for i in [0, n), in any order.
    template <class F>
    KOKKOS_FORCEINLINE_FUNCTION void each(int n, F const& f) const {
        PENTAD_INDEPENDENT
        for (int i = 0; i < n; ++i) f(i);
    }

    /// to[i] = from[i] for i in [0, n); the two do not overlap.
    template <class T>
    KOKKOS_FORCEINLINE_FUNCTION void copy(int n, T const* from, T* to) const {
        if (n > 0) std::memcpy(to, from, sizeof(T) * n);
    }

    /// f(o, i) for o in [0, outer), i in [0, inner), in any order.
    template <class F>
    KOKKOS_FORCEINLINE_FUNCTION void each(int outer, int inner, F const& f) const {
        for (int o = 0; o < outer; ++o) {
            PENTAD_INDEPENDENT
            for (int i = 0; i < inner; ++i) f(o, i);
        }
    }

    template <class A, class F>
    KOKKOS_FORCEINLINE_FUNCTION A sum(int n, F const& f) const {
        return fold<A>(n, A(0), f, [](A a, A b) { return a + b; });
    }

    template <class A, class F>
    KOKKOS_FORCEINLINE_FUNCTION A max(int n, F const& f) const {
        return fold<A>(n, -std::numeric_limits<A>::infinity(), f, [](A a, A b) { return a > b ? a : b; });
    }

    /// The lowest i in [0, n) for which `holds(i)`, n if there is none.
    template <class F>
    KOKKOS_FORCEINLINE_FUNCTION int first(int n, F const& holds) const {
        int lowest = n;
        for (int i = 0; i < n; ++i) {
            int const candidate = holds(i) ? i : n;
            lowest = candidate < lowest ? candidate : lowest;
        }
        return lowest;
    }

    /// store(i, sum over t in [0, terms) of term(t, i)) for i in [0, n), with i as the vectorised index.
    template <class A, class Term, class Store>
    KOKKOS_FORCEINLINE_FUNCTION void accumulate(int n, int terms, Term const& term, Store const& store) const {
        constexpr int block = 256;
        for (int begin = 0; begin < n; begin += block) {
            A total[block] = {};
            int const size = n - begin < block ? n - begin : block;
            for (int t = 0; t < terms; ++t) {
                PENTAD_INDEPENDENT
                for (int i = 0; i < size; ++i) total[i] += term(t, begin + i);
            }
            PENTAD_INDEPENDENT
            for (int i = 0; i < size; ++i) store(begin + i, total[i]);
        }
    }

    /// f() by one lane.
    template <class F>
    KOKKOS_FORCEINLINE_FUNCTION void once(F const& f) const {
        f();
    }

    /// What any lane of this row wrote before is seen by all lanes after.
    KOKKOS_FORCEINLINE_FUNCTION void sync() const {}

  private:
    template <class A, class F, class Join>
    static KOKKOS_FORCEINLINE_FUNCTION A fold(int n, A neutral, F const& f, Join const& join) {
        constexpr int lanes = 128 / sizeof(A);
        A part[lanes];
        for (int l = 0; l < lanes; ++l) part[l] = neutral;
        int i = 0;
        for (; i + lanes <= n; i += lanes)
            for (int l = 0; l < lanes; ++l) part[l] = join(part[l], static_cast<A>(f(i + l)));
        for (int l = 0; l < n - i; ++l) part[l] = join(part[l], static_cast<A>(f(i + l)));
        for (int half = lanes / 2; half > 0; half /= 2)
            for (int l = 0; l < half; ++l) part[l] = join(part[l], part[l + half]);
        return part[0];
    }

    i64 index_;
};

/// A row on a device: a team whose lanes take neighbouring elements; its reductions are trees of a fixed shape.
template <class Exec>
class Row<Exec, false> {
  public:
    using Member = typename Kokkos::TeamPolicy<Exec>::member_type;

    KOKKOS_FUNCTION explicit Row(Member const& team) : team_(team) {}
    KOKKOS_FUNCTION i64 index() const { return team_.league_rank(); }

    template <class V>
    KOKKOS_FUNCTION auto of(V const& view) const {
        return row_of(view, index());
    }
    template <class F>
    KOKKOS_FUNCTION void each(int n, F const& f) const {
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team_, n), f);
    }
    template <class T>
    KOKKOS_FUNCTION void copy(int n, T const* from, T* to) const {
        each(n, [&](int i) { to[i] = from[i]; });
    }
    template <class F>
    KOKKOS_FUNCTION void each(int outer, int inner, F const& f) const {
        Kokkos::parallel_for(Kokkos::TeamVectorRange(team_, outer * inner), [&](int i) { f(i / inner, i % inner); });
    }
    template <class A, class F>
    KOKKOS_FUNCTION A sum(int n, F const& f) const {
        A total = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team_, n), [&](int i, A& part) { part += static_cast<A>(f(i)); }, total);
        return total;
    }
    template <class A, class F>
    KOKKOS_FUNCTION A max(int n, F const& f) const {
        A largest = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team_, n),
            [&](int i, A& part) {
                A const value = static_cast<A>(f(i));
                part = part > value ? part : value;
            },
            Kokkos::Max<A>(largest));
        return n > 0 ? largest : -Kokkos::Experimental::infinity_v<A>; // Kokkos' neutral element is finite
    }
    template <class F>
    KOKKOS_FUNCTION int first(int n, F const& holds) const {
        int lowest = n;
        Kokkos::parallel_reduce(
            Kokkos::TeamVectorRange(team_, n),
            [&](int i, int& part) {
                int const candidate = holds(i) ? i : n;
                part = candidate < part ? candidate : part;
            },
            Kokkos::Min<int>(lowest));
        return lowest < n ? lowest : n;
    }
    template <class A, class Term, class Store>
    KOKKOS_FUNCTION void accumulate(int n, int terms, Term const& term, Store const& store) const {
        each(n, [&](int i) {
            A total = 0;
            for (int t = 0; t < terms; ++t) total += term(t, i);
            store(i, total);
        });
    }
    template <class F>
    KOKKOS_FUNCTION void once(F const& f) const {
        Kokkos::single(Kokkos::PerTeam(team_), f);
    }
    KOKKOS_FUNCTION void sync() const { team_.team_barrier(); }

  private:
    Member const& team_;
};

} // namespace detail

/// How a kernel works on one row; see detail::Row for what it offers.
template <class Exec>
using Row = detail::Row<Exec>;

namespace detail {

// Host loops are flattened: GCC does not inline large bodies by itself, and does not vectorise calls.
template <class Exec, class F>
struct ThreadPerRow {
    F f;
    [[gnu::flatten]] KOKKOS_FUNCTION void operator()(i64 row) const {
        F const kernel = f; // a copy that no store of the kernel can alter: what it captures stays in registers
        kernel(Row<Exec>(row));
    }
};

template <class Exec, class F>
struct TeamPerRow {
    F f;
    KOKKOS_FUNCTION void operator()(typename Kokkos::TeamPolicy<Exec>::member_type const& team) const {
        f(Row<Exec>(team));
    }
};

inline constexpr i64 host_chunk = 8192; // elements that a host thread takes at a time: a few streams of it fit in L1

template <class F>
struct ChunkOfElements {
    F f;
    i64 n;
    [[gnu::flatten]] KOKKOS_FUNCTION void operator()(i64 chunk) const {
        i64 const begin = chunk * host_chunk;
        i64 const end = begin + host_chunk < n ? begin + host_chunk : n;
        F const kernel = f; // as in ThreadPerRow
        PENTAD_INDEPENDENT
        for (i64 i = begin; i < end; ++i) kernel(i);
    }
};

template <class Exec>
int vector_lanes() {
    return std::min(32, static_cast<int>(Kokkos::TeamPolicy<Exec>::vector_length_max()));
}

} // namespace detail

/// f(Row<Exec>) for every row in [0, rows); `width` is about how many elements a row has.
template <class Exec, class F>
void for_each_row(char const* label, Exec const& exec, std::size_t rows, std::size_t width, F const& f) {
    if (rows == 0) return;
    if constexpr (runs_on_host<Exec>) {
        Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, static_cast<i64>(rows)),
                             detail::ThreadPerRow<Exec, F>{f});
    } else {
        int const lanes = detail::vector_lanes<Exec>();
        int const threads = static_cast<int>(std::clamp<std::size_t>(width / (4 * lanes), 1, 256 / lanes));
        Kokkos::parallel_for(label, Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(rows), threads, lanes),
                             detail::TeamPerRow<Exec, F>{f});
    }
}

/// f(i) for every i in [0, n), i being i64: flat ranges may be longer than 2^31.
template <class Exec, class F>
void for_each_element(char const* label, Exec const& exec, std::size_t n, F const& f) {
    if (n == 0) return;
    using Policy = Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>;
    i64 const count = static_cast<i64>(n);
    if constexpr (runs_on_host<Exec>) {
        i64 const chunks = (count + detail::host_chunk - 1) / detail::host_chunk;
        Kokkos::parallel_for(label, Policy(exec, 0, chunks), detail::ChunkOfElements<F>{f, count});
    } else {
        Kokkos::parallel_for(label, Policy(exec, 0, count), f);
    }
}

} // namespace pentad::kernels
