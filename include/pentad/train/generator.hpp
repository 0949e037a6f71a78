// Sequences that are being written by a model of a trainer or an evaluator: each pass takes tokens of any of them, and
// gives the logits of what may follow.
#pragma once

#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/tensor/any_tensor.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/engine.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// Tokens that follow those of a sequence.
struct NextTokens {
    std::size_t sequence = 0;
    std::span<std::int32_t const> tokens{};
};

/// Holds what the layers keep of the sequences, and the logits of the last pass. All its functions but those that say
/// so are collective over all ranks, which give them the same arguments.
/// @tparam T the element of weights and activations
template <class T, class Exec>
class Generator {
  public:
    /// @param engine, owner of the weights; they outlive the generator
    /// @param sequences at most @param length tokens of each at most @param page tokens in a
    /// row that one rank of cp has
    /// @throws std::invalid_argument where the model cannot write sequences, or none of that length
    Generator(Engine<T, Exec>& engine, StageOwner& owner, std::size_t sequences, std::size_t length, std::size_t page)
        : engine_(&engine), owner_(&owner), room_(room(engine, sequences, length, page)),
          states_(engine.model().states()), tokens_of_(sequences) {
        states_.make_room(room_);
    }

    [[nodiscard]] Context<Exec> const& context() const { return engine_->context(); }
    /// Ranks that share the logits of a token.
    [[nodiscard]] std::size_t vocabulary_shards() const {
        return static_cast<std::size_t>(context().communicators().extent(engine_->logits_layout().dimensions[2].axes));
    }
    /// Sequences, and tokens of each, that there is room for.
    [[nodiscard]] std::size_t sequences() const { return tokens_of_.size(); }
    [[nodiscard]] std::size_t room_for() const { return room_.length; }
    /// @throws std::invalid_argument where one of them is none of the model's
    void require_tokens(std::span<std::int32_t const> tokens) const;
    /// Tokens of a sequence so far.
    [[nodiscard]] std::size_t length(std::size_t sequence) const { return tokens_of_.at(sequence); }
    /// Forgets a sequence: another begins in its place. Not collective.
    void restart(std::size_t sequence) { tokens_of_.at(sequence) = 0; }
    /// Bytes of what is kept of the sequences on this rank.
    [[nodiscard]] std::size_t bytes() const { return states_.bytes(); }

    /// A pass over these tokens. @throws std::invalid_argument where a sequence would get too long, or a token is none
    void advance(std::span<NextTokens const> next);

    /// f(i, shard, first, logits) for the sequences of the last pass of which this rank has logits of what follows the
    /// last token: its shard of the vocabulary, tokens [first, first + logits.size()). Waits; not collective.
    template <class F>
    void for_each_own(F&& f) const;

  private:
    static SequenceRoom room(Engine<T, Exec> const& engine, std::size_t sequences, std::size_t length,
                             std::size_t page);
    static void require_writable(Engine<T, Exec> const& engine, std::size_t length);

    Engine<T, Exec>* engine_;
    StageOwner* owner_;
    SequenceRoom room_;
    Sequences states_;
    std::vector<std::size_t> tokens_of_;
    AnyTensor<T, Exec> logits_;      ///< of the last pass
    std::vector<std::size_t> lanes_; ///< of each of its sequences, and the row of its last token in the lane
    std::vector<std::size_t> rows_;
};

// Outside of the class, so that they are not inline: a unit that sees `extern template` compiles none of them.

template <class T, class Exec>
void Generator<T, Exec>::require_writable(Engine<T, Exec> const& engine, std::size_t length) {
    std::string const writes = "sequences are written by models whose tokens see earlier ones only: ";
    auto const& model = engine.settings().model;
    if (auto const why = model::padding_refusal(model); !why.empty()) throw std::invalid_argument(writes + why);
    if (model::sees_later_tokens(model))
        throw std::invalid_argument(writes + "this one has a part whose tokens see later ones");
    auto const block = engine.model().first_without_sequences();
    double last = block ? static_cast<double>(*block + 1) : 0; // a rank knows of its own stages
    total_over_mesh(engine.context(), Placement::partial_max, std::span(&last, 1));
    if (last > 0)
        throw std::invalid_argument("block " + std::to_string(static_cast<std::size_t>(last) - 1) +
                                    " has a layer that writes no sequences: give it continue_sequences(), or say that "
                                    "it is_tokenwise (layers/layer.hpp)");
    for (auto const& own : engine.settings().strategy.blocks)
        if (own.mesh) throw std::invalid_argument("sequences are written on one mesh: give no block a mesh of its own");
    if (std::size_t const most = engine.setup().real_length(); length > most)
        throw std::invalid_argument("sequences of " + std::to_string(length) + " tokens for a model of " +
                                    std::to_string(most));
}

