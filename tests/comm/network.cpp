// What the ledger says of the network, where every two of four ranks are taken for a node.
// ranks: 4
#include <doctest/extensions/doctest_mpi.h>

#include "groups.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/network.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/ml.hpp>

#include <cstdlib>
#include <functional>
#include <string>

using namespace comm_tests;
namespace comm = pentad::comm;

namespace {

using Numbers = Kokkos::View<f32*, Exec>;

/// What each rank sends to other nodes.
struct Row {
    double of[4];
    bool modelled;
};
/// PENTAD_RANKS_PER_NODE on this rank, while it lives.
struct Simulated {
    explicit Simulated(char const* ranks_per_node) { setenv("PENTAD_RANKS_PER_NODE", ranks_per_node, 1); }
    Simulated(Simulated const&) = delete;
    Simulated& operator=(Simulated const&) = delete;
    ~Simulated() {
        unsetenv("PENTAD_RANKS_PER_NODE");
        comm::forced_algorithm() = comm::Algorithm::automatic;
    }
};

void check(char const* what, Operation operation, Row const& row, std::function<void()> const& call,
           char const* axis = "dp") {
    INFO(what, ", rank ", world_rank());
    observe::ledger().clear();
    call();
    auto const entry = observe::ledger().entry(axis, operation);
    CHECK(entry.network_bytes == row.of[world_rank()]);
    CHECK(entry.network_modelled == row.modelled);
    CHECK(observe::ledger().network_bytes(axis) == row.of[world_rank()]);
}

constexpr std::size_t whole = 262144, piece = whole / 4; // 1 MiB of f32

struct Calls {
    comm::Communicator const& group;
    Exec exec{};
    Numbers in{"in", whole}, out{"out", whole};
    Numbers part{"part", piece};

    void check_all(Row const& all_reduce, Row const& reduce_scatter, Row const& all_gather, Row const& all_to_all,
                   Row const& broadcast_of_0, Row const& broadcast_of_1) const {
        check("all-reduce", Operation::all_reduce, all_reduce, [&] { comm::all_reduce(exec, group, in); });
        check("reduce-scatter", Operation::reduce_scatter, reduce_scatter,
              [&] { comm::reduce_scatter(exec, group, in, part); });
        check("all-gather", Operation::all_gather, all_gather, [&] { comm::all_gather(exec, group, part, out); });
        check("all-to-all", Operation::all_to_all, all_to_all, [&] { comm::all_to_all(exec, group, in, out); });
        check("broadcast of rank 0", Operation::broadcast, broadcast_of_0,
              [&] { comm::broadcast(exec, group, in, 0); });
        check("broadcast of rank 1", Operation::broadcast, broadcast_of_1,
              [&] { comm::broadcast(exec, group, in, 1); });
    }
};

} // namespace

TEST_CASE("in two levels every byte is booked where it leaves its node, and once") {
    Simulated const two("2");
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(4));
    Calls const calls{communicators.along(AxisNames("dp"))};
    CHECK(calls.group.nodes().count() == 2);
    comm::forced_algorithm() = comm::Algorithm::direct;
    calls.check_all({{524288, 524288, 524288, 524288}, false}, {{262144, 262144, 262144, 262144}, false},
                    {{262144, 262144, 262144, 262144}, false}, {{524288, 524288, 524288, 524288}, false},
                    {{1048576, 0, 0, 0}, false}, {{0, 1048576, 0, 0}, false});
    Numbers const few("few", 17); // 64 bytes are the first rank's, 4 the second's
    check("all-reduce of 17", Operation::all_reduce, {{64, 4, 64, 4}, false},
          [&] { comm::all_reduce(calls.exec, calls.group, few); });
}

TEST_CASE("what the MPI library sends across is what MPICH's algorithms would") {
    Simulated const two("2");
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(4));
    Calls const calls{communicators.along(AxisNames("dp"))};
    comm::forced_algorithm() = comm::Algorithm::mpi;
    calls.check_all({{524288, 524288, 524288, 524288}, true}, {{524288, 524288, 524288, 524288}, true},
                    {{0, 786432, 0, 786432}, true}, {{524288, 524288, 524288, 524288}, false},
                    {{1048576, 0, 0, 0}, true}, {{1048576, 0, 0, 0}, true});
    check("reduce", Operation::reduce, {{0, 0, 1048576, 0}, true},
          [&] { comm::reduce(calls.exec, calls.group, calls.in, 1); });
    check("gather", Operation::gather, {{0, 0, 262144, 262144}, world_rank() != 1},
          [&] { comm::gather(calls.exec, calls.group, calls.part, calls.out, 1); });
}

