// This rank's stages of a model: the embedding on the first, blocks on each, the last norm and the head on the last.
// A stage of the pipeline is a contiguous slice of the blocks.
#pragma once

#include <pentad/layers/registry.hpp>
#include <pentad/layers/stack.hpp>
#include <pentad/layers/stream_ends.hpp>
#include <pentad/layers/unit.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/recomputation.hpp>
#include <pentad/train/detail/compiled_streams.hpp>
#include <pentad/train/predictor.hpp>
#include <pentad/train/stages.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

/// The stages of a rank: the embedding on the first, the last norm and the head on the last, and blocks on each. Tied
/// embeddings are held by both ends; where these are on one rank, by it once.
template <class T, class Exec>
class LanguageModel {
  public:
    using Any = AnyTensor<T, Exec>;
    using Blocks = Stack<T, Exec>;
    using Ahead = Predictor<T, Exec>;

    /// Made at the first forward pass and used again.
    struct Saved {
        std::unique_ptr<SavedState> embedding, positions, norm, head;
        typename Blocks::Saved blocks;
        std::vector<typename Ahead::Saved> predictors;
    };

    /// Collective over all ranks.
    /// @throws std::invalid_argument where the registry has no layer for a part on its stream
    LanguageModel(ModelPlaces<Exec> const& places, model::Model const& model, LayerRegistry<T, Exec> const& registry,
                  std::vector<StageLayers> const& stages, model::Recomputation const& recompute);
    LanguageModel(LanguageModel const&) = delete;
    LanguageModel& operator=(LanguageModel const&) = delete;

    /// The states that its layers keep of sequences. @throws std::logic_error where their setup has none
    [[nodiscard]] StateRegistry const& states() const {
        if (states_ == nullptr)
            throw std::logic_error("sequences pass through a model whose LayerSetup::states is null");
        return *states_;
    }
    /// The numbers of the stages that are here, ascending.
    [[nodiscard]] std::vector<int> const& stages() const { return numbers_; }
    /// The place of a stage among them.
    [[nodiscard]] std::size_t index_of(int stage) const {
        return static_cast<std::size_t>(std::find(numbers_.begin(), numbers_.end(), stage) - numbers_.begin());
    }

    /// Room for what a stage takes from the one before in a pass, and for the gradient of what it gives to the one
    /// after. Its layout lives as long as the model.
    [[nodiscard]] Any make_input(int stage, Pass<Exec> const& pass) const {
        auto const& [setup, stream] = part_of(stage).input;
        return {setup->context, *stream, setup->stream_extents(pass)};
    }
    [[nodiscard]] Any make_output_gradient(int stage) const {
        auto const& part = part_of(stage);
        auto const& setup = *part.output.setup;
        return {setup.context, part.output_gradient, std::array{setup.batch, setup.seq, setup.hidden}};
    }

    /// x comes from the stage before; the first stage takes none. The last stage adds to pass.loss_sum and gives
    /// nothing.
    Any forward(int stage, Pass<Exec>& pass, Any x, Saved& saved) const;
    /// The logits of the last stage instead of the loss.
    Any logits(int stage, Pass<Exec>& pass, Any x, Saved& saved) const;
    /// dy comes from the stage after; the last stage takes none. The first stage gives nothing. Both parts of the
    /// backward pass, layer by layer: what is saved is freed, and gradients are complete, as early as can be.
    Any backward(int stage, Pass<Exec>& pass, Any dy, Saved& saved);
    /// The part of it that the stage before waits for.
    Any backward_data(int stage, Pass<Exec>& pass, Any dy, Saved& saved);
    /// The rest, any time later.
    void backward_weight(int stage, Pass<Exec>& pass, Saved& saved);
    /// Forgets what a forward pass saved.
    static void discard(Saved& saved) {
        for (auto* const state : {saved.embedding.get(), saved.positions.get(), saved.norm.get(), saved.head.get()})
            if (state != nullptr) state->clear();
        saved.blocks.clear();
        for (auto& predictor : saved.predictors) predictor.clear();
    }

    /// The number of the first block here with a part that continues no sequences.
    [[nodiscard]] std::optional<std::size_t> first_without_sequences() const {
        for (auto const& part : parts_)
            if (auto const block = part->blocks.first_without_sequences()) return block;
        return {};
    }
    /// What the blocks here keep of a sequence that is being written.
    [[nodiscard]] observe::DecodingState decoding_state() const {
        observe::DecodingState sum;
        for (auto const& part : parts_) sum += part->blocks.decoding_state();
        return sum;
    }

