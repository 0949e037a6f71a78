// Computations of one thread that take turns: where one has begun an exchange and would wait for it, the next goes on.
// So the micro-batches of a pair compute beside each other's exchanges.
#pragma once

#include <pentad/comm/detail/stack.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <type_traits>
#include <vector>

namespace pentad::comm {

/// Turns are taken in order, whatever the exchanges take: ranks that run the same computations begin the same
/// exchanges in the same order, over the same communicators. For the thread that drives Pentad.
class Turns {
  public:
    Turns(Turns const&) = delete;
    Turns& operator=(Turns const&) = delete;

    /// Calls f(0), ..., f(count - 1), which take turns, and returns when all have. Within one of them, one after the
    /// other: the exchanges are then hidden by the others already.
    /// @throws what one of them has thrown; the others have been unwound then
    template <class F>
    void take(std::size_t count, F&& f) {
        if (count < 2 || is_on()) {
            for (std::size_t i = 0; i < count; ++i) f(i);
            return;
        }
        using Function = std::remove_reference_t<F>;
        run(count, [](void* function, std::size_t i) { (*static_cast<Function*>(function))(i); }, &f);
    }
    /// Whether another computation can go on while this one waits.
    [[nodiscard]] bool is_on() const { return count_ > 0 && holds_ == 0; }
    /// Lets the others have their turns.
    void give_way();

    /// While it lives, the computation that made it keeps its turn.
    class [[nodiscard]] Hold {
      public:
        explicit Hold(Turns& turns) : turns_(&turns) { ++turns.holds_; }
        Hold(Hold const&) = delete;
        Hold& operator=(Hold const&) = delete;
        ~Hold() { --turns_->holds_; }

      private:
        Turns* turns_;
    };

  private:
    friend Turns& turns();
    Turns() = default;

    using Call = void (*)(void* function, std::size_t i);
    enum class State { waiting, begun, over };
    struct Lane {
        std::unique_ptr<detail::Stack> stack; ///< none: that of the caller
        State state = State::waiting;
    };
    struct Cancelled {}; ///< unwinds the others when one has failed

    void run(std::size_t count, Call call, void* function);
    void enter();
    void go_to(std::size_t lane);
    /// The next that has not ended, after this one; 0 where there is none.
    [[nodiscard]] std::size_t next() const;

    std::vector<Lane> lanes_; ///< kept, with their stacks
    std::size_t count_ = 0, current_ = 0;
    int holds_ = 0;
    Call call_ = nullptr;
    void* function_ = nullptr;
    std::exception_ptr failure_;
};

/// The turns of this process.
inline Turns& turns() {
    static Turns instance;
    return instance;
}

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/turns.hpp>
#endif
