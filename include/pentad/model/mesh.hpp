// The mesh of a model: dp x pp x cp x tp, and the ranks along dp, cp and tp as its experts see them, edp x ep x etp.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/mesh/fold.hpp>
#include <pentad/mesh/mesh.hpp>

#include <algorithm>
#include <numeric>
#include <string_view>

namespace pentad::model {

using namespace ml;

/// How experts lie on the ranks of a stage: each copy on ep ranks with different experts, of which etp share the width
/// of each. The copies, edp, are as many as the ranks allow.
struct ExpertMesh {
    int ep = 1, etp = 1;
    friend bool operator==(ExpertMesh const&, ExpertMesh const&) = default;
};

using DenseMesh = Mesh<Axis<dp>, Axis<pp>, Axis<cp>, Axis<tp>>;
using ModelMesh = FoldedMesh<DenseMesh, Mesh<Axis<edp>, Axis<ep>, Axis<etp>>>;

/// The mesh with the second view that experts have of it. @throws std::invalid_argument where there is none
template <class M>
constexpr auto with_experts(M const& mesh, ExpertMesh const& experts) {
    int const ranks = mesh.size() / mesh.template extent<pp>();
    int const edp_extent = std::max(1, ranks / std::max(1, experts.ep * experts.etp));
    return fold(mesh, Mesh<Axis<edp>, Axis<ep>, Axis<etp>>(edp_extent, experts.ep, experts.etp));
}
/// Five axes, in any order: the ranks along ep, which share out the batch as those along dp do, hold different experts,
/// and tp shards the width of each.
using RankMesh = Mesh<Axis<dp>, Axis<pp>, Axis<ep>, Axis<cp>, Axis<tp>>;
constexpr ModelMesh with_experts(RankMesh const& mesh) {
    auto const axis = [](auto const& axes, std::string_view of, std::string_view name) {
        auto found = *std::find_if(axes.begin(), axes.end(), [of](MeshAxisValue const& a) { return a.name == of; });
        found.name = name;
        return found;
    };
    return {mesh.merged<dp, ep>(),
            {axis(mesh.merged<dp, cp>().axes(), dp::name, edp::name), axis(mesh.axes(), ep::name, ep::name),
             axis(mesh.axes(), tp::name, etp::name)}};
}

/// Both views with the ranks along dp cut into groups of `neighbours`, which ZeRO shards over or which train apart:
/// inner(dp), and inner(edp) so far as these hold whole copies of the experts.
constexpr ModelMesh split_data(ModelMesh const& mesh, int neighbours) {
    auto const split = mesh.split<dp>(neighbours);
    int const ranks = neighbours * mesh.extent<cp>() * mesh.extent<tp>(),
              of_copy = mesh.extent<ep>() * mesh.extent<etp>();
    int copies = std::gcd(std::max(1, ranks / of_copy), mesh.extent<edp>());
    while (!split.can_split<edp>(copies)) --copies;
    return split.split<edp>(copies);
}

/// Whether each group along inner(dp) holds whole copies of the experts, as groups that train apart must.
constexpr bool groups_hold_experts(ModelMesh const& split) {
    return are_aligned(split.axes(), outer<dp>::name, outer<edp>::name);
}

} // namespace pentad::model
