// Linear maps of tensor parallelism on a grid: each is a product of distributed matrices (product/), so what moves
// follows from the layouts of x, of the weight and of y. No rank holds a whole row of a weight or of an activation.
#pragma once

#include <pentad/kernels/bias.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/linear.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/product/multiply.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

namespace pentad {

namespace detail {

struct FeaturesIn {
    static constexpr std::string_view name = "in";
};
struct FeaturesOut {
    static constexpr std::string_view name = "out";
};

/// The axes of a set that are tp or parts of it, as a dimension that they shard.
template <class Name, class Set>
struct GridDimension;
template <class Name, class... Axes>
struct GridDimension<Name, AxisSet<Axes...>> {
    using set = typename Joined<
        std::conditional_t<std::is_same_v<whole_axis_t<Axes>, ml::tp>, AxisSet<Axes>, AxisSet<>>...>::type;
    using type = typename WithAxes<Dim<Name>, set>::type;
};

/// A tensor [rows..., columns...], of which the last `Columns` dimensions are the columns, as a matrix that tp shards.
template <class L, std::size_t Columns, class RowName, class ColumnName>
struct GridMatrix {
    using split = SplitAt<L::rank - Columns, DimList<>, typename LayoutDims<L>::type>;
    /// Only the first dimension of either is sharded over tp, so that a shard is a block of the matrix.
    static constexpr bool is_block = [] {
        for (std::size_t d = 0; d < L::rank; ++d)
            for (auto const axis : L::value.dimensions[d].axes)
                if (whole_axis_name(axis) == ml::tp::name && d != 0 && d != L::rank - Columns) return false;
        return true;
    }();
    static_assert(is_block, "pentad: tp shards a dimension of a map that is not its first");
    using rows = typename GridDimension<RowName, typename DimListAxes<typename split::head>::type>::type;
    using columns = typename GridDimension<ColumnName, typename DimListAxes<typename split::tail>::type>::type;
    using type = Layout<typename L::element, Dims<rows, columns>>;
};

/// A rank's block as the tensor of the whole matrix, which the ranks of tp share.
template <class L, class Exec>
Tensor<L, Exec> as_grid_matrix(Context<Exec> const& context, View<typename L::element, 2, Exec> const& block,
                               memory::Buffer<typename Exec::memory_space> const& memory = {}) {
    auto const mesh = context.communicators().mesh();
    return Tensor<L, Exec>::unchecked(context,
                                      {block.extent(0) * ranks_along(mesh, L::value.dimensions[0].axes),
                                       block.extent(1) * ranks_along(mesh, L::value.dimensions[1].axes)},
                                      memory, block.data());
}

} // namespace detail

/// y = x W^T on a grid, for x, W and y of the given layouts. @tparam Out dimensions of the output, the first of W
template <class X, class W, std::size_t Out, class Y, class Exec>
class GridMap : public LinearMap<X, W, Out, Y, Exec> {
    using Map = LinearMap<X, W, Out, Y, Exec>;
    using InputMatrix = detail::GridMatrix<X, Map::in_dimensions, ml::token, detail::FeaturesIn>;
    using OutputMatrix = detail::GridMatrix<Y, Out, ml::token, detail::FeaturesOut>;
    using WeightMatrix = detail::GridMatrix<W, Map::in_dimensions, detail::FeaturesOut, detail::FeaturesIn>;
    using synchronised =
        typename detail::GridDimension<ml::token, replicated_axes_t<typename Map::parameter_type::used>>::set;

  public:
    using Map::Map;
    using Inputs = typename InputMatrix::type;
    using Outputs = typename OutputMatrix::type;
    using Weights = typename WeightMatrix::type;
    /// The gradient, partial over the axes of the grid along which the same weights are used for other tokens.
    using Gradient = typename detail::AddState<synchronised, Partial, accumulator_t<typename X::element>,
                                               Dims<typename WeightMatrix::rows, typename WeightMatrix::columns>>::type;
    static_assert(std::is_same_v<dual_t<X>, X> && std::is_same_v<dual_t<Y>, Y>,
                  "pentad: the activations of a map on a grid are sharded or invariant");

