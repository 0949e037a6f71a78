// Training a language model on a mesh: forward and backward by a pipeline schedule, the gradients reduced
// as their layouts say, clipping, the optimizer, evaluation.
#pragma once

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/batch_shape.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/part_ranks.hpp>
#include <pentad/model/precision.hpp>
#include <pentad/model/sharding.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/strategy/why_not.hpp>
#include <pentad/train/balance.hpp>
#include <pentad/train/batch.hpp>
#include <pentad/train/block_load.hpp>
#include <pentad/train/decoder_layers.hpp>
#include <pentad/train/detail/compiled_streams.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/executor.hpp>
#include <pentad/train/expert_orders.hpp>
#include <pentad/train/language_model.hpp>
#include <pentad/train/offloaded_activations.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/train/schedules.hpp>
#include <pentad/zero/store.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// @tparam T the element of weights and activations: f64, f32 or bf16
template <class T, class Exec>
class Trainer final : private StageOwner {
  public:
    using Model = LanguageModel<T, Exec>;
    using Registry = LayerRegistry<T, Exec>;
    using Store = zero::ParameterStore<T, Exec>;

    /// Collective over all ranks.
    /// @param stream the layout of the residual stream, e.g. SequenceStream<bf16>::value, which outlives the trainer
    /// @param registry the layers of the model's parts on this stream
    /// @throws std::invalid_argument when settings, schedules and mesh do not fit
    Trainer(Context<Exec> const& context, LayoutValue const& stream, RunSettings const& settings,
            ProvenSchedules schedules, io::TokenData const& data, Registry const& registry = decoder_layers<T, Exec>());
    Trainer(Trainer const&) = delete;
    Trainer& operator=(Trainer const&) = delete;
    ~Trainer() override;

    /// One run of the schedule, counted from 1: one update of the weights, or those of an asynchronous schedule. Where
    /// a loss or the gradient is not finite no weight changes, and the result says what it is. Every
    /// RunSettings::rebalance_every steps it ends with rebalance_experts(). Collective over all ranks. @throws
    /// NotFinite on all ranks after max_bad_steps such steps in a row
    /// @throws io::FileError on all ranks where offloaded state cannot be read or written: the weights are of no use
    StepResult step(std::int64_t number);
    /// Local steps: averages the weights of the groups before their time. Collective over all ranks.
    void average() {
        if (store_.is_apart()) store_.average();
        gather_after_update();
    }
    /// The losses on the batch of a step, with the weights as they are. Collective over all ranks.
    /// @throws std::logic_error between averages of local steps, where there is no one model
    StepResult evaluate(std::int64_t number);
    /// The mean losses of the first batches of other data, such as data held out, with the weights as they are.
    /// Collective over all ranks. @throws std::invalid_argument where there is no batch, or tokens that the model lacks
    StepResult validate(io::TokenData const& data, std::int64_t batches);
    /// What the routers have done in the steps since this was called last, with the experts where they were in the last
    /// one. Collective over all ranks.
    std::vector<BlockLoad> take_loads() {
        auto all = loads();
        return loads_since(std::exchange(taken_loads_, all), all);
    }
    /// Moves experts between ranks, with their optimizer state, so that ranks would have had more even loads than
    /// `loads`, which are the same on all ranks. Returns how many change rank. Collective over all ranks.
    /// @throws as move_experts
    std::size_t rebalance_experts(std::vector<BlockLoad> const& loads);
    /// Moves experts, with their optimizer state, into the given orders; blocks without one return to numerical order.
    /// Results change by the order of sums only; weights without masters and compact moments are also rounded with
    /// other random numbers from then on. Not during a step. Collective over all ranks.
    /// @throws std::invalid_argument where the orders are not of this model; with local steps, whose state does not
    /// move
    /// @throws io::FileError on all ranks where offloaded state cannot be read or written: the weights are of no use
    void move_experts(std::vector<BlockOrder> const& orders);
    /// The orders of blocks whose experts have moved.
    [[nodiscard]] std::vector<BlockOrder> moved_expert_orders() const { return moved_orders(orders_); }
    /// Says where experts are whose weights and state are about to be read.
    /// @throws std::invalid_argument where the orders are not of this model
    void place_experts(std::vector<BlockOrder> const& moved) {
        used_orders_ = orders_ = complete_orders(settings_.model, moved);
        with_planned_moves(model_, orders_, [] {});
    }
    /// The logits for the tokens of `passes`, one for each slice of a micro-batch; where the last stage is, none
    /// elsewhere. Collective over all ranks.
    std::vector<AnyTensor<T, Exec>> logits(std::vector<Pass<Exec>>& passes);