template <class T, class Exec>
SequenceRoom Generator<T, Exec>::room(Engine<T, Exec> const& engine, std::size_t sequences, std::size_t length,
                                      std::size_t page) {
    require_writable(engine, length);
    std::size_t const lanes = engine.context().communicators().extent(engine.stream().dimensions[0].axes);
    return {.lanes = lanes, .sequences = (sequences + lanes - 1) / lanes, .length = length, .page = page};
}

template <class T, class Exec>
void Generator<T, Exec>::require_tokens(std::span<std::int32_t const> tokens) const {
    auto const vocabulary = engine_->settings().model.vocab;
    for (auto const token : tokens)
        if (token < 0 || static_cast<std::size_t>(token) >= vocabulary)
            throw std::invalid_argument("token " + std::to_string(token) + " for a model of " +
                                        std::to_string(vocabulary) + " tokens");
}

template <class T, class Exec>
void Generator<T, Exec>::advance(std::span<NextTokens const> next) {
    auto const& context = engine_->context();
    std::vector<SequenceChunk> chunks;
    for (auto const& [sequence, tokens] : next) {
        require_tokens(tokens);
        if (tokens.empty()) throw std::invalid_argument("a sequence goes on by one token at least");
        chunks.push_back({sequence % room_.lanes, sequence / room_.lanes, tokens_of_.at(sequence), tokens.size()});
    }
    RaggedBatch<Exec> const ragged(context, engine_->stream(), room_, chunks, engine_->row_multiple());
    LayoutValue const of_tokens = token_values<i32>(engine_->stream());
    AnyTensor<i32, Exec> const tokens(context, of_tokens, std::array{ragged.lanes(), ragged.length()});
    std::size_t const here = tokens.local()[0],
                      first_lane = context.communicators().shard_index(of_tokens.dimensions[0].axes) * here;
    std::vector<i32> host(tokens.size());
    lanes_.clear();
    rows_.assign(next.size(), 0);
    std::size_t chunk = 0, taken = 0;
    for (auto const& run : ragged.dealt().runs()) {
        if (run.shard == ragged.shard() && run.lane >= first_lane && run.lane < first_lane + here)
            std::copy_n(next[chunk].tokens.begin() + static_cast<std::ptrdiff_t>(taken), run.length,
                        host.begin() +
                            static_cast<std::ptrdiff_t>((run.lane - first_lane) * tokens.local()[1] + run.first));
        taken += run.length;
        if (taken < next[chunk].tokens.size()) continue;
        lanes_.push_back(run.lane);
        rows_[chunk++] = ragged.row_of_lane(run) + run.length - 1;
        taken = 0;
    }
    tokens.set(host.data());
    logits_ = engine_->logits({.context = context, .tokens = tokens.rows(), .sequences = &states_, .ragged = &ragged},
                              *owner_);
    for (auto const& [sequence, more] : next) tokens_of_[sequence] += more.size();
}

template <class T, class Exec>
template <class F>
void Generator<T, Exec>::for_each_own(F&& f) const {
    if (logits_.empty()) return;
    auto const& context = logits_.context();
    auto const local = logits_.local();
    auto const first_of = [&](std::size_t d) {
        return context.communicators().shard_index(logits_.layout().dimensions[d].axes) * local[d];
    };
    std::size_t const lane = first_of(0), row = first_of(1), vocabulary = engine_->settings().model.vocab;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        if (lanes_[i] < lane || lanes_[i] >= lane + local[0] || rows_[i] < row || rows_[i] >= row + local[1]) continue;
        std::vector<T> own(local[2]);
        memory::copy_to_host(context.exec(), own.data(),
                             logits_.data() + ((lanes_[i] - lane) * local[1] + rows_[i] - row) * local[2],
                             local[2] * sizeof(T));
        std::size_t const first = first_of(2); // the table of the vocabulary may be padded
        own.resize(std::min(own.size(), vocabulary - std::min(vocabulary, first)));
        f(i, context.communicators().shard_index(logits_.layout().dimensions[2].axes), first, std::as_const(own));
    }
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(T) extern template class Generator<T, Kokkos::DefaultExecutionSpace>;
PENTAD_FOR_EACH_COMPILED_ELEMENT(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train
