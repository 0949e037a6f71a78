// How a View becomes memory that MPI can read or write: itself when it is row-major and contiguous and MPI
// can reach it, otherwise such a copy, on the host unless MPI is GPU-aware.
#pragma once

#include <pentad/comm/environment.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/memory/pool.hpp>
#include <pentad/memory/strided_copy.hpp>
#include <pentad/observe/dry_run.hpp>

#include <Kokkos_Core.hpp>
#include <mpi.h>

#include <cstdlib>
#include <optional>
#include <string_view>
#include <type_traits>

namespace pentad::comm {

/// True when MPI may be given device pointers. Asked once; PENTAD_GPU_AWARE_MPI=0 or 1 in the environment decides.
inline bool gpu_aware() {
    static bool const aware = [] {
        if (auto const forced = environment::gpu_aware_mpi()) return *forced;
#if defined(MPICH_VERSION) && defined(MPIX_GPU_SUPPORT_CUDA)
        int supported = 0;
        return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && supported != 0;
#else
        return false;
#endif
    }();
    return aware;
}

namespace detail {

/// True when the elements of a view lie in memory one after the other in row-major order, the order in which they
/// travel.
template <class V>
bool is_row_major(V const& view) {
    std::size_t stride = 1;
    for (std::size_t d = V::rank(); d-- > 0; stride *= view.extent(d))
        if (view.extent(d) > 1 && static_cast<std::size_t>(view.stride(d)) != stride) return false;
    return true;
}

/// Waits for the work that wrote a view.
template <class Exec>
[[gnu::noinline]] void fence_before(Exec const& exec) {
    exec.fence("pentad: before communication");
}

/// What MPI does with a view.
enum class Use { send, receive, both };

/// Memory that MPI can use in place of a view, for the life of this object.
template <class V>
class Staged {
  public:
    using T = typename V::non_const_value_type;
    using Space = typename V::memory_space;
    static constexpr bool always_contiguous =
        V::rank() <= 1 && !std::is_same_v<typename V::array_layout, Kokkos::LayoutStride>;
    static constexpr bool on_host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible;
    using HostSpace = std::conditional_t<on_host, Kokkos::HostSpace, Kokkos::SharedHostPinnedSpace>;
    static constexpr bool is_itself = always_contiguous && on_host; ///< MPI uses the view's own memory

    Staged() = default;
    /// Fences `exec`, whose work wrote the view; copies it when it is to be sent and cannot be sent as it is.
    template <class Exec>
    Staged(Exec const& exec, V const& view, Use use)
        : view_(view), pointer_(const_cast<T*>(view.data())), is_received_(use != Use::send) {
        if (observe::dry_run() != nullptr) return;
        if constexpr (std::is_same_v<Exec, Own> && !is_itself) copies_.exec.emplace(exec);
        [[maybe_unused]] bool const is_sent = use != Use::receive;
        if constexpr (!always_contiguous)
            if (!is_row_major(view)) {
                copies_.packed = memory::staging_pool<Space>().take(view.size() * sizeof(T));
                pointer_ = static_cast<T*>(copies_.packed.data());
                if (is_sent) memory::copy("pack", exec, runs(true), pointer_, view_.data());
            }
        fence_before(exec);
        if constexpr (!on_host)
            if (!gpu_aware() && view.size() > 0) {
                copies_.host = memory::staging_pool<HostSpace>().take(view.size() * sizeof(T));
                copies_.device = pointer_;
                pointer_ = static_cast<T*>(copies_.host.data());
                if (is_sent) memory::copy_to_host(exec, pointer_, copies_.device, view.size() * sizeof(T));
            }
    }
    [[nodiscard]] T* data() const { return pointer_; }
    [[nodiscard]] std::size_t size() const { return view_.size(); }
    /// Brings what was received to the view. Blocks until it is there.
    void unpack() {
        if (!is_received_) return;
        if constexpr (!on_host)
            if (copies_.device != nullptr) {
                memory::copy_from_host(exec(), copies_.device, pointer_, view_.size() * sizeof(T));
                pointer_ = copies_.device;
            }
        if constexpr (!std::is_const_v<typename V::value_type> && !always_contiguous)
            if (pointer_ != view_.data()) {
                auto const own = exec();
                memory::copy("unpack", own, runs(false), const_cast<T*>(view_.data()), pointer_);
                own.fence("pentad: after communication");
            }
    }

  private:
    /// The view's rows, to or from contiguous memory.
    [[nodiscard]] memory::Runs runs(bool packs) const {
        memory::Runs result(sizeof(T));
        std::size_t contiguous = sizeof(T);
        for (std::size_t d = V::rank(); d-- > 0; contiguous *= view_.extent(d)) {
            auto const stride = static_cast<std::size_t>(view_.stride(d)) * sizeof(T);
            result.add(view_.extent(d), packs ? contiguous : stride, packs ? stride : contiguous);
        }
        return result;
    }
    using Own = typename V::execution_space;
    Own exec() const { return copies_.exec ? *copies_.exec : Own(); }
    struct Copies {
        std::optional<Own> exec; ///< the caller's, unless it is of another kind than the view's
        T* device = nullptr;     ///< what `host` is a copy of
        memory::Buffer<Space> packed;
        memory::Buffer<HostSpace> host;
    };
    struct NoCopies {};

    V view_;
    T* pointer_ = nullptr;
    bool is_received_ = false;
    std::conditional_t<is_itself, NoCopies, Copies> copies_;
};

} // namespace detail
} // namespace pentad::comm
