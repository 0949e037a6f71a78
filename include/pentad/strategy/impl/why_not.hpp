// The functions of <pentad/strategy/why_not.hpp>.
#pragma once

#include <pentad/strategy/why_not.hpp>

#include <pentad/mesh/inline.hpp>
#include <pentad/model/block_mesh.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/strategy/fields.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace pentad::detail {

/// Asks rules in turn. A rule is asked where those that it needs hold.
class Rules {
  public:
    Rules(model::Model const& model, Strategy const& strategy, std::int64_t ranks, bool stops)
        : model_(model), s_(strategy), ranks_(ranks), stops_(stops) {}

    std::vector<Refusal> ask() {
        (void)(ask_sizes() || ask_mesh() || ask_parts() || ask_batch() || ask_data_ranks() || ask_state() ||
               ask_schedule());
        return std::move(found_);
    }
    /// Asks about the parts of the model and the tokens that ranks have alone.
    std::vector<Refusal> ask_of_parts() {
        (void)(ask_sizes() || ask_parts() || ask_batch());
        return std::move(found_);
    }
    std::vector<Refusal> ask_of_state() {
        (void)ask_state();
        return std::move(found_);
    }

  private:
    static std::string text(std::int64_t n) { return std::to_string(n); }
    /// The ranks that share out the batch: "dp = 4", "dp x ep = 2 x 2 = 4".
    static model::NamedProduct data_axes(Strategy const& s) {
        model::NamedProduct axes;
        axes.times("dp", s.dp);
        if (s.ep > 1) axes.times("ep", s.ep);
        return axes;
    }

    /// Whether nothing more needs to be asked.
    bool take(std::optional<Refusal> refused) {
        if (!refused) return false;
        bool const is_new = std::none_of(found_.begin(), found_.end(),
                                         [&](Refusal const& other) { return other.field == refused->field; });
        if (is_new) found_.push_back(*std::move(refused));
        return stops_;
    }
    template <class Why>
    bool require(bool holds, std::string_view field, Why&& why) {
        return !holds && take(Refusal{field, why()});
    }
    bool at_least(std::int64_t least, std::string_view field, std::int64_t value) {
        if (value < least) is_sized_ = false;
        return require(value >= least, field, [&] { return stated(field, value) + " is less than " + text(least); });
    }

    bool ask_sizes() {
        for (auto const axis : axis_order)
            if (at_least(1, axis, s_.extent(axis))) return true;
        return at_least(1, "batch", s_.batch) || at_least(1, "micro_batches", s_.micro_batches) ||
               at_least(1, "seq", s_.seq) || at_least(0, "chunks", s_.chunks) ||
               at_least(1, "block.inner_cp", s_.block.inner_cp) || at_least(1, "block.row_parts", s_.block.row_parts) ||
               at_least(1, "bucket_elements", s_.bucket_elements);
    }

    bool ask_mesh() {
        if (!is_sized_) return false;
        if (ranks_ > 0 && require(s_.devices() == ranks_, "dp", [&] {
                return "a mesh of " + text(s_.devices()) + " ranks, and the run has " + text(ranks_);
            }))
            return true;
        bool const has_experts = model_.first<model::Experts>() != nullptr;
        if (require(has_experts || !s_.experts, "experts",
                    [] { return std::string("a mesh of experts, and the model has none"); }) ||
            require(s_.ep == 1 || !s_.experts, "experts",
                    [&] { return stated("ep", s_.ep) + " and a mesh of experts: leave out one of the two"; }))
            return true;
        try {
            (void)s_.views();
        } catch (std::invalid_argument const& error) {
            has_views_ = false;
            return take(Refusal{"experts", error.what()});
        }
        return false;
    }

