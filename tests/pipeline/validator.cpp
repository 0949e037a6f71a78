#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/validator.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace pentad::pipeline;

namespace {

using Lists = std::vector<std::vector<Instruction>>;

Schedule schedule_of(Lists lists, int micro_batches, std::vector<int> rank_of) {
    return {"by hand", Purpose::training, micro_batches, std::move(rank_of), std::move(lists)};
}

std::string refusal_of(Schedule const& schedule, Machine machine = {}) {
    auto const verdict = validate(schedule, machine);
    return verdict.refusal ? verdict.refusal->message() : "";
}

/// Runs one step by the rules that the validator promises, but written another way: any rank that can move moves, one
/// instruction at a time, drawn at random, and messages are held in queues that carry what was sent.
class Interpreter {
  public:
    Interpreter(Schedule const& schedule, int send_buffers, unsigned seed)
        : schedule_(schedule), send_buffers_(send_buffers), draw_(seed) {}

    /// True when every rank ends, and every backward saw its forward and, but on the last stage, the right gradient.
    bool completes_rightly() {
        std::vector<std::size_t> next(schedule_.instructions.size());
        for (;;) {
            std::vector<std::size_t> ready;
            bool ended = true;
            for (std::size_t rank = 0; rank < next.size(); ++rank) {
                if (next[rank] == schedule_.instructions[rank].size()) continue;
                ended = false;
                if (can_run(static_cast<int>(rank), schedule_.instructions[rank][next[rank]])) ready.push_back(rank);
            }
            if (ended) return right_ && everything_done();
            if (ready.empty() || !right_) return false;
            std::size_t const rank = ready[draw_() % ready.size()];
            run(static_cast<int>(rank), schedule_.instructions[rank][next[rank]++]);
        }
    }

  private:
    using Cell = std::pair<int, int>; // stage, micro-batch
    struct Posted {
        int from, to;
        bool activation;
        Cell cell; // of the receiving side, as the sender means it, or as the receiver takes it
        bool met;
    };

    int rank_of(int stage) const { return schedule_.rank_of.at(static_cast<std::size_t>(stage)); }
    bool exists(int stage) const { return stage >= 0 && stage < schedule_.stages(); }

    bool can_run(int rank, Instruction const& what) const {
        if (is_send(what.operation))
            return std::count_if(sends_.begin(), sends_.end(),
                                 [&](Posted const& send) { return send.from == rank && !send.met; }) < send_buffers_;
        if (!is_compute(what.operation)) return true;
        // A compute waits for a receive of its own that is posted and not met.
        bool const activation = what.operation == Operation::forward;
        return std::none_of(receives_.begin(), receives_.end(), [&](Posted const& receive) {
            return receive.to == rank && receive.activation == activation &&
                   receive.cell == Cell{what.stage, what.micro_batch} && !receive.met;
        });
    }

    void run(int rank, Instruction const& what) {
        Cell const here{what.stage, what.micro_batch};
        bool const here_at_all = exists(what.stage) && rank_of(what.stage) == rank && what.micro_batch >= 0 &&
                                 what.micro_batch < schedule_.micro_batches;
        if (!here_at_all) return fail();
        if (is_compute(what.operation)) return compute(what, here);
        int const peer = peer_stage(what);
        if (!exists(peer) || rank_of(peer) == rank) return fail();
        bool const activation = moves_activation(what.operation);
        if (is_send(what.operation)) {
            if (!(activation ? forward_ : backward_).contains(here)) return fail(); // nothing there to send
            sends_.push_back({rank, rank_of(peer), activation, {peer, what.micro_batch}, false});
        } else {
            receives_.push_back({rank_of(peer), rank, activation, here, false});
        }
        meet();
    }

    void meet() {
        for (Posted& send : sends_) {
            if (send.met) continue;
            for (Posted& receive : receives_) {
                if (receive.met || receive.from != send.from || receive.to != send.to ||
                    receive.activation != send.activation)
                    continue;
                send.met = receive.met = true; // the oldest of both: MPI's order
                auto& arrived = send.activation ? activations_ : gradients_;
                // What arrives is what was sent, under the name that the receiver gives it.
                if (receive.cell != send.cell || !arrived.insert(receive.cell).second) return fail();
                break;
            }
        }
    }

    void compute(Instruction const& what, Cell here) {
        int const before = what.stage - 1;
        int const after = what.stage + 1;
        if (what.operation == Operation::forward) {
            bool const fed = !exists(before) ||
                             (rank_of(before) == rank_of(what.stage) ? forward_.contains({before, what.micro_batch})
                                                                     : activations_.contains(here));
            if (!fed || !forward_.insert(here).second) fail();
        } else {
            bool const fed =
                !exists(after) || (rank_of(after) == rank_of(what.stage) ? backward_.contains({after, what.micro_batch})
                                                                         : gradients_.contains(here));
            if (!fed || !forward_.contains(here) || !backward_.insert(here).second) fail();
        }
    }

