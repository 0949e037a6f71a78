// Room: comm. Something under way, which goes on when it is asked to.
#pragma once

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
            return step();
        } catch (...) {
            failure_ = std::current_exception();
            return true;
        }
    }
    /// Throws what it failed with, if it did.
    void rethrow() const {
        if (failure_ != nullptr) std::rethrow_exception(failure_);
    }
    /// Before it is begun again.
    void forget_failure() { failure_ = nullptr; }

    /// What `advance` does. When it has thrown it is not called again.
    virtual bool step() = 0;

  private:
    std::exception_ptr failure_;
};

} // namespace pentad::comm
