// The weights of a stage in buckets, as zero/ makes them: what is synchronised alike, is
// flat and in one piece, padded to equal shards.
#pragma once

#include <pentad/planner/weights.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace pentad::planner {

/// A weight as a rank holds it.
struct LocalWeight {
    AxisNames gradient_axes; ///< the gradient is partial over them
    AxisNames sharded_axes;  ///< the weight itself is sharded over them
    bool decays = true;
    double elements = 0;
    double shards = 1; ///< of ZeRO
};

struct Bucket {
    LocalWeight like;
    double elements = 0;
    bool is_open = true;
};

/// The ranks over which ZeRO shards what belongs to a weight; the two holders of a tied embedding each keep theirs.
inline double zero_shards(AxisNames const& gradient_axes, Configuration const& c, std::span<MeshAxisValue const> mesh) {
    double shards = 1;
    for (auto const axis : gradient_axes) {
        if (axis.starts_with("ends")) continue;
        bool const is_hybrid = axis == dp::name && c.zero_ranks > 0;
        shards *= static_cast<double>(is_hybrid ? c.zero_ranks : find_axis(mesh, axis).extent);
    }
    return shards;
}

/// The weights one by one.
inline std::vector<LocalWeight> local_weights(std::span<Weight const> weights, Configuration const& c,
                                              std::span<MeshAxisValue const> mesh) {
    std::vector<LocalWeight> list;
    for (auto const& weight : weights) {
        AxisNames sharded;
        for (std::size_t d = 0; d < weight.stored->rank; ++d)
            for (auto const axis : weight.stored->dimensions[d].axes) sharded.push(axis);
        LocalWeight const one{.gradient_axes = weight.gradient_axes,
                              .sharded_axes = sharded,
                              .decays = weight.decays,
                              .elements = weight.local_elements(mesh) / static_cast<double>(weight.count),
                              .shards = zero_shards(weight.gradient_axes, c, mesh)};
        list.insert(list.end(), weight.count, one);
    }
    return list;
}

/// Puts weights into buckets, in order; one that holds as many as `most` is closed.
class Buckets {
  public:
    explicit Buckets(double most) : most_(most) {}

    void add(LocalWeight const& weight) {
        for (auto& bucket : list_) {
            if (!bucket.is_open || bucket.like.decays != weight.decays ||
                !(bucket.like.gradient_axes == weight.gradient_axes) ||
                !(bucket.like.sharded_axes == weight.sharded_axes))
                continue;
            if (bucket.elements < most_) {
                bucket.elements += weight.elements;
                return;
            }
            bucket.is_open = false;
        }
        list_.push_back({weight, weight.elements});
    }
    /// Padded so that `zero` shards them evenly.
    [[nodiscard]] std::vector<Bucket> padded(int zero) const {
        auto buckets = list_;
        if (zero > 0)
            for (auto& bucket : buckets)
                bucket.elements = std::ceil(bucket.elements / bucket.like.shards) * bucket.like.shards;
        return buckets;
    }

  private:
    double most_;
    std::vector<Bucket> list_;
};

} // namespace pentad::planner