    /// Where the run is after the last step.
    [[nodiscard]] RunPosition position() const {
        return {number_, number_ * settings_.strategy.batch + shift_, bad_steps_, moved_expert_orders()};
    }
    /// Goes on from there: the next step is position.step + 1, and reads the sequences after position.sequences.
    /// Experts are placed before the state is read (place_experts).
    void set_position(RunPosition const& position) {
        number_ = position.step;
        shift_ = position.sequences - position.step * settings_.strategy.batch;
        bad_steps_ = position.bad_steps;
    }

    [[nodiscard]] Model& model() { return model_; }
    [[nodiscard]] Store& store() { return store_; }
    [[nodiscard]] Store const& store() const { return store_; }
    [[nodiscard]] LayerSetup<Exec> const& setup() const { return setup_; }
    [[nodiscard]] RunSettings const& settings() const { return settings_; }
    /// The layout of the residual stream.
    [[nodiscard]] LayoutValue const& stream() const { return *stream_; }
    /// What the offload of activations has done on this rank; none without it.
    [[nodiscard]] std::optional<model::OffloadReport> activation_report() const {
        return activations_ ? std::optional(activations_->report()) : std::nullopt;
    }

  private:
    /// Token losses are summands over the ranks that share out the tokens, and over the stages, of which the last has
    /// them; a stage's auxiliary losses are the same on all its ranks, and summands over the stages.
    [[nodiscard]] AxisNames loss_axes() const {
        AxisNames axes;
        for (auto const& axis : context_->communicators().mesh()) {
            if (axis.name == pp::name) axes.push(axis.name);
            for (std::size_t d = 0; d < 2; ++d)
                for (auto const part : logits_->dimensions[d].axes)
                    if (whole_axis_name(part) == axis.name) axes.push(part);
        }
        return axes;
    }

    /// So far.
    [[nodiscard]] std::vector<BlockLoad> loads() const {
        return block_loads(*context_, settings_.model, used_orders_,
                           [&](auto const& f) { model_.for_each_router_load(f); });
    }
    /// The step without what may follow.
    StepResult update(std::int64_t number);

    void average_after(std::int64_t number) {
        if (settings_.strategy.local.averages_after(number, settings_.steps) && store_.is_apart()) store_.average();
    }
    /// Where the schedule does not gather at the start of the next run.
    void gather_after_update() {
        if (!training().gathers || has_copies()) store_.gather();
    }
    void require_one_model() const {
        if (store_.is_apart())
            throw std::logic_error("between averages each group of local steps has weights of its own: average first");
    }
    /// Groups that train apart: how many.
    [[nodiscard]] double groups() const {
        return settings_.strategy.local.is_on() ? context_->communicators().extent(outer<dp>::name) : 1;
    }
    /// The root mean square over them. Collective.
    [[nodiscard]] double over_groups(double own) const {
        if (groups() == 1) return own;
        double squares = own * own;
        total_over(*context_, settings_.strategy.local.apart(), Placement::partial, std::span(&squares, 1));
        return std::sqrt(squares / groups());
    }

