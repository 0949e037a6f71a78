// Two translation units that include everything link: nothing in a header lacks its inline.
#include <pentad/pentad.hpp>

#include <doctest/doctest.h>

namespace two_units {
int other_unit();
}

TEST_CASE("two translation units that include everything link") { CHECK(two_units::other_unit() == 2); }