    /// Whether the ranks of a stage can be nested as blocks see them, which are not refused otherwise.
    bool ask_own_meshes() {
        if (!has_views_) return false;
        for (std::size_t i = 0; i < s_.blocks.size(); ++i) {
            if (!s_.blocks[i].mesh) continue;
            try {
                (void)model::mesh_of_block(s_.views().axes(), model_, s_.blocks[i]);
            } catch (std::invalid_argument const& error) {
                if (take(Refusal{"blocks", "blocks[" + std::to_string(i) + "]: " + error.what()})) return true;
            }
        }
        return false;
    }
    bool ask_parts() {
        if (!is_sized_) return false;
        auto const refused = blocks_refusal(model_, s_);
        if (refused ? take(refused) : ask_own_meshes()) return true;
        bool const is_grid = s_.block.tensor_kind != model::TensorKind::one_d;
        bool const has_grid = !is_grid || model::tensor_factors(s_.block.tensor_kind, s_.tp).has_value();
        if (require(has_grid, "block.tensor_kind", [&] { return model::no_grid(s_.block.tensor_kind, s_.tp); }) ||
            (is_grid && take(model::grid_refusal(model_, s_.block.tensor_kind, s_.block.attention_output))))
            return true;
        bool const is_split = s_.cp % s_.block.inner_cp == 0;
        if (require(is_split, "block.inner_cp", [&] {
                return stated("block.inner_cp", s_.block.inner_cp) + " does not divide " + stated("cp", s_.cp);
            }))
            return true;
        if (!is_split || !has_grid) return false;
        auto const on = part_ranks(s_);
        for (std::size_t i = 0; i < model_.block_count(); ++i)
            for (auto const& branch : model_.block(i).branches)
                if (take(branch.part.refusal(on))) return true;
        return take(model::indivisible_by_tensor("hidden", model_.hidden, on.by.hidden, on));
    }

    bool ask_batch() {
        if (!is_sized_) return false;
        model::BatchShape const shape{.batch = s_.batch,
                                      .micro_batches = s_.micro_batches,
                                      .batch_axes = model::batch_axes(data_axes(s_), part_ranks(s_).by)};
        if (auto const refused = shape.refusal(); refused && take(Refusal{"batch", refused->message()})) return true;
        bool const has_experts = model_.first<model::Experts>() != nullptr;
        if (s_.padded_seq(has_experts) == s_.seq) return false;
        auto const why = model::padding_refusal(model_);
        return require(why.empty(), "seq", [&] {
            return stated("seq", s_.seq) + " is padded on this mesh, and " + why + ": make it " +
                   text(s_.padded_seq(has_experts));
        });
    }

    /// Whether the ranks along dp can be cut into groups of so many neighbours.
    [[nodiscard]] bool can_cut(std::int64_t neighbours) const {
        return neighbours < 2 || s_.views().can_split<ml::dp>(static_cast<int>(neighbours));
    }
    bool ask_data_ranks() {
        if (!is_sized_ || !has_views_) return false;
        auto const by = [&](std::string_view field, std::int64_t ranks) {
            return require(can_cut(ranks), field,
                           [&] { return stated(field, ranks) + " does not divide " + data_axes(s_).text(); });
        };
        auto const& local = s_.local;
        if (by("sharding.ranks", s_.sharding.ranks) || by("local.ranks", local.ranks)) return true;
        if (!local.is_on() || !can_cut(local.ranks)) return false;
        bool const has_experts = model_.first<model::Experts>() != nullptr;
        return require(s_.data_ranks() > local.ranks, "local.steps",
                       [&] {
                           return stated("local.steps", local.steps) + " with " + stated("local.ranks", local.ranks) +
                                  " and " + data_axes(s_).text() + ": there is one group, with none to average with";
                       }) ||
               require(!has_experts || s_.groups_hold_experts(), "local.ranks", [&] {
                   return "groups of " + stated("local.ranks", local.ranks) +
                          " hold no whole copies of the experts, which are on ep = " + text(s_.expert_mesh().ep) +
                          " ranks";
               });
    }

    bool ask_state() {
        auto const& zero = s_.sharding;
        auto const& local = s_.local;
        if (take(zero.refusal()) || take(local.refusal()) ||
            require(!local.is_on() || zero.ranks <= 0, "sharding.ranks", [&] {
                return stated("sharding.ranks", zero.ranks) + " and " + stated("local.steps", local.steps) +
                       " both split dp: ZeRO shards over the ranks that share every step, " +
                       stated("local.ranks", local.ranks);
            }))
            return true;
        return at_least(1, "recompute.every", static_cast<std::int64_t>(s_.recompute.every)) ||
               require(s_.precision.keeps_masters || s_.element == model::Element::bf16, "precision.keeps_masters",
                       [&] {
                           return "precision.keeps_masters = off is for element = bf16: " +
                                  std::string(word_of(s_.element)) + " weights are updated as they are";
                       });
    }