    [[nodiscard]] pipeline::Schedule const& training() const { return schedules_.training(); }
    [[nodiscard]] model::BatchShape batch_shape() const;
    /// The ranks of the mesh and the stream, as parts share themselves out to them.
    [[nodiscard]] model::PartRanks part_ranks() const;
    [[nodiscard]] std::size_t padded_seq() const { return static_cast<std::size_t>(batch_shape().padded_seq()); }
    void check_fit() const;
    /// What a grid of tensor parallelism does not do; empty where nothing of it is asked for.
    [[nodiscard]] std::string on_grid_refusal() const;
    /// Notes the layers of each stage in the settings. Collective over all ranks.
    [[nodiscard]] std::vector<StageLayers> held_stages(Registry const& registry);
    [[nodiscard]] bool is_asynchronous() const { return training().updates > 1; }
    /// Copies of a stage come to what they do together in different orders: it waits for the end of the step.
    [[nodiscard]] bool has_copies() const { return training().placements.size() > 1; }
    [[nodiscard]] zero::UpdateSettings update_settings() const {
        return {.learning_rate = train::learning_rate(settings_, number_)};
    }

    static bool is_finite(StepResult const& result) {
        return std::isfinite(result.loss + result.prediction_loss + result.balance_loss + result.z_loss) &&
               std::isfinite(result.gradient_norm);
    }
    [[noreturn]] void give_up(StepResult const& result, std::string const& more) {
        throw NotFinite("step " + std::to_string(number_) + ": " +
                        (result.not_finite.empty() ? not_finite(result) : result.not_finite) + " is not finite, " +
                        more);
    }
    /// What is not finite, and where it is seen first. Collective.
    [[nodiscard]] std::string not_finite(StepResult const& result);

    void use_version(int stage, int version) override { store_.use_version(stage, static_cast<std::size_t>(version)); }
    void gather(int stage) override {
        if (!has_copies()) store_.gather(stage);
    }
    void step(int stage, int update) override {
        // The updates of a synchronous schedule want the norm of all gradients: they come together, at the end.
        if (is_asynchronous()) store_.update(stage, (number_ - 1) * training().updates + update + 1, update_settings());
    }

    /// @param shift of the numbers of the sequences
    StepResult run(pipeline::Schedule const& schedule, io::TokenData const& data, std::int64_t number,
                   std::int64_t shift = 0);

    Context<Exec> const* context_;
    LayoutValue const *stream_, *logits_; ///< of the residual stream, and of the head's logits
    RunSettings settings_;
    ProvenSchedules schedules_;
    io::TokenData const* data_;
    LayerSetup<Exec> setup_;
    Model model_;
    Store store_;
    Batch<Exec> batch_;
    std::unique_ptr<OffloadedActivations<Exec>> activations_; ///< null: they are in memory
    Executor<Model, T, Exec> executor_;
    std::vector<Pass<Exec>> passes_;
    std::int64_t number_ = 0;    ///< of the step
    std::int64_t shift_ = 0;     ///< of the numbers of the sequences: not 0 where the batch has changed
    std::int64_t bad_steps_ = 0; ///< in a row
    std::vector<BlockOrder> orders_, used_orders_; ///< of experts: now, and in the last step
    double move_wait_ = 0;                         ///< seconds that moves of experts have waited for offloaded state
    std::vector<BlockLoad> taken_loads_;           ///< when they were taken last
};

// Outside of the class, so that they are not inline: a unit that sees `extern template` compiles none of them.

