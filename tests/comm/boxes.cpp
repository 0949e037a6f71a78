// Boxes from array to array within a node, against what each element must be: any boxes, elements and sizes, whichever
// way they go; and what ranks are told that mean different ones.
// ranks: 2 3 4 8
#include <doctest/doctest.h>

#include "comm/worlds.hpp"

#include <pentad/comm/box_exchange.hpp>
#include <pentad/observe/ledger.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace comm_tests;
namespace comm = pentad::comm;

namespace own {
/// An element that no word holds.
struct Three {
    std::uint64_t parts[3];
};
} // namespace own
template <>
struct pentad::Element<own::Three> {
    static constexpr std::string_view name = "three";
    using accumulator = own::Three;
};

namespace {

/// Element i of the whole, in bytes that all depend on i.
template <class T>
T element(std::size_t i) {
    std::array<std::uint64_t, 3> words{};
    for (std::size_t w = 0; w < 3; ++w) words[w] = (i + 1) * 0x9e3779b97f4a7c15u + w * 0xbf58476d1ce4e5b9u;
    for (auto& word : words) word ^= word >> 29;
    T result;
    std::memcpy(static_cast<void*>(&result), words.data(), sizeof result);
    return result;
}
constexpr int untouched = 0x7a;

/// Cuts of an extent into n blocks of any lengths, some empty; the same on all ranks.
std::vector<std::size_t> cuts(std::mt19937& random, std::size_t extent, std::size_t n, bool even) {
    std::vector<std::size_t> result{0, extent};
    for (std::size_t i = 1; i < n; ++i) result.push_back(even ? extent * i / n : random() % (extent + 1));
    std::sort(result.begin(), result.end());
    return result;
}

struct Case {
    std::array<std::size_t, 4> extents;
    std::size_t from, to; ///< the dimension cut before and after; 4: none
    bool even;
};
ElementBox cut(Case const& one, std::size_t d, std::vector<std::size_t> const& at, std::size_t p) {
    ElementBox box;
    for (std::size_t i = 0; i < 4; ++i) box.end[i] = one.extents[i];
    if (d < 4) box.begin[d] = at[p], box.end[d] = at[p + 1];
    return box;
}
ElementBox both(ElementBox const& a, ElementBox const& b) {
    ElementBox box;
    for (std::size_t d = 0; d < 4; ++d) {
        box.begin[d] = std::max(a.begin[d], b.begin[d]);
        box.end[d] = std::max(box.begin[d], std::min(a.end[d], b.end[d]));
    }
    return box;
}
/// f(place in the array, number of the element in the whole) for all elements of an array.
template <class F>
void for_each(Case const& one, ElementBox const& box, F&& f) {
    std::size_t at = 0;
    for (std::size_t i = box.begin[0]; i < box.end[0]; ++i)
        for (std::size_t j = box.begin[1]; j < box.end[1]; ++j)
            for (std::size_t k = box.begin[2]; k < box.end[2]; ++k)
                for (std::size_t l = box.begin[3]; l < box.end[3]; ++l)
                    f(at++, ((i * one.extents[1] + j) * one.extents[2] + k) * one.extents[3] + l);
}

comm::Boxes boxes_of(World const& world, Case const& one, std::mt19937& random) {
    auto const before = cuts(random, one.extents[one.from], world.n, one.even),
               after = cuts(random, one.to < 4 ? one.extents[one.to] : 1, world.n, one.even);
    comm::Boxes boxes(4, world.n);
    boxes.needed = cut(one, one.to, after, world.me);
    for (std::size_t p = 0; p < world.n; ++p) {
        boxes.held[p] = cut(one, one.from, before, p);
        boxes.longest = std::max(boxes.longest, boxes.held[p].size(4));
    }
    for (std::size_t p = 0; p < world.n; ++p) {
        boxes.given[p] = both(boxes.held[world.me], cut(one, one.to, after, p));
        boxes.taken[p] = both(boxes.held[p], boxes.needed);
    }
    return boxes;
}

/// Elements with a few bytes in front and behind that nobody may write, in a segment or outside.
template <class T>
class Array {
  public:
    Array(Array const&) = delete; // all_ would be of the other one
    Array(World const& world, std::size_t n, bool in_segment) : own_(in_segment ? 0 : n + 2) {
        if (in_segment) block_ = world.context.take((n + 2) * sizeof(T));
        all_ = in_segment ? static_cast<T*>(block_.data()) : own_.data();
        std::memset(static_cast<void*>(all_), untouched, (n + 2) * sizeof(T));
        size_ = n;
    }
    [[nodiscard]] T* data() const { return all_ + 1; }
    [[nodiscard]] bool is_intact_outside() const {
        T clean;
        std::memset(static_cast<void*>(&clean), untouched, sizeof(T));
        return std::memcmp(all_, &clean, sizeof(T)) == 0 && std::memcmp(all_ + size_ + 1, &clean, sizeof(T)) == 0;
    }

