// A plan that reduces gradients, under way, whose summands may travel in fewer bits than they are summed in.
#pragma once

#include <pentad/comm/collectives.hpp>
#include <pentad/layout/compact.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/zero/compact.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace pentad::zero {

/// What rounding has taken away from the summands of one plan of one bucket, for each time that the plan rounds:
/// zeros at first. Nothing for elements without error feedback.
template <class A, class Exec>
class RoundingErrors {
  public:
    /// @param number of the rounding in the plan
    A* get(Context<Exec> const& context, std::size_t number, std::size_t extent) {
        if (blocks_.size() <= number) blocks_.resize(number + 1);
        auto& block = blocks_[number];
        if (block.data() == nullptr && extent > 0) {
            block = context.take(extent * sizeof(A), observe::Memory::gradients);
            memory::clear(context.exec(), block.data(), extent * sizeof(A));
        }
        return static_cast<A*>(block.data());
    }

  private:
    std::vector<memory::Buffer<typename Exec::memory_space>> blocks_;
};

/// The plan of a flat shard; its first step goes on beside what is computed meanwhile. With fewer bits a sum becomes an
/// exchange of rounded parts (all-to-all), which are summed in accumulators in the order of the ranks, and where all
/// ranks want all of it, a gather of the rounded sums: as many elements are sent as by a reduction.
template <class A, class Exec>
class StartedReduction {
  public:
    using Shard = pentad::detail::Shard<A, Exec>;

    /// @param element in which summands travel @param errors for fp8
    /// @param kind of the memory of scattered sums
    StartedReduction(Context<Exec> const& context, PlanValue const& plan, Shard shard, Compact element,
                     RoundingErrors<A, Exec>& errors, observe::Memory kind = observe::Memory::activations)
        : context_(&context), plan_(plan), element_(element), errors_(&errors), kind_(kind) {
        if (element == Compact::none)
            plain_.emplace(context, plan, std::move(shard), kind);
        else {
            shard_ = std::move(shard);
            start();
        }
    }
    StartedReduction(StartedReduction const&) = delete;
    StartedReduction& operator=(StartedReduction const&) = delete;

    /// Waits for what the constructor began, so that the buffers that it travels in are used again.
    void advance() {
        if (exchange_) finish_step();
    }
    /// Blocks until the result is there. To be called once.
    [[nodiscard]] Shard wait() {
        if (plain_) return plain_->wait();
        while (step_ < plan_.count) {
            if (exchange_)
                finish_step();
            else {
                PlanValue one;
                one.push(plan_.steps[step_++]);
                one.exchange = plan_.exchange;
                shard_ = pentad::detail::carry_out(*context_, one, std::move(shard_));
            }
            start();
        }
        return std::move(shard_);
    }

  private:
    using Words = View<i32, 1, Exec>;
    using Buffer = memory::Buffer<typename Exec::memory_space>;
    using Staged = comm::detail::Staged<Words>;

    [[nodiscard]] comm::Communicator const& ranks() const {
        return context_->communicators().along(plan_.steps[step_].axes);
    }
    [[nodiscard]] std::size_t part() const {
        auto const n = static_cast<std::size_t>(ranks().size());
        return (shard_.local[0] + n - 1) / n;
    }
    [[nodiscard]] std::size_t region() const { return compact_bytes(element_, part(), sizeof(A)); }
    [[nodiscard]] static Words words(Buffer const& buffer, std::size_t bytes) {
        return Words(static_cast<i32*>(buffer.data()), bytes / sizeof(i32));
    }
    [[nodiscard]] A* errors(std::size_t extent) {
        return element_ == Compact::fp8 ? errors_->get(*context_, roundings_++, extent) : nullptr;
    }
    /// Regions of a buffer, one for each part of the shard that exists: f(first, elements, values).
    template <class F>
    void for_each_region(Buffer const& buffer, F&& f) const {
        std::size_t const length = part(), all = shard_.local[0], bytes = region();
        auto* memory = static_cast<std::uint8_t*>(buffer.data());
        for (std::size_t first = 0; first < all; first += length, memory += bytes) {
            std::size_t const elements = std::min(length, all - first);
            f(first, elements, CompactValues(element_, true, elements, memory));
        }
    }

    /// Starts the step, if it reduces.
    void start() {
        if (step_ == plan_.count || exchange_) return;
        auto const kind = plan_.steps[step_].kind;
        if (kind != StepKind::all_reduce && kind != StepKind::reduce_scatter) return;
        auto const& comm = ranks();
        if (comm.size() == 1) return;
        auto const& exec = context_->exec();
        std::size_t const bytes = region() * static_cast<std::size_t>(comm.size());
        sent_ = context_->take(bytes, observe::Memory::activations);
        received_ = context_->take(bytes, observe::Memory::activations);
        auto* const residual = errors(shard_.local[0]);
        for_each_region(sent_, [&](std::size_t first, std::size_t elements, CompactValues const& out) {
            compress<A>(exec, View<A, 1, Exec>(shard_.data + first, elements), out, {},
                        residual == nullptr ? nullptr : residual + first);
        });
        exchange_.emplace(comm::start_all_to_all(exec, comm, words(sent_, bytes), words(received_, bytes)));
    }
    /// Waits for the exchange and sums what has come.
    void finish_step() {
        exchange_->wait();
        exchange_.reset();
        sent_ = {};
        auto const& exec = context_->exec();
        auto const& comm = ranks();
        auto const ranks = static_cast<std::size_t>(comm.size());
        std::size_t const length = part(), all = shard_.local[0];
        std::size_t const own = std::min(length, all - std::min(all, length * static_cast<std::size_t>(comm.rank())));
        bool const scatters = plan_.steps[step_].kind == StepKind::reduce_scatter;
        auto sum = Shard::make(*context_, {{scatters ? length : own}, 1}, nullptr, kind_);
        expand<A>(exec, CompactValues(element_, true, own, received_.data()), sum.flat(), ranks, region());
        if (scatters) {
            received_ = {};
            shard_ = std::move(sum);
            ++step_;
            return;
        }
        Buffer const rounded = context_->take(region(), observe::Memory::activations);
        compress<A>(exec, sum.flat(), CompactValues(element_, true, own, rounded.data()), {}, errors(own));
        shard_ = pentad::detail::own(*context_, std::move(shard_));
        comm::all_gather(exec, comm, words(rounded, region()), words(received_, region() * ranks));
        for_each_region(received_, [&](std::size_t first, std::size_t elements, CompactValues const& in) {
            expand<A>(exec, in, View<A, 1, Exec>(shard_.data + first, elements));
        });
        received_ = {};
        ++step_;
    }

    Context<Exec> const* context_;
    PlanValue plan_;
    Compact element_;
    RoundingErrors<A, Exec>* errors_;
    observe::Memory kind_;
    std::optional<pentad::detail::StartedPlan<A, Exec>> plain_; ///< in accumulators
    Shard shard_{};
    std::size_t step_ = 0, roundings_ = 0;
    Buffer sent_, received_; // they outlive what is under way
    std::optional<comm::Request<Staged, Staged>> exchange_;
};

} // namespace pentad::zero
