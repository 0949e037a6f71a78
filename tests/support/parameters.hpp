// Parameters of layers as whole arrays, whatever their layouts.
#pragma once

#include <pentad/layers/parameter.hpp>

#include <support/on_mesh.hpp>

namespace support {

namespace detail {
template <class E, class T>
Whole whole_of(AnyParameter<T, Exec> const& parameter, LayoutValue const& from, View<E, 1, Exec> const& data) {
    auto to = parameter.stored_layout();
    for (std::size_t d = 0; d < to.rank; ++d) to.dimensions[d].axes = {};
    auto const whole = pentad::detail::carry_out(
        parameter.context(), make_plan(from, to),
        pentad::detail::Shard<E, Exec>{{parameter.local_extents(), to.rank}, {}, data.data()});
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), whole.flat());
    auto const& extents = parameter.global_extents();
    Whole result{{extents.begin(), extents.begin() + static_cast<std::ptrdiff_t>(to.rank)}, {}};
    for (std::size_t i = 0; i < host.size(); ++i) result.values.push_back(as_double(host(i)));
    return result;
}
} // namespace detail

/// All of a parameter's value, on every rank. Collective.
template <class T>
Whole gather(AnyParameter<T, Exec> const& parameter) {
    return detail::whole_of<T>(parameter, parameter.stored_layout(), parameter.flat_value());
}
/// The same of a value that ParameterStore::for_each_exported() shows.
template <class T>
Whole gather_exported(AnyParameter<T, Exec> const& parameter) {
    return detail::whole_of<accumulator_t<T>>(parameter, parameter.stored_layout(), parameter.flat_gradient());
}
/// All of its gradient as the optimizer would see it: reduced over exactly the axes over which it is partial.
template <class T>
Whole reduced_gradient(AnyParameter<T, Exec> const& parameter) {
    auto from = parameter.stored_layout();
    from.partial = parameter.synchronised_axes();
    return detail::whole_of<accumulator_t<T>>(parameter, from, parameter.flat_gradient());
}
namespace detail {
template <class E, class T>
void fill_shard(AnyParameter<T, Exec> const& parameter, Whole const& whole, View<E, 1, Exec> const& values) {
    auto const& layout = parameter.stored_layout();
    auto const& communicators = parameter.context().communicators();
    auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), values);
    for (std::size_t i = 0; i < parameter.size(); ++i) {
        std::size_t at = 0;
        for (std::size_t d = 0, after = parameter.size(); d < layout.rank; ++d) {
            std::size_t const local = parameter.local_extents()[d];
            after /= local;
            at = at * parameter.global_extents()[d] + communicators.shard_index(layout.dimensions[d].axes) * local +
                 i / after % local;
        }
        host(i) = E(static_cast<accumulator_t<T>>(at < whole.values.size() ? whole.values[at] : 0.0));
    }
    Kokkos::deep_copy(values, host);
}
} // namespace detail

/// This rank's shard of `whole`. Rows beyond those of `whole` are padding: zeros.
template <class T>
void fill(AnyParameter<T, Exec> const& parameter, Whole const& whole) {
    detail::fill_shard<T>(parameter, whole, parameter.flat_value());
}
/// The same where ParameterStore::for_each_imported() takes it from.
template <class T>
void fill_imported(AnyParameter<T, Exec> const& parameter, Whole const& whole) {
    detail::fill_shard<accumulator_t<T>>(parameter, whole, parameter.flat_gradient());
}
/// How far an array is from `expected`, relative to the largest element of that, where rows beyond its own are padding:
/// zeros.
inline double distance_with_padding(Whole const& found, Whole expected) {
    double const scale = expected.scale();
    expected.values.resize(std::max(expected.values.size(), found.values.size()));
    return worst(found.values, expected.values) / scale;
}

} // namespace support