  private:
    std::vector<T> own_;
    memory::Buffer<Kokkos::HostSpace> block_;
    T* all_;
    std::size_t size_ = 0;
};

/// @param where 0: outside segments, 1: within, 2: within on even ranks
template <class T>
void exchange(World const& world, Case const& one, std::mt19937& random, int where) {
    CAPTURE(one.extents[one.from]);
    CAPTURE(one.from);
    CAPTURE(one.to);
    CAPTURE(where);
    auto const boxes = boxes_of(world, one, random);
    bool const in_segment = where == 1 || (where == 2 && world.me % 2 == 0);
    std::size_t const size = boxes.needed.size(4);
    Array<T> const in(world, boxes.held[world.me].size(4), in_segment), out(world, size, in_segment);
    for_each(one, boxes.held[world.me], [&](std::size_t at, std::size_t i) { in.data()[at] = element<T>(i); });
    double sent = 0;
    for (std::size_t p = 0; p < world.n; ++p)
        if (p != world.me) sent += static_cast<double>(boxes.given[p].size(4) * sizeof(T));
    observe::ledger().clear();
    comm::exchange_boxes(Exec(), world.comm, one.to < 4 ? Operation::all_to_all : Operation::all_gather, boxes,
                         in.data(), out.data());
    std::size_t wrong = 0;
    for_each(one, boxes.needed, [&](std::size_t at, std::size_t i) {
        T const want = element<T>(i);
        wrong += std::memcmp(&out.data()[at], &want, sizeof(T)) != 0 ? 1 : 0;
    });
    CHECK(wrong == 0);
    CHECK(in.is_intact_outside());
    CHECK(out.is_intact_outside());
    CHECK(observe::ledger().bytes("dp") == doctest::Approx(sent));
}

} // namespace

TEST_CASE_TEMPLATE("any boxes arrive, whichever way they go", T, u8, u16, f32, f64, std::complex<f64>, own::Three) {
    World const world;
    std::mt19937 random(5); // the same on all ranks
    auto const below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
    std::vector<Case> cases{
        {{2, 3, 512, 64}, 2, 3, true}, {{64, 3, 5, 1000}, 0, 4, false}, {{3, 400, 90, 4}, 1, 2, false}};
    for (int i = 0; i < 12; ++i)
        cases.push_back({{1 + below(9), 1 + below(9), 1 + below(9), 1 + below(9)}, below(4), below(5), false});
    for (auto const algorithm :
         {comm::Algorithm::automatic, comm::Algorithm::direct, comm::Algorithm::mailbox, comm::Algorithm::process}) {
        CAPTURE(static_cast<int>(algorithm));
        comm::forced_algorithm() = algorithm;
        for (auto const& one : cases)
            for (int const where : {0, 1, 2}) exchange<T>(world, one, random, where);
    }
    comm::forced_algorithm() = comm::Algorithm::automatic;
}

TEST_CASE("each copy method of boxes is taken in turn, by long runs and by short ones") {
    World const world;
    std::mt19937 random(3);
    for (int i = 0; i < 14; ++i)
        for (int const where : {0, 1}) {
            exchange<f64>(world, {{2, 64, 24, 100}, 1, 2, true}, random, where);  // runs of some lines of cache
            exchange<f64>(world, {{1, 40, 16, 1200}, 1, 2, true}, random, where); // of pages
            exchange<f32>(world, {{1, 200, 8, 8}, 1, 3, true}, random, where);
        }
}

TEST_CASE("what is in no box stays as it is") {
    World const world;
    comm::Boxes boxes(1, world.n);
    boxes.longest = 1;
    for (std::size_t p = 0; p < world.n; ++p) { // each rank gives its first element to the next rank alone
        boxes.held[p].end[0] = 5;
        if (p == (world.me + 1) % world.n) boxes.given[p].end[0] = 1;
        if (world.me == (p + 1) % world.n) boxes.taken[p].end[0] = 1;
    }
    boxes.needed.end[0] = 3;
    std::vector<f64> const in(5, static_cast<double>(world.me));
    std::vector<f64> out(3, -1);
    comm::exchange_boxes(Exec(), world.comm, Operation::all_to_all, boxes, in.data(), out.data());
    CHECK(out == std::vector<f64>{static_cast<double>((world.me + world.n - 1) % world.n), -1, -1});
}