template <class T, class Exec>
Trainer<T, Exec>::Trainer(Context<Exec> const& context, LayoutValue const& stream, RunSettings const& settings,
                          ProvenSchedules schedules, io::TokenData const& data, Registry const& registry)
    : context_(&context), stream_(&stream), logits_(&registry.ends(stream).logits()), settings_(settings),
      schedules_(std::move(schedules)), data_(&data),
      setup_{context,
             settings.model.hidden,
             settings.model.norm_epsilon,
             static_cast<std::size_t>(settings.strategy.batch / settings.strategy.micro_batches),
             padded_seq() / static_cast<std::size_t>(training().slices),
             settings.strategy.zigzag ? Order::zigzag : Order::contiguous,
             settings.strategy.context,
             static_cast<std::size_t>(training().slices),
             padded_seq() - static_cast<std::size_t>(settings.strategy.seq),
             settings.strategy.attention_output,
             static_cast<double>(settings.strategy.micro_batches) / static_cast<double>(training().rounds()) / groups(),
             settings.strategy.precision.rows,
             static_cast<std::size_t>(settings.strategy.row_parts)},
      model_(setup_, stream, settings.model, registry, held_stages(registry), settings.strategy.recompute),
      store_(context, model_, settings.seed, settings.strategy.sharding,
             static_cast<std::size_t>(settings.strategy.bucket_elements),
             static_cast<std::size_t>(training().weight_versions),
             {.copies = AxisNames(inner<pp>::name), .local = settings.strategy.local}, settings.strategy.optimizer,
             settings.strategy.offload, settings.strategy.precision),
      batch_(setup_, stream, static_cast<std::size_t>(settings.strategy.micro_batches), settings.ignored,
             settings.strategy.local, settings.packing, model::sees_later_tokens(settings.model),
             settings.model.predictors.size()),
      executor_(context, model_, stream, {setup_.batch, setup_.seq, setup_.hidden}),
      orders_(complete_orders(settings.model)), used_orders_(orders_) {
    if (settings.strategy.offload.activations)
        zero::on_all_ranks(context.communicators().world(), [&] {
            activations_ = std::make_unique<OffloadedActivations<Exec>>(context, settings.strategy.offload);
        });
    for (auto const& axes : {loss_axes(), axes_of_view(context.communicators().mesh())})
        pentad::detail::prepare(context, detail::total_plan(axes, Placement::partial));
}

template <class T, class Exec>
Trainer<T, Exec>::~Trainer() = default;

template <class T, class Exec>
StepResult Trainer<T, Exec>::step(std::int64_t number) {
    used_orders_ = orders_;
    bool const rebalances = settings_.rebalance_every > 0 && number % settings_.rebalance_every == 0;
    auto const before = rebalances ? loads() : std::vector<BlockLoad>();
    auto result = update(number);
    if (rebalances && result.not_finite.empty()) result.moved_experts = rebalance_experts(loads_since(before, loads()));
    result.offload_wait += std::exchange(move_wait_, 0);
    return result;
}

template <class T, class Exec>
std::size_t Trainer<T, Exec>::rebalance_experts(std::vector<BlockLoad> const& loads) {
    auto const [orders, moved] = balanced_orders(settings_.model, orders_, loads);
    if (moved > 0) move_experts(orders);
    return moved;
}

template <class T, class Exec>
void Trainer<T, Exec>::move_experts(std::vector<BlockOrder> const& orders) {
    if (settings_.strategy.local.is_on())
        throw std::invalid_argument("with local steps each group of ranks has an optimizer state of its own, which "
                                    "does not move with experts");
    orders_ = complete_orders(settings_.model, orders);
    with_planned_moves(model_, orders_, [&] { move_wait_ += store_.move_stacks(); });
}

template <class T, class Exec>
StepResult Trainer<T, Exec>::update(std::int64_t number) {
    number_ = number;
    store_.clear_gradients();
    store_.begin_updates(number, update_settings());
    auto result = run(training(), *data_, number, shift_);
    if (activations_) result.offload_wait = activations_->file().require(context_->communicators().world());
    result.learning_rate = train::learning_rate(settings_, number);
    if (is_asynchronous() || settings_.strategy.sharding.releases_gradients) {
        store_.finish_updates();
        result.offload_wait += store_.require_offloaded();
        result.gradient_norm = over_groups(store_.norm() / std::sqrt(static_cast<double>(training().rounds())));
        if (!is_finite(result)) // the schedule has updated the weights by now
            give_up(result, "and the weights have changed: " +
                                (is_asynchronous() ? training().name + " updates each stage during the step"
                                                   : "gradients were released during the step"));
        average_after(number);
        store_.gather();
        return result;
    }
    double const own_norm = store_.reduce_gradients();
    result.gradient_norm = over_groups(own_norm);
    if (!is_finite(result)) {
        result.not_finite = not_finite(result);
        store_.skip_update();
        if (++bad_steps_ >= settings_.max_bad_steps)
            give_up(result, "and so were the " + std::to_string(bad_steps_ - 1) + " steps before");
        average_after(number);
        gather_after_update();
        return result;
    }
    bad_steps_ = 0;
    auto update = update_settings();
    if (settings_.clip > 0) update.gradient_scale = std::min(1.0, settings_.clip / (own_norm + 1e-6));
    store_.update(number, update);
    average_after(number);
    result.offload_wait += store_.require_offloaded();
    gather_after_update();
    return result;
}

