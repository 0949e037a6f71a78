// Collectives through the shared memory of a node: large ones, in segments and outside, against a serial reference;
// several at once; what ranks that disagree are told; and what happens where memory cannot be shared.
// ranks: 2 3 4 8
#include <doctest/doctest.h>

#include "comm/worlds.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/tensor/context.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

using namespace comm_tests;
namespace comm = pentad::comm;

namespace {

/// Which ranks have their buffers in segments.
enum class Where { nobody, everybody, even_ranks };

/// A buffer of `n` elements in a segment or outside.
template <class T>
class Buffer {
  public:
    Buffer(World const& world, std::size_t n, Where where) {
        if (where == Where::everybody || (where == Where::even_ranks && world.me % 2 == 0)) {
            block_ = world.context.take(n * sizeof(T));
            view = View<T, 1, Exec>(static_cast<T*>(block_.data()), n);
            REQUIRE(memory::shared_memory().locate(view.data(), n * sizeof(T)).is_shared());
        } else {
            own_.resize(n);
            view = View<T, 1, Exec>(own_.data(), n);
            REQUIRE(!memory::shared_memory().locate(view.data(), n * sizeof(T)).is_shared());
        }
    }
    // A vector that grows copies what can be copied and whose move may throw, as Kokkos' views could before 4.7; the
    // copy's view would be of memory that the original frees.
    Buffer(Buffer const&) = delete;
    Buffer(Buffer&&) = default;
    View<T, 1, Exec> view;

