// Runs a schedule on numbers that stand for tensors, by the rules that its floor promises, but written apart from the
// validator: ranks move one instruction at a time in a random order, messages are queues, and what a compute makes is a
// hash of all that it saw. The truth is the same model run serially, without a schedule.
#pragma once

#include <pentad/pipeline/schedule.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

namespace test {

using Value = std::uint64_t;

template <class... Parts>
Value hash(Parts... parts) {
    Value value = 0x9e3779b97f4a7c15u;
    ((value = (value ^ static_cast<Value>(parts)) * 0xbf58476d1ce4e5b9u, value ^= value >> 31), ...);
    return value;
}

/// What training leaves behind: for each stage, the gradients that the caller is left with in each step, and the
/// weights. Inference leaves losses, as if they were the last stage's gradients.
struct Trained {
    std::vector<std::vector<Value>> gradients; ///< [step][stage], sums over micro-batches and copies
    std::vector<Value> weights;                ///< after the last step
    friend bool operator==(Trained const&, Trained const&) = default;
};

/// The model: what a stage makes of what it sees. Slices see the slices before them, gradients those after them.
struct Model {
    static Value weights(int stage) { return hash(1, stage); }
    static Value token(int step, int i, int slice) { return hash(2, step, i, slice); }
    static Value activation(Value weights, Value input, Value earlier, int i) { // knows which micro-batch it is for
        return hash(3, weights, input, earlier, i);
    }
    static Value loss(Value activation, int i, int slice) { return hash(4, activation, i, slice); } // has targets
    static Value gradient(Value weights, Value saved, Value gradient, Value later) {
        return hash(5, weights, saved, gradient, later);
    }
    static Value summand(Value input, Value gradient, Value later) { return hash(6, input, gradient, later); }
    static Value stepped(Value weights, Value gradients) { return hash(7, weights, gradients); }
};

/// Where two ranks have copies of a stage, its optimizer step is left out of the model and its gradients are recorded.
inline bool steps_weights(pentad::pipeline::Schedule const& s) { return s.updates > 0 && s.placements.size() == 1; }

/// Trains serially. Weights that are several updates old are what the schedule's delay says and nothing else of it.
inline Trained train_serially(pentad::pipeline::Schedule const& s, int steps) {
    auto const at = [](int n) { return static_cast<std::size_t>(n); };
    int const rounds = s.updates > 0 ? s.updates : 1;
    int const group = s.micro_batches / rounds;
    Trained result;
    for (int stage = 0; stage < s.stages(); ++stage) result.weights.push_back(Model::weights(stage));
    for (int step = 0; step < steps; ++step) {
        std::vector<std::vector<Value>> history(at(s.stages())); // [stage][version]
        for (int stage = 0; stage < s.stages(); ++stage) history[at(stage)].push_back(result.weights[at(stage)]);
        std::vector<Value> sums(at(s.stages()));
        for (int i = 0; i < s.micro_batches; ++i) {
            auto const weights = [&](int stage) {
                int const version = i / group - (s.delay.empty() ? 0 : s.delay[at(stage)]);
                return history[at(stage)][at(version < 0 ? 0 : version)];
            };
            std::vector<std::vector<Value>> made(at(s.stages()), std::vector<Value>(at(s.slices)));
            auto const input = [&](int stage, int k) {
                return stage == 0 ? Model::token(step, i, k) : made[at(stage - 1)][at(k)];
            };
            for (int k = 0; k < s.slices; ++k)
                for (int stage = 0; stage < s.stages(); ++stage)
                    made[at(stage)][at(k)] =
                        Model::activation(weights(stage), input(stage, k), k == 0 ? 0 : made[at(stage)][at(k - 1)], i);
            if (s.purpose == pentad::pipeline::Purpose::inference) {
                for (int k = 0; k < s.slices; ++k) sums.back() += Model::loss(made.back()[at(k)], i, k);
                continue;
            }
            std::vector<Value> later(at(s.stages()));
            for (int k = s.slices - 1; k >= 0; --k) {
                Value gradient = Model::loss(made.back()[at(k)], i, k);
                for (int stage = s.stages() - 1; stage >= 0; --stage) {
                    sums[at(stage)] += Model::summand(input(stage, k), gradient, later[at(stage)]);
                    gradient = Model::gradient(weights(stage), made[at(stage)][at(k)], gradient, later[at(stage)]);
                    later[at(stage)] = gradient;
                }
            }
            if (steps_weights(s) && (i + 1) % group == 0)
                for (int stage = 0; stage < s.stages(); ++stage) {
                    auto& versions = history[at(stage)];
                    versions.push_back(Model::stepped(versions.back(), sums[at(stage)]));
                    sums[at(stage)] = 0;
                }
        }
        result.gradients.push_back(sums);
        for (int stage = 0; stage < s.stages(); ++stage) result.weights[at(stage)] = history[at(stage)].back();
    }
    return result;
}

class Interpreter {
  public:
    Interpreter(pentad::pipeline::Schedule const& schedule, std::size_t send_buffers, int steps, unsigned seed)
        : s_(schedule), send_buffers_(send_buffers), steps_(steps), draw_(seed) {}

