// Schedules with something wrong in them: instructions that are swapped, moved, dropped, doubled or say something else.
#pragma once

#include <pentad/pipeline/schedule.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace test {

using pentad::pipeline::Instruction;
using pentad::pipeline::Operation;
using pentad::pipeline::Schedule;
using List = std::vector<Instruction>;

inline void erase(List& list, std::size_t at) { list.erase(list.begin() + static_cast<std::ptrdiff_t>(at)); }
inline void insert(List& list, std::size_t at, Instruction const& x) {
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), x);
}

class Mutator {
  public:
    explicit Mutator(unsigned seed) : draw_(seed) {}
    std::size_t below(std::size_t n) { return n == 0 ? 0 : draw_() % n; }

    void mutate(Schedule& schedule) {
        auto& list = schedule.instructions[below(schedule.instructions.size())];
        if (list.empty()) return;
        std::size_t const at = below(list.size());
        std::size_t const near = std::min(list.size() - 1, at + 1 + below(3));
        switch (below(8)) {
        case 0:
        case 1:
            std::swap(list[at], list[near]);
            break;
        case 2:
            std::swap(list[at], list[below(list.size())]);
            break;
        case 3:
        case 4: { // moved
            auto const moved = list[at];
            erase(list, at);
            insert(list, below(2) == 0 ? std::min(near, list.size()) : below(list.size() + 1), moved);
            break;
        }
        case 5:
            erase(list, at);
            break;
        case 6:
            insert(list, below(list.size() + 1), Instruction(list[at]));
            break;
        case 7:
            retarget(schedule, list, at);
        }
    }

  private:
    void retarget(Schedule& schedule, List& list, std::size_t at) {
        auto const near = [&](int limit) { return static_cast<int>(below(static_cast<std::size_t>(limit) + 2)) - 1; };
        auto& x = list[at];
        switch (below(5)) {
        case 0:
            x.stage = near(schedule.stages());
            break;
        case 1:
            x.micro_batch = near(schedule.micro_batches);
            break;
        case 2:
            x.slice = near(schedule.slices);
            break;
        case 3:
            x.operation = static_cast<Operation>(below(pentad::pipeline::operation_names.size()));
            break;
        case 4: { // to another rank
            auto const moved = x;
            erase(list, at);
            auto& other = schedule.instructions[below(schedule.instructions.size())];
            insert(other, below(other.size() + 1), moved);
        }
        }
    }

    std::mt19937 draw_;
};

} // namespace test
