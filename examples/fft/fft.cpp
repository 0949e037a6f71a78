// Transforms a field that ranks share out forward and backward, and checks what comes out: beside FFTW alone where the
// field is small, and by a plane wave where it is not. The transform is in transform.hpp.
//
//     mpiexec -n 6 fft --size 30x31x17 --decomposition pencils --mesh 2x3 --field real
#include "transform.hpp"

#include <cmath>
#include <cstdio>
#include <numbers>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

/// The field: a plane wave exp(2 pi i k x / n), its real part where T is real, or where it is small numbers at random.
template <class T>
struct Source {
    Extents extents;
    bool is_small = elements() <= 1 << 20; ///< then FFTW alone transforms all of it too
    std::vector<Complex> spectrum = {};

    static constexpr bool is_real = std::is_same_v<T, double>;
    static constexpr Extents k{1, 2, 3};
    [[nodiscard]] double elements() const {
        return static_cast<double>(extents[0]) * static_cast<double>(extents[1]) * static_cast<double>(extents[2]);
    }
    [[nodiscard]] T at(std::size_t i, std::size_t j, std::size_t l) const {
        std::size_t const place = (i * extents[1] + j) * extents[2] + l;
        Complex value(random_at(2 * place), random_at(2 * place + 1));
        if (!is_small) {
            double turns = 0;
            for (auto const& [index, d] : {std::pair(i, 0), {j, 1}, {l, 2}})
                turns += static_cast<double>(k[d] * index % extents[d]) / static_cast<double>(extents[d]);
            value = std::polar(1.0, 2 * std::numbers::pi * turns);
        }
        if constexpr (is_real)
            return value.real();
        else
            return value;
    }
    void transform() {
        if (!is_small) return;
        for (std::size_t i = 0; i < extents[0]; ++i)
            for (std::size_t j = 0; j < extents[1]; ++j)
                for (std::size_t l = 0; l < extents[2]; ++l) spectrum.push_back(at(i, j, l));
        auto const n = [&](int d) { return static_cast<int>(extents[d]); };
        auto* const plan =
            fftw_plan_dft_3d(n(0), n(1), n(2), raw(spectrum.data()), raw(spectrum.data()), FFTW_FORWARD, FFTW_ESTIMATE);
        fftw_execute(plan);
        fftw_destroy_plan(plan);
    }
    /// What an element of the spectrum should be.
    [[nodiscard]] Complex spectrum_at(std::size_t i, std::size_t j, std::size_t l) const {
        if (is_small) return spectrum[(i * extents[1] + j) * extents[2] + l];
        bool is_wave = true, is_conjugate = is_real;
        for (auto const& [index, d] : {std::pair(i, 0), {j, 1}, {l, 2}}) {
            is_wave = is_wave && index == k[d] % extents[d];
            is_conjugate = is_conjugate && (index + k[d]) % extents[d] == 0;
        }
        return elements() * (is_real ? 0.5 : 1.0) * (is_wave + is_conjugate);
    }
};

/// f(element, i, j, l) for all elements of this rank, with their global indices.
template <class L, class F>
void for_each(Field<L> const& field, F const& f) {
    auto const [first_i, first_j, first_l] = first_index(field);
    auto const view = field.view();
    for (std::size_t i = 0; i < view.extent(0); ++i)
        for (std::size_t j = 0; j < view.extent(1); ++j)
            for (std::size_t l = 0; l < view.extent(2); ++l) f(view(i, j, l), first_i + i, first_j + j, first_l + l);
}

struct Settings {
    std::string size = "64x64x64", mesh, decomposition = "pencils", field = "complex";
    int repeats = 5;
};

