// The conjugate gradient method for the three-dimensional Poisson problem on a grid that ranks share out: 6 u minus the
// six neighbours is f, and u is zero beyond the grid. Products with the matrix fill ghost cells, and a sum over the
// cells of a rank is partial over the axes that shard the grid: what has to be sent follows from both. Hestenes and
// Stiefel 1952; the preconditioner is a polynomial of Jacobi steps (Dubois, Greenbaum and Rodrigue 1979).
//
//     mpiexec -n 6 conjugate_gradient --size 30x31x17 --degree 2 --check
#include "fields.hpp"

#include <cstdio>
#include <stdexcept>
#include <utility>

using namespace fields;
using Exec = Kokkos::DefaultExecutionSpace;
using RankMesh = Mesh<Axis<planes>, Axis<rows>, Axis<columns>>;
using Filled =
    Layout<f64,
           Dims<Halo<Dim<z, dynamic, planes>, 1>, Halo<Dim<y, dynamic, rows>, 1>, Halo<Dim<x, dynamic, columns>, 1>>>;
using Grid = stale_t<Filled>;            // whose ghost cells are not up to date
using Sum = summed_t<f64, Dims<>, Grid>; // of what a rank makes of its cells: a summand
using Total = invariant_t<Sum>;
using Whole = whole_t<without_halo_t<Grid>>;
static_assert(layout_text<Sum>.view() == "f64[]{planes.rows.columns: partial}");
static_assert(Plan<Sum, Total>::text() == "all_reduce(planes.rows.columns)");

template <class L>
using Field = Tensor<L, Exec, RankMesh>;
using Cells = View<f64, 3, Exec>;

struct Multiply { // to = A from
    Cells from, to;
    KOKKOS_FUNCTION void operator()(std::size_t k, std::size_t j, std::size_t i) const {
        to(k, j, i) = 6 * from(k, j, i) - from(k - 1, j, i) - from(k + 1, j, i) - from(k, j - 1, i) -
                      from(k, j + 1, i) - from(k, j, i - 1) - from(k, j, i + 1);
    }
};
struct Add { // to = a from + b to
    double a, b;
    Cells from, to;
    KOKKOS_FUNCTION void operator()(std::size_t k, std::size_t j, std::size_t i) const {
        to(k, j, i) = a * from(k, j, i) + b * to(k, j, i);
    }
};
struct RightHandSide {
    Cells f;
    std::size_t first[3], extents[3]; // global indices of the first cell, which lies behind a ghost cell
    KOKKOS_FUNCTION void operator()(std::size_t k, std::size_t j, std::size_t i) const {
        f(k, j, i) = random_at(((first[0] + k - 1) * extents[1] + first[1] + j - 1) * extents[2] + first[2] + i - 1);
    }
};
struct Product {
    Cells a, b;
    KOKKOS_FUNCTION void operator()(std::size_t k, std::size_t j, std::size_t i, double& sum) const {
        sum += a(k, j, i) * b(k, j, i);
    }
};

struct Solver {
    MeshContext<RankMesh, Exec> const& context;
    std::array<std::size_t, 3> extents;
    int degree;
    Field<Grid> u, f, r, z, p, q; // r, z, p: as in the literature; q: A times something
    int products = 0, sums = 0;   // how often each redistribution has been made

    Solver(MeshContext<RankMesh, Exec> const& where, std::array<std::size_t, 3> const& n, int d)
        : context(where), extents(n), degree(d), u(where, n), f(where, n), r(where, n), z(where, n), p(where, n),
          q(where, n) {
        for (auto const& field : {u, f, r, z, p, q}) field.clear(); // ghost cells beyond the grid stay zero
        auto const first = first_index(f);
        on_cells(RightHandSide{f.view(), {first[0], first[1], first[2]}, {n[0], n[1], n[2]}});
    }
    template <class F>
    void on_cells(F const& function) const {
        for_each_cell<3>("cells", context.exec(), owned_cells(u), function);
    }
    void multiply(Field<Grid>& from, Field<Grid> const& to) {
        ++products;
        from = fill_halo_and_compute<Filled>(std::move(from), [&](Cells const& cells, ElementBox const& box) {
                   for_each_cell<3>("multiply", context.exec(), box, Multiply{cells, to.view()});
               }).template as<Grid>();
    }
    double dot(Field<Grid> const& a, Field<Grid> const& b) {
        ++sums;
        Field<Sum> sum(context, {});
        auto const owned = owned_cells(a);
        auto const place = [](auto const& at) {
            return Kokkos::Array<std::int64_t, 3>{std::int64_t(at[0]), std::int64_t(at[1]), std::int64_t(at[2])};
        };
        Kokkos::parallel_reduce("dot",
                                Kokkos::MDRangePolicy<Exec, Kokkos::Rank<3>, Kokkos::IndexType<std::int64_t>>(
                                    context.exec(), place(owned.begin), place(owned.end)),
                                Product{a.view(), b.view()}, sum.summands());
        double value = 0;
        redistribute<Total>(std::move(sum)).get(&value);
        return value;
    }
    /// z: some Jacobi steps from zero towards A z = r.
    void precondition() {
        on_cells(Add{1.0 / 6, 0, r.view(), z.view()});
        for (int step = 0; step < degree; ++step) {
            multiply(z, q);
            on_cells(Add{-1.0 / 6, 1, q.view(), z.view()});
            on_cells(Add{1.0 / 6, 1, r.view(), z.view()});
        }
    }
    /// u where A u = f, from zero. The number of iterations after which |r| <= tolerance |f|, or `most`.
    int solve(double tolerance, int most) {
        Kokkos::deep_copy(context.exec(), r.view(), f.view());
        precondition();
        Kokkos::deep_copy(context.exec(), p.view(), z.view());
        double rz = dot(r, z);
        double const enough = tolerance * std::sqrt(dot(f, f));
        for (int iteration = 1; iteration <= most; ++iteration) {
            multiply(p, q);
            double const alpha = rz / dot(p, q);
            on_cells(Add{alpha, 1, p.view(), u.view()});
            on_cells(Add{-alpha, 1, q.view(), r.view()});
            if (std::sqrt(dot(r, r)) <= enough) return iteration;
            precondition();
            double const last = std::exchange(rz, dot(r, z));
            on_cells(Add{1, rz / last, z.view(), p.view()});
        }
        return most;
    }
};

