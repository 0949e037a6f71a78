// What bench_products needs of ScaLAPACK and its BLACS: matrices dealt out in blocks to a grid of ranks, and products.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

extern "C" {
void dgemm_();
void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, char const* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
int numroc_(int const* n, int const* block, int const* place, int const* first, int const* ranks);
void descinit_(int* descriptor, int const* m, int const* n, int const* row_block, int const* column_block,
               int const* first_row, int const* first_column, int const* context, int const* leading, int* info);
void pdgemm_(char const* transpose_a, char const* transpose_b, int const* m, int const* n, int const* k,
             double const* alpha, double const* a, int const* a_row, int const* a_column, int const* of_a,
             double const* b, int const* b_row, int const* b_column, int const* of_b, double const* beta, double* c,
             int const* c_row, int const* c_column, int const* of_c);
void psgemm_(char const* transpose_a, char const* transpose_b, int const* m, int const* n, int const* k,
             float const* alpha, float const* a, int const* a_row, int const* a_column, int const* of_a, float const* b,
             int const* b_row, int const* b_column, int const* of_b, float const* beta, float* c, int const* c_row,
             int const* c_column, int const* of_c);
}

namespace scalapack {

/// The file of the BLAS whose products ScaLAPACK calls and, of OpenBLAS, the CPU whose kernels it runs.
inline std::string blas() {
    Dl_info found{};
    if (dladdr(reinterpret_cast<void*>(&dgemm_), &found) == 0) return "unknown";
    std::string const file = found.dli_fname;
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
    auto* const core =
        library == nullptr ? nullptr : reinterpret_cast<char const* (*)()>(dlsym(library, "openblas_get_corename"));
    return file.substr(file.rfind('/') + 1) + (core == nullptr ? "" : std::string(" (") + core() + ')');
}

/// All ranks of the world, row by row.
class Grid {
  public:
    Grid(int rows, int columns) : rows_(rows), columns_(columns) {
        Cblacs_get(-1, 0, &context_);
        Cblacs_gridinit(&context_, "Row", rows, columns);
        Cblacs_gridinfo(context_, &rows_, &columns_, &row_, &column_);
    }
    Grid(Grid const&) = delete;
    Grid& operator=(Grid const&) = delete;
    ~Grid() { Cblacs_gridexit(context_); }

    [[nodiscard]] int context() const { return context_; }
    [[nodiscard]] int rows() const { return rows_; }
    [[nodiscard]] int columns() const { return columns_; }
    [[nodiscard]] int row() const { return row_; }
    [[nodiscard]] int column() const { return column_; }

  private:
    int context_ = 0, rows_, columns_, row_ = 0, column_ = 0;
};

/// A square matrix in blocks of `block` rows and columns, column-major on each rank.
template <class T>
class Matrix {
  public:
    Matrix(Grid const& grid, int n, int block) : grid_(&grid), block_(block) {
        int const zero = 0, rows = grid.rows(), columns = grid.columns(), row = grid.row(), column = grid.column();
        rows_ = numroc_(&n, &block, &row, &zero, &rows);
        columns_ = numroc_(&n, &block, &column, &zero, &columns);
        int const context = grid.context(), leading = std::max(rows_, 1);
        int info = 0;
        descinit_(descriptor_.data(), &n, &n, &block, &block, &zero, &zero, &context, &leading, &info);
        if (info != 0) throw std::runtime_error("descinit refuses argument " + std::to_string(-info));
        data_.resize(static_cast<std::size_t>(rows_) * static_cast<std::size_t>(columns_));
    }
    /// f(row, column, element) for each element of this rank.
    template <class F>
    void for_each(F const& f) {
        for (int j = 0; j < columns_; ++j)
            for (int i = 0; i < rows_; ++i)
                f(global(i, grid_->row(), grid_->rows()), global(j, grid_->column(), grid_->columns()),
                  data_[static_cast<std::size_t>(j) * static_cast<std::size_t>(rows_) + static_cast<std::size_t>(i)]);
    }
    [[nodiscard]] T* data() { return data_.data(); }
    [[nodiscard]] T const* data() const { return data_.data(); }
    [[nodiscard]] int const* descriptor() const { return descriptor_.data(); }

  private:
    [[nodiscard]] std::size_t global(int local, int place, int ranks) const {
        return static_cast<std::size_t>((local / block_ * ranks + place) * block_ + local % block_);
    }

    Grid const* grid_;
    int block_, rows_ = 0, columns_ = 0;
    std::array<int, 9> descriptor_{};
    std::vector<T> data_;
};

/// C = A B.
template <class T>
void multiply(int n, Matrix<T> const& a, Matrix<T> const& b, Matrix<T>& c) {
    constexpr int one = 1;
    constexpr T alpha = 1, beta = 0;
    auto const call = [&](auto const& gemm) {
        gemm("N", "N", &n, &n, &n, &alpha, a.data(), &one, &one, a.descriptor(), b.data(), &one, &one, b.descriptor(),
             &beta, c.data(), &one, &one, c.descriptor());
    };
    if constexpr (std::is_same_v<T, double>)
        call(pdgemm_);
    else
        call(psgemm_);
}

} // namespace scalapack
