// The account of a configuration: what each stage of the pipeline holds, computes and
// sends, for a micro-batch and for a step.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/planner/detail/buckets.hpp>
#include <pentad/planner/model.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace pentad::planner {

using namespace ml;

/// A number for each axis that ranks send along, as in the order of view_axes.
struct PerAxis {
    std::array<double, view_axes.size()> of{};

    double& operator[](std::string_view axis) {
        std::size_t i = 0;
        for (auto const whole = whole_axis_name(axis); !is_same_axis(view_axes.at(i), whole);) ++i;
        return of[i];
    }
    [[nodiscard]] double operator[](std::string_view axis) const { return const_cast<PerAxis&>(*this)[axis]; }
    void add(Cost const& cost, double times = 1) {
        for (std::size_t i = 0; i < cost.axes.size(); ++i) (*this)[cost.axes[i]] += times * cost.bytes[i];
    }
    void add(PerAxis const& other, double times = 1) {
        for (std::size_t i = 0; i < of.size(); ++i) of[i] += times * other.of[i];
    }
    [[nodiscard]] double total() const {
        double sum = 0;
        for (double const x : of) sum += x;
        return sum;
    }
};

/// The mesh of a configuration.
MeshAxes mesh_of(Strategy const& c, Model const& model, int copies = 1, std::int64_t nodes = 1, bool ends_meet = false);

/// Groups of alike layers: blocks of one kind with the same recomputation that lie on their ranks alike and take the
/// stream from alike ones. Automatic recomputation that is not chosen yet counts as none.
struct AlikeLayers {
    struct Alike {
        std::size_t kind = 0;
        model::BlockRecomputation recompute{};
        model::BlockStrategy block{}, before{}; ///< of a layer, and of what hands it the stream

        friend bool operator==(Alike const&, Alike const&) = default;
    };
    std::vector<Alike> alike;          ///< in the order of the layers that are the first of them
    std::vector<std::size_t> of_layer; ///< its place among them

    explicit AlikeLayers(Model const& model, Strategy const& c = {});
};

/// What a stage of the pipeline is made of: layers [first, first + count), so many of each that are alike, and the
/// ends.
struct StageShape {
    std::int64_t first = 0, count = 0;
    std::vector<double> of_kind{};
    bool is_first = false, is_last = false;
};

/// The stages of a configuration with so many layers each.
std::vector<StageShape> stage_shapes(Model const& model, Strategy const& c, std::vector<std::int64_t> const& layers);
/// The stages of a configuration whose schedule has so many: with the layers that it gives; or as many for each where
/// they divide, and else one more for the first stages, which have no head.
std::vector<StageShape> stage_shapes(Model const& model, Strategy const& c, std::int64_t stages);
/// All of the model as one stage.
inline StageShape whole_shape(Model const& model, Strategy const& c = {}) {
    return stage_shapes(model, c, std::vector{model.layers()}).front();
}

/// What a rank sends in a step to synchronise gradients and parameters, in bytes: gradients are reduced over the axes
/// over which they are partial, and shards are gathered.
struct Synchronisation {
    PerAxis reduce, gather;
    PerAxis near;       ///< of hybrid ZeRO or local steps, among the neighbours along dp and edp
    PerAxis neighbours; ///< how many these are

    void add(Synchronisation const& other, double times = 1);
};

/// Adds what brings the whole matrices of a bucket together, and their updates back (zero/matrices.hpp).
void add_matrix_cost(Cost& gather, Cost& reduce, Bucket const& bucket, Strategy const& c,
                     std::span<MeshAxisValue const> mesh);

/// Adds what a bucket sends in a step. An all-reduce, of copies of a shard (all of ZeRO-0, hybrid ZeRO, a tied
/// embedding), is a reduce-scatter and the gather back.
/// @param passes of micro-batches through the stage
void add_synchronisation(Synchronisation& sum, Bucket const& bucket, Strategy const& c,
                         std::span<MeshAxisValue const> mesh, double passes);

/// What a rank sends along an axis in a pass.
struct Traffic {
    double bytes = 0, rounds = 0;           ///< of collectives
    double message_bytes = 0, messages = 0; ///< from rank to rank
    double waits = 0;                       ///< how often the ranks wait for each other
    double meetings = 0;                    ///< how often two of them do

    [[nodiscard]] bool is_used() const { return waits > 0 || meetings > 0; }
};
/// The axes that a pass sends along: those of both views, the parts of ep where dispatch goes by node, those of cp
/// where attention has two levels, and those of tp where it is a grid.
inline constexpr std::array<std::string_view, 7> traffic_parts{
    outer<ep>::name, inner<ep>::name,        outer<cp>::name,       inner<cp>::name,
    outer<tp>::name, outer<inner<tp>>::name, inner<inner<tp>>::name};
inline constexpr std::size_t traffic_axes = view_axes.size() + traffic_parts.size();
std::size_t traffic_index(std::string_view axis);
inline std::string_view traffic_axis(std::size_t i) {
    return i < view_axes.size() ? view_axes[i] : traffic_parts[i - view_axes.size()];
}
using PassTraffic = std::array<Traffic, traffic_axes>;

/// A part of the model on a mesh.
struct MeshPart {
    PartSums const* sums = nullptr;
    PartMemory memory{};                  ///< `saved` is 0 where activations are offloaded
    std::array<PassTraffic, 3> traffic;   ///< forward, backward_data, backward_weight
    PerAxis sent;                         ///< bytes, for a micro-batch
    std::string_view shared{};            ///< a parameter that another part has already
    bool is_one_unit = false;             ///< a block that is recomputed from its input
    std::shared_ptr<OwnMesh const> own{}; ///< what its blocks lie on; null: on the mesh of the model

