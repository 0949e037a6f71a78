// The functions of <pentad/comm/detail/stack.hpp>.
#pragma once

#include <pentad/comm/detail/stack.hpp>

#include <pentad/mesh/inline.hpp>

#include <sys/mman.h>

#include <new>

#ifdef __has_feature
#define PENTAD_HAS_SANITIZER(name) __has_feature(name##_sanitizer)
#else
#define PENTAD_HAS_SANITIZER(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || PENTAD_HAS_SANITIZER(address)
#define PENTAD_ADDRESS_SANITIZER 1
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__) || PENTAD_HAS_SANITIZER(thread)
#define PENTAD_THREAD_SANITIZER 1
#include <sanitizer/tsan_interface.h>
#endif

namespace pentad::comm::detail {

PENTAD_INLINE Stack::Stack() {
    memory_ = mmap(nullptr, guard + bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory_, guard, PROT_NONE); // without it an overflow is not seen, and nothing else changes
    bottom_ = static_cast<char*>(memory_) + guard;
    size_ = bytes;
}

PENTAD_INLINE Stack::~Stack() {
    if (memory_ == nullptr) return;
#if PENTAD_THREAD_SANITIZER
    if (fiber_ != nullptr) __tsan_destroy_fiber(fiber_);
#endif
    munmap(memory_, guard + bytes);
}

PENTAD_INLINE void Stack::prepare(void (*entry)()) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = static_cast<char*>(memory_) + guard;
    context_.uc_stack.ss_size = bytes;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
#if PENTAD_THREAD_SANITIZER
    if (fiber_ != nullptr) __tsan_destroy_fiber(fiber_);
    fiber_ = __tsan_create_fiber(0);
#endif
}

PENTAD_INLINE void Stack::go(Stack& from, Stack& to, [[maybe_unused]] bool leaves) {
    to.from_ = &from;
#if PENTAD_THREAD_SANITIZER
    if (from.memory_ == nullptr) from.fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to.fiber_, 0);
#endif
#if PENTAD_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(leaves ? nullptr : &from.fake_, to.bottom_, to.size_);
#endif
    swapcontext(&from.context_, &to.context_);
    from.arrive();
}

PENTAD_INLINE void Stack::arrive() {
#if PENTAD_ADDRESS_SANITIZER
    void const* bottom = nullptr;
    std::size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_, &bottom, &size);
    if (from_->memory_ == nullptr) { // the bounds of the thread's own stack are told by whoever comes from it
        from_->bottom_ = bottom;
        from_->size_ = size;
    }
    fake_ = nullptr;
#endif
}

} // namespace pentad::comm::detail
