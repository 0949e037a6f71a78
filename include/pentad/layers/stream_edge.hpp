// The step of the residual stream from one part of a model to the next.
#pragma once

#include <pentad/layers/places.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/any_tensor.hpp>
#include <pentad/tensor/mesh_edge.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

namespace pentad {

/// Between two parts on one mesh, a redistribution; between parts on different meshes, messages; between equal streams,
/// nothing.
template <class Exec>
class StreamEdge {
  public:
    StreamEdge() = default;
    /// Collective over the ranks of a stage. @throws std::invalid_argument where there is no such step
    StreamEdge(PartPlace<Exec> const& from, PartPlace<Exec> const& to) {
        auto const& [setup, stream] = to;
        auto const& source = from.setup->context;
        if (&source == &setup->context) {
            if (from.stream == stream) return;
            edge_ = Edge(*from.stream, *stream);
            edge_.prepare(source);
            return;
        }
        AxisNames group;
        for (auto const axis : axes_of_view(setup->context.communicators().mesh(), stream->axes()))
            if (axis != ml::pp::name) group.push(axis);
        std::array<std::size_t, 3> const extents{setup->batch, setup->seq, setup->hidden};
        across_ = std::make_unique<MeshEdge<Exec>>(source, *from.stream, setup->context, *stream, group, extents);
    }

    /// What leaves one part, as the next takes it.
    template <class T>
    [[nodiscard]] AnyTensor<T, Exec> forward(AnyTensor<T, Exec> x) const {
        return across_ ? across_->forward(std::move(x)) : edge_.forward(std::move(x));
    }
    /// The gradient of what the next takes, as the gradient of what leaves the one before.
    template <class T>
    [[nodiscard]] AnyTensor<T, Exec> backward(AnyTensor<T, Exec> dy) const {
        return across_ ? across_->backward(std::move(dy)) : edge_.backward(std::move(dy));
    }

  private:
    Edge edge_;
    std::unique_ptr<MeshEdge<Exec>> across_;
};

} // namespace pentad