    [[nodiscard]] std::array<PassSums const*, 3> passes() const {
        return {&sums->forward, &sums->backward_data, &sums->backward_weight};
    }
    template <class F>
    void for_each_parameter(F&& f) const {
        for (auto const& parameter : *sums->parameters)
            if (parameter.name != shared) f(parameter);
    }
    /// The parameter that another part has already, if any.
    [[nodiscard]] ParameterAccount const* shared_parameter() const {
        for (auto const& parameter : *sums->parameters)
            if (parameter.name == shared) return &parameter;
        return nullptr;
    }
};

/// Rows that a rank sends to others in one dispatch, as they were counted in a run.
struct CountedRows {
    double across = 0, inside = 0;  ///< of nodes
    double held = 0;                ///< on ranks with experts of their tokens: gathered over etp
    std::string_view between_nodes; ///< the axis along which dispatch goes across nodes
};

/// Adds exchanges to what a part sends on a mesh: a dry run has two ranks along dp, and the mesh any number.
/// @param rows none: as the dry run has them
void add_traffic(MeshPart& part, PassTraffic& traffic, ExchangeSum const& x, std::span<MeshAxisValue const> mesh,
                 std::optional<CountedRows> const& rows);

/// The parts of a model that its stages are put together from, on a mesh.
class Account {
  public:
    /// @param copies of each stage, as a bidirectional schedule has them
    /// @param nodes to which dispatch takes a token once each: dispatch_nodes()
    /// @param ends_meet where the first and the last stage are on one rank
    Account(Model const& model, Strategy const& c, int copies = 1, std::int64_t nodes = 1, bool ends_meet = false,
            PartsFrom from = PartsFrom::runs);

    /// Calls f(part, how many of them) for each kind of part of a stage.
    template <class F>
    void for_each_kind(StageShape const& stage, F&& f) const {
        if (stage.is_first) f(parts_.front(), 1.0);
        for (std::size_t kind = 0; kind < stage.of_kind.size(); ++kind)
            if (stage.of_kind[kind] > 0) f(parts_[1 + kind], stage.of_kind[kind]);
        if (stage.is_last) f(parts_.back(), 1.0);
    }
    /// Calls f(part) for each part of a stage, in the order of a forward pass.
    template <class F>
    void for_each_part(StageShape const& stage, F&& f) const {
        if (stage.is_first) f(parts_.front());
        for (std::int64_t layer = stage.first; layer < stage.first + stage.count; ++layer)
            f(parts_[1 + layers_.of_layer[static_cast<std::size_t>(layer)]]);
        if (stage.is_last) f(parts_.back());
    }
    /// Whether two stages are made of the same parts in the same order.
    [[nodiscard]] bool are_alike(StageShape const& a, StageShape const& b) const {
        auto const of = layers_.of_layer.begin();
        return a.count == b.count && a.is_first == b.is_first && a.is_last == b.is_last &&
               std::equal(of + a.first, of + a.first + a.count, of + b.first);
    }
    /// The embedding, a block of each kind, the head.
    [[nodiscard]] std::vector<MeshPart> const& parts() const { return parts_; }
    /// A block as these.
    [[nodiscard]] MeshPart block(AlikeLayers::Alike const& alike) const;
    /// The place of a part among them.
    [[nodiscard]] std::size_t index_of(MeshPart const& part) const {
        return static_cast<std::size_t>(&part - parts_.data());
    }
    /// The mesh that the parameters of a bucket of its stages lie on.
    [[nodiscard]] std::span<MeshAxisValue const> mesh_under(Bucket const& bucket) const {
        return bucket.own == nullptr ? mesh_ : bucket.own->mesh;
    }
    /// Bytes of the residual stream of a micro-batch on a rank, as a stage takes it.
    [[nodiscard]] double input(StageShape const& stage) const {
        return streams_[static_cast<std::size_t>(stage.first)];
    }
    /// The most of them between two blocks.
    [[nodiscard]] double stream() const { return most_stream_; }
    /// The parameters of a stage in buckets.
    [[nodiscard]] std::vector<Bucket> buckets(StageShape const& stage) const;
    /// Numbers that every step reduces, 8 bytes each: the norm of the gradient, the loss, its auxiliary losses, and how
    /// many targets are valid. Local steps do not change that ranks agree on them.
    [[nodiscard]] PerAxis numbers() const;

    /// The shape of a part that lies so, where what hands it the stream lies as `before`.
    [[nodiscard]] PartShape shape_of(model::BlockStrategy const& block, model::BlockStrategy const& before) const;
    /// The mesh of blocks that lie on their ranks so; null: the model's.
    [[nodiscard]] std::shared_ptr<OwnMesh const> own_mesh(model::BlockStrategy const& block) const;

  private:
    [[nodiscard]] MeshPart on_mesh(PartSums const& sums, std::shared_ptr<OwnMesh const> own) const;
    [[nodiscard]] std::vector<std::shared_ptr<OwnMesh const>> made_own_meshes() const;
    /// Adds what a part sends that takes the stream from another mesh.
    void add_edge(MeshPart& part, model::BlockStrategy const& before, model::BlockStrategy const& block) const;
    Model const* model_;
    Strategy c_;
    std::int64_t nodes_;
    PartsFrom from_;
    MeshAxes mesh_;
    std::vector<std::shared_ptr<OwnMesh const>> own_meshes_;
    Parts const* ends_;
    AlikeLayers layers_;
    std::vector<MeshPart> parts_;
    std::vector<double> streams_; ///< bytes before each block, and behind the last
    double most_stream_ = 0;
};

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/account.hpp>
#endif