template <class T, class Exec>
StepResult Trainer<T, Exec>::evaluate(std::int64_t number) {
    require_one_model();
    store_.gather();
    return run(schedules_.evaluation(), *data_, number, shift_);
}

template <class T, class Exec>
StepResult Trainer<T, Exec>::validate(io::TokenData const& data, std::int64_t batches) {
    require_one_model();
    if (batches < 1) throw std::invalid_argument("validation needs a batch, not " + std::to_string(batches));
    if (data.vocabulary() > static_cast<std::int64_t>(settings_.model.vocab))
        throw std::invalid_argument("data of " + std::to_string(data.vocabulary()) + " tokens for a model of " +
                                    std::to_string(settings_.model.vocab));
    store_.gather();
    StepResult mean;
    for (std::int64_t number = 1; number <= batches; ++number) {
        auto const result = run(schedules_.evaluation(), data, number);
        mean.targets += result.targets;
        if (result.targets > 0) mean.loss += (result.loss - mean.loss) * (result.targets / mean.targets);
        mean.balance_loss += result.balance_loss / static_cast<double>(batches);
        mean.z_loss += result.z_loss / static_cast<double>(batches);
    }
    return mean;
}

template <class T, class Exec>
auto Trainer<T, Exec>::logits(std::vector<Pass<Exec>>& passes) -> std::vector<AnyTensor<T, Exec>> {
    require_one_model();
    store_.gather();
    auto logits = executor_.logits(schedules_.sampling(), passes, this);
    store_.drop_gathered();
    return logits;
}

template <class T, class Exec>
model::PartRanks Trainer<T, Exec>::part_ranks() const {
    auto const& known = context_->communicators();
    auto ranks = model::PartRanks::of_tensor(model::TensorKind::one_d, known.extent(tp::name));
    ranks.cp = known.extent(cp::name);
    ranks.context = {settings_.strategy.context, known.extent(inner<cp>::name)};
    ranks.ep = known.extent(ep::name);
    ranks.etp = known.extent(etp::name);
    if (!is_on_grid(*stream_)) return ranks;
    model::TensorFactors const grid{known.extent(TensorGrid::first::name), known.extent(TensorGrid::second::name),
                                    known.extent(TensorGrid::columns::name)};
    ranks.tensor_kind = *stream_ == CubeStream<T>::value ? model::TensorKind::three_d
                        : grid.first > 1                 ? model::TensorKind::two_and_half_d
                                                         : model::TensorKind::two_d;
    ranks.by = model::divisors(ranks.tensor_kind, grid);
    ranks.ranks_of_heads = grid.columns;
    return ranks;
}

template <class T, class Exec>
model::BatchShape Trainer<T, Exec>::batch_shape() const {
    auto const& known = context_->communicators();
    auto const axes_of = [&](std::size_t dimension) {
        model::NamedProduct axes;
        for (auto const name : stream_->dimensions[dimension].axes)
            if (whole_axis_name(name) != tp::name || !is_on_grid(*stream_)) axes.times(name, known.extent(name));
        return axes;
    };
    auto seq_axes = axes_of(1);
    if (model::deals_to_tp(settings_.strategy.attention_output,
                           settings_.model.template first<model::Experts>() != nullptr) &&
        !stream_->dimensions[1].axes.contains(tp::name))
        seq_axes.times(tp::name, known.extent(tp::name));
    return {.batch = settings_.strategy.batch,
            .micro_batches = settings_.strategy.micro_batches,
            .seq = settings_.strategy.seq,
            .slices = training().slices,
            .batch_axes = model::batch_axes(axes_of(0), part_ranks().by),
            .seq_axes = seq_axes,
            .zigzag = settings_.strategy.zigzag,
            .head_ranks =
                head_ranks(settings_.strategy.context, known.extent(outer<cp>::name), known.extent(inner<cp>::name))};
}