    /// f(number of the block, load) for the routers here, over all training passes so far.
    template <class F>
    void for_each_router_load(F&& f) const {
        for (auto const& part : parts_) {
            part->blocks.for_each_router_load(f);
            for (auto const& predictor : part->predictors) predictor->for_each_router_load(f);
        }
    }
    /// f(number of the block, placement) for where the experts of blocks here are.
    template <class F>
    void for_each_expert_placement(F&& f) {
        for (auto const& part : parts_) {
            part->blocks.for_each_expert_placement(f);
            for (auto const& predictor : part->predictors) predictor->for_each_expert_placement(f);
        }
    }

    template <class F>
    void for_each_parameter(F&& f) {
        for (int const stage : numbers_)
            for_each_unit_of(stage, [&](Unit<T, Exec>& unit) {
                for (auto* const parameter : unit.parameters()) f(*parameter);
            });
    }
    /// The units of a stage in the order of a forward pass; a table that two stages here share belongs to the first.
    template <class F>
    void for_each_unit_of(int stage, F&& f) {
        auto& part = part_of(stage);
        if (part.embedding || (part.shares_table && !parts_.front()->embedding)) f(embedding_unit_);
        if (part.positions) f(part.positions_unit);
        for (auto& unit : part.blocks.units()) f(unit);
        if (part.head) f(part.head_unit);
        for (auto const& predictor : part.predictors)
            for (auto& unit : predictor->units()) f(unit);
    }

  private:
    struct Part {
        Blocks blocks;
        PartPlace<Exec> input, output; ///< of what hands it the stream, and of what it hands that over from
        LayoutValue output_gradient;   ///< the dual of the stream there
        std::unique_ptr<StreamEmbedding<T, Exec>> embedding{};
        std::unique_ptr<StreamPositions<T, Exec>> positions{};
        std::unique_ptr<StreamLayer<T, Exec>> norm{};
        std::unique_ptr<StreamHead<T, Exec>> head{};
        Unit<T, Exec> positions_unit{};
        /// The last norm, the predictors but their blocks, and the head's table where it is its own.
        Unit<T, Exec> head_unit{};
        std::vector<std::unique_ptr<Ahead>> predictors{};
        bool shares_table = false; ///< its head or its predictors use the embedding's

        Part(Blocks made, PartPlace<Exec> const& takes, PartPlace<Exec> const& gives)
            : blocks(std::move(made)), input(takes), output(gives), output_gradient(dual(*gives.stream)) {}
    };

    Part& part_of(int stage) { return *parts_[index_of(stage)]; }
    [[nodiscard]] Part const& part_of(int stage) const { return *parts_[index_of(stage)]; }

