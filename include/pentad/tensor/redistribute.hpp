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
#include <pentad/tensor/shard.hpp>
#include <pentad/tensor/tensor.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <optional>
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

template <class L, class Exec, class M>
Shard<typename L::element, Exec> shard_of(Tensor<L, Exec, M> const& tensor) {
    Shard<typename L::element, Exec> shard{tensor.block(), tensor.data(), {}, L::rank};
    for (std::size_t d = 0; d < L::rank; ++d) shard.local[d] = tensor.local()[d];
    return shard;
}

/// Gives a shard that may be written over: at `place`; where that is null, itself when nobody else holds it.
template <class T, class Exec>
Shard<T, Exec> own(Context<Exec> const& context, Shard<T, Exec> shard, T* place = nullptr) {
    if (place == nullptr && shard.writable()) return shard;
    auto copy = shard.in(context, place);
    memory::copy(context.exec(), copy.data, shard.data, shard.size() * sizeof(T));
    return copy;
}

/// A step in which nothing is sent: this rank stands at `index` of `n`. A result that is not the shard itself is at
/// `place`, or, where that is null, in a buffer of its own.
template <class T, class Exec>
Shard<T, Exec> carry_out_locally(Context<Exec> const& context, PlanStep const& step, std::size_t n, std::size_t index,
                                 Shard<T, Exec> shard, T* place = nullptr) {
    auto const result_with = [&](std::size_t d, std::size_t extent) {
        return shard.with(context, d, extent, observe::Memory::activations, place);
    };
    auto const& exec = context.exec();
    std::size_t const d = step.dimension;
    if (step.kind == StepKind::keep_first) {
        if (index == 0) return shard;
        if (place != nullptr || !shard.writable()) shard = shard.in(context, place);
        memory::clear(exec, shard.data, shard.size() * sizeof(T));
        return shard;
    }
    std::size_t const before = shard.product(0, d), after = shard.product(d + 1, shard.rank), extent = shard.local[d];
    if (step.kind == StepKind::slice) {
        auto result = result_with(d, extent / n);
        std::size_t const row = extent / n * after;
        copy_rows(exec, shard.data + index * row, n * row, result.data, row, before, row);
        return result;
    }
    auto result = result_with(d, extent * n); // zero_pad
    std::size_t const row = extent * after;
    memory::clear(exec, result.data, result.size() * sizeof(T));
    copy_rows(exec, shard.data, row, result.data + index * row, n * row, before, row);
    return result;
}

/// An all-to-all or a gather of the ranks of a node, as boxes straight from their shards.
template <class T, class Exec>
Shard<T, Exec> carry_out_in_boxes(Context<Exec> const& context, PlanStep const& step, comm::Communicator const& comm,
                                  Shard<T, Exec> const& shard, T* place) {
    auto const n = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
    bool const cuts = step.kind == StepKind::all_to_all;
    std::size_t const from = cuts ? step.from_dimension : step.dimension;
    comm::Boxes boxes(shard.rank, n);
    Shard<T, Exec> result{{}, nullptr, shard.local, shard.rank};
    result.local[from] *= n;
    ElementBox whole;
    for (std::size_t d = 0; d < shard.rank; ++d) whole.end[d] = result.local[d];
    auto const part = [n](ElementBox box, std::size_t d, std::size_t p) { // of a box that begins at 0 there
        std::size_t const length = box.end[d] / n;
        box.begin[d] = p * length;
        box.end[d] = box.begin[d] + length;
        return box;
    };
    for (std::size_t p = 0; p < n; ++p) {
        boxes.held[p] = part(whole, from, p);
        boxes.given[p] = cuts ? part(part(whole, from, me), step.dimension, p) : part(whole, from, me);
        boxes.taken[p] = cuts ? part(boxes.held[p], step.dimension, me) : boxes.held[p];
    }
    boxes.needed = cuts ? part(whole, step.dimension, me) : whole;
    boxes.longest = boxes.given[me].size(shard.rank);
    if (cuts) result.local[step.dimension] /= n;
    result = result.in(context, place);
    comm::exchange_boxes(context.exec(), comm, cuts ? observe::Operation::all_to_all : observe::Operation::all_gather,
                         boxes, shard.data, result.data);
    return result;
}

