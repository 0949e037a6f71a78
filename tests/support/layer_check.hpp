// A layer against arrays that say what it should compute (made by PyTorch, or by the layer on one rank) and against
// finite differences: on any mesh, each rank with its shard.
#pragma once

#include <pentad/io/safetensors.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/random/philox.hpp>
#include <pentad/train/detail/totals.hpp>

#include <support/first_rank.hpp>
#include <support/on_mesh.hpp>
#include <support/parameters.hpp>

#include <array>
#include <deque>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace support {

/// Whole tensors by name. A layer's input, output and their gradients are x, y, dx, dy; parameters keep their names,
/// and their gradients have a d before it.
using Arrays = std::map<std::string, Whole, std::less<>>;

/// A file of tests/reference/golden. Integers become numbers like all others.
inline Arrays golden(std::string const& name) {
    io::SafetensorsReader const file(std::filesystem::path(PENTAD_GOLDEN_DIR) / (name + ".safetensors"));
    Arrays arrays;
    for (auto const& entry : file.tensors()) {
        auto& whole = arrays[entry.name];
        whole.extents.assign(entry.shape.begin(), entry.shape.end());
        if (entry.type == "F64") {
            whole.values = file.read<double>(entry.name);
        } else {
            auto const integers = file.read<std::int64_t>(entry.name);
            whole.values.assign(integers.begin(), integers.end());
        }
    }
    return arrays;
}

/// Normal numbers, the same on every rank.
inline Whole drawn(std::vector<std::size_t> extents, std::string_view name) {
    Whole whole{std::move(extents), {}};
    std::size_t size = 1;
    for (auto const extent : whole.extents) size *= extent;
    for (std::size_t i = 0; i < size; ++i) whole.values.push_back(random::normal(7, random::stream(name), i));
    return whole;
}

/// Memory for the parameters of a layer: their values from source(name), their gradients zero.
template <class T>
class Parameters {
  public:
    template <class Model, class Source>
    Parameters(Model& model, Source&& source) {
        model.for_each_parameter([&](auto& parameter) {
            auto const& value = values_.emplace_back("value", parameter.size());
            auto const& gradient = gradients_.emplace_back("gradient", parameter.size());
            parameter.place_value(value.data());
            parameter.place_gradient(gradient.data());
            fill(parameter, source(parameter.name()));
        });
    }
    void clear_gradients() const {
        for (auto const& gradient : gradients_) Kokkos::deep_copy(gradient, accumulator_t<T>(0));
    }

  private:
    std::deque<Kokkos::View<T*, typename Exec::memory_space>> values_;
    std::deque<Kokkos::View<accumulator_t<T>*, typename Exec::memory_space>> gradients_;
};

/// Holds `gradient` against differences of the objective along a random direction from `start`; set(whole) moves there.
/// f64.
template <class Set, class Objective>
void check_differences(std::string const& what, Whole const& start, Whole const& gradient, Set&& set,
                       Objective&& objective) {
    Whole const direction = drawn(start.extents, "direction of " + what);
    auto const at = [&](double step) {
        Whole moved = start;
        for (std::size_t i = 0; i < moved.values.size(); ++i) moved.values[i] += step * direction.values[i];
        set(moved);
        return objective();
    };
    double const h = 5e-5; // of fourth order: what is cut off is h^4 of the fifth derivative
    double const slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    set(start);
    double const exact = dot(gradient, direction);
    CHECK_MESSAGE(std::abs(slope - exact) <= 1e-8 * std::max(1.0, std::abs(exact)), what, ": the slope is ", slope,
                  " and the gradient says ", exact);
}

/// What a layer computes, on whole arrays. `pass` carries the coefficients of the auxiliary losses.
template <class Layer>
struct Trial {
    using T = typename Layer::input_layout::element;

    OnMesh const& mesh;
    Dealing order;
    Layer layer;
    Arrays const& arrays;
    Pass<Exec> pass;
    Parameters<T> parameters{layer, [this](std::string const& name) { return arrays.at(name); }};
    typename Layer::Saved saved{};

    /// The output, and the auxiliary losses in pass.
    auto forward(Tensor<typename Layer::input_layout, Exec> const& x) {
        pass.balance_sum = pass.z_sum = 0;
        return layer.forward(pass, x, saved);
    }
    /// The auxiliary losses of the pass, for balance and z.
    [[nodiscard]] std::array<double, 2> auxiliary() const {
        std::array<double, 2> losses{pass.balance_sum, pass.z_sum};
        train::total_over_mesh(mesh.context, Placement::partial, std::span(losses));
        return losses;
    }
    /// <y, dy> + the auxiliary losses times their coefficients: what the backward pass is the gradient of.
    double objective(Tensor<typename Layer::input_layout, Exec> const& x) {
        double const inner = dot(gather(forward(x), order), arrays.at("dy"));
        saved = {};
        auto const losses = auxiliary();
        return inner + pass.balance_scale * losses[0] + pass.z_scale * losses[1];
    }

