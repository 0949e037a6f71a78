// Grids of tensor parallelism: their factors, what they divide, and the models that have layers for them.
#include <doctest/doctest.h>

#include <pentad/layout/ml.hpp>
#include <pentad/model/decoder.hpp>
#include <pentad/model/presets.hpp>
#include <pentad/model/tensor_kind.hpp>

#include <array>

using namespace pentad;
using namespace pentad::ml;
using model::TensorKind;

namespace {

constexpr std::array<std::int64_t, 3> factors(TensorKind kind, std::int64_t tp) {
    auto const found = model::tensor_factors(kind, tp);
    return found ? std::array{found->first, found->second, found->columns} : std::array<std::int64_t, 3>{};
}
using Sides = std::array<std::int64_t, 3>;

} // namespace

TEST_CASE("the grid of so many ranks is the one nearest to a square or a cube") {
    CHECK(factors(TensorKind::two_d, 4) == Sides{1, 2, 2});
    CHECK(factors(TensorKind::two_d, 6) == Sides{1, 3, 2});
    CHECK(factors(TensorKind::two_d, 16) == Sides{1, 4, 4});
    CHECK(factors(TensorKind::two_and_half_d, 8) == Sides{2, 2, 2});
    CHECK(factors(TensorKind::two_and_half_d, 32) == Sides{2, 4, 4});
    CHECK(factors(TensorKind::three_d, 8) == Sides{2, 2, 2});
    CHECK(factors(TensorKind::three_d, 12) == Sides{3, 2, 2});
    CHECK(factors(TensorKind::three_d, 64) == Sides{4, 4, 4});
    for (auto const [kind, ranks] :
         {std::pair(TensorKind::two_d, 1), std::pair(TensorKind::two_d, 7), std::pair(TensorKind::two_and_half_d, 4),
          std::pair(TensorKind::two_and_half_d, 6), std::pair(TensorKind::three_d, 4), std::pair(TensorKind::one_d, 4)})
        CHECK_FALSE(model::tensor_factors(kind, ranks));
    CHECK(model::no_grid(TensorKind::two_d, 7) ==
          "tp = 7 is no 2d grid: that has rows x columns, both above 1, such as 4 = 2 x 2 ranks");
    for (std::int64_t ranks = 1; ranks <= 128; ++ranks)
        for (auto const kind : {TensorKind::two_d, TensorKind::two_and_half_d, TensorKind::three_d})
            if (auto const grid = model::tensor_factors(kind, ranks))
                CHECK(grid->first * grid->second * grid->columns == ranks);
}

TEST_CASE("a mesh is split into the grid, or in one dimension where tp exceeds the heads of keys and values") {
    auto const dense = model::decoder({.heads = 4, .kv_heads = 2});
    Mesh<Axis<dp>, Axis<tp>> const mesh(2, 8);
    auto const cube = model::split_tensor_axis(mesh, tp(), dense, TensorKind::three_d);
    CHECK(cube.extent<outer<tp>>() == 2);
    CHECK(cube.extent<outer<inner<tp>>>() == 2);
    CHECK(cube.extent<inner<inner<tp>>>() == 2);
    CHECK(model::split_tensor_axis(mesh, tp(), dense, TensorKind::one_d).extent<inner<tp>>() == 4);
    CHECK_THROWS_WITH(
        (void)model::split_tensor_axis(Mesh<Axis<tp>>(4), tp(), dense, TensorKind::three_d),
        "tp = 4 is no 3d grid: that has rows x depth x columns, all above 1, such as 8 = 2 x 2 x 2 ranks");
}

TEST_CASE("grids are for attention and MLPs") {
    auto const refusal = [](model::Model const& described, model::AttentionOutput output = {}) {
        auto const refused = model::grid_refusal(described, TensorKind::two_d, output);
        return refused ? std::string(refused->field) + ": " + refused->why : "";
    };
    CHECK(refusal(model::decoder({})).empty());
    CHECK(refusal(model::decoder({.experts = 4})) ==
          "block.tensor_kind: block.tensor_kind = 2d is of attention and MLPs, not of experts");
    CHECK(refusal(model::decoder({}), model::AttentionOutput::all_to_all).starts_with("block.attention_output: "));
}
