// Something under way, which goes on when it is asked to.
#pragma once

#include <pentad/observe/trace.hpp>

#include <cstdint>
#include <exception>

namespace pentad::comm {

/// An operation of the library's own. It is used again when it is complete.
class Pending {
  public:
    Pending() = default;
    Pending(Pending const&) = delete;
    Pending& operator=(Pending const&) = delete;
    virtual ~Pending() = default;

    /// Does what can be done without waiting. True when it is complete, or has failed, of which `rethrow` tells whoever
    /// waits for it: nobody else is to hear of it.
    bool advance() noexcept {
        if (failure_ != nullptr) return true;
        try {
            if (!step()) return false;
        } catch (...) {
            failure_ = std::current_exception();
        }
        if (completed_ns_ == 0 && observe::trace().enabled()) completed_ns_ = observe::trace().now();
        return true;
    }
    /// When it was seen to be complete, in the time of the trace; 0 while there is none.
    [[nodiscard]] std::int64_t completed_ns() const { return completed_ns_; }
    /// Throws what it failed with, if it did.
    void rethrow() const {
        if (failure_ != nullptr) std::rethrow_exception(failure_);
    }
    /// Before it is begun again.
    void forget() {
        failure_ = nullptr;
        completed_ns_ = 0;
    }

    /// What `advance` does. When it has thrown it is not called again.
    virtual bool step() = 0;

  private:
    std::exception_ptr failure_;
    std::int64_t completed_ns_ = 0;
};

} // namespace pentad::comm