template <class D, class T>
void run(program::Ranks const& ranks, Settings const& settings, Extents const& extents, RankMesh const& mesh) {
    comm::Communicators communicators(MPI_COMM_WORLD, mesh);
    MeshContext const context(communicators, mesh, Exec());
    Transform<D, T> const fft(context, extents);
    using FieldT = Field<typename Transform<D, T>::X>;
    using Spectrum = Field<typename Transform<D, T>::SpectrumZ>;
    Source<T> source{extents};
    source.transform();
    double const n = source.elements();

    FieldT field(context, extents);
    for_each(field, [&](T& element, auto... at) { element = source.at(at...); });
    Spectrum spectrum;
    std::vector<double> forward, backward;
    double largest_element = 0, spectrum_error = 0, field_error = 0;
    for (int repeat = -1; repeat < settings.repeats; ++repeat) { // the first one warms up
        observe::ledger().clear();
        forward.push_back(seconds([&] { spectrum = fft.forward(std::move(field)); }));
        if (repeat < 0)
            for_each(spectrum, [&](Complex const& element, auto... at) {
                largest_element = std::max(largest_element, std::abs(element));
                spectrum_error = std::max(spectrum_error, std::abs(element - source.spectrum_at(at...)));
            });
        backward.push_back(seconds([&] { field = fft.backward(std::move(spectrum)); }));
        for (std::size_t i = 0; i < field.size(); ++i) field.data()[i] /= n;
    }
    for_each(field, [&](T const& element, auto... at) {
        field_error = std::max(field_error, std::abs(element - source.at(at...)));
    });
    double const sent = sum(bytes_sent()), planned = sum(fft.planned());
    spectrum_error = largest(spectrum_error) / largest(largest_element);
    field_error = largest(field_error);

    auto const print = [&](char const* name, std::vector<double>& times) {
        std::sort(times.begin(), times.end());
        double const time = times[times.size() / 2]; // 5 n log2 n operations, half as many for a real field
        double const flops = (std::is_same_v<T, double> ? 2.5 : 5.0) * n * std::log2(n);
        std::printf("%-9s %10.3f ms %8.2f GFLOP/s\n", name, 1e3 * time, 1e-9 * flops / time);
    };
    if (ranks.is_first()) {
        std::printf("FFT of a %s field of %s on %s ranks, %s\n", settings.field.c_str(), settings.size.c_str(),
                    settings.mesh.c_str(), settings.decomposition.c_str());
        print("forward", forward);
        print("backward", backward);
        std::printf("sent      %10.0f bytes by all ranks in both, planned %.0f\n", sent, planned);
        std::printf("error     %10.2g of the spectrum's largest element (%s), %.2g of the field after both\n",
                    spectrum_error, source.is_small ? "beside FFTW alone" : "of a plane wave", field_error);
    }
    ranks.on_all([&] {
        if (!(spectrum_error < 1e-12 && field_error < 1e-12 && are_near(sent, planned)))
            throw std::runtime_error("the transform is wrong, or sends what its plans do not");
    });
}

int main(int argc, char** argv) {
    return program::run_on_ranks("fft", argc, argv, [&](program::Ranks const& ranks) {
        Settings settings;
        CLI::App app("Transforms a three-dimensional field forward and backward.", "fft");
        app.add_option("--size", settings.size, "extents z, y and x")->capture_default_str()->check(factors(3, 3));
        app.add_option("--mesh", settings.mesh, "ranks along rows and columns")->check(factors(2, 2));
        app.add_option("--decomposition", settings.decomposition, "slabs or pencils")
            ->capture_default_str()
            ->check(CLI::IsMember({"slabs", "pencils"}));
        app.add_option("--field", settings.field, "real or complex")
            ->capture_default_str()
            ->check(CLI::IsMember({"real", "complex"}));
        app.add_option("--repeats", settings.repeats, "timed transforms, of which the median counts")
            ->capture_default_str()
            ->check(command_line::whole_number(1, 1000));
        if (!parse(app, argc, argv, ranks)) return program::done;

        bool const slabs = settings.decomposition == "slabs";
        if (slabs && settings.mesh.empty()) settings.mesh = std::to_string(ranks.size()) + "x1";
        auto const mesh = mesh_extents(settings.mesh, 2, ranks.size());
        if (slabs && mesh[1] != 1)
            throw program::BadInput("slabs lie along one axis: --mesh " + std::to_string(ranks.size()) +
                                    "x1, or pencils");
        settings.mesh = product_text(mesh);
        auto const n = factors_of(settings.size);
        require_memory(ranks, settings.size,
                       64.0 * static_cast<double>(n[0]) * static_cast<double>(n[1]) * static_cast<double>(n[2]));

        Kokkos::ScopeGuard const kokkos(comm::kokkos_settings());
        auto const run_as = [&]<class D, class T>() {
            run<D, T>(ranks, settings, {n[0], n[1], n[2]}, RankMesh(mesh[0], mesh[1]));
        };
        bool const is_real = settings.field == "real";
        if (slabs)
            is_real ? run_as.template operator()<Slabs, f64>() : run_as.template operator()<Slabs, Complex>();
        else
            is_real ? run_as.template operator()<Pencils, f64>() : run_as.template operator()<Pencils, Complex>();
        return program::done;
    });
}
