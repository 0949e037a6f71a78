// The functions of <pentad/comm/turns.hpp>.
#pragma once

#include <pentad/comm/turns.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/observe/trace.hpp>

#include <utility>

namespace pentad::comm {

PENTAD_INLINE void Turns::run(std::size_t count, Call call, void* function) {
    while (lanes_.size() < count)
        lanes_.push_back({lanes_.empty() ? std::make_unique<detail::Stack>(detail::Stack::OfThread())
                                         : std::make_unique<detail::Stack>()});
    for (std::size_t i = 0; i < count; ++i) {
        lanes_[i].state = i == 0 ? State::begun : State::waiting;
        if (i > 0) lanes_[i].stack->prepare([] { turns().enter(); });
    }
    count_ = count;
    call_ = call;
    function_ = function;
    try {
        call(function, 0);
    } catch (Cancelled const&) { // for what another has thrown
    } catch (...) {
        failure_ = std::current_exception();
    }
    lanes_[0].state = State::over;
    while (auto const lane = next()) {
        if (failure_ != nullptr && lanes_[lane].state == State::waiting)
            lanes_[lane].state = State::over;
        else
            go_to(lane);
    }
    count_ = 0;
    if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

PENTAD_INLINE void Turns::enter() {
    Lane& lane = lanes_[current_];
    lane.stack->arrive();
    lane.state = State::begun;
    try {
        call_(function_, current_);
    } catch (Cancelled const&) {
    } catch (...) {
        if (failure_ == nullptr) failure_ = std::current_exception();
    }
    lane.state = State::over;
    go_to(failure_ != nullptr ? 0 : next());
}

PENTAD_INLINE std::size_t Turns::next() const {
    for (std::size_t step = 1; step < count_; ++step)
        if (auto const lane = (current_ + step) % count_; lanes_[lane].state != State::over) return lane;
    return 0;
}

PENTAD_INLINE void Turns::go_to(std::size_t lane) {
    auto const from = std::exchange(current_, lane);
    observe::trace().set_lane(static_cast<int>(lane));
    detail::Stack::go(*lanes_[from].stack, *lanes_[lane].stack, from > 0 && lanes_[from].state == State::over);
}

PENTAD_INLINE void Turns::give_way() {
    if (!is_on()) return;
    auto const lane = next();
    if (lane == current_ || lanes_[lane].state == State::over) return;
    go_to(lane);
    if (failure_ != nullptr) throw Cancelled{};
}

} // namespace pentad::comm
