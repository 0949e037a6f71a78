// What of an operation crosses the network: the bytes that a rank sends to ranks of other nodes. Exact
// where Pentad says to whom; of collectives that the MPI library carries out, a model: the algorithms that MPICH 5.0
// takes for 512 KiB and more. Its non-blocking ones differ in part.
#pragma once

#include <pentad/comm/node/task.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

namespace pentad::comm {

/// On which node each rank of a communicator lies. Nodes are numbered in the order of their first ranks.
class Nodes {
  public:
    Nodes() = default;
    /// One node that all ranks share, as rank `rank` sees it.
    Nodes(int ranks, int rank) : each_(ranks), leads_(rank == 0) {}
    Nodes(std::vector<int> node_of, int rank);
    [[nodiscard]] int count() const { return count_; }
    /// How many ranks each node has, where all have as many, which follow each other; else 0.
    [[nodiscard]] int each() const { return each_; }
    [[nodiscard]] int mine() const { return mine_; }
    [[nodiscard]] int of(int rank) const { return count_ == 1 ? 0 : node_of_[at(rank)]; }
    [[nodiscard]] bool is_here(int rank) const { return of(rank) == mine_; }
    /// How many ranks are on other nodes.
    [[nodiscard]] std::size_t elsewhere() const { return elsewhere_; }
    /// Whether this rank is the first of its node.
    [[nodiscard]] bool leads() const { return leads_; }

  private:
    static std::size_t at(int i) { return static_cast<std::size_t>(i); }

    std::vector<int> node_of_;
    int mine_ = 0, count_ = 1, each_ = 1;
    std::size_t elsewhere_ = 0;
    bool leads_ = true;
};

/// Bytes that a rank sends to ranks of other nodes, and whether a model says so.
struct NetworkBytes {
    double bytes = 0;
    bool modelled = false;
};

namespace detail {

/// f(to, bytes) for what member i of `count` sends in an all-reduce by halving and doubling (Thakur et al. 2005,
/// section 4.5): neighbours first. Where there are more members than a power of two, the first ones work in pairs.
template <class F>
void for_each_message_of_all_reduce(int count, int i, double bytes, F&& f) {
    int const power = static_cast<int>(std::bit_floor(static_cast<unsigned>(count))), pairs = count - power;
    if (i < 2 * pairs) f(i ^ 1, bytes); // the even one its summand, the odd one the sum
    if (i < 2 * pairs && i % 2 == 0) return;
    int const place = i < 2 * pairs ? i / 2 : i - pairs;
    for (int step = 1; step < power; step *= 2, bytes /= 2) {
        int const to = place ^ step;
        f(to < pairs ? 2 * to + 1 : to + pairs, bytes); // half of it each way
    }
}
inline double sent_in_all_reduce(int count, int i, double bytes) {
    double sent = 0;
    for_each_message_of_all_reduce(count, i, bytes, [&](int, double part) { sent += part; });
    return sent;
}

/// Up to so many bytes go down a tree in one piece.
inline constexpr double little = 12288;

/// f(to, bytes) for what member i of `count` sends in a broadcast: down a binomial tree; among eight and more the tree
/// carries to each member its piece, and then the pieces go round a ring (section 4.3).
template <class F>
void for_each_message_of_broadcast(int count, int root, int i, double bytes, F&& f) {
    int const place = (i - root + count) % count;
    bool const in_pieces = count >= 8 && bytes > little;
    double const piece = bytes / count;
    auto const reach = place == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(count))) : place & -place;
    for (int step = reach / 2; step > 0; step /= 2)
        if (place + step < count)
            f((i + step) % count, in_pieces ? piece * std::min(step, count - place - step) : bytes);
    if (in_pieces) f((i + 1) % count, piece * (count - 1));
}
inline double sent_in_broadcast(int count, int root, int i, double bytes) {
    double sent = 0;
    for_each_message_of_broadcast(count, root, i, bytes, [&](int, double part) { sent += part; });
    return sent;
}

/// Bytes of an all-reduce that each of the k ranks of a node sums, but the last, which sums what is left.
inline std::size_t share_in_all_reduce(std::size_t bytes, std::size_t k) {
    return (bytes + 64 * k - 1) / (64 * k) * 64;
}

} // namespace detail

/// What rank `rank` sends to other nodes for a task that goes in two levels (detail/two_level.hpp); where the MPI
/// library goes on from there, to more than one other node, as a model says. Each node has as many ranks.
NetworkBytes two_level_network(Nodes const& nodes, int rank, node::Task const& task);

/// What rank `rank` of `ranks` sends to other nodes where the MPI library carries out the task.
NetworkBytes mpi_network(Nodes const& nodes, int ranks, int rank, node::Task const& task);

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/network.hpp>
#endif
