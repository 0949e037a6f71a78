// A token's choices split by node, where each node holds as many experts: on which nodes they are,
// and what is sent there about them.
#pragma once

#include <pentad/kernels/rows.hpp>

namespace pentad::kernels {

/// node[t, :] = the nodes of the experts that choice[t, :] names, each once, in the order in which they first appear;
/// then -1, as in choice where a token has fewer. The columns of `node` are enough for all that a token can have.
template <class Exec>
void nodes_of_choices(Exec const& exec, In<i32, 2, Exec> choice, int experts_per_node, Out<i32, 2, Exec> node) {
    detail::require_extent("nodes_of_choices", "choice", choice.extent(0), node.extent(0), "rows of node");
    int const top_k = static_cast<int>(choice.extent(1)), most = static_cast<int>(node.extent(1));
    if (dry("nodes_of_choices", choice, node)) return;
    Kokkos::parallel_for(
        "pentad::nodes_of_choices", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, choice.extent(0)),
        KOKKOS_LAMBDA(i64 t) {
            int found = 0;
            for (int k = 0; k < top_k && choice(t, k) >= 0; ++k) {
                i32 const here = choice(t, k) / experts_per_node;
                int j = 0;
                while (j < found && node(t, j) != here) ++j;
                if (j == found) node(t, found++) = here;
            }
            for (; found < most; ++found) node(t, found) = -1;
        });
}

/// What goes along with the row of token t for node node[t, j], which is row p = position[t, j]: packed[p, 0:top_k] are
/// the experts that the token chose there, by their numbers on the node, then -1; packed[p, top_k:] their weights.
/// Choice k of token t is entry place[t, k] of a [rows, top_k] array, -1 where there is none. An expert's number is
/// exact as an A (below 2^24).
template <class A, class Exec>
void pack_choices(Exec const& exec, In<i32, 2, Exec> choice, In<A, 2, Exec> weight, int experts_per_node,
                  In<i32, 2, Exec> node, In<i32, 2, Exec> position, Out<A, 2, Exec> packed, Out<i32, 2, Exec> place) {
    detail::require_same_shape("pack_choices", "weight", weight, "choice", choice);
    detail::require_same_shape("pack_choices", "place", place, "choice", choice);
    detail::require_same_shape("pack_choices", "position", position, "node", node);
    detail::require_extent("pack_choices", "packed, dimension 1,", packed.extent(1), 2 * choice.extent(1), "2 top_k");
    int const top_k = static_cast<int>(choice.extent(1)), most = static_cast<int>(node.extent(1));
    if (dry("pack_choices", choice, weight, node, position, packed, place)) return;
    Kokkos::parallel_for(
        "pentad::pack_choices", Kokkos::RangePolicy<Exec, Kokkos::IndexType<i64>>(exec, 0, choice.extent(0)),
        KOKKOS_LAMBDA(i64 t) {
            for (int k = 0; k < top_k; ++k) place(t, k) = -1;
            for (int j = 0; j < most && node(t, j) >= 0; ++j) {
                i32 const p = position(t, j);
                int i = 0;
                for (int k = 0; k < top_k; ++k) {
                    if (choice(t, k) < 0 || choice(t, k) / experts_per_node != node(t, j)) continue;
                    packed(p, i) = static_cast<A>(choice(t, k) % experts_per_node);
                    packed(p, top_k + i) = weight(t, k);
                    place(t, k) = p * top_k + i++;
                }
                for (; i < top_k; ++i) {
                    packed(p, i) = -1;
                    packed(p, top_k + i) = 0;
                }
            }
        });
}

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

/// y[i] = x[place[i]], or zero where that is negative.
template <class A, class Exec>
void take_places(Exec const& exec, In<A, 1, Exec> x, In<i32, 1, Exec> place, Out<A, 1, Exec> y) {
    detail::require_extent("take_places", "place", place.extent(0), y.extent(0), "extent of y");
    if (dry("take_places", x, place, y)) return;
    for_each_element(
        "pentad::take_places", exec, y.extent(0), KOKKOS_LAMBDA(i64 i) { y(i) = place(i) < 0 ? A(0) : x(place(i)); });
}

} // namespace pentad::kernels
