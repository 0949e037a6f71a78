// Elements of a tensor from the ranks of one mesh to those of another.
#pragma once

#include <pentad/layout/transfer.hpp>
#include <pentad/tensor/box_messages.hpp>
#include <pentad/tensor/shard.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pentad::detail {

/// Sends what other ranks lack, and receives what this one lacks. Collective over `ranks`. Waits.
/// @param shape of the transfer between ranks of the group @param given this rank's shard on the source mesh, where it
/// has one @param taken memory for its shard on the target mesh, where it has one
template <class T, class Exec>
void transfer(Context<Exec> const& context, comm::Communicator const& ranks, TransferShape const& shape, T const* given,
              T* taken) {
    int const me = ranks.rank(), from_me = shape.source_at(me), to_me = shape.target_at(me);
    struct Box {
        std::size_t peer;
        bool leaves;
        ElementBox box;
    };
    std::vector<Box> boxes;
    shape.for_each_box([&](int from, int to, ElementBox const& there, ElementBox const& here) {
        if (from == from_me && to == to_me)
            copy_box("transfer", context.exec(), taken, in_memory(shape.needed(to), here), given,
                     in_memory(shape.held(from), there));
        else if (from == from_me)
            boxes.push_back({static_cast<std::size_t>(shape.target_place(to)), true, there});
        else if (to == to_me)
            boxes.push_back({static_cast<std::size_t>(shape.source_place(from)), false, here});
    });
    std::stable_sort(boxes.begin(), boxes.end(), [](Box const& a, Box const& b) { return a.peer < b.peer; });
    BoxMessages<T, Exec> messages(context, ranks);
    for (auto const& [peer, leaves, box] : boxes)
        messages.add(leaves, peer, leaves ? shape.held(from_me) : shape.needed(to_me), box);
    messages.prepare();
    messages.start(given);
    messages.finish([&](std::size_t, BoxInMemory const& place, T const* from, BoxInMemory const& box) {
        copy_box("transfer", context.exec(), taken, place, from, box);
    });
}

} // namespace pentad::detail
