#include <doctest/doctest.h>

#include <pentad/layout/ml.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad;
using namespace pentad::ml;

namespace {

using Groups = std::vector<std::vector<int>>;

/// Comparisons with lists that g++ 12 too can make while compiling.
constexpr bool are(std::vector<int> const& group, std::initializer_list<int> ranks) {
    return std::equal(group.begin(), group.end(), ranks.begin(), ranks.end());
}
constexpr bool are(Groups const& groups, std::initializer_list<std::initializer_list<int>> lists) {
    return std::equal(groups.begin(), groups.end(), lists.begin(), lists.end(),
                      [](auto const& group, auto const& ranks) { return are(group, ranks); });
}

struct rows {
    static constexpr std::string_view name = "rows";
};
struct columns {
    static constexpr std::string_view name = "columns";
};
struct layers {
    static constexpr std::string_view name = "layers";
};

template <class F>
std::string refusal(F&& f) {
    try {
        f();
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return "no refusal";
}

/// The sorted members of all groups, which must be all ranks once.
std::vector<int> all_members(Groups const& groups) {
    std::vector<int> all;
    for (auto const& group : groups) all.insert(all.end(), group.begin(), group.end());
    std::sort(all.begin(), all.end());
    return all;
}
std::vector<int> counting(int n) {
    std::vector<int> all(static_cast<std::size_t>(n));
    std::iota(all.begin(), all.end(), 0);
    return all;
}

// Tags and extents.
static_assert(AxisTag<dp> && AxisTag<rows> && AxisTag<outer<tp>> && AxisTag<inner<tp>> && AxisTag<ends<pp>>);
static_assert(!AxisTag<int> && !AxisTag<std::string>);
static_assert(outer<tp>::name == "outer(tp)" && inner<cp>::name == "inner(cp)" && ends<rows>::name == "ends(rows)");
static_assert(whole_axis_name("tp") == "tp" && whole_axis_name("outer(tp)") == "tp" &&
              whole_axis_name("ends(rows)") == "rows");
static_assert(std::is_same_v<whole_axis_t<inner<tp>>, tp> && std::is_same_v<whole_axis_t<tp>, tp>);

using Dynamic = Mesh<Axis<dp>, Axis<pp>, Axis<ep>, Axis<cp>, Axis<tp>>;
using Mixed = Mesh<Axis<rows, 3>, Axis<columns>>;
using Static = Mesh<Axis<rows, 3>, Axis<columns, 2>>;
static_assert(Dynamic(2, 3, 1, 1, 4).size() == 24);
static_assert(Dynamic(2, 3, 1, 1, 4).extent<pp>() == 3);
static_assert(Mixed(2) == Mixed(2) && !(Mixed(2) == Mixed(4)) && !(Mixed(2) == Mixed(2).ordered<columns, rows>()));
static_assert(Static().size() == 6 && Mixed(2).size() == 6 && Mixed(5).extent<rows>() == 3);
static_assert(Static::has<rows> && Static::has<outer<rows>> && !Static::has<tp>);

// The first axis is outermost unless another order is given.
static_assert(Static().rank_at(0, 0) == 0 && Static().rank_at(0, 1) == 1 && Static().rank_at(2, 1) == 5);
static_assert(Static().ordered<columns, rows>().rank_at(0, 1) == 3 &&
              Static().ordered<columns, rows>().rank_at(2, 1) == 5);
static_assert(Static().coordinate<rows>(5) == 2 && Static().coordinate<columns>(5) == 1);
static_assert(Static().ordered<columns, rows>().coordinate<rows>(4) == 1);
static_assert(Static().ordered<columns, rows>() == Static().ordered({"columns", "rows"}));

// Groups along one axis and several, in the order in which the axes are named.
static_assert(are(Static().groups<rows>(), {{0, 2, 4}, {1, 3, 5}}));
static_assert(are(Static().groups<columns>(), {{0, 1}, {2, 3}, {4, 5}}));
static_assert(are(Static().groups<rows, columns>(), {{0, 1, 2, 3, 4, 5}}));
static_assert(are(Static().groups<columns, rows>(), {{0, 2, 4, 1, 3, 5}}));
static_assert(are(Static().groups<>(), {{0}, {1}, {2}, {3}, {4}, {5}}));
static_assert(are(Static().group<columns, rows>(3), {0, 2, 4, 1, 3, 5}) && Static().group_index<columns, rows>(3) == 4);
static_assert(Static().group_size<>() == 1 && Static().group_size<rows, columns>() == 6);
static_assert(are(Dynamic(2, 1, 2, 1, 2).groups<dp, ep>(), {{0, 2, 4, 6}, {1, 3, 5, 7}}));
static_assert(are(Dynamic(1, 2, 1, 2, 2).groups<tp, cp>(), {{0, 2, 1, 3}, {4, 6, 5, 7}}));

// Blocks share a coordinate along the named axes: they are groups over all the others.
static_assert(Static().blocks<rows>() == Static().groups<columns>());
static_assert(Static().blocks<columns>() == Static().groups<rows>());
static_assert(are(Static().blocks<>(), {{0, 1, 2, 3, 4, 5}}));

// The ring.
static_assert(Static().neighbour<rows>(0, 1) == 2 && Static().neighbour<rows>(4, 1) == 0);
static_assert(Static().neighbour<rows>(1, -1) == 5 && Static().neighbour<rows>(3, 3) == 3 &&
              Static().neighbour<rows>(3, -7) == 1);

// Split: outer is the major factor. Ends: its first and last coordinate; one rank where they are joined.
constexpr auto split = Mesh<Axis<dp, 2>, Axis<tp, 6>>().split<tp>(2);
static_assert(split.extent<outer<tp>>() == 3 && split.extent<inner<tp>>() == 2 && split.extent<tp>() == 6);
static_assert(are(split.groups<inner<tp>>(), {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}}));
static_assert(are(split.groups<outer<tp>>(), {{0, 2, 4}, {1, 3, 5}, {6, 8, 10}, {7, 9, 11}}));
static_assert(split.groups<outer<tp>, inner<tp>>() == split.groups<tp>());
static_assert(split.coordinate<outer<tp>>(9) == 1 && split.coordinate<inner<tp>>(9) == 1);
static_assert(are(split.ordered<tp, dp>().groups<inner<tp>>(), {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}}));
static_assert(Static().extent<inner<rows>>() == 1 && Static().extent<outer<rows>>() == 3);
static_assert(split.extent<ends<tp>>() == 2 && are(split.group<ends<tp>>(0), {0, 4}));
static_assert(are(split.group<ends<tp>>(11), {7, 11}) && split.coordinate<ends<tp>>(11) == 1);
static_assert(split.joined<tp>().extent<ends<tp>>() == 1 && are(split.joined<tp>().group<ends<tp>>(4), {4}));
static_assert(split.joined<tp>().coordinate<ends<tp>>(11) == 0 && split.joined<tp>() != split);
static_assert(are(Mesh<Axis<dp, 2>, Axis<tp, 6>>().group<ends<tp>>(11), {6, 11}));
static_assert(are(split.group<ends<dp>>(3), {3, 9}));
static_assert(Mesh<Axis<pp, 1>>().extent<ends<pp>>() == 1);

