// What a layer is (the protocol), and what it is told: the shapes of the stream, and what belongs to the
// micro-batch it works on.
//
// A layer is a description, e.g. RmsNorm; `Layer::on<Stream, Exec>` is the layer for a stream of activations of that
// layout. It has, as layer_protocol.hpp checks,
//
//   input_layout, output_layout
//       the layouts of what forward is given and returns
//   Saved
//       what forward keeps for backward
//   on(LayerSetup const&, part, std::string name)
//       makes its parameters: `part` describes it (model/parts.hpp), where there is anything to say; `name` is their
//       published prefix
//   forward(Pass&, Tensor<input_layout>, Saved&) -> Tensor<output_layout>
//   backward_data(Pass&, Tensor<dual_t<output_layout>>, Saved&) -> Tensor<dual_t<input_layout>>
//       what the previous stage waits for
//   backward_weight(Pass&, Saved&)
//       adds to the gradients; may come later, and frees what was saved
//   for_each_parameter(f)
//       f(Parameter&), in an order that is the same on every rank
//
// A layer that can recompute pieces of what it saves (model/recomputation.hpp) has also
//
//   pieces() -> model::PieceSet
//       those that it has
//   recompute(model::PieceSet)
//       it recomputes these from now on. Where they have Piece::inputs or Piece::norms it drops its input, and is given
//       it again before backward_data:
//   restore_input(Tensor<input_layout>, Saved&)
//
// and a norm, whose output others drop,
//
//   output_again(Pass&, Saved&) -> Tensor<output_layout>
//
// Sequences are written, token by token, by layers that say how. A layer whose output for a token depends on that token
// alone says so; another keeps what it needs in a state of its own (sequence_state.hpp), which it registers in
// LayerSetup::states:
//
//   static constexpr bool is_tokenwise = true
//       forward() takes the tokens of many sequences (Pass::ragged) as it takes those of a few
//   continues_sequences() -> bool
//       beside either of these, where it depends on the description
//   continue_sequences(Pass&, Tensor<input_layout>) -> Tensor<output_layout>
//       the outputs for the tokens of Pass::ragged, with what their sequences have left, and what these leave
//
// The last LayerSetup::padding tokens of each sequence are padding, of which gradients are zero: a layer need not know
// of it, unless its tokens see later ones (SequenceMap::documents), or it counts tokens (LayerSetup::real_tokens). Its
// part says whether they do (model/part.hpp); where it does not, sequences are not padded.
//
// Kernels of its own begin with kernels::dry (kernels/dry.hpp), so that it can be run dry.
#pragma once

#include <pentad/layers/activation_memory.hpp>
#include <pentad/layers/ragged_batch.hpp>
#include <pentad/layers/sequence_state.hpp>
#include <pentad/layout/algebra.hpp>
#include <pentad/layout/compact.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/documents.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/partition.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/layout/stretches.hpp>
#include <pentad/model/block_strategy.hpp>
#include <pentad/observe/trace.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad {

template <class Exec>
struct Pass;

/// What layers are made from, beside the description of each. It outlives them.
template <class Exec>
struct LayerSetup {
    Context<Exec> const& context;
    std::size_t hidden = 128; ///< width of the residual stream
    double norm_epsilon = 1e-5;
    std::size_t batch = 1;           ///< sequences in a micro-batch, on all ranks together
    std::size_t seq = 128;           ///< tokens of each in a pass, padding included
    std::size_t slices = 1;          ///< passes over the slices of a sequence, one after the other
    std::size_t padding = 0;         ///< the last tokens of each sequence, in all its slices, that nobody is to see
    model::BlockStrategy block{};    ///< the layouts of a layer's type say its tensor_kind and sequence_parallel
    Compact rows = Compact::none;    ///< in which rows travel to experts (model::Precision)
    double micro_batches = 1;        ///< that an update sees
    StateRegistry* states = nullptr; ///< of what layers keep of sequences; null: these are neither cut nor written

