// A distributed tensor: this rank's shard as a View, and the layout, as a type, that says what it is a
// shard of. Copies share the buffer.
#pragma once

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/relabel.hpp>
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
[[noreturn]] [[gnu::cold]] inline void refuse_use(LayoutValue const& layout, std::size_t const* extents) {
    throw std::logic_error(to_string(layout, extents) +
                           " is used after it was moved from, or before it was made: it has no memory");
}
/// Compiles only where memory of type V can be a shard of layout L for kernels of `Exec`, as far as the type says.
template <class L, class Exec, class V>
consteval void require_memory() {
    static_assert(std::is_same_v<typename V::value_type, typename L::element>,
                  "pentad: memory of a tensor has the elements of its layout, and is not constant");
    static_assert(V::rank() == L::rank || V::rank() == 1,
                  "pentad: memory of a tensor is a view with the dimensions of its layout, or a list of its elements");
    static_assert(V::rank() < 2 || !std::is_same_v<typename V::array_layout, Kokkos::LayoutLeft>,
                  "pentad: memory of a tensor is row-major: a view with Kokkos::LayoutRight, which is not Kokkos' "
                  "default on GPUs");
    static_assert(Kokkos::SpaceAccessibility<Exec, typename V::memory_space>::accessible,
                  "pentad: memory of a tensor is in a space that kernels of its execution space reach");
}
/// @throws std::invalid_argument where a view is not this rank's shard, of the given extents, without gaps
template <class V, std::size_t Rank>
void require_shard(V const& memory, std::array<std::size_t, Rank> const& local, std::string const& tensor) {
    auto const text = [](auto const& extent, std::size_t count) {
        std::string list;
        for (std::size_t d = 0; d < count; ++d) list += (d == 0 ? "" : " x ") + std::to_string(extent(d));
        return count == 0 ? std::string("a scalar") : list;
    };
    auto const shard = text([&](std::size_t d) { return local[d]; }, Rank);
    std::size_t elements = 1;
    bool fits = true;
    for (std::size_t d = Rank; d-- > 0;) {
        if constexpr (V::rank() == Rank) fits = fits && memory.extent(d) == local[d];
        elements *= local[d];
    }
    if (!fits || memory.size() != elements)
        throw std::invalid_argument("memory of " + text([&](std::size_t d) { return memory.extent(d); }, V::rank()) +
                                    " elements for " + tensor + ", of which this rank holds " + shard);
    std::size_t stride = 1;
    for (std::size_t d = V::rank(); d-- > 0;) {
        if (memory.extent(d) > 1 && static_cast<std::size_t>(memory.stride(d)) != stride)
            throw std::invalid_argument("memory for " + tensor + " is row-major without gaps, and this has stride " +
                                        std::to_string(memory.stride(d)) + " where " + std::to_string(stride) +
                                        " is needed: copy it into a view with Kokkos::LayoutRight");
        stride *= memory.extent(d);
    }
}
/// What a tensor holds, whatever its layout: its extents and this rank's memory.
template <std::size_t Rank, class Exec>
class TensorMemory {
  public:
    using block_type = memory::Buffer<typename Exec::memory_space>;
    using extents_type = std::array<std::size_t, Rank>;

