// The elements that a program has: all, or those of the compiled libraries that it links (-DPENTAD_ELEMENTS).
#pragma once

#include <pentad/layout/element.hpp>
#include <pentad/model/precision.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::train {

/// f(T()) for the type T of an element.
/// @throws std::invalid_argument if the program does not have it
template <class F>
decltype(auto) with_element(model::Element element, F&& f) {
#if !PENTAD_LACKS_F64
    if (element == model::Element::f64) return std::forward<F>(f)(f64());
#endif
#if !PENTAD_LACKS_BF16
    if (element == model::Element::bf16) return std::forward<F>(f)(bf16());
#endif
    if (element == model::Element::f32) return std::forward<F>(f)(f32());
    throw std::invalid_argument(std::string("this program is built without ") +
                                (element == model::Element::f64 ? "f64" : "bf16") +
                                ": configure Pentad with -DPENTAD_ELEMENTS='f64;f32;bf16'");
}

/// Why a program does not run with an element; nothing if it does.
inline std::string element_refusal(model::Element element) {
    try {
        with_element(element, [](auto) {});
        return {};
    } catch (std::invalid_argument const& lacking) {
        return lacking.what();
    }
}

} // namespace pentad::train
