// expect: pentad: each rank holds a summand of this value: reduce it first, or read the summands by summands\(\):
// f64\[batch expect: pentad: each rank holds a summand of this value.* f32\[batch expect: pentad: each rank holds a
// summand of this value.* i32\[batch expect: pentad: each rank holds a summand of this value.* i64\[batch expect:
// pentad: each rank holds a summand of this value.* u64\[batch
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/tensor.hpp>

using namespace pentad;
using namespace pentad::ml;

template <class T>
using Summands = Tensor<Layout<T, Dims<Dim<batch>>, Partial<tp>>>;
inline auto read(Summands<f64> const& a, Summands<f32> const& b, Summands<i32> const& c, Summands<i64> const& d,
                 Summands<u64> const& e) {
#ifdef PENTAD_WRONG
    u64 host[1];
    e.get(host);
    return *d.data() + c.rows()(0, 0) + b.flat()(0) + a.view()(0);
#else
    return *d.array_data() + c.array_rows()(0, 0) + b.array_flat()(0) + a.summands()(0) + e.summands()(0);
#endif
}
