#include <pentad/mesh/value_mesh.hpp>

#include <doctest/doctest.h>

#include <array>
#include <set>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <vector>

using namespace pentad;

namespace {
struct dp {
    static constexpr std::string_view name = "dp";
};
struct pp {
    static constexpr std::string_view name = "pp";
};
struct tp {
    static constexpr std::string_view name = "tp";
};
using M = Mesh<Axis<dp>, Axis<pp>, Axis<tp>>;
} // namespace

TEST_CASE("ranks are refolded along some axes, and the others stay as they are") {
    M const mesh(3, 2, 4);
    for (auto const& [data, tensor] : std::vector<std::pair<int, int>>{{3, 4}, {6, 2}, {12, 1}, {1, 12}, {2, 6}}) {
        // 12 ranks in runs of 4, with 8 from one to the next: 2 x 6 has no such nest.
        std::array<MeshAxisValue, 2> const extents{{{"dp", data}, {"tp", tensor}}};
        if (tensor == 6) {
            CHECK_THROWS_AS(refolded(mesh.axes(), extents), std::invalid_argument);
            continue;
        }
        auto const folded = refolded(mesh.axes(), extents);
        CHECK(folded.size() == 24);
        CHECK(folded.extent<dp>() == data);
        CHECK(folded.extent<tp>() == tensor);
        std::set<std::tuple<int, int, int>> places;
        for (int rank = 0; rank < 24; ++rank) {
            auto const along = [&](std::string_view axis) { return find_axis(folded.axes(), axis).coordinate(rank); };
            CHECK(along("pp") == mesh.coordinate<pp>(rank));
            places.insert({along("dp"), along("pp"), along("tp")});
            // The ranks of a stage in their order are row-major in the new axes.
            int const in_stage = mesh.coordinate<dp>(rank) * 4 + mesh.coordinate<tp>(rank);
            CHECK(along("dp") * tensor + along("tp") == in_stage);
        }
        CHECK(places.size() == 24);
    }
    CHECK(
        refolded(mesh.axes(), std::array<MeshAxisValue, 2>{{{"dp", 3}, {"tp", 4}}}).split<tp>(2).extent<inner<tp>>() ==
        2);
}

TEST_CASE("another number of ranks is refused") {
    M const mesh(2, 2, 2);
    CHECK_THROWS_WITH_AS(refolded(mesh.axes(), std::array<MeshAxisValue, 2>{{{"dp", 2}, {"tp", 4}}}),
                         "dp x tp = 2 x 4 = 8 are not the 4 ranks along these axes of the mesh", std::invalid_argument);
}
