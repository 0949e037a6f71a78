#include <pentad/pentad.hpp>

namespace two_units {
int other_unit() { return 2; }
} // namespace two_units
