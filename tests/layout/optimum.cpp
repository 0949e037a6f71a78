// No plan between two layouts sends more than is missing: for every pair of layouts over three axes, against the
// ownership of each element.
#include <doctest/doctest.h>

#include "support/holding.hpp"

#include <pentad/layout/cost.hpp>
#include <pentad/layout/exchange.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/plan.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

constexpr std::size_t elements = 24 * 12;
/// What the axes cut: equal blocks, or blocks that differ by one.
struct Extents {
    std::array<std::size_t, 2> extents;
    bool are_uneven;
};
constexpr Extents equal{{24, 12}, false}, uneven{{23, 7}, true};

/// All layouts of two dimensions over three axes, in all orders. @param places 2: shards only, 3: also replicated, 4:
/// also partial
std::vector<LayoutValue> all_layouts(std::size_t places, Extents const& of) {
    LayoutValue bare;
    bare.element = "f32";
    bare.element_size = 4;
    bare.rank = 2;
    bare.dimensions[0].name = "rows";
    bare.dimensions[1].name = "columns";
    bare.dimensions[0].is_uneven = bare.dimensions[1].is_uneven = of.are_uneven;
    std::array<std::string_view, 3> order{"dp", "cp", "tp"};
    std::vector<LayoutValue> all;
    std::vector<std::string> texts;
    std::sort(order.begin(), order.end());
    do
        for (std::size_t code = 0; code < places * places * places; ++code) {
            std::size_t rest = code;
            auto const layout = support::placed(bare, order, [&](std::string_view) {
                std::size_t const place = rest % places;
                rest /= places;
                return place;
            });
            auto const text = to_string(layout);
            if (std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
            texts.push_back(text);
            all.push_back(layout);
        }
    while (std::next_permutation(order.begin(), order.end()));
    return all;
}

/// Which ranks hold an element; where it is partial, the number of the summand plus 1.
std::vector<std::array<int, elements>> owners(LayoutValue const& layout, std::span<std::size_t const> extents,
                                              std::span<MeshAxisValue const> mesh, int ranks) {
    std::vector<std::array<int, elements>> held(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
        support::Holding const mine(layout, extents, mesh, rank);
        for (std::size_t i = 0; i < mine.size(); ++i)
            held[static_cast<std::size_t>(rank)][mine.global(i)] = mine.summand() + 1;
    }
    return held;
}

bool has(PlanValue const& plan, StepKind kind) {
    return std::any_of(plan.begin(), plan.end(), [&](PlanStep const& step) { return step.kind == kind; });
}

} // namespace

TEST_CASE("between values, over three axes in every order, exactly what is missing is sent") {
    using M = Mesh<Axis<dp>, Axis<cp>, Axis<tp>>;
    for (auto const& [mesh, of] : {std::pair(M(2, 3, 2), equal), {M(2, 2, 3), equal}, {M(2, 3, 2), uneven}}) {
        auto const layouts = all_layouts(3, of);
        int const ranks = mesh.size();
        std::vector<std::vector<std::array<int, elements>>> held;
        for (auto const& layout : layouts) held.push_back(owners(layout, of.extents, mesh.axes(), ranks));
        for (std::size_t i = 0; i < layouts.size(); ++i)
            for (std::size_t j = 0; j < layouts.size(); ++j) {
                auto const plan = make_plan(layouts[i], layouts[j]);
                REQUIRE(plan.valid());
                std::size_t missing = 0;
                for (std::size_t r = 0; r < held[i].size(); ++r)
                    for (std::size_t e = 0; e < elements; ++e)
                        missing += held[j][r][e] != 0 && held[i][r][e] == 0 ? 1 : 0;
                double const sent = cost_of(plan, layouts[i], of.extents, mesh.axes()).total() * ranks;
                CHECK_MESSAGE(sent == doctest::Approx(4.0 * static_cast<double>(missing)), to_string(layouts[i]),
                              " -> ", to_string(layouts[j]));
            }
    }
}

TEST_CASE("sums that become shards: each summand is sent at most once, and stays where it is needed") {
    Mesh<Axis<dp>, Axis<cp>, Axis<tp>> const mesh(2, 3, 2);
    int const ranks = mesh.size();
    auto const& [extents, are_uneven] = equal;
    auto const layouts = all_layouts(4, equal);
    int pairs = 0;
    for (auto const& from : layouts)
        for (auto const& to : layouts) {
            auto const plan = make_plan(from, to);
            REQUIRE(plan.valid());
            if (from.partial.empty() || !to.partial.empty() || has(plan, StepKind::all_reduce)) continue;
            ++pairs;
            auto const held = owners(from, extents, mesh.axes(), ranks),
                       needed = owners(to, extents, mesh.axes(), ranks);
            std::size_t summands = 1;
            for (auto const axis : from.partial)
                summands *= static_cast<std::size_t>(find_axis(mesh.axes(), axis).extent);
            // Each of the ranks that need an element gets it once where it is whole, and one sum for each of its
            // others.
            std::size_t least = 0;
            for (std::size_t e = 0; e < elements; ++e)
                for (std::size_t r = 0; r < held.size(); ++r)
                    if (needed[r][e] != 0) least += held[r][e] != 0 ? summands - 1 : summands;
            double const sent = cost_of(plan, from, extents, mesh.axes()).total() * ranks;
            CHECK_MESSAGE(sent <= 4.0 * static_cast<double>(least) * (1 + 1e-12), to_string(from), " -> ",
                          to_string(to));
        }
    CHECK(pairs > 1000);
}

TEST_CASE("what the ranks of an exchange keep, give and take is what its boxes come to, one by one") {
    using M = Mesh<Axis<dp>, Axis<cp>, Axis<tp>>;
    std::size_t exchanges = 0, wrong = 0;
    for (auto const& [mesh, of] : {std::pair(M(2, 3, 2), equal), {M(2, 2, 3), uneven}}) {
        auto const layouts = all_layouts(4, of);
        auto const follow = [&](LayoutValue const& from, LayoutValue const& to) {
            auto const plan = make_plan(from, to);
            for (int rank = 0; rank < mesh.size(); ++rank) {
                auto shape = shard_shape(from, of.extents, mesh.axes(), rank);
                for (auto const& step : plan) {
                    std::size_t const n = ranks_along(mesh.axes(), step.axes);
                    std::size_t const me = place_along(mesh.axes(), step.axes, rank);
                    if (step.kind != StepKind::exchange && !is_uneven(step, shape, n)) {
                        reshape(shape, step, n, me);
                        continue;
                    }
                    ++exchanges;
                    ExchangeShape const boxes(step, step.kind == StepKind::exchange ? plan.exchange : exchange_of(step),
                                              shape, mesh.axes());
                    std::size_t given = 0, taken = 0, all = 0;
                    for (std::size_t a = 0; a < n; ++a)
                        for (std::size_t b = 0; b < n; ++b) {
                            if (a == b) continue;
                            auto const size = boxes.given(a, b).size(2);
                            all += size;
                            if (a == me) given += size;
                            if (b == me) taken += size;
                        }
                    bool const same = boxes.kept_by(me) == boxes.given(me, me).size(2) && boxes.sent() == all &&
                                      boxes.sent_by(me) == given && boxes.taken_by(me) == taken;
                    wrong += same ? 0 : 1;
                    boxes.reshape(shape, me);
                }
            }
        };
        for (auto const& from : layouts)
            for (auto const& to : layouts)
                if (make_plan(from, to).valid()) follow(from, to);
    }
    CHECK(wrong == 0);
    CHECK(exchanges > 10000);
}
