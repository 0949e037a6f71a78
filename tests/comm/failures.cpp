// What happens to the others when an operation fails, or cannot go the way that it would; and collectives that wait for
// each other in what looks like a circle.
// ranks: 2 3 4
#include <doctest/doctest.h>

#include "comm/worlds.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/view.hpp>

#include <sys/resource.h>

#include <array>
#include <string>
#include <vector>

using namespace comm_tests;
namespace comm = pentad::comm;

namespace {

using Numbers = View<f64, 1, Exec>;

/// n ones.
class Ones {
  public:
    explicit Ones(std::size_t n) : values_(n, 1.0) {}
    [[nodiscard]] Numbers view() { return Numbers(values_.data(), values_.size()); }
    [[nodiscard]] Numbers first(std::size_t n) { return Numbers(values_.data(), n); }

  private:
    std::vector<double> values_;
};

/// f() where MPI carries out all collectives.
template <class F>
void by_mpi(F&& f) {
    comm::forced_algorithm() = comm::Algorithm::mpi;
    f();
    comm::forced_algorithm() = comm::Algorithm::automatic;
}

[[maybe_unused]] std::string const differ = "the ranks of a group called different collectives: rank ";
bool begins_with(std::string const& text, std::string const& start) { return text.rfind(start, 0) == 0; }

} // namespace

#if !PENTAD_CHECKED // where groups are told something else, and go on: checked.cpp
TEST_CASE("an error reaches whoever waits for the operation, and nobody else") {
    World const world, other;
    Ones x(100), y(3);
    auto wrong = comm::start_all_reduce(Exec(), world.comm, x.first(world.me == 1 ? 7 : 8));
    comm::all_reduce(Exec(), other.comm, y.view());
    by_mpi([&] { comm::all_reduce(Exec(), other.comm, y.view()); });
    CHECK(y.view()(2) == static_cast<double>(world.n * world.n));
    CHECK(begins_with(message([&] { wrong.wait(); }), differ));
    wrong.wait(); // it is over
    World const third;
    auto const again = message([&] {
        auto asked = comm::start_all_reduce(Exec(), third.comm, x.first(world.me == 1 ? 7 : 8));
        while (!asked.test()) {
        }
    });
    CHECK(begins_with(again, differ));
}

TEST_CASE("a group in which ranks called different collectives fails at each further use, and never hangs") {
    for (bool const broadcasts : {false, true}) {
        World const world;
        Ones x(100000), y(100000);
        auto const first = message([&] {
            auto const view = world.me + 1 == world.n ? x.first(7) : x.first(8);
            if (broadcasts)
                comm::broadcast(Exec(), world.comm, view, 0);
            else
                comm::all_reduce(Exec(), world.comm, view);
        });
        if (!broadcasts || world.me + 1 == world.n) CHECK(begins_with(first, differ));
        for (int use = 0; use < 20; ++use) { // there are 8 slots
            auto const size = use % 2 == 0 ? 3u : 100000u;
            CHECK(begins_with(message([&] { comm::all_reduce(Exec(), world.comm, x.first(size)); }),
                              "this group failed: " + differ));
            CHECK(begins_with(message([&] { comm::start_all_reduce(Exec(), world.comm, y.first(size)).wait(); }),
                              "this group failed: " + differ));
        }
        World const fresh;
        Ones z(5);
        comm::all_reduce(Exec(), fresh.comm, z.view());
        CHECK(z.view()(4) == static_cast<double>(world.n));
        CHECK(comm::progress().is_idle());
    }
}

#endif

TEST_CASE("an error of MPI in two levels lets go of the operation") {
    if (world_size() != 4) return;
    World const world = simulated("2");
    REQUIRE(world.comm.levels() != nullptr);
    Ones in(40), out(160);
    MPI_Datatype uncommitted = MPI_DATATYPE_NULL; // which MPI refuses
    MPI_Type_contiguous(1, MPI_DOUBLE, &uncommitted);
    auto const* const from = reinterpret_cast<std::byte const*>(in.view().data());
    auto* const to = reinterpret_cast<std::byte*>(out.view().data());
    CHECK_THROWS_AS(
        comm::progress().begin<comm::TwoLevel>(
            *world.comm.levels(),
            comm::node::Task{
                .operation = Operation::all_gather, .in = from, .out = to, .bytes = 1280, .piece = 320, .element = 8},
            uncommitted, MPI_OP_NULL),
        comm::Error);
    CHECK(comm::progress().is_idle());
    CHECK(begins_with(message([&] { comm::all_gather(Exec(), world.comm, in.view(), out.view()); }),
                      "this group failed: MPI_Irecv failed: "));
    World const fresh = simulated("2");
    comm::all_gather(Exec(), fresh.comm, in.view(), out.view());
    // It has begun when MPI says no: the collective across nodes.
    auto& late = comm::progress().begin<comm::TwoLevel>(
        *fresh.comm.levels(),
        comm::node::Task{.operation = Operation::all_reduce,
                         .in = to,
                         .out = to,
                         .bytes = 1280,
                         .element = 8,
                         .reduction = comm::node::reduction<f64>(Placement::partial)},
        uncommitted, MPI_SUM);
    CHECK(message([&] { comm::progress().wait(late); }).find("MPI_Iallreduce failed: ") != std::string::npos);
    comm::progress().finish(&late);
    CHECK(comm::progress().is_idle());
    MPI_Type_free(&uncommitted);
}

