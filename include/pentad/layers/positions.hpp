// Learned embeddings of positions, added to the stream behind the embedding of the tokens.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/embedding.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad {

namespace detail {
template <class Width>
struct PositionTable;
template <class T, class D>
struct PositionTable<Layout<T, Dims<D>>> {
    using type = Layout<T, Dims<Dim<ml::position>, D>>;
};
} // namespace detail

/// y[b, s, :] = x[b, s, :] + table[position of s, :] (Radford et al. 2019). A rank has the same columns of the table
/// and of the stream.
template <class Stream, class Exec>
class LearnedPositions {
  public:
    using T = typename Stream::element;
    using Table = typename detail::PositionTable<last_dimension_t<Stream>>::type;

    struct Saved {
        Tensor<dual_t<Stream>, Exec> dy;
    };

    /// @throws std::invalid_argument where there are fewer positions than tokens in a sequence
    LearnedPositions(LayerSetup<Exec> const& setup, std::size_t positions, std::string const& name)
        : table_(setup.context, name, {positions, setup.hidden}), slices_(setup.slices) {
        if (setup.real_length() > positions)
            throw std::invalid_argument("seq = " + std::to_string(setup.real_length()) + " is more than the " +
                                        std::to_string(positions) + " positions of the model");
        auto const like = Tensor<Stream, Exec>::without_memory(setup.context, {setup.batch, setup.seq, setup.hidden});
        std::size_t const batch = like.local()[0], length = like.local()[1];
        auto const of_sequence = setup.positions(setup.partition(), Stream::value.dimensions[1].axes, length);
        std::vector<i32> host(slices_ * batch * length);
        for (std::size_t i = 0; i < host.size(); ++i) host[i] = of_sequence[i / (batch * length) * length + i % length];
        positions_ = Tensor<Layout<i32, Dims<Dim<ml::position>>>, Exec>(setup.context, {host.size()});
        positions_.set(host.data());
    }

    Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> x) const {
        Tensor<Stream, Exec> y(pass.context, x.extents());
        kernels::embedding_forward<T>(pass.context.exec(), of_slice(pass), table_.value().view(), 0, y.rows());
        kernels::add<T>(pass.context.exec(), x.flat(), y.flat());
        return y;
    }
    Tensor<dual_t<Stream>, Exec> backward_data(Tensor<dual_t<Stream>, Exec> dy, Saved& saved) const {
        saved.dy = dy;
        return dy;
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        kernels::embedding_backward<T>(pass.context.exec(), of_slice(pass), saved.dy.rows(), 0,
                                       table_.gradient().array());
        saved = {};
    }
    template <class F>
    void for_each_parameter(F&& f) {
        f(table_);
    }

  private:
    [[nodiscard]] View<i32 const, 1, Exec> of_slice(Pass<Exec> const& pass) const {
        if (pass.ragged != nullptr) return pass.ragged->positions_in_stream();
        if (pass.map != nullptr) return pass.map->positions_in_stream;
        std::size_t const rows = positions_.size() / slices_;
        return View<i32 const, 1, Exec>(positions_.data() + pass.slice * rows, rows);
    }

    Parameter<Table, used_t<Table, Stream>, Exec> table_;
    std::size_t slices_;
    Tensor<Layout<i32, Dims<Dim<ml::position>>>, Exec> positions_;
};

} // namespace pentad
