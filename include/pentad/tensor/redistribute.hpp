// redistribute<To>(tensor): carries out the plan between two layouts. This is the only place where a
// layer communicates; the backward of a redistribution is the redistribution between the duals. Redistribution<To>
// starts one.
#pragma once

#include <pentad/comm/box_exchange.hpp>
#include <pentad/comm/boxes.hpp>
#include <pentad/comm/collectives.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/tensor/exchange.hpp>
#include <pentad/tensor/halo.hpp>
#include <pentad/tensor/shard.hpp>
#include <pentad/tensor/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

namespace pentad {

namespace detail {

/// out[j, i, :] = in[i, j, :] for in of extents [p, q, r].
template <class Exec, class T>
void swap_leading(Exec const& exec, T const* in, T* out, std::size_t p, std::size_t q, std::size_t r) {
    std::size_t const row = r * sizeof(T);
    memory::copy("swap_leading", exec, memory::Runs(row).add(q, p * row, row).add(p, row, q * row), out, in);
}

/// For rows i < p: out[i, :] = in[i, first : first + r] where the rows of `in` and `out` have the given strides.
template <class Exec, class T>
void copy_rows(Exec const& exec, T const* in, std::size_t in_stride, T* out, std::size_t out_stride, std::size_t p,
               std::size_t r) {
    memory::copy("copy_rows", exec, memory::Runs(r * sizeof(T)).add(p, out_stride * sizeof(T), in_stride * sizeof(T)),
                 out, in);
}

/// Whether a shard on the way from one layout to the other has to know which block it is.
template <class L, class To>
inline constexpr bool has_blocks =
    L::value.is_uneven() || To::value.is_uneven() || L::value.has_halo() || To::value.has_halo();

/// @tparam To where it is going, if to another layout of which this matters
template <class To = void, class L, class Exec, class M>
Shard<typename L::element, Exec> shard_of(Tensor<L, Exec, M> const& tensor) {
    ShardShape shape;
    if constexpr (has_blocks<L, std::conditional_t<std::is_void_v<To>, L, To>>) {
        auto const& communicators = tensor.context().communicators();
        shape = shard_shape(L::value, tensor.extents(), communicators.mesh(), communicators.world().rank());
    } else {
        shape.rank = L::rank;
        std::copy(tensor.local().begin(), tensor.local().end(), shape.local.begin());
    }
    return {shape, tensor.block(), tensor.array_data()};
}

/// Gives a shard that may be written over: at `place`; where that is null, itself when nobody else holds it.
template <class T, class Exec>
Shard<T, Exec> own(Context<Exec> const& context, Shard<T, Exec> shard, T* place = nullptr) {
    if (place == nullptr && shard.writable()) return shard;
    auto copy = Shard<T, Exec>::make(context, shard, place);
    memory::copy(context.exec(), copy.data, shard.data, shard.size() * sizeof(T));
    return copy;
}

/// A step in which nothing is sent: this rank stands at `index` of `n`. A result that is not the shard itself is at
/// `place`, or, where that is null, in a buffer of its own.
template <class T, class Exec>
Shard<T, Exec> carry_out_locally(Context<Exec> const& context, PlanStep const& step, std::size_t n, std::size_t index,
                                 Shard<T, Exec> shard, T* place = nullptr) {
    auto const& exec = context.exec();
    std::size_t const d = step.dimension;
    if (step.kind == StepKind::keep_first) {
        if (index == 0) return shard;
        if (place != nullptr || !shard.writable()) shard = Shard<T, Exec>::make(context, shard, place);
        memory::clear(exec, shard.data, shard.size() * sizeof(T));
        return shard;
    }
    ShardShape shape = shard;
    reshape(shape, step, n, index);
    auto result = Shard<T, Exec>::make(context, shape, place);
    std::size_t const before = shard.product(0, d), after = shard.product(d + 1, shard.rank);
    std::size_t const rows = shard.local[d] * after, result_rows = result.local[d] * after;
    if (step.kind == StepKind::slice) {
        copy_rows(exec, shard.data + shape.place(d, n, index) * after, rows, result.data, result_rows, before,
                  result_rows);
    } else { // zero_pad
        memory::clear(exec, result.data, result.size() * sizeof(T));
        copy_rows(exec, shard.data, rows, result.data + shard.place(d, n, index) * after, result_rows, before, rows);
    }
    return result;
}

/// A step over one communicator of several ranks. A result that is not the shard itself is at `place`, or, where that
/// is null, in a buffer of its own.
template <class T, class Exec>
Shard<T, Exec> carry_out(Context<Exec> const& context, PlanStep const& step, comm::Communicator const& comm,
                         Shard<T, Exec> shard, T* place = nullptr) {
    auto const& exec = context.exec();
    if (step.kind == StepKind::all_reduce) {
        shard = own(context, std::move(shard), place);
        comm::all_reduce(exec, comm, shard.flat(), step.reduction);
        return shard;
    }
    auto const n = static_cast<std::size_t>(comm.size());
    std::size_t const d = step.dimension;
    std::size_t const before = shard.product(0, d), after = shard.product(d + 1, shard.rank), extent = shard.local[d];
    bool const packs = step.kind == StepKind::all_to_all || (step.kind == StepKind::all_gather && before > 1);
    if (is_uneven(step, shard, n) || (packs && comm::can_exchange_boxes<Exec>(comm)))
        return Exchange<T, Exec>(context, step, exchange_of(step), comm, std::move(shard)).carry_out(place);
    ShardShape shape = shard; // of the result
    reshape(shape, step, n, static_cast<std::size_t>(comm.rank()));
    auto const make = [&](ShardShape const& of, T* at) { return Shard<T, Exec>::make(context, of, at); };
    if (step.kind == StepKind::all_gather) {
        auto result = make(shape, place);
        if (before == 1) {
            comm::all_gather(exec, comm, shard.flat(), result.flat());
            return result;
        }
        auto pieces = make(shape, nullptr);
        comm::all_gather(exec, comm, shard.flat(), pieces.flat());
        swap_leading(exec, pieces.data, result.data, n, before, extent * after);
        return result;
    }
    if (step.kind == StepKind::reduce_scatter) {
        auto result = make(shape, place);
        if (before > 1) {
            auto pieces = make(shard, nullptr);
            swap_leading(exec, shard.data, pieces.data, before, n, extent / n * after);
            shard = std::move(pieces);
        }
        comm::reduce_scatter(exec, comm, shard.flat(), result.flat());
        return result;
    }
    // all_to_all: cut along d, arrive in rank order, put together along the dimension that was sharded. Each buffer is
    // let go of as soon as it has been read, and a copy that would change nothing is left out.
    auto pieces = std::move(shard);
    if (before > 1) {
        auto const source = std::exchange(pieces, make(pieces, nullptr));
        swap_leading(exec, source.data, pieces.data, before, n, extent / n * after);
    }
    std::size_t const from = step.from_dimension, outside = shape.product(0, from);
    auto arrived = make(shape, outside == 1 ? place : nullptr);
    comm::all_to_all(exec, comm, pieces.flat(), arrived.flat());
    if (outside == 1) return arrived;
    pieces = {};
    auto result = make(shape, place);
    swap_leading(exec, arrived.data, result.data, n, outside, shape.product(from, shape.rank) / n);
    return result;
}

/// Whether a step changes the memory of a rank of this mesh.
template <class Exec>
bool does_anything(Context<Exec> const& context, PlanStep const& step) {
    return is_halo(step.kind) || (step.kind != StepKind::relabel && context.communicators().extent(step.axes) > 1);
}

/// A step of a plan. A result that is not the shard itself is at `place`, or, where that is null, in a buffer of its
/// own.
template <class T, class Exec>
Shard<T, Exec> carry_out(Context<Exec> const& context, PlanValue const& plan, std::size_t i, Shard<T, Exec> shard,
                         T* place = nullptr) {
    auto& communicators = context.communicators();
    auto const& step = plan.steps[i];
    if (!does_anything(context, step)) return shard;
    if (step.kind == StepKind::fill_halo || step.kind == StepKind::add_halo) {
        shard = own(context, std::move(shard), place);
        HaloExchange<T, Exec> exchange(context, step, shard, communicators.along(step.axes));
        exchange.start(shard.data);
        exchange.finish();
        return shard;
    }
    if (is_halo(step.kind)) {
        if (step.kind == StepKind::clear_halo) shard = own(context, std::move(shard), place);
        return carry_out_halo_locally(context, step, std::move(shard), place);
    }
    if (is_local(step.kind)) {
        return carry_out_locally(context, step, communicators.extent(step.axes), communicators.shard_index(step.axes),
                                 std::move(shard), place);
    }
    auto const& comm = communicators.along(step.axes);
    if (step.kind == StepKind::exchange)
        return Exchange<T, Exec>(context, step, plan.exchange, comm, std::move(shard)).carry_out(place);
    return carry_out(context, step, comm, std::move(shard), place);
}

/// A plan on a shard, from one of its steps on. The last step that does anything writes its result to `target`, where
/// there is one and the step does not read it: the result says where it is.
template <class T, class Exec>
Shard<T, Exec> carry_out(Context<Exec> const& context, PlanValue const& plan, Shard<T, Exec> shard,
                         std::size_t first = 0, View<T, 1, Exec> const& target = {}) {
    std::size_t last = plan.count; // step that does anything, where it matters which it is
    for (std::size_t i = first; target.data() != nullptr && i < plan.count; ++i)
        if (does_anything(context, plan.steps[i])) last = i;
    for (std::size_t i = first; i < plan.count; ++i) {
        bool const is_last =
            i == last && !comm::detail::overlap(comm::detail::extent_of(shard.flat()), comm::detail::extent_of(target));
        shard = carry_out(context, plan, i, std::move(shard), is_last ? target.data() : nullptr);
    }
    return shard;
}

/// Whether a plan is one gather of equal blocks of the outermost dimension.
template <class Exec>
bool is_one_outer_gather(Context<Exec> const& context, PlanValue const& plan, ShardShape const& shape) {
    auto const& step = plan.steps[0];
    return plan.count == 1 && step.kind == StepKind::all_gather && step.dimension == 0 &&
           !is_uneven(step, shape, context.communicators().extent(step.axes));
}

/// Carries out a plan on a shard, into memory that exists: one gather of the outermost dimension in place, where the
/// shard may be this rank's part of the target.
template <class T, class Exec>
void carry_out_into(Context<Exec> const& context, PlanValue const& plan, Shard<T, Exec> shard,
                    View<T, 1, Exec> const& target) {
    auto const& exec = context.exec();
    if (is_one_outer_gather(context, plan, shard)) {
        comm::all_gather(exec, context.communicators().along(plan.steps[0].axes), shard.flat(), target);
        return;
    }
    auto const result = carry_out(context, plan, std::move(shard), 0, target);
    if (result.data != target.data()) memory::copy(exec, target.data(), result.data, result.size() * sizeof(T));
}

/// A redistribution into memory that exists, started: one gather of the outermost dimension overlaps with computation
/// until `wait`, which carries out every other plan.
template <class T, class Exec>
class StartedPlanInto {
  public:
    StartedPlanInto(Context<Exec> const& context, PlanValue const& plan, Shard<T, Exec> shard,
                    View<T, 1, Exec> const& target)
        : context_(&context), plan_(plan), shard_(std::move(shard)), target_(target) {
        if (is_one_outer_gather(context, plan_, shard_))
            gather_.emplace(comm::start_all_gather(context.exec(), context.communicators().along(plan_.steps[0].axes),
                                                   shard_.flat(), target_));
    }
    StartedPlanInto(StartedPlanInto const&) = delete;
    StartedPlanInto& operator=(StartedPlanInto const&) = delete;