    bool everything_done() const {
        auto const all = static_cast<std::size_t>(schedule_.stages() * schedule_.micro_batches);
        auto const met = [](Posted const& posted) { return posted.met; };
        return forward_.size() == all && backward_.size() == all && std::all_of(sends_.begin(), sends_.end(), met) &&
               std::all_of(receives_.begin(), receives_.end(), met);
    }

    void fail() { right_ = false; }

    Schedule const& schedule_;
    int send_buffers_;
    std::mt19937 draw_;
    bool right_ = true;
    std::set<Cell> forward_, backward_, activations_, gradients_;
    std::vector<Posted> sends_, receives_;
};

constexpr auto F = Operation::forward;
constexpr auto B = Operation::backward;
constexpr auto SA = Operation::send_activation;
constexpr auto RA = Operation::receive_activation;
constexpr auto SG = Operation::send_gradient;
constexpr auto RG = Operation::receive_gradient;

} // namespace

TEST_CASE("a schedule by hand is accepted") {
    CHECK(refusal_of(schedule_of(
              {{{F, 0, 0}, {SA, 0, 0}, {RG, 0, 0}, {B, 0, 0}}, {{RA, 1, 0}, {F, 1, 0}, {B, 1, 0}, {SG, 1, 0}}}, 1,
              {0, 1})) == "");
    // Two stages on one rank hand over without messages.
    CHECK(refusal_of(schedule_of({{{F, 0, 0}, {F, 1, 0}, {B, 1, 0}, {B, 0, 0}}}, 1, {0, 0})) == "");
}

TEST_CASE("each class of fault is refused with the rank, the instruction and the reason") {
    Lists const right{{{F, 0, 0}, {SA, 0, 0}, {RG, 0, 0}, {B, 0, 0}}, {{RA, 1, 0}, {F, 1, 0}, {B, 1, 0}, {SG, 1, 0}}};
    auto const with = [&](int rank, int position, Instruction instruction) {
        auto lists = right;
        lists[static_cast<std::size_t>(rank)][static_cast<std::size_t>(position)] = instruction;
        return refusal_of(schedule_of(std::move(lists), 1, {0, 1}));
    };
    SUBCASE("misplaced") {
        CHECK(with(0, 0, {F, 1, 0}) == "rank 0: forward of micro-batch 0 on stage 1: that stage is on rank 1");
        CHECK(with(0, 0, {F, 2, 0}) == "rank 0: forward of micro-batch 0 on stage 2: there is no such stage");
        CHECK(with(0, 0, {F, 0, 1}) == "rank 0: forward of micro-batch 1 on stage 0: there is no such micro-batch");
        CHECK(with(0, 2, {RA, 0, 0}) ==
              "rank 0: receive-activation of micro-batch 0 on stage 0: that stage has no other rank to do this with");
        CHECK(with(1, 3, {SA, 1, 0}) ==
              "rank 1: send-activation of micro-batch 0 on stage 1: that stage has no other rank to do this with");
        CHECK(refusal_of(schedule_of(right, 1, {0, 7})) ==
              "rank 7: forward of micro-batch 0 on stage 1: the schedule has no such rank");
        auto inference = schedule_of(right, 1, {0, 1});
        inference.purpose = Purpose::inference;
        CHECK(refusal_of(inference) ==
              "rank 0: receive-gradient of micro-batch 0 on stage 0: that stage has no other rank to do this with");
    }
    SUBCASE("repeated") {
        CHECK(with(0, 1, {F, 0, 0}) == "rank 0: forward of micro-batch 0 on stage 0: is done twice");
    }
    SUBCASE("missing") {
        auto lists = right;
        lists[1].pop_back();
        CHECK(refusal_of(schedule_of(std::move(lists), 1, {0, 1})) ==
              "rank 1: send-gradient of micro-batch 0 on stage 1: is never done");
    }
    SUBCASE("disordered") {
        auto lists = right;
        std::swap(lists[1][0], lists[1][1]);
        CHECK(refusal_of(schedule_of(std::move(lists), 1, {0, 1})) ==
              "rank 1: forward of micro-batch 0 on stage 1: comes before the receive-activation");
        CHECK(refusal_of(schedule_of({{{F, 1, 0}, {F, 0, 0}, {B, 1, 0}, {B, 0, 0}}}, 1, {0, 0})) ==
              "rank 0: forward of micro-batch 0 on stage 1: comes before the forward of micro-batch 0 on stage 0");
    }
    SUBCASE("mismatched") {
        auto schedule = gpipe(2, 2);
        std::swap(schedule.instructions[1][0].micro_batch,
                  schedule.instructions[1][2].micro_batch); // <a1 F0 <a0 F1 ...
        std::swap(schedule.instructions[1][1].micro_batch,
                  schedule.instructions[1][3].micro_batch); // <a1 F1 <a0 F0 ...
        CHECK(refusal_of(schedule) == "rank 1: receive-activation of micro-batch 1 on stage 1: is met by the "
                                      "send-activation of micro-batch 0 on stage 0 of rank 0");
    }
}

