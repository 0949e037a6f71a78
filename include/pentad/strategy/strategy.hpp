// How a run lies on its ranks: the mesh, how the batch is cut, the schedule, and what is sharded, kept, computed again
// or written to files.
#pragma once

#include <pentad/layout/local_steps.hpp>
#include <pentad/layout/zero_sharding.hpp>
#include <pentad/mesh/axis.hpp>
#include <pentad/model/batch_shape.hpp>
#include <pentad/model/block_strategy.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/model/optimizer.hpp>
#include <pentad/model/precision.hpp>
#include <pentad/model/recomputation.hpp>
#include <pentad/model/tensor_kind.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace pentad {

/// The axes of a mesh as they are usually nested, outermost first.
inline constexpr std::array<std::string_view, 5> axis_order{"dp", "pp", "ep", "cp", "tp"};
/// The axes that ranks send along, in both views of the mesh (model/mesh.hpp).
inline constexpr std::array<std::string_view, 7> view_axes{"dp", "pp", "ep", "cp", "tp", "edp", "etp"};

/// How a run lies on its ranks, one value beside the model. A trainer that is given a mesh of its own (a Context) takes
/// the extents of the axes from that.
struct Strategy {
    /// Ranks along each axis. The ranks of ep share out the batch as the ranks of dp do.
    std::int64_t dp = 1, pp = 1, ep = 1, cp = 1, tp = 1;
    /// Outermost first: the last axis joins neighbours.
    std::array<std::string_view, 5> order = axis_order;
    /// How experts lie on the ranks of a stage; none: on those of ep, and tp shards the width of each.
    std::optional<model::ExpertMesh> experts = {};
    std::int64_t batch = 8;         ///< sequences in a step
    std::int64_t micro_batches = 1; ///< in a step
    std::int64_t seq = 128;         ///< tokens of a sequence, without the padding that the mesh wants

    std::string schedule = "1f1b";
    std::int64_t chunks = 0;                     ///< stages on each rank; 0: as few as the schedule is defined for
    bool pairs = false;                          ///< as pipeline::GeneratorOptions
    std::vector<std::int64_t> stage_layers = {}; ///< layers of each stage; none: as many for each
    /// Layers are dealt so that the slowest stage is as fast as can be: by the time that they take where the run is,
    /// and by planned time in a plan.
    bool balances_stages = false;

    model::BlockStrategy block{}; ///< how the ends of the model and its blocks lie on their ranks
    /// How each block lies, where they differ; blocks beyond, and what predicts further tokens, are as `block`.
    std::vector<model::BlockStrategy> blocks = {};
    model::Recomputation recompute{}; ///< automatic: the activations that each rank needs to fit into its memory
    ZeroSharding sharding{};          ///< of parameters, gradients and optimizer state (ZeRO)
    LocalSteps local{};               ///< between averages of parameters over outer(dp); after the last step too
    /// A bucket of parameters is closed when it holds as many elements. Its gradients are reduced while the backward
    /// pass of the layers before goes on.
    std::int64_t bucket_elements = std::int64_t{1} << 22;
    model::Optimizer optimizer{};
    model::Precision precision{}; ///< of gradients that travel, and of the optimizer's state
    model::Offload offload{};     ///< to files, of the optimizer's state and of activations
    model::Element element = model::Element::bf16;
    /// The products of blocks are in FP8, as DeepSeek-V3 trains. Planned alone: the layers here multiply in `element`.
    bool fp8_products = false;

    friend bool operator==(Strategy const&, Strategy const&) = default;

