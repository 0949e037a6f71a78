#include <pentad/kernels/embedding.hpp>

#include "arrays.hpp"

#include <vector>

using namespace arrays;

namespace {

/// Tokens of a vocabulary of 11, of which entries 4 to 8 are here; one of them occurs often.
std::vector<double> tokens(int rows) {
    Random draw(5);
    std::vector<double> result;
    for (int r = 0; r < rows; ++r) result.push_back(r % 3 == 0 ? 6 : draw.below(11));
    return result;
}
constexpr int vocab_begin = 4, vocab_local = 5;

} // namespace

TEST_CASE_TEMPLATE("embedding copies the rows that are here and gives zeros for the others", T, f64, f32, bf16) {
    for (int const hidden : {1, 7, 65})
        for (int const rows : {0, 1, 40}) {
            auto const table = Matrix<T>::random(vocab_local, hidden, 1, 2);
            auto const y = Matrix<T>::random(rows, hidden, 2, 3);
            auto const ids = tokens(rows);
            kernels::embedding_forward<T>(Exec(), Vector<i32>(ids).view(), table.view(), vocab_begin, y.view());
            std::vector<double> expected;
            auto const entries = table.get();
            for (double const id : ids)
                for (int i = 0; i < hidden; ++i) {
                    int const entry = static_cast<int>(id) - vocab_begin;
                    expected.push_back(entry >= 0 && entry < vocab_local ? entries[entry * hidden + i] : 0.0);
                }
            CHECK(y.get() == expected);
            CHECK(y.gap_untouched());
        }
}

TEST_CASE_TEMPLATE("embedding's gradient is added to the rows of its tokens, but for padding", T, f64, f32, bf16) {
    for (int const hidden : {1, 7, 65, 1500})
        for (int const rows : {0, 1, 200, 201}) {
            auto const dy = Matrix<T>::random(rows, hidden, 3, 1);
            auto const dtable = Matrix<accumulator_t<T>>::random(vocab_local, hidden, 4, 2);
            auto const ids = tokens(rows);
            auto expected = dtable.get();
            auto const gradient = dy.get();
            int const padding = rows == 201 ? 6 : -1; // the token that occurs often, or none
            for (int r = 0; r < rows; ++r) {
                int const token = static_cast<int>(ids[r]), entry = token - vocab_begin;
                if (entry < 0 || entry >= vocab_local || token == padding) continue;
                for (int i = 0; i < hidden; ++i) expected[entry * hidden + i] += gradient[r * hidden + i];
            }
            kernels::embedding_backward<T>(Exec(), Vector<i32>(ids).view(), dy.view(), vocab_begin, dtable.view(),
                                           padding);
            CHECK(difference(dtable.get(), expected) <= tolerance<accumulator_t<T>>);
            CHECK(dtable.gap_untouched());
        }
}

TEST_CASE("a rank without a row of the table gives zeros") {
    Matrix<f32> const table(0, 7), y = Matrix<f32>::random(3, 7, 1);
    kernels::embedding_forward<f32>(Exec(), Vector<i32>({0, 5, 10}).view(), table.view(), 11, y.view());
    CHECK(y.get() == std::vector<double>(21, 0.0));
    kernels::embedding_backward<f32>(Exec(), Vector<i32>({0, 5, 10}).view(), y.view(), 11, table.view());
}
