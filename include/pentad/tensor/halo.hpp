// Fills the ghost cells of shards from their neighbours, or adds them back: messages between those ranks only.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/layout/halo.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/exchange.hpp>
#include <pentad/tensor/shard.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pentad::detail {

/// A box in the memory of a shard.
struct BoxInMemory {
    std::size_t first = 0; ///< element
    std::array<std::size_t, max_dimensions> extents{}, strides{};
    std::size_t rank = 0;

    BoxInMemory(ShardShape const& shape, ElementBox const& box) : rank(shape.rank) {
        std::size_t stride = 1;
        for (std::size_t d = rank; d-- > 0; stride *= shape.local[d]) {
            extents[d] = box.extent(d);
            strides[d] = stride;
            first += box.begin[d] * stride;
        }
    }
    /// The same box without anything between its elements.
    [[nodiscard]] BoxInMemory packed(std::size_t at) const {
        auto result = *this;
        result.first = at;
        std::size_t stride = 1;
        for (std::size_t d = rank; d-- > 0; stride *= extents[d]) result.strides[d] = stride;
        return result;
    }
    [[nodiscard]] std::size_t size() const {
        std::size_t product = 1;
        for (std::size_t d = 0; d < rank; ++d) product *= extents[d];
        return product;
    }
};

template <class T, class Exec>
void copy_cells(Exec const& exec, T* to, BoxInMemory const& target, T const* from, BoxInMemory const& source) {
    memory::Runs runs(sizeof(T));
    for (std::size_t d = target.rank; d-- > 0;)
        runs.add(target.extents[d], target.strides[d] * sizeof(T), source.strides[d] * sizeof(T));
    memory::copy("halo", exec, runs, to + target.first, from + source.first);
}

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
        : context_(&context), comm_(&comm), fills_(step.kind == StepKind::fill_halo) {
        HaloShape const halo(step, shard);
        auto const me = static_cast<std::size_t>(comm.rank());
        std::size_t leaving = 0, arriving = 0;
        for (std::size_t p = 0; p < halo.size(); ++p) {
            // What this rank owns and p has ghosts of, and the other way round: one of them leaves, one arrives.
            if (p == me) {
                own_at_ = arriving_.size();
                halo.for_each_box(me, me, [&](ElementBox const& owned, ElementBox const& ghosts) {
                    own_.emplace_back(BoxInMemory(shard, owned), BoxInMemory(shard, ghosts));
                });
                continue;
            }
            Message owned{static_cast<int>(p), fills_ ? leaving : arriving, 0, {}},
                ghosts{static_cast<int>(p), fills_ ? arriving : leaving, 0, {}};
            halo.for_each_box(me, p, [&](ElementBox const& box, ElementBox const&) { owned.add(shard, box); });
            halo.for_each_box(p, me, [&](ElementBox const&, ElementBox const& box) { ghosts.add(shard, box); });
            auto &sent = fills_ ? owned : ghosts, &received = fills_ ? ghosts : owned;
            leaving += sent.cells;
            arriving += received.cells;
            if (sent.cells > 0) leaving_.push_back(std::move(sent));
            if (received.cells > 0) arriving_.push_back(std::move(received));
        }
        packed_ = context.take(leaving * sizeof(T));
        arrived_ = context.take(arriving * sizeof(T));
        sending_.reserve(leaving_.size());
        receiving_.reserve(arriving_.size());
    }

    /// Sends what neighbours wait for. Until `finish` cells may be read, and written where nothing arrives.
    void start(T* cells) {
        cells_ = cells;
        auto const& exec = context_->exec();
        for (auto const& message : arriving_)
            receiving_.push_back(comm::start_receive(exec, *comm_, flat(arrived_, message), message.peer));
        for (auto const& message : leaving_)
            for (auto const& box : message.boxes)
                copy_cells(exec, static_cast<T*>(packed_.data()), box.in_message, cells, box.in_memory);
        for (auto const& message : leaving_)
            sending_.push_back(comm::start_send(exec, *comm_, flat(packed_, message), message.peer));
    }
    /// Blocks until ghost cells are filled, or added to their owners' cells in the order of ranks.
    void finish() {
        for (std::size_t i = 0; i < arriving_.size(); ++i) {
            if (i == own_at_) take_own();
            receiving_[i].wait();
            for (auto const& box : arriving_[i].boxes)
                take(box.in_memory, static_cast<T const*>(arrived_.data()), box.in_message);
        }
        if (own_at_ == arriving_.size()) take_own();
        for (auto& message : sending_) message.wait();
        receiving_.clear();
        sending_.clear();
    }

  private:
    using Flat = View<T, 1, Exec>;
    using Transfer = comm::Request<comm::detail::Staged<Flat>>;
    using Buffer = memory::Buffer<typename Exec::memory_space>;
    struct BoxOfMessage {
        BoxInMemory in_memory, in_message;
    };
    struct Message {
        int peer;
        std::size_t first, cells; ///< where it is in the buffer of all
        std::vector<BoxOfMessage> boxes;

        void add(ShardShape const& shard, ElementBox const& box) {
            BoxInMemory const in_memory(shard, box);
            boxes.push_back({in_memory, in_memory.packed(first + cells)});
            cells += in_memory.size();
        }
    };

    static Flat flat(Buffer const& buffer, Message const& message) {
        return Flat(static_cast<T*>(buffer.data()) + message.first, message.cells);
    }
    void take(BoxInMemory const& target, T const* from, BoxInMemory const& source) {
        if constexpr (Summable<T>) // others are never summands
            if (!fills_) return add_cells(context_->exec(), cells_, target, from, source);
        copy_cells(context_->exec(), cells_, target, from, source);
    }
    void take_own() {
        for (auto const& [owned, ghosts] : own_)
            if (fills_)
                take(ghosts, cells_, owned);
            else
                take(owned, cells_, ghosts);
    }

    Context<Exec> const* context_;
    comm::Communicator const* comm_;
    bool fills_;
    std::vector<Message> leaving_, arriving_;
    std::vector<std::pair<BoxInMemory, BoxInMemory>> own_; ///< cells and ghosts that both are this rank's
    std::size_t own_at_ = 0;                               ///< the message before which they are taken
    T* cells_ = nullptr;
    Buffer packed_, arrived_; // they outlive what is under way
    std::vector<Transfer> sending_, receiving_;
};

