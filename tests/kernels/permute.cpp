#include <pentad/kernels/permute.hpp>

#include "arrays.hpp"

#include <cmath>
#include <vector>

using namespace arrays;

namespace {

/// Distinct experts for each row, as a router chooses them; expert 1 is never chosen where there are enough others.
std::vector<double> choices(int rows, int top_k, int experts) {
    Random draw(static_cast<std::uint64_t>(rows) * 31 + experts);
    std::vector<double> index;
    for (int r = 0; r < rows; ++r) {
        std::vector<bool> taken(experts);
        if (experts > top_k) taken[1] = true;
        for (int k = 0; k < top_k; ++k) {
            int e = draw.below(experts);
            while (taken[e]) e = (e + 1) % experts;
            taken[e] = true;
            index.push_back(e);
        }
    }
    return index;
}

struct Sorted {
    int rows, top_k, experts;
    Matrix<i32> index, position;
    Vector<i32> source;
    Vector<i64> counts;
    Sorted(int rows_, int top_k_, int experts_, int blocks)
        : rows(rows_), top_k(top_k_), experts(experts_), index(rows, top_k), position(rows, top_k),
          source(rows * top_k), counts(experts) {
        index.set(choices(rows, top_k, experts));
        Matrix<i32> const scratch(blocks, experts);
        kernels::sort_by_expert<kernels::Chosen::always>(Exec(), index.view(), counts.view(), position.view(),
                                                         source.view(), scratch.view());
    }
};

} // namespace

TEST_CASE("sort_by_expert is a stable counting sort, however many blocks it works in") {
    for (int const rows : {0, 1, 7, 65, 500})
        for (int const top_k : {1, 2, 3})
            for (int const experts : {3, 8, 65})
                for (int const blocks : {1, 2, 5, 64}) {
                    Sorted const sorted(rows, top_k, experts, blocks);
                    auto const index = sorted.index.get();
                    std::vector<double> counts(experts), order(index.size()), inverse(index.size());
                    for (double const expert : index) ++counts[static_cast<std::size_t>(expert)];
                    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<double>(i);
                    std::stable_sort(order.begin(), order.end(), [&](double a, double b) {
                        return index[static_cast<std::size_t>(a)] < index[static_cast<std::size_t>(b)];
                    });
                    for (std::size_t i = 0; i < order.size(); ++i)
                        inverse[static_cast<std::size_t>(order[i])] = static_cast<double>(i);
                    CHECK(sorted.counts.get() == counts);
                    CHECK(sorted.source.get() == order);
                    CHECK(sorted.position.get() == inverse);
                }
}

TEST_CASE("slots of negative index are left out") {
    for (int const blocks : {1, 2, 5}) {
        Matrix<i32> index(3, 3), position(3, 3);
        Vector<i32> source(9);
        Vector<i64> counts(2);
        index.set({1, 0, -1, -1, -1, -1, 0, -1, -1});
        source.set(std::vector<double>(9, 77));
        Matrix<i32> const scratch(blocks, 2);
        kernels::sort_by_expert<kernels::Chosen::sometimes>(Exec(), index.view(), counts.view(), position.view(),
                                                            source.view(), scratch.view());
        CHECK(counts.get() == std::vector<double>{2, 1});
        CHECK(position.get() == std::vector<double>{2, 0, -1, -1, -1, -1, 1, -1, -1});
        CHECK(source.get() == std::vector<double>{1, 6, 0, 77, 77, 77, 77, 77, 77});

        Matrix<f64> rows(3, 2), x(3, 2), weight(3, 3), gradient(3, 2), dweight(3, 3);
        rows.set({1, 2, 30, 40, 500, 600});
        weight.set({2, 3, 99, 99, 99, 99, 4, 99, 99});
        kernels::permute_backward<f64>(Exec(), rows.view(), position.view(), x.view(), false);
        CHECK(x.get() == std::vector<double>{501, 602, 0, 0, 30, 40});
        kernels::combine_forward<f64>(Exec(), rows.view(), position.view(), weight.view(), x.view());
        CHECK(x.get() == std::vector<double>{1003, 1206, 0, 0, 120, 160});
        x.set({1, 1, 7, 7, 1, -1});
        dweight.set(std::vector<double>(9, 88));
        View<i32 const, 1, Exec> const chosen(source.view().data(), 3);
        kernels::combine_backward<f64>(Exec(), x.view(), chosen, 3, rows.view(), chosen, weight.flat(), gradient.view(),
                                       dweight.flat());
        CHECK(gradient.get() == std::vector<double>{3, 3, 4, -4, 2, 2});
        CHECK(dweight.get() == std::vector<double>{1100, 3, 88, 88, 88, 88, -10, 88, 88});
    }
}