    bool ask_schedule() {
        if (!is_sized_ || !ask_name()) return stops_ && !found_.empty();
        auto const traits = pipeline::traits(s_.schedule, generator_options(s_));
        return take(schedule_refusal(model_, s_, s_.schedule, traits)) || ask_stages();
    }
    /// Whether there is such a schedule.
    bool ask_name() {
        auto const why = pipeline::undefined(s_.schedule, generator_options(s_));
        (void)require(why.empty(), "schedule", [&] { return "schedule = " + why; });
        return why.empty();
    }
    bool ask_stages() {
        auto const layers = static_cast<std::int64_t>(model_.blocks.size()), count = stages(s_);
        if (s_.balances_stages || s_.stage_layers.empty()) {
            if (require(count <= layers, "layers", [&] {
                    return stated("layers", layers) + " is less than the stages of the pipeline, " + stages_text();
                }))
                return true;
            return require(s_.balances_stages || count > layers || layers % count == 0, "layers",
                           [&] { return stated("layers", layers) + " is not divisible by " + stages_text(); });
        }
        return take(stages_refusal(s_.stage_layers, count, layers));
    }
    /// "pp = 4", "pp x chunks = 4 x 2 = 8".
    [[nodiscard]] std::string stages_text() const {
        auto const chunks = stages(s_) / s_.pp;
        auto product = model::NamedProduct().times("pp", s_.pp);
        return chunks == 1 ? product.text() : product.times("chunks", chunks).text();
    }

    model::Model const& model_;
    Strategy const& s_;
    std::int64_t ranks_;
    bool stops_; ///< at the first refusal
    std::vector<Refusal> found_{};
    bool is_sized_ = true, has_views_ = true;
};

inline std::optional<Refusal> first_of(std::vector<Refusal> found) {
    if (found.empty()) return std::nullopt;
    return std::move(found.front());
}

} // namespace pentad::detail

