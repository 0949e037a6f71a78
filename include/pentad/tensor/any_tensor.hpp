// A tensor whose layout is a value: what passes between parts of a program that are chosen at run time. Inside a part
// it is a Tensor, whose layout the compiler checks.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/tensor/context.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/tensor.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad {

/// A tensor of elements T, of a layout that is known at run time and outlives it, such as the `value` of a layout type.
/// Copies share the buffer.
template <class T, class Exec = Kokkos::DefaultExecutionSpace>
class AnyTensor {
  public:
    using element = T;
    using block_type = memory::Buffer<typename Exec::memory_space>;

    /// A tensor that was moved from is empty.
    AnyTensor() = default;
    /// A tensor whose layout is a type, of which an empty one becomes an empty one.
    template <class L>
        requires(std::same_as<typename L::element, T>)
    AnyTensor(Tensor<L, Exec> tensor) { // NOLINT: nothing is lost
        if (tensor.empty() && tensor.size() == 0) return;
        *this = unchecked(tensor.context(), L::value, tensor.extents(), tensor.block(), tensor.array_data());
    }
    /// A tensor of the given global extents, uninitialised.
    /// @throws std::invalid_argument where they are not those of the layout, or its axes do not divide them
    AnyTensor(Context<Exec> const& context, LayoutValue const& layout, std::span<std::size_t const> global,
              observe::Memory kind = observe::Memory::activations)
        : AnyTensor(unchecked(context, layout, global, block_type(), nullptr)) {
        if (layout.element != Element<T>::name)
            throw std::invalid_argument("a tensor of " + std::string(Element<T>::name) + " cannot have the layout " +
                                        to_string(layout));
        memory_.block = context.take(size() * sizeof(T), kind);
    }
    /// A tensor over memory of which nothing is known to be right, as Tensor::unchecked.
    [[nodiscard]] static AnyTensor unchecked(Context<Exec> const& context, LayoutValue const& layout,
                                             std::span<std::size_t const> global, block_type block, T* data) {
        if (global.size() != layout.rank)
            throw std::invalid_argument(std::to_string(global.size()) + " extents for " + to_string(layout));
        typename Memory::extents_type extents{};
        std::copy(global.begin(), global.end(), extents.begin());
        AnyTensor tensor;
        tensor.layout_ = &layout;
        tensor.memory_ = Memory(layout, context, extents, std::move(block), data);
        return tensor;
    }

    /// This tensor with its layout as a type. @throws std::logic_error where it has another layout
    template <class L>
    [[nodiscard]] Tensor<L, Exec> as() const& {
        return AnyTensor(*this).template as<L>();
    }
    template <class L>
    [[nodiscard]] Tensor<L, Exec> as() && {
        static_assert(std::same_as<typename L::element, T>, "pentad: a tensor keeps its elements under another type");
        if (empty()) return {};
        if (layout_ != &L::value && !(*layout_ == L::value))
            throw std::logic_error(describe() + " is not of the layout " + to_string(L::value) + ": redistribute it");
        std::array<std::size_t, L::rank> extents{};
        std::copy_n(memory_.global.begin(), L::rank, extents.begin());
        auto own = std::move(memory_);
        auto* const data = static_cast<T*>(own.address());
        return Tensor<L, Exec>::unchecked(*own.context, extents, std::move(own.block), data);
    }

    [[nodiscard]] bool empty() const { return memory_.context == nullptr; }
    /// @throws std::logic_error where it was moved from, or never made, as the next
    [[nodiscard]] Context<Exec> const& context() const {
        require_made();
        return *memory_.context;
    }
    [[nodiscard]] LayoutValue const& layout() const {
        require_made();
        return *layout_;
    }
    /// The extents of the whole tensor, and of this rank's shard.
    [[nodiscard]] std::span<std::size_t const> extents() const { return {memory_.global.data(), rank()}; }
    [[nodiscard]] std::span<std::size_t const> local() const { return {memory_.local.data(), rank()}; }
    /// Elements of this rank's shard.
    [[nodiscard]] std::size_t size() const {
        std::size_t product = empty() ? 0 : 1;
        for (auto const extent : local()) product *= extent;
        return product;
    }
    [[nodiscard]] block_type const& block() const { return memory_.block; }
    /// This rank's memory, whether it holds values or summands.
    [[nodiscard]] T* data() const { return address(); }
    [[nodiscard]] View<T, 1, Exec> flat() const { return View<T, 1, Exec>(address(), size()); }
    /// As rows of the last dimension.
    [[nodiscard]] View<T, 2, Exec> rows() const {
        std::size_t const columns = rank() == 0 ? 1 : memory_.local[rank() - 1];
        return View<T, 2, Exec>(address(), columns == 0 ? 0 : size() / columns, columns);
    }
    /// This rank's shard, or its summands, to the host and from it, row-major. Waits.
    void get(T* host) const { memory::copy_to_host(context().exec(), host, address(), size() * sizeof(T)); }
    void set(T const* host) const { memory::copy_from_host(context().exec(), address(), host, size() * sizeof(T)); }
    /// The layout with its global extents, in the short form.
    [[nodiscard]] std::string describe() const {
        return empty() ? "an empty tensor" : to_string(*layout_, memory_.global.data());
    }