TEST_CASE("the scratch that is asked for is enough and not empty") {
    for (int const rows : {0, 1, 5000}) {
        int const blocks = kernels::sort_scratch_rows(Exec(), static_cast<std::size_t>(rows));
        CHECK(blocks >= 1);
        Sorted const one(rows, 2, 8, 1), asked(rows, 2, 8, blocks);
        CHECK(one.source.get() == asked.source.get());
    }
}

TEST_CASE_TEMPLATE("permute brings each token to each of its experts; backward is the adjoint", T, f64, f32, bf16) {
    for (int const hidden : {1, 7, 65, 600})
        for (int const top_k : {1, 2, 3}) {
            Sorted const sorted(33, top_k, 5, 3);
            auto const x = Matrix<T>::random(33, hidden, 1, 2);
            Matrix<T> const permuted(33 * top_k, hidden, 1), dx(33, hidden, 3);
            kernels::permute_forward<T>(Exec(), x.view(), sorted.source.view(), top_k, permuted.view());
            auto const values = x.get(), source = sorted.source.get(), position = sorted.position.get();
            std::vector<double> expected;
            for (double const slot : source)
                for (int i = 0; i < hidden; ++i)
                    expected.push_back(values[static_cast<std::size_t>(slot) / top_k * hidden + i]);
            CHECK(permuted.get() == expected);
            CHECK(permuted.gap_untouched());

            auto const dpermuted = Matrix<T>::random(33 * top_k, hidden, 2, 1);
            auto const gradient = dpermuted.get();
            for (bool const add : {false, true}) {
                auto const before = Matrix<T>::random(33, hidden, 3).get();
                dx.set(before);
                kernels::permute_backward<T>(Exec(), dpermuted.view(), sorted.position.view(), dx.view(), add);
                std::vector<double> sum(before.size());
                for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = add ? before[i] : 0.0;
                for (std::size_t p = 0; p < source.size(); ++p)
                    for (int i = 0; i < hidden; ++i)
                        sum[static_cast<std::size_t>(source[p]) / top_k * hidden + i] += gradient[p * hidden + i];
                CHECK(difference(dx.get(), sum) <= tolerance<T>);
                CHECK(dx.gap_untouched());
            }
        }
}