  private:
    memory::Buffer<Kokkos::HostSpace> block_;
    std::vector<T> own_;
};

/// Element i of a rank: any number, so that the order of sums shows in their bits.
template <class T>
T value(std::size_t rank, std::size_t i) {
    std::uint64_t x = (rank + 1) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;
    x ^= x >> 31;
    x *= 0x94d049bb133111ebu;
    auto const unit = static_cast<double>(x >> 11) / 9007199254740992.0;
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(unit * 1000);
    else
        return T(static_cast<float>(unit - 0.5));
}
template <class T>
T sum(std::size_t ranks, std::size_t i) {
    using A = std::conditional_t<std::is_same_v<T, bf16>, f32, T>;
    auto total = static_cast<A>(value<T>(0, i));
    for (std::size_t r = 1; r < ranks; ++r) total = static_cast<A>(total + static_cast<A>(value<T>(r, i)));
    return static_cast<T>(total);
}
template <class V, class F>
void fill_with(V const& view, F&& f) {
    for (std::size_t i = 0; i < view.size(); ++i) view(i) = f(i);
}
/// The number of elements that differ, in any bit, from f(i).
template <class V, class F>
std::size_t differ(V const& view, F&& f) {
    using T = typename V::value_type;
    std::size_t count = 0;
    for (std::size_t i = 0; i < view.size(); ++i) {
        T const want = f(i);
        count += static_cast<std::size_t>(std::memcmp(&view(i), &want, sizeof(T)) != 0);
    }
    return count;
}

/// The number of elements that are not the sum of the n ranks' elements from `first` on.
template <class V>
std::size_t wrong_sums(V const& view, std::size_t n, std::size_t first, bool same_bits) {
    using T = typename V::value_type;
    if (same_bits || std::is_integral_v<T>) return differ(view, [&](std::size_t i) { return sum<T>(n, first + i); });
    double const unit = std::is_same_v<T, f64> ? 1e-15 : std::is_same_v<T, f32> ? 1e-6 : 1e-2;
    std::size_t count = 0;
    for (std::size_t i = 0; i < view.size(); ++i)
        count += static_cast<std::size_t>(
            !(std::abs(static_cast<double>(view(i)) - static_cast<double>(sum<T>(n, first + i))) <=
              unit * static_cast<double>(n)));
    return count;
}

/// `same_bits`: sums are made in the order of ranks; otherwise they may differ by rounding.
template <class T>
void all_collectives(World const& world, std::size_t piece, Where where, bool same_bits = true) {
    CAPTURE(piece);
    CAPTURE(static_cast<int>(where));
    Exec const exec;
    std::size_t const n = world.n, me = world.me, whole = n * piece;
    Buffer<T> in(world, whole, where), out(world, whole, where), part(world, piece, where);
    auto const mine = [&](std::size_t i) { return value<T>(me, i); };

    fill_with(in.view, mine);
    comm::all_reduce(exec, world.comm, in.view);
    CHECK(wrong_sums(in.view, n, 0, same_bits) == 0);
    fill_with(in.view, mine);
    comm::all_reduce(exec, world.comm, in.view, Placement::partial_max);
    CHECK(differ(in.view, [&](std::size_t i) {
              T largest = value<T>(0, i);
              for (std::size_t r = 1; r < n; ++r) largest = std::max(largest, value<T>(r, i));
              return largest;
          }) == 0);

    fill_with(in.view, mine);
    comm::reduce_scatter(exec, world.comm, in.view, part.view);
    CHECK(wrong_sums(part.view, n, me * piece, same_bits) == 0);
    CHECK(differ(in.view, mine) == 0);

    comm::all_to_all(exec, world.comm, in.view, out.view);
    CHECK(differ(out.view, [&](std::size_t i) { return value<T>(i / piece, me * piece + i % piece); }) == 0);

    fill_with(part.view, mine);
    fill_with(out.view, [](std::size_t) { return T(7); });
    comm::all_gather(exec, world.comm, part.view, out.view);
    CHECK(differ(out.view, [&](std::size_t i) { return value<T>(i / piece, i % piece); }) == 0);
    auto const own = Kokkos::subview(out.view, std::pair(me * piece, (me + 1) * piece));
    fill_with(out.view, [](std::size_t) { return T(7); });
    for (std::size_t i = 0; i < piece; ++i) own(i) = mine(i);
    comm::all_gather(exec, world.comm, own, out.view);
    CHECK(differ(out.view, [&](std::size_t i) { return value<T>(i / piece, i % piece); }) == 0);

    for (int const root : std::set<int>{0, static_cast<int>(n) / 2, static_cast<int>(n) - 1}) {
        fill_with(in.view, mine);
        comm::broadcast(exec, world.comm, in.view, root);
        CHECK(differ(in.view, [&](std::size_t i) { return value<T>(static_cast<std::size_t>(root), i); }) == 0);
    }

    // Rank r sends (r + 2 t) mod 4 of `piece` elements to rank t, and rank 1 nothing at all.
    auto const load = [&](std::size_t from, std::size_t to) {
        return static_cast<MPI_Count>(from == 1 ? 0 : (from + 2 * to) % 4 * piece / 3);
    };
    std::vector<MPI_Count> sent(n), received(n);
    std::vector<MPI_Aint> offsets(2 * n);
    std::size_t all_sent = 0, all_received = 0;
    for (std::size_t r = 0; r < n; ++r) {
        all_sent += static_cast<std::size_t>(sent[r] = load(me, r));
        all_received += static_cast<std::size_t>(received[r] = load(r, me));
    }
    Buffer<T> leaving(world, all_sent, where), arriving(world, all_received + 3, where);
    fill_with(leaving.view, mine);
    fill_with(arriving.view, [](std::size_t) { return T(7); });
    comm::all_to_all(exec, world.comm, leaving.view, sent, arriving.view, received, offsets);
    std::vector<T> want;
    for (std::size_t r = 0; r < n; ++r) {
        std::size_t first = 0;
        for (std::size_t t = 0; t < me; ++t) first += static_cast<std::size_t>(load(r, t));
        for (std::size_t i = 0; i < static_cast<std::size_t>(received[r]); ++i) want.push_back(value<T>(r, first + i));
    }
    want.insert(want.end(), 3, T(7));
    CHECK(differ(arriving.view, [&](std::size_t i) { return want[i]; }) == 0);
}

/// A piece of which all ranks' together are more than any cache of a core has.
std::size_t large(World const& world) { return 600'015 / world.n; }

} // namespace

TEST_CASE("the ranks of this machine find each other") {
    World const world;
    REQUIRE(world.comm.node() != nullptr);
    CHECK(world.comm.node()->size() == world.n);
    CHECK(world.comm.node()->rank() == world.me);
}

TEST_CASE("more ranks than processors share them, on however many nodes they are taken to be") {
    support::SimulatedNodes const nodes("1");
    comm::node::Group const group(MPI_COMM_WORLD);
    CHECK(group.size() == 1);
    CHECK(group.shares_cores() == (world_size() > sysconf(_SC_NPROCESSORS_ONLN)));
}

TEST_CASE_TEMPLATE("any size gives the same bits, wherever the buffers are", T, f64, f32, bf16, i32) {
    World const world;
    for (std::size_t const piece :
         {std::size_t{1}, std::size_t{33}, std::size_t{1000}, large(world)}) // 75,001 on 8 ranks
        for (auto const where : {Where::nobody, Where::everybody, Where::even_ranks})
            all_collectives<T>(world, piece, where);
    comm::forced_algorithm() = comm::Algorithm::mailbox;
    all_collectives<T>(world, 70001, Where::everybody);
    comm::forced_algorithm() = comm::Algorithm::process;
    for (auto const where : {Where::nobody, Where::even_ranks})
        for (std::size_t const piece : {std::size_t{33}, large(world)}) all_collectives<T>(world, piece, where);
    comm::forced_algorithm() = comm::Algorithm::automatic;
}

TEST_CASE("each copy method is taken in turn, and all give the same") {
    using comm::node::CopyMethod;
    World const world;
    auto& group = *world.comm.node();
    Exec const exec;
    std::size_t const n = world.n, me = world.me;
    auto const descriptors = [] {
        auto const all = std::filesystem::directory_iterator("/proc/self/fd");
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    };
    std::size_t const descriptors_before = descriptors();
    for (std::size_t const piece : {1000, 70001}) {
        CAPTURE(piece);
        std::vector<MPI_Count> const counts(n, static_cast<MPI_Count>(piece));
        std::vector<MPI_Aint> offsets(2 * n);
        Buffer<f32> in(world, n * piece, Where::nobody), part(world, piece, Where::nobody),
            other(world, piece, Where::nobody), out(world, n * piece, Where::nobody);
        fill_with(other.view, [&](std::size_t j) { return value<f32>(me, j); });
        std::map<Operation, std::set<CopyMethod>> taken;
        for (std::size_t i = 0; i < 40; ++i) {
            for (auto const operation : {Operation::all_gather, Operation::all_to_all, Operation::broadcast})
                taken[operation].insert(group.methods()
                                            .of(operation, (operation == Operation::broadcast ? 1 : n) * piece * 4)
                                            .agreed({CopyMethod::streamed, CopyMethod::lent_streamed}, false));
            auto const mine = [&](std::size_t j) { return value<f32>(me, i + j); };
            fill_with(in.view, mine);
            comm::all_to_all(exec, world.comm, in.view, out.view);
            CHECK(differ(out.view, [&](std::size_t j) { return value<f32>(j / piece, i + me * piece + j % piece); }) ==
                  0);
            fill_with(part.view, mine);
            comm::all_gather(exec, world.comm, part.view, out.view);
            CHECK(differ(out.view, [&](std::size_t j) { return value<f32>(j / piece, i + j % piece); }) == 0);
            comm::broadcast(exec, world.comm, part.view, 1);
            CHECK(differ(part.view, [&](std::size_t j) { return value<f32>(1, i + j); }) == 0);
            comm::all_to_all(exec, world.comm, in.view, counts, out.view, counts, offsets);
            CHECK(differ(out.view, [&](std::size_t j) { return value<f32>(j / piece, i + me * piece + j % piece); }) ==
                  0);
            auto first = comm::start_all_gather(exec, world.comm, part.view, in.view);
            auto second = comm::start_all_gather(exec, world.comm, other.view, out.view);
            (i % 2 == me % 2 ? first : second).wait();
            (i % 2 == me % 2 ? second : first).wait();
            CHECK(differ(in.view, [&](std::size_t j) { return value<f32>(1, i + j % piece); }) == 0);
            CHECK(differ(out.view, [&](std::size_t j) { return value<f32>(j / piece, j % piece); }) == 0);
        }
        std::size_t const possible = piece == 1000 ? 2 : group.reads_processes() ? comm::node::copy_method_count : 4;
        for (auto const& [operation, methods] : taken) CHECK(methods.size() >= possible);
        if (possible == comm::node::copy_method_count)
            CHECK(descriptors() >= descriptors_before + 3 * (n - 1)); // pipes
    }
}

TEST_CASE("many exchanges may be under way, and be waited for in any order") {
    World const world;
    Exec const exec;
    std::mt19937 random(11); // the same on all ranks
    for (std::size_t const size : {5, 40000}) {
        std::vector<Buffer<f64>> buffers;
        std::vector<comm::Request<comm::detail::Staged<View<f64, 1, Exec>>>> requests;
        for (std::size_t k = 0; k < 20; ++k) {
            buffers.emplace_back(world, size, k % 3 == 0 ? Where::everybody : Where::nobody);
            fill_with(buffers.back().view, [&](std::size_t i) { return value<f64>(world.me, i + k); });
        }
        for (auto const& buffer : buffers) requests.push_back(comm::start_all_reduce(exec, world.comm, buffer.view));
        std::vector<std::size_t> order(buffers.size());
        for (std::size_t k = 0; k < order.size(); ++k) order[k] = k;
        std::shuffle(order.begin(), order.end(), random);
        if (world.me % 2 == 1) std::reverse(order.begin(), order.end()); // ranks wait in different orders
        for (std::size_t const k : order) {
            requests[k].wait();
            CHECK(differ(buffers[k].view, [&](std::size_t i) { return sum<f64>(world.n, i + k); }) == 0);
        }
    }
}

TEST_CASE("a wait for the node lets MPI go on, and a wait for MPI the node") {
    World const world;
    Exec const exec;
    std::size_t const size = std::size_t{4} << 20; // too much for MPI to send before it is received
    Buffer<f64> big(world, size, Where::nobody), sum_of(world, 3, Where::nobody);
    fill_with(big.view, [](std::size_t i) { return static_cast<double>(i); });
    fill_with(sum_of.view, [](std::size_t) { return 1.0; });
    if (world.me == 0) { // sends, and waits for the others before it waits for the message to have gone
        auto sent = comm::start_send(exec, world.comm, big.view, 1);
        comm::all_reduce(exec, world.comm, sum_of.view);
        sent.wait();
    } else if (world.me == 1) { // comes to the others only when the message is there
        comm::receive(exec, world.comm, big.view, 0);
        comm::all_reduce(exec, world.comm, sum_of.view);
    } else
        comm::all_reduce(exec, world.comm, sum_of.view);
    CHECK(sum_of.view(0) == static_cast<double>(world.n));

    if (world.me == 0) { // the exchange is under way while it waits for a message, of which rank 1 says the same
        auto reduced = comm::start_all_reduce(exec, world.comm, big.view);
        comm::receive(exec, world.comm, sum_of.view, 1);
        reduced.wait();
    } else {
        auto reduced = comm::start_all_reduce(exec, world.comm, big.view);
        reduced.wait(); // needs rank 0's part
        if (world.me == 1) comm::send(exec, world.comm, sum_of.view, 0);
    }
    CHECK(differ(big.view, [&](std::size_t i) { return static_cast<double>(i * world.n); }) == 0);

    // The same with a collective of the MPI library that blocks.
    fill_with(big.view, [](std::size_t i) { return static_cast<double>(i); });
    fill_with(sum_of.view, [](std::size_t) { return 1.0; });
    auto reduced = comm::start_all_reduce(exec, world.comm, big.view);
    if (world.me != 0) reduced.wait();
    comm::forced_algorithm() = comm::Algorithm::mpi;
    comm::all_reduce(exec, world.comm, sum_of.view);
    comm::forced_algorithm() = comm::Algorithm::automatic;
    reduced.wait();
    CHECK(sum_of.view(0) == static_cast<double>(world.n));
    CHECK(differ(big.view, [&](std::size_t i) { return static_cast<double>(i * world.n); }) == 0);
}

#if !PENTAD_CHECKED // where they are told something else before: checked.cpp
TEST_CASE("ranks that call different collectives are told who does what") {
    World const world;
    Exec const exec;
    Buffer<f32> x(world, 8 * world.n, Where::nobody), y(world, 8 * world.n, Where::nobody);
    bool const odd = world.me == 1;
    auto const other = [&] {
        return message([&] {
            if (odd)
                comm::all_to_all(exec, world.comm, x.view, y.view);
            else
                comm::all_reduce(exec, world.comm, x.view);
        });
    }();
    std::string const bytes = std::to_string(32 * world.n);
    CHECK(other.find("the ranks of a group called different collectives: rank ") == 0);
    CHECK(other.find("rank 1 all_to_all of " + bytes + " bytes") != std::string::npos);
    CHECK(other.find(" all_reduce of " + bytes + " bytes") != std::string::npos);

    World const again;
    auto const size =
        message([&] { comm::all_reduce(exec, again.comm, View<f32, 1, Exec>(x.view.data(), again.me == 1 ? 4 : 8)); });
    CHECK(size.find("rank 1 all_reduce of 16 bytes") != std::string::npos);
    CHECK(size.find(" all_reduce of 32 bytes") != std::string::npos);

    World const counts;
    std::vector<MPI_Count> const two(counts.n, 2);
    std::vector<MPI_Count> wrong(two);
    if (counts.me == 0) wrong[1] = 3; // rank 0 sends rank 1 more than it expects
    std::vector<MPI_Aint> offsets(2 * counts.n);
    auto const counted = message([&] { comm::all_to_all(exec, counts.comm, x.view, wrong, y.view, two, offsets); });
    if (counts.me == 1) CHECK(counted == "all_to_all: rank 0 sends 12 bytes to rank 1, which is to receive 8");
}

#endif

TEST_CASE("where one rank cannot have shared memory all use the MPI library") {
    if (world_rank() == 1) memory::shared_memory().limit(1000);
    {
        World const world;
        CHECK(world.comm.node() == nullptr);
        Buffer<f64> x(world, 1000, Where::nobody);
        fill_with(x.view, [&](std::size_t i) { return static_cast<double>(world.me + i); });
        comm::all_reduce(Exec(), world.comm, x.view);
        std::size_t const n = world.n;
        CHECK(differ(x.view, [&](std::size_t i) { return static_cast<double>(n * (n - 1) / 2 + n * i); }) == 0);
        if (world_rank() == 1)
            CHECK(memory::shared_memory().complaint().find("PENTAD_SHARED_MEMORY_LIMIT") != std::string::npos);
    }
    if (world_rank() == 1) memory::shared_memory().limit(std::numeric_limits<std::size_t>::max());
    World const world;
    CHECK(world.comm.node() != nullptr);
}

TEST_CASE_TEMPLATE("two levels give the sums of all ranks, and what they carry in its place", T, f64, f32, bf16, i32) {
    if (world_size() < 4 || world_size() % 2 != 0) return;
    for (char const* const ranks_per_node : {"2", "4"}) {
        World const world = simulated(ranks_per_node);
        bool const one_node = static_cast<std::size_t>(std::atoi(ranks_per_node)) == world.n;
        REQUIRE((world.comm.levels() == nullptr) == one_node);
        if (one_node) continue;
        comm::forced_algorithm() = comm::Algorithm::direct; // small exchanges too
        for (std::size_t const piece : {1, 33, 1000, 70001})
            for (auto const where : {Where::nobody, Where::everybody, Where::even_ranks})
                all_collectives<T>(world, piece, where, /*same_bits=*/false);
        comm::forced_algorithm() = comm::Algorithm::automatic;
    }
}

TEST_CASE("two-level operations may be waited for in any order") {
    if (world_size() < 4 || world_size() % 2 != 0) return;
    World const world = simulated("2");
    Exec const exec;
    std::size_t const n = world.n, piece = 5000;
    using Numbers = View<f64, 1, Exec>;
    std::vector<Buffer<f64>> sums, wholes, parts;
    std::vector<comm::Request<comm::detail::Staged<Numbers>>> reductions;
    std::vector<comm::Request<comm::detail::Staged<Numbers>, comm::detail::Staged<Numbers>>> gathers;
    for (std::size_t k = 0; k < 12; ++k) {
        auto const where = k % 3 == 0 ? Where::everybody : Where::nobody;
        sums.emplace_back(world, n * piece, where);
        wholes.emplace_back(world, n * piece, where);
        parts.emplace_back(world, piece, where);
        fill_with(sums.back().view, [&](std::size_t i) { return static_cast<double>(world.me * k + i); });
        fill_with(parts.back().view, [&](std::size_t i) { return value<f64>(world.me, i + k); });
    }
    for (std::size_t k = 0; k < 12; ++k) {
        reductions.push_back(comm::start_all_reduce(exec, world.comm, sums[k].view));
        gathers.push_back(comm::start_all_gather(exec, world.comm, parts[k].view, wholes[k].view));
    }
    for (std::size_t i = 0; i < 12; ++i) { // ranks wait in different orders
        std::size_t const k = world.me % 2 == 0 ? i : 11 - i;
        gathers[k].wait();
        reductions[11 - k].wait();
        CHECK(differ(wholes[k].view, [&](std::size_t j) { return value<f64>(j / piece, j % piece + k); }) == 0);
        CHECK(differ(sums[11 - k].view,
                     [&](std::size_t j) { return static_cast<double>(n * (n - 1) / 2 * (11 - k) + n * j); }) == 0);
    }
}

TEST_CASE("a two-level reduce-scatter may be asked for, and completed by another wait") {
    if (world_size() < 4 || world_size() % 2 != 0) return;
    World const world = simulated("2");
    Exec const exec;
    std::size_t const n = world.n, piece = 40000;
    Buffer<f64> in(world, n * piece, Where::nobody), out(world, piece, Where::nobody),
        other(world, n * piece, Where::nobody);
    for (int const round : {0, 1}) {
        fill_with(in.view, [&](std::size_t i) { return static_cast<double>(world.me + i); });
        fill_with(other.view, [](std::size_t) { return 1.0; });
        auto scattered = comm::start_reduce_scatter(exec, world.comm, in.view, out.view);
        if (round == 0)
            while (!scattered.test()) {
            }
        else
            comm::all_reduce(exec, world.comm, other.view);
        scattered.wait();
        CHECK(differ(out.view, [&](std::size_t i) {
                  return static_cast<double>(n * (n - 1) / 2 + n * (world.me * piece + i));
              }) == 0);
    }
}

TEST_CASE("nodes of different sizes are no two levels") {
    if (world_size() != 4 && world_size() != 8) return;
    // Ranks 0 and 1 are node 0; all others, of which each takes its rank for the size of a node, are node 1.
    World const world = simulated(world_rank() < 2 ? "1000" : std::to_string(world_rank()));
    CHECK((world.comm.levels() != nullptr) == (world.n == 4));
    CHECK(world.comm.node() == nullptr);
    Buffer<f64> x(world, 100000, Where::nobody);
    fill_with(x.view, [](std::size_t) { return 1.0; });
    comm::all_reduce(Exec(), world.comm, x.view);
    CHECK(differ(x.view, [&](std::size_t) { return static_cast<double>(world.n); }) == 0);
}

TEST_CASE("nodes can be simulated") {
    setenv("PENTAD_RANKS_PER_NODE", "2", 1);
    {
        World const world;
        CHECK((world.comm.node() != nullptr) == (world.n <= 2));
        if (world.n == 4) {
            Mesh<Axis<dp>, Axis<tp>> const mesh(2, 2);
            comm::Communicators communicators(MPI_COMM_WORLD, mesh);
            CHECK(communicators.along(AxisNames("tp")).node() != nullptr); // neighbours
            CHECK(communicators.along(AxisNames("dp")).node() == nullptr);
        }
    }
    CHECK_THROWS_WITH_AS((void)simulated("none"), "PENTAD_RANKS_PER_NODE=none: it is a number of ranks, 1 or more",
                         comm::Error);
}

TEST_CASE("all ranks follow the tuning that the first rank reads, and none that cannot be used") {
    std::string const path = "pentad-tuning-test." + std::to_string(world_size());
    auto const mpi_calls_with = [&](std::string const& file) {
        if (world_rank() == 0) setenv("PENTAD_TUNING", file.c_str(), 1);
        World const world;
        unsetenv("PENTAD_TUNING");
        Buffer<f64> x(world, 10, Where::nobody);
        fill_with(x.view, [](std::size_t) { return 1.0; });
        pmpi::clear();
        comm::all_reduce(Exec(), world.comm, x.view);
        CHECK(x.view(0) == static_cast<double>(world.n));
        return pmpi::count().calls;
    };
    auto const mpi_calls = [&](std::string const& text) {
        if (world_rank() == 0) std::ofstream(path) << text;
        auto const calls = mpi_calls_with(path);
        std::remove(path.c_str());
        return calls;
    };
    std::string const head = "pentad tuning 1\nmachine " + comm::Tuning::machine() + "\n";
    CHECK(mpi_calls(head + "group 2 ranks 1 nodes\nmpi all_reduce 0 81\n") == 1);
    CHECK(mpi_calls(head + "group 2 ranks 1 nodes\nmpi all_reduce 0 80\n") == 0);
    CHECK(mpi_calls("pentad tuning 1\nmachine of another kind\ngroup 2 ranks 1 nodes\nmpi all_reduce 0 81\n") == 0);
    CHECK(mpi_calls(std::string("\0\xff\n", 3)) == 0);
    // Nothing else than a regular file is waited for, or read.
    if (world_rank() == 0) mkfifo(path.c_str(), 0600);
    CHECK(mpi_calls_with(path) == 0);
    std::remove(path.c_str());
    for (char const* const file : {"/dev/zero", "/proc/kmsg", "/proc/self/maps", "/", "/no such file"})
        CHECK(mpi_calls_with(file) == 0);
    if (world_rank() == 0) {
        std::ofstream(path) << head;
        std::filesystem::resize_file(path, 1'000'000'000);
    }
    CHECK(mpi_calls_with(path) == 0);
    std::remove(path.c_str());
}

TEST_CASE("memory that is given back is gone for the peers, and new memory is found") {
    World const world;
    for (int round = 0; round < 5; ++round) {
        Context<Exec> const context(world.context.communicators());
        auto const block = context.take(std::size_t{3} << 20);
        View<f64, 1, Exec> const x(static_cast<f64*>(block.data()), 100000);
        fill_with(x, [&](std::size_t i) { return value<f64>(world.me, i); });
        comm::all_reduce(Exec(), world.comm, x);
        CHECK(differ(x, [&](std::size_t i) { return sum<f64>(world.n, i); }) == 0);
    }
}
