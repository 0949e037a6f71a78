// Room: zero. Buckets: the memory of parameters that are synchronised alike, flat and in one piece, with their
// gradients and optimizer state. What a bucket sends is the plan from its gradient's layout to its state's layout, and
// back.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/zero/optimizer.hpp>
#include <pentad/zero/stage.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace pentad::zero {

/// The sum of squares of all gradients, as the ranks hold it: a summand each.
using SquareSum = Layout<f64, Dims<>, Partial<dp, pp, ep, cp, tp>>;

namespace detail {
template <class Set>
struct ScalarPartial;
template <class... Axes>
struct ScalarPartial<AxisSet<Axes...>> {
    using type = Layout<f64, Dims<>, Partial<Axes...>>;
};

/// How the squares of a gradient are counted once: they are summands over the axes that shard it and over the stages of
/// the pipeline; over every other axis the ranks hold the same sum, of which the first keeps its own. An embedding tied
/// between the ends of the pipeline is held by both, and by no stage between them.
template <class Sync, class Sharded>
struct CountOnce {
    using Held = std::conditional_t<pentad::detail::in_set<ends<pp>, Sync>, AxisSet<>, AxisSet<pp>>;
    using Pipeline = std::conditional_t<pentad::detail::in_set<ends<pp>, Sync>, ends<pp>, pp>;
    using Summed = union_t<Sharded, Held>;
    using Own = typename ScalarPartial<Summed>::type;
    using Summand = typename ScalarPartial<union_t<Summed, minus_t<AxisSet<dp, Pipeline, ep, cp, tp>, Summed>>>::type;
};
} // namespace detail

/// What the store does with a bucket, whatever its axes.
template <class T, class Exec>
class BucketBase : public GradientOwner {
  public:
    using A = accumulator_t<T>;
    virtual ~BucketBase() = default;

    /// Adds room for a parameter of n elements and says where it begins.
    std::size_t reserve(std::size_t n) {
        ++parameters_;
        return std::exchange(size_, size_ + n);
    }
    /// The reduction of the bucket begins with its last gradient.
    void gradient_is_complete() final {
        if (++complete_ < parameters_) return;
        complete_ = 0;
        start_reduction();
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    virtual void allocate() = 0;
    [[nodiscard]] virtual T* values() const = 0;
    [[nodiscard]] virtual A* gradients() const = 0;
    /// Weights and masters become what lies in the gradients' memory.
    virtual void start_from_gradients() = 0;
    /// The weights in accumulators, gathered into the gradients' memory.
    virtual void export_to_gradients() = 0;
    virtual void clear_gradients() = 0;
    /// Begins to reduce the gradients, if that has not begun.
    virtual void start_reduction() = 0;
    /// Waits until they are reduced.
    virtual void reduce() = 0;
    /// Adds this rank's summand of the squared norm of the reduced gradient; each element counts once.
    virtual void add_squares(Tensor<SquareSum, Exec> const& total) = 0;
    virtual void update(std::int64_t step, kernels::AdamWSettings settings) = 0;

  private:
    std::size_t size_ = 0, parameters_ = 0, complete_ = 0;
};

/// @tparam Sync the axes over which the gradients are partial
/// @tparam Sharded the axes that shard the parameters themselves
template <class T, class Exec, class Zero, class Sync, class Sharded>
class Bucket final : public BucketBase<T, Exec> {
  public:
    using A = accumulator_t<T>;
    using Gradient = gradient_t<A, Sync>;
    using State = typename Zero::template state<A, Sync>;
    using Shard = with_element_t<State, T>;

    Bucket(Context<Exec> const& context, bool decays) : context_(&context), decays_(decays) {
        prepare_redistribution<Gradient, State>(context);
        prepare_redistribution<Shard, Whole<T>>(context);
    }

    void allocate() override {
        auto const& communicators = context_->communicators();
        std::size_t shards = 1;
        for (auto const axis : State::value.dimensions[0].axes)
            shards *= static_cast<std::size_t>(communicators.extent(axis));
        std::size_t const extent = (this->size() + shards - 1) / shards * shards;
        values_ = Tensor<Whole<T>, Exec>(*context_, {extent}, observe::Memory::parameters);
        gradient_ = Tensor<Gradient, Exec>(*context_, {extent}, observe::Memory::gradients);
        gradient_.clear();
        optimizer_ = AdamW<State, T, Exec>(*context_, extent);
        std::size_t const length = extent / shards;
        shard_ =
            Tensor<Shard, Exec>(*context_, {extent}, values_.block(),
                                values_.data() + length * communicators.shard_index(State::value.dimensions[0].axes));
    }
    [[nodiscard]] T* values() const override { return values_.data(); }
    [[nodiscard]] A* gradients() const override { return gradient_.data(); }

    void start_from_gradients() override {
        kernels::convert<A, T>(context_->exec(), gradient_.flat(), values_.flat());
        auto const master = optimizer_.master(shard_);
        if constexpr (AdamW<State, T, Exec>::has_master)
            comm::copy(context_->exec(), master.data(), part_of(gradient_.data()).data(), master.size() * sizeof(A));
        clear_gradients();
    }
    void export_to_gradients() override {
        auto const target = gradient_.template as<Whole<A>>();
        auto const master = optimizer_.master(shard_);
        comm::copy(context_->exec(), part_of(gradient_.data()).data(), master.data(), master.size() * sizeof(A));
        redistribute_into(Tensor<State, Exec>(*context_, master.extents(), {}, part_of(gradient_.data()).data()),
                          target);
    }
    void clear_gradients() override { gradient_.clear(); }

    void start_reduction() override {
        if (reduction_) return;
        // An all-reduce works in place, which wants the only handle of the memory; a reduce-scatter leaves it behind.
        if constexpr (scatters)
            reduction_.emplace(gradient_);
        else
            reduction_.emplace(std::move(gradient_));
    }
    void reduce() override {
        reduced_ = reduction_->wait();
        reduction_.reset();
        if constexpr (!scatters) gradient_ = reduced_.template as<Gradient>();
    }
    void add_squares(Tensor<SquareSum, Exec> const& total) override {
        using Count = detail::CountOnce<Sync, union_t<sharded_axes_t<State>, Sharded>>;
        Tensor<typename Count::Own, Exec> own(*context_, {});
        kernels::sum_of_squares<A>(context_->exec(), reduced_.flat(), own.view());
        auto const once = redistribute<typename Count::Summand>(std::move(own));
        kernels::add<f64>(context_->exec(), once.flat(), total.flat());
    }
    void update(std::int64_t step, kernels::AdamWSettings settings) override {
        if (!decays_) settings.weight_decay = 0;
        optimizer_.update(shard_, reduced_, step, settings);
        reduced_ = {};
        redistribute_into(shard_, values_);
    }

  private:
    static constexpr bool scatters = !State::value.dimensions[0].axes.empty();

    /// This rank's part of a buffer that lies as the values do.
    View<A, 1, Exec> part_of(A* whole) const {
        return View<A, 1, Exec>(whole + (shard_.data() - values_.data()), shard_.size());
    }

    Context<Exec> const* context_;
    bool decays_;
    Tensor<Whole<T>, Exec> values_;
    Tensor<Shard, Exec> shard_; ///< this rank's part of values_
    Tensor<Gradient, Exec> gradient_;
    std::optional<Redistribution<State, Gradient, Exec>> reduction_; ///< while it is under way
    Tensor<State, Exec> reduced_;
    AdamW<State, T, Exec> optimizer_;
};

} // namespace pentad::zero