// An inner factor is split again: three factors, of which any stand together.
constexpr auto grid = Mesh<Axis<dp, 2>, Axis<tp, 12>>().split<tp>(6).split<inner<tp>>(2);
static_assert(grid.extent<outer<tp>>() == 2 && grid.extent<outer<inner<tp>>>() == 3 &&
              grid.extent<inner<inner<tp>>>() == 2 && grid.extent<inner<tp>>() == 6);
static_assert(are(grid.group<outer<inner<tp>>>(1), {1, 3, 5}) && are(grid.group<inner<inner<tp>>>(9), {8, 9}));
static_assert(are(grid.group<outer<tp>>(3), {3, 9}) && grid.coordinate<outer<inner<tp>>>(23) == 2);
static_assert(grid.groups<outer<tp>, outer<inner<tp>>, inner<inner<tp>>>() == grid.groups<tp>());
static_assert(grid.groups<outer<inner<tp>>, inner<inner<tp>>>() == grid.groups<inner<tp>>());
static_assert(grid.split<tp>(6).extent<inner<inner<tp>>>() == 1 && grid.split<tp>(6) != grid);
static_assert(outer<inner<tp>>::name == "outer(inner(tp))" && whole_axis_name("outer(inner(tp))") == "tp");
static_assert(std::is_same_v<whole_axis_t<inner<inner<tp>>>, tp>);
static_assert(!pentad::detail::are_distinct<inner<tp>, outer<inner<tp>>>);
static_assert(!pentad::detail::are_distinct<tp, inner<inner<tp>>>);
static_assert(pentad::detail::are_distinct<ends<tp>, outer<inner<tp>>, inner<inner<tp>>>);

