// Counts over 2^31. The buffers are long and take little memory: between the ends of what ranks exchange, which are
// compared, the same zeros are mapped again and again.
// ranks: 2
#include <doctest/doctest.h>

#include "comm/groups.hpp"

#include <pentad/comm/collectives.hpp>
#include <pentad/comm/rooted.hpp>
#include <pentad/layout/ml.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>

using namespace comm_tests;
namespace comm = pentad::comm;

namespace {

using Byte = std::uint8_t;
constexpr std::size_t window = std::size_t{2} << 20, period = std::size_t{32} << 20;
constexpr std::size_t count = (std::size_t{1} << 31) + period; ///< elements of a rank

/// `pieces` pieces of `count` elements: windows of their own where pieces begin and end, and zeros between.
class Long {
  public:
    using View = Kokkos::View<Byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

    explicit Long(std::size_t pieces) : size_(pieces * count) {
        auto const map = [](void* at, std::size_t bytes, int flags, int file) {
            void* const memory = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
            REQUIRE(memory != MAP_FAILED);
            return static_cast<Byte*>(memory);
        };
        data_ = map(nullptr, size_, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
        int const zeros = memfd_create("zeros", 0);
        REQUIRE(ftruncate(zeros, static_cast<off_t>(period)) == 0);
        for (std::size_t piece = 0; piece < pieces; ++piece)
            for (std::size_t at = window; at < count - window; at += period)
                map(data_ + piece * count + at, std::min(period, count - window - at), MAP_SHARED | MAP_FIXED, zeros);
        close(zeros);
    }
    Long(Long const&) = delete;
    Long& operator=(Long const&) = delete;
    ~Long() { munmap(data_, size_); }

    [[nodiscard]] View view() const { return View(data_, size_); }
    /// value(piece, i) in the windows.
    template <class Value>
    void set(Value const& value) {
        for_each([&](std::size_t piece, std::size_t i) { data_[piece * count + i] = value(piece, i); });
    }
    template <class Value>
    [[nodiscard]] bool is(Value const& value) const {
        bool same = true;
        for_each([&](std::size_t piece, std::size_t i) { same = same && data_[piece * count + i] == value(piece, i); });
        return same;
    }

  private:
    template <class F>
    void for_each(F const& f) const {
        for (std::size_t piece = 0; piece < size_ / count; ++piece)
            for (std::size_t i = 0; i < window; ++i) {
                f(piece, i);
                f(piece, count - window + i);
            }
    }
    std::size_t size_;
    Byte* data_;
};

/// Element i of what rank `from` gives to rank `to`.
Byte at(std::size_t from, std::size_t to, std::size_t i) {
    return static_cast<Byte>(1 + (i * 7 + i / 4096 + 11 * from + 29 * to) % 101);
}

struct Force {
    explicit Force(comm::Algorithm algorithm) { comm::forced_algorithm() = algorithm; }
    ~Force() { comm::forced_algorithm() = comm::Algorithm::automatic; }
};

/// f(exec, communicator, rank) by each of some algorithms. MPI's sums would take as much memory as is reduced.
template <class F>
void by(std::initializer_list<comm::Algorithm> algorithms, F const& f) {
    comm::Communicators communicators(MPI_COMM_WORLD, Mesh<Axis<dp>>(world_size()));
    auto const& comm = communicators.along(AxisNames(dp::name));
    for (auto const algorithm : algorithms) {
        Force const force(algorithm);
        f(Exec(), comm, static_cast<std::size_t>(comm.rank()));
    }
}
constexpr auto own = comm::Algorithm::automatic, mpi = comm::Algorithm::mpi;

} // namespace

TEST_CASE("broadcast") {
    Long x(1);
    by({own, mpi}, [&](Exec const& exec, auto const& comm, std::size_t me) {
        x.set([&](std::size_t, std::size_t i) { return me == 1 ? at(1, 1, i) : Byte{0}; });
        comm::broadcast(exec, comm, x.view(), 1);
        CHECK(x.is([](std::size_t, std::size_t i) { return at(1, 1, i); }));
    });
}
TEST_CASE("a message") {
    Long x(1);
    by({own}, [&](Exec const& exec, auto const& comm, std::size_t me) {
        x.set([&](std::size_t, std::size_t i) { return me == 0 ? at(0, 1, i) : Byte{0}; });
        if (me == 0)
            comm::send(exec, comm, x.view(), 1);
        else
            comm::receive(exec, comm, x.view(), 0);
        CHECK(x.is([](std::size_t, std::size_t i) { return at(0, 1, i); }));
    });
}
TEST_CASE("all-gather") {
    Long in(1), out(2);
    by({own, mpi}, [&](Exec const& exec, auto const& comm, std::size_t me) {
        in.set([&](std::size_t, std::size_t i) { return at(me, 0, i); });
        out.set([](std::size_t, std::size_t) { return Byte{0}; });
        comm::all_gather(exec, comm, in.view(), out.view());
        CHECK(out.is([](std::size_t piece, std::size_t i) { return at(piece, 0, i); }));
    });
}
TEST_CASE("all-to-all") {
    Long in(2), out(2);
    by({own}, [&](Exec const& exec, auto const& comm, std::size_t me) {
        in.set([&](std::size_t piece, std::size_t i) { return at(me, piece, i); });
        comm::all_to_all(exec, comm, in.view(), out.view());
        CHECK(out.is([&](std::size_t piece, std::size_t i) { return at(piece, me, i); }));
    });
}
TEST_CASE("all-reduce") {
    Long x(1);
    by({own}, [&](Exec const& exec, auto const& comm, std::size_t me) {
        x.set([&](std::size_t, std::size_t i) { return at(me, 0, i); });
        comm::all_reduce(exec, comm, x.view());
        CHECK(x.is([](std::size_t, std::size_t i) { return static_cast<Byte>(at(0, 0, i) + at(1, 0, i)); }));
    });
}
TEST_CASE("reduce-scatter") {
    Long in(2), out(1);
    by({own}, [&](Exec const& exec, auto const& comm, std::size_t me) {
        in.set([&](std::size_t piece, std::size_t i) { return at(me, piece, i); });
        comm::reduce_scatter(exec, comm, in.view(), out.view());
        CHECK(out.is([&](std::size_t, std::size_t i) { return static_cast<Byte>(at(0, me, i) + at(1, me, i)); }));
    });
}
