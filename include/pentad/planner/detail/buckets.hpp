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
    ParameterAccount const* like = nullptr; ///< the first of them: all have the same axes
    double shards = 1;                      ///< of the optimizer state
    double parts = 1;                       ///< of sharded parameters and gradients during a step
    double elements = 0;
    double acquired = 0; ///< times that a micro-batch needs the values
    int unit = 0;        ///< of the stage, counted on
    bool is_open = true;
};

/// The ranks over which ZeRO shards what belongs to a parameter; the two holders of a tied embedding each keep theirs.
/// @param is_in_step during a step: ranks that hold the same stage meet at its end alone
inline double zero_shards(AxisNames const& gradient_axes, Configuration const& c, std::span<MeshAxisValue const> mesh,
                          bool is_in_step = false) {
    double shards = 1;
    for (auto const axis : gradient_axes) {
        if (axis.starts_with("ends") || (is_in_step && whole_axis_name(axis) == pp::name)) continue;
        bool const is_hybrid = axis == dp::name && c.zero_ranks > 0;
        shards *= static_cast<double>(is_hybrid ? c.zero_ranks : find_axis(mesh, axis).extent);
    }
    return shards;
}

/// Puts parameters into buckets, in order; one that holds as many as `most` is closed, and where gradients pass so is
/// every one at the end of its unit.
class Buckets {
  public:
    explicit Buckets(Configuration const& c)
        : most_(static_cast<double>(c.bucket_elements)), is_by_unit_(c.has_passing_gradients()) {}

    /// To be called before the parameters of another part of the model.
    void begin_part() { first_unit_ = last_unit_ + 1; }
    /// @param shards of ZeRO @param parts during a step
    void add(ParameterAccount const& parameter, double shards, double parts) {
        last_unit_ = first_unit_ + parameter.unit;
        for (auto& bucket : list_) {
            if (!bucket.is_open || !(bucket.like->gradient == parameter.gradient) ||
                !(bucket.like->sharded == parameter.sharded))
                continue;
            if (is_by_unit_ ? bucket.unit == last_unit_ : bucket.elements < most_) {
                bucket.elements += parameter.elements;
                return;
            }
            bucket.is_open = false;
        }
        list_.push_back(
            {&parameter, shards, parts, parameter.elements, static_cast<double>(parameter.acquired), last_unit_});
    }
    /// A parameter that is there already is needed by another part too.
    void use_again(ParameterAccount const& parameter) {
        for (auto& bucket : list_)
            if (bucket.like->name == parameter.name) bucket.acquired += parameter.acquired;
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
    bool is_by_unit_;
    int first_unit_ = 0, last_unit_ = -1;
    std::vector<Bucket> list_;
};

} // namespace pentad::planner