// The survey's figures: seed 004 prints groups over TP, CP and (Figure 4) PP; what it prints for DP, and in Figure 5
// for PP, are blocks.
constexpr Mesh<Axis<dp, 2>, Axis<pp, 2>, Axis<tp, 2>> figure_4;
static_assert(are(figure_4.blocks<dp>(), {{0, 1, 2, 3}, {4, 5, 6, 7}}));
static_assert(are(figure_4.groups<pp>(), {{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
static_assert(are(figure_4.groups<tp>(), {{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
static_assert(figure_4.blocks<dp>() == figure_4.groups<pp, tp>());

constexpr auto figure_5 = Mesh<Axis<dp, 2>, Axis<pp, 2>, Axis<tp, 2>, Axis<cp, 2>>().ordered<dp, pp, cp, tp>();
static_assert(are(figure_5.blocks<dp>(), {{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
static_assert(are(figure_5.blocks<dp, pp>(), {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
static_assert(are(figure_5.groups<cp>(), {{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
static_assert(are(figure_5.groups<tp>(), {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
static_assert(figure_5.blocks<dp, pp>() == figure_5.groups<cp, tp>());
// The groups along which gradients and activations really travel.
static_assert(are(figure_5.group<dp>(3), {3, 11}) && are(figure_5.group<pp>(3), {3, 7}));

} // namespace

TEST_CASE("coordinates, groups and rings agree in every order of the axes") {
    Mesh<Axis<rows, 2>, Axis<columns>, Axis<layers, 2>> const natural{3};
    std::array<std::string_view, 3> order{"columns", "layers", "rows"}; // sorted: the first permutation
    int orders = 0;
    do {
        CAPTURE(order);
        ++orders;
        auto const mesh = natural.ordered(order);
        // The innermost axis moves by one rank, each other by the product of the extents inside it.
        int stride = 1;
        for (std::size_t i = 3; i-- > 0;) {
            auto const along = find_axis(mesh.axes(), order[i]);
            CHECK(along.stride == stride);
            stride *= along.extent;
        }
        for (int a = 0; a < 2; ++a)
            for (int b = 0; b < 3; ++b)
                for (int c = 0; c < 2; ++c) {
                    int const rank = mesh.rank_at(a, b, c);
                    CHECK(mesh.coordinate<rows>(rank) == a);
                    CHECK(mesh.coordinate<columns>(rank) == b);
                    CHECK(mesh.coordinate<layers>(rank) == c);
                    CHECK(mesh.group_index<layers, columns>(rank) == c * 3 + b);
                    CHECK(mesh.group_member<layers, columns>(rank, 5) == mesh.rank_at(a, 2, 1));
                    CHECK(mesh.group<columns>(rank) ==
                          std::vector{mesh.rank_at(a, 0, c), mesh.rank_at(a, 1, c), mesh.rank_at(a, 2, c)});
                    CHECK(mesh.neighbour<columns>(rank, 1) == mesh.rank_at(a, (b + 1) % 3, c));
                    CHECK(mesh.neighbour<columns>(mesh.neighbour<columns>(rank, 2), -2) == rank);
                }
        CHECK(all_members(mesh.groups<rows>()) == counting(12));
        CHECK(all_members(mesh.groups<columns, rows>()) == counting(12));
        CHECK(all_members(mesh.blocks<layers>()) == counting(12));
        CHECK(mesh.groups<columns, rows>().size() == 2);
        CHECK(mesh.blocks<layers>().size() == 2);
        // Each rank finds itself in its group, and every member of a group names the same group.
        for (int rank = 0; rank < mesh.size(); ++rank) {
            auto const group = mesh.group<rows, layers>(rank);
            CHECK(group[static_cast<std::size_t>(mesh.group_index<rows, layers>(rank))] == rank);
            for (int const member : group) CHECK(mesh.group<rows, layers>(member) == group);
        }
    } while (std::next_permutation(order.begin(), order.end()));
    CHECK(orders == 6);
}

TEST_CASE("a mesh refuses bad extents, orders and splits, and says which") {
    CHECK(refusal([] { (void)Dynamic(2, 0, 1, 1, 1); }) == "mesh axis pp has extent 0: it must be at least 1");
    CHECK(refusal([] { (void)Mixed(-2); }) == "mesh axis columns has extent -2: it must be at least 1");
    Static const mesh;
    CHECK(refusal([&] { (void)mesh.ordered({"rows", "rows"}); }) == "mesh axis rows is given twice");
    CHECK(refusal([&] { (void)mesh.ordered({"rows", "tp"}); }) == "mesh has no axis named tp");
    CHECK(refusal([&] { (void)mesh.split<rows>(2); }) == "mesh axis rows of extent 3 cannot be split by 2");
    CHECK(refusal([&] { (void)mesh.split<rows>(0); }) == "mesh axis rows of extent 3 cannot be split by 0");
    CHECK(refusal([&] { (void)mesh.split<rows>(3).split<inner<rows>>(2); }) ==
          "mesh axis inner(rows) of extent 3 cannot be split by 2");
    CHECK(refusal([&] { (void)find_axis(mesh.axes(), "tp"); }) == "the mesh has no axis named tp");
}
