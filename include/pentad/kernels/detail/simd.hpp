// Vectors of the host's registers, as the GNU vector extension gives them (GCC, Clang, nvcc's host
// side): what the register-blocked host kernels are written in. Wide if compiled for a machine with wide registers.
#pragma once

#include <pentad/layout/element.hpp>

#include <cstdint>
#include <iterator>
#include <utility>

// Asks for full unrolling of the loop that follows, so that small arrays of vectors live in registers. nvcc's front end
// does not know the pragma.
#if defined(__CUDACC__)
#define PENTAD_UNROLL(times)
#else
#define PENTAD_PRAGMA(text) _Pragma(#text)
#define PENTAD_UNROLL(times) PENTAD_PRAGMA(GCC unroll times)
#endif

namespace pentad::kernels::detail {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif

template <class T>
struct VectorOf;
template <>
struct VectorOf<f32> {
    typedef f32 type __attribute__((vector_size(vector_bytes)));
    typedef std::int32_t bits __attribute__((vector_size(vector_bytes)));
};
template <>
struct VectorOf<f64> {
    typedef f64 type __attribute__((vector_size(vector_bytes)));
    typedef std::int64_t bits __attribute__((vector_size(vector_bytes)));
};

template <class T>
using Vector = typename VectorOf<T>::type;

/// Elements in a vector.
template <class T>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

template <class T>
inline Vector<T> load(T const* from) {
    Vector<T> vector;
    __builtin_memcpy(&vector, from, sizeof vector);
    return vector;
}

template <class T>
inline void store(T* to, Vector<T> const& vector) {
    __builtin_memcpy(to, &vector, sizeof vector);
}

/// All lanes equal. (x - 0 is x also for x = -0, so this is one broadcast; 0 + x would be an addition as well.)
template <class T>
inline Vector<T> broadcast(T value) {
    return value - Vector<T>{};
}

/// Lane by lane; where either is NaN, b.
template <class V>
inline V larger(V const& a, V const& b) {
    return a > b ? a : b;
}
template <class V>
inline V smaller(V const& a, V const& b) {
    return a < b ? a : b;
}

template <class T>
inline constexpr T log2_e = T(1.44269504088896340736);
template <class T>
inline constexpr T ln_2 = T(0.69314718055994530942);

/// Constants of 2^x: the exponent's place, and 2^x on [-1/2, 1/2] as a polynomial interpolated at Chebyshev nodes
/// (relative errors 2.5e-9 and 4e-18, below the rounding of the type), highest power first.
template <class T>
struct Exp2;
template <>
struct Exp2<f32> {
    static constexpr int mantissa_bits = 23;
    static constexpr f32 smallest = -126.0f;
    static constexpr f32 rounder = 12582912.0f; // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    static constexpr f32 polynomial[] = {0.00015461444698569129f,
                                         0.0013400428177615838f,
                                         0.0096180566785246373f,
                                         0.05550327226670302f,
                                         0.24022650922288757f,
                                         0.69314720670283259f,
                                         1.0f};
};
template <>
struct Exp2<f64> {
    static constexpr int mantissa_bits = 52;
    static constexpr f64 smallest = -1022.0;
    static constexpr f64 rounder = 6755399441055744.0; // 1.5 * 2^52
    static constexpr f64 polynomial[] = {4.4558179083360645e-10, 7.0741942972885211e-09, 1.0178057087733941e-07,
                                         1.3215432535912375e-06, 1.5252733841556773e-05, 0.00015403530463724353,
                                         0.0013333558146406471,  0.0096181291075872564,  0.055504108664821625,
                                         0.24022650695910158,    0.69314718055994529,    1.0};
};

/// x as a whole number and what is left of it: 2^x = (1 + slope fraction) 2^whole.
template <class T>
struct Exp2Parts {
    using Constants = Exp2<T>;
    using Bits = typename VectorOf<T>::bits;
    Vector<T> slope, fraction;
    Bits exponent; ///< the whole number, where the bits of a number have it

