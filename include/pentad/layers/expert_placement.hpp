// Where the experts of a layer are: an order of them, dealt to the ranks of ep, an equal number to each.
#pragma once

#include <pentad/layers/stack_order.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/tensor/tensor.hpp>

#include <cstddef>
#include <span>

namespace pentad {

/// The order of a layer's experts, and the place of each as kernels read it.
template <class Exec>
class ExpertPlacement {
  public:
    ExpertPlacement(Context<Exec> const& context, std::size_t experts)
        : context_(&context), order_(experts), places_(context.take(experts * sizeof(i32))) {
        write_places();
    }
    ExpertPlacement(ExpertPlacement const&) = delete;
    ExpertPlacement& operator=(ExpertPlacement const&) = delete;

    [[nodiscard]] StackOrder const& order() const { return order_; }
    /// The place of each expert.
    [[nodiscard]] View<i32 const, 1, Exec> places() const {
        return View<i32 const, 1, Exec>(static_cast<i32 const*>(places_.data()), order_.now().size());
    }

    /// Plans a move, which zero/store.hpp carries out.
    void plan(std::span<i32 const> order) { order_.plan(order); }
    /// From now on tokens go to the new places.
    void arrive() {
        order_.arrive();
        write_places();
    }

  private:
    void write_places() const {
        auto const places = StackOrder::places(order_.now());
        memory::copy_from_host(context_->exec(), places_.data(), places.data(), places.size() * sizeof(i32));
    }

    Context<Exec> const* context_;
    StackOrder order_;
    memory::Buffer<typename Exec::memory_space> places_;
};

} // namespace pentad
