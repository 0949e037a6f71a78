// What layers keep of sequences from one pass to the next: of those that are cut into slices, until their backward
// passes, and of those that are being written, as long as these grow.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace pentad {

/// Room for sequences that are being written.
struct SequenceRoom {
    std::size_t lanes = 1;     ///< the first dimension of a pass, of which each rank has one
    std::size_t sequences = 1; ///< of each lane
    std::size_t length = 0;    ///< tokens of each sequence
    std::size_t page = 64;     ///< tokens in a row that one rank of cp has
};

/// What one layer keeps.
class SequenceState {
  public:
    SequenceState() = default;
    SequenceState(SequenceState const&) = delete;
    SequenceState& operator=(SequenceState const&) = delete;
    virtual ~SequenceState() = default;
    /// Allocates memory for sequences that are to be written.
    virtual void make_room(SequenceRoom const&) {}
    /// Bytes of that on this rank.
    [[nodiscard]] virtual std::size_t bytes() const { return 0; }
};

/// Which of the states of a set belongs to a layer. @tparam State derived from SequenceState
template <class State>
class StateKey {
  public:
    StateKey() = default;
    /// Whether the layer keeps anything.
    [[nodiscard]] bool exists() const { return index_ != none; }

  private:
    friend class StateRegistry;
    friend class Sequences;
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    explicit StateKey(std::size_t index) : index_(index) {}
    std::size_t index_ = none;
};

/// The kinds of states that the layers of a model keep: a layer registers its own when it is made.
class StateRegistry {
  public:
    /// @param arguments of the constructor of State, which are copied
    template <class State, class... Arguments>
    StateKey<State> add(Arguments... arguments) {
        makers_.push_back(
            [arguments...]() -> std::unique_ptr<SequenceState> { return std::make_unique<State>(arguments...); });
        return StateKey<State>(makers_.size() - 1);
    }

  private:
    friend class Sequences;
    std::vector<std::function<std::unique_ptr<SequenceState>()>> makers_;
};

/// The states of all layers, for sequences that pass through them together.
class Sequences {
  public:
    Sequences() = default;
    explicit Sequences(StateRegistry const& registry) {
        for (auto const& make : registry.makers_) states_.push_back(make());
    }
    /// The state of the layer that has this key. @throws std::logic_error where the key is of no layer here
    template <class State>
    [[nodiscard]] State& of(StateKey<State> key) const {
        if (key.index_ >= states_.size()) throw std::logic_error("the layer has registered no state of sequences");
        return static_cast<State&>(*states_[key.index_]);
    }
    void make_room(SequenceRoom const& room) {
        for (auto const& state : states_) state->make_room(room);
    }
    /// Bytes on this rank of sequences that are being written.
    [[nodiscard]] std::size_t bytes() const {
        std::size_t sum = 0;
        for (auto const& state : states_) sum += state->bytes();
        return sum;
    }

  private:
    std::vector<std::unique_ptr<SequenceState>> states_;
};

/// What a layer keeps of the slices of a sequence that it has seen, for those that follow and for the backward pass.
template <class Kept>
struct SliceState final : SequenceState {
    Kept kept{};
};

/// What a layer keeps of sequences that are cut into slices, and which slice a pass is about.
template <class Kept>
struct AtSlice {
    Kept* memory = nullptr; ///< null: sequences are not cut
    std::size_t index = 0;

    [[nodiscard]] bool is_cut() const { return memory != nullptr; }
    [[nodiscard]] bool is_first() const { return memory == nullptr || index == 0; }
};

} // namespace pentad