TEST_CASE("given counts and messages are booked by destination") {
    Simulated const two("2");
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(4));
    auto const& group = communicators.along(AxisNames("dp"));
    Exec const exec;
    int const me = world_rank();
    // Rank i sends 10 i + j elements to rank j.
    std::vector<MPI_Count> sent, received;
    std::vector<MPI_Aint> offsets(8);
    for (int j = 0; j < 4; ++j) sent.push_back(10 * me + j), received.push_back(10 * j + me);
    Numbers const in("in", 200), out("out", 200);
    check("counted all-to-all", Operation::all_to_all, {{20, 100, 164, 244}, false},
          [&] { comm::all_to_all(exec, group, in, sent, out, received, offsets); });
    check("shift", Operation::send, {{0, 800, 0, 800}, false}, [&] { comm::ring_shift(exec, group, in, out); });
    check("shift by 2", Operation::send, {{800, 800, 800, 800}, false},
          [&] { comm::ring_shift(exec, group, in, out, 2); });
}

TEST_CASE("a group inside a node sends nothing across; over two axes the bytes are shared out between them") {
    Simulated const two("2");
    Exec const exec;
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>, Axis<tp>>(2, 2));
    Numbers const x("x", whole);
    CHECK(communicators.along(AxisNames("tp")).nodes().count() == 1);
    check(
        "inside", Operation::all_reduce, {{0, 0, 0, 0}, false},
        [&] { comm::all_reduce(exec, communicators.along(AxisNames("tp")), x); }, "tp");
    check("across", Operation::all_reduce, {{1048576, 1048576, 1048576, 1048576}, true},
          [&] { comm::all_reduce(exec, communicators.along(AxisNames("dp")), x); });
    observe::ledger().clear();
    comm::forced_algorithm() = comm::Algorithm::direct;
    comm::all_reduce(exec, communicators.along(AxisNames("dp", "tp")), x);
    // 1 1/2 of its bytes are sent, 1 on tp and 1/2 on dp; half of them cross the network.
    CHECK(observe::ledger().network_bytes("tp") == doctest::Approx(524288 * 2.0 / 3));
    CHECK(observe::ledger().network_bytes("dp") == doctest::Approx(524288 / 3.0));
}

TEST_CASE("nodes of different sizes and of one rank are known too") {
    {
        Simulated const uneven(world_rank() < 3 ? "1000" : "1"); // ranks 0, 1 and 2; rank 3
        comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(4));
        Calls const calls{communicators.along(AxisNames("dp"))};
        CHECK(calls.group.nodes().count() == 2);
        CHECK(calls.group.nodes().elsewhere() == (world_rank() < 3 ? 1 : 3));
        calls.check_all({{0, 524288, 1048576, 1572864}, true}, {{262144, 262144, 262144, 786432}, true},
                        {{0, 0, 786432, 786432}, true}, {{262144, 262144, 262144, 786432}, false},
                        {{1048576, 0, 0, 0}, true}, {{1048576, 0, 0, 0}, true});
    }
    Simulated const one("1");
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(4));
    Calls const calls{communicators.along(AxisNames("dp"))};
    // Four nodes: an all-reduce sends 2 x 3/4; the tree of a broadcast is 0 -> 2, 1 and 2 -> 3, or 1 -> 3, 2 and 3 ->
    // 0.
    calls.check_all({{1572864, 1572864, 1572864, 1572864}, true}, {{786432, 786432, 786432, 786432}, true},
                    {{786432, 786432, 786432, 786432}, true}, {{786432, 786432, 786432, 786432}, false},
                    {{2097152, 0, 1048576, 0}, true}, {{0, 2097152, 0, 1048576}, true});
}

TEST_CASE("MPICH's algorithms on other numbers of nodes") {
    using comm::detail::sent_in_all_reduce;
    using comm::detail::sent_in_broadcast;
    CHECK(sent_in_all_reduce(2, 1, 96) == 96);
    // Of three, the first leaves its part to the second, which gives it the sum.
    CHECK(sent_in_all_reduce(3, 0, 96) == 96);
    CHECK(sent_in_all_reduce(3, 1, 96) == 192);
    CHECK(sent_in_all_reduce(3, 2, 96) == 96);
    CHECK(sent_in_all_reduce(8, 5, 96) == 168);
    CHECK(sent_in_broadcast(3, 1, 1, 96) == 192);
    CHECK(sent_in_broadcast(3, 1, 2, 96) == 0);
    // Among eight, 81920 bytes in pieces of 10240: the first gives half, a quarter and an eighth away; then seven
    // pieces go round.
    CHECK(sent_in_broadcast(8, 0, 0, 81920) == 71680 + 71680);
    CHECK(sent_in_broadcast(8, 0, 4, 81920) == 30720 + 71680);
    CHECK(sent_in_broadcast(8, 0, 7, 81920) == 71680);
    CHECK(sent_in_broadcast(8, 0, 0, 8192) == 3 * 8192);
}
