// Stencils on shards with ghost cells: the cells that need no neighbour are computed while ghost cells are filled.
#pragma once

#include <pentad/layout/block.hpp>
#include <pentad/layout/exchange.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace pentad {

/// The cells of a shard that this rank owns, as places in its view: those that are no ghost cells.
template <class L, class Exec, class M>
[[nodiscard]] ElementBox owned_cells(Tensor<L, Exec, M> const& tensor) {
    ElementBox box;
    for (std::size_t d = 0; d < L::rank; ++d) {
        std::size_t const width = L::value.dimensions[d].width;
        box.begin[d] = width;
        box.end[d] = tensor.local()[d] - width;
    }
    return box;
}

namespace detail {

/// Calls a function with the indices of cell i of a box, row-major.
template <std::size_t Rank, class F>
struct CellKernel {
    F function;
    ElementBox box;
    bool by_rows; ///< i counts rows of the last dimension, which is gone through here

    KOKKOS_FUNCTION void operator()(std::int64_t i) const {
        auto rest = static_cast<std::size_t>(i);
        std::size_t at[Rank];
        for (std::size_t d = by_rows ? Rank - 1 : Rank; d-- > 0;) {
            std::size_t const extent = box.end[d] - box.begin[d];
            at[d] = box.begin[d] + rest % extent;
            rest /= extent;
        }
        if (by_rows)
            call_row(at, std::make_index_sequence<Rank - 1>());
        else
            call(at, std::make_index_sequence<Rank>());
    }
    template <std::size_t... D>
    KOKKOS_FUNCTION void call(std::size_t const* at, std::index_sequence<D...>) const {
        function(at[D]...);
    }
    template <std::size_t... D>
    KOKKOS_FUNCTION void call_row([[maybe_unused]] std::size_t const* at, std::index_sequence<D...>) const {
        std::size_t const end = box.end[Rank - 1];
        for (std::size_t j = box.begin[Rank - 1]; j < end; ++j) function(at[D]..., j);
    }
};

} // namespace detail

/// function(i, j, ...) for each cell of a box, in parallel: on a host over rows of the last of the `Rank` dimensions.
/// @param function callable on the device, in any order
template <std::size_t Rank, class Exec, class F>
void for_each_cell(char const* label, Exec const& exec, ElementBox const& box, F const& function) {
    constexpr bool by_rows = memory::runs_on_host<Exec>;
    std::size_t const cells = box.size(Rank), row = box.end[Rank - 1] - box.begin[Rank - 1];
    if (cells == 0) return;
    Kokkos::parallel_for(label,
                         Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(
                             exec, 0, static_cast<std::int64_t>(by_rows ? cells / row : cells)),
                         detail::CellKernel<Rank, F>{function, box, by_rows});
}

/// `cells` with ghost cells filled, and compute(view, box) called for boxes that cover the owned cells: first the one
/// whose stencils, of the halo's width, reach no ghost cell that a message fills, while messages are on their way; then
/// those along its sides. `compute` reads the view, which is that of the result, and writes elsewhere. Collective as
/// redistribute is.
/// @tparam To a layout with filled halos, of which L has the memory already: `stale_t<To>`
template <class To, class L, class Exec, class M, class Compute>
Tensor<To, Exec, M> fill_halo_and_compute(Tensor<L, Exec, M> cells, Compute&& compute) {
    static_assert(std::is_same_v<stale_t<L>, stale_t<To>>,
                  "pentad: halos are filled in place: the layouts differ in what ghost cells hold only");
    auto const owned = owned_cells(cells);
    auto inner = owned;
    auto const& communicators = cells.context().communicators();
    for (std::size_t d = 0; d < L::rank; ++d) {
        auto const& dimension = L::value.dimensions[d];
        auto const block = block_of(dimension, cells.extents()[d], communicators.mesh(), communicators.world().rank());
        if (block.count == 1) continue; // its ghost cells need no message
        bool const is_open = dimension.boundary == Boundary::open;
        if (!is_open || block.index > 0) inner.begin[d] = std::min(owned.begin[d] + dimension.width, owned.end[d]);
        if (!is_open || block.index + 1 < block.count)
            inner.end[d] = std::max(owned.end[d] - std::min(dimension.width, owned.end[d]), inner.begin[d]);
    }
    Redistribution<To, L, Exec, M> filling(std::move(cells));
    if (inner.size(L::rank) > 0) compute(filling.in_place().view(), inner);
    auto filled = filling.wait();
    auto rest = owned;
    for (std::size_t d = 0; d < L::rank; ++d) {
        auto side = rest;
        side.end[d] = inner.begin[d];
        if (side.size(L::rank) > 0) compute(filled.view(), side);
        side = rest;
        side.begin[d] = inner.end[d];
        if (side.size(L::rank) > 0) compute(filled.view(), side);
        rest.begin[d] = inner.begin[d];
        rest.end[d] = inner.end[d];
    }
    return filled;
}

} // namespace pentad