    /// The state of a layer of a part; made at its first use.
    template <class Layer>
    static SavedState& state(std::unique_ptr<SavedState>& saved, Layer const& layer) {
        if (!saved) saved = layer->make_saved();
        return *saved;
    }
    [[nodiscard]] Any through_blocks(Part const& part, Pass<Exec>& pass, Any x, Saved& saved) const {
        auto const& blocks = part.blocks.units();
        auto const* const after = part.head ? &part.head_unit : nullptr;
        auto const* const first = blocks.empty() ? after : &blocks.front();
        auto const prefetch = [](Unit<T, Exec> const* unit) {
            if (unit != nullptr) unit->prefetch();
        };
        if (part.embedding)
            embedding_unit_.with_values([&] {
                prefetch(part.positions ? &part.positions_unit : first);
                x = part.embedding->forward(pass, state(saved.embedding, part.embedding));
            });
        if (part.positions)
            part.positions_unit.with_values([&] {
                prefetch(first);
                x = part.positions->forward(pass, std::move(x));
            });
        return part.blocks.forward(pass, std::move(x), saved.blocks, after);
    }
    /// f() with the values of what computes at the end: the norm's and the head's, and the predictors' where they do.
    template <class F>
    void with_head(Part const& part, bool with_predictors, F&& f) const {
        part.head_unit.with_values([&] {
            if (!head_table_ || with_predictors)
                embedding_unit_.with_values(f);
            else
                f();
        });
    }
    /// Whether a pass goes through the predictors.
    static bool predicts(Part const& part, Pass<Exec> const& pass) { return pass.trains && !part.predictors.empty(); }
    static Any through_norm(Part const& part, Pass<Exec>& pass, Any x, Saved& saved) {
        return part.norm->forward(pass, std::move(x), state(saved.norm, part.norm));
    }
    [[nodiscard]] Any backward_data_of_head(Part const& part, Pass<Exec>& pass, Saved& saved) const {
        Any dx;
        with_head(part, predicts(part, pass), [&] {
            auto const ahead = backward_data_of_predictors(part, pass, saved);
            if (!part.blocks.units().empty()) part.blocks.units().back().prefetch();
            auto dh = part.head->backward_data(pass, *saved.head);
            if (!ahead.empty()) kernels::add<T>(pass.context.exec(), ahead.flat(), dh.flat());
            dx = part.norm->backward_data(pass, std::move(dh), *saved.norm);
        });
        return dx;
    }
    /// From the last module to the first: the gradient of what the head takes, empty where there are none.
    [[nodiscard]] Any backward_data_of_predictors(Part const& part, Pass<Exec>& pass, Saved& saved) const {
        Any dh;
        for (std::size_t k = saved.predictors.size(); k-- > 0;)
            dh = part.predictors[k]->backward_data(pass, std::move(dh), saved.predictors[k]);
        return dh;
    }
    void backward_weight_of_head(Part& part, Pass<Exec>& pass, Saved& saved) const {
        auto const for_each_predictor = [&](auto const& f) {
            for (std::size_t k = 0; k < saved.predictors.size(); ++k) f(*part.predictors[k], saved.predictors[k]);
        };
        auto const of_table = [&] {
            part.head->backward_weight(pass, *saved.head);
            for_each_predictor([&](auto& predictor, auto& its) { predictor.backward_weight_of_head(pass, its); });
        };
        for_each_predictor([&](auto& predictor, auto& its) { predictor.backward_weight_of_block(pass, its); });
        if (part.shares_table)
            embedding_unit_.add_gradients(pass, [&] {
                if (!head_table_) of_table();
                for_each_predictor(
                    [&](auto& predictor, auto& its) { predictor.backward_weight_of_embedding(pass, its); });
            });
        part.head_unit.add_gradients(pass, [&] {
            if (head_table_) of_table();
            for_each_predictor([&](auto& predictor, auto& its) { predictor.backward_weight(pass, its); });
            part.norm->backward_weight(pass, *saved.norm);
        });
    }
    static void backward_data_of_embedding(Part const& part, Pass<Exec>& pass, Any dy, Saved& saved) {
        if (part.positions) dy = part.positions->backward_data(std::move(dy), state(saved.positions, part.positions));
        part.embedding->backward_data(pass, std::move(dy), *saved.embedding);
    }
    void backward_weight_of_embedding(Part& part, Pass<Exec>& pass, Saved& saved) const {
        if (part.positions)
            part.positions_unit.add_gradients(pass, [&] { part.positions->backward_weight(pass, *saved.positions); });
        embedding_unit_.add_gradients(pass, [&] { part.embedding->backward_weight(pass, *saved.embedding); });
    }

    StateRegistry const* states_;
    std::vector<int> numbers_;
    std::unique_ptr<StreamTable<T, Exec>> embedding_table_, head_table_;
    Unit<T, Exec> embedding_unit_; ///< its table, which is the head's too where they are tied
    std::vector<std::unique_ptr<Part>> parts_;
};

// Outside of the class, so that they are not inline: a unit that sees `extern template` compiles none of them.

template <class T, class Exec>
LanguageModel<T, Exec>::LanguageModel(ModelPlaces<Exec> const& places, model::Model const& model,
                                      LayerRegistry<T, Exec> const& registry, std::vector<StageLayers> const& stages,
                                      model::Recomputation const& recompute)
    : states_(places.ends().setup->states) {
    auto const& setup = *places.ends().setup;
    auto const& stream = *places.ends().stream;
    auto const& ends = registry.ends(stream);
    bool const tied = model.ties_embeddings, shared = model.shares_embedding();
    for (auto const& stage : stages) {
        numbers_.push_back(stage.stage);
        if (stage.is_first || (stage.is_last && shared && !embedding_table_))
            embedding_table_ = ends.make_table(setup, model.vocab, "model.embed_tokens.weight", shared);
        if (stage.is_last && !tied) head_table_ = ends.make_table(setup, model.vocab, "lm_head.weight", false);
    }
    for (auto const& stage : stages) {
        auto const after = stage.first + stage.count;
        auto& part = *parts_.emplace_back(
            std::make_unique<Part>(Blocks(places, model, registry, stage.first, stage.count, recompute, stage.is_last),
                                   places.before(stage.first), stage.is_last ? places.ends() : places.before(after)));
        if (stage.is_first) part.embedding = ends.make_embedding(setup, *embedding_table_, model.padding_token);
        if (stage.is_first && model.positions > 0)
            part.positions = ends.make_positions(setup, model.positions, "model.embed_positions.weight");
        if (!stage.is_last) continue;
        part.norm = registry.make_norm(setup, stream, model.norm, "model.norm");
        auto& table = tied ? *embedding_table_ : *head_table_;
        part.head = ends.make_head(setup, table);
        part.shares_table = shared;
        for (std::size_t k = 0; k < model.predictors.size(); ++k)
            part.predictors.push_back(
                std::make_unique<Ahead>(setup, stream, model, registry, k, recompute, *embedding_table_, table));
    }
    if (embedding_table_) {
        embedding_unit_.add_parameters_of(*embedding_table_);
        std::size_t users = 0;
        for (auto const& part : parts_) users += (part->embedding ? 1 : 0) + (part->shares_table ? 1 : 0);
        embedding_unit_.set_users(users);
    }
    for (auto const& part : parts_) {
        if (part->positions) part->positions_unit.add_parameters_of(*part->positions);
        if (part->head) part->head_unit.add_parameters_of(*part->norm);
        if (part->head && head_table_) part->head_unit.add_parameters_of(*head_table_);
        for (auto const& predictor : part->predictors) part->head_unit.add_parameters_of(*predictor);
    }
}