    void check(double tolerance) {
        INFO(mesh.shape.text(), std::string(order.order == Order::zigzag ? ", zigzag, " : ", "),
             layout_text<typename Layer::input_layout>.view());
        auto const x = shard<typename Layer::input_layout>(mesh, arrays.at("x"), order);
        bool const differences = mesh.shape.ranks() <= 2; // on larger meshes the gradients equal those that passed here
        // Twice: gradients are added to, and what was saved for one pass is no burden to the next.
        for (int round = 0; round < 2; ++round) {
            auto const y = forward(x);
            CHECK_MESSAGE(distance(y, arrays.at("y"), order) < tolerance, "y");
            auto const dy = shard<dual_t<typename Layer::output_layout>>(mesh, arrays.at("dy"), order);
            auto const dx = layer.backward_data(pass, dy, saved);
            CHECK_MESSAGE(distance(dx, arrays.at("dx"), order) < tolerance, "dx");
            layer.backward_weight(pass, saved);
            if (round == 0 && differences)
                check_differences(
                    "x", gather(x, order), gather(dx, order), [&](Whole const& at) { fill(x, at, order); },
                    [&] { return objective(x); });
        }
        layer.for_each_parameter([&](auto const& parameter) {
            auto const gradient = reduced_gradient(parameter);
            Whole twice = arrays.at("d" + parameter.name());
            for (auto& value : twice.values) value *= 2;
            CHECK_MESSAGE(distance(gradient, twice) < tolerance, "the gradient of ", parameter.name());
            if (differences && !parameter.own_optimizer()) // what those have is no gradient
                check_differences(
                    parameter.name() + ", twice", gather(parameter), gradient,
                    [&](Whole const& at) { fill(parameter, at); }, [&] { return 2 * objective(x); });
        });
    }
};

/// make(setup) gives the layer; the rest of `setup` beside its context is used as it is.
template <class Make>
void check_layer(OnMesh const& mesh, LayerSetup<Exec> const& setup, Make&& make, Arrays const& arrays,
                 double tolerance = 1e-12, double balance_scale = 0, double z_scale = 0,
                 SequenceMap<Exec> const* map = nullptr) {
    using Layer = std::remove_cvref_t<decltype(make(setup))>;
    Trial<Layer> trial{
        .mesh = mesh,
        .order = {setup.block.order(), setup.block.context},
        .layer = make(setup),
        .arrays = arrays,
        .pass = {.context = mesh.context, .balance_scale = balance_scale, .z_scale = z_scale, .map = map}};
    trial.check(tolerance);
}

/// What the layer makes of x, dy and its parameters on one rank: y, dx and the parameters' gradients are added.
/// @param map of all sequences on one rank
template <class Make>
Arrays on_one_rank(LayerSetup<Exec> const& setup, Make&& make, Arrays const& arrays,
                   SequenceMap<Exec> const* map = nullptr, double balance_scale = 0, double z_scale = 0) {
    return on_first_rank([&] {
        using Layer = std::remove_cvref_t<decltype(make(setup))>;
        Alone const alone;
        LayerSetup<Exec> const own{.context = alone.context,
                                   .hidden = setup.hidden,
                                   .norm_epsilon = setup.norm_epsilon,
                                   .batch = setup.batch,
                                   .seq = setup.seq,
                                   .block = {.context = setup.block.context, .zigzag = setup.block.zigzag}};
        Trial<Layer> trial{
            .mesh = alone,
            .order = Order::contiguous,
            .layer = make(own),
            .arrays = arrays,
            .pass = {.context = alone.context, .balance_scale = balance_scale, .z_scale = z_scale, .map = map}};
        auto const y = trial.forward(shard<typename Layer::input_layout>(alone, arrays.at("x"), trial.order));
        auto const dy = shard<dual_t<typename Layer::output_layout>>(alone, arrays.at("dy"), trial.order);
        auto const dx = trial.layer.backward_data(trial.pass, dy, trial.saved);
        trial.layer.backward_weight(trial.pass, trial.saved);
        Arrays result = arrays;
        result["y"] = gather(y, trial.order);
        result["dx"] = gather(dx, trial.order);
        trial.layer.for_each_parameter(
            [&](auto const& parameter) { result["d" + parameter.name()] = reduced_gradient(parameter); });
        return result;
    });
}

} // namespace support
