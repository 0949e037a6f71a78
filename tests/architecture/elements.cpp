// As programs are that link libraries configured with -DPENTAD_ELEMENTS='f64;f32'.
#define PENTAD_LACKS_BF16 1

#include <pentad/train/elements.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <type_traits>

TEST_CASE("a program has the elements that it was configured with, and says which it lacks") {
    using pentad::model::Element, pentad::train::with_element, pentad::train::element_refusal;
    CHECK(with_element(Element::f64, [](auto value) { return std::is_same_v<decltype(value), pentad::f64>; }));
    CHECK(with_element(Element::f32, [](auto value) { return std::is_same_v<decltype(value), pentad::f32>; }));
    CHECK_THROWS_AS(with_element(Element::bf16, [](auto) {}), std::invalid_argument);
    CHECK(element_refusal(Element::f64).empty());
    CHECK(element_refusal(Element::bf16).find("without bf16: configure Pentad with -DPENTAD_ELEMENTS=") !=
          std::string::npos);
}
