// What a recurrent layer needs along a sequence that is sharded over cp.
#pragma once

#include <pentad/context/carry.hpp>
#include <pentad/context/halo.hpp>

namespace pentad::context {

/// States and the last tokens of the ranks before. A layer takes it as a parameter, as attention takes a strategy.
struct Recurrence {
    template <class T>
    using States = HeadStates<accumulator_t<T>>;
    template <class State, class Exec>
    using Carry = context::Carry<State, Exec>;
    template <class X, class Exec>
    using Halo = context::Halo<X, Exec>;
};

} // namespace pentad::context