template <class T, class Exec>
void Trainer<T, Exec>::check_fit() const {
    auto const& known = context_->communicators();
    if (auto const refused = batch_shape().refusal()) throw std::invalid_argument(refused->message());
    if (auto const refused = schedule_misfit(training(), settings_, known.extent("pp")))
        throw std::invalid_argument(refused->why);
    if (known.extent("inner(pp)") != static_cast<int>(training().placements.size()) ||
        (training().ranks() > 1 && (known.extent("ends(pp)") == 1) != pipeline::ends_meet(training())))
        throw std::invalid_argument("schedule = " + training().name +
                                    " wants another mesh: make it with for_schedule(mesh, schedule)");
    if (batch_shape().padded_seq() > settings_.strategy.seq)
        if (auto const refused = model::padding_refusal(settings_.model); !refused.empty())
            throw std::invalid_argument("sequences of " + std::to_string(settings_.strategy.seq) +
                                        " tokens are padded on this mesh, and " + refused + ": give it " +
                                        std::to_string(padded_seq()) + " tokens");
    if (settings_.packing)
        if (auto const refused = model::packing_refusal(settings_.model); !refused.empty())
            throw std::invalid_argument("documents are packed, and " + refused + ": train without packing");
    if (is_on_grid(*stream_))
        if (auto const refused = on_grid_refusal(); !refused.empty()) throw std::invalid_argument(refused);
    auto strategy = settings_.strategy;
    strategy.element = std::is_same_v<T, bf16>  ? model::Element::bf16
                       : std::is_same_v<T, f64> ? model::Element::f64
                                                : model::Element::f32;
    for (auto const& refused : {model::part_refusal(settings_.model, part_ranks()), state_refusal(strategy)})
        if (refused) throw std::invalid_argument(refused->why);
    if (strategy.fp8_products)
        throw std::invalid_argument("fp8_products = on is planned alone: layers multiply in the element of the trainer");
    if (settings_.strategy.recompute.kind == model::Recomputation::Kind::automatic)
        throw std::invalid_argument(
            "automatic recomputation needs a memory limit: plan it with train::planned_recomputation()");
    if (settings_.strategy.local.is_on() && settings_.model.template first<model::Experts>() != nullptr)
        zero::require_whole_copies(known); // on all ranks, also those of stages without experts
    if (settings_.strategy.local.is_on() && settings_.rebalance_every > 0)
        throw std::invalid_argument("with local steps experts do not move: the state of the groups differs");
}

template <class T, class Exec>
std::string Trainer<T, Exec>::on_grid_refusal() const {
    auto const kind = part_ranks().tensor_kind;
    if (auto refused = model::grid_refusal(settings_.model, kind, settings_.strategy.attention_output))
        return std::move(refused->why);
    std::string const grid = "tensor parallelism on a grid ";
    if (settings_.packing) return grid + "does not pack documents: use one dimension";
    if (model::sees_later_tokens(settings_.model) && batch_shape().padded_seq() > settings_.strategy.seq)
        return grid + "pads no sequences whose attention is not causal: give it " + std::to_string(padded_seq()) +
               " tokens, or use one dimension";
    return {};
}

template <class T, class Exec>
auto Trainer<T, Exec>::held_stages(Registry const& registry) -> std::vector<StageLayers> {
    check_fit();
    auto& layers = settings_.strategy.stage_layers;
    if (settings_.strategy.balances_stages)
        layers = measured_layers(setup_, *stream_, settings_.model, registry, training().stages(),
                                 settings_.strategy.recompute);
    else if (layers.empty())
        layers = even_layers(settings_.model.blocks.size(), training().stages());
    return stages_of(training(), pipeline_rank(training(), context_->communicators().coordinate("pp")), layers,
                     settings_.model.blocks.size());
}

