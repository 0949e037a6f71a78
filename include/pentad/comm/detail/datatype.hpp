// MPI datatypes of the elements, and the reductions: sum, maximum, minimum, log-sum-exp. Elements that MPI does not
// know are reduced by operations of our own, in accumulators, and rounded once per addition.
#pragma once

#include <pentad/comm/error.hpp>
#include <pentad/layout/element.hpp>
#include <pentad/layout/layout.hpp>
#include <pentad/observe/dry_run.hpp>

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

namespace pentad::comm {

namespace detail {
template <class T>
inline constexpr bool is_complex = false;
template <class T>
    requires requires { Element<T>::is_complex; }
inline constexpr bool is_complex<T> = true;

/// A datatype of `Bytes` bytes, which lives as long as the process.
template <std::size_t Bytes>
MPI_Datatype bytes_type() {
    if (observe::dry_run() != nullptr) return MPI_BYTE; // MPI need not have been started
    static MPI_Datatype const type = [] {
        MPI_Datatype made = MPI_DATATYPE_NULL;
        check(MPI_Type_contiguous(static_cast<int>(Bytes), MPI_BYTE, &made), "MPI_Type_contiguous");
        check(MPI_Type_commit(&made), "MPI_Type_commit");
        return made;
    }();
    return type;
}
} // namespace detail

template <class T>
MPI_Datatype datatype() {
    static_assert(std::is_trivially_copyable_v<T>, "pentad: only trivially copyable elements travel");
    constexpr bool number = std::is_integral_v<T> && !std::is_same_v<T, bool>;
    if constexpr (std::is_same_v<T, f64>)
        return MPI_DOUBLE;
    else if constexpr (std::is_same_v<T, f32>)
        return MPI_FLOAT;
    else if constexpr (std::is_same_v<T, bf16>)
        return MPI_UINT16_T;
    else if constexpr (number && sizeof(T) == 1)
        return std::is_signed_v<T> ? MPI_INT8_T : MPI_UINT8_T;
    else if constexpr (number && sizeof(T) == 2)
        return std::is_signed_v<T> ? MPI_INT16_T : MPI_UINT16_T;
    else if constexpr (number && sizeof(T) == 4)
        return std::is_signed_v<T> ? MPI_INT32_T : MPI_UINT32_T;
    else if constexpr (number && sizeof(T) == 8)
        return std::is_signed_v<T> ? MPI_INT64_T : MPI_UINT64_T;
    else if constexpr (detail::is_complex<T>)
        return sizeof(T) == 8 ? MPI_C_FLOAT_COMPLEX : MPI_C_DOUBLE_COMPLEX;
    else if constexpr (sizeof(T) == 1)
        return MPI_BYTE;
    else
        return detail::bytes_type<sizeof(T)>();
}

/// Which elements, and how they are reduced: what ranks compare.
template <class T>
constexpr std::uint32_t type_code(Placement placement = Placement::partial) {
    constexpr std::uint32_t kind = std::is_same_v<T, bf16>       ? 'b'
                                   : std::is_floating_point_v<T> ? 'f'
                                   : detail::is_complex<T>       ? 'c'
                                   : std::is_signed_v<T>         ? 'i'
                                   : std::is_class_v<T>          ? 'o' // of a user's own type
                                                                 : 'u';
    constexpr std::uint32_t size = sizeof(T) < 255 ? sizeof(T) : 255;
    return size | kind << 8 | static_cast<std::uint32_t>(placement) << 16;
}
/// The elements of a type code: "f32", "bf16", "i64", "c128", "24 bytes".
inline std::string type_text(std::uint32_t code) {
    char const kind = static_cast<char>(code >> 8);
    if (kind == 'o') return std::to_string(code & 255) + " bytes";
    return (kind == 'b' ? "bf" : std::string(1, kind)) + std::to_string(8 * (code & 255));
}

/// How a type code's elements are reduced, where it is no sum: " (partial max)".
inline std::string reduction_text(std::uint32_t code) {
    auto const reduction = static_cast<Placement>(code >> 16);
    if (reduction == Placement::partial) return "";
    return " (" + std::string(placement_names[static_cast<std::size_t>(reduction)]) + ")";
}

namespace detail {
template <class T>
T log_sum_exp(T a, T b) {
    using A = accumulator_t<T>;
    A const x = static_cast<A>(a), y = static_cast<A>(b);
    A const high = std::max(x, y);
    if (high == -std::numeric_limits<A>::infinity()) return a;
    return T(high + std::log1p(std::exp(std::min(x, y) - high)));
}

template <class T, Placement Reduction>
void reduce_elements(void* in, void* in_out, MPI_Count* count, MPI_Datatype*) {
    auto const* a = static_cast<T const*>(in);
    auto* b = static_cast<T*>(in_out);
    for (MPI_Count i = 0; i < *count; ++i) {
        if constexpr (Reduction == Placement::partial)
            b[i] = static_cast<T>(static_cast<accumulator_t<T>>(a[i]) + static_cast<accumulator_t<T>>(b[i]));
        if constexpr (Reduction == Placement::partial_max) b[i] = b[i] < a[i] ? a[i] : b[i];
        if constexpr (Reduction == Placement::partial_min) b[i] = a[i] < b[i] ? a[i] : b[i];
        if constexpr (Reduction == Placement::partial_log_sum_exp) b[i] = log_sum_exp(a[i], b[i]);
    }
}

/// An operation of our own lives as long as the process; MPI frees it at the end.
template <class T, Placement Reduction>
MPI_Op own_operation() {
    if (observe::dry_run() != nullptr) return MPI_OP_NULL; // MPI need not have been started
    static MPI_Op const operation = [] {
        MPI_Op made = MPI_OP_NULL;
        check(MPI_Op_create_c(&reduce_elements<T, Reduction>, 1, &made), "MPI_Op_create_c");
        return made;
    }();
    return operation;
}
} // namespace detail

/// Whether elements T can be reduced as the placement says.
template <class T, Placement How>
inline constexpr bool can_reduce = How == Placement::partial_log_sum_exp ? Real<T>
                                   : How == Placement::partial           ? Summable<T>
                                                                         : Ordered<T>;

namespace detail {
/// f of the reduction that a placement asks for, as a constant.
/// @throws Error where the elements cannot be reduced so
template <class T, class F>
auto with_reduction(Placement placement, F const& f) {
    auto const take = [&]<Placement How>(std::integral_constant<Placement, How> how) -> decltype(f(how)) {
        if constexpr (can_reduce<T, How>)
            return f(how);
        else
            throw Error("a " + std::string(placement_names[static_cast<std::size_t>(How)]) + " of " +
                        std::string(Element<T>::name) + " has no meaning" +
                        (How == Placement::partial && !is_commutative<T>
                             ? ": its Element does not say that its operator+ commutes (is_commutative)"
                             : ""));
    };
    switch (placement) {
    case Placement::partial:
        return take(std::integral_constant<Placement, Placement::partial>());
    case Placement::partial_max:
        return take(std::integral_constant<Placement, Placement::partial_max>());
    case Placement::partial_min:
        return take(std::integral_constant<Placement, Placement::partial_min>());
    default:
        return take(std::integral_constant<Placement, Placement::partial_log_sum_exp>());
    }
}
} // namespace detail

/// The MPI operation that reduces elements T as the placement says.
/// @throws Error where the elements cannot be reduced so
template <class T>
MPI_Op reduction(Placement placement) {
    return detail::with_reduction<T>(placement, []<Placement How>(std::integral_constant<Placement, How>) -> MPI_Op {
        constexpr bool is_native = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;
        if constexpr (How == Placement::partial && (is_native || detail::is_complex<T>))
            return MPI_SUM;
        else if constexpr (How == Placement::partial_max && is_native)
            return MPI_MAX;
        else if constexpr (How == Placement::partial_min && is_native)
            return MPI_MIN;
        else
            return detail::own_operation<T, How>();
    });
}

} // namespace pentad::comm
