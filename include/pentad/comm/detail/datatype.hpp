// MPI datatypes of the elements, and the reductions: sum, maximum, log-sum-exp. bf16 has no MPI type: its
// reductions are operations of our own that add in f32 and round once per addition.
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

template <class T>
MPI_Datatype datatype() {
    constexpr bool number = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>;
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
    else {
        static_assert(std::is_same_v<T, bool> || std::is_same_v<T, char> || std::is_same_v<T, std::byte>,
                      "only numbers travel: f64, f32, bf16, integers, bytes");
        return MPI_BYTE;
    }
}

/// Which elements, and how they are reduced: what ranks compare.
template <class T>
constexpr std::uint32_t type_code(Placement placement = Placement::partial) {
    constexpr std::uint32_t kind = std::is_same_v<T, bf16>       ? 'b'
                                   : std::is_floating_point_v<T> ? 'f'
                                   : std::is_signed_v<T>         ? 'i'
                                                                 : 'u';
    return static_cast<std::uint32_t>(sizeof(T)) | kind << 8 | static_cast<std::uint32_t>(placement) << 16;
}
/// The elements of a type code: "f32", "bf16", "i64", "u8".
inline std::string type_text(std::uint32_t code) {
    char const kind = static_cast<char>(code >> 8);
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
        if constexpr (Reduction == Placement::partial) b[i] = T(a[i] + b[i]);
        if constexpr (Reduction == Placement::partial_max) b[i] = a[i] > b[i] ? a[i] : b[i];
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

/// The MPI operation that reduces elements T as the placement says.
template <class T>
MPI_Op reduction(Placement placement) {
    constexpr bool native = !std::is_same_v<T, bf16>;
    if (placement == Placement::partial) {
        if constexpr (native) return MPI_SUM;
        return detail::own_operation<T, Placement::partial>();
    }
    if (placement == Placement::partial_max) {
        if constexpr (native) return MPI_MAX;
        return detail::own_operation<T, Placement::partial_max>();
    }
    if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, bf16>)
        return detail::own_operation<T, Placement::partial_log_sum_exp>();
    throw Error("a log-sum-exp of integers has no meaning");
}

} // namespace pentad::comm