    /// Blocks until the target is complete. To be called once.
    void wait() {
        if (gather_)
            gather_->wait();
        else
            carry_out_into(*context_, plan_, std::move(shard_), target_);
    }

  private:
    using Flat = View<T, 1, Exec>;
    using Gather =
        decltype(comm::start_all_gather(std::declval<Exec const&>(), std::declval<comm::Communicator const&>(),
                                        std::declval<Flat const&>(), std::declval<Flat const&>()));

    Context<Exec> const* context_;
    PlanValue plan_;
    Shard<T, Exec> shard_; // its buffer must outlive the gather
    Flat target_;
    std::optional<Gather> gather_;
};

/// A plan under way on a shard: its first step that sends goes on beside what is computed meanwhile. Everything after
/// it is done in `wait`.
template <class T, class Exec>
class StartedPlan {
  public:
    /// The shard is written over where it is its buffer's only handle. @param kind of the memory of scattered sums
    StartedPlan(Context<Exec> const& context, PlanValue const& plan, Shard<T, Exec> shard,
                observe::Memory kind = observe::Memory::activations)
        : context_(&context), plan_(plan), shard_(std::move(shard)) {
        for (; done_ < plan_.count && is_local(plan_.steps[done_].kind); ++done_)
            shard_ = carry_out(context, plan_, done_, std::move(shard_));
        // The step that is started depends on the plan alone: ranks start collectives of a group in one order.
        if (done_ < plan_.count && does_anything(context, plan_.steps[done_])) start(plan_.steps[done_++], kind);
    }
    StartedPlan(StartedPlan const&) = delete;
    StartedPlan& operator=(StartedPlan const&) = delete;