    /// Nothing when a rank waits for ever, uses something that is not there, or leaves a message behind.
    std::optional<Trained> run() {
        ranks_.resize(at(s_.ranks()));
        for (auto& rank : ranks_) {
            rank.cells.resize(at(s_.stages() * s_.micro_batches * s_.slices));
            rank.stages.resize(at(s_.stages()));
            for (int stage = 0; stage < s_.stages(); ++stage) rank.stages[at(stage)].weights = {Model::weights(stage)};
        }
        result_.gradients.assign(at(steps_), std::vector<Value>(at(s_.stages())));
        std::vector<int> moving(at(s_.ranks()));
        for (int rank = 0; rank < s_.ranks(); ++rank) moving[at(rank)] = rank;
        while (!moving.empty()) { // a rank that cannot move now may when another has moved
            bool moved = false;
            for (std::size_t left = moving.size(); left > 0 && !moved; --left) {
                std::swap(moving[draw_() % left], moving[left - 1]);
                int const rank = moving[left - 1];
                moved = move(rank);
                if (!right_) return std::nullopt;
                if (ranks_[at(rank)].step == steps_)
                    moving.erase(moving.begin() + static_cast<std::ptrdiff_t>(left - 1));
            }
            if (!moved) return std::nullopt;
        }
        for (auto const& [key, line] : lines_)
            if (line.sent.size() != line.received) return std::nullopt;
        for (int stage = 0; stage < s_.stages(); ++stage) result_.weights.push_back(final_weights(stage));
        return result_;
    }

  private:
    using Instruction = pentad::pipeline::Instruction;
    using Operation = pentad::pipeline::Operation;
    using Optional = std::optional<Value>;

    struct Line {
        std::deque<Value> sent;
        std::size_t received = 0;
    };
    struct Cell {
        Optional activation, gradient, input, kept, owed; // kept: what backward reads; owed: a gradient for the weights
        Value earlier = 0, later = 0;                     // of the slice before, and of the one after
        Line* lines[2] = {nullptr, nullptr};              // of its receives, activation and gradient
        std::size_t numbers[2] = {0, 0};
    };
    struct Stage {
        std::deque<Value> weights; // the newest last
        int updates = 0;
        Value sum = 0;
        bool summed = false, gathered = false;
    };
    struct Rank {
        std::size_t next = 0;
        int step = 0;
        std::vector<Cell> cells;
        std::vector<Stage> stages;
        std::vector<std::pair<Line*, std::size_t>> sending;
    };

    static std::size_t at(int n) { return static_cast<std::size_t>(n); }
    bool inference() const { return s_.purpose == pentad::pipeline::Purpose::inference; }
    Cell& cell(int rank, int stage, int i, int slice) {
        return ranks_[at(rank)].cells[at((stage * s_.micro_batches + i) * s_.slices + slice)];
    }
    int home(int stage, int i) const { return s_.placements[at(i) % s_.placements.size()][at(stage)]; }
    void fail() { right_ = false; }

