// Fills the ghost cells of shards from their neighbours, or adds them back: messages between those ranks only.
#pragma once

#include <pentad/layout/halo.hpp>
#include <pentad/tensor/box_messages.hpp>
#include <pentad/tensor/exchange.hpp>
#include <pentad/tensor/shard.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pentad::detail {

/// target += source, in accumulators.
template <class T>
struct AddCells { // T: what kernels compute with
    T* to;
    T const* from;
    BoxInMemory target, source;

    KOKKOS_FUNCTION void operator()(std::int64_t i) const {
        auto rest = static_cast<std::size_t>(i);
        std::size_t here = target.first, there = source.first;
        for (std::size_t d = target.rank; d-- > 0;) {
            std::size_t const place = rest % target.extents[d];
            rest /= target.extents[d];
            here += place * target.strides[d];
            there += place * source.strides[d];
        }
        to[here] = static_cast<T>(static_cast<accumulator_t<T>>(to[here]) + static_cast<accumulator_t<T>>(from[there]));
    }
};
template <class T, class Exec>
void add_cells(Exec const& exec, T* to, BoxInMemory const& target, T const* from, BoxInMemory const& source) {
    if (memory::detail::dry("halo", 3 * target.size() * sizeof(T))) return;
    using E = kernel_element_t<T>;
    Kokkos::parallel_for(
        "pentad::add_halo",
        Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, static_cast<std::int64_t>(target.size())),
        AddCells<E>{reinterpret_cast<E*>(to), reinterpret_cast<E const*>(from), target, source});
}

/// What fill_halo and add_halo send, worked out once and carried out any number of times on shards of one shape.
template <class T, class Exec>
class HaloExchange {
  public:
    HaloExchange(Context<Exec> const& context, PlanStep const& step, ShardShape const& shard,
                 comm::Communicator const& comm)
        : context_(&context), fills_(step.kind == StepKind::fill_halo), messages_(context, comm) {
        HaloShape const halo(step, shard);
        auto const me = static_cast<std::size_t>(comm.rank());
        for (std::size_t p = 0; p < halo.size(); ++p) {
            // What this rank owns and p has ghosts of, and the other way round: one of them leaves, one arrives.
            halo.for_each_box(me, p, [&](ElementBox const& owned, ElementBox const& ghosts) {
                if (p == me)
                    own_.emplace_back(in_memory(shard, owned), in_memory(shard, ghosts));
                else
                    messages_.add(fills_, p, shard, owned);
            });
            halo.for_each_box(p, me, [&](ElementBox const&, ElementBox const& ghosts) {
                if (p != me) messages_.add(!fills_, p, shard, ghosts);
            });
        }
        messages_.prepare();
    }

    /// Sends what neighbours wait for, and fills ghost cells of this rank's own. Until `finish` cells may be read, and
    /// written where nothing arrives.
    void start(T* cells) {
        cells_ = cells;
        messages_.start(cells);
        if (fills_) take_own();
    }
    /// Blocks until ghost cells are filled, or added to their owners' cells in the order of ranks.
    void finish() {
        bool is_own_taken = fills_;
        messages_.finish([&](std::size_t peer, BoxInMemory const& target, T const* from, BoxInMemory const& source) {
            if (!is_own_taken && peer > messages_.own_rank()) is_own_taken = take_own();
            take(target, from, source);
        });
        if (!is_own_taken) take_own();
    }

  private:
    void take(BoxInMemory const& target, T const* from, BoxInMemory const& source) {
        if constexpr (Summable<T>) // others are never summands
            if (!fills_) return add_cells(context_->exec(), cells_, target, from, source);
        copy_box("halo", context_->exec(), cells_, target, from, source);
    }
    bool take_own() {
        for (auto const& [owned, ghosts] : own_)
            if (fills_)
                take(ghosts, cells_, owned);
            else
                take(owned, cells_, ghosts);
        return true;
    }

    Context<Exec> const* context_;
    bool fills_;
    BoxMessages<T, Exec> messages_;
    std::vector<std::pair<BoxInMemory, BoxInMemory>> own_; ///< cells and ghosts that both are this rank's
    T* cells_ = nullptr;
};

/// A step of a halo that a rank does alone.
template <class T, class Exec>
Shard<T, Exec> carry_out_halo_locally(Context<Exec> const& context, PlanStep const& step, Shard<T, Exec> shard,
                                      T* place) {
    auto const& exec = context.exec();
    if (step.kind == StepKind::clear_halo) {
        auto const zero = context.take(sizeof(T));
        memory::clear(exec, zero.data(), sizeof(T));
        for (std::size_t d = 0; d < shard.rank; ++d) {
            if (step.halo.width[d] == 0) continue;
            for (bool const is_last : {false, true}) {
                auto box = shard.memory();
                (is_last ? box.begin[d] : box.end[d]) = is_last ? shard.local[d] - shard.ghosts[d] : shard.ghosts[d];
                auto const ghosts = in_memory(shard, box);
                auto source = ghosts; // each of them
                source.first = 0;
                source.strides = {};
                copy_box("halo", exec, shard.data, ghosts, static_cast<T const*>(zero.data()), source);
            }
        }
        return shard;
    }
    ShardShape shape = shard;
    reshape(shape, step, 1, 0);
    auto result = Shard<T, Exec>::make(context, shape, place);
    if (step.kind == StepKind::make_halo) memory::clear(exec, result.data, result.size() * sizeof(T));
    auto const& inside = step.kind == StepKind::make_halo ? static_cast<ShardShape const&>(shard) : shape;
    auto const owned = [&](ShardShape const& in) {
        ElementBox box;
        for (std::size_t d = 0; d < in.rank; ++d) {
            box.begin[d] = (in.local[d] - inside.local[d]) / 2;
            box.end[d] = box.begin[d] + inside.local[d];
        }
        return in_memory(in, box);
    };
    copy_box("halo", exec, result.data, owned(result), shard.data, owned(shard));
    return result;
}

} // namespace pentad::detail