    /// The shard that a step on a halo works on in place.
    [[nodiscard]] Shard<T, Exec> const& shard() const { return shard_; }
    /// Blocks until the result is there, at `target` where there is one and the result is not the shard itself. To be
    /// called once.
    [[nodiscard]] Shard<T, Exec> wait(View<T, 1, Exec> const& target = {}) {
        bool const is_last = done_ == plan_.count;
        if (reduction_) reduction_->wait();
        if (halo_) halo_->finish();
        if (exchange_) shard_ = exchange_->finish(is_last ? target.data() : nullptr);
        if (transfer_) {
            transfer_->wait();
            shard_ = std::move(result_);
        }
        return carry_out(*context_, plan_, std::move(shard_), done_, target);
    }

  private:
    using Buffer = comm::detail::Staged<View<T, 1, Exec>>;

    void start(PlanStep const& step, observe::Memory kind) {
        auto const& exec = context_->exec();
        auto const& comm = context_->communicators().along(step.axes);
        auto const n = static_cast<std::size_t>(comm.size());
        if (is_halo(step.kind)) {
            shard_ = own(*context_, std::move(shard_));
            halo_.emplace(*context_, step, shard_, comm).start(shard_.data);
        } else if (step.kind == StepKind::all_reduce) {
            shard_ = own(*context_, std::move(shard_));
            reduction_.emplace(comm::start_all_reduce(exec, comm, shard_.flat(), step.reduction));
        } else if (is_of_outer_blocks(step) && !is_uneven(step, shard_, n)) {
            ShardShape shape = shard_;
            reshape(shape, step, n, static_cast<std::size_t>(comm.rank()));
            result_ = Shard<T, Exec>::make(*context_, shape, nullptr, kind);
            transfer_.emplace(step.kind == StepKind::all_gather
                                  ? comm::start_all_gather(exec, comm, shard_.flat(), result_.flat())
                                  : comm::start_reduce_scatter(exec, comm, shard_.flat(), result_.flat()));
        } else {
            auto const value = step.kind == StepKind::exchange ? plan_.exchange : exchange_of(step);
            exchange_.emplace(*context_, step, value, comm, std::move(shard_)).start();
        }
    }
    /// Whether a step gathers or scatters rows without packing them.
    static bool is_of_outer_blocks(PlanStep const& step) {
        return step.dimension == 0 && (step.kind == StepKind::all_gather || step.kind == StepKind::reduce_scatter);
    }

