// Two views of the ranks of a mesh, axes of two pieces, and what is refused.
#include <doctest/doctest.h>

#include <pentad/layout/cost.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/mesh/fold.hpp>
#include <pentad/model/mesh.hpp>

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

using Dense = Mesh<Axis<dp>, Axis<pp>, Axis<cp>, Axis<tp>>;
using Experts = Mesh<Axis<edp>, Axis<ep>, Axis<etp>>;

template <class F>
std::string refusal(F&& f) {
    try {
        f();
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return "no refusal";
}

// Megatron's order: of the ranks of a stage, etp are next to each other, then ep, then edp.
constexpr auto folded = fold(Dense(2, 1, 2, 2), Experts(1, 4, 2));
static_assert(folded.size() == 8 && folded.extent<ep>() == 4 && folded.extent<edp>() == 1 && folded.extent<dp>() == 2);
static_assert(folded.coordinate<ep>(5) == 2 && folded.coordinate<etp>(5) == 1 && folded.coordinate<tp>(5) == 1);
static_assert(decltype(folded)::has<inner<ep>> && decltype(folded)::has<cp> && !decltype(folded)::has<flat>);
// ep goes beyond dp: over cp and tp.
static_assert(fold(Dense(1, 1, 2, 2), Experts(1, 4, 1)).coordinate<ep>(3) == 3);

template <class M>
std::vector<int> members(M const& mesh, std::string_view axis, int rank) {
    return members_along(mesh.axes(), AxisNames(axis), rank);
}

} // namespace

TEST_CASE("however ranks are folded, each is at a place of its own in either view, and groups are of one stage") {
    int count = 0;
    std::array<std::string_view, 4> order{"cp", "dp", "pp", "tp"};
    do
        for (int ranks = 1; ranks <= 12; ++ranks)
            for (int e = 1; e <= ranks; ++e)
                for (int t = 1; t <= ranks; ++t) {
                    Dense const dense = Dense(ranks % 2 == 0 ? 2 : 1, 2, ranks % 3 == 0 ? 3 : 1,
                                              ranks / (ranks % 2 == 0 ? 2 : 1) / (ranks % 3 == 0 ? 3 : 1))
                                            .ordered(order);
                    if (ranks % (e * t) != 0) continue;
                    std::string why;
                    try {
                        auto const mesh = fold(dense, Experts(ranks / e / t, e, t));
                        ++count;
                        std::set<std::array<int, 4>> places;
                        for (int r = 0; r < mesh.size(); ++r) {
                            auto const stage = mesh.coordinate<pp>(r);
                            places.insert(
                                {stage, mesh.coordinate<edp>(r), mesh.coordinate<ep>(r), mesh.coordinate<etp>(r)});
                            for (auto const axis : {"dp", "cp", "tp", "edp", "ep", "etp"}) {
                                auto const found = members(mesh, axis, r);
                                int const place = find_axis(mesh.axes(), axis).coordinate(r);
                                CHECK(found[static_cast<std::size_t>(place)] == r);
                                for (int const other : found) CHECK(mesh.coordinate<pp>(other) == stage);
                            }
                        }
                        CHECK(places.size() == static_cast<std::size_t>(mesh.size()));
                    } catch (std::invalid_argument const& error) {
                        why = error.what();
                        CHECK(order.front() != "pp"); // only ranks that lie apart are refused
                        CHECK(order.back() != "pp");
                        CHECK(why.ends_with("make the axes that both views have the outermost ones"));
                    }
                }
    while (std::next_permutation(order.begin(), order.end()));
    CHECK(count > 500);
}

TEST_CASE("an axis of two pieces has coordinates, groups and factors like any other") {
    // dp around pp: ranks 0 1 | 2 3 of stage 0 are 0, 1, 4 and 5.
    model::RankMesh const ranks(2, 2, 2, 1, 1);
    auto const mesh = model::with_experts(ranks);
    CHECK(members(mesh, "dp", 0) == std::vector{0, 1, 4, 5});
    CHECK(members(mesh, "dp", 7) == std::vector{2, 3, 6, 7});
    CHECK(members(mesh, "ep", 6) == std::vector{6, 7});
    CHECK(members(mesh, "edp", 6) == std::vector{2, 6});
    CHECK(members(mesh.split<dp>(2), "inner(dp)", 5) == std::vector{4, 5});
    CHECK(members(mesh.split<dp>(2), "outer(dp)", 5) == std::vector{1, 5});
    CHECK(members(mesh.split<dp>(1), "outer(dp)", 5) == std::vector{0, 1, 4, 5});
    CHECK(members(mesh.split<dp>(4), "inner(dp)", 5) == std::vector{0, 1, 4, 5});
    model::RankMesh const wide(2, 2, 4, 1, 1);
    CHECK(members(model::with_experts(wide).split<dp>(2), "outer(dp)", 0) == std::vector{0, 2, 8, 10});
    CHECK(refusal([&] { (void)model::with_experts(model::RankMesh(4, 2, 3, 1, 1)).split<dp>(4); }) ==
          "mesh axis dp of extent 12 cannot be split by 4"); // 3 x 4, and pp between
    CHECK(refusal([&] { (void)mesh.split<dp>(3); }) == "mesh axis dp of extent 4 cannot be split by 3");
    // Groups that shard or train apart hold whole copies of the experts where they can.
    auto const split = model::split_data(model::with_experts(model::RankMesh(4, 1, 2, 1, 2)), 4);
    CHECK(split.extent<inner<ml::dp>>() == 4);
}

TEST_CASE("two views of other ranks are refused, and ranks that lie apart") {
    CHECK(
        refusal([] { (void)fold(Dense(2, 2, 1, 2), Experts(1, 4, 2)); }) ==
        "edp x ep x etp = 1 x 4 x 2 = 8, and dp x cp x tp = 2 x 1 x 2 = 4: both views of a mesh have all of its ranks");
    CHECK(refusal([] { (void)fold(Dense(2, 2, 3, 1), Experts(3, 2, 1)); }) ==
          "ep = 2 does not divide the ranks that follow each other, of which there are dp x cp x tp = 2 x 3 x 1 = 6: "
          "make "
          "the axes that both views have the outermost ones");
    CHECK(fold(Dense(2, 2, 3, 1).ordered<pp, dp, cp, tp>(), Experts(3, 2, 1)).extent<edp>() == 3);
}