TEST_CASE("a schedule that needs more send buffers than the machine has is refused as a deadlock, and only then") {
    // Rank 0 runs ahead of rank 1 by one micro-batch: when its second send waits, rank 1 still has a free buffer for
    // the gradient, so it comes to the receive that ends the wait.
    Schedule const schedule =
        schedule_of({{{F, 0, 0}, {SA, 0, 0}, {F, 0, 1}, {SA, 0, 1}, {RG, 0, 0}, {B, 0, 0}, {RG, 0, 1}, {B, 0, 1}},
                     {{RA, 1, 0}, {F, 1, 0}, {B, 1, 0}, {SG, 1, 0}, {RA, 1, 1}, {F, 1, 1}, {B, 1, 1}, {SG, 1, 1}}},
                    2, {0, 1});
    // Ahead by three, rank 0 waits to send the fourth activation and rank 1 to send the second gradient.
    Schedule const crossed = schedule_of({{{F, 0, 0},
                                           {SA, 0, 0},
                                           {F, 0, 1},
                                           {SA, 0, 1},
                                           {F, 0, 2},
                                           {SA, 0, 2},
                                           {F, 0, 3},
                                           {SA, 0, 3},
                                           {RG, 0, 0},
                                           {B, 0, 0},
                                           {RG, 0, 1},
                                           {B, 0, 1},
                                           {RG, 0, 2},
                                           {B, 0, 2},
                                           {RG, 0, 3},
                                           {B, 0, 3}},
                                          {{RA, 1, 0},
                                           {F, 1, 0},
                                           {B, 1, 0},
                                           {SG, 1, 0},
                                           {RA, 1, 1},
                                           {F, 1, 1},
                                           {B, 1, 1},
                                           {SG, 1, 1},
                                           {RA, 1, 2},
                                           {F, 1, 2},
                                           {B, 1, 2},
                                           {SG, 1, 2},
                                           {RA, 1, 3},
                                           {F, 1, 3},
                                           {B, 1, 3},
                                           {SG, 1, 3}}},
                                         4, {0, 1});
    CHECK(refusal_of(crossed) == "rank 0: send-activation of micro-batch 3 on stage 0: waits for ever for a send "
                                 "buffer; rank 1 in send-gradient of micro-batch 1 on stage 1");
    CHECK(validate(crossed).refusal->fault == Fault::deadlocked);
    CHECK(refusal_of(crossed, {.send_buffers = 2}) == "");
}

TEST_CASE("messages of two stages between the same ranks are told apart by their order") {
    Lists lists{{{F, 0, 0},
                 {SA, 0, 0},
                 {RA, 2, 0},
                 {F, 2, 0},
                 {SA, 2, 0},
                 {RG, 2, 0},
                 {B, 2, 0},
                 {SG, 2, 0},
                 {RG, 0, 0},
                 {B, 0, 0}},
                {{RA, 1, 0},
                 {F, 1, 0},
                 {SA, 1, 0},
                 {RA, 3, 0},
                 {F, 3, 0},
                 {B, 3, 0},
                 {SG, 3, 0},
                 {RG, 1, 0},
                 {B, 1, 0},
                 {SG, 1, 0}}};
    auto const verdict = validate(schedule_of(lists, 1, {0, 1, 0, 1}));
    CHECK(!verdict.refusal);
    CHECK(verdict.peak_in_flight == std::vector{2, 2});
    std::swap(lists[1][0], lists[1][3]);
    std::swap(lists[1][1], lists[1][3]); // <a0@3 <a0@1 >a0@1 F0@1: out of order on the rank itself
    CHECK(validate(schedule_of(lists, 1, {0, 1, 0, 1})).refusal->fault == Fault::disordered);
    std::swap(lists[1][2], lists[1][3]); // <a0@3 <a0@1 F0@1 >a0@1
    CHECK(refusal_of(schedule_of(lists, 1, {0, 1, 0, 1})) ==
          "rank 1: receive-activation of micro-batch 0 on stage 3: is met by the send-activation of micro-batch 0 on "
          "stage 0 of rank 0");
}