template <class T, class Exec>
auto LanguageModel<T, Exec>::forward(int stage, Pass<Exec>& pass, Any x, Saved& saved) const -> Any {
    auto const& part = part_of(stage);
    x = through_blocks(part, pass, std::move(x), saved);
    if (!part.head) return x;
    with_head(part, predicts(part, pass), [&] {
        auto h = through_norm(part, pass, std::move(x), saved);
        part.head->forward(pass, h, state(saved.head, part.head));
        if (!predicts(part, pass)) return saved.predictors.clear();
        if (pass.ahead.size() != part.predictors.size())
            throw std::logic_error("the pass has the tokens ahead for " + std::to_string(pass.ahead.size()) + " of " +
                                   std::to_string(part.predictors.size()) + " predictors");
        saved.predictors.resize(part.predictors.size());
        for (std::size_t k = 0; k < part.predictors.size(); ++k)
            h = part.predictors[k]->forward(pass, std::move(h), saved.predictors[k]);
    });
    return {};
}

template <class T, class Exec>
auto LanguageModel<T, Exec>::logits(int stage, Pass<Exec>& pass, Any x, Saved& saved) const -> Any {
    auto const& part = part_of(stage);
    x = through_blocks(part, pass, std::move(x), saved);
    Any logits;
    with_head(part, false, [&] { logits = part.head->logits(through_norm(part, pass, std::move(x), saved)); });
    return logits;
}

template <class T, class Exec>
auto LanguageModel<T, Exec>::backward(int stage, Pass<Exec>& pass, Any dy, Saved& saved) -> Any {
    auto& part = part_of(stage);
    if (part.head) {
        dy = backward_data_of_head(part, pass, saved);
        backward_weight_of_head(part, pass, saved);
    }
    dy = part.blocks.backward(pass, std::move(dy), saved.blocks);
    if (!part.embedding) return dy;
    backward_data_of_embedding(part, pass, std::move(dy), saved);
    backward_weight_of_embedding(part, pass, saved);
    return {};
}

template <class T, class Exec>
auto LanguageModel<T, Exec>::backward_data(int stage, Pass<Exec>& pass, Any dy, Saved& saved) -> Any {
    auto& part = part_of(stage);
    if (part.head) dy = backward_data_of_head(part, pass, saved);
    dy = part.blocks.backward_data(pass, std::move(dy), saved.blocks);
    if (!part.embedding) return dy;
    backward_data_of_embedding(part, pass, std::move(dy), saved);
    return {};
}

template <class T, class Exec>
void LanguageModel<T, Exec>::backward_weight(int stage, Pass<Exec>& pass, Saved& saved) {
    auto& part = part_of(stage);
    if (part.head) backward_weight_of_head(part, pass, saved);
    part.blocks.backward_weight(pass, saved.blocks);
    if (part.embedding) backward_weight_of_embedding(part, pass, saved);
}

#if PENTAD_COMPILED_DECODER_LAYERS
#define PENTAD_COMPILED(T) extern template class LanguageModel<T, Kokkos::DefaultExecutionSpace>;
PENTAD_FOR_EACH_COMPILED_ELEMENT(PENTAD_COMPILED)
#undef PENTAD_COMPILED
#endif

} // namespace pentad::train