TEST_CASE("boxes that are not within their arrays are refused, as are arrays that overlap") {
    World const world;
    Case const one{{1, 1, 8 * world.n, 8 * world.n}, 2, 3, true};
    std::mt19937 random(1);
    auto const good = boxes_of(world, one, random);
    std::vector<f32> in(64 * world.n), out(64 * world.n);
    auto const refusal = [&](auto&& spoil) {
        auto boxes = good;
        spoil(boxes);
        return message(
            [&] { comm::exchange_boxes(Exec(), world.comm, Operation::all_to_all, boxes, in.data(), out.data()); });
    };
    std::string const where = world.comm.where();
    CHECK(message([&] {
              comm::exchange_boxes(Exec(), world.comm, Operation::all_gather, good, in.data(), out.data());
          }) == "all_gather of boxes " + where + ": a box is not all that its rank holds");
    CHECK(refusal([](auto& boxes) { boxes.given[1].end[2] += 100; }) ==
          "all_to_all of boxes " + where + ": a box is not within what its rank holds");
    CHECK(refusal([](auto& boxes) { boxes.needed.end[2] = 1; }) ==
          "all_to_all of boxes " + where + ": a box is not within the result");
    CHECK(refusal([](auto& boxes) { boxes.longest = 3; }) ==
          "exchange_boxes " + where + ": a box has more elements than the longest");
    CHECK(refusal([](auto& boxes) { boxes.taken.pop_back(); }) ==
          "exchange_boxes " + where + " needs a box for each rank");
    CHECK(message([&] {
              comm::exchange_boxes(Exec(), world.comm, Operation::all_to_all, good, in.data(), in.data() + 1);
          }).find("overlap in memory") != std::string::npos);
    comm::forced_algorithm() = comm::Algorithm::mpi;
    CHECK(!comm::can_exchange_boxes<Exec>(world.comm));
    CHECK(refusal([](auto&) {}) ==
          "exchange_boxes " + where + " is for host memory of ranks that share a node: see can_exchange_boxes");
    comm::forced_algorithm() = comm::Algorithm::automatic;
    CHECK(refusal([](auto&) {}) == "nothing");
}

#if !PENTAD_CHECKED
TEST_CASE("ranks that mean different boxes are told, and nobody waits") {
    Case const one{{1, 1, 8 * static_cast<std::size_t>(world_size()), 8}, 2, 4, true};
    auto const result = [&](auto&& spoil, bool calls_another = false) {
        World const world;
        std::mt19937 random(1);
        auto boxes = boxes_of(world, one, random);
        boxes.longest = 800;
        if (world.me == 0) spoil(boxes);
        Array<f32> const in(world, 1000, true), out(world, 1000, true);
        using Flat = View<f32, 1, Exec>;
        auto const mistake = message([&] {
            if (calls_another && world.me == 0)
                comm::all_to_all(Exec(), world.comm, Flat(in.data(), 64 * world.n), Flat(out.data(), 64 * world.n));
            else
                comm::exchange_boxes(Exec(), world.comm, Operation::all_to_all, boxes, in.data(), out.data());
        });
        // All hear of it, now or at the next exchange.
        return mistake != "nothing" ? mistake
                                    : message([&] { comm::all_reduce(Exec(), world.comm, Flat(out.data(), 1)); });
    };
    auto const fewer = result([](auto& boxes) { boxes.given[1].end[2] = 4; });
    CHECK(fewer.find("all_to_all: rank 0 sends 128 bytes to rank 1, which is to receive 256") != std::string::npos);
    auto const shorter = result([](auto& boxes) { boxes.held[0].end[2] = 100; });
    CHECK(shorter.find("all_to_all: rank 0 holds 3200 bytes, and rank ") != std::string::npos);
    auto const longer = result([](auto& boxes) { boxes.longest = 900; });
    CHECK(longer.find("rank 0 all_to_all of boxes of up to 3600 bytes of f32") != std::string::npos);
    CHECK(longer.find(" all_to_all of boxes of up to 3200 bytes of f32") != std::string::npos);
    auto const another = result([](auto&) {}, true);
    CHECK(another.find("rank 0 all_to_all of ") != std::string::npos);
    CHECK(another.find(" all_to_all of boxes of up to 3200 bytes of f32") != std::string::npos);
}
#endif
