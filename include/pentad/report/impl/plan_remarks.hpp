// The functions of <pentad/report/plan_remarks.hpp>.
#pragma once

#include <pentad/report/plan_remarks.hpp>

#include <pentad/layout/ml.hpp>
#include <pentad/mesh/inline.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/report/format.hpp>
#include <pentad/report/plan_text.hpp>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace pentad::report::detail {

using namespace ml;

class PlanRemarks {
  public:
    PlanRemarks(planner::Model const& model, planner::Hardware const& hardware, Strategy const& c)
        : model_(model), hardware_(hardware), c_(c), here_(planner::estimate(model, hardware, c)),
          rates_(hardware_, c_) {}

    std::vector<Remark> run();

  private:
    void say(bool follows, std::string text) { remarks_.push_back({follows, std::move(text)}); }

    /// That a group along the axis lies on, at most.
    [[nodiscard]] std::int64_t nodes(std::string_view axis, Strategy const& c) const {
        return planner::nodes_of(c, axis, hardware_.devices_per_node).most;
    }
    [[nodiscard]] std::int64_t nodes(std::string_view axis) const { return nodes(axis, c_); }
    [[nodiscard]] std::string speed(planner::Rates const& rates, std::string_view axis) const {
        double const many = 1e15; // so that latency does not count
        return bytes(many / rates.collective(planner::traffic_index(axis), many, 0)) + "/s";
    }
    [[nodiscard]] static std::string extent(std::string_view axis, std::int64_t n) {
        return std::string(axis) + " = " + std::to_string(n);
    }
    [[nodiscard]] std::string of_step(double seconds) const {
        return duration(seconds) + " (" + percent(seconds / here_.step_s) + " of the step)";
    }

    struct Other {
        Strategy strategy;
        planner::Estimate estimate;
    };
    /// The plan with something changed, and micro-batches of as many sequences on a rank if these are not; none where
    /// the model or the batch does not take it.
    template <class Change>
    [[nodiscard]] std::optional<Other> with(Change&& change) const {
        auto c = c_;
        change(c);
        if (c.devices() != c_.devices()) return std::nullopt;
        if (c.micro_batches == c_.micro_batches) {
            if (c.batch % (c.data_ranks() * c_.micro_batch()) != 0) return std::nullopt;
            c.use_micro_batch(c_.micro_batch());
        }
        if (!planner::misfit(model_, c).empty()) return std::nullopt;
        return Other{c, planner::estimate(model_, hardware_, c)};
    }
    /// "; dp=8,tp=8 takes 1.2 s a step, not 2.3 s"
    [[nodiscard]] std::string against(std::optional<Other> const& other) const;

    /// "; --cp ulysses takes 1.2 s a step, not 2.3 s": the fastest way over cp, where another one is.
    [[nodiscard]] std::string against_other_attention() const;

    /// Narayanan et al. 2021 (arXiv:2104.04473), takeaway 1; Korthikanti et al. 2022, section 4.2.
    void tensor();

    /// Context parallelism is for activations, and best within a node.
    void context();

    void padding();

    /// Rows that a rank sends to other nodes for one of its tokens in a dispatch.
    [[nodiscard]] double rows_between_nodes(std::int64_t nodes) const;
    /// Rajbhandari et al. 2022 (DeepSpeed-MoE): whole experts on each rank; all-to-all within a node where it can be.
    void experts();

    /// Huang et al. 2019 (GPipe), section 2.3: the bubble is little where there are 4 micro-batches for a stage.
    void pipeline();

    /// Embedding and head take as long as some layers do (Llama 3, section 3.3.2: a layer less for the first and the
    /// last stage).
    void stages();

    /// Rajbhandari et al. 2020: stage 1 costs nothing; from stage 2 on with several micro-batches see below.
    void sharding();

    /// Korthikanti et al. 2022: recompute what is large and quick first.
    void recomputation();

    void host();

    planner::Model const& model_;
    planner::Hardware const& hardware_;
    Strategy const& c_;
    planner::Estimate here_;
    planner::Rates rates_;
    std::vector<Remark> remarks_;
};

