// Small arrays on the host, such as counts: from a pool, so that they can be made anew in every step.
#pragma once

#include <pentad/memory/pool.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

namespace pentad::memory {

/// n elements on the host, which copies share.
template <class T>
class HostArray {
    static_assert(std::is_trivially_copyable_v<T>);

  public:
    HostArray() = default;
    /// Uninitialised.
    explicit HostArray(std::size_t n) : block_(staging_pool<Kokkos::HostSpace>().take(n * sizeof(T))), size_(n) {}
    HostArray(std::size_t n, T value) : HostArray(n) { std::fill_n(data(), n, value); }

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] T* data() const { return static_cast<T*>(block_.data()); }
    [[nodiscard]] T& operator[](std::size_t i) const { return data()[i]; }
    [[nodiscard]] std::span<T> span() const { return {data(), size_}; }

  private:
    Buffer<Kokkos::HostSpace> block_;
    std::size_t size_ = 0;
};

} // namespace pentad::memory