    static Tensor<Inputs, Exec> inputs(Tensor<X, Exec> const& x) {
        return detail::as_grid_matrix<Inputs>(x.context(), x.template rows<Map::in_dimensions>(), x.block());
    }
    static Tensor<Outputs, Exec> outputs(Tensor<Y, Exec> const& y) {
        return detail::as_grid_matrix<Outputs>(y.context(), y.template rows<Out>(), y.block());
    }
};

/// y_i = x W_i^T for several maps of one input. The weights are multiplied as one, so that x moves once.
template <class Map, class... Maps>
class GridProjection {
    static_assert((std::is_same_v<typename Map::Outputs, typename Maps::Outputs> && ...) &&
                      (std::is_same_v<typename Map::Weights, typename Maps::Weights> && ...),
                  "pentad: maps of one input on a grid are sharded alike");

  public:
    using Exec = typename Map::execution_space;
    using X = typename Map::input_layout;
    using T = typename X::element;
    using A = accumulator_t<T>;
    using input_layout = X;
    using map_type = Map;
    using Products =
        std::tuple<Tensor<typename Map::output_layout, Exec>, Tensor<typename Maps::output_layout, Exec>...>;

    struct Saved {
        Tensor<X, Exec> x;
        Tensor<typename Map::Outputs, Exec> dy;
    };

    explicit GridProjection(Map map, Maps... maps) : maps_(std::move(map), std::move(maps)...) {}

    Products forward(Tensor<X, Exec> x, Saved& saved) const {
        auto const& context = x.context();
        saved.x = std::move(x);
        auto const all = multiply<typename Map::Outputs>(Map::inputs(saved.x), weights(context));
        Products y;
        for_each([&]<std::size_t I>(std::size_t first, std::size_t outputs) {
            using Y = std::tuple_element_t<I, Products>;
            auto const extents = std::get<I>(maps_).extents(saved.x.extents());
            if constexpr (is_one) {
                std::get<I>(y) = Y::unchecked(context, extents, all.block(), all.array_data());
            } else {
                std::get<I>(y) = Y(context, extents);
                auto const to = rows(std::get<I>(y));
                detail::copy_rows(context.exec(), all.data() + first, all.local()[1], to.data(), outputs, to.extent(0),
                                  outputs);
            }
            auto const& bias = std::get<I>(maps_).bias();
            if (bias.exists()) kernels::add_bias<T>(context.exec(), bias.value().flat(), rows(std::get<I>(y)));
        });
        return y;
    }
    Tensor<X, Exec> backward_data(Tensor<typename Map::output_layout, Exec> dy,
                                  Tensor<typename Maps::output_layout, Exec>... more, Saved& saved) const {
        auto const& context = dy.context();
        auto const gradients = std::tuple(std::move(dy), std::move(more)...);
        if constexpr (is_one) {
            saved.dy = Map::outputs(std::get<0>(gradients));
        } else {
            auto const mesh = context.communicators().mesh();
            saved.dy = {context,
                        {Map::inputs(saved.x).extents()[0],
                         outputs() * ranks_along(mesh, Map::Outputs::value.dimensions[1].axes)}};
            for_each([&]<std::size_t I>(std::size_t first, std::size_t count) {
                auto const from = rows(std::get<I>(gradients));
                detail::copy_rows(context.exec(), from.data(), count, saved.dy.data() + first, saved.dy.local()[1],
                                  from.extent(0), count);
            });
        }
        auto const dx = multiply<typename Map::Inputs>(saved.dy, weights(context));
        return Tensor<X, Exec>::unchecked(context, saved.x.extents(), dx.block(), dx.array_data());
    }
    /// Frees x, of which backward_data needs the extents.
    static void drop_input(Saved& saved) {
        saved.x = Tensor<X, Exec>::without_memory(saved.x.context(), saved.x.extents());
    }
    static void restore_input(Tensor<X, Exec> x, Saved& saved) { saved.x = std::move(x); }
    static Tensor<X, Exec> const& input(Saved const& saved) { return saved.x; }
    void backward_weight(Saved& saved) const {
        auto const& context = saved.x.context();
        auto const& exec = context.exec();
        if constexpr (is_one) {
            auto const& map = std::get<0>(maps_);
            multiply_into(detail::as_grid_matrix<typename Map::Gradient>(context, map.gradient_matrix()), saved.dy,
                          Map::inputs(saved.x));
        } else {
            auto const all = multiply<typename Map::Gradient>(saved.dy, Map::inputs(saved.x));
            for_each([&]<std::size_t I>(std::size_t first, std::size_t) {
                auto const gradient = std::get<I>(maps_).weight().gradient().array_flat();
                kernels::add<A>(exec,
                                View<A const, 1, Exec>(all.array_data() + first * all.local()[1], gradient.extent(0)),
                                gradient);
            });
        }
        for_each([&]<std::size_t I>(std::size_t first, std::size_t count) {
            auto const& bias = std::get<I>(maps_).bias();
            if (bias.exists())
                kernels::add_bias_gradient<T>(exec, kernels::columns(saved.dy.view(), first, first + count),
                                              bias.gradient().array_flat());
        });
        saved = {};
    }
    template <class F>
    void for_each_parameter(F&& f) {
        std::apply([&f](auto&... maps) { (maps.for_each_parameter(f), ...); }, maps_);
    }

