// Attention over cp: the steps, buffers and bytes of a ring, of gathered keys and
// values, and of an exchange of sequence for heads (Ulysses); and which rank of a causal ring computes how much.
#pragma once

#include <pentad/layout/ml.hpp>

#include <formulas/attention.hpp>
#include <formulas/volume.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>

namespace pentad::planner {

using namespace ml;

/// Messages that a rank sends one after another round a ring: its neighbour's last block has been round it by then.
constexpr std::int64_t ring_steps(std::int64_t ranks) {
    if (ranks < 1) throw std::invalid_argument("cp = " + std::to_string(ranks) + ": it must be at least 1");
    return ranks - 1;
}

/// Seconds of a ring's forward pass, from those in which a rank attends to a block and those in which one travels.
/// While it attends to a block the next one arrives, or it waits for that first; the last block has none after it.
constexpr double ring_seconds(std::int64_t ranks, double attending, double travelling, bool overlaps = true) {
    auto const steps = static_cast<double>(ring_steps(ranks));
    return steps * (overlaps ? std::max(attending, travelling) : attending + travelling) + attending;
}

/// Bytes of one rank's block of keys and values.
constexpr double key_value_block_bytes(AttentionSizes const& of, BlockRanks const& on, double element_bytes) {
    AttentionShare const own(of, on);
    return 2 * static_cast<double>(own.tokens) * static_cast<double>(own.kv_width) * element_bytes;
}

/// Bytes of the blocks that a rank of a ring holds at once: the one that it attends to, and, where transfers overlap
/// computing, the one that arrives. Its own block is one of the activations and is not counted again.
constexpr double ring_buffer_bytes(AttentionSizes const& of, BlockRanks const& on, double element_bytes,
                                   bool overlaps = true) {
    return (overlaps ? 2 : 1) * key_value_block_bytes(of, on, element_bytes);
}

/// Bytes of all keys and values that a rank's queries attend to, gathered.
constexpr double gathered_key_value_bytes(AttentionSizes const& of, BlockRanks const& on, double element_bytes) {
    return static_cast<double>(on.cp) * key_value_block_bytes(of, on, element_bytes);
}

/// What a rank sends round the ring (Liu et al. 2023): forward n-1 blocks; backward the blocks again, and with each but
/// its own its gradients, which come home.
constexpr SentBytes ring_attention_bytes(AttentionSizes const& of, BlockRanks const& on, double element_bytes,
                                         double gradient_bytes) {
    auto const steps = static_cast<double>(ring_steps(on.cp));
    double const blocks = steps * key_value_block_bytes(of, on, element_bytes);
    return {blocks, blocks + steps * key_value_block_bytes(of, on, gradient_bytes)};
}

/// What a rank sends when keys and values are gathered, and their gradients reduce-scattered (Llama 3: Dubey et al.
/// 2024, section 3.3.2). Backward they are gathered again unless they are kept.
constexpr SentBytes gathered_attention_bytes(AttentionSizes const& of, BlockRanks const& on, double element_bytes,
                                             double gradient_bytes, bool keeps_gathered = false) {
    double const gathered = all_gather_bytes(key_value_block_bytes(of, on, element_bytes), on.cp);
    double const scattered = reduce_scatter_bytes(gathered_key_value_bytes(of, on, gradient_bytes), on.cp);
    return {gathered, scattered + (keeps_gathered ? 0 : gathered)};
}

/// What a rank sends when q, k, v and the output change between sequence sharded over cp and heads sharded over cp
/// (DeepSpeed-Ulysses: Jacobs et al. 2023): four all-to-alls each way. Kv heads are repeated where cp exceeds them.
/// @throws std::invalid_argument when the heads of a tp rank do not divide by cp
constexpr SentBytes exchanged_attention_bytes(AttentionSizes const& of, BlockRanks const& on, double element_bytes) {
    using Before = Layout<f32, Dims<Dim<batch>, Dim<seq, dynamic, cp>, Dim<heads>, Dim<head_dim>>>;
    using Inside = Layout<f32, Dims<Dim<batch>, Dim<seq>, Dim<heads, dynamic, cp>, Dim<head_dim>>>;
    AttentionShare const own(of, on);
    Mesh<Axis<cp>> const mesh(static_cast<int>(on.cp));
    auto const moved = [&](std::int64_t h) {
        return sent_between<Before, Inside>({static_cast<std::size_t>(own.sequences), static_cast<std::size_t>(of.seq),
                                             static_cast<std::size_t>(h), static_cast<std::size_t>(of.head_dim)},
                                            element_bytes, mesh);
    };
    auto const kv = own.kv_width / of.head_dim;
    return 2 * moved(on.cp * per_rank("heads of a rank of tp", own.heads, "cp", on.cp)) +
           2 * moved(on.cp * per_rank_or_one("kv_heads of a rank of tp", kv, "cp", on.cp));
}

/// What goes with the gradient of the output when heads are exchanged over `head_ranks`: their product, summed over
/// head_dim, instead of the output.
constexpr double delta_bytes(AttentionSizes const& of, BlockRanks const& on, std::int64_t head_ranks,
                             double accumulator_bytes) {
    AttentionShare const own(of, on);
    return static_cast<double>((head_ranks - 1) * own.tokens * own.heads) * accumulator_bytes /
           static_cast<double>(head_ranks);
}

/// What a rank sends over the two factors of cp.
struct TwoLevelBytes {
    SentBytes inner, outer;
};

/// A ring over outer(cp) whose blocks each go round inner(cp) (LoongTrain: Gu et al. 2024, section 4.3): together what
/// one ring sends, of which outer(cp), the network, has n/m - 1 blocks of n - 1.
constexpr TwoLevelBytes double_ring_attention_bytes(AttentionSizes const& of, BlockRanks const& on, std::int64_t inner,
                                                    double element_bytes, double gradient_bytes) {
    auto const outer = per_rank("cp", on.cp, "inner(cp)", inner);
    double const blocks = key_value_block_bytes(of, on, element_bytes),
                 gradients = key_value_block_bytes(of, on, gradient_bytes);
    auto const times = [&](std::int64_t n) {
        double const count = static_cast<double>(n);
        return SentBytes{count * blocks, count * (blocks + gradients)};
    };
    return {times(outer * ring_steps(inner)), times(ring_steps(outer))};
}

/// Heads exchanged for sequence over the `head_ranks` of a factor of cp, and a ring over the other (USP: Fang and Zhao
/// 2024): the bytes of the exchange as `inner`, of the ring as `outer`. A rank of tp has its kv heads so often that
/// they divide by the head ranks; gradients of copies travel in accumulators, as gradients do round the ring.
constexpr TwoLevelBytes two_level_attention_bytes(AttentionSizes const& of, BlockRanks const& on,
                                                  std::int64_t head_ranks, double element_bytes,
                                                  double gradient_bytes) {
    AttentionShare const own(of, on);
    auto const ring = ring_steps(per_rank("cp", on.cp, "head ranks", head_ranks));
    auto const kv_heads = own.kv_width / of.head_dim, copies = head_ranks / std::gcd(head_ranks, kv_heads);
    double const queries = static_cast<double>(own.tokens * own.width),
                 keys = static_cast<double>(2 * own.tokens * own.kv_width * copies);
    double const moved = static_cast<double>(head_ranks - 1) / static_cast<double>(head_ranks),
                 round = static_cast<double>(ring);
    double const exchanged = 2 * queries * element_bytes; // forward q and the output, backward their gradients
    return {{moved * (exchanged + keys * element_bytes),
             moved * (exchanged + keys * (copies > 1 ? gradient_bytes : element_bytes)) +
                 delta_bytes(of, on, head_ranks, gradient_bytes)},
            {round * keys * element_bytes, round * keys * (element_bytes + gradient_bytes)}};
}

/// Query-key pairs of one head that a rank computes in causal attention. Contiguous shards: rank r has the r-th part of
/// the sequence. Zigzag: parts r and 2n-1-r of 2n, which is the same for all.
/// @throws std::invalid_argument when the sequence does not divide into the parts
constexpr std::int64_t causal_pairs(std::int64_t seq, std::int64_t ranks, std::int64_t rank, bool zigzag) {
    std::int64_t const part = per_rank("seq", seq, zigzag ? "2 cp" : "cp", zigzag ? 2 * ranks : ranks);
    auto const of_part = [part](std::int64_t i) { return i * part * part + part * (part + 1) / 2; };
    return zigzag ? of_part(rank) + of_part(2 * ranks - 1 - rank) : of_part(rank);
}

} // namespace pentad::planner