PENTAD_INLINE std::vector<Remark> PlanRemarks::run() {
    tensor();
    context();
    padding();
    experts();
    pipeline();
    stages();
    sharding();
    recomputation();
    host();
    return std::move(remarks_);
}

PENTAD_INLINE std::string PlanRemarks::against(std::optional<Other> const& other) const {
    if (!other) return "";
    std::string const verb = other->estimate.step_s < here_.step_s ? " takes " : " takes longer still, ";
    return "; " + mesh_text(other->strategy) + verb + duration(other->estimate.step_s) + " a step, not " +
           duration(here_.step_s) + (other->estimate.fits ? "" : ", but lacks memory");
}

PENTAD_INLINE std::string PlanRemarks::against_other_attention() const {
    std::optional<Other> fastest;
    using model::ContextChoice;
    for (auto const& split :
         planner::context_splits({.kind = ContextChoice::Kind::automatic}, model_, c_, hardware_.devices_per_node)) {
        auto const other = with([&](Strategy& c) { c.block.use(split); });
        double const least = fastest ? fastest->estimate.step_s : here_.step_s;
        if (other && other->estimate.step_s < least) fastest = other;
    }
    if (!fastest) return "";
    return "; " + context_choice(fastest->strategy).flags() + " takes " + duration(fastest->estimate.step_s) +
           " a step, not " + duration(here_.step_s) + (fastest->estimate.fits ? "" : ", but lacks memory");
}

PENTAD_INLINE void PlanRemarks::tensor() {
    if (c_.tp == 1) return;
    double const seconds = here_.shares.communication[tp::name];
    if (nodes(tp::name) == 1) {
        say(true, extent("tp", c_.tp) + " stays within a node: its collectives take " + of_step(seconds) + " at " +
                      speed(rates_, tp::name));
    } else {
        std::int64_t const within = std::min(c_.tp, hardware_.devices_per_node);
        auto other = with([&](Strategy& c) {
            c.dp *= c.tp / within;
            c.tp = within;
            auto const at = std::find(c.order.begin(), c.order.end(), tp::name);
            std::rotate(at, at + 1, c.order.end()); // among neighbours
        });
        if (other && nodes(tp::name, other->strategy) > 1) other.reset();
        say(false, extent("tp", c_.tp) + " spans " + std::to_string(nodes(tp::name)) + " nodes: its collectives take " +
                       of_step(seconds) + " at " + speed(rates_, tp::name) + against(other));
    }
    bool const is_uniform = c_.blocks.empty() && c_.block.tensor_kind == model::TensorKind::one_d;
    if (c_.block.sequence_parallel || !is_uniform) return;
    if (auto const other = with([](Strategy& c) { c.block.sequence_parallel = true; }))
        say(false, "without sequence parallelism every rank of tp holds the whole residual stream: with it the fullest "
                   "rank holds " +
                       bytes(other->estimate.memory_peak) + ", not " + bytes(here_.memory_peak) +
                       ", and a step takes " + duration(other->estimate.step_s) + ", not " + duration(here_.step_s));
}

PENTAD_INLINE void PlanRemarks::context() {
    if (c_.cp == 1) return;
    double const seconds = here_.shares.communication[cp::name];
    std::string const take =
        ": keys and values take " + of_step(seconds) + " at " + speed(rates_, cp::name) + against_other_attention();
    if (nodes(cp::name) > 1)
        say(false, extent("cp", c_.cp) + " spans " + std::to_string(nodes(cp::name)) + " nodes" + take);
    else
        say(true, extent("cp", c_.cp) + " stays within a node" + take);
    auto const other = with([](Strategy& c) {
        c.dp *= c.cp;
        c.cp = 1;
        c.block.use({});
    });
    if (!other) return;
    bool const needed = !other->estimate.fits;
    say(needed, extent("cp", c_.cp) + " leaves " + bytes(here_.fullest.activations) +
                    " of activations on the fullest rank; " + mesh_text(other->strategy) + " has " +
                    bytes(other->estimate.fullest.activations) +
                    (needed ? ", and does not fit"
                            : ", which fits, and takes " + duration(other->estimate.step_s) + " a step, not " +
                                  duration(here_.step_s)));
}