    bool move(int number) {
        Rank& rank = ranks_[at(number)];
        auto const& list = s_.instructions[at(number)];
        if (rank.next < list.size()) {
            if (!execute(number, list[rank.next])) return false;
            ++rank.next;
        }
        if (rank.next == list.size()) end_step(rank);
        return true;
    }
    void end_step(Rank& rank) {
        for (int stage = 0; stage < s_.stages(); ++stage) {
            Stage& mine = rank.stages[at(stage)];
            bool const has = s_.has_stage(static_cast<int>(&rank - ranks_.data()), stage);
            if (has && mine.updates != s_.updates) fail();
            if (has && s_.reduces && s_.updates == 0 && !mine.summed) fail();
            if (has && s_.gathers && !mine.gathered) fail();
            result_.gradients[at(rank.step)][at(stage)] += mine.sum;
            Value const newest = mine.weights.back();
            mine = {};
            mine.weights = {newest};
        }
        rank.cells.assign(rank.cells.size(), {});
        rank.next = 0;
        ++rank.step;
    }
    Value final_weights(int stage) { return ranks_[at(s_.placements[0][at(stage)])].stages[at(stage)].weights.back(); }

    /// False when it has to wait.
    bool execute(int number, Instruction const& x) {
        bool const of_update = x.operation >= Operation::gather_parameters;
        bool const exists = x.stage >= 0 && x.stage < s_.stages() && x.micro_batch >= 0 && x.slice >= 0 &&
                            (of_update || (x.micro_batch < s_.micro_batches && x.slice < s_.slices &&
                                           home(x.stage, x.micro_batch) == number));
        if (!exists) return fail(), true;
        if (of_update) return update(number, x), true;
        Cell& mine = cell(number, x.stage, x.micro_batch, x.slice);
        switch (x.operation) {
        case Operation::forward:
            return forward(number, x, mine);
        case Operation::recompute:
            if (Optional const by = weights(number, x); by && mine.activation)
                mine.kept = Model::activation(*by, *mine.input, mine.earlier, x.micro_batch);
            else
                fail();
            return true;
        case Operation::backward:
        case Operation::backward_data:
            return backward(number, x, mine);
        case Operation::backward_weight:
            if (!mine.owed || !mine.input) return fail(), true;
            add(number, x, Model::summand(*mine.input, *mine.owed, mine.later));
            mine.owed = std::nullopt;
            return true;
        default:
            return message(number, x, mine);
        }
    }

    /// The weights that a micro-batch should see, if they are there.
    Optional weights(int number, Instruction const& x) {
        Stage& stage = ranks_[at(number)].stages[at(x.stage)];
        int const group = s_.micro_batches / (s_.updates > 0 ? s_.updates : 1);
        int version = x.micro_batch / group - (s_.delay.empty() ? 0 : s_.delay[at(x.stage)]);
        if (version < 0) version = 0;
        int const back = stage.updates - version;
        if (back < 0 || back >= static_cast<int>(stage.weights.size()) || (s_.gathers && !stage.gathered))
            return std::nullopt;
        return stage.weights[stage.weights.size() - 1 - at(back)];
    }
    /// What arrives for a cell, or what the neighbour on the same rank has made. `waits` when it is on its way.
    Optional arrived(int number, Instruction const& x, int neighbour, int kind, bool& waits) {
        if (home(neighbour, x.micro_batch) == number) {
            Cell& other = cell(number, neighbour, x.micro_batch, x.slice);
            return kind == 0 ? other.activation : other.gradient;
        }
        Cell& mine = cell(number, x.stage, x.micro_batch, x.slice);
        if (mine.lines[kind] == nullptr) return std::nullopt;
        waits = mine.lines[kind]->sent.size() <= mine.numbers[kind];
        if (waits) return std::nullopt;
        return mine.lines[kind]->sent[mine.numbers[kind]];
    }

