#include <pentad/kernels/latent_heads.hpp>

#include "arrays.hpp"

#include <vector>

using namespace arrays;

TEST_CASE_TEMPLATE("columns are split into two parts, and joined again", T, f64, f32, bf16) {
    auto const x = Matrix<T>::random(7, 12, 1, 3);
    Matrix<T> const left(7, 5, 1), right(7, 7), y(7, 12, 2);
    kernels::split_columns<T>(Exec(), x.view(), left.view(), right.view());
    auto const all = x.get(), of_left = left.get(), of_right = right.get();
    for (std::size_t row = 0; row < 7; ++row)
        for (std::size_t i = 0; i < 12; ++i)
            CHECK(all[row * 12 + i] == (i < 5 ? of_left[row * 5 + i] : of_right[row * 7 + i - 5]));
    kernels::join_columns<T>(Exec(), left.view(), right.view(), y.view());
    CHECK(y.get() == all);
    CHECK(left.gap_untouched());
    CHECK(y.gap_untouched());
    CHECK_THROWS_WITH((kernels::split_columns<T>(Exec(), x.view(), left.view(), left.view())),
                      "split_columns: x, dimension 1, has extent 12, it must be 10 (columns of both parts)");
}

namespace {

constexpr std::size_t rows = 5, heads = 3, plain = 4, rotary = 2, value = 7;

/// Keys and then values, row after row, of products and then rotary keys.
std::vector<double> reference(std::vector<double> const& x) {
    std::size_t const products = heads * (plain + value);
    std::vector<double> keys, values;
    for (std::size_t row = 0; row < rows; ++row)
        for (std::size_t h = 0; h < heads; ++h) {
            auto const first = x.begin() + static_cast<std::ptrdiff_t>(row * products + h * (plain + value));
            auto const turned = x.begin() + static_cast<std::ptrdiff_t>(rows * products + row * rotary);
            keys.insert(keys.end(), first, first + plain);
            keys.insert(keys.end(), turned, turned + rotary);
            values.insert(values.end(), first + plain, first + plain + value);
        }
    keys.insert(keys.end(), values.begin(), values.end());
    return keys;
}
std::vector<double> joined(std::vector<double> a, std::vector<double> const& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

} // namespace

TEST_CASE_TEMPLATE("keys of latent attention have one rotary key for all heads, and its gradient is their sum", T, f64,
                   f32, bf16) {
    using A = accumulator_t<T>;
    auto const products = Matrix<T>::random(rows, heads * (plain + value), 1, 2),
               turned = Matrix<T>::random(rows, rotary, 2);
    Matrix<T> const keys(rows, heads * (plain + rotary), 1), values(rows, heads * value);
    kernels::latent_heads<T>(Exec(), heads, products.view(), turned.view(), keys.view(), values.view());
    auto const x = joined(products.get(), turned.get());
    CHECK(joined(keys.get(), values.get()) == reference(x));
    CHECK(keys.gap_untouched());

    auto const d_keys = Matrix<A>::random(rows, heads * (plain + rotary), 3),
               d_values = Matrix<A>::random(rows, heads * value, 4, 3);
    Matrix<T> const d_products(rows, heads * (plain + value)), d_turned(rows, rotary, 1);
    kernels::latent_heads_backward<T>(Exec(), heads, d_keys.view(), d_values.view(), d_products.view(),
                                      d_turned.view());
    auto const expected = finite_differences(x, joined(d_keys.get(), d_values.get()), reference);
    CHECK(difference(joined(d_products.get(), d_turned.get()), expected) <=
          (std::is_same_v<T, f64> ? 1e-10 : tolerance<T>));
    CHECK(d_turned.gap_untouched());
    CHECK_THROWS_WITH(
        (kernels::latent_heads<T>(Exec(), heads, products.view(), turned.view(), keys.view(), turned.view())),
        "latent_heads: values, dimension 1, has extent 2, it must be 0 (the same for each head)");
}