    explicit Exp2Parts(Vector<T> const& x) {
        auto const smallest = broadcast(Constants::smallest);
        auto const rounder = broadcast(Constants::rounder);
        Vector<T> const clamped = smallest > x ? smallest : x;
        Vector<T> const shifted = clamped + rounder;
        fraction = clamped - (shifted - rounder);
        slope = broadcast(Constants::polynomial[0]);
        PENTAD_UNROLL(16)
        for (int i = 1; i + 1 < static_cast<int>(std::size(Constants::polynomial)); ++i)
            slope = slope * fraction + Constants::polynomial[i];
        exponent = (Bits)shifted << Constants::mantissa_bits; // the rounder's own bits are shifted out
    }
};

/// 2^x without branches, for x below the largest exponent; 0 where the result would be subnormal. NaN stays NaN.
template <class T>
inline Vector<T> exp2(Vector<T> const& x) {
    using Parts = Exp2Parts<T>;
    Parts const parts(x);
    Vector<T> const power = parts.slope * parts.fraction + std::end(Parts::Constants::polynomial)[-1];
    Vector<T> const result = (Vector<T>)((typename Parts::Bits)power + parts.exponent);
    return x < broadcast(Parts::Constants::smallest) ? Vector<T>{} : result;
}

/// 2^x - 1 without branches, for x of at most 0, to a few roundings also where it is small. NaN stays NaN.
template <class T>
inline Vector<T> exp2_minus_1(Vector<T> const& x) {
    Exp2Parts<T> const parts(x);
    Vector<T> const whole = (Vector<T>)((typename VectorOf<T>::bits)broadcast(T(1)) + parts.exponent);
    return parts.slope * parts.fraction * whole + (whole - T(1));
}

/// The hyperbolic tangent without branches, to a few roundings. NaN stays NaN.
template <class T>
inline Vector<T> tanh(Vector<T> const& x) {
    Vector<T> const size = larger<Vector<T>>(x, -x);
    Vector<T> const less = exp2_minus_1<T>(size * (T(-2) * log2_e<T>));
    Vector<T> const result = less / (T(-2) - less);
    return x < Vector<T>{} ? -result : result;
}

/// One step of a transpose: exchanges the off-diagonal blocks of `step` lanes between two rows that are `step` apart.
template <int step, class T, int... lane>
inline void swap_blocks(Vector<T>& upper, Vector<T>& lower, std::integer_sequence<int, lane...>) {
    constexpr int size = sizeof...(lane);
    Vector<T> const a = upper;
    Vector<T> const b = lower;
#if defined(__CUDACC__) // whose front end does not count a pack of shuffle indices
    for (int l = 0; l < size; ++l) {
        upper[l] = l & step ? b[l - step] : a[l];
        lower[l] = l & step ? b[l] : a[l + step];
    }
#else
    upper = __builtin_shufflevector(a, b, (lane & step ? size + lane - step : lane)...);
    lower = __builtin_shufflevector(a, b, (lane & step ? size + lane : lane + step)...);
#endif
}

template <int step, class T>
inline void transpose_step(Vector<T>* rows) {
    constexpr int size = lanes<T>;
    if constexpr (step < size) {
        PENTAD_UNROLL(16)
        for (int r = 0; r < size; ++r)
            if (!(r & step)) swap_blocks<step, T>(rows[r], rows[r + step], std::make_integer_sequence<int, size>());
        transpose_step<2 * step, T>(rows);
    }
}

/// Transposes a square of lanes x lanes: row r of `from` becomes column r of `to`.
template <class T>
inline void transpose_square(T const* from, i64 from_stride, T* to, i64 to_stride) {
    constexpr int size = lanes<T>;
    Vector<T> rows[size];
    PENTAD_UNROLL(16)
    for (int r = 0; r < size; ++r) rows[r] = load(from + r * from_stride);
    transpose_step<1, T>(rows);
    PENTAD_UNROLL(16)
    for (int r = 0; r < size; ++r) store(to + r * to_stride, rows[r]);
}

} // namespace pentad::kernels::detail
