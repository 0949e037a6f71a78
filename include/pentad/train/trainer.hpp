// Training a language model on a mesh: the engine's passes, the gradients reduced as their layouts say, clipping, the
// optimizer, evaluation.
#pragma once

#include <pentad/comm/broadcast_text.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/train/block_load.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/engine.hpp>
#include <pentad/train/expert_orders.hpp>
#include <pentad/train/generator.hpp>
#include <pentad/train/offloaded_activations.hpp>
#include <pentad/train/run_settings.hpp>
#include <pentad/train/schedules.hpp>
#include <pentad/zero/store.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
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
        used_orders_ = orders_ = complete_orders(settings().model, moved);
        with_planned_moves(engine_.model(), orders_, [] {});
    }
    /// Sequences that the model writes with the weights as they are; training may not go on meanwhile. Collective over
    /// all ranks. @param sequences at most @param length tokens of each at most @param page tokens in a
    /// row that one rank of cp has
    /// @throws std::invalid_argument where the model cannot write sequences, or none of that length
    [[nodiscard]] Generator<T, Exec> generator(std::size_t sequences, std::size_t length, std::size_t page = 16);

    /// Where the run is after the last step.
    [[nodiscard]] RunPosition position() const {
        return {number_, number_ * settings().strategy.batch + shift_, bad_steps_, moved_expert_orders()};
    }
    /// Goes on from there: the next step is position.step + 1, and reads the sequences after position.sequences.
    /// Experts are placed before the state is read (place_experts).
    void set_position(RunPosition const& position) {
        number_ = position.step;
        shift_ = position.sequences - position.step * settings().strategy.batch;
        bad_steps_ = position.bad_steps;
    }

    [[nodiscard]] Model& model() { return engine_.model(); }
    [[nodiscard]] Store& store() { return store_; }
    [[nodiscard]] Store const& store() const { return store_; }
    [[nodiscard]] LayerSetup<Exec> const& setup() const { return engine_.setup(); }
    [[nodiscard]] RunSettings const& settings() const { return engine_.settings(); }
    /// The layout of the residual stream.
    [[nodiscard]] LayoutValue const& stream() const { return engine_.stream(); }
    /// What the offload of activations has done on this rank; none without it.
    [[nodiscard]] std::optional<model::OffloadReport> activation_report() const {
        return activations_ ? std::optional(activations_->report()) : std::nullopt;
    }

  private:
    /// So far.
    [[nodiscard]] std::vector<BlockLoad> loads() const {
        return block_loads(*context_, settings().model, used_orders_,
                           [&](auto const& f) { engine_.model().for_each_router_load(f); });
    }
    /// The step without what may follow.
    StepResult update(std::int64_t number);

    void average_after(std::int64_t number) {
        if (settings().strategy.local.averages_after(number, settings().steps) && store_.is_apart()) store_.average();
    }
    /// Where the schedule does not gather at the start of the next run.
    void gather_after_update() {
        if (!training().gathers || has_copies()) store_.gather();
    }
    void require_one_model() const {
        if (store_.is_apart())
            throw std::logic_error("between averages each group of local steps has weights of its own: average first");
    }
    /// The root mean square over them. Collective.
    [[nodiscard]] double over_groups(double own) const {
        if (engine_.groups() == 1) return own;
        double squares = own * own;
        total_over(*context_, settings().strategy.local.apart(), Placement::partial, std::span(&squares, 1));
        return std::sqrt(squares / engine_.groups());
    }

    [[nodiscard]] pipeline::Schedule const& training() const { return engine_.schedules().training(); }
    [[nodiscard]] bool is_asynchronous() const { return training().updates > 1; }
    /// Copies of a stage come to what they do together in different orders: it waits for the end of the step.
    [[nodiscard]] bool has_copies() const { return training().placements.size() > 1; }
    [[nodiscard]] zero::UpdateSettings update_settings() const {
        return {.learning_rate = train::learning_rate(settings(), number_)};
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
    void drop_gathered() override { store_.drop_gathered(); }
    void step(int stage, int update) override {
        // The updates of a synchronous schedule want the norm of all gradients: they come together, at the end.
        if (is_asynchronous()) store_.update(stage, (number_ - 1) * training().updates + update + 1, update_settings());
    }

    Context<Exec> const* context_;
    io::TokenData const* data_;
    Engine<T, Exec> engine_;
    Store store_;
    std::unique_ptr<OffloadedActivations<Exec>> activations_; ///< null: they are in memory
    std::int64_t number_ = 0;                                 ///< of the step
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
    : context_(&context), data_(&data), engine_(context, stream, settings, std::move(schedules), registry),
      store_(context, engine_.model(), settings.seed, settings.strategy.sharding,
             static_cast<std::size_t>(settings.strategy.bucket_elements),
             static_cast<std::size_t>(training().weight_versions),
             {.copies = AxisNames(inner<pp>::name), .local = settings.strategy.local}, settings.strategy.optimizer,
             settings.strategy.offload, settings.strategy.precision),
      orders_(complete_orders(settings.model)), used_orders_(orders_) {
    if (settings.strategy.offload.activations)
        zero::on_all_ranks(context.communicators().world(), [&] {
            activations_ = std::make_unique<OffloadedActivations<Exec>>(context, settings.strategy.offload);
        });
}

template <class T, class Exec>
Trainer<T, Exec>::~Trainer() = default;

template <class T, class Exec>
StepResult Trainer<T, Exec>::step(std::int64_t number) {
    used_orders_ = orders_;
    bool const rebalances = settings().rebalance_every > 0 && number % settings().rebalance_every == 0;
    auto const before = rebalances ? loads() : std::vector<BlockLoad>();
    auto result = update(number);
    if (rebalances && result.not_finite.empty()) result.moved_experts = rebalance_experts(loads_since(before, loads()));
    result.offload_wait += std::exchange(move_wait_, 0);
    return result;
}

template <class T, class Exec>
std::size_t Trainer<T, Exec>::rebalance_experts(std::vector<BlockLoad> const& loads) {
    auto const [orders, moved] = balanced_orders(settings().model, orders_, loads);
    if (moved > 0) move_experts(orders);
    return moved;
}

template <class T, class Exec>
void Trainer<T, Exec>::move_experts(std::vector<BlockOrder> const& orders) {
    if (settings().strategy.local.is_on())
        throw std::invalid_argument("with local steps each group of ranks has an optimizer state of its own, which "
                                    "does not move with experts");
    orders_ = complete_orders(settings().model, orders);
    with_planned_moves(engine_.model(), orders_, [&] { move_wait_ += store_.move_stacks(); });
}

template <class T, class Exec>
StepResult Trainer<T, Exec>::update(std::int64_t number) {
    number_ = number;
    store_.clear_gradients();
    store_.begin_updates(number, update_settings());
    auto result = engine_.run(training(), *data_, number, shift_, *this, activations_.get());
    if (activations_) result.offload_wait = activations_->file().require(context_->communicators().world());
    result.learning_rate = train::learning_rate(settings(), number);
    if (is_asynchronous() || settings().strategy.sharding.releases_gradients) {
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
        if (++bad_steps_ >= settings().max_bad_steps)
            give_up(result, "and so were the " + std::to_string(bad_steps_ - 1) + " steps before");
        average_after(number);
        gather_after_update();
        return result;
    }
    bad_steps_ = 0;
    auto update = update_settings();
    if (settings().clip > 0) update.gradient_scale = std::min(1.0, settings().clip / (own_norm + 1e-6));
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
    return engine_.run(engine_.schedules().evaluation(), *data_, number, shift_, *this);
}

template <class T, class Exec>
StepResult Trainer<T, Exec>::validate(io::TokenData const& data, std::int64_t batches) {
    require_one_model();
    store_.gather();
    return engine_.validate(data, batches, *this);
}

template <class T, class Exec>
auto Trainer<T, Exec>::generator(std::size_t sequences, std::size_t length, std::size_t page) -> Generator<T, Exec> {
    require_one_model();
    store_.gather();
    return {engine_, *this, sequences, length, page};
}

template <class T, class Exec>
std::string Trainer<T, Exec>::not_finite(StepResult const& result) {
    std::string own;
    if (!std::isfinite(engine_.own_losses())) own = "the loss";
    if (std::isfinite(result.loss + result.prediction_loss + result.balance_loss + result.z_loss))
        if (auto const name = store_.not_finite(); !name.empty()) own = "the gradient of " + name;
    // Backward passes carry it to all stages before: of the last stage that has it, the first rank.
    auto const& world = context_->communicators().world();
    double place = -1;
    if (!own.empty())
        place = static_cast<double>((engine_.model().stages().back() + 1) * world.size() - 1 - world.rank());
    total_over_mesh(*context_, Placement::partial_max, std::span(&place, 1));
    auto const found = static_cast<int>(place);
    if (found < 0) return "the norm of the gradient"; // finite gradients with a sum of squares that is not
    int const rank = world.size() - 1 - found % world.size();
    for (int const stage : engine_.model().stages())
        own += (stage == engine_.model().stages().front() ? " on rank " + std::to_string(rank) + " (stage " : ", ") +
               std::to_string(stage);
    own += ")";
    return comm::broadcast_text(world.handle(), std::move(own), rank);
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(T) extern template class Trainer<T, Kokkos::DefaultExecutionSpace>;
PENTAD_FOR_EACH_COMPILED_ELEMENT(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train
