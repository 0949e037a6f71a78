#include <doctest/doctest.h>

#include <pentad/memory/pool.hpp>

#include <Kokkos_Core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

using namespace pentad;

namespace {

using Space = Kokkos::HostSpace;
using Pool = memory::Pool<Space>;
using Buffer = memory::Buffer<Space>;

/// What the pool under test has counted; each test looks at differences.
observe::MemoryCount counted() { return observe::counters()[observe::Memory::communication]; }

constexpr std::size_t mebi = std::size_t{1} << 20;

} // namespace

TEST_CASE("a block is aligned, counted while it is held, and given back by its last owner") {
    Pool pool(observe::Memory::communication);
    auto const before = counted();
    {
        Buffer const first = pool.take(100);
        CHECK(reinterpret_cast<std::uintptr_t>(first.data()) % 256 == 0);
        CHECK(counted().bytes - before.bytes == 256);
        CHECK(counted().allocations - before.allocations == 1);
        Buffer const second = pool.take(257);
        CHECK(counted().bytes - before.bytes == 256 + 512);
        CHECK(counted().allocations - before.allocations == 1); // cut from the same slab
        CHECK(static_cast<std::byte*>(second.data()) - static_cast<std::byte*>(first.data()) == 256);
        Buffer const nothing = pool.take(0); // has an address of its own too
        CHECK(nothing.data() != second.data());
        CHECK(counted().peak >= counted().bytes);
    }
    CHECK(counted().bytes == before.bytes);
    CHECK(Buffer().data() == nullptr);
}

TEST_CASE("copies share a block; only a sole owner may write over it") {
    Pool pool(observe::Memory::communication);
    auto const before = counted().bytes;
    Buffer first = pool.take(256);
    CHECK(first.sole_owner());
    Buffer second = first;
    CHECK(second.data() == first.data());
    CHECK(!first.sole_owner());
    CHECK(counted().bytes - before == 256); // once, however many handles
    Buffer third = std::move(second);
    CHECK(!first.sole_owner());
    third = pool.take(256);
    CHECK(first.sole_owner());
    CHECK(third.data() != first.data());
    Buffer& same = first;
    first = same; // an assignment to itself keeps it
    CHECK(first.sole_owner());
    third = {};
    CHECK(counted().bytes - before == 256);
    CHECK(!Buffer().sole_owner());
}

TEST_CASE("what was given back is used again: best fit, and neighbours become one") {
    Pool pool(observe::Memory::communication);
    auto const before = counted().allocations;
    Buffer a = pool.take(mebi / 4), b = pool.take(mebi / 4), c = pool.take(mebi / 4), d = pool.take(mebi / 4);
    CHECK(counted().allocations - before == 1);
    void* const at_a = a.data();
    void* const at_d = d.data();
    a = {};
    b = {};
    d = {};
    CHECK(pool.take(mebi / 4).data() == at_d); // for a moment: a quarter fits exactly where d was; the half stays whole
    Buffer const half = pool.take(mebi / 2);   // a and b in one piece
    CHECK(half.data() == at_a);
    CHECK(counted().allocations - before == 1);
    Buffer const quarter = pool.take(mebi / 4);
    CHECK(quarter.data() == at_d);
    Buffer const more = pool.take(256); // c is still held: the slab is full
    CHECK(counted().allocations - before == 2);
}

TEST_CASE("free neighbours become one slab again, in whatever order they were given back") {
    for (std::array<int, 4> const order :
         {std::array{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}, {2, 0, 3, 1}}) {
        Pool pool(observe::Memory::communication);
        auto const before = counted().allocations;
        std::vector<Buffer> blocks;
        for (int i = 0; i < 4; ++i) blocks.push_back(pool.take(mebi / 4));
        void* const first = blocks[0].data();
        for (int const i : order) blocks[static_cast<std::size_t>(i)] = {};
        Buffer const whole = pool.take(mebi);
        CHECK(whole.data() == first);
        CHECK(counted().allocations - before == 1);
    }
}

TEST_CASE("blocks never overlap, and a repeated pattern of use asks for no more memory") {
    Pool pool(observe::Memory::communication);
    struct Held {
        Buffer block;
        std::size_t size;
        unsigned char mark;
    };
    auto const step = [&] { // like a training step: takes and gives back in an order of its own, and ends with nothing
        std::mt19937 random(7);
        std::vector<Held> held;
        for (int i = 0; i < 600; ++i) {
            if (held.size() > 40 || (!held.empty() && random() % 3 == 0)) {
                std::size_t const at = random() % held.size();
                auto const* data = static_cast<unsigned char const*>(held[at].block.data());
                bool intact = true;
                for (std::size_t k = 0; k < held[at].size; k += 97) intact = intact && data[k] == held[at].mark;
                CHECK(intact);
                std::swap(held[at], held.back());
                held.pop_back();
            } else {
                std::size_t const size = 1 + random() % (random() % 8 == 0 ? mebi : 5000);
                auto const mark = static_cast<unsigned char>(random());
                held.push_back({pool.take(size), size, mark});
                auto* data = static_cast<unsigned char*>(held.back().block.data());
                for (std::size_t k = 0; k < size; k += 97) data[k] = mark;
            }
        }
    };
    step();
    auto const after_first = counted();
    CHECK(after_first.allocations > 1);
    step();
    auto const after_second = counted();
    for (int i = 0; i < 5; ++i) step();
    CHECK(counted().allocations == after_second.allocations);
    CHECK(counted().bytes == after_first.bytes);
    CHECK(counted().peak == after_second.peak);
}

TEST_CASE("a block that has been evicted takes no memory, keeps its owners, and has memory when it is brought back") {
    Pool pool(observe::Memory::communication);
    auto const held = [] { return counted().bytes; };
    auto const before = held();
    std::vector<memory::BlockName> names;
    pool.record(&names);
    Buffer first = pool.take(mebi / 2);
    {
        Buffer const gone = pool.take(256);
    }
    pool.record(nullptr);
    Buffer const other = pool.take(256); // not recorded, at the place of the one that is gone
    REQUIRE(names.size() == 2);
    CHECK(names[0] == first.name());
    CHECK(pool.exists(names[0]));
    CHECK(!pool.exists(names[1]));
    CHECK(!pool.exists(Buffer().name()));
    Buffer copy = first;
    pool.evict(names[0]);
    CHECK(held() - before == 256);
    CHECK(first.data() == nullptr);
    Buffer taken = pool.take(mebi / 2);
    pool.bring_back(names[0]);
    CHECK(first.data() != nullptr);
    CHECK(first.data() != taken.data());
    CHECK(copy.data() == pool.data(names[0]));
    copy = {};
    CHECK(pool.exists(names[0]));
    pool.evict(names[0]);
    first = {}; // its owner has never asked for it again
    CHECK(!pool.exists(names[0]));
    taken = {};
    CHECK(held() - before == 256);
    Buffer const whole = pool.take(mebi / 2);
    CHECK(whole.data() != nullptr);
}
