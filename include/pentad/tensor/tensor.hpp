// A distributed tensor: this rank's shard as a View, and the layout, as a type, that says what it is a
// shard of. Copies share the buffer.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/validity.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/tensor/context.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace pentad {

namespace detail {
/// @throws std::invalid_argument where an extent differs from the static one
inline void require_static_extents(LayoutValue const& layout, std::span<std::size_t const> global) {
    for (std::size_t d = 0; d < layout.rank; ++d) {
        auto const fixed = layout.dimensions[d].extent;
        if (fixed != dynamic && fixed != global[d])
            throw std::invalid_argument(std::string(layout.dimensions[d].name) + " = " + std::to_string(global[d]) +
                                        " where the layout has " + std::to_string(fixed));
    }
}
/// Extents in a braced list, of another number than the layout has dimensions.
[[noreturn]] inline void refuse_extents(std::size_t count, std::string_view layout, std::size_t rank) {
    throw std::invalid_argument(std::to_string(count) + " extents for " + std::string(layout) + ", which has " +
                                std::to_string(rank) + " dimensions");
}
/// What a tensor of mesh M is made from, and whether layout L fits it as far as the compiler can see.
template <class M, class Exec>
struct Maker {
    using type = MeshContext<M, Exec>;
    template <class L>
    static consteval bool fits() {
        require_fits_on<L, M>();
        return true;
    }
};
template <class Exec>
struct Maker<AnyMesh, Exec> {
    using type = Context<Exec>;
    template <class L>
    static consteval bool fits() {
        return true;
    }
};
} // namespace detail

/// A tensor of layout L whose local shard lies in the memory of execution space `Exec`, row-major.
/// @tparam M the mesh, where the compiler knows it: then L must fit it
template <class L, class Exec = Kokkos::DefaultExecutionSpace, class M = AnyMesh>
class Tensor {
    static_assert(detail::Maker<M, Exec>::template fits<L>());

  public:
    using layout = L;
    using element = typename L::element;
    using context_type = Context<Exec>;
    using block_type = memory::Buffer<typename Exec::memory_space>;
    static constexpr std::size_t rank = L::rank;
    using extents_type = std::array<std::size_t, rank>;

    Tensor() = default;
    Tensor(Tensor const&) = default;
    Tensor& operator=(Tensor const&) = default;
    /// What was moved from is empty.
    Tensor(Tensor&& other) noexcept
        : context_(other.context_), global_(other.global_), local_(other.local_), block_(std::move(other.block_)),
          offset_(std::exchange(other.offset_, 0)) {}
    Tensor& operator=(Tensor&& other) noexcept {
        if (this == &other) return *this;
        context_ = other.context_;
        global_ = other.global_;
        local_ = other.local_;
        block_ = std::move(other.block_);
        offset_ = std::exchange(other.offset_, 0);
        return *this;
    }
    /// The same tensor for code that does not know the mesh, such as a layer.
    template <class Known>
        requires(std::is_same_v<M, AnyMesh> && !std::is_same_v<Known, AnyMesh>)
    Tensor(Tensor<L, Exec, Known> const& other) // NOLINT: nothing is lost
        : Tensor(other.context(), other.extents(), other.block(), other.data()) {}
    /// The extents as a braced list. @throws std::invalid_argument when they are not as many as the layout has
    /// dimensions
    Tensor(typename detail::Maker<M, Exec>::type const& context, std::initializer_list<std::size_t> global,
           observe::Memory kind = observe::Memory::activations)
        : Tensor(context, extents_of(global), kind) {}
    /// A tensor of the given global extents, uninitialised.
    /// @throws std::invalid_argument when an extent differs from the static one, or its axes do not divide it.
    Tensor(typename detail::Maker<M, Exec>::type const& context, extents_type const& global,
           observe::Memory kind = observe::Memory::activations)
        : Tensor(context, global, block_type(), nullptr) {
        block_ = context.take(size() * sizeof(element), kind);
    }
    /// A tensor over memory that exists: `data` lies in `block`, or is kept alive by someone else when that is empty.
    Tensor(context_type const& context, extents_type const& global, block_type block, element* data)
        : context_(&context), global_(global), block_(std::move(block)),
          offset_(reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(block_.data())) {
        detail::require_static_extents(L::value, global);
        auto const& communicators = context.communicators();
        auto const local = local_extents(L::value, global, communicators.mesh(), communicators.world().rank());
        for (std::size_t d = 0; d < rank; ++d) local_[d] = local[d];
    }

