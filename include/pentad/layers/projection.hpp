// Linear maps between the residual stream and what a layer computes inside, each together with the
// redistribution on its other side: the collective matrix products of tensor parallelism, which a policy decomposes so
// that transfers and products overlap. The backward pass is the adjoint of both.
#pragma once

#include <pentad/layers/linear.hpp>

#include <cstddef>
#include <tuple>
#include <utility>

namespace pentad {

/// y_i = x W_i^T for several maps of one input, which arrives in layout From.
/// @tparam Communication Blocking or Overlap<Chunks>
template <class Communication, class From, class Map, class... Maps>
class InputProjection {
  public:
    using input_layout = From;
    using X = typename Map::input_layout;
    using Exec = typename Map::execution_space;
    using Products =
        std::tuple<Tensor<typename Map::output_layout, Exec>, Tensor<typename Maps::output_layout, Exec>...>;

    struct Saved {
        Tensor<X, Exec> x;
        std::tuple<Tensor<dual_t<typename Map::output_layout>, Exec>,
                   Tensor<dual_t<typename Maps::output_layout>, Exec>...>
            dy;
    };

    explicit InputProjection(Map map, Maps... maps) : maps_(std::move(map), std::move(maps)...) {}

    Products forward(Tensor<From, Exec> x, Saved& saved) const {
        Products y;
        for_each([&]<std::size_t I>() { std::get<I>(y) = {x.context(), std::get<I>(maps_).extents(x.extents())}; });
        saved.x = redistribute_and_consume<X, Communication, Map::in_dimensions>(
            std::move(x), [&](Tensor<X, Exec> const& whole, RowRange rows) {
                for_each([&]<std::size_t I>() { std::get<I>(maps_).multiply(whole, rows, std::get<I>(y)); });
            });
        return y;
    }
    Tensor<dual_t<From>, Exec> backward_data(Tensor<dual_t<typename Map::output_layout>, Exec> dy,
                                             Tensor<dual_t<typename Maps::output_layout>, Exec>... more,
                                             Saved& saved) const {
        saved.dy = std::tuple(std::move(dy), std::move(more)...);
        return produce_and_redistribute<dual_t<X>, dual_t<From>, Communication, Map::in_dimensions>(
            saved.x.context(), saved.x.extents(), [&](Tensor<dual_t<X>, Exec> const& dx, RowRange rows) {
                for_each(
                    [&]<std::size_t I>() { std::get<I>(maps_).multiply_back(std::get<I>(saved.dy), rows, dx, I > 0); });
            });
    }
    /// Frees x, of which backward_data needs the extents.
    static void drop_input(Saved& saved) {
        saved.x = Tensor<X, Exec>::without_memory(saved.x.context(), saved.x.extents());
    }
    static void restore_input(Tensor<From, Exec> x, Saved& saved) { saved.x = redistribute<X>(std::move(x)); }
    void backward_weight(Saved& saved) const {
        for_each([&]<std::size_t I>() { std::get<I>(maps_).add_weight_gradient(saved.x, std::get<I>(saved.dy)); });
        saved = {};
    }
    template <class F>
    void for_each_parameter(F&& f) {
        std::apply([&f](auto&... maps) { (maps.for_each_parameter(f), ...); }, maps_);
    }

  private:
    /// f for each map's index.
    template <class F>
    static void for_each(F&& f) {
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            (f.template operator()<I>(), ...);
        }(std::make_index_sequence<1 + sizeof...(Maps)>{});
    }

    std::tuple<Map, Maps...> maps_;
};

/// y = x W^T, which leaves in layout To.
/// @tparam Communication Blocking or Overlap<Chunks>
template <class Communication, class Map, class To>
class OutputProjection {
  public:
    using Exec = typename Map::execution_space;
    using input_layout = typename Map::input_layout;
    using output_layout = To;
    using map_type = Map;
    using Product = typename Map::output_layout;
    using Saved = typename Map::Saved;

    explicit OutputProjection(Map map) : map_(std::move(map)) {}

    Tensor<To, Exec> forward(Tensor<input_layout, Exec> x, Saved& saved) const {
        saved.x = std::move(x);
        return produce_and_redistribute<Product, To, Communication, Map::out_dimensions>(
            saved.x.context(), map_.extents(saved.x.extents()),
            [&](Tensor<Product, Exec> const& y, RowRange rows) { map_.multiply(saved.x, rows, y); });
    }
    Tensor<dual_t<input_layout>, Exec> backward_data(Tensor<dual_t<To>, Exec> dy, Saved& saved) const {
        Tensor<dual_t<input_layout>, Exec> dx(dy.context(), saved.x.extents());
        saved.dy = redistribute_and_consume<dual_t<Product>, Communication, Map::out_dimensions>(
            std::move(dy), [&](Tensor<dual_t<Product>, Exec> const& whole, RowRange rows) {
                map_.multiply_back(whole, rows, dx, false);
            });
        return dx;
    }
    void backward_weight(Saved& saved) const { map_.backward_weight(saved); }
    /// Frees x, and takes it again before backward_data.
    static void drop_input(Saved& saved) { saved.x = {}; }
    static void restore_input(Tensor<input_layout, Exec> x, Saved& saved) { saved.x = std::move(x); }
    static Tensor<input_layout, Exec> const& input(Saved const& saved) { return saved.x; }
    template <class F>
    void for_each_parameter(F&& f) {
        map_.for_each_parameter(f);
    }

  private:
    Map map_;
};

/// y = x W^T of an x that arrives in layout From and is redistributed to what the map takes; y leaves as it is made.
template <class From, class Map>
class ExchangedProjection {
  public:
    using Exec = typename Map::execution_space;
    using input_layout = From;
    using map_type = Map;
    using X = typename Map::input_layout;
    using output_layout = typename Map::output_layout;

    struct Saved {
        Tensor<From, Exec> x;
        typename Map::Saved map;
    };

    explicit ExchangedProjection(Map map) : map_(std::move(map)) {}

    Tensor<output_layout, Exec> forward(Tensor<From, Exec> x, Saved& saved) const {
        saved.x = x;
        return map_.forward(redistribute<X>(std::move(x)), saved.map);
    }
    Tensor<dual_t<From>, Exec> backward_data(Tensor<dual_t<output_layout>, Exec> dy, Saved& saved) const {
        return redistribute<dual_t<From>>(map_.backward_data(std::move(dy), saved.map));
    }
    void backward_weight(Saved& saved) const {
        map_.backward_weight(saved.map);
        saved = {};
    }
    static void drop_input(Saved& saved) { saved = {}; }
    static void restore_input(Tensor<From, Exec> x, Saved& saved) {
        saved.x = x;
        saved.map.x = redistribute<X>(std::move(x));
    }
    static Tensor<From, Exec> const& input(Saved const& saved) { return saved.x; }
    template <class F>
    void for_each_parameter(F&& f) {
        map_.for_each_parameter(f);
    }

  private:
    Map map_;
};

} // namespace pentad