    /// Registers what a layer keeps of the slices of a sequence; nothing where sequences are not cut.
    /// @throws std::logic_error where they are, and nobody asked for states
    template <class Kept>
    [[nodiscard]] StateKey<SliceState<Kept>> slice_state() const {
        if (slices == 1) return {};
        if (states == nullptr) throw std::logic_error("sequences are cut, and LayerSetup::states is null");
        return states->template add<SliceState<Kept>>();
    }
    /// Registers what a layer keeps of sequences that are being written; nothing where nobody asked for states.
    template <class State, class... Arguments>
    [[nodiscard]] StateKey<State> sequence_state(Arguments const&... arguments) const {
        return states == nullptr ? StateKey<State>() : states->template add<State>(arguments...);
    }
    /// The extents [batch, seq, hidden] of the stream of a pass.
    [[nodiscard]] std::array<std::size_t, 3> stream_extents(Pass<Exec> const& pass) const {
        if (pass.ragged != nullptr) return {pass.ragged->lanes(), pass.ragged->length(), hidden};
        return {batch, seq, hidden};
    }
    /// Tokens of a sequence that are no padding.
    [[nodiscard]] std::size_t real_length() const { return slices * seq - padding; }
    /// How the sequence lies over cp.
    [[nodiscard]] DealtSequence partition() const {
        auto const& mesh = context.communicators();
        return DealtSequence::of(block.order(), block.context, seq,
                                 static_cast<std::size_t>(mesh.extent(outer<ml::cp>::name)),
                                 static_cast<std::size_t>(mesh.extent(inner<ml::cp>::name)));
    }
    /// How the sequence lies over the axis along which attention's blocks of keys and values differ: cp or a factor of
    /// it. One shard is contiguous, whatever the order.
    [[nodiscard]] Partition block_partition(std::string_view axis) const {
        auto const shards = static_cast<std::size_t>(context.communicators().extent(axis));
        return {shards == 1 ? Order::contiguous : block.order(), seq, shards};
    }
    /// The positions in their sequences of the `length` tokens of each slice that this rank holds where sequences are
    /// sharded over `axes`: cp, as dealt, and perhaps others, which share the part of a rank of cp in contiguous parts.
    /// Padding is at position 0, which every table has.
    [[nodiscard]] std::vector<i32> positions(DealtSequence const& dealt, AxisNames const& axes,
                                             std::size_t length) const {
        auto& communicators = context.communicators();
        auto const mine = communicators.shard_index(AxisNames(ml::cp::name));
        std::size_t const part = communicators.shard_index(axes) % (dealt.local_extent() / length);
        std::vector<i32> result(slices * length);
        for (std::size_t i = 0; i < result.size(); ++i) {
            auto const at = i / length * seq + dealt.global_index(mine, part * length + i % length);
            result[i] = at < real_length() ? static_cast<i32>(at) : 0;
        }
        return result;
    }
    /// The numbers of the tokens of each slice that this rank holds in a layout L [batch, seq, ...], with `local_batch`
    /// sequences of `length` tokens: in all whole sequences of the micro-batch without padding, the same on every mesh.
    /// The numbers of padding mean nothing.
    template <class L>
    [[nodiscard]] std::vector<i32> token_numbers(DealtSequence const& dealt, std::size_t local_batch,
                                                 std::size_t length) const {
        auto const& dimensions = L::value.dimensions;
        auto const in_sequence = positions(dealt, dimensions[1].axes, length);
        std::size_t const first = context.communicators().shard_index(dimensions[0].axes) * local_batch;
        std::vector<i32> result(slices * local_batch * length);
        for (std::size_t i = 0; i < result.size(); ++i) {
            std::size_t const row = i % (local_batch * length), slice = i / (local_batch * length);
            result[i] =
                static_cast<i32>((first + row / length) * real_length()) + in_sequence[slice * length + row % length];
        }
        return result;
    }
    /// The number of tokens that are no padding among the `length` tokens of each sequence that this rank has in a
    /// pass, in a layout L [batch, seq, ...]: they are the first, since a rank's tokens are in ascending order.
    template <class L>
    [[nodiscard]] std::size_t real_tokens(Pass<Exec> const& pass, std::size_t length) const {
        if (pass.ragged != nullptr) return pass.ragged->real_tokens(context, L::value.dimensions[1].axes, length);
        if (padding == 0) return length;
        auto const as_setup = partition();
        auto const& dealt = pass.map != nullptr && pass.map->dealt != nullptr ? *pass.map->dealt : as_setup;
        auto& communicators = context.communicators();
        auto const mine = communicators.shard_index(AxisNames(ml::cp::name));
        std::size_t const part =
            communicators.shard_index(L::value.dimensions[1].axes) % (dealt.local_extent() / length);
        std::size_t count = length;
        while (count > 0 && pass.slice * seq + dealt.global_index(mine, part * length + count - 1) >= real_length())
            --count;
        return count;
    }
    /// Tokens of a pass on this rank, in a layout [batch, seq, ...].
    template <class L>
    [[nodiscard]] std::size_t local_tokens() const {
        auto const local =
            local_extents(L::value, std::array<std::size_t, L::rank>{batch, seq, 1}, context.communicators().mesh());
        return local[0] * local[1];
    }
};

/// The places of the tokens of a pass, if the setup does not determine them: the documents, and how sequences are dealt
/// if the work of the documents decides that.
template <class Exec>
struct SequenceMap {
    Documents const* documents = nullptr;           ///< of this rank's sequences, with all slices; null: one each
    View<i32 const, 2, Exec> begins{}, ends{};      ///< the same for kernels
    View<i32 const, 1, Exec> positions{};           ///< `[batch@dp * seq@cp]`, of tokens in their documents
    View<i32 const, 1, Exec> positions_in_stream{}; ///< the same, sharded as the stream
    /// The runs of sequences in the shards that attention's blocks are; null: as the setup says.
    std::vector<std::vector<Segment>> const* shards = nullptr;
    DealtSequence const* dealt = nullptr; ///< the same for ranks of cp; null: as the setup says
    Stretches const* stretches = nullptr; ///< of what is dealt so; null: as the setup says
};

