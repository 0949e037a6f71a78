#include <doctest/doctest.h>

#include <pentad/layout/algebra.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/validity.hpp>

#include <array>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

using namespace pentad;
using namespace pentad::ml;

namespace {

template <class L>
constexpr std::string_view text = layout_text<L>.view();

// The short form.
struct replica {
    static constexpr std::string_view name = "replica";
};
using Stream = Layout<f32, Dims<Dim<batch, dynamic, replica, dp>, Dim<seq, 1024, cp>, Dim<hidden, 512>>, Partial<tp>>;
static_assert(text<Stream> == "f32[batch@replica.dp:?, seq@cp:1024, hidden:512]{tp: partial}");
static_assert(text<Layout<f64, Dims<>>> == "f64[]");
static_assert(text<Layout<bf16, Dims<Dim<flat, 0>>, Replicated<replica, dp>>> ==
              "bf16[flat:0]{replica.dp: replicated}");
static_assert(text<Layout<f64, Dims<Dim<token>>, Replicated<cp>, PartialMax<tp>, PartialLogSumExp<pp>, Partial<dp>>> ==
              "f64[token:?]{dp: partial, tp: partial max, pp: partial log-sum-exp, cp: replicated}");
static_assert(text<Layout<i32, Dims<Dim<kv_heads, 8, outer<tp>>>, Partial<inner<tp>, ends<pp>>>> ==
              "i32[kv_heads@outer(tp):8]{inner(tp).ends(pp): partial}");
// Two factors of an axis may stand together, and so may the inner one and the ends of the outer.
static_assert(text<Layout<f32, Dims<Dim<flat>>, Partial<ends<pp>, inner<pp>>>> ==
              "f32[flat:?]{ends(pp).inner(pp): partial}");

// What a layout says about an axis.
static_assert(Stream::value.placement("dp") == Placement::shard && Stream::value.dimension_of("cp") == 1);
static_assert(Stream::value.placement("tp") == Placement::partial &&
              Stream::value.placement("pp") == Placement::invariant);
static_assert(Stream::value.axes() == AxisNames("replica", "dp", "cp", "tp"));
static_assert(Stream::value.element_size == 4 && Stream::rank == 3);
static_assert(is_partial<Stream> && is_partial<Layout<f32, Dims<>, PartialMax<tp>>> &&
              !is_partial<Layout<f32, Dims<>, Replicated<tp>>>);

// Validity on a mesh: the axes exist, static extents divide.
template <std::size_t Extent>
using Seq = Layout<f32, Dims<Dim<seq, Extent, cp, tp>>>;
using Fixed = Mesh<Axis<cp, 2>, Axis<tp, 2>>;
static_assert(FitsOn<Seq<1024>, Fixed> && !FitsOn<Seq<1022>, Fixed>);
static_assert(FitsOn<Seq<1022>, Mesh<Axis<cp>, Axis<tp, 2>>> && FitsOn<Seq<dynamic>, Fixed>); // found out at run time
static_assert(!FitsOn<Seq<1024>, Mesh<Axis<cp, 2>>> && !FitsOn<Layout<f32, Dims<>, Partial<dp>>, Fixed>);
static_assert(FitsOn<Layout<f32, Dims<Dim<heads, 8, outer<tp>>>, Partial<inner<tp>>>, Fixed>);
static_assert(detail::names_an_axis_twice([] {
    LayoutValue layout = Layout<f32, Dims<Dim<seq, 4, outer<tp>>>>::value;
    layout.partial.push("tp");
    return layout;
}()));
static_assert(!detail::names_an_axis_twice(Layout<f32, Dims<Dim<seq, 4, outer<tp>, inner<tp>>>>::value));

// The dual.
static_assert(std::is_same_v<dual_t<Stream>,
                             Layout<f32, Dims<Dim<batch, dynamic, replica, dp>, Dim<seq, 1024, cp>, Dim<hidden, 512>>,
                                    Replicated<tp>>>);
static_assert(std::is_same_v<dual_t<Layout<f64, Dims<Dim<seq, 8, cp>>>>, Layout<f64, Dims<Dim<seq, 8, cp>>>>);
template <class L>
constexpr bool dual_is_an_involution = std::is_same_v<dual_t<dual_t<L>>, L>;
static_assert(dual_is_an_involution<Stream> && dual_is_an_involution<Layout<f64, Dims<Dim<flat>>>> &&
              dual_is_an_involution<Layout<f64, Dims<Dim<flat, 4, dp>>, Partial<pp>, Replicated<cp, inner<tp>>>>);

// Two views of a mesh: a layout is of one of them, or of axes that both have.
using TwoViews = FoldedMesh<Mesh<Axis<dp, 2>, Axis<pp, 3>, Axis<tp, 2>>, Mesh<Axis<edp, 1>, Axis<ep, 4>>>;
static_assert(FitsOn<Layout<f32, Dims<Dim<expert, 8, ep>>>, TwoViews> &&
              FitsOn<Layout<f32, Dims<Dim<heads, 8, tp>>>, TwoViews>);
static_assert(!FitsOn<Layout<f32, Dims<Dim<expert, 6, ep>>>, TwoViews> &&
              !FitsOn<Layout<f32, Dims<>, Partial<etp>>, TwoViews>);
static_assert(FitsOn<Layout<f32, Dims<>, Partial<pp>>, TwoViews>);

// Elements: bf16 rounds to nearest, ties to even; NaN stays NaN.
static_assert(bf16(1.0f).bits == 0x3f80 && bf16(-2.0f).bits == 0xc000 && float(bf16(3.0f)) == 3.0f);
static_assert(bf16(1.00390625f).bits == 0x3f80 && bf16(1.01171875f).bits == 0x3f82); // the two ties beside 0x3f81
static_assert(bf16(1.005f).bits == 0x3f81 && bf16(3.4e38f).bits == 0x7f80);
static_assert(float(bf16(std::numeric_limits<float>::quiet_NaN())) !=
              float(bf16(std::numeric_limits<float>::quiet_NaN())));
static_assert(std::is_same_v<accumulator_t<bf16>, f32> && std::is_same_v<accumulator_t<f64>, f64> &&
              std::is_same_v<accumulator_t<i32>, i64>);

constexpr Mesh<Axis<dp>, Axis<replica>, Axis<cp>, Axis<tp>> mesh(2, 3, 2, 4);
static_assert(local_extents(Stream::value, std::array<std::size_t, 3>{12, 1024, 512}, mesh.axes())[0] == 2);
static_assert(local_extents(Stream::value, std::array<std::size_t, 3>{12, 1024, 512}, mesh.axes())[1] == 512);
static_assert(local_extents(Stream::value, std::array<std::size_t, 3>{12, 1024, 512}, mesh.axes())[2] == 512);
static_assert(local_extents(Layout<f32, Dims<Dim<kv_heads, 8, outer<tp>>>>::value, std::array<std::size_t, 1>{8},
                            mesh.split<tp>(2).axes())[0] == 4);

} // namespace

TEST_CASE("a tensor's layout prints with its global extents") {
    std::array<std::size_t, 3> const extents{8, 1024, 512};
    CHECK(to_string(Stream::value, extents.data()) == "f32[batch@replica.dp:8, seq@cp:1024, hidden:512]{tp: partial}");
    CHECK(to_string(Stream::value) == text<Stream>);
}

TEST_CASE("an extent that its axes do not divide is refused with the axes and the numbers") {
    std::array<std::size_t, 3> const extents{8, 1024, 512};
    CHECK_THROWS_WITH_AS((void)local_extents(Stream::value, extents, mesh.axes()),
                         "batch = 8 is not divisible by replica x dp = 6", std::invalid_argument);
}
