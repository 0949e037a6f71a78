// The local part of a product: panels of the factors, as they arrive, multiplied into what a rank computes of the
// result.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/product/detail/factor_stream.hpp>
#include <pentad/product/detail/prepared.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/shard.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace pentad::detail {

template <class Exec>
comm::Communicator const& group_of(Context<Exec> const& context, FactorMove const& move) {
    return move.between_meshes ? context.communicators().world() : context.communicators().along(move.axes);
}

/// How long a panel is whose two buffers for what arrives take at most `bytes` on any rank.
template <class T>
std::size_t panel_length(PreparedProduct const& product, std::size_t bytes) {
    std::size_t outer = 0;
    for (auto const* factor : {&product.a(), &product.b()})
        if (factor->members.size() > 1) outer += factor->used.longest(1 - factor->inner);
    return std::max<std::size_t>(bytes / std::max<std::size_t>(2 * outer * sizeof(T), 1), 1);
}

/// result += A B, or result = A B, of what this rank computes. Collective over the groups in which the
/// factors move.
/// @param a, b the shards of the factors, where they are held once summed
template <class T, class Sum, class Exec>
void multiply_panels(Context<Exec> const& context, PreparedProduct& product, std::size_t panel_bytes,
                     Shard<T, Exec> const& a, Shard<T, Exec> const& b, Shard<Sum, Exec> const& result, bool adds) {
    constexpr int tag = 64; // beyond those of rings; the factors may move in one group
    auto const& exec = context.exec();
    auto const &move_a = product.a(), &move_b = product.b();
    int const rank = move_a.members[move_a.me];
    FactorStream<T, Exec> from_a(context, group_of(context, move_a), move_a, a.data, tag);
    FactorStream<T, Exec> from_b(context, group_of(context, move_b), move_b, b.data, tag + 1);
    bool const copies = !from_a.is_in_place() || !from_b.is_in_place();
    std::size_t const most = copies ? panel_length<T>(product, panel_bytes) : SIZE_MAX;
    auto const& schedules = product.schedules(most);
    if (auto* const dry = observe::dry_run_for_all()) {
        from_a.follow_for_all(*dry, schedules.a, longest_of_any(move_a, move_a, move_b, most));
        from_b.follow_for_all(*dry, schedules.b, longest_of_any(move_b, move_a, move_b, most));
    } else {
        from_a.follow(schedules.a);
        from_b.follow(schedules.b);
    }

    View<Sum, 2, Exec> const c(result.data, result.local[0], result.local[1]);
    // Rows of c as it is stored are those of the left matrix.
    bool const is_transposed = product.plan().at.c_rows == 1;
    auto& left = is_transposed ? from_b : from_a;
    auto& right = is_transposed ? from_a : from_b;
    auto const &left_move = is_transposed ? move_b : move_a, &right_move = is_transposed ? move_a : move_b;
    auto const transpose_left = left_move.inner == 0 ? kernels::Transpose::yes : kernels::Transpose::no;
    auto const transpose_right = right_move.inner == 1 ? kernels::Transpose::yes : kernels::Transpose::no;
    std::size_t const first_row = left_move.used_by(rank).outer.begin,
                      first_column = right_move.used_by(rank).outer.begin;
    auto const within = [](IndexRange range, std::size_t first) {
        return std::pair(range.begin - first, range.end - first);
    };
    from_a.start(0);
    from_b.start(0);
    std::size_t const steps = schedules.steps();
    for (std::size_t s = 0; s < steps; ++s) {
        if (s + 1 < steps) {
            from_a.start(s + 1);
            from_b.start(s + 1);
        }
        auto const& rows = left.await(s);
        for (auto const& column : right.await(s))
            for (auto const& row : rows)
                kernels::gemm(exec, transpose_left, transpose_right, 1.0, row.matrix, column.matrix,
                              adds || s > 0 ? 1.0 : 0.0,
                              Kokkos::subview(c, within(row.outer, first_row), within(column.outer, first_column)));
    }
    if (move_a.used_by(rank).inner.size() == 0 && !adds) memory::clear(exec, c.data(), c.size() * sizeof(Sum));
    exec.fence("pentad: before the factors of a product are written again");
    from_a.finish();
    from_b.finish();
}

/// An uninitialised shard in the layout in which a product is computed.
template <class T, class Exec>
Shard<T, Exec> take_computed(Context<Exec> const& context, PreparedProduct const& product) {
    return Shard<T, Exec>::make(context, product.computed_shape());
}

/// What this rank computes of A B, or of C + A B where C is given: `c` is written, unless it is summed in another
/// element first.
template <class T, class C, class Exec>
void compute(Context<Exec> const& context, PreparedProduct& product, std::size_t panel_bytes, Shard<T, Exec> const& a,
             Shard<T, Exec> const& b, Shard<C, Exec> const& c, bool adds) {
    using Sum = accumulator_t<T>;
    if constexpr (std::is_same_v<C, Sum>) {
        multiply_panels(context, product, panel_bytes, a, b, c, adds);
    } else { // rounded once
        auto const sums = take_computed<Sum>(context, product);
        if (adds) kernels::convert<C, Sum>(context.exec(), c.flat(), sums.flat());
        multiply_panels(context, product, panel_bytes, a, b, sums, adds);
        kernels::convert<Sum, C>(context.exec(), sums.flat(), c.flat());
    }
}

/// A B in the layout of C, where the factors are summed.
template <class C, class T, class Exec>
Shard<C, Exec> multiply_shards(Context<Exec> const& context, PreparedProduct& product, std::size_t panel_bytes,
                               Shard<T, Exec> const& a, Shard<T, Exec> const& b) {
    auto computed = take_computed<C>(context, product);
    compute(context, product, panel_bytes, a, b, computed, false);
    return carry_out(context, product.out(), std::move(computed));
}

/// c += A B for a shard in the layout of C.
template <class T, class C, class Exec>
void multiply_shards_into(Context<Exec> const& context, PreparedProduct& product, std::size_t panel_bytes,
                          Shard<T, Exec> const& a, Shard<T, Exec> const& b, Shard<C, Exec> const& c) {
    if (product.computes_in_place()) return compute(context, product, panel_bytes, a, b, c, true);
    auto const more = multiply_shards<C>(context, product, panel_bytes, a, b);
    kernels::add<C>(context.exec(), more.flat(), c.flat());
}

} // namespace pentad::detail