PENTAD_INLINE void PlanRemarks::padding() {
    auto const padded = c_.padded_seq(model_.experts() != nullptr);
    if (padded == c_.seq) return;
    double const unused = static_cast<double>(padded - c_.seq) / static_cast<double>(padded);
    say(unused < 0.01, "the mesh does not divide sequences of " + std::to_string(c_.seq) +
                           " tokens: they are padded to " + std::to_string(padded) + ", " + percent(unused) +
                           " of which is of no use");
}

PENTAD_INLINE double PlanRemarks::rows_between_nodes(std::int64_t nodes) const {
    double const tokens = static_cast<double>(c_.micro_batch() * c_.seq) / static_cast<double>(c_.cp * c_.tp);
    auto const accounts = model_.accounts(c_, nodes);
    for (std::size_t kind = 0; kind < model_.kinds(); ++kind)
        for (auto const& x : accounts.block(kind).forward.work)
            if (x.rows > 0 && x.cost.axes[0] != ml::etp::name &&
                (nodes == 1 || nodes == c_.expert_mesh().ep || x.cost.axes[0] == outer<ep>::name))
                return x.rows / (tokens * x.part);
    return 0;
}

PENTAD_INLINE void PlanRemarks::experts() {
    auto const* e = model_.experts();
    std::int64_t const ranks = c_.expert_mesh().ep;
    if (ranks == 1 || e == nullptr) return;
    auto const count = static_cast<std::int64_t>(e->count);
    double const seconds = here_.shares.communication[ep::name];
    std::string const held = extent("ep", ranks) + " divides the experts, " + std::to_string(count / ranks) + " of " +
                             std::to_string(count) + " on each rank";
    if (nodes(ep::name) == 1)
        say(true,
            held + ", and stays within a node: the rows take " + of_step(seconds) + " at " + speed(rates_, ep::name));
    else {
        auto const sent_to = planner::dispatch_nodes(model_, c_, hardware_.devices_per_node);
        double const rows = rows_between_nodes(sent_to);
        say(false, held + ", but spans " + std::to_string(nodes(ep::name)) + " nodes: the rows, " +
                       detail::three_figures(rows) + " for each token" + (sent_to == 1 ? "" : " between nodes") +
                       ", take " + of_step(seconds) + " at " + speed(rates_, ep::name));
    }
}

PENTAD_INLINE void PlanRemarks::pipeline() {
    if (c_.pp == 1) return;
    std::int64_t const m = c_.micro_batches, enough = 4 * c_.pp;
    std::string const bubble = std::to_string(m) + " micro-batches on " + std::to_string(c_.pp) +
                               " ranks of the pipeline: the bubble is " + of_step(here_.shares.bubble);
    if (m >= enough) {
        say(true, bubble);
    } else {
        std::string better;
        auto const other = with([](Strategy& c) { c.use_micro_batch(1); });
        if (c_.micro_batch() > 1 && other && other->estimate.step_s < here_.step_s)
            better = "; a micro-batch of 1 makes " + std::to_string(other->strategy.micro_batches) +
                     " of them, and a step of " + duration(other->estimate.step_s);
        say(false, bubble + (m < c_.pp ? ", as some stages always wait" : "") + "; from " + std::to_string(enough) +
                       " on it is small" + better);
    }
    std::int64_t const rest = model_.layers() % c_.pp;
    if (rest != 0)
        say(false, std::to_string(model_.layers()) + " layers do not divide by " + extent("pp", c_.pp) +
                       ": some ranks have " + std::to_string(model_.layers() / c_.pp + 1) +
                       " and others wait for them with " + std::to_string(model_.layers() / c_.pp));
}

