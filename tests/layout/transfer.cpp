#include <doctest/doctest.h>

#include <pentad/layout/ml.hpp>
#include <pentad/layout/transfer.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

TEST_CASE("from mesh to mesh an element comes from this rank, else from its node, else from the holders in turn") {
    // Two copies, at places 0 and 2, on two nodes of two ranks; each target needs all of it.
    Mesh<Axis<dp>> const mesh(2);
    std::vector<MeshAxisValue> const axes(mesh.axes().begin(), mesh.axes().end());
    using Copies = Layout<f64, Dims<Dim<hidden>>, Replicated<dp>>;
    std::array<std::size_t, 1> const extents{5};
    auto const senders = [&](std::vector<int> targets, std::vector<int> const& nodes) {
        MeshPlaces const source{axes, {0, 2}}, target{axes, std::move(targets)};
        TransferShape const shape(Copies::value, source, Copies::value, target, extents, nodes);
        std::vector<int> places;
        shape.for_each_box([&](int from, int, ElementBox const& box, ElementBox const&) {
            CHECK(box.extent(0) == 5);
            places.push_back(source.places[static_cast<std::size_t>(from)]);
        });
        return places;
    };
    CHECK(senders({2, 0}, {0, 0, 1, 1}) == std::vector{2, 0});
    CHECK(senders({1, 3}, {0, 0, 1, 1}) == std::vector{0, 2});
    CHECK(senders({3, 1}, {0, 0, 1, 1}) == std::vector{2, 0});
    CHECK(senders({3, 1}, {0, 0, 0, 0}) == std::vector{0, 2}); // in turn
}