    [[nodiscard]] context_type const& context() const { return *context_; }
    [[nodiscard]] extents_type const& extents() const { return global_; }
    [[nodiscard]] extents_type const& local() const { return local_; }
    [[nodiscard]] std::size_t size() const {
        std::size_t product = 1;
        for (auto const extent : local_) product *= extent;
        return product;
    }
    [[nodiscard]] element* data() const {
        return reinterpret_cast<element*>(reinterpret_cast<std::uintptr_t>(block_.data()) + offset_);
    }
    [[nodiscard]] block_type const& block() const { return block_; }
    [[nodiscard]] bool empty() const { return data() == nullptr; }

    using view_type = View<element, static_cast<int>(rank), Exec>;

    /// This rank's shard of a value.
    [[nodiscard]] view_type view() const {
        static_assert(!is_partial<L>, "pentad: each rank holds a summand of this value: reduce it first, or read the "
                                      "summands by summands()");
        return array();
    }
    /// What this rank holds of a value that is partial: functions that are not linear do not apply to it.
    [[nodiscard]] view_type summands() const {
        static_assert(is_partial<L>, "pentad: this value is not partial: read it by view()");
        return array();
    }
    /// This rank's memory, whatever it is of the value: for code that does not depend on it.
    [[nodiscard]] view_type array() const {
        return [this]<std::size_t... I>(std::index_sequence<I...>) {
            return view_type(data(), local_[I]...);
        }(std::make_index_sequence<rank>{});
    }
    /// The same as a list of elements.
    [[nodiscard]] View<element, 1, Exec> flat() const { return View<element, 1, Exec>(data(), size()); }
    /// The same as rows of the last `inner` dimensions.
    template <std::size_t Inner = 1>
    [[nodiscard]] View<element, 2, Exec> rows() const {
        std::size_t columns = 1;
        for (std::size_t d = rank - Inner; d < rank; ++d) columns *= local_[d];
        return View<element, 2, Exec>(data(), columns == 0 ? 0 : size() / columns, columns);
    }
    /// Zeros, in order with the work of the context.
    void clear() const { memory::clear(context_->exec(), data(), size() * sizeof(element)); }
    /// This rank's shard from the host and to it, row-major. Both wait.
    void set(element const* host) const {
        memory::copy_from_host(context_->exec(), data(), host, size() * sizeof(element));
    }
    void get(element* host) const { memory::copy_to_host(context_->exec(), host, data(), size() * sizeof(element)); }
    /// The layout with its global extents, in the short form.
    [[nodiscard]] std::string describe() const { return to_string(L::value, global_.data()); }

    /// The same memory under another layout of the same local shape: for the operations that change what it means.
    /// @throws std::invalid_argument where the shards of that layout have another shape
    template <class To>
    [[nodiscard]] Tensor<To, Exec, M> as() const& {
        return of_this_shape(Tensor<To, Exec, M>(*context_, global_, block_, data()));
    }
    template <class To>
    [[nodiscard]] Tensor<To, Exec, M> as() && {
        auto* const data = this->data();
        offset_ = 0;
        return of_this_shape(Tensor<To, Exec, M>(*context_, global_, std::move(block_), data));
    }

  private:
    static extents_type extents_of(std::initializer_list<std::size_t> global) {
        if (global.size() != rank) detail::refuse_extents(global.size(), layout_text<L>.view(), rank);
        extents_type extents{};
        std::copy(global.begin(), global.end(), extents.begin());
        return extents;
    }
    template <class To>
    Tensor<To, Exec, M> of_this_shape(Tensor<To, Exec, M> other) const {
        if (other.local() != local_)
            throw std::invalid_argument(describe() + " cannot be taken as " + other.describe() +
                                        ", whose shards have another shape: redistribute it");
        return other;
    }

    context_type const* context_ = nullptr;
    extents_type global_{};
    extents_type local_{};
    block_type block_;
    std::uintptr_t offset_ = 0; ///< of the data in the block, whose memory may move; without a block, its address
};

/// A tensor on the mesh of the context, uninitialised: make_tensor<L>(context, {8, 16}).
template <class L, class M, class Exec>
[[nodiscard]] Tensor<L, Exec, M> make_tensor(MeshContext<M, Exec> const& context,
                                             std::initializer_list<std::size_t> global) {
    return Tensor<L, Exec, M>(context, global);
}
template <class L, class Exec>
[[nodiscard]] Tensor<L, Exec> make_tensor(Context<Exec> const& context, std::initializer_list<std::size_t> global) {
    return Tensor<L, Exec>(context, global);
}

} // namespace pentad
