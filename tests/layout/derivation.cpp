// Where gradient synchronisation comes from: how a weight is used follows from the layouts of the activations around
// it. All of it is found while compiling; there is nothing to run.
#include <pentad/layout/algebra.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/streams.hpp>

#include <string_view>
#include <type_traits>

using namespace pentad;
using namespace pentad::ml;

namespace {

template <class L>
constexpr std::string_view text = layout_text<L>.view();
template <class Stored, class... Activations>
constexpr std::string_view gradient = text<dual_t<used_t<Stored, Activations...>>>;

using Batch = Dim<batch, dynamic, dp>;
using Invariant = Layout<f32, Dims<Batch, Dim<seq, dynamic, cp>, Dim<hidden>>>;
using Sequence = Layout<f32, Dims<Batch, Dim<seq, dynamic, cp, tp>, Dim<hidden>>>;
using Gathered = Layout<f32, Dims<Batch, Dim<seq, dynamic, cp>, Dim<hidden>>, Replicated<tp>>;
using Wide = Layout<f32, Dims<Batch, Dim<seq, dynamic, cp>, Dim<ffn, dynamic, tp>>>;

// Dense weights, column- and row-parallel.
static_assert(gradient<Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>, Gathered, Wide> ==
              "f32[ffn@tp:?, hidden:?]{dp.cp: partial}");
static_assert(gradient<Layout<f32, Dims<Dim<hidden>, Dim<ffn, dynamic, tp>>>, Wide> ==
              "f32[hidden:?, ffn@tp:?]{dp.cp: partial}");
// Norm weights: under sequence parallelism the ranks of tp see different tokens.
using NormWeight = Layout<f32, Dims<Dim<hidden>>>;
static_assert(gradient<NormWeight, Invariant> == "f32[hidden:?]{dp.cp: partial}");
static_assert(gradient<NormWeight, Sequence> == "f32[hidden:?]{dp.cp.tp: partial}");
// Expert weights are sharded over ep and etp; their rows are shared out over edp.
using Rows = Layout<f32, Dims<Dim<expert, dynamic, ep>, Dim<token, dynamic, edp>, Dim<hidden>>, Replicated<etp>>;
static_assert(gradient<Layout<f32, Dims<Dim<expert, dynamic, ep>, Dim<ffn, dynamic, etp>, Dim<hidden>>>, Rows> ==
              "f32[expert@ep:?, ffn@etp:?, hidden:?]{edp: partial}");
// kv heads that several ranks of tp share.
static_assert(gradient<Layout<f32, Dims<Dim<kv_heads, dynamic, outer<tp>>, Dim<head_dim>, Dim<hidden>>>, Gathered> ==
              "f32[kv_heads@outer(tp):?, head_dim:?, hidden:?]{dp.cp.inner(tp): partial}");
// An embedding tied between the first and the last stage.
static_assert(gradient<Layout<f32, Dims<Dim<vocab, dynamic, tp>, Dim<hidden>>>, Gathered,
                       Layout<f32, Dims<>, Replicated<ends<pp>>>> ==
              "f32[vocab@tp:?, hidden:?]{dp.cp.ends(pp): partial}");
// A weight that the ranks do the same work with has a whole gradient.
static_assert(gradient<NormWeight, NormWeight> == "f32[hidden:?]");

// The dual and the layout of tokens of a layout that is a value are those of the type.
template <class... L>
constexpr bool duals_agree = ((dual(L::value) == dual_t<L>::value && dual(dual_t<L>::value) == L::value) && ...);
static_assert(duals_agree<Invariant, Sequence, Gathered, dual_t<Gathered>, Rows,
                          Layout<f64, Dims<Halo<Dim<seq, dynamic, cp>, 2>, Dim<hidden>>, Partial<dp>, Replicated<tp>>,
                          dual_t<Layout<f64, Dims<Halo<Dim<seq, dynamic, cp>, 1>>>>>);
template <class... Stream>
constexpr bool tokens_agree = ((token_values<i32>(Stream::value) == token_values_t<Stream, i32>::value) && ...);
static_assert(tokens_agree<InvariantStream<f32>, SequenceStream<f64>, GridStream<bf16>, CubeStream<f32>>);
static_assert(is_on_grid(GridStream<f32>::value) && is_on_grid(CubeStream<f32>::value) &&
              !is_on_grid(InvariantStream<f32>::value) && !is_on_grid(SequenceStream<f32>::value));

// Sets of axes: the first mention counts; a factor is taken out of the whole.
static_assert(std::is_same_v<union_t<AxisSet<dp, cp>, AxisSet<cp, tp, dp>>, AxisSet<dp, cp, tp>>);
static_assert(std::is_same_v<minus_t<AxisSet<dp, tp, cp>, AxisSet<tp>>, AxisSet<dp, cp>>);
static_assert(std::is_same_v<minus_t<AxisSet<dp, tp>, AxisSet<outer<tp>>>, AxisSet<dp, inner<tp>>>);
static_assert(std::is_same_v<minus_t<AxisSet<tp>, AxisSet<inner<tp>>>, AxisSet<outer<tp>>>);
static_assert(std::is_same_v<minus_t<AxisSet<tp, dp>, AxisSet<inner<tp>, outer<tp>>>, AxisSet<dp>>);
static_assert(std::is_same_v<minus_t<AxisSet<tp>, AxisSet<inner<inner<tp>>>>, AxisSet<outer<tp>, outer<inner<tp>>>>);
static_assert(std::is_same_v<minus_t<AxisSet<inner<tp>>, AxisSet<outer<inner<tp>>>>, AxisSet<inner<inner<tp>>>>);
static_assert(std::is_same_v<minus_t<AxisSet<tp>, AxisSet<outer<tp>, outer<inner<tp>>, inner<inner<tp>>>>, AxisSet<>>);

// What layouts are made from layouts.
static_assert(std::is_same_v<sharded_axes_t<Sequence>, AxisSet<dp, cp, tp>>);
static_assert(std::is_same_v<replicated_axes_t<Gathered>, AxisSet<tp>> &&
              std::is_same_v<replicated_axes_t<Sequence>, AxisSet<>>);
static_assert(text<invariant_t<Gathered>> == "f32[batch@dp:?, seq@cp:?, hidden:?]");
static_assert(text<whole_t<Sequence>> == "f32[batch:?, seq:?, hidden:?]");
static_assert(text<unsharded_t<Wide, cp>> == "f32[batch@dp:?, seq:?, ffn@tp:?]{cp: replicated}");
static_assert(text<with_last_dim_t<Gathered, Dim<expert>>> == "f32[batch@dp:?, seq@cp:?, expert:?]{tp: replicated}");
static_assert(text<with_element_t<Gathered, f64>> == "f64[batch@dp:?, seq@cp:?, hidden:?]{tp: replicated}");
static_assert(text<summed_t<f64, Dims<>, Sequence>> == "f64[]{dp.cp.tp: partial}");

} // namespace
