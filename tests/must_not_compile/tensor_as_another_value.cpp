// expect: pentad: summands are not a value, nor a value summands.*: from f64\[batch:\?\]\{tp: partial\} to
// f64\[batch:\?\] expect: pentad: summands are not a value, nor a value summands.*: from f64\[batch:\?\] to
// f64\[batch:\?\]\{tp: partial\} expect: pentad: ghost cells become stale by a name only.*: from .*stale halo 1.* to
// f64\[seq@cp:\? \(halo 1\)\] expect: pentad: the layouts are sharded differently.*: from f64\[batch@dp:\?, hidden:\?\]
// to f64\[batch:\?, hidden@dp:\?\] expect: pentad: the layouts have different elements.*: from f64\[batch:\?\] to
// f32\[batch:\?\] expect: pentad: a tensor of one layout is not one of another: redistribute it: .*stale halo 1.* where
// f64\[seq@cp:\? \(halo 1\)\] is wanted
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

using Value = Layout<f64, Dims<Dim<batch>>>;
using Summands = Layout<f64, Dims<Dim<batch>>, Partial<tp>>;
using Filled = Layout<f64, Dims<Halo<Dim<seq, dynamic, cp>, 1>>>;
using Rows = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<hidden>>>;
using Columns = Layout<f64, Dims<Dim<batch>, Dim<hidden, dynamic, dp>>>;
inline void smooth(Tensor<Filled> const&) {}
inline void take(Tensor<Value> const& value, Tensor<Summands> const& summands, Tensor<Filled> const& filled,
                 Tensor<stale_t<Filled>> const& stale, Tensor<Rows> const& rows) {
#ifdef PENTAD_WRONG
    (void)summands.as<Value>();
    (void)value.as<Summands>();
    (void)stale.as<Filled>();
    (void)rows.as<Columns>();
    (void)value.as<Layout<f32, Dims<Dim<batch>>>>();
    smooth(stale);
    (void)filled;
#else
    (void)summands.reinterpret_as<Value>();
    (void)value.reinterpret_as<Summands>();
    (void)stale.reinterpret_as<Filled>();
    (void)rows.as<Layout<f64, Dims<Dim<seq, dynamic, dp>, Dim<ffn>>, Replicated<tp>>>(); // other names
    (void)filled.as<stale_t<Filled>>();
    smooth(filled);
#endif
}