/// Tokens further ahead in a micro-batch, and the targets of these; negative: no loss. Both of the shape of
/// Pass::tokens.
template <class Exec>
struct TokensAhead {
    View<i32 const, 2, Exec> tokens{}, targets{};
};

/// What a forward or backward pass is told about its micro-batch, and what it adds up for the log.
template <class Exec>
struct Pass {
    Context<Exec> const& context;
    View<i32 const, 2, Exec> tokens{};  ///< `[batch@dp, seq@cp]`, this rank's, of a slice
    View<i32 const, 2, Exec> targets{}; ///< the same shape; negative: no loss
    /// Tokens and targets of multi-token prediction: the k-th element has the tokens k + 1 further ahead.
    std::span<TokensAhead<Exec> const> ahead{};
    double predicted_scale = 0;       ///< of their losses in the objective
    double loss_scale = 0;            ///< 1 / valid targets of all that an update sees: the seed of the backward pass
    double balance_scale = 0;         ///< gradient of the objective with respect to a layer's load-balancing loss
    double z_scale = 0;               ///< and with respect to its z loss
    bool trains = true;               ///< whether a backward pass follows, perhaps after another forward pass
    bool saves = true;                ///< whether a backward pass uses what this forward pass saves
    bool is_replay = false;           ///< a forward pass done again: it adds nothing to the sums below
    bool completes_gradients = false; ///< the last backward pass of this stage before an update
    std::uint64_t draw = 0;           ///< what layers draw random numbers by: other ones in each micro-batch
    std::size_t slice = 0;            ///< of the sequences, where they are cut
    Sequences* sequences = nullptr;   ///< what layers keep of these sequences, where they are cut or written
    RaggedBatch<Exec> const* ragged = nullptr; ///< tokens of sequences that are being written; null: whole sequences
    SequenceMap<Exec> const* map = nullptr;    ///< null: sequences of one document, dealt as the setup says
    ActivationMemory* saved = nullptr; ///< where what blocks save is until its backward pass; null: where it is made

    double loss_sum = 0;      ///< of the token losses here: partial over the axes that share out the tokens
    double predicted_sum = 0; ///< the same of the tokens ahead
    double balance_sum = 0;   ///< of the load-balancing losses of the layers here: likewise, and over pp
    double z_sum = 0;         ///< of the z losses of the layers here: likewise

    /// A copy for another place, which has added up nothing yet.
    [[nodiscard]] Pass on(Context<Exec> const& other) const {
        return {.context = other,
                .tokens = tokens,
                .targets = targets,
                .ahead = ahead,
                .predicted_scale = predicted_scale,
                .loss_scale = loss_scale,
                .balance_scale = balance_scale,
                .z_scale = z_scale,
                .trains = trains,
                .saves = saves,
                .is_replay = is_replay,
                .completes_gradients = completes_gradients,
                .draw = draw,
                .slice = slice,
                .sequences = sequences,
                .ragged = ragged,
                .map = map,
                .saved = saved};
    }
    /// Adds what a pass in another place has added up. @param further of tokens further ahead
    void add_sums(Pass const& other, bool further = false) {
        (further ? predicted_sum : loss_sum) += other.loss_sum;
        balance_sum += other.balance_sum;
        z_sum += other.z_sum;
    }
    /// The stretches of its sequences. @param of_setup those that the setup says
    [[nodiscard]] Stretches const& stretches(Stretches const& of_setup) const {
        return map == nullptr || map->stretches == nullptr ? of_setup : *map->stretches;
    }
    /// What a part of a layer keeps of the slices of these sequences.
    template <class Kept>
    [[nodiscard]] AtSlice<Kept> at_slice(StateKey<SliceState<Kept>> key) const {
        if (!key.exists()) return {};
        return {&sequences->of(key).kept, slice};
    }
};

/// The logits of attention sinks, one for each head, as queries of layout Query use them; and their gradient.
template <class Query>
using sinks_t = used_t<dimension_t<Query, ml::heads>, Query>;
template <class Query>
using sinks_gradient_t = with_element_t<dual_t<sinks_t<Query>>, accumulator_t<typename Query::element>>;

/// What a strategy of attention over cp, of queries of layout Query, is told about a pass.
template <class Slices, class Query, class Exec>
struct AttentionPass {
    Slices* slices = nullptr; ///< of the sequences, null where the schedule cuts none; `index` is the current one
    std::size_t index = 0;
    SequenceMap<Exec> const* map = nullptr;
    Tensor<sinks_t<Query>, Exec> sinks{}; ///< empty: attention has none
};

} // namespace pentad
