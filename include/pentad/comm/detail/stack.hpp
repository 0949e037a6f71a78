// A stack beside that of the thread, and the way from one to another.
#pragma once

#include <ucontext.h>

#include <cstddef>

namespace pentad::comm::detail {

/// Memory for a stack, taken when it is first used, below which an access faults; or, by default, the stack that the
/// thread came with.
class Stack {
  public:
    struct OfThread {};
    explicit Stack(OfThread) {}
    /// @throws std::bad_alloc
    Stack();
    Stack(Stack const&) = delete;
    Stack& operator=(Stack const&) = delete;
    ~Stack();

    /// The next switch to it begins `entry`, which does not return.
    void prepare(void (*entry)());
    /// Goes on where `to` was left, until something switches back to `from`.
    /// @param leaves for good: `from` is prepared again before it is used
    static void go(Stack& from, Stack& to, bool leaves = false);
    /// To be called first by an entry.
    void arrive();

  private:
    static constexpr std::size_t bytes = std::size_t{8} << 20, guard = std::size_t{64} << 10;

    ucontext_t context_{};
    void* memory_ = nullptr;
    // For sanitizers, which follow the stacks.
    [[maybe_unused]] Stack* from_ = nullptr;
    [[maybe_unused]] void* fake_ = nullptr;
    [[maybe_unused]] void const* bottom_ = nullptr;
    [[maybe_unused]] std::size_t size_ = 0;
    [[maybe_unused]] void* fiber_ = nullptr;
};

} // namespace pentad::comm::detail

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/stack.hpp>
#endif
