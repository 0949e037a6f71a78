// The Mamba-2 block (Dao & Gu 2024, arXiv 2405.21060), its scan in chunks (SSD):
// floating-point operations, weights, memory, and what context parallelism sends. The short convolution, the norm and
// other elementwise work are left out. One rank's part; with BlockRanks{} the whole.
#pragma once

#include <formulas/volume.hpp>

#include <cstdint>

namespace pentad::planner {

struct MambaSizes {
    std::int64_t batch = 1; ///< sequences of a micro-batch, over all of dp
    std::int64_t seq = 1;
    std::int64_t hidden = 1;
    std::int64_t heads = 1;
    std::int64_t head_dim = 1;
    std::int64_t groups = 1; ///< of heads that share B and C
    std::int64_t state = 1;  ///< elements of the state for each channel of a head
    std::int64_t chunk = 1;  ///< tokens
};

/// What a rank holds of MambaSizes. @throws std::invalid_argument naming what does not divide.
struct MambaShare {
    double sequences, tokens, chunks, heads, groups, width;
    constexpr MambaShare(MambaSizes const& of, BlockRanks const& on)
        : sequences(static_cast<double>(per_rank("batch", of.batch, "dp", on.dp))),
          tokens(sequences * static_cast<double>(per_rank("seq", of.seq, "cp", on.cp))),
          chunks(sequences * static_cast<double>(per_rank("seq of a rank", of.seq / on.cp, "chunk", of.chunk))),
          heads(static_cast<double>(per_rank("heads", of.heads, "tp", on.tp))),
          groups(static_cast<double>(per_rank_or_one("groups", of.groups, "tp", on.tp))),
          width(heads * static_cast<double>(of.head_dim)) {}
    /// What the in-projection gives for a token: z and x, B and C, and the time step of each head.
    [[nodiscard]] constexpr double projected(MambaSizes const& of) const {
        return 2 * width + 2 * groups * static_cast<double>(of.state) + heads;
    }
};

/// Floating-point operations of products, 2mnk each.
struct MambaFlops {
    double in_projection = 0;
    double scores = 0;        ///< C B^T within a chunk, once for each group
    double diagonal = 0;      ///< the scores times x
    double states = 0;        ///< what a chunk adds to the state: B^T x
    double state_passing = 0; ///< from chunk to chunk: decay and add
    double state_output = 0;  ///< C times the state at the chunk's start
    double out_projection = 0;
    [[nodiscard]] constexpr double scan() const { return scores + diagonal + states + state_passing + state_output; }
    [[nodiscard]] constexpr double total() const { return in_projection + scan() + out_projection; }
};

/// The forward pass (Dao & Gu 2024, listing 1). Chunks are taken as dense: half of `scores` and `diagonal` is masked.
/// The listing gives each head B and C of its own: for its count of `scores` set groups = heads.
constexpr MambaFlops mamba_flops(MambaSizes const& of, BlockRanks const& on = {}) {
    MambaShare const own(of, on);
    auto const hidden = static_cast<double>(of.hidden), state = static_cast<double>(of.state),
               chunk = static_cast<double>(of.chunk);
    return {.in_projection = 2 * own.tokens * hidden * own.projected(of),
            .scores = 2 * own.tokens * chunk * own.groups * state,
            .diagonal = 2 * own.tokens * chunk * own.width,
            .states = 2 * own.tokens * own.width * state,
            .state_passing = 2 * own.chunks * own.width * state,
            .state_output = 2 * own.tokens * own.width * state,
            .out_projection = 2 * own.tokens * own.width * hidden};
}

/// State passing as the listing does it: the initial state and all chunks' states, multiplied by the (c+1) x (c+1)
/// matrix of decays from each to each boundary of chunks.
constexpr double mamba_dense_state_passing_flops(MambaSizes const& of, BlockRanks const& on = {}) {
    MambaShare const own(of, on);
    double const boundaries = own.chunks / own.sequences + 1;
    return 2 * own.sequences * boundaries * boundaries * own.width * static_cast<double>(of.state);
}

/// Elements of a rank's weights: the two projections.
constexpr double mamba_weights(MambaSizes const& of, BlockRanks const& on = {}) {
    MambaShare const own(of, on);
    return static_cast<double>(of.hidden) * (own.projected(of) + own.width);
}

/// Elements that a rank keeps for a backward pass that computes scores and states anew: the input, what was made of it
/// by the in-projection, and the scan's output before and after the gate.
constexpr double mamba_activations(MambaSizes const& of, BlockRanks const& on = {}) {
    MambaShare const own(of, on);
    bool const sharded_input = on.sequence_parallel && !on.keeps_gathered_input;
    return own.tokens * (static_cast<double>(of.hidden) / (sharded_input ? static_cast<double>(on.tp) : 1.0) +
                         own.projected(of) + 2 * own.width);
}

/// Elements that the five products of the scan read and write when each is an operation of its own: traffic, not
/// memory, since what one writes another reads. Amer, Karim et al., section 5.3.
struct MambaTraffic {
    double scores = 0, diagonal = 0, states = 0, state_passing = 0, state_output = 0;
    [[nodiscard]] constexpr double total() const { return scores + diagonal + states + state_passing + state_output; }
};

constexpr MambaTraffic mamba_traffic(MambaSizes const& of, BlockRanks const& on = {}) {
    MambaShare const own(of, on);
    double const boundaries = own.chunks / own.sequences + 1; // of a sequence's chunks
    double const b_or_c = own.tokens * own.groups * static_cast<double>(of.state);
    double const x = own.tokens * own.width;
    double const scores = own.tokens * static_cast<double>(of.chunk);
    double const states = own.chunks * own.width * static_cast<double>(of.state);
    return {.scores = 2 * b_or_c + scores * own.groups,
            .diagonal = scores * own.heads + 2 * x, // the scores of a head: a group's times the decays
            .states = x + b_or_c + states,
            .state_passing =
                own.sequences * boundaries * (own.heads * boundaries + 2 * own.width * static_cast<double>(of.state)),
            .state_output = states + b_or_c + x};
}

/// Elements of a rank's state at the end of its part of the sequences.
constexpr double mamba_state(MambaSizes const& of, BlockRanks const& on = {}) {
    MambaShare const own(of, on);
    return own.sequences * own.width * static_cast<double>(of.state);
}

/// What a rank sends over cp when all gather the final state and the decay (a number for each head) of each, and merge
/// those before their own. The gradients of states are reduce-scattered; that of its decay a rank makes of its own
/// states.
constexpr SentBytes mamba_gathered_state_bytes(MambaSizes const& of, BlockRanks const& on, double element_bytes) {
    MambaShare const own(of, on);
    double const states = mamba_state(of, on), decays = own.sequences * own.heads;
    return {all_gather_bytes((states + decays) * element_bytes, on.cp),
            reduce_scatter_bytes(static_cast<double>(on.cp) * states * element_bytes, on.cp)};
}

/// What a rank sends over cp when states go from rank to rank, the last rank's to nobody: less, but one after another.
constexpr SentBytes mamba_passed_state_bytes(MambaSizes const& of, BlockRanks const& on, double element_bytes) {
    double const sent = on.cp > 1 ? mamba_state(of, on) * element_bytes : 0;
    return {sent, sent};
}

} // namespace pentad::planner