/// A step of a halo that a rank does alone.
template <class T, class Exec>
Shard<T, Exec> carry_out_halo_locally(Context<Exec> const& context, PlanStep const& step, Shard<T, Exec> shard) {
    auto const& exec = context.exec();
    if (step.kind == StepKind::clear_halo) {
        auto const zero = context.take(sizeof(T));
        memory::clear(exec, zero.data(), sizeof(T));
        for (std::size_t d = 0; d < shard.rank; ++d) {
            if (step.halo.width[d] == 0) continue;
            for (bool const is_last : {false, true}) {
                ElementBox box;
                for (std::size_t e = 0; e < shard.rank; ++e) box.end[e] = shard.local[e];
                (is_last ? box.begin[d] : box.end[d]) = is_last ? shard.local[d] - shard.ghosts[d] : shard.ghosts[d];
                BoxInMemory const ghosts(shard, box);
                auto source = ghosts.packed(0);
                source.strides = {};
                copy_cells(exec, shard.data, ghosts, static_cast<T const*>(zero.data()), source);
            }
        }
        return shard;
    }
    ShardShape shape = shard;
    reshape_halo(shape, step);
    auto result = Shard<T, Exec>::make(context, shape);
    if (step.kind == StepKind::make_halo) memory::clear(exec, result.data, result.size() * sizeof(T));
    auto const& inside = step.kind == StepKind::make_halo ? static_cast<ShardShape const&>(shard) : shape;
    auto const owned = [&](ShardShape const& in) {
        ElementBox box;
        for (std::size_t d = 0; d < in.rank; ++d) {
            box.begin[d] = (in.local[d] - inside.local[d]) / 2;
            box.end[d] = box.begin[d] + inside.local[d];
        }
        return BoxInMemory(in, box);
    };
    copy_cells(exec, result.data, owned(result), shard.data, owned(shard));
    return result;
}

} // namespace pentad::detail