  private:
    static constexpr bool is_one = sizeof...(Maps) == 0;

    /// f for each map: its index; where its outputs begin among those of this rank, and how many there are.
    template <class F>
    void for_each(F&& f) const {
        std::size_t first = 0;
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (
                [&] {
                    std::size_t const count = std::get<I>(maps_).matrix().extent(0);
                    f.template operator()<I>(first, count);
                    first += count;
                }(),
                ...);
        }(std::make_index_sequence<1 + sizeof...(Maps)>{});
    }
    [[nodiscard]] std::size_t outputs() const {
        std::size_t all = 0;
        for_each([&]<std::size_t>(std::size_t, std::size_t count) { all += count; });
        return all;
    }
    template <class L>
    static View<T, 2, Exec> rows(Tensor<L, Exec> const& y) {
        return y.template rows<Map::out_dimensions>();
    }
    /// The weights of all maps, one below the other.
    [[nodiscard]] Tensor<typename Map::Weights, Exec> weights(Context<Exec> const& context) const {
        if constexpr (is_one) {
            return detail::as_grid_matrix<typename Map::Weights>(context, std::get<0>(maps_).matrix());
        } else {
            std::size_t const columns = std::get<0>(maps_).matrix().extent(1), count = outputs();
            auto const memory = context.take(count * columns * sizeof(T));
            View<T, 2, Exec> const all(static_cast<T*>(memory.data()), count, columns);
            for_each([&]<std::size_t I>(std::size_t first, std::size_t) {
                auto const matrix = std::get<I>(maps_).matrix();
                memory::copy(context.exec(), all.data() + first * columns, matrix.data(), matrix.size() * sizeof(T));
            });
            return detail::as_grid_matrix<typename Map::Weights>(context, all, memory);
        }
    }
    std::tuple<Map, Maps...> maps_;
};

/// The projection of the one map that makes the output of a layer.
template <class Map>
class GridOutput {
    using Projection = GridProjection<Map>;

  public:
    using Exec = typename Map::execution_space;
    using input_layout = typename Map::input_layout;
    using output_layout = typename Map::output_layout;
    using map_type = Map;
    using Saved = typename Projection::Saved;

    explicit GridOutput(Map map) : projection_(std::move(map)) {}

    Tensor<output_layout, Exec> forward(Tensor<input_layout, Exec> x, Saved& saved) const {
        return std::get<0>(projection_.forward(std::move(x), saved));
    }
    Tensor<input_layout, Exec> backward_data(Tensor<output_layout, Exec> dy, Saved& saved) const {
        return projection_.backward_data(std::move(dy), saved);
    }
    void backward_weight(Saved& saved) const { projection_.backward_weight(saved); }
    static void drop_input(Saved& saved) { Projection::drop_input(saved); }
    static void restore_input(Tensor<input_layout, Exec> x, Saved& saved) {
        Projection::restore_input(std::move(x), saved);
    }
    static Tensor<input_layout, Exec> const& input(Saved const& saved) { return Projection::input(saved); }
    template <class F>
    void for_each_parameter(F&& f) {
        projection_.for_each_parameter(f);
    }

  private:
    Projection projection_;
};

} // namespace pentad
