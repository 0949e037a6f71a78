// Buckets: the memory of parameters that are synchronised alike, flat and in one piece, with their
// gradients and optimizer state. What a bucket sends is the plan from its gradient's layout to its state's layout, and
// back.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/zero/optimizer.hpp>
#include <pentad/zero/stage.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

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
/// between the ends of the pipeline is held by both, and by no stage between them; the ranks of inner(pp), where the
/// gradient is partial over it, hold the same stages.
template <class Sync, class Sharded>
struct CountOnce {
    static constexpr bool is_tied = pentad::detail::in_set<ends<pp>, Sync>;
    using Held = std::conditional_t<is_tied, AxisSet<>, minus_t<AxisSet<pp>, Sync>>;
    using All = std::conditional_t<is_tied, AxisSet<dp, ends<pp>, inner<pp>, ep, cp, tp>, AxisSet<dp, pp, ep, cp, tp>>;
    using Summed = union_t<Sharded, Held>;
    using Own = typename ScalarPartial<Summed>::type;
    using Summand = typename ScalarPartial<union_t<Summed, minus_t<All, Summed>>>::type;
};
} // namespace detail

/// What the store does with a bucket, whatever its axes.
template <class T, class Exec>
class BucketBase : public GradientOwner {
  public:
    using A = accumulator_t<T>;
    virtual ~BucketBase() = default;

    /// Adds room for a parameter of n elements, which `users` layers use, and says where it begins.
    std::size_t reserve(std::size_t n, std::size_t users) {
        users_ += users;
        return std::exchange(size_, size_ + n);
    }
    /// The reduction of the bucket begins when the last user of its last gradient has added to it.
    void gradient_is_complete() final {
        if (++complete_ < users_) return;
        complete_ = 0;
        start_reduction();
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// @param versions of the weights that are kept, the newest included
    virtual void allocate(std::size_t versions) = 0;
    /// The weights as they were after a number of updates: one of the versions that are kept.
    [[nodiscard]] virtual T* values(std::size_t updates) const = 0;
    [[nodiscard]] std::size_t updates() const { return updates_; }
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
    /// Forgets the reduced gradients.
    virtual void skip_update() = 0;
    /// Updates this rank's shard of the weights.
    virtual void update(std::int64_t step, kernels::AdamWSettings settings) = 0;
    /// Gathers the updated weights, if that has not been done.
    virtual void gather() = 0;

  protected:
    std::size_t updates_ = 0; ///< of the weights

  private:
    std::size_t size_ = 0, users_ = 0, complete_ = 0;
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

    void allocate(std::size_t versions) override {
        auto const& communicators = context_->communicators();
        std::size_t shards = 1;
        for (auto const axis : State::value.dimensions[0].axes)
            shards *= static_cast<std::size_t>(communicators.extent(axis));
        std::size_t const extent = (this->size() + shards - 1) / shards * shards;
        for (std::size_t i = 0; i < versions; ++i)
            versions_.emplace_back(*context_, std::array{extent}, observe::Memory::parameters);
        gradient_ = Tensor<Gradient, Exec>(*context_, {extent}, observe::Memory::gradients);
        gradient_.clear();
        optimizer_ = AdamW<State, T, Exec>(*context_, extent);
        first_ = extent / shards * communicators.shard_index(State::value.dimensions[0].axes);
    }
    [[nodiscard]] T* values(std::size_t updates) const override { return versions_[updates % versions_.size()].data(); }
    [[nodiscard]] A* gradients() const override { return gradient_.data(); }

    void start_from_gradients() override {
        kernels::convert<A, T>(context_->exec(), gradient_.flat(), newest().flat());
        auto const master = optimizer_.master(shard());
        if constexpr (AdamW<State, T, Exec>::has_master)
            memory::copy(context_->exec(), master.data(), part_of(gradient_.data()).data(), master.size() * sizeof(A));
        clear_gradients();
    }
    void export_to_gradients() override {
        auto const target = gradient_.template as<Whole<A>>();
        auto const master = optimizer_.master(shard());
        memory::copy(context_->exec(), part_of(gradient_.data()).data(), master.data(), master.size() * sizeof(A));
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
    void skip_update() override { reduced_ = {}; }
    void update(std::int64_t step, kernels::AdamWSettings settings) override {
        if (!decays_) settings.weight_decay = 0;
        auto const older = shard();
        ++this->updates_;
        if (versions_.size() > 1)
            memory::copy(context_->exec(), shard().data(), older.data(), older.size() * sizeof(T));
        optimizer_.update(shard(), reduced_, step, settings);
        reduced_ = {};
        is_gathered_ = false;
    }
    void gather() override {
        if (!is_gathered_) redistribute_into(shard(), newest());
        is_gathered_ = true;
    }

  private:
    static constexpr bool scatters = !State::value.dimensions[0].axes.empty();

    Tensor<Whole<T>, Exec> const& newest() const { return versions_[this->updates_ % versions_.size()]; }
    /// This rank's part of the newest weights.
    Tensor<Shard, Exec> shard() const {
        return Tensor<Shard, Exec>(*context_, newest().extents(), newest().block(), newest().data() + first_);
    }
    /// This rank's part of a buffer that lies as the weights do.
    View<A, 1, Exec> part_of(A* whole) const { return View<A, 1, Exec>(whole + first_, shard().size()); }

    Context<Exec> const* context_;
    bool decays_;
    std::vector<Tensor<Whole<T>, Exec>> versions_; ///< after i updates of the weights, number i mod their count
    std::size_t first_ = 0;                        ///< where this rank's part begins
    bool is_gathered_ = true;
    Tensor<Gradient, Exec> gradient_;
    std::optional<Redistribution<State, Gradient, Exec>> reduction_; ///< while it is under way
    Tensor<State, Exec> reduced_;
    AdamW<State, T, Exec> optimizer_;
};

} // namespace pentad::zero
