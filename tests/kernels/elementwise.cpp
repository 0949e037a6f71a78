#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/head_groups.hpp>

#include "arrays.hpp"

#include <bit>
#include <vector>

using namespace arrays;

namespace {
int const sizes[] = {0, 1, 7, 65, 8192, 20001}; // around a host thread's chunk too
}

TEST_CASE_TEMPLATE("add, scale and fill reach every element", T, f64, f32, bf16) {
    using A = accumulator_t<T>;
    for (int const n : sizes) {
        auto const x = Vector<T>::random(n, 1), y = Vector<T>::random(n, 2);
        auto const a = x.get();
        auto expected = y.get();
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = as_double(from_double<T>(a[i] + expected[i]));
        kernels::add<T>(Exec(), x.view(), y.view());
        CHECK(y.get() == expected);
        for (auto& value : expected) value = as_double(from_double<T>(value * 0.75));
        kernels::scale<T>(Exec(), y.view(), A(0.75));
        CHECK(y.get() == expected);
        kernels::fill<T>(Exec(), y.view(), T(A(3)));
        CHECK(y.get() == std::vector<double>(static_cast<std::size_t>(n), 3.0));
    }
    Vector<i32> const integers(65);
    kernels::fill<i32>(Exec(), integers.view(), -1);
    CHECK(integers.get() == std::vector<double>(65, -1.0));
}

TEST_CASE("convert rounds to nearest, ties to even, and keeps infinities and NaN") {
    double const infinity = std::numeric_limits<double>::infinity();
    Vector<f32> const x({1.0, 1.00390625, 1.01171875, -1.00391, 3.5e38, -infinity, 1e-45, 0.1});
    Vector<bf16> const y(8);
    kernels::convert<f32, bf16>(Exec(), x.view(), y.view());
    CHECK(y.get() == std::vector<double>{1.0, 1.0, 1.015625, -1.0078125, infinity, -infinity, 0.0, 0.10009765625});
    x.set(std::vector<double>(8, std::numeric_limits<double>::quiet_NaN()));
    kernels::convert<f32, bf16>(Exec(), x.view(), y.view());
    for (double const value : y.get()) CHECK(std::isnan(value));
}

TEST_CASE("convert between every two elements, and back where nothing is lost") {
    for (int const n : sizes) {
        auto const x = Vector<bf16>::random(n, 3);
        Vector<f64> const wide(n);
        Vector<f32> const middle(n);
        Vector<bf16> const back(n);
        kernels::convert<bf16, f64>(Exec(), x.view(), wide.view());
        kernels::convert<f64, f32>(Exec(), wide.view(), middle.view());
        kernels::convert<f32, bf16>(Exec(), middle.view(), back.view());
        CHECK(back.get() == x.get());
        kernels::convert<f64, bf16>(Exec(), wide.view(), back.view());
        CHECK(back.get() == x.get());
        Vector<f32> const copy(n);
        kernels::convert<f32, f32>(Exec(), middle.view(), copy.view());
        CHECK(copy.get() == middle.get());
    }
}

TEST_CASE_TEMPLATE("the sum of squares is accumulated in f64, the same bits each time", T, f64, f32, bf16) {
    for (int const n : sizes) {
        auto const x = Vector<T>::random(n, 4, 1e3);
        double expected = 0;
        for (double const value : x.get()) expected += value * value;
        double const sum = kernels::host_sum_of_squares<T>(Exec(), x.view());
        CHECK(std::abs(sum - expected) <= 1e-13 * expected);
        Vector<f64> const results(2);
        kernels::sum_of_squares<T>(Exec(), x.view(), Kokkos::subview(results.view(), 1));
        CHECK(results.get() == std::vector<double>{0.0, sum});
    }
}

TEST_CASE("lengths that differ are refused") {
    Vector<f32> const x(3), y(4);
    CHECK_THROWS_WITH_AS(kernels::add<f32>(Exec(), x.view(), y.view()), "add: x has extent 3, it must be 4 (as y)",
                         std::invalid_argument);
}

TEST_CASE_TEMPLATE("rows are repeated for a group, and summed over it", T, f64, f32, bf16) {
    for (int const copies : {1, 2, 3})
        for (int const rows : {0, 1, 7, 300}) {
            int const columns = 5;
            auto const x = Matrix<T>::random(rows, columns, 1);
            Matrix<T> const repeated(rows * copies, columns), sums(rows, columns);
            kernels::repeat_rows<T>(Exec(), x.view(), repeated.view());
            auto const from = x.get(), to = repeated.get();
            for (std::size_t i = 0; i < to.size(); ++i)
                REQUIRE(to[i] == from[i / columns / static_cast<std::size_t>(copies) * columns + i % columns]);
            kernels::sum_rows<T>(Exec(), repeated.view(), sums.view());
            auto const found = sums.get();
            for (std::size_t i = 0; i < found.size(); ++i)
                REQUIRE(found[i] == as_double(from_double<T>(copies * from[i])));
        }
}
