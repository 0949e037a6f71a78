// Transforms of three-dimensional fields with FFTW: each dimension is transformed in a layout that has it whole, and
// redistributions lead from layout to layout. FFTW runs on one thread of each rank.
#pragma once

#include "fields.hpp"

#include <fftw3.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

using namespace fields;
using Complex = std::complex<f64>;
using Exec = Kokkos::DefaultHostExecutionSpace;
using RankMesh = Mesh<Axis<rows>, Axis<columns>>;
using Extents = std::array<std::size_t, 3>;
template <class L>
using Field = Tensor<L, Exec, RankMesh>;

template <class T, class... D>
using Of = Layout<T, Dims<D...>>;
struct Pencils { // along two axes: whole along one dimension
    template <class T>
    using AlongX = Of<T, Dim<z, dynamic, rows>, Dim<y, dynamic, columns>, Dim<x>>;
    template <class T>
    using AlongY = Of<T, Dim<z, dynamic, rows>, Dim<y>, Dim<x, dynamic, columns>>;
    template <class T>
    using AlongZ = Of<T, Dim<z>, Dim<y, dynamic, rows>, Dim<x, dynamic, columns>>;
};
struct Slabs { // along one axis: whole along two
    template <class T>
    using AlongX = Of<T, Dim<z, dynamic, rows>, Dim<y>, Dim<x>>;
    template <class T>
    using AlongY = AlongX<T>;
    template <class T>
    using AlongZ = Of<T, Dim<z>, Dim<y, dynamic, rows>, Dim<x>>;
};
static_assert(Plan<Pencils::AlongX<Complex>, Pencils::AlongY<Complex>>::text() == "all_to_all(columns) from y to x");
static_assert(Plan<Pencils::AlongY<Complex>, Pencils::AlongZ<Complex>>::text() == "all_to_all(rows) from z to y");
static_assert(Plan<Slabs::AlongY<Complex>, Slabs::AlongZ<Complex>>::text() == "all_to_all(rows) from z to y");

inline fftw_complex* raw(Complex* data) { return reinterpret_cast<fftw_complex*>(data); }
inline double* raw(double* data) { return data; }

/// FFTW's transform of all lines of a shard along a dimension: real to complex, complex to real, or complex.
template <class From, class To>
class Lines {
  public:
    /// Writes over both tensors, of whose shapes it may be used.
    template <class L, class M>
    Lines(Field<L> const& from, Field<M> const& to, std::size_t along, int sign) {
        if (from.size() == 0) return;
        std::array<fftw_iodim64, 3> dimensions{}; // the line, then the others
        std::ptrdiff_t from_stride = 1, to_stride = 1;
        for (std::size_t d = 3, next = 1; d-- > 0;) {
            auto const n = static_cast<std::ptrdiff_t>(std::max(from.local()[d], to.local()[d]));
            dimensions[d == along ? 0 : next++] = {n, from_stride, to_stride};
            from_stride *= static_cast<std::ptrdiff_t>(from.local()[d]);
            to_stride *= static_cast<std::ptrdiff_t>(to.local()[d]);
        }
        auto const make = [&](auto planner, auto... direction) {
            return planner(1, &dimensions[0], 2, &dimensions[1], raw(from.data()), raw(to.data()), direction...,
                           FFTW_MEASURE);
        };
        if constexpr (std::is_same_v<From, double>)
            plan_.reset(make(fftw_plan_guru64_dft_r2c));
        else if constexpr (std::is_same_v<To, double>)
            plan_.reset(make(fftw_plan_guru64_dft_c2r));
        else
            plan_.reset(make(fftw_plan_guru64_dft, sign));
    }
    void operator()(From* from, To* to) const {
        if (!plan_) return; // no element is this rank's
        if constexpr (std::is_same_v<From, double>)
            fftw_execute_dft_r2c(plan_.get(), raw(from), raw(to));
        else if constexpr (std::is_same_v<To, double>)
            fftw_execute_dft_c2r(plan_.get(), raw(from), raw(to));
        else
            fftw_execute_dft(plan_.get(), raw(from), raw(to));
    }

  private:
    struct Destroy {
        void operator()(fftw_plan plan) const { fftw_destroy_plan(plan); }
    };
    std::unique_ptr<std::remove_pointer_t<fftw_plan>, Destroy> plan_;
};

/// Transforms of fields of elements T, decomposed as D. A real field has half a spectrum, x from 0 to n / 2.
template <class D, class T>
class Transform {
  public:
    using X = typename D::template AlongX<T>;
    using SpectrumX = typename D::template AlongX<Complex>;
    using SpectrumY = typename D::template AlongY<Complex>;
    using SpectrumZ = typename D::template AlongZ<Complex>;

    Transform(MeshContext<RankMesh, Exec> const& context, Extents const& extents)
        : context_(context), extents_(extents),
          spectrum_{extents[0], extents[1], std::is_same_v<T, double> ? extents[2] / 2 + 1 : extents[2]},
          lines_(Field<X>(context, extents), Field<SpectrumX>(context, spectrum_), Field<SpectrumY>(context, spectrum_),
                 Field<SpectrumZ>(context, spectrum_)) {}

    [[nodiscard]] Field<SpectrumZ> forward(Field<X> field) const {
        Field<SpectrumX> along_x(context_, spectrum_);
        lines_.x(field.data(), along_x.data());
        field = {};
        auto along_y = redistribute<SpectrumY>(std::move(along_x));
        lines_.y(along_y.data(), along_y.data());
        auto along_z = redistribute<SpectrumZ>(std::move(along_y));
        lines_.z(along_z.data(), along_z.data());
        return along_z;
    }
    /// The inverse, times the number of elements.
    [[nodiscard]] Field<X> backward(Field<SpectrumZ> along_z) const {
        lines_.z_back(along_z.data(), along_z.data());
        auto along_y = redistribute<SpectrumY>(std::move(along_z));
        lines_.y_back(along_y.data(), along_y.data());
        auto const along_x = redistribute<SpectrumX>(std::move(along_y));
        Field<X> field(context_, extents_);
        lines_.x_back(along_x.data(), field.data());
        return field;
    }
    /// Bytes that this rank sends in both, by the plans.
    [[nodiscard]] double planned() const {
        return planned_bytes<SpectrumX, SpectrumY>(context_, spectrum_) +
               planned_bytes<SpectrumY, SpectrumZ>(context_, spectrum_) +
               planned_bytes<SpectrumZ, SpectrumY>(context_, spectrum_) +
               planned_bytes<SpectrumY, SpectrumX>(context_, spectrum_);
    }

  private:
    struct AllLines {
        Lines<T, Complex> x;
        Lines<Complex, Complex> y, z, z_back, y_back;
        Lines<Complex, T> x_back;
        AllLines(Field<X> const& field, Field<SpectrumX> const& sx, Field<SpectrumY> const& sy,
                 Field<SpectrumZ> const& sz)
            : x(field, sx, 2, FFTW_FORWARD), y(sy, sy, 1, FFTW_FORWARD), z(sz, sz, 0, FFTW_FORWARD),
              z_back(sz, sz, 0, FFTW_BACKWARD), y_back(sy, sy, 1, FFTW_BACKWARD), x_back(sx, field, 2, FFTW_BACKWARD) {}
    };
    MeshContext<RankMesh, Exec> const& context_;
    Extents extents_, spectrum_;
    AllLines lines_;
};
