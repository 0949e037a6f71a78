// What a rank sends: in a collective, and in a redistribution together with its adjoint;
// and over how many ranks a block of a layer is spread. Bytes are counted one way: what a rank sends, it also receives.
#pragma once

#include <pentad/layout/cost.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/plan.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace pentad::planner {

using namespace ml;

/// A rank's share of an extent, e.g. per_rank("heads", 32, "tp", 4) == 8.
/// @throws std::invalid_argument naming both when it does not divide, or when one is below 1.
constexpr std::int64_t per_rank(std::string_view what, std::int64_t extent, std::string_view axis, std::int64_t ranks) {
    if (extent < 1 || ranks < 1)
        throw std::invalid_argument(std::string(extent < 1 ? what : axis) + " = " +
                                    std::to_string(extent < 1 ? extent : ranks) + ": it must be at least 1");
    if (extent % ranks != 0)
        throw std::invalid_argument(std::string(what) + " = " + std::to_string(extent) + " is not divisible by " +
                                    std::string(axis) + " = " + std::to_string(ranks));
    return extent / ranks;
}

/// A rank's share of what several ranks hold together where there are fewer of it than ranks: kv heads, and groups of a
/// state-space model. @throws std::invalid_argument when neither divides the other.
constexpr std::int64_t per_rank_or_one(std::string_view what, std::int64_t extent, std::string_view axis,
                                       std::int64_t ranks) {
    return extent >= 1 && ranks > extent && ranks % extent == 0 ? 1 : per_rank(what, extent, axis, ranks);
}

/// Bytes that one rank sends.
struct SentBytes {
    double forward = 0;
    double backward = 0;
    [[nodiscard]] constexpr double total() const { return forward + backward; }
    friend constexpr SentBytes operator+(SentBytes a, SentBytes b) {
        return {a.forward + b.forward, a.backward + b.backward};
    }
    friend constexpr SentBytes operator*(double times, SentBytes a) { return {times * a.forward, times * a.backward}; }
    friend constexpr bool operator==(SentBytes const&, SentBytes const&) = default;
};

/// Over how many ranks a block of a layer (attention, feed-forward, Mamba) is spread.
struct BlockRanks {
    std::int64_t dp = 1; ///< share out the batch
    std::int64_t cp = 1; ///< share out the sequences
    std::int64_t tp = 1; ///< share out heads and width
    /// The stream between blocks is sharded over tp too (Korthikanti et al. 2022).
    bool sequence_parallel = false;
    /// Under sequence parallelism: the gathered input is kept for the backward pass, not gathered once more.
    bool keeps_gathered_input = true;
};

/// What a rank sends in the redistribution From -> To of a tensor with these global extents, and in its adjoint.
template <class From, class To, class... Axes>
constexpr SentBytes sent_between(std::array<std::size_t, From::rank> const& global, double element_bytes,
                                 Mesh<Axes...> const& mesh) {
    double const elements = element_bytes / static_cast<double>(From::value.element_size);
    return {elements * cost_of<From, To>(global, mesh).total(),
            elements * cost_of<dual_t<To>, dual_t<From>>(global, mesh).total()};
}

namespace detail {
using Stream = Dims<Dim<token>, Dim<hidden>>;
using WholeStream = Layout<f32, Stream>;
using UsedStream = Layout<f32, Stream, Replicated<tp>>;
using SummandStream = Layout<f32, Stream, Partial<tp>>;
using ShardedStream = Layout<f32, Dims<Dim<token, dynamic, tp>, Dim<hidden>>>;

/// The bytes that a rank sends in a reduce-scatter of `whole` bytes.
constexpr double scattered(double whole, std::int64_t ranks) {
    if (ranks < 1) throw std::invalid_argument("ranks = " + std::to_string(ranks) + ": it must be at least 1");
    Cost cost;
    MeshAxisValue const axis{.name = tp::name, .extent = static_cast<int>(ranks)};
    add_scatter_cost(cost, {&axis, 1}, AxisNames(tp::name), whole);
    return cost.total();
}
} // namespace detail

/// A block whose inside is sharded over tp: its input is gathered, or used by all, its output is summed.
/// @param tokens of the rank's dp and cp shard, before tp shards them
constexpr SentBytes tensor_parallel_bytes(std::int64_t tokens, std::int64_t hidden, double element_bytes,
                                          BlockRanks const& on) {
    using namespace detail;
    Mesh<Axis<tp>> const mesh(static_cast<int>(on.tp));
    std::array const extents{static_cast<std::size_t>(tokens), static_cast<std::size_t>(hidden)};
    if (!on.sequence_parallel)
        return sent_between<WholeStream, UsedStream>(extents, element_bytes, mesh) +
               sent_between<SummandStream, WholeStream>(extents, element_bytes, mesh);
    auto const in = sent_between<ShardedStream, UsedStream>(extents, element_bytes, mesh);
    auto sent = in + sent_between<SummandStream, ShardedStream>(extents, element_bytes, mesh);
    if (!on.keeps_gathered_input) sent.backward += in.forward;
    return sent;
}

/// All-gather: each rank begins with `own` bytes and ends with those of all (Chan et al. 2007, section 3).
constexpr double all_gather_bytes(double own, std::int64_t ranks) {
    return detail::scattered(own * static_cast<double>(ranks), ranks);
}
/// Reduce-scatter: each rank begins with `whole` bytes and ends with its share of their sum.
constexpr double reduce_scatter_bytes(double whole, std::int64_t ranks) { return detail::scattered(whole, ranks); }
/// All-reduce: a reduce-scatter and an all-gather.
constexpr double all_reduce_bytes(double whole, std::int64_t ranks) { return 2 * detail::scattered(whole, ranks); }
/// All-to-all: each rank keeps its own share of `own` bytes and sends the others theirs.
constexpr double all_to_all_bytes(double own, std::int64_t ranks) { return detail::scattered(own, ranks); }
/// Gather to one rank: what the root receives; every other rank sends `own`.
constexpr double gather_bytes_at_root(double own, std::int64_t ranks) { return own * static_cast<double>(ranks - 1); }
/// Reduce to one rank: a reduce-scatter and a gather of the shares. What any rank but the root sends, (n-1)/n and 1/n.
constexpr double reduce_bytes(double whole, std::int64_t ranks) { return ranks > 1 ? whole : 0; }

} // namespace pentad::planner
