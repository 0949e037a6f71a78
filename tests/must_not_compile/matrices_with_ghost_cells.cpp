// expect: pentad: a matrix in a product has no ghost cells, and a dimension has uneven blocks in both
#include <pentad/layout/ml.hpp>
#include <pentad/product/roles.hpp>

using namespace pentad;
using namespace pentad::ml;

struct cell {
    static constexpr std::string_view name = "cell";
};
#ifdef PENTAD_WRONG
using Cells = Halo<Dim<cell>, 1, Boundary::open>;
#else
using Cells = Dim<cell>;
#endif
using A = Layout<f64, Dims<Cells, Dim<hidden>>>;
using B = Layout<f64, Dims<Dim<hidden>, Dim<vocab>>>;
using C = Layout<f64, Dims<Dim<cell>, Dim<vocab>>>;
constexpr auto allowed = (require_product<C, A, B>(), true);