PENTAD_INLINE void PlanRemarks::stages() {
    double const waits = here_.shares.imbalance;
    if (waits < 0.01 * here_.step_s) return;
    auto const other = with([](Strategy& c) {
        c.stage_layers.clear();
        c.balances_stages = true;
    });
    bool const is_better = other && other->estimate.step_s < 0.99 * here_.step_s;
    say(!is_better, "the ranks of the pipeline wait for the slowest stage " + of_step(waits) + ": " +
                        stages_account(here_) +
                        (is_better ? "; --stages " + stages_text(other->estimate.stage_layers) + " takes " +
                                         duration(other->estimate.step_s) + " a step, not " + duration(here_.step_s) +
                                         (other->estimate.fits ? "" : ", but lacks memory")
                                   : "; other layers of each stage are not faster"));
}

PENTAD_INLINE void PlanRemarks::sharding() {
    double const many = static_cast<double>(c_.data_ranks() * c_.cp);
    if (c_.sharding.stage == 0 && many > 1) {
        if (auto const other = with([](Strategy& c) { c.sharding.stage = 1; }))
            say(false, "every rank holds the whole optimizer state, " + bytes(here_.fullest.optimizer) +
                           "; with ZeRO-1 the fullest holds " + bytes(other->estimate.fullest.optimizer) +
                           ", and a step takes " + duration(other->estimate.step_s) + ", not " +
                           duration(here_.step_s));
    }
    std::int64_t const m = c_.micro_batches;
    if (c_.sharding.stage < 2 || m == 1) return;
    // The parameters (stage 3) and the gradients (2 and 3) go for each micro-batch, not once a step.
    bool const gathers = c_.sharding.shards_parameters() && !c_.sharding.keeps_parameters;
    bool const reduces = c_.sharding.reduces_each_micro_batch();
    if (!gathers && !reduces) return;
    auto const kept = with([](Strategy& c) { c.sharding = {.stage = 1, .ranks = c.sharding.ranks}; });
    if (!kept) return;
    std::string const what = std::string(gathers ? "gathers the parameters twice" : "") +
                             (gathers && reduces ? " and " : "") + (reduces ? "reduces the gradients" : "");
    say(!kept->estimate.fits,
        "ZeRO-" + std::to_string(c_.sharding.stage) + " " + what + " for each of " + std::to_string(m) +
            " micro-batches" + (c_.pp > 1 ? " of the pipeline" : "") + ": " + bytes(here_.bytes.total()) +
            " are sent in a step, against " + bytes(kept->estimate.bytes.total()) + " with ZeRO-1, which takes " +
            duration(kept->estimate.step_s) + " a step, not " + duration(here_.step_s) +
            (kept->estimate.fits ? ", and fits"
                                 : ", but lacks " + bytes(kept->estimate.memory_peak - hardware_.memory_bytes)));
}

PENTAD_INLINE void PlanRemarks::recomputation() {
    using Kind = model::Recomputation::Kind;
    if (here_.recompute.kind == Kind::none) return;
    bool const is_full = c_.recompute.kind == Kind::full;
    auto const other = with([&](Strategy& c) { c.recompute = {.kind = is_full ? Kind::selective : Kind::none}; });
    std::string const now = recompute_text(c_.recompute);
    std::string const less = is_full ? "selective recomputation" : "none";
    if (!other) return;
    bool const needed = !other->estimate.fits;
    say(needed, now + " recomputation leaves " + bytes(here_.fullest.activations) +
                    " of activations on the fullest rank; " + less + " has " +
                    bytes(other->estimate.fullest.activations) + " and takes " + duration(other->estimate.step_s) +
                    " a step, not " + duration(here_.step_s) + (needed ? ", but does not fit" : ", and fits"));
}

PENTAD_INLINE void PlanRemarks::host() {
    double const waits = here_.shares.launches;
    if (waits > 0.05 * here_.step_s)
        say(false, "the device waits for the host " + of_step(waits) +
                       ": larger micro-batches, or less of tp and cp, make its operations longer");
}

} // namespace pentad::report::detail

namespace pentad::report {

PENTAD_INLINE std::vector<Remark> plan_remarks(planner::Model const& model, planner::Hardware const& hardware,
                                               Strategy const& c) {
    return detail::PlanRemarks(model, hardware, c).run();
}

} // namespace pentad::report