    [[nodiscard]] model::BlockStrategy const& of_block(std::size_t i) const {
        return i < blocks.size() ? blocks[i] : block;
    }
    /// How the block before lies, which hands a block the stream; before the first block, the embedding.
    [[nodiscard]] model::BlockStrategy const& before_block(std::size_t i) const {
        return i == 0 ? block : of_block(i - 1);
    }
    /// How a model would lie on the ranks whose every block is as block i, which has a mesh of its own.
    [[nodiscard]] Strategy as_block(std::size_t i) const {
        Strategy own = *this;
        own.block = blocks[i];
        own.block.mesh.reset();
        own.blocks.clear();
        own.cp = blocks[i].mesh->cp;
        own.tp = blocks[i].mesh->tp;
        own.dp = std::max<std::int64_t>(1, dp * ep * cp * tp / std::max<std::int64_t>(1, own.cp * own.tp));
        own.experts = expert_mesh(); // which lie on their own axes of the ranks
        own.ep = 1;
        return own;
    }
    /// Whether what lies on the mesh of the model deals the tokens of a rank of cp to the ranks of tp.
    [[nodiscard]] bool deals_to_tp(bool has_experts) const {
        auto const deals = [&](model::BlockStrategy const& one) {
            if (one.mesh) return false;
            return one.sequence_parallel || model::deals_to_tp(one.attention_output, has_experts);
        };
        return deals(block) || std::any_of(blocks.begin(), blocks.end(), deals);
    }
    /// Ranks of tp that share out the heads.
    [[nodiscard]] std::int64_t ranks_of_heads() const { return model::ranks_of_heads(block.tensor_kind, tp); }
    [[nodiscard]] std::int64_t devices() const { return dp * pp * ep * cp * tp; }
    [[nodiscard]] std::int64_t extent(std::string_view axis) const {
        auto const is = [axis](std::string_view name) { return is_same_axis(axis, name); };
        return is("dp") ? dp : is("pp") ? pp : is("ep") ? ep : is("cp") ? cp : tp;
    }
    /// Ranks that share out the batch.
    [[nodiscard]] std::int64_t data_ranks() const { return dp * ep; }
    [[nodiscard]] model::ExpertMesh expert_mesh() const {
        return experts.value_or(model::ExpertMesh{static_cast<int>(ep), static_cast<int>(tp)});
    }
    /// Whether tokens travel to experts on other ranks, beside which the passes of a pair compute.
    [[nodiscard]] bool sends_rows(bool has_experts) const { return has_experts && expert_mesh().ep > 1; }
    /// Both views of the mesh. @throws std::invalid_argument where the experts' does not fit the ranks
    [[nodiscard]] model::ModelMesh views() const {
        std::array<int, axis_order.size()> extents{};
        for (std::size_t i = 0; i < extents.size(); ++i) extents[i] = static_cast<int>(extent(axis_order[i]));
        auto const mesh = model::RankMesh(extents[0], extents[1], extents[2], extents[3], extents[4]).ordered(order);
        return experts ? model::with_experts(mesh.merged<ml::dp, ml::ep>(), *experts) : model::with_experts(mesh);
    }
    /// Whether the experts' view fits the ranks.
    [[nodiscard]] bool has_views() const {
        if (!experts) return true;
        try {
            (void)views();
        } catch (std::invalid_argument const&) {
            return false;
        }
        return true;
    }
    /// Whether the groups that train apart, if there are any, hold whole copies of the experts.
    [[nodiscard]] bool groups_hold_experts() const {
        return !averages_groups() || model::groups_hold_experts(model::split_data(views(), local.ranks));
    }
    /// Sequences of a micro-batch on a rank.
    [[nodiscard]] std::int64_t micro_batch() const { return batch / (data_ranks() * micro_batches); }
    /// The batch is cut into micro-batches of so many sequences on a rank.
    /// @throws std::invalid_argument where it cannot be
    void use_micro_batch(std::int64_t sequences) {
        auto const divisor = data_ranks() * sequences;
        if (divisor < 1 || batch % divisor != 0)
            throw std::invalid_argument("the global batch = " + std::to_string(batch) +
                                        " is not divisible by dp x ep x micro-batch = " + std::to_string(divisor));
        micro_batches = batch / divisor;
    }
    /// Whether no gradient is kept from one micro-batch to the next.
    [[nodiscard]] bool keeps_no_gradients() const {
        return sharding.has_temporary_gradients() && !sharding.reduces_each_micro_batch() && micro_batches == 1;
    }
    /// Whether there are groups that train apart.
    [[nodiscard]] bool averages_groups() const { return local.is_on() && data_ranks() > local.ranks; }
    /// Tokens of a sequence as ranks hold them, with padding.
    [[nodiscard]] std::int64_t padded_seq(bool has_experts) const { return sequence_shape(has_experts).padded_seq(); }
    /// What the tokens of a sequence are a multiple of, since blocks with meshes of their own share them out.
    [[nodiscard]] std::int64_t multiple_of_blocks(bool has_experts) const {
        std::int64_t multiple = 1;
        for (std::size_t i = 0; i < blocks.size(); ++i)
            if (auto const& mesh = blocks[i].mesh; mesh && mesh->cp > 0 && mesh->tp > 0)
                multiple = std::lcm(multiple, as_block(i).sequence_shape(has_experts).seq_multiple());
        return multiple;
    }
    /// How the ranks share out the tokens of a sequence.
    [[nodiscard]] model::BatchShape sequence_shape(bool has_experts) const {
        auto stream_axes = model::NamedProduct().times("cp", cp);
        if (deals_to_tp(has_experts)) stream_axes.times("tp", tp);
        return {.seq = seq,
                .seq_axes = stream_axes,
                .zigzag = block.zigzag,
                .head_ranks = block.context_split().head_ranks(cp),
                .multiple = multiple_of_blocks(has_experts)};
    }
    [[nodiscard]] double tokens() const { return static_cast<double>(batch * seq); }
};

} // namespace pentad