  private:
    using Memory = detail::TensorMemory<max_dimensions, Exec>;
    [[nodiscard]] std::size_t rank() const { return empty() ? 0 : layout_->rank; }
    [[nodiscard]] T* address() const { return static_cast<T*>(memory_.address()); }
    void require_made() const {
        if (empty()) throw std::logic_error("a tensor is used after it was moved from, or before it was made");
    }

    Memory memory_;
    LayoutValue const* layout_ = nullptr;
};

/// The step from one part to the next where both were chosen at run time: the redistribution between two layouts that
/// are values, and its adjoint. It does nothing where they are equal.
class Edge {
  public:
    Edge() = default;
    /// @throws std::invalid_argument where there is no plan from one layout to the other
    Edge(LayoutValue const& from, LayoutValue const& to)
        : from_(from), to_(to), from_gradient_(dual(from)), to_gradient_(dual(to)), plan_(make_plan(from, to)),
          adjoint_(make_plan(to_gradient_, from_gradient_)), is_nothing_(from == to) {
        if (plan_.valid()) return;
        throw std::invalid_argument(std::string(plan_error_texts[static_cast<std::size_t>(plan_.error)].substr(
                                        std::string_view("pentad: ").size())) +
                                    ": from " + to_string(from) + " to " + to_string(to));
    }
    [[nodiscard]] bool is_nothing() const { return is_nothing_; }
    [[nodiscard]] LayoutValue const& from() const { return from_; }
    [[nodiscard]] LayoutValue const& to() const { return to_; }

    /// The value that leaves one part, as the next takes it. Collective over the groups of the plan's axes. Blocks
    /// until the result is there. @throws std::logic_error where the tensor has another layout
    template <class T, class Exec>
    [[nodiscard]] AnyTensor<T, Exec> forward(AnyTensor<T, Exec> tensor) const {
        return is_nothing_ ? std::move(tensor) : carried_out(std::move(tensor), plan_, from_, to_);
    }
    /// The gradient of what the next part takes, as the gradient of what this one gives.
    template <class T, class Exec>
    [[nodiscard]] AnyTensor<T, Exec> backward(AnyTensor<T, Exec> gradient) const {
        return is_nothing_ ? std::move(gradient)
                           : carried_out(std::move(gradient), adjoint_, to_gradient_, from_gradient_);
    }
    /// Makes the communicators that both ways use. Collective as these are.
    template <class Exec>
    void prepare(Context<Exec> const& context) const {
        detail::prepare(context, plan_);
        detail::prepare(context, adjoint_);
    }

  private:
    template <class T, class Exec>
    static AnyTensor<T, Exec> carried_out(AnyTensor<T, Exec> tensor, PlanValue const& plan, LayoutValue const& from,
                                          LayoutValue const& to) {
        if (!(tensor.layout() == from))
            throw std::logic_error(tensor.describe() + " is not of the layout " + to_string(from));
        auto const& context = tensor.context();
        auto const& communicators = context.communicators();
        std::array<std::size_t, max_dimensions> extents{};
        std::copy(tensor.extents().begin(), tensor.extents().end(), extents.begin());
        std::span<std::size_t const> const global(extents.data(), from.rank);
        detail::Shard<T, Exec> shard{shard_shape(from, global, communicators.mesh(), communicators.world().rank()),
                                     tensor.block(), tensor.data()};
        tensor = {};
        shard = detail::carry_out(context, plan, std::move(shard));
        return AnyTensor<T, Exec>::unchecked(context, to, global, std::move(shard.block), shard.data);
    }

    LayoutValue from_, to_, from_gradient_, to_gradient_;
    PlanValue plan_, adjoint_;
    bool is_nothing_ = true;
};

} // namespace pentad
