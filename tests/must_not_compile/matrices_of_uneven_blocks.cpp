// expect: pentad: the blocks of a matrix in a product are equal and have no ghost cells: redistribute it first
#include <pentad/layout/ml.hpp>
#include <pentad/product/roles.hpp>

using namespace pentad;
using namespace pentad::ml;

struct cell {
    static constexpr std::string_view name = "cell";
#ifdef PENTAD_WRONG
    static constexpr bool has_uneven_blocks = true;
#endif
};
using A = Layout<f64, Dims<Dim<cell>, Dim<hidden>>>;
using B = Layout<f64, Dims<Dim<hidden>, Dim<vocab>>>;
using C = Layout<f64, Dims<Dim<cell>, Dim<vocab>>>;
constexpr auto allowed = (require_product<C, A, B>(), true);