    bool forward(int number, Instruction const& x, Cell& mine) {
        bool waits = false;
        Optional const input = x.stage == 0 ? Model::token(ranks_[at(number)].step, x.micro_batch, x.slice)
                                            : arrived(number, x, x.stage - 1, 0, waits);
        if (waits) return false;
        Optional const earlier =
            x.slice == 0 ? Optional(0) : cell(number, x.stage, x.micro_batch, x.slice - 1).activation;
        Optional const by = weights(number, x);
        if (!input || !earlier || !by || mine.activation) return fail(), true;
        mine.input = input;
        mine.earlier = *earlier;
        mine.activation = Model::activation(*by, *input, *earlier, x.micro_batch);
        if (!s_.recomputes) mine.kept = mine.activation;
        if (inference() && x.stage + 1 == s_.stages())
            add(number, x, Model::loss(*mine.activation, x.micro_batch, x.slice));
        return true;
    }
    bool backward(int number, Instruction const& x, Cell& mine) {
        bool waits = false;
        bool const last = x.stage + 1 == s_.stages();
        Optional gradient = last ? Optional() : arrived(number, x, x.stage + 1, 1, waits);
        if (waits) return false;
        if (last && mine.activation) gradient = Model::loss(*mine.activation, x.micro_batch, x.slice);
        Optional const later =
            x.slice + 1 == s_.slices ? Optional(0) : cell(number, x.stage, x.micro_batch, x.slice + 1).gradient;
        Optional const by = weights(number, x);
        bool const all_there = cell(number, x.stage, x.micro_batch, s_.slices - 1).activation.has_value();
        if (!gradient || !later || !by || !mine.kept || !all_there || mine.gradient) return fail(), true;
        mine.later = *later;
        mine.gradient = Model::gradient(*by, *mine.kept, *gradient, *later);
        if (x.operation == Operation::backward_data)
            mine.owed = gradient;
        else
            add(number, x, Model::summand(*mine.input, *gradient, *later));
        mine.kept = std::nullopt;
        return true;
    }
    void add(int number, Instruction const& x, Value summand) {
        Stage& stage = ranks_[at(number)].stages[at(x.stage)];
        // It would be left out of what has been reduced, or of the last update.
        if (stage.summed || (s_.updates > 0 && stage.updates == s_.updates)) fail();
        stage.sum += summand;
    }

    bool message(int number, Instruction const& x, Cell& mine) {
        bool const sends = x.operation == Operation::send_activation || x.operation == Operation::send_gradient;
        bool const activation =
            x.operation == Operation::send_activation || x.operation == Operation::receive_activation;
        int const other = sends == activation ? x.stage + 1 : x.stage - 1;
        if (other < 0 || other >= s_.stages()) return fail(), true;
        int const peer = home(other, x.micro_batch);
        if (peer == number) return fail(), true;
        Line& line = lines_[{sends ? number : peer, sends ? peer : number, sends ? other : x.stage, activation}];
        if (!sends) {
            int const kind = activation ? 0 : 1;
            if (mine.lines[kind] != nullptr) fail(); // into a buffer that is in use
            mine.lines[kind] = &line;
            mine.numbers[kind] = line.received++;
            return true;
        }
        auto& sending = ranks_[at(number)].sending;
        std::erase_if(sending, [](auto const& sent) { return sent.first->received > sent.second; });
        if (sending.size() >= send_buffers_) return false;
        Optional const value = activation ? mine.activation : mine.gradient;
        if (!value) return fail(), true;
        sending.push_back({&line, line.sent.size()});
        line.sent.push_back(*value);
        return true;
    }

    void update(int number, Instruction const& x) {
        Stage& stage = ranks_[at(number)].stages[at(x.stage)];
        if (x.operation == Operation::gather_parameters) {
            stage.gathered = true;
        } else if (x.operation == Operation::reduce_gradients) {
            stage.summed = true;
        } else {
            if (s_.reduces && !stage.summed) fail();
            ++stage.updates;
            if (!steps_weights(s_)) return;
            stage.weights.push_back(Model::stepped(stage.weights.back(), stage.sum));
            stage.sum = 0;
            stage.summed = false;
            while (static_cast<int>(stage.weights.size()) > s_.weight_versions) stage.weights.pop_front();
        }
    }

    pentad::pipeline::Schedule const& s_;
    std::size_t send_buffers_;
    int steps_;
    std::mt19937 draw_;
    bool right_ = true;
    std::vector<Rank> ranks_;
    std::map<std::tuple<int, int, int, bool>, Line> lines_;
    Trained result_;
};

} // namespace test