    Context<Exec> const* context_;
    PlanValue plan_;
    std::size_t done_ = 0;              ///< steps, with the one under way
    Shard<T, Exec> shard_{}, result_{}; // they outlive what is under way
    std::optional<HaloExchange<T, Exec>> halo_;
    std::optional<Exchange<T, Exec>> exchange_;
    std::optional<comm::Request<Buffer>> reduction_;
    std::optional<comm::Request<Buffer, Buffer>> transfer_;
};

/// Makes the communicators of a plan. Collective as carrying it out is.
template <class Exec>
void prepare(Context<Exec> const& context, PlanValue const& plan) {
    for (auto const& step : plan)
        if (!is_local(step.kind)) (void)context.communicators().along(step.axes);
}

} // namespace detail

/// The tensor's value in layout To. Give the tensor away with std::move to have its buffer used again where that is
/// possible. Collective over the groups of the plan's axes. Blocks until the result is there.
/// @tparam To a layout of the same dimensions and elements, with a plan from L (else the program does not compile).
template <class To, class L, class Exec, class M>
[[nodiscard]] Tensor<To, Exec, M> redistribute(Tensor<L, Exec, M> tensor) {
    require_redistributable<L, To>();
    if constexpr (Redistributable<L, To>) {
        auto const& context = tensor.context();
        auto const extents = tensor.extents();
        auto shard = detail::shard_of<To>(tensor);
        tensor = {};
        shard = detail::carry_out(context, Plan<L, To>::value, std::move(shard));
        return Tensor<To, Exec, M>::unchecked(context, extents, std::move(shard.block), shard.data);
    }
}

/// redistribute() into memory that exists: where it is one gather of the outermost dimension it is received in place,
/// and `tensor` may be this rank's part of `target`.
template <class L, class To, class Exec, class M>
void redistribute_into(Tensor<L, Exec, M> tensor, Tensor<To, Exec, M> const& target) {
    require_redistributable<L, To>();
    auto const& context = tensor.context();
    (void)target.context(); // where it was moved from, all ranks throw, also those without elements
    auto shard = detail::shard_of<To>(tensor);
    tensor = {};
    detail::carry_out_into(context, Plan<L, To>::value, std::move(shard), target.array_flat());
}

/// A redistribution under way: what its first step sends goes on beside what is computed meanwhile.
template <class To, class L, class Exec, class M = AnyMesh>
class [[nodiscard]] Redistribution {
  public:
    /// Collective as `redistribute` is. The buffer is written over where this is its only handle.
    explicit Redistribution(Tensor<L, Exec, M> tensor) : context_(&tensor.context()), extents_(tensor.extents()) {
        require_redistributable<L, To>();
        auto shard = detail::shard_of<To>(tensor);
        tensor = {};
        started_.emplace(*context_, Plan<L, To>::value, std::move(shard));
    }

