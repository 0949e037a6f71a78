// Where tensors live and work is done: the communicators of the mesh, an execution space instance, and
// the pools that buffers come from.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/memory/driving_thread.hpp>
#include <pentad/memory/pool.hpp>
#include <pentad/observe/counters.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <utility>

namespace pentad {

/// Shared by all tensors of a program; outlives them, and ends before Kokkos and MPI do. All work on its tensors is
/// submitted to its one execution space instance, in order, by one host thread.
template <class Exec = Kokkos::DefaultExecutionSpace>
class Context {
  public:
    using execution_space = Exec;
    using memory_space = typename Exec::memory_space;

    explicit Context(comm::Communicators& communicators, Exec exec = Exec())
        : communicators_(&communicators), exec_(std::move(exec)) {}
    Context(Context const&) = delete;
    Context& operator=(Context const&) = delete;

    [[nodiscard]] comm::Communicators& communicators() const { return *communicators_; }
    [[nodiscard]] Exec const& exec() const { return exec_; }
    /// The ranks along axes, major to minor: along<rows, columns>(). Along several axes the first use is collective
    /// over their group. @throws std::invalid_argument where the mesh has no such axis
    template <AxisTag... A>
    [[nodiscard]] comm::Communicator const& along() const {
        return communicators_->along(AxisNames(A::name...));
    }
    /// The ranks along an axis.
    template <AxisTag A>
    [[nodiscard]] int extent() const {
        return communicators_->extent(A::name);
    }
    /// This rank's place along an axis.
    template <AxisTag A>
    [[nodiscard]] int coordinate() const {
        return communicators_->coordinate(A::name);
    }
    /// A buffer of `bytes` bytes, uninitialised, counted under `kind`.
    /// @throws std::logic_error on a second host thread
    [[nodiscard]] memory::Buffer<memory_space> take(std::size_t bytes,
                                                    observe::Memory kind = observe::Memory::activations) const {
        memory::require_driving_thread();
        return pools_[static_cast<std::size_t>(kind)].take(bytes);
    }
    /// Where activations are.
    [[nodiscard]] memory::Pool<memory_space>& activations() const {
        return pools_[static_cast<std::size_t>(observe::Memory::activations)];
    }

  private:
    static constexpr std::size_t kinds = observe::memory_names.size();
    template <std::size_t... Kind>
    static std::array<memory::Pool<memory_space>, kinds> pools(std::index_sequence<Kind...>) {
        return {memory::Pool<memory_space>(static_cast<observe::Memory>(Kind))...};
    }

    comm::Communicators* communicators_;
    Exec exec_;
    mutable std::array<memory::Pool<memory_space>, kinds> pools_ = pools(std::make_index_sequence<kinds>());
};

/// A mesh that the compiler does not know: what does not fit is found when a tensor is made.
struct AnyMesh;

/// A context whose mesh the compiler knows: a tensor made from it has the mesh in its type, and does not compile where
/// its layout names an axis that the mesh lacks, or has a static extent that static axes do not divide.
template <class M, class Exec = Kokkos::DefaultExecutionSpace>
class MeshContext : public Context<Exec> {
  public:
    /// @throws std::invalid_argument when the communicators are not those of `mesh`
    MeshContext(comm::Communicators& communicators, M const& mesh, Exec exec = Exec())
        : Context<Exec>(communicators, std::move(exec)) {
        auto const same = [](MeshAxisValue const& a, MeshAxisValue const& b) {
            return a.name == b.name && a.extent == b.extent && a.stride == b.stride &&
                   a.major_extent == b.major_extent && a.major_stride == b.major_stride;
        };
        auto const made = communicators.mesh();
        if (!std::equal(made.begin(), made.end(), mesh.axes().begin(), mesh.axes().end(), same))
            throw std::invalid_argument("the context has another mesh than its communicators");
    }

    /// As those of a Context; axes that the mesh lacks do not compile.
    template <AxisTag... A>
    [[nodiscard]] comm::Communicator const& along() const {
        static_assert((M::template has<A> && ...), "pentad: this mesh has no such axis");
        return Context<Exec>::template along<A...>();
    }
    template <AxisTag A>
    [[nodiscard]] int extent() const {
        static_assert(M::template has<A>, "pentad: this mesh has no such axis");
        return Context<Exec>::template extent<A>();
    }
    template <AxisTag A>
    [[nodiscard]] int coordinate() const {
        static_assert(M::template has<A>, "pentad: this mesh has no such axis");
        return Context<Exec>::template coordinate<A>();
    }
};

} // namespace pentad
