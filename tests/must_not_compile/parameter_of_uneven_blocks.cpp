// expect: pentad: the blocks of a parameter are equal, and those of f32\[cell@tp:~\?\] may be uneven
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>

using namespace pentad;
using namespace pentad::ml;

struct cell {
    static constexpr std::string_view name = "cell";
#ifdef PENTAD_WRONG
    static constexpr bool has_uneven_blocks = true;
#endif
};
using Stored = Layout<f32, Dims<Dim<cell, dynamic, tp>>>;
constexpr auto size = sizeof(Parameter<Stored, Stored, Kokkos::DefaultHostExecutionSpace>);