    /// The memory that ghost cells are filled in, whose owned cells may be read meanwhile.
    [[nodiscard]] Tensor<To, Exec, M> in_place() const {
        static_assert(std::is_same_v<stale_t<L>, stale_t<To>>, "pentad: only halos are filled in place");
        auto const& shard = started_->shard();
        return Tensor<To, Exec, M>::unchecked(*context_, extents_, shard.block, shard.data);
    }
    /// Blocks until the result is there. To be called once.
    [[nodiscard]] Tensor<To, Exec, M> wait() {
        auto shard = started_->wait();
        return Tensor<To, Exec, M>::unchecked(*context_, extents_, std::move(shard.block), shard.data);
    }
    /// wait() into memory that exists and that the tensor does not lie in.
    void wait_into(Tensor<To, Exec, M> const& target) {
        (void)target.context();
        auto const shard = started_->wait(target.array_flat());
        if (shard.data != target.array_data())
            memory::copy(context_->exec(), target.array_data(), shard.data, shard.size() * sizeof(typename L::element));
    }

  private:
    Context<Exec> const* context_;
    typename Tensor<L, Exec, M>::extents_type extents_;
    std::optional<detail::StartedPlan<typename L::element, Exec>> started_;
};

/// Makes the communicators of a redistribution from L to To, so that its first use does no more than later ones do.
/// Collective as that is.
template <class L, class To, class Exec>
void prepare_redistribution(Context<Exec> const& context) {
    require_redistributable<L, To>();
    detail::prepare(context, Plan<L, To>::value);
}

} // namespace pentad

#if PENTAD_COMPILED_TENSOR
#include <pentad/tensor/impl/redistribute.hpp>
#endif
