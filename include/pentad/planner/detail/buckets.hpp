// The parameters of a stage in buckets, as zero/ makes them: what is synchronised alike, is
// flat and in one piece, padded to equal shards.
#pragma once

#include <pentad/layout/cost.hpp>
#include <pentad/planner/hardware.hpp>
#include <pentad/planner/part.hpp>
#include <pentad/strategy/strategy.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace pentad::planner {

/// The mesh as the layouts see it: tp is split where it exceeds the kv heads or is a grid, cp where attention has two
/// levels, pp where stages have copies, ep where dispatch goes by node, dp and edp where ZeRO is hybrid.
using MeshAxes = std::array<MeshAxisValue, view_axes.size()>;

/// What blocks with a mesh of their own lie on.
struct OwnMesh {
    Strategy strategy;                       ///< Strategy::as_block()
    model::BlockStrategy strategy_of_blocks; ///< of the first of them
    MeshAxes mesh{};
};

struct Bucket {
    ParameterAccount const* like = nullptr; ///< the first of them: all have the same axes
    ZeroAxes axes{};                        ///< of their gradients
    double shards = 1;                      ///< of the optimizer state
    double copies = 1;                      ///< of each
    double shards_in_step = 1;              ///< of sharded gradients and parameters
    double elements = 0;
    double acquired = 0;          ///< times that a micro-batch needs the values
    int unit = 0;                 ///< numbered through the stage
    OwnMesh const* own = nullptr; ///< of the blocks that the parameters are of; null: the mesh is the model's
    /// The parameters that the optimizer updates as whole matrices: all or none.
    std::vector<ParameterAccount const*> matrices{};
    double workers = 1; ///< ranks that these are dealt out to
};

/// Whether the same optimizer updates both, and their matrices are sharded over the same axes where that counts.
inline bool are_updated_alike(ParameterAccount const& a, ParameterAccount const& b, model::Optimizer const& optimizer) {
    if (a.own_optimizer != b.own_optimizer) return false;
    return !model::needs_matrices(optimizer) ||
           ((a.matrices.count > 0) == (b.matrices.count > 0) && a.matrices.axes == b.matrices.axes);
}

/// The formats of a bucket's gradients and optimizer state: full precision for parameters with their own optimizer.
[[nodiscard]] inline model::Precision precision_of(Bucket const& bucket, Strategy const& c) {
    return bucket.like->own_optimizer ? model::Precision{} : c.precision;
}
/// Whether its values are kept in accumulators too, since layers compute with those.
[[nodiscard]] inline bool has_exact_values(Bucket const& bucket, Strategy const& c) {
    return bucket.like->own_optimizer && c.element == Element::bf16;
}
/// A bucket with one parameter.
inline Bucket bucket_of(ParameterAccount const& parameter, Strategy const& c, std::span<MeshAxisValue const> mesh) {
    auto const ranks = [mesh](AxisNames const& axes) {
        double product = 1;
        for (auto const axis : axes) product *= find_axis(mesh, axis).extent;
        return product;
    };
    Bucket bucket{.like = &parameter,
                  .axes = zero_axes(c.local.together(parameter.gradient), c.sharding),
                  .elements = parameter.elements,
                  .acquired = static_cast<double>(parameter.acquired)};
    bucket.shards = ranks(bucket.axes.shards);
    bucket.copies = ranks(bucket.axes.copied);
    bucket.shards_in_step = ranks(bucket.axes.in_step);
    if (model::needs_matrices(c.optimizer) && parameter.matrices.count > 0) {
        bucket.matrices.push_back(&parameter);
        bucket.workers = ranks(bucket.axes.partial) * ranks(parameter.matrices.axes);
    }
    return bucket;
}

/// Puts parameters into buckets, in order, as zero/ does. A bucket is closed when it holds bucket_elements or more;
/// where gradients are temporary, at the end of its unit instead.
class Buckets {
  public:
    Buckets(Strategy const& c, std::span<MeshAxisValue const> mesh) : c_(&c), mesh_(mesh) {}

    /// To be called before the parameters of another part of the model. @param is_one_unit it takes and gives up the
    /// values of all its parameters at once
    void begin_part(bool is_one_unit) {
        first_unit_ = last_unit_ + 1;
        is_one_unit_ = is_one_unit;
    }
    /// @param own of the part; null: the mesh is the model's
    void add(ParameterAccount const& parameter, OwnMesh const* own = nullptr) {
        last_unit_ = first_unit_ + (is_one_unit_ ? 0 : parameter.unit);
        for (auto at = open_.begin(); at != open_.end(); ++at) {
            auto& bucket = list_[*at];
            if (bucket.own != own || !(bucket.like->gradient == parameter.gradient) ||
                !(bucket.like->sharded == parameter.sharded) ||
                !are_updated_alike(*bucket.like, parameter, c_->optimizer))
                continue;
            if (c_->sharding.has_temporary_gradients() ? bucket.unit == last_unit_
                                                       : bucket.elements < static_cast<double>(c_->bucket_elements)) {
                bucket.elements += parameter.elements;
                if (!bucket.matrices.empty()) bucket.matrices.push_back(&parameter);
                return;
            }
            open_.erase(at);
            break; // no other is alike
        }
        open_.push_back(list_.size());
        list_.push_back(bucket_of(parameter, *c_, own == nullptr ? mesh_ : std::span<MeshAxisValue const>(own->mesh)));
        list_.back().unit = last_unit_;
        list_.back().own = own;
    }
    /// A parameter that is there already is needed by another part too.
    void use_again(ParameterAccount const& parameter) {
        for (auto& bucket : list_)
            if (bucket.like->name == parameter.name) bucket.acquired += parameter.acquired;
    }
    /// Padded to shards of the same size.
    [[nodiscard]] std::vector<Bucket> padded() const {
        auto buckets = list_;
        for (auto& bucket : buckets) bucket.elements = std::ceil(bucket.elements / bucket.shards) * bucket.shards;
        return buckets;
    }

  private:
    Strategy const* c_;
    std::span<MeshAxisValue const> mesh_;
    int first_unit_ = 0, last_unit_ = -1;
    bool is_one_unit_ = false;
    std::vector<Bucket> list_;
    std::vector<std::size_t> open_; ///< places in the list of those that may get more parameters; no two are alike
};

} // namespace pentad::planner