namespace pentad {

PENTAD_INLINE model::PartRanks part_ranks(Strategy const& strategy) {
    auto ranks = model::PartRanks::of_tensor(strategy.block.tensor_kind, strategy.tp);
    ranks.cp = strategy.cp;
    ranks.context = strategy.block.context_split();
    auto const on = strategy.expert_mesh();
    ranks.ep = on.ep;
    ranks.etp = on.etp;
    return ranks;
}

namespace detail {
/// Why block i does not see its ranks as a mesh of its own; nothing where it does.
PENTAD_INLINE std::optional<Refusal> mesh_refusal(model::Model const& model, Strategy const& s, std::size_t i) {
    auto const refused = [&](std::string const& why) {
        return Refusal{"blocks", "blocks[" + std::to_string(i) + "]: " + why};
    };
    auto const& mesh = *s.blocks[i].mesh;
    auto const ranks = s.dp * s.ep * s.cp * s.tp;
    if (mesh.cp < 1 || mesh.tp < 1 || mesh.cp > ranks || mesh.tp > ranks || ranks % (mesh.cp * mesh.tp) != 0)
        return refused("cp x tp = " + std::to_string(mesh.cp) + " x " + std::to_string(mesh.tp) +
                       " does not divide the " + std::to_string(ranks) + " ranks of a stage");
    auto const own = s.as_block(i);
    bool const is_dealt_alike =
        own.cp == s.cp && own.block.zigzag == s.block.zigzag && own.block.context_split() == s.block.context_split();
    if (!is_dealt_alike && (own.block.zigzag || s.block.zigzag))
        return refused("zigzag = on is for blocks that all have it, and as many ranks of cp: sequences are dealt once");
    if (s.local.is_on() || s.sharding.ranks > 0)
        return refused("a mesh of its own does not go with groups of ranks along dp, as of " +
                       std::string(s.local.is_on() ? "local.steps" : "sharding.ranks"));
    auto alone = model;
    alone.blocks = {model.blocks[i]};
    alone.predictors.clear();
    auto const found = Rules(alone, own, 0, true).ask_of_parts();
    if (found.empty()) return std::nullopt;
    return refused(found.front().why);
}
} // namespace detail

PENTAD_INLINE std::optional<Refusal> blocks_refusal(model::Model const& model, Strategy const& s) {
    auto const refused = [](std::string why) { return Refusal{"blocks", std::move(why)}; };
    if (s.block.tensor_kind != model::TensorKind::one_d && s.block.sequence_parallel)
        return Refusal{"block.sequence_parallel",
                       "block.tensor_kind = " + std::string(model::name(s.block.tensor_kind)) +
                           " shards tokens anyway: sequence parallelism is of one dimension"};
    if (s.block.mesh)
        return Refusal{"block.mesh", "block.mesh is of single blocks: that of the model is dp, cp and tp"};
    for (std::size_t i = 0; i < s.blocks.size(); ++i) {
        auto const name = "blocks[" + std::to_string(i) + "]";
        if (i >= model.blocks.size())
            return refused(name + " is beyond the blocks of the model: it has " + std::to_string(model.blocks.size()));
        if (s.blocks[i].row_parts < 1)
            return refused(stated(name + ".row_parts", s.blocks[i].row_parts) + " is less than 1");
        if (s.blocks[i].mesh) {
            if (auto why = detail::mesh_refusal(model, s, i)) return why;
            continue;
        }
        auto like = s.blocks[i];
        like.row_parts = s.block.row_parts;
        if (s.block.tensor_kind != model::TensorKind::one_d && !(like == s.block))
            return refused(name + " differs from block, and block.tensor_kind = " +
                           std::string(model::name(s.block.tensor_kind)) + " has one stream for all");
        like.sequence_parallel = s.block.sequence_parallel;
        like.attention_output = s.block.attention_output;
        if (!(like == s.block))
            return refused(name + " differs from block in tensor_kind, context, inner_cp or zigzag, which all share");
    }
    return std::nullopt;
}

PENTAD_INLINE pipeline::GeneratorOptions generator_options(Strategy const& strategy) {
    return {.ranks = static_cast<int>(strategy.pp),
            .micro_batches = static_cast<int>(strategy.micro_batches),
            .chunks = static_cast<int>(strategy.chunks),
            .pairs = strategy.pairs};
}

PENTAD_INLINE std::int64_t stages(Strategy const& strategy) {
    auto const* const generator = pipeline::find_generator(strategy.schedule);
    return strategy.pp * (strategy.chunks > 0 ? strategy.chunks : generator != nullptr ? generator->least_chunks : 1);
}

PENTAD_INLINE std::optional<Refusal> why_not(model::Model const& model, Strategy const& strategy, std::int64_t ranks) {
    return detail::first_of(detail::Rules(model, strategy, ranks, true).ask());
}
PENTAD_INLINE std::vector<Refusal> all_refusals(model::Model const& model, Strategy const& strategy,
                                                std::int64_t ranks) {
    return detail::Rules(model, strategy, ranks, false).ask();
}
PENTAD_INLINE std::optional<Refusal> stages_refusal(std::span<std::int64_t const> stage_layers, std::int64_t stages,
                                                    std::int64_t layers) {
    std::string list;
    std::int64_t sum = 0, least = 0;
    for (auto const number : stage_layers) {
        list += (list.empty() ? "" : ",") + std::to_string(number);
        sum += number;
        least = std::min(least, number);
    }
    auto const given = static_cast<std::int64_t>(stage_layers.size());
    std::string const named = "stage_layers = " + list;
    if (given != stages)
        return Refusal{"stage_layers", named + " is for " + std::to_string(given) + " stages, and the pipeline has " +
                                           std::to_string(stages)};
    if (least < 0) return Refusal{"stage_layers", named + " has a number below 0"};
    if (sum != layers)
        return Refusal{"stage_layers", named + " is of " + std::to_string(sum) + " layers, and the model has " +
                                           std::to_string(layers)};
    return std::nullopt;
}

PENTAD_INLINE std::optional<Refusal> schedule_refusal(model::Model const& model, Strategy const& strategy,
                                                      std::string_view name, pipeline::ScheduleTraits const& traits) {
    auto const refused = [&](std::string_view field, std::string const& why) {
        return Refusal{field, "schedule = " + std::string(name) + " " + why};
    };
    if (strategy.offload.activations && traits.slices > 1)
        return refused("schedule", "cuts sequences into slices, whose keys and values later slices read: activations "
                                   "cannot be offloaded");
    if (strategy.offload.activations && traits.recomputes)
        return refused("schedule", "recomputes whole stages: there are no activations to be offloaded");
    if (strategy.offload.activations && traits.has_pairs)
        return refused("pairs", "has pairs of passes, whose activations cannot be offloaded one after the other");
    if (strategy.sharding.releases_gradients && traits.reduces_later())
        return refused("schedule", "reduces gradients at times of its own: they cannot be released");
    if (traits.updates <= 1) return std::nullopt;
    std::string const own = "updates each stage on its own: ";
    if (strategy.local.is_on())
        return refused("local.steps", own + "ranks that train apart have no common step to average after");
    if (model.shares_embedding())
        return refused("schedule", own + "its two ends cannot share an embedding, which " +
                                       (model.predictors.empty() ? "is tied" : "predictors need"));
    if (traits.copies > 1) return refused("schedule", own + "copies of a stage cannot follow each other then");
    return std::nullopt;
}
PENTAD_INLINE std::optional<Refusal> state_refusal(Strategy const& strategy) {
    static model::Model const none;
    return detail::first_of(detail::Rules(none, strategy, 0, true).ask_of_state());
}

} // namespace pentad
