// The heat or the wave equation on a grid that ranks share out, in two or three dimensions, by central differences over
// one or two neighbours on each side. Cells that need no neighbour's are updated while ghost cells are filled.
//
//     mpiexec -n 6 stencil --equation wave --size 30x31x17 --width 2 --ends periodic --check
#include "equation.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using RankMesh = Mesh<Axis<planes>, Axis<rows>, Axis<columns>>; // of one plane in two dimensions
enum Exchange { overlapped, before, none };                     // of ghost cells, and the update

template <std::size_t Rank, std::size_t Width, Boundary Ends>
struct Simulation {
    using Filled = typename Grid<Rank, Width, Ends>::type;
    using Stale = stale_t<Filled>;
    using Cells = View<f64, static_cast<int>(Rank), Exec>;

    MeshContext<RankMesh, Exec> const& context;
    bool is_wave;
    Tensor<Stale, Exec, RankMesh> now, next;
    Mode<Rank, Width, Ends> mode;
    double speed = 0.25 / Rank, amplitude = 1, last_amplitude = 1; ///< of the mode, which begins at rest

    Simulation(MeshContext<RankMesh, Exec> const& where, std::array<std::size_t, Rank> const& extents, bool wave)
        : context(where), is_wave(wave), now(where, extents), next(where, extents), mode(now) {
        for (auto const& cells : {now, next}) {
            cells.clear(); // zeros beyond open ends
            for_each_cell<Rank>("start", context.exec(), owned_cells(cells), Start{cells.view(), mode});
        }
    }
    void step(Exchange exchange) {
        auto const update = [&](Cells const& cells, ElementBox const& box) {
            for_each_cell<Rank>("update", context.exec(), box, Update<Rank, Width>{cells, next.view(), is_wave, speed});
        };
        if (exchange == overlapped) {
            now = fill_halo_and_compute<Filled>(std::move(now), update).template as<Stale>();
        } else {
            if (exchange == before) now = redistribute<Filled>(std::move(now)).template as<Stale>();
            update(now.view(), owned_cells(now));
        }
        std::swap(now, next);
        last_amplitude = std::exchange(amplitude, (is_wave ? 2 * amplitude - last_amplitude : amplitude) +
                                                      speed * mode.eigenvalue * amplitude);
    }
    /// How far this rank's cells are from the mode.
    [[nodiscard]] double error() const {
        Kokkos::View<double, Exec> const largest("largest error");
        for_each_cell<Rank>("error", context.exec(), owned_cells(now), Error{now.view(), mode, amplitude, largest});
        return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), largest)();
    }

    struct Start {
        Cells cells;
        Mode<Rank, Width, Ends> mode;
        template <class... I>
        KOKKOS_FUNCTION void operator()(I... i) const {
            cells(i...) = mode.at(i...);
        }
    };
    struct Error {
        Cells cells;
        Mode<Rank, Width, Ends> mode;
        double amplitude;
        Kokkos::View<double, Exec> largest;
        template <class... I>
        KOKKOS_FUNCTION void operator()(I... i) const {
            Kokkos::atomic_max(&largest(), Kokkos::abs(cells(i...) - amplitude * mode.at(i...)));
        }
    };
};

struct Settings {
    std::string equation = "heat", size = "256x256", mesh, ends = "open", overlap = "on";
    std::size_t width = 1;
    int steps = 100;
    bool check = false;
};