TEST_CASE("memory that one rank cannot map goes through copies, for all") {
    World const world;
    std::size_t const size = 50000;
    auto const block = world.context.take(3 * size * sizeof(f64) * world.n); // in segments, new to the group
    Numbers const part(static_cast<f64*>(block.data()), size), x(part.data() + size, world.n * size),
        y(x.data() + world.n * size, world.n * size);
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    auto const right = [&] {
        Kokkos::deep_copy(x, static_cast<double>(world.me));
        comm::all_reduce(Exec(), world.comm, x);
        auto const n = static_cast<double>(world.n);
        CHECK(x(size) == n * (n - 1) / 2);
        Kokkos::deep_copy(x, static_cast<double>(world.me));
        comm::all_to_all(Exec(), world.comm, x, y);
        for (std::size_t p = 0; p < world.n; ++p) CHECK(y(p * size + 17) == static_cast<double>(p));
        comm::reduce_scatter(Exec(), world.comm, x, part);
        CHECK(part(size - 1) == n * (n - 1) / 2);
        comm::broadcast(Exec(), world.comm, y, 1);
        CHECK(y(size) == 1);
        auto one = comm::start_all_reduce(Exec(), world.comm, x), two = comm::start_all_reduce(Exec(), world.comm, y);
        two.wait();
        one.wait();
        CHECK(x(0) == n * (n - 1) / 2);
        CHECK(y(size) == n);
    };
    if (world.me == 0) { // rank 0 can open no more files
        rlimit none = files;
        none.rlim_cur = 3;
        setrlimit(RLIMIT_NOFILE, &none);
    }
    right();
    CHECK_FALSE(world.comm.node()->is_mapped(memory::shared_memory().locate(x.data(), 8).segment));
    if (world.me == 0) setrlimit(RLIMIT_NOFILE, &files);
    right();
    CHECK(world.comm.node()->is_mapped(memory::shared_memory().locate(x.data(), 8).segment));
}

TEST_CASE("what is under way goes on while a communicator is made") {
    if (world_size() != 4) return;
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>, Axis<tp>>(2, 2));
    auto const& pair = communicators.along(AxisNames("dp"));
    Ones x(1000000), y(3); // many chunks, to each of which both ranks come
    auto under_way = comm::start_all_reduce(Exec(), pair, x.view());
    if (pair.rank() == 1) under_way.wait(); // needs rank 0, which is already where all are to meet
    auto const& all = communicators.along(AxisNames("dp", "tp"));
    under_way.wait();
    comm::all_reduce(Exec(), all, y.view());
    CHECK(x.view()(999999) == 2);
    CHECK(y.view()(2) == 4);
}

TEST_CASE("what is under way is no hindrance to a collective of MPI: three pairs in a circle") {
    if (world_size() < 3 || world_rank() > 2) return;
    comm::Tuning const tuning;
    std::array<MeshAxisValue, 1> const mesh{MeshAxisValue{.name = "dp", .extent = 2, .stride = 1}};
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    std::vector<comm::Communicator> pairs(3); // of rank i and the next
    for (int i = 0; i < 3; ++i) {
        std::array<int, 2> const members{i, (i + 1) % 3};
        if (world_rank() != members[0] && world_rank() != members[1]) continue;
        MPI_Group group = MPI_GROUP_NULL;
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Group_incl(world, 2, members.data(), &group);
        MPI_Comm_create_group(MPI_COMM_WORLD, group, i, &comm);
        MPI_Group_free(&group);
        pairs[static_cast<std::size_t>(i)] = comm::Communicator(comm, AxisNames("dp"), mesh, tuning, observe::ledger());
    }
    MPI_Group_free(&world);
    Ones x(1000000), y(1000); // x: many chunks, to each of which both ranks come
    auto const reduces = [&](std::size_t pair) { by_mpi([&] { comm::all_reduce(Exec(), pairs[pair], y.view()); }); };
    // Rank 0 starts with 1. First 1 comes to that last, and 2 to 1 after it was with 0; then the other way round.
    for (bool const first : {true, false}) {
        if (world_rank() == 0) {
            auto under_way = comm::start_all_reduce(Exec(), pairs[0], x.view());
            reduces(2);
            under_way.wait();
        } else if (world_rank() == 1) {
            if (first) reduces(1);
            comm::start_all_reduce(Exec(), pairs[0], x.view()).wait();
            if (!first) reduces(1);
        } else {
            reduces(first ? 2 : 1);
            reduces(first ? 1 : 2);
        }
        if (world_rank() < 2) CHECK(x.view()(999999) == (first ? 2 : 4));
    }
    CHECK(y.view()(0) >= 4);
}