/// A step over one communicator. A result that is not the shard itself is at `place`, or, where that is null, in a
/// buffer of its own.
template <class T, class Exec>
Shard<T, Exec> carry_out(Context<Exec> const& context, PlanStep const& step, comm::Communicator const& comm,
                         Shard<T, Exec> shard, T* place = nullptr) {
    auto const& exec = context.exec();
    if (comm.size() == 1) return shard;
    if (step.kind == StepKind::all_reduce) {
        shard = own(context, std::move(shard), place);
        comm::all_reduce(exec, comm, shard.flat(), step.reduction);
        return shard;
    }
    auto const n = static_cast<std::size_t>(comm.size());
    std::size_t const d = step.dimension;
    std::size_t const before = shard.product(0, d), after = shard.product(d + 1, shard.rank), extent = shard.local[d];
    auto const result_with = [&](std::size_t dimension, std::size_t length) {
        return shard.with(context, dimension, length, observe::Memory::activations, place);
    };
    bool const in_boxes = step.kind == StepKind::all_to_all || (step.kind == StepKind::all_gather && before > 1);
    if (in_boxes && comm::can_exchange_boxes<Exec>(comm)) return carry_out_in_boxes(context, step, comm, shard, place);
    if (step.kind == StepKind::all_gather) {
        auto result = result_with(d, extent * n);
        if (before == 1) {
            comm::all_gather(exec, comm, shard.flat(), result.flat());
            return result;
        }
        auto pieces = shard.with(context, d, extent * n);
        comm::all_gather(exec, comm, shard.flat(), pieces.flat());
        swap_leading(exec, pieces.data, result.data, n, before, extent * after);
        return result;
    }
    if (step.kind == StepKind::reduce_scatter) {
        auto result = result_with(d, extent / n);
        if (before > 1) {
            auto pieces = shard.with(context, d, extent);
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
        auto const source = std::exchange(pieces, pieces.with(context, d, extent));
        swap_leading(exec, source.data, pieces.data, before, n, extent / n * after);
    }
    std::size_t const from = step.from_dimension;
    Shard<T, Exec> cut{{}, nullptr, pieces.local, pieces.rank};
    cut.local[d] = extent / n;
    std::size_t const outside = cut.product(0, from);
    auto arrived =
        cut.with(context, from, cut.local[from] * n, observe::Memory::activations, outside == 1 ? place : nullptr);
    comm::all_to_all(exec, comm, pieces.flat(), arrived.flat());
    if (outside == 1) return arrived;
    pieces = {};
    auto result = cut.with(context, from, cut.local[from] * n, observe::Memory::activations, place);
    swap_leading(exec, arrived.data, result.data, n, outside, cut.product(from, cut.rank));
    return result;
}

constexpr bool is_local(StepKind kind) {
    return kind == StepKind::slice || kind == StepKind::keep_first || kind == StepKind::zero_pad ||
           kind == StepKind::relabel;
}

/// A plan on a shard, from one of its steps on. The last step that does anything writes its result to `target`, where
/// there is one and the step does not read it: the result says where it is.
template <class T, class Exec>
Shard<T, Exec> carry_out(Context<Exec> const& context, PlanValue const& plan, Shard<T, Exec> shard,
                         std::size_t first = 0, View<T, 1, Exec> const& target = {}) {
    auto& communicators = context.communicators();
    std::size_t last = plan.count; // step
    for (std::size_t i = first; i < plan.count; ++i) {
        std::size_t n = 1;
        for (auto const axis : plan.steps[i].axes) n *= static_cast<std::size_t>(communicators.extent(axis));
        if (plan.steps[i].kind != StepKind::relabel && n > 1) last = i;
    }
    for (std::size_t i = first; i < plan.count; ++i) {
        auto const& step = plan.steps[i];
        if (step.kind == StepKind::relabel) continue;
        T* const place = i == last && !comm::detail::overlap(shard.flat(), target) ? target.data() : nullptr;
        if (step.kind == StepKind::exchange) {
            shard = exchange(context, step, plan.exchange, communicators.along(step.axes), std::move(shard), place);
        } else if (is_local(step.kind)) {
            std::size_t n = 1;
            for (auto const axis : step.axes) n *= static_cast<std::size_t>(communicators.extent(axis));
            if (n > 1)
                shard =
                    carry_out_locally(context, step, n, communicators.shard_index(step.axes), std::move(shard), place);
        } else {
            shard = carry_out(context, step, communicators.along(step.axes), std::move(shard), place);
        }
    }
    return shard;
}

/// Whether a plan is one gather of the outermost dimension.
constexpr bool is_one_outer_gather(PlanValue const& plan) {
    return plan.count == 1 && plan.steps[0].kind == StepKind::all_gather && plan.steps[0].dimension == 0;
}

/// Carries out a plan on a shard, into memory that exists: one gather of the outermost dimension in place, where the
/// shard may be this rank's part of the target.
template <class T, class Exec>
void carry_out_into(Context<Exec> const& context, PlanValue const& plan, Shard<T, Exec> shard,
                    View<T, 1, Exec> const& target) {
    auto const& exec = context.exec();
    if (is_one_outer_gather(plan)) {
        comm::all_gather(exec, context.communicators().along(plan.steps[0].axes), shard.flat(), target);
        return;
    }
    auto const result = carry_out(context, plan, std::move(shard), 0, target);
    if (result.data != target.data()) memory::copy(exec, target.data(), result.data, result.size() * sizeof(T));
}

/// The same, started: one gather of the outermost dimension overlaps with computation until `wait`, which carries out
/// every other plan.
template <class T, class Exec>
class StartedPlanInto {
  public:
    StartedPlanInto(Context<Exec> const& context, PlanValue const& plan, Shard<T, Exec> shard,
                    View<T, 1, Exec> const& target)
        : context_(&context), plan_(plan), shard_(std::move(shard)), target_(target) {
        if (is_one_outer_gather(plan_))
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

/// A plan under way on a shard: where it begins with a reduction, of the whole or to shards of the outermost dimension,
/// that goes on beside what is computed meanwhile. Everything else is done in `wait`.
template <class T, class Exec>
class StartedPlan {
  public:
    /// The shard is written over where it is its buffer's only handle. @param kind of the memory of scattered sums
    StartedPlan(Context<Exec> const& context, PlanValue const& plan, Shard<T, Exec> shard,
                observe::Memory kind = observe::Memory::activations)
        : context_(&context), plan_(plan), shard_(std::move(shard)) {
        if (plan_.count == 0) return;
        auto const& step = plan_.steps[0];
        bool const scatters = step.kind == StepKind::reduce_scatter && step.dimension == 0;
        if (step.kind != StepKind::all_reduce && !scatters) return;
        auto const& exec = context_->exec();
        auto const& comm = context_->communicators().along(step.axes);
        if (comm.size() == 1) return;
        if (scatters) {
            result_ = shard_.with(*context_, 0, shard_.local[0] / static_cast<std::size_t>(comm.size()), kind);
            scatter_.emplace(comm::start_reduce_scatter(exec, comm, shard_.flat(), result_.flat()));
        } else {
            shard_ = own(*context_, std::move(shard_));
            reduction_.emplace(comm::start_all_reduce(exec, comm, shard_.flat(), step.reduction));
        }
    }
    StartedPlan(StartedPlan const&) = delete;
    StartedPlan& operator=(StartedPlan const&) = delete;

    /// Blocks until the result is there. To be called once.
    [[nodiscard]] Shard<T, Exec> wait() {
        std::size_t done = 0;
        if (reduction_) {
            reduction_->wait();
            done = 1;
        }
        if (scatter_) {
            scatter_->wait();
            shard_ = std::move(result_);
            done = 1;
        }
        return carry_out(*context_, plan_, std::move(shard_), done);
    }

  private:
    using Buffer = comm::detail::Staged<View<T, 1, Exec>>;

    Context<Exec> const* context_;
    PlanValue plan_;
    Shard<T, Exec> shard_, result_{}; // they outlive what is under way
    std::optional<comm::Request<Buffer>> reduction_;
    std::optional<comm::Request<Buffer, Buffer>> scatter_;
};

/// Makes the communicators of a plan. Collective as carrying it out is.
template <class Exec>
void prepare(Context<Exec> const& context, PlanValue const& plan) {
    for (auto const& step : plan)
        if (!is_local(step.kind)) (void)context.communicators().along(step.axes);
}

} // namespace detail

/// The same value in layout To. Give the tensor away with std::move to have its buffer used again where that is
/// possible. Collective over the groups of the plan's axes. Blocks until the result is there.
/// @tparam To a layout of the same dimensions and elements, with a plan from L (else the program does not compile).
template <class To, class L, class Exec, class M>
[[nodiscard]] Tensor<To, Exec, M> redistribute(Tensor<L, Exec, M> tensor) {
    require_redistributable<L, To>();
    if constexpr (Redistributable<L, To>) {
        auto const& context = tensor.context();
        auto const extents = tensor.extents();
        auto shard = detail::shard_of(tensor);
        tensor = {};
        shard = detail::carry_out(context, Plan<L, To>::value, std::move(shard));
        return Tensor<To, Exec, M>(context, extents, std::move(shard.block), shard.data);
    }
}

/// The same, into memory that exists: where it is one gather of the outermost dimension it is received in place, and
/// `tensor` may be this rank's part of `target`.
template <class L, class To, class Exec, class M>
void redistribute_into(Tensor<L, Exec, M> tensor, Tensor<To, Exec, M> const& target) {
    require_redistributable<L, To>();
    auto const& context = tensor.context();
    auto shard = detail::shard_of(tensor);
    tensor = {};
    detail::carry_out_into(context, Plan<L, To>::value, std::move(shard), target.flat());
}

/// A redistribution under way: a reduction that it begins with goes on beside what is computed meanwhile.
template <class To, class L, class Exec, class M = AnyMesh>
class [[nodiscard]] Redistribution {
  public:
    /// Collective as `redistribute` is. The buffer is written over where this is its only handle.
    explicit Redistribution(Tensor<L, Exec, M> tensor) : context_(&tensor.context()), extents_(tensor.extents()) {
        require_redistributable<L, To>();
        auto shard = detail::shard_of(tensor);
        tensor = {};
        started_.emplace(*context_, Plan<L, To>::value, std::move(shard));
    }

    /// Blocks until the result is there. To be called once.
    [[nodiscard]] Tensor<To, Exec, M> wait() {
        auto shard = started_->wait();
        return Tensor<To, Exec, M>(*context_, extents_, std::move(shard.block), shard.data);
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