TEST_CASE_TEMPLATE("combine is the weighted sum of the experts' rows, and its gradients agree with it", T, f64, f32,
                   bf16) {
    using A = accumulator_t<T>;
    for (int const hidden : {1, 7, 65, 600})
        for (int const top_k : {1, 2, 3}) {
            int const rows = 13;
            Sorted const sorted(rows, top_k, 5, 2);
            auto const out = Matrix<T>::random(rows * top_k, hidden, 1, 2), dy = Matrix<T>::random(rows, hidden, 2);
            auto const weight = Matrix<A>::random(rows, top_k, 3);
            auto const position = sorted.position.get();
            auto const combine = [&](std::vector<double> const& e, std::vector<double> const& w) {
                std::vector<double> y(static_cast<std::size_t>(rows) * hidden);
                for (std::size_t slot = 0; slot < w.size(); ++slot)
                    for (int i = 0; i < hidden; ++i)
                        y[slot / top_k * hidden + i] +=
                            w[slot] * e[static_cast<std::size_t>(position[slot]) * hidden + i];
                return y;
            };
            Matrix<T> const y(rows, hidden, 1), dout(rows * top_k, hidden, 1);
            Matrix<A> const dweight(rows, top_k);
            kernels::combine_forward<T>(Exec(), out.view(), sorted.position.view(), weight.view(), y.view());
            auto const e = out.get(), w = weight.get(), d = dy.get();
            CHECK(difference(y.get(), combine(e, w)) <= tolerance<T>);
            auto const source = sorted.source.view();
            kernels::combine_backward<T>(Exec(), dy.view(), source, top_k, out.view(), source, weight.flat(),
                                         dout.view(), dweight.flat());
            // combine is linear in each of its arguments: its derivative along one is its value with that one alone
            std::vector<double> dout_expected(e.size()), dweight_expected(w.size());
            for (std::size_t slot = 0; slot < w.size(); ++slot)
                for (int i = 0; i < hidden; ++i) {
                    std::size_t const at = static_cast<std::size_t>(position[slot]) * hidden + i;
                    dout_expected[at] = w[slot] * d[slot / top_k * hidden + i];
                    dweight_expected[slot] += e[at] * d[slot / top_k * hidden + i];
                }
            CHECK(difference(dout.get(), dout_expected) <= tolerance<T>);
            CHECK(difference(dweight.get(), dweight_expected) <= tolerance<A>);
            CHECK(dout.gap_untouched());
            // Some of the rows, whose gradients lie elsewhere.
            Matrix<T> const reversed(rows, hidden, 1), some(3, hidden, 1);
            std::vector<double> mirrored, rows_of_some;
            for (int t = rows - 1; t >= 0; --t)
                mirrored.insert(mirrored.end(), d.begin() + t * hidden, d.begin() + (t + 1) * hidden);
            reversed.set(mirrored);
            auto const slots = sorted.source.get();
            for (int p = 5; p < 8; ++p) rows_of_some.push_back(rows - 1 - std::floor(slots[p] / top_k));
            Vector<i32> const row(rows_of_some);
            auto const part = [&](auto const& view) { return Kokkos::subview(view, std::pair(5, 8), Kokkos::ALL); };
            kernels::combine_backward<T>(Exec(), reversed.view(), row.view(), 1, part(out.view()),
                                         View<i32 const, 1, Exec>(source.data() + 5, 3), weight.flat(), some.view(),
                                         dweight.flat());
            auto const all = dout.get();
            CHECK(some.get() == std::vector<double>(all.begin() + 5 * hidden, all.begin() + 8 * hidden));
            CHECK(difference(dweight.get(), dweight_expected) <= tolerance<A>);
            kernels::combine_backward<T>(Exec(), dy.view(), source, top_k, out.view(), source, weight.flat(),
                                         out.view(),
                                         dweight.flat()); // in place
            CHECK(out.get() == dout.get());
            if (hidden == 7) {
                auto const slope = finite_differences(e, d, [&](auto const& v) { return combine(v, w); });
                CHECK(difference(dout_expected, slope) <= 1e-10);
            }
        }
}

TEST_CASE_TEMPLATE("rows are gathered and scattered by an index; a negative one is no row", T, f64, f32, bf16) {
    auto const x = Matrix<T>::random(4, 7, 1, 2);
    auto const values = x.get();
    Vector<i32> const index(std::vector<double>{2, -1, 0, 3});
    auto const y = Matrix<T>::random(4, 7, 2, 1), z = Matrix<T>::random(4, 7, 3);
    auto scattered = z.get();
    kernels::gather_rows<T>(Exec(), x.view(), index.view(), y.view());
    kernels::scatter_rows<T>(Exec(), x.view(), index.view(), z.view());
    std::vector<double> gathered(28);
    for (int i = 0; i < 7; ++i) {
        gathered[i] = values[14 + i];
        gathered[14 + i] = values[i];
        gathered[21 + i] = values[21 + i];
        scattered[14 + i] = values[i];
        scattered[i] = values[14 + i];
        scattered[21 + i] = values[21 + i];
    }
    CHECK(y.get() == gathered);
    CHECK(z.get() == scattered);
    CHECK(y.gap_untouched());
}

TEST_CASE("scratch without a row is refused") {
    Matrix<i32> const index(3, 2), position(3, 2), scratch(0, 4);
    Vector<i32> const source(6);
    Vector<i64> const counts(4);
    CHECK_THROWS_WITH_AS(kernels::sort_by_expert<kernels::Chosen::always>(
                             Exec(), index.view(), counts.view(), position.view(), source.view(), scratch.view()),
                         "sort_by_expert: scratch has no rows, it must have one", std::invalid_argument);
}