template <class T, class Exec>
std::string Trainer<T, Exec>::not_finite(StepResult const& result) {
    std::string own;
    double losses = 0;
    for (auto const& pass : passes_) losses += pass.loss_sum + pass.predicted_sum + pass.balance_sum + pass.z_sum;
    if (!std::isfinite(losses)) own = "the loss";
    if (std::isfinite(result.loss + result.prediction_loss + result.balance_loss + result.z_loss))
        if (auto const name = store_.not_finite(); !name.empty()) own = "the gradient of " + name;
    // Backward passes carry it to all stages before: of the last stage that has it, the first rank.
    auto const& world = context_->communicators().world();
    double place = -1;
    if (!own.empty()) place = static_cast<double>((model_.stages().back() + 1) * world.size() - 1 - world.rank());
    total_over_mesh(*context_, Placement::partial_max, std::span(&place, 1));
    auto const found = static_cast<int>(place);
    if (found < 0) return "the norm of the gradient"; // finite gradients with a sum of squares that is not
    int const rank = world.size() - 1 - found % world.size();
    for (int const stage : model_.stages())
        own += (stage == model_.stages().front() ? " on rank " + std::to_string(rank) + " (stage " : ", ") +
               std::to_string(stage);
    own += ")";
    return comm::broadcast_text(world.handle(), std::move(own), rank);
}

template <class T, class Exec>
StepResult Trainer<T, Exec>::run(pipeline::Schedule const& schedule, io::TokenData const& data, std::int64_t number,
                                 std::int64_t shift) {
    batch_.load(data, number, training().rounds(), shift);
    auto const &valid = batch_.valid(), &own_valid = batch_.own_valid();
    double const rounds = static_cast<double>(training().rounds());
    double const count = static_cast<double>(settings_.strategy.micro_batches);
    double const predictors = static_cast<double>(std::max<std::size_t>(settings_.model.predictors.size(), 1));
    passes_.clear();
    auto const micro_batches = static_cast<std::size_t>(settings_.strategy.micro_batches);
    for (std::size_t i = 0; i < micro_batches; ++i)
        for (std::size_t k = 0; k < setup_.slices; ++k) {
            double const targets = own_valid[static_cast<std::size_t>(training().update_of(static_cast<int>(i)))];
            passes_.push_back(
                {.context = *context_,
                 .tokens = batch_.tokens(i, k),
                 .targets = batch_.targets(i, k),
                 .ahead = batch_.ahead(i, k),
                 .predicted_scale = settings_.prediction_coefficient / predictors,
                 .loss_scale = targets > 0 ? 1 / targets : 0,
                 // A router's sums are over the tokens of all groups.
                 .balance_scale = settings_.balance_coefficient * rounds * groups() / count,
                 .z_scale = settings_.z_coefficient * rounds * groups() / count,
                 .draw = random::stream("micro-batch") ^
                         (settings_.seed + static_cast<std::uint64_t>(number) * micro_batches + i),
                 .map = batch_.map(i, k),
                 .saved = schedule.purpose == pipeline::Purpose::training ? activations_.get() : nullptr});
        }
    executor_.run(schedule, passes_, this);
    store_.drop_gathered();

    std::array<double, 2> losses{}; // of the next tokens, and of those ahead
    double balance = 0, z = 0;
    for (auto const& pass : passes_) {
        losses[0] += pass.loss_sum;
        losses[1] += pass.predicted_sum;
        balance += pass.balance_sum;
        z += pass.z_sum;
    }
    total_over(*context_, loss_axes(), Placement::partial,
               std::span(losses).first(settings_.model.predictors.empty() ? 1 : 2));
    std::array<double, 2> auxiliary{balance, z};
    total_over_mesh(*context_, Placement::partial, std::span(auxiliary));
    double const all = std::accumulate(valid.begin(), valid.end(), 0.0);
    StepResult result;
    result.targets = all;
    result.loss = all > 0 ? losses[0] / all : 0;
    result.prediction_loss = all > 0 ? losses[1] / all / predictors : 0;
    result.balance_loss = auxiliary[0] / count;
    result.z_loss = auxiliary[1] / count;
    return result;
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(T) extern template class Trainer<T, Kokkos::DefaultExecutionSpace>;
PENTAD_FOR_EACH_COMPILED_ELEMENT(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train
