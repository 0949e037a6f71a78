// A redistribution and the computation beside it. `Blocking` carries out one and then the other;
// `Overlap<Chunks>` decomposes a gather or a reduce-scatter across a network into pieces, each of which is computed
// with while others are on their way. What is computed is the same.
#pragma once

#include <pentad/comm/ring.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace pentad {

/// First all of the redistribution, then all of the computation, or the other way round.
struct Blocking {
    static constexpr std::size_t chunks = 0;
    /// The input and output layout of a layer: the one it computes with, so that its neighbours redistribute.
    template <class Stream, class Inner>
    using boundary = Inner;
};

/// Where the group crosses a network each rank's shard travels in up to `Chunks` pieces of at least `LeastBytes`.
template <std::size_t Chunks, std::size_t LeastBytes = std::size_t{1} << 17>
struct Overlap {
    static_assert(Chunks > 0 && Chunks <= comm::Pieces::most, "pentad: a shard is cut into 1 to 16 chunks");
    static constexpr std::size_t chunks = Chunks;
    static constexpr std::size_t least_bytes = LeastBytes;
    /// The input and output layout of a layer: the stream's, since it redistributes itself.
    template <class Stream, class Inner>
    using boundary = Stream;
};

/// Rows [begin, end) of a shard, of some trailing dimensions each.
struct RowRange {
    std::size_t begin, end;
};

namespace detail {

/// True when a plan is one step of `kind` on a dimension of equal blocks before the last `inner`: rows of a product.
constexpr bool moves_rows(PlanValue const& plan, StepKind kind, LayoutValue const& layout, std::size_t inner) {
    return plan.count == 1 && plan.steps[0].kind == kind && plan.steps[0].dimension + inner < layout.rank &&
           !layout.is_uneven();
}

/// A shard [before..., d, after...] seen as [rows, columns, depth].
template <class L, class Exec>
View<typename L::element, 3, Exec> around(Tensor<L, Exec> const& tensor, std::size_t d) {
    std::array<std::size_t, 3> extents{1, tensor.local()[d], 1};
    for (std::size_t i = 0; i < L::rank; ++i)
        if (i != d) extents[i < d ? 0 : 2] *= tensor.local()[i];
    return View<typename L::element, 3, Exec>(tensor.array_data(), extents[0], extents[1], extents[2]);
}

template <std::size_t Inner, class L, class Exec>
std::size_t row_length(Tensor<L, Exec> const& tensor) {
    std::size_t length = 1;
    for (std::size_t i = L::rank - Inner; i < L::rank; ++i) length *= tensor.local()[i];
    return length;
}
template <std::size_t Inner, class L, class Exec>
RowRange all_rows(Tensor<L, Exec> const& tensor) {
    std::size_t const length = row_length<Inner>(tensor);
    return {0, length == 0 ? 0 : tensor.size() / length};
}

/// Some rows of a shard as a matrix.
template <std::size_t Inner, class L, class Exec>
View<typename L::element, 2, Exec> rows_of(Tensor<L, Exec> const& tensor, RowRange rows) {
    std::size_t const length = row_length<Inner>(tensor);
    return View<typename L::element, 2, Exec>(tensor.array_data() + rows.begin * length, rows.end - rows.begin, length);
}

/// f(rows) for each run of rows of `length` elements that a box of `whole` [rows, columns, depth] holds.
template <class V, class F>
void for_each_run(V const& whole, comm::Box const& box, std::size_t length, F&& f) {
    std::size_t const per_column = whole.extent(2) / length, columns = whole.extent(1);
    bool const adjacent = box.first_column == 0 && box.last_column == columns;
    if (adjacent) return f(RowRange{box.first_row * columns * per_column, box.last_row * columns * per_column});
    for (std::size_t row = box.first_row; row < box.last_row; ++row)
        f(RowRange{(row * columns + box.first_column) * per_column, (row * columns + box.last_column) * per_column});
}

/// Pieces that a shard is worth cutting into.
template <class Communication, class V>
std::size_t pieces_of(V const& shard) {
    if constexpr (Communication::chunks == 0)
        return 1;
    else
        return std::clamp(shard.size() * sizeof(typename V::value_type) / Communication::least_bytes, std::size_t{1},
                          Communication::chunks);
}

} // namespace detail

/// The tensor's value in layout To, with consume(whole, rows) called for its rows as they arrive: each once, where a
/// row is the last `Inner` dimensions.
template <class To, class Communication, std::size_t Inner, class L, class Exec, class Consume>
Tensor<To, Exec> redistribute_and_consume(Tensor<L, Exec> tensor, Consume&& consume) {
    require_redistributable<L, To>();
    if constexpr (Redistributable<L, To>) {
        constexpr auto plan = Plan<L, To>::value;
        if constexpr (Communication::chunks > 0 && detail::moves_rows(plan, StepKind::all_gather, L::value, Inner)) {
            auto const& context = tensor.context();
            auto const& comm = context.communicators().along(plan.steps[0].axes);
            if (comm.crosses_network() && tensor.size() > 0) {
                Tensor<To, Exec> whole(context, tensor.extents());
                auto const shard = detail::around(tensor, plan.steps[0].dimension);
                auto const target = detail::around(whole, plan.steps[0].dimension);
                comm::ring_all_gather(context.exec(), comm, shard, target, detail::pieces_of<Communication>(shard),
                                      [&](comm::Box const& box) {
                                          detail::for_each_run(target, box, detail::row_length<Inner>(whole),
                                                               [&](RowRange rows) { consume(whole, rows); });
                                      });
                return whole;
            }
        }
        auto whole = redistribute<To>(std::move(tensor));
        consume(whole, detail::all_rows<Inner>(whole));
        return whole;
    }
}

/// A tensor of the given global extents, computed in layout From by produce(whole, rows), which is called for each row
/// once, in layout To: rows leave as they are made.
template <class From, class To, class Communication, std::size_t Inner, class Exec, class Produce>
Tensor<To, Exec> produce_and_redistribute(Context<Exec> const& context,
                                          std::array<std::size_t, From::rank> const& extents, Produce&& produce) {
    require_redistributable<From, To>();
    if constexpr (Redistributable<From, To>) {
        constexpr auto plan = Plan<From, To>::value;
        Tensor<From, Exec> whole(context, extents);
        if constexpr (Communication::chunks > 0 &&
                      detail::moves_rows(plan, StepKind::reduce_scatter, From::value, Inner)) {
            auto const& comm = context.communicators().along(plan.steps[0].axes);
            if (comm.crosses_network() && whole.size() > 0) {
                Tensor<To, Exec> result(context, extents);
                auto const source = detail::around(whole, plan.steps[0].dimension);
                auto const shard = detail::around(result, plan.steps[0].dimension);
                comm::ring_reduce_scatter(context.exec(), comm, source, shard, detail::pieces_of<Communication>(shard),
                                          [&](comm::Box const& box) {
                                              detail::for_each_run(source, box, detail::row_length<Inner>(whole),
                                                                   [&](RowRange rows) { produce(whole, rows); });
                                          });
                return result;
            }
        }
        produce(whole, detail::all_rows<Inner>(whole));
        return redistribute<To>(std::move(whole));
    }
}

} // namespace pentad