template <std::size_t Rank, std::size_t Width, Boundary Ends>
void run(program::Ranks const& ranks, Settings const& settings) {
    using OfThis = Simulation<Rank, Width, Ends>;
    auto const n = factors_of(settings.size);
    std::array<std::size_t, Rank> extents;
    double cells = 1;
    for (std::size_t d = 0; d < Rank; ++d) cells *= static_cast<double>(extents[d] = n[d]);
    require_memory(ranks, settings.size, 16 * cells * (settings.check ? 2 * ranks.size() : 1));
    auto m = mesh_extents(settings.mesh, Rank, ranks.size());
    auto const mesh_text = product_text(m);
    if (Rank == 2) m.insert(m.begin(), 1);
    RankMesh const mesh(m[0], m[1], m[2]), alone(1, 1, 1);
    comm::Communicators communicators(MPI_COMM_WORLD, mesh), itself(MPI_COMM_SELF, alone);
    MeshContext const context(communicators, mesh), context_alone(itself, alone);
    bool const is_wave = settings.equation == "wave";
    std::optional<OfThis> simulation;
    ranks.on_all([&] { simulation.emplace(context, extents, is_wave); }); // extents may be too small for the halo
    auto const time = [&](Exchange exchange) {
        return seconds([&] {
            for (int step = 0; step < settings.steps; ++step) simulation->step(exchange);
            context.exec().fence();
        });
    };
    auto const chosen = settings.overlap == "on" ? overlapped : before;
    double const taken = time(chosen), error = largest(simulation->error());
    if (ranks.is_first()) {
        std::printf("%s equation, %s cells on %s ranks, width %zu, %s ends\n", settings.equation.c_str(),
                    settings.size.c_str(), mesh_text.c_str(), Width, settings.ends.c_str());
        std::printf("updates  %10.4g cells a second\n", cells * settings.steps / taken);
        if (simulation->mode.is_exact) std::printf("error    %10.2g\n", error);
    }
    bool is_right = !simulation->mode.is_exact || error < 1e-10;
    if (settings.check) {
        OfThis serial(context_alone, extents, is_wave);
        for (int step = 0; step < settings.steps; ++step) serial.step(before);
        using Whole = whole_t<without_halo_t<typename OfThis::Filled>>;
        auto const ours = gathered<Whole>(simulation->now), theirs = gathered<Whole>(serial.now);
        bool const is_same = std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(double)) == 0;
        if (ranks.is_first())
            std::printf("check    %s\n", is_same ? "the bits of one rank" : "other bits than one rank");
        is_right = is_right && is_same;
    }
    std::array<double, 3> times;
    times.fill(std::numeric_limits<double>::max());
    for (int round = 0; round < 3; ++round)
        for (auto const exchange : {overlapped, before, none})
            times[exchange] = std::min(times[exchange], time(exchange));
    double const exchange = times[before] - times[none], hidden = times[before] - times[overlapped];
    double const in_ms = 1e3 / settings.steps;
    if (ranks.is_first())
        std::printf(
            "steps    %10.4g ms with overlap, %.4g ms without, %.4g ms without exchange: %.0f %% of it is hidden\n",
            in_ms * times[overlapped], in_ms * times[before], in_ms * times[none],
            exchange > 0 ? 100 * std::clamp(hidden / exchange, 0.0, 1.0) : 0);
    ranks.on_all([&] {
        if (!is_right) throw std::runtime_error("the cells are not what they should be");
    });
}

int main(int argc, char** argv) {
    return program::run_on_ranks("stencil", argc, argv, [&](program::Ranks const& ranks) {
        Settings settings;
        CLI::App app("Computes the heat or the wave equation on a grid.", "stencil");
        app.add_option("--equation", settings.equation, "heat or wave")
            ->capture_default_str()
            ->check(CLI::IsMember({"heat", "wave"}));
        app.add_option("--size", settings.size, "cells along y and x, or z, y and x")
            ->capture_default_str()
            ->check(factors(2, 3));
        app.add_option("--mesh", settings.mesh, "ranks along them")->check(factors(2, 3));
        app.add_option("--width", settings.width, "neighbours on each side, 1 or 2")
            ->capture_default_str()
            ->check(command_line::whole_number(1, 2));
        app.add_option("--ends", settings.ends, "open or periodic")
            ->capture_default_str()
            ->check(CLI::IsMember({"open", "periodic"}));
        app.add_option("--overlap", settings.overlap, "on or off")
            ->capture_default_str()
            ->check(CLI::IsMember({"on", "off"}));
        app.add_option("--steps", settings.steps, "steps")
            ->capture_default_str()
            ->check(command_line::whole_number(1, 1000000));
        app.add_flag("--check", settings.check, "compare with the same on one rank, bit for bit");
        if (!parse(app, argc, argv, ranks)) return program::done;

        Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
        auto const with_ends = [&]<std::size_t Rank, std::size_t Width>() {
            if (settings.ends == "open")
                run<Rank, Width, Boundary::open>(ranks, settings);
            else
                run<Rank, Width, Boundary::periodic>(ranks, settings);
        };
        bool const is_flat = factors_of(settings.size).size() == 2;
        if (settings.width == 1)
            is_flat ? with_ends.template operator()<2, 1>() : with_ends.template operator()<3, 1>();
        else
            is_flat ? with_ends.template operator()<2, 2>() : with_ends.template operator()<3, 2>();
        return program::done;
    });
}
