// The order of matrices in a stack, such as the weights of a layer's experts, which are numbered, dealt to ranks in
// order, and may change places.
#pragma once

#include <pentad/layout/element.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad {

/// The number of the matrix at each place of a stack.
class StackOrder {
  public:
    explicit StackOrder(std::size_t matrices) : now_(matrices) {
        std::iota(now_.begin(), now_.end(), 0);
        next_ = now_;
    }
    [[nodiscard]] std::span<i32 const> now() const { return now_; }
    /// The order after the planned move; now() where none is planned.
    [[nodiscard]] std::span<i32 const> next() const { return next_; }
    [[nodiscard]] bool moves() const { return now_ != next_; }
    [[nodiscard]] bool is_by_number() const { return std::ranges::is_sorted(now_); }
    /// The place of each matrix, by its number.
    [[nodiscard]] static std::vector<i32> places(std::span<i32 const> order) {
        std::vector<i32> places(order.size());
        for (std::size_t place = 0; place < order.size(); ++place)
            places[static_cast<std::size_t>(order[place])] = static_cast<i32>(place);
        return places;
    }

    /// Whether `order` has each number from 0 to matrices - 1 once.
    [[nodiscard]] static bool is_order(std::span<i32 const> order, std::size_t matrices) {
        std::vector<bool> seen(matrices);
        if (order.size() != matrices) return false;
        for (i32 const number : order) {
            auto const at = static_cast<std::size_t>(number);
            if (number < 0 || at >= matrices || seen[at]) return false;
            seen[at] = true;
        }
        return true;
    }

    /// Plans a move. @throws std::invalid_argument where `order` does not have each number once
    void plan(std::span<i32 const> order) {
        if (!is_order(order, now_.size()))
            throw std::invalid_argument("an order of " + std::to_string(now_.size()) +
                                        " matrices has each of their numbers once");
        next_.assign(order.begin(), order.end());
    }
    /// The matrices have moved.
    void arrive() { now_ = next_; }

  private:
    std::vector<i32> now_, next_;
};

} // namespace pentad
