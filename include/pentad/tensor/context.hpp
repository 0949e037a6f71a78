// Where tensors live and work is done: the communicators of the mesh, an execution space instance, and
// the pools that buffers come from.
#pragma once

#include <pentad/comm/communicator.hpp>
#include <pentad/memory/pool.hpp>
#include <pentad/observe/counters.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>

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
    /// A buffer of `bytes` bytes, uninitialised, counted under `kind`.
    [[nodiscard]] memory::Buffer<memory_space> take(std::size_t bytes,
                                                    observe::Memory kind = observe::Memory::activations) const {
        return pools_[static_cast<std::size_t>(kind)].take(bytes);
    }

  private:
    comm::Communicators* communicators_;
    Exec exec_;
    mutable std::array<memory::Pool<memory_space>, 5> pools_{
        memory::Pool<memory_space>(observe::Memory::parameters), memory::Pool<memory_space>(observe::Memory::gradients),
        memory::Pool<memory_space>(observe::Memory::optimizer),
        memory::Pool<memory_space>(observe::Memory::activations),
        memory::Pool<memory_space>(observe::Memory::communication)};
};

} // namespace pentad