    TensorMemory() = default;
    TensorMemory(TensorMemory const&) = default;
    TensorMemory& operator=(TensorMemory const&) = default;
    /// What was moved from is empty, and keeps its extents.
    TensorMemory(TensorMemory&& other) noexcept
        : context(std::exchange(other.context, nullptr)), global(other.global), local(other.local),
          block(std::move(other.block)), offset(std::exchange(other.offset, 0)) {}
    TensorMemory& operator=(TensorMemory&& other) noexcept {
        if (this == &other) return *this;
        context = std::exchange(other.context, nullptr);
        global = other.global;
        local = other.local;
        block = std::move(other.block);
        offset = std::exchange(other.offset, 0);
        return *this;
    }
    ~TensorMemory() = default;
    /// @param data in `block`, or kept alive by someone else
    TensorMemory(LayoutValue const& layout, Context<Exec> const& made_in, extents_type const& extents,
                 block_type memory, void* data)
        : context(&made_in), global(extents), block(std::move(memory)),
          offset(reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(block.data())) {
        require_static_extents(layout, extents);
        auto const& communicators = made_in.communicators();
        auto const all = local_extents(layout, extents, communicators.mesh(), communicators.world().rank());
        for (std::size_t d = 0; d < Rank; ++d) local[d] = all[d];
    }
    [[nodiscard]] void* address() const {
        return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(block.data()) + offset);
    }
    [[nodiscard]] std::size_t size() const {
        std::size_t product = 1;
        for (auto const extent : local) product *= extent;
        return product;
    }

    Context<Exec> const* context = nullptr;
    extents_type global{};
    extents_type local{};
    block_type block;
    std::uintptr_t offset = 0; ///< of the data in the block, whose memory may move; without a block, its address
};
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

    /// A tensor that was moved from is empty: its extents may be read, and every other use is a std::logic_error.
    Tensor() = default;
    /// A tensor for code that does not know the mesh, such as a layer.
    template <class Known>
        requires(std::is_same_v<M, AnyMesh> && !std::is_same_v<Known, AnyMesh>)
    Tensor(Tensor<L, Exec, Known> const& other) // NOLINT: nothing is lost
        : Tensor(unchecked(other.context(), other.extents(), other.block(), other.array_data())) {}
    /// Does not compile: a tensor does not become one of another layout by itself.
    template <class Other, class OtherMesh>
        requires(!std::is_same_v<Other, L>)
    Tensor(Tensor<Other, Exec, OtherMesh> const& /*other*/) { // NOLINT: that is what is refused
        refuse<Text() << "pentad: a tensor of one layout is not one of another: redistribute it: "
                      << layout_text<Other>.view() << " where " << layout_text<L>.view() << " is wanted">();
    }
    /// The extents as a braced list. @throws std::invalid_argument when they are not as many as the layout has
    /// dimensions
    Tensor(typename detail::Maker<M, Exec>::type const& context, std::initializer_list<std::size_t> global,
           observe::Memory kind = observe::Memory::activations)
        : Tensor(context, extents_of(global), kind) {}
    /// A tensor of the given global extents, uninitialised.
    /// @throws std::invalid_argument when an extent differs from the static one, or its axes do not divide it.
    Tensor(typename detail::Maker<M, Exec>::type const& context, extents_type const& global,
           observe::Memory kind = observe::Memory::activations)
        : Tensor(without_memory(context, global)) {
        memory_.block = context.take(size() * sizeof(element), kind);
    }
    /// A tensor over memory of the program's own, which must outlive it: this rank's shard, row-major without gaps, as
    /// a view with the dimensions of the layout or as a list of its elements. @throws std::invalid_argument where it is
    /// another's, or the extents are no extents of the layout
    template <class Data, class... Properties>
    Tensor(typename detail::Maker<M, Exec>::type const& context, extents_type const& global,
           Kokkos::View<Data, Properties...> const& memory)
        : Tensor(without_memory(context, global)) {
        using Memory = Kokkos::View<Data, Properties...>;
        detail::require_memory<L, Exec, Memory>();
        if constexpr (std::is_same_v<typename Memory::value_type, element>) {
            detail::require_shard(memory, local(), describe());
            memory_.offset = reinterpret_cast<std::uintptr_t>(memory.data());
        }
    }
    template <class Data, class... Properties>
    Tensor(typename detail::Maker<M, Exec>::type const& context, std::initializer_list<std::size_t> global,
           Kokkos::View<Data, Properties...> const& memory)
        : Tensor(context, extents_of(global), memory) {}
    /// Does not compile: an address says neither how memory is laid out nor how much there is.
    template <class Pointed>
    Tensor(context_type const& /*context*/, extents_type const& /*global*/, block_type const& /*block*/,
           Pointed* /*data*/) {
        static_assert(sizeof(Pointed) == 0, "pentad: memory of a tensor is given as a view, which says how it is laid "
                                            "out and how much there is: Kokkos::View<T**, Kokkos::LayoutRight, "
                                            "Kokkos::MemoryTraits<Kokkos::Unmanaged>>(address, rows, columns)");
    }
    /// A tensor of the given global extents without memory: its shape.
    [[nodiscard]] static Tensor without_memory(context_type const& context, extents_type const& global) {
        return unchecked(context, global, block_type(), nullptr);
    }
    /// A tensor over memory of which nothing is known to be right: `data` lies in `block`, or is kept alive by someone
    /// else when that is empty, and is as long as this rank's shard is.
    [[nodiscard]] static Tensor unchecked(context_type const& context, extents_type const& global, block_type block,
                                          element* data) {
        return Tensor(Memory(L::value, context, global, std::move(block), data));
    }

    /// @throws std::logic_error where it was moved from, or never made
    [[nodiscard]] context_type const& context() const {
        if (memory_.context == nullptr) detail::refuse_use(L::value, memory_.global.data());
        return *memory_.context;
    }
    [[nodiscard]] extents_type const& extents() const { return memory_.global; }
    [[nodiscard]] extents_type const& local() const { return memory_.local; }
    [[nodiscard]] std::size_t size() const { return memory_.size(); }
    [[nodiscard]] block_type const& block() const { return memory_.block; }
    [[nodiscard]] bool empty() const { return address() == nullptr; }

    using view_type = View<element, static_cast<int>(rank), Exec>;

    /// This rank's shard of a value. These functions do not compile for a partial value: a summand is not taken for the
    /// sum by mistake. All of them throw a std::logic_error where the tensor was moved from.
    [[nodiscard]] view_type view() const {
        require_value();
        return array();
    }
    /// As a list of elements.
    [[nodiscard]] View<element, 1, Exec> flat() const {
        require_value();
        return array_flat();
    }
    /// As rows of the last `Inner` dimensions.
    template <std::size_t Inner = 1>
    [[nodiscard]] View<element, 2, Exec> rows() const {
        require_value();
        return array_rows<Inner>();
    }
    [[nodiscard]] element* data() const {
        require_value();
        return array_data();
    }
    /// To the host, row-major. Waits.
    void get(element* host) const {
        require_value();
        get_array(host);
    }
    /// What this rank holds of a value that is partial: functions that are not linear do not apply to it.
    [[nodiscard]] view_type summands() const {
        static_assert(is_partial<L>, "pentad: this value is not partial: read it by view()");
        return array();
    }

    /// This rank's memory, which holds its shard or its summands of the value: for code that treats both alike.
    [[nodiscard]] view_type array() const {
        return [this]<std::size_t... I>(std::index_sequence<I...>) {
            return view_type(array_data(), memory_.local[I]...);
        }(std::make_index_sequence<rank>{});
    }
    [[nodiscard]] View<element, 1, Exec> array_flat() const { return View<element, 1, Exec>(array_data(), size()); }
    template <std::size_t Inner = 1>
    [[nodiscard]] View<element, 2, Exec> array_rows() const {
        std::size_t columns = 1;
        for (std::size_t d = rank - Inner; d < rank; ++d) columns *= memory_.local[d];
        return View<element, 2, Exec>(array_data(), columns == 0 ? 0 : size() / columns, columns);
    }
    [[nodiscard]] element* array_data() const {
        if (memory_.context == nullptr && size() > 0) detail::refuse_use(L::value, memory_.global.data());
        return address();
    }
    void get_array(element* host) const {
        memory::copy_to_host(context().exec(), host, array_data(), size() * sizeof(element));
    }
    /// Zeros, in order with the work of the context.
    void clear() const { memory::clear(context().exec(), array_data(), size() * sizeof(element)); }
    /// This rank's shard, or its summands, from the host, row-major. Waits.
    void set(element const* host) const {
        memory::copy_from_host(context().exec(), array_data(), host, size() * sizeof(element));
    }
    /// The layout with its global extents, in the short form.
    [[nodiscard]] std::string describe() const { return to_string(L::value, memory_.global.data()); }

    /// This value under other names of its dimensions, or with ghost cells that are stale from now on: no copy.
    /// A layout of another value does not compile. @throws std::invalid_argument where static extents of that layout
    /// are others
    template <class To>
    [[nodiscard]] Tensor<To, Exec, M> as() const& {
        require_relabelled<L, To>();
        return reinterpret_as<To>();
    }
    template <class To>
    [[nodiscard]] Tensor<To, Exec, M> as() && {
        require_relabelled<L, To>();
        return std::move(*this).template reinterpret_as<To>();
    }
    /// This memory under another layout with local shards of the same shape, whatever that makes of the value: to
    /// use it again, or because the program knows what the types do not.
    /// @throws std::invalid_argument where the shards of that layout have another shape
    template <class To>
    [[nodiscard]] Tensor<To, Exec, M> reinterpret_as() const& {
        return of_this_shape(Tensor<To, Exec, M>::unchecked(context(), memory_.global, memory_.block, address()));
    }
    template <class To>
    [[nodiscard]] Tensor<To, Exec, M> reinterpret_as() && {
        auto* const data = address();
        memory_.offset = 0;
        auto const& context = this->context();
        memory_.context = nullptr;
        return of_this_shape(Tensor<To, Exec, M>::unchecked(context, memory_.global, std::move(memory_.block), data));
    }

  private:
    using Memory = detail::TensorMemory<L::rank, Exec>;
    explicit Tensor(Memory memory) : memory_(std::move(memory)) {}
    static extents_type extents_of(std::initializer_list<std::size_t> global) {
        if (global.size() != rank) detail::refuse_extents(global.size(), layout_text<L>.view(), rank);
        extents_type extents{};
        std::copy(global.begin(), global.end(), extents.begin());
        return extents;
    }
    static consteval void require_value() {
        if constexpr (is_partial<L>)
            refuse<Text() << "pentad: each rank holds a summand of this value: reduce it first, or read the summands "
                             "by summands(): "
                          << layout_text<L>.view()>();
    }
    [[nodiscard]] element* address() const { return static_cast<element*>(memory_.address()); }
    template <class To>
    Tensor<To, Exec, M> of_this_shape(Tensor<To, Exec, M> other) const {
        if (other.local() != local())
            throw std::invalid_argument(describe() + " cannot be taken as " + other.describe() +
                                        ", whose shards have another shape: redistribute it");
        return other;
    }

    Memory memory_;
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
