// The algebra of a product with a weight, y = x W^T: which layouts fit, and what y is. Found while compiling.
#include <pentad/layers/contract.hpp>
#include <pentad/layout/ml.hpp>

#include <string_view>

using namespace pentad;
using namespace pentad::ml;

namespace {

template <class X, class W, std::size_t Out = 1>
constexpr std::string_view product = layout_text<product_t<X, W, Out>>.view();

using Invariant = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>, Dim<hidden>>>;
using Sequence = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp, tp>, Dim<hidden>>>;
using Gathered = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>, Dim<hidden>>, Replicated<tp>>;
using Wide = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>, Dim<ffn, dynamic, tp>>>;
using Heads = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<heads, dynamic, tp>, Dim<head_dim>>>;

using Plain = Layout<f32, Dims<Dim<expert>, Dim<hidden>>>;
using Column = Layout<f32, Dims<Dim<ffn, dynamic, tp>, Dim<hidden>>>;
using Row = Layout<f32, Dims<Dim<hidden>, Dim<ffn, dynamic, tp>>>;
using Query = Layout<f32, Dims<Dim<heads, dynamic, tp>, Dim<head_dim>, Dim<hidden>>>;
using Key = Layout<f32, Dims<Dim<kv_heads, dynamic, outer<tp>>, Dim<head_dim>, Dim<hidden>>>;
using Output = Layout<f32, Dims<Dim<hidden>, Dim<heads, dynamic, tp>, Dim<head_dim>>>;

// Column-parallel: the output keeps the weight's sharding, and what was replicated for it is used up.
static_assert(product<Gathered, Column> == "f32[batch@dp:?, seq@cp:?, ffn@tp:?]");
// Row-parallel: a summed dimension that is sharded leaves partial sums.
static_assert(product<Wide, Row> == "f32[batch@dp:?, seq@cp:?, hidden:?]{tp: partial}");
// Weights that nothing shards work on any input, and leave its axes as they are.
static_assert(product<Invariant, Plain> == "f32[batch@dp:?, seq@cp:?, expert:?]");
static_assert(product<Sequence, Plain> == "f32[batch@dp:?, seq@cp.tp:?, expert:?]");
static_assert(product<Gathered, Plain> == "f32[batch@dp:?, seq@cp:?, expert:?]{tp: replicated}");
// Two output dimensions, and two summed ones.
static_assert(product<Gathered, Query, 2> == "f32[batch@dp:?, seq@cp:?, heads@tp:?, head_dim:?]");
static_assert(product<Heads, Output> == "f32[batch@dp:?, hidden:?]{tp: partial}");
// kv heads over a factor of tp: the other factor stays replicated.
static_assert(product<Gathered, Key, 2> ==
              "f32[batch@dp:?, seq@cp:?, kv_heads@outer(tp):?, head_dim:?]{inner(tp): replicated}");
// Sharded and summed over different axes at once.
static_assert(product<Layout<f64, Dims<Dim<token>, Dim<hidden, 8, cp>>, Replicated<tp>>,
                      Layout<f64, Dims<Dim<ffn, 4, tp>, Dim<hidden, 8, cp>>>> == "f64[token:?, ffn@tp:4]{cp: partial}");

// What does not fit, and why.
template <class X, class W, std::size_t Out = 1>
using Why = detail::Contraction<X, W, Out>;
static_assert(Multipliable<Gathered, Column, 1> && Multipliable<Wide, Row, 1> && Multipliable<Sequence, Plain, 1>);
static_assert(Multipliable<Gathered, Query, 2> && Multipliable<Gathered, Key, 2> && !Multipliable<Invariant, Key, 2>);
static_assert(!Multipliable<Invariant, Column, 1> &&
              !Why<Invariant, Column>::x_is_replicated); // tp would do the work once
static_assert(!Multipliable<Sequence, Column, 1> && !Why<Sequence, Column>::x_is_replicated);
static_assert(!Multipliable<Invariant, Row, 1> && !Why<Invariant, Row>::names_match);
using WholeWide = Layout<f32, Dims<Dim<batch>, Dim<ffn>>>;
static_assert(!Multipliable<WholeWide, Row, 1> && Why<WholeWide, Row>::names_match &&
              !Why<WholeWide, Row>::shards_match);
using PartialX = Layout<f32, Dims<Dim<batch>, Dim<hidden>>, Partial<tp>>;
static_assert(!Multipliable<PartialX, Plain, 1> && !Why<PartialX, Plain>::x_is_whole);
using Doubles = Layout<f64, Dims<Dim<batch>, Dim<hidden>>>;
static_assert(!Multipliable<Doubles, Plain, 1> && !Why<Doubles, Plain>::elements_match);
using Longer = Layout<f32, Dims<Dim<batch>, Dim<hidden, 12>>>;
static_assert(!Multipliable<Longer, Layout<f32, Dims<Dim<ffn>, Dim<hidden, 16>>>, 1>);
static_assert(Multipliable<Longer, Layout<f32, Dims<Dim<ffn>, Dim<hidden, 12>>>, 1>);

} // namespace
