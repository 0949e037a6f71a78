// Buckets: the memory of parameters that are synchronised alike, flat and in one piece, with their
// gradients and optimizer state. What a bucket sends is the plan from its gradient's layout to its state's layout, and
// back; both follow from the parameters' layouts, whatever axes these name.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/zero/layouts.hpp>
#include <pentad/zero/optimizer.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace pentad::zero {

template <class T, class Exec>
class Bucket final : public GradientOwner {
  public:
    using A = accumulator_t<T>;

    Bucket(Context<Exec> const& context, BucketLayouts const& layouts, bool decays)
        : context_(&context), layouts_(layouts), decays_(decays) {
        pentad::detail::prepare(context, layouts_.reduction);
        pentad::detail::prepare(context, layouts_.gathering);
    }

    /// Adds room for a parameter of n elements, which `users` layers use, and says where it begins.
    std::size_t reserve(std::size_t n, std::size_t users) {
        users_ += users;
        return std::exchange(size_, size_ + n);
    }
    /// The reduction of the bucket begins when the last user of its last gradient has added to it.
    void gradient_is_complete() override {
        if (++complete_ < users_) return;
        complete_ = 0;
        start_reduction();
    }
    [[nodiscard]] std::size_t size() const { return size_; }

    /// @param versions of the weights that are kept, the newest included
    void allocate(std::size_t versions) {
        auto const& communicators = context_->communicators();
        std::size_t shards = 1;
        for (auto const axis : layouts_.state.dimensions[0].axes)
            shards *= static_cast<std::size_t>(communicators.extent(axis));
        std::size_t const extent = (size_ + shards - 1) / shards * shards;
        for (std::size_t i = 0; i < versions; ++i)
            versions_.emplace_back(*context_, std::array{extent}, observe::Memory::parameters);
        gradient_ = Tensor<Whole<A>, Exec>(*context_, {extent}, observe::Memory::gradients);
        gradient_.clear();
        shard_size_ = extent / shards;
        first_ = shard_size_ * communicators.shard_index(layouts_.state.dimensions[0].axes);
        optimizer_ = AdamW<Whole<A>, T, Exec>(*context_, shard_size_);
    }
    /// The weights as they were after a number of updates: one of the versions that are kept.
    [[nodiscard]] T* values(std::size_t updates) const { return versions_[updates % versions_.size()].data(); }
    [[nodiscard]] std::size_t updates() const { return updates_; }
    [[nodiscard]] A* gradients() const { return gradient_.data(); }

    /// Weights and masters become what lies in the gradients' memory.
    void start_from_gradients() {
        kernels::convert<A, T>(context_->exec(), gradient_.flat(), newest().flat());
        auto const master = optimizer_.master(shard());
        if constexpr (AdamW<Whole<A>, T, Exec>::has_master)
            memory::copy(context_->exec(), master.data(), gradient_.data() + first_, shard_size_ * sizeof(A));
        clear_gradients();
    }
    /// The weights in accumulators, gathered into the gradients' memory.
    void export_to_gradients() {
        auto const master = optimizer_.master(shard());
        memory::copy(context_->exec(), gradient_.data() + first_, master.data(), shard_size_ * sizeof(A));
        gather_into(gradient_);
    }
    void clear_gradients() {
        if (reduction_) reduce(); // it owns the memory; nobody wants what comes of it
        reduced_ = {};
        gradient_.clear();
    }

    /// Begins to reduce the gradients, if that has not begun.
    void start_reduction() {
        if (reduction_) return;
        reduced_ = {}; // of a reduction that nobody has used
        auto shard = pentad::detail::shard_of(gradient_);
        // An all-reduce works in place, which wants the only handle of the memory; a reduce-scatter leaves it behind.
        if (!scatters()) gradient_ = {};
        reduction_.emplace(*context_, layouts_.reduction, std::move(shard));
    }
    /// Waits until they are reduced.
    void reduce() {
        auto shard = reduction_->wait();
        reduction_.reset();
        reduced_ = Tensor<Whole<A>, Exec>(*context_, {shard_size_}, std::move(shard.block), shard.data);
        if (!scatters()) gradient_ = reduced_;
    }
    /// Adds this rank's summand of the squared norm of the reduced gradient; each element counts once.
    void add_squares(Tensor<NormSquare, Exec> const& total) const {
        if (!layouts_.counts_squares_here) return;
        Tensor<NormSquare, Exec> const own(*context_, {});
        kernels::sum_of_squares<A>(context_->exec(), reduced_.flat(), own.view());
        kernels::add<f64>(context_->exec(), own.flat(), total.flat());
    }
    /// Forgets the reduced gradients.
    void skip_update() { reduced_ = {}; }
    /// Updates this rank's shard of the weights.
    void update(std::int64_t step, kernels::AdamWSettings settings) {
        if (!decays_) settings.weight_decay = 0;
        auto const older = shard();
        ++updates_;
        if (versions_.size() > 1) memory::copy(context_->exec(), shard().data(), older.data(), shard_size_ * sizeof(T));
        optimizer_.update(shard(), reduced_, step, settings);
        reduced_ = {};
        is_gathered_ = false;
    }
    /// Gathers the updated weights, if that has not been done.
    void gather() {
        if (!is_gathered_) gather_into(newest());
        is_gathered_ = true;
    }

  private:
    [[nodiscard]] bool scatters() const { return !layouts_.state.dimensions[0].axes.empty(); }
    [[nodiscard]] Tensor<Whole<T>, Exec> const& newest() const { return versions_[updates_ % versions_.size()]; }
    /// This rank's part of the newest weights, as a tensor of its own.
    [[nodiscard]] Tensor<Whole<T>, Exec> shard() const {
        return Tensor<Whole<T>, Exec>(*context_, {shard_size_}, newest().block(), newest().data() + first_);
    }
    /// All parts into a buffer of which each rank has filled in its own.
    template <class E>
    void gather_into(Tensor<Whole<E>, Exec> const& target) const {
        pentad::detail::Shard<E, Exec> const own{target.block(), target.data() + first_, {shard_size_}, 1};
        pentad::detail::carry_out_into(*context_, layouts_.gathering, own, target.flat());
    }

    Context<Exec> const* context_;
    BucketLayouts layouts_;
    bool decays_;
    std::size_t size_ = 0, users_ = 0, complete_ = 0;
    std::size_t updates_ = 0;                      ///< of the weights
    std::vector<Tensor<Whole<T>, Exec>> versions_; ///< after i updates of the weights, number i mod their count
    std::size_t shard_size_ = 0, first_ = 0;       ///< this rank's part, and where it begins
    bool is_gathered_ = true;
    Tensor<Whole<A>, Exec> gradient_; ///< of which the ranks hold summands until it is reduced
    std::optional<pentad::detail::StartedPlan<A, Exec>> reduction_; ///< while it is under way
    Tensor<Whole<A>, Exec> reduced_;                                ///< this rank's part
    AdamW<Whole<A>, T, Exec> optimizer_;
};

} // namespace pentad::zero