TEST_CASE("stages in a ring of ranks wait for each other for ever where the order says so") {
    // Stages 0 and 2 on rank 0, stage 1 on rank 1: rank 0 wants to finish stage 2 of micro-batch 0 before it sends.
    CHECK(refusal_of(
              schedule_of({{{F, 0, 0}, {RA, 2, 0}, {F, 2, 0}, {SA, 0, 0}, {B, 2, 0}, {SG, 2, 0}, {RG, 0, 0}, {B, 0, 0}},
                           {{RA, 1, 0}, {F, 1, 0}, {SA, 1, 0}, {RG, 1, 0}, {B, 1, 0}, {SG, 1, 0}}},
                          1, {0, 1, 0})) == "rank 0: forward of micro-batch 0 on stage 2: waits for ever for what it "
                                            "receives; rank 1 in forward of micro-batch 0 on stage 1");
}

TEST_CASE("every dropped and every doubled instruction is refused") {
    for (auto const& schedule :
         {gpipe(3, 4), one_forward_one_backward(3, 4), one_forward_one_backward(4, 2), gpipe(1, 3)})
        for (std::size_t rank = 0; rank < schedule.instructions.size(); ++rank)
            for (std::size_t position = 0; position < schedule.instructions[rank].size(); ++position) {
                auto dropped = schedule;
                auto& list = dropped.instructions[rank];
                list.erase(list.begin() + static_cast<std::ptrdiff_t>(position));
                CHECK(validate(dropped).refusal);
                for (std::size_t again = 0; again <= schedule.instructions[rank].size(); ++again) {
                    auto doubled = schedule;
                    auto& target = doubled.instructions[rank];
                    target.insert(target.begin() + static_cast<std::ptrdiff_t>(again),
                                  schedule.instructions[rank][position]);
                    CHECK(validate(doubled).refusal);
                }
            }
}

TEST_CASE("a mutated schedule is refused, or runs to the right end in any order of events") {
    std::mt19937 draw(20261);
    std::set<Fault> seen;
    int accepted = 0;
    int misjudged = 0;
    for (int trial = 0; trial < 20000; ++trial) {
        int const stages = 2 + static_cast<int>(draw() % 3);
        int const micro_batches = 1 + static_cast<int>(draw() % 4);
        auto mutant = draw() % 2 == 0 ? gpipe(stages, micro_batches) : one_forward_one_backward(stages, micro_batches);
        for (auto mutations = 1 + draw() % 3; mutations > 0; --mutations) {
            auto& list = mutant.instructions[draw() % mutant.instructions.size()];
            if (list.empty()) continue;
            auto const at = static_cast<std::ptrdiff_t>(draw() % list.size());
            auto const other = static_cast<std::ptrdiff_t>(draw() % list.size());
            switch (draw() % 5) {
            case 0:
                std::swap(list[static_cast<std::size_t>(at)], list[static_cast<std::size_t>(other)]);
                break;
            case 1: { // moved
                auto const moved = list[static_cast<std::size_t>(at)];
                list.erase(list.begin() + at);
                list.insert(list.begin() + std::min(other, static_cast<std::ptrdiff_t>(list.size())), moved);
                break;
            }
            case 2:
                list.erase(list.begin() + at);
                break;
            case 3:
                list.insert(list.begin() + other, Instruction(list[static_cast<std::size_t>(at)]));
                break;
            case 4: { // retargeted
                auto& target = list[static_cast<std::size_t>(at)];
                (draw() % 2 == 0 ? target.stage : target.micro_batch) = static_cast<int>(draw() % 5) - 1;
                break;
            }
            }
        }
        auto const verdict = validate(mutant, {.send_buffers = 1, .steps = 1});
        if (verdict.refusal)
            seen.insert(verdict.refusal->fault);
        else
            ++accepted;
        bool right = true;
        for (unsigned seed = 0; seed < 3; ++seed) right = right && Interpreter(mutant, 1, seed).completes_rightly();
        misjudged += right == verdict.refusal.has_value() ? 1 : 0;
    }
    CHECK(misjudged == 0);
    CHECK(accepted > 500);
    CHECK(seen == std::set{Fault::misplaced, Fault::repeated, Fault::missing, Fault::disordered, Fault::mismatched,
                           Fault::deadlocked});
}

TEST_CASE("a schedule of 256 stages and 1,024 micro-batches is proven") {
    auto const verdict = validate(one_forward_one_backward(256, 1024));
    CHECK(!verdict.refusal);
    CHECK(verdict.peak_in_flight.front() == 256);
}
