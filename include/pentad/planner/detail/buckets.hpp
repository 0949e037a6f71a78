// The parameters of a stage in buckets, as zero/ makes them: what is synchronised alike, is
// flat and in one piece, padded to equal shards.
#pragma once

#include <pentad/layout/cost.hpp>
#include <pentad/planner/configuration.hpp>
#include <pentad/planner/part.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace pentad::planner {

struct Bucket {
    ParameterAccount const* like = nullptr; ///< the first of them: all have the same axes, and decay or not
    double shards = 1;                      ///< of ZeRO
    double elements = 0;
    bool is_open = true;
};

/// The ranks over which ZeRO shards what belongs to a parameter; the two holders of a tied embedding each keep theirs.
inline double zero_shards(AxisNames const& gradient_axes, Configuration const& c, std::span<MeshAxisValue const> mesh) {
    double shards = 1;
    for (auto const axis : gradient_axes) {
        if (axis.starts_with("ends")) continue;
        bool const is_hybrid = axis == dp::name && c.zero_ranks > 0;
        shards *= static_cast<double>(is_hybrid ? c.zero_ranks : find_axis(mesh, axis).extent);
    }
    return shards;
}

/// Puts parameters into buckets, in order; one that holds as many as `most` is closed.
class Buckets {
  public:
    explicit Buckets(double most) : most_(most) {}

    /// @param shards of ZeRO
    void add(ParameterAccount const& parameter, double shards) {
        for (auto& bucket : list_) {
            if (!bucket.is_open || bucket.like->decays != parameter.decays ||
                !(bucket.like->gradient == parameter.gradient) || !(bucket.like->sharded == parameter.sharded))
                continue;
            if (bucket.elements < most_) {
                bucket.elements += parameter.elements;
                return;
            }
            bucket.is_open = false;
        }
        list_.push_back({&parameter, shards, parameter.elements});
    }
    /// Padded so that `zero` shards them evenly.
    [[nodiscard]] std::vector<Bucket> padded(int zero) const {
        auto buckets = list_;
        if (zero > 0)
            for (auto& bucket : buckets) bucket.elements = std::ceil(bucket.elements / bucket.shards) * bucket.shards;
        return buckets;
    }

  private:
    double most_;
    std::vector<Bucket> list_;
};

} // namespace pentad::planner