struct Settings {
    std::string size = "48x48x48", mesh;
    int degree = 2, most = 10000;
    double tolerance = 1e-10;
    bool check = false;
};

void run(program::Ranks const& ranks, Settings const& settings) {
    auto const n = factors_of(settings.size);
    double const cells = static_cast<double>(n[0]) * static_cast<double>(n[1]) * static_cast<double>(n[2]);
    require_memory(ranks, settings.size, 48 * cells * (settings.check ? 2 + ranks.size() : 1));
    auto const m = mesh_extents(settings.mesh, 3, ranks.size());
    Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
    RankMesh const mesh(m[0], m[1], m[2]), alone(1, 1, 1);
    comm::Communicators communicators(MPI_COMM_WORLD, mesh), itself(MPI_COMM_SELF, alone);
    MeshContext const context(communicators, mesh), context_alone(itself, alone);
    prepare_redistribution<Sum, Total>(context); // its communicator, before time is taken

    Solver solver(context, {n[0], n[1], n[2]}, settings.degree);
    observe::ledger().clear();
    int iterations = 0;
    double const time = seconds([&] { iterations = solver.solve(settings.tolerance, settings.most); });
    double const sent = sum(bytes_sent());
    double const planned = sum(solver.products * planned_bytes<Grid, Filled>(context, solver.extents) +
                               solver.sums * planned_bytes<Sum, Total>(context, {}));
    solver.multiply(solver.u, solver.q); // what is left over, computed anew
    solver.on_cells(Add{1, -1, solver.f.view(), solver.q.view()});
    double const residual = std::sqrt(solver.dot(solver.q, solver.q) / solver.dot(solver.f, solver.f));
    if (ranks.is_first())
        std::printf("Poisson, %s cells on %s ranks, polynomial of degree %d\n"
                    "iterations %10d in %.4g s\nresidual   %10.3g\nsent       %10.0f bytes, planned %.0f\n",
                    settings.size.c_str(), product_text(m).c_str(), settings.degree, iterations, time, residual, sent,
                    planned);
    bool is_right = are_near(sent, planned);
    if (settings.check) {
        Solver serial(context_alone, solver.extents, settings.degree);
        int const serial_iterations = serial.solve(settings.tolerance, settings.most);
        auto const ours = gathered<Whole>(solver.u), theirs = gathered<Whole>(serial.u);
        double difference = 0, scale = 0;
        for (std::size_t i = 0; i < ours.size(); ++i) {
            difference = std::max(difference, std::abs(ours[i] - theirs[i]));
            scale = std::max(scale, std::abs(theirs[i]));
        }
        if (ranks.is_first())
            std::printf("one rank   %10d iterations, solution within %.2g\n", serial_iterations, difference / scale);
        is_right = is_right && serial_iterations == iterations && difference <= 1e-12 * scale;
    }
    ranks.on_all([&] {
        if (!is_right) throw std::runtime_error("the solution, or what was sent, is not what it should be");
        if (residual > 10 * settings.tolerance)
            throw program::OutsideFailure("--most " + std::to_string(iterations) + " iterations are not enough");
    });
}

int main(int argc, char** argv) {
    return program::run_on_ranks("conjugate_gradient", argc, argv, [&](program::Ranks const& ranks) {
        Settings settings;
        CLI::App app("Solves the three-dimensional Poisson problem.", "conjugate_gradient");
        app.add_option("--size", settings.size, "cells along z, y and x")->capture_default_str()->check(factors(3, 3));
        app.add_option("--mesh", settings.mesh, "ranks along them")->check(factors(3, 3));
        app.add_option("--degree", settings.degree, "of the preconditioner's polynomial; 0: Jacobi alone")
            ->capture_default_str()
            ->check(command_line::whole_number(0, 100));
        app.add_option("--tolerance", settings.tolerance, "of the residual, over the norm of the right-hand side")
            ->capture_default_str()
            ->check(CLI::Range(1e-14, 1.0));
        app.add_option("--most", settings.most, "iterations at most")
            ->capture_default_str()
            ->check(command_line::whole_number(1, 1000000));
        app.add_flag("--check", settings.check, "compare with the same on one rank");
        if (parse(app, argc, argv, ranks)) run(ranks, settings);
        return program::done;
    });
}
