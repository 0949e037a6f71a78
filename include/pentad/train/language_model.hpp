// Room: train. The language model that train_lm trains, and a stage of it: LLaMA where its feed-forward blocks are
// dense, Mixtral where they are experts. A stage of the pipeline is a contiguous slice of the layers.
#pragma once

#include <pentad/context/selected.hpp>
#include <pentad/experts/layer.hpp>
#include <pentad/layers/attention.hpp>
#include <pentad/layers/composition.hpp>
#include <pentad/layers/feed_forward.hpp>
#include <pentad/layers/rms_norm.hpp>
#include <pentad/layers/vocabulary.hpp>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

/// A block: attention, then a feed-forward block or experts.
using Block = Sequence<Residual<RmsNorm, Attention<context::Selected, Overlap<4>>>,
                       Residual<RmsNorm, Either<SwiGlu<Overlap<4>>, experts::Layer>>>;

/// The layers of one stage of the pipeline: the embedding on the first, the last norm and the head on the last, and an
/// equal part of the blocks on each. Tied embeddings are held by both ends.
template <class Stream, class Exec>
class LanguageModel {
  public:
    using StreamLayout = Stream;
    using T = typename Stream::element;
    using Embedding = VocabEmbedding::on<Stream, Exec>;
    using Blocks = Repeat<Recompute<Block>>::on<Stream, Exec>;
    using Norm = RmsNorm::on<Stream, Exec>;
    using Head = VocabHead<Overlap<4>>::on<Stream, Exec>;
    using Table = VocabTable<T, Exec>;

    struct Saved {
        typename Embedding::Saved embedding;
        typename Blocks::Saved blocks;
        typename Norm::Saved norm;
        typename Head::Saved head;
    };

    LanguageModel(Setup<Exec> const& setup, int stage, int stages, bool recompute)
        : is_first_(stage == 0), is_last_(stage + 1 == stages), blocks_(make_blocks(setup, stage, stages, recompute)) {
        bool const tied = setup.shape.tie_embeddings;
        if (is_first_ || (is_last_ && tied)) embedding_table_.emplace(setup, "model.embed_tokens.weight", tied);
        if (is_first_) embedding_.emplace(setup, *embedding_table_);
        if (!is_last_) return;
        if (!tied) head_table_.emplace(setup, "lm_head.weight", false);
        norm_.emplace(setup, "model.norm");
        head_.emplace(setup, tied ? *embedding_table_ : *head_table_);
    }
    LanguageModel(LanguageModel const&) = delete;
    LanguageModel& operator=(LanguageModel const&) = delete;

    [[nodiscard]] bool is_first() const { return is_first_; }
    [[nodiscard]] bool is_last() const { return is_last_; }

    /// x comes from the stage before; the first stage takes none. The last stage adds to pass.loss_sum and gives
    /// nothing.
    Tensor<Stream, Exec> forward(Pass<Exec>& pass, Tensor<Stream, Exec> x, Saved& saved) const {
        if (is_first_) x = redistribute<Stream>(embedding_->forward(pass, saved.embedding));
        x = blocks_.forward(pass, std::move(x), saved.blocks);
        if (!is_last_) return x;
        auto h = norm_->forward(pass, std::move(x), saved.norm);
        head_->forward(pass, redistribute<typename Head::takes>(std::move(h)), saved.head);
        return {};
    }
    /// dy comes from the stage after; the last stage takes none. The first stage gives nothing.
    Tensor<dual_t<Stream>, Exec> backward(Pass<Exec>& pass, Tensor<dual_t<Stream>, Exec> dy, Saved& saved) {
        if (is_last_) {
            auto dh = redistribute<dual_t<Stream>>(head_->backward_data(pass, saved.head));
            head_->backward_weight(pass, saved.head);
            if (head_table_) complete_gradients(pass, *head_table_);
            dy = norm_->backward_data(pass, std::move(dh), saved.norm);
            norm_->backward_weight(pass, saved.norm);
            complete_gradients(pass, *norm_);
            if (!is_first_ && embedding_table_) complete_gradients(pass, *embedding_table_); // tied
        }
        dy = blocks_.backward(pass, std::move(dy), saved.blocks);
        if (!is_first_) return dy;
        embedding_->backward_data(pass, redistribute<dual_t<typename Embedding::gives>>(std::move(dy)),
                                  saved.embedding);
        embedding_->backward_weight(pass, saved.embedding);
        complete_gradients(pass, *embedding_table_);
        return {};
    }
    /// The logits of the last stage instead of the loss.
    Tensor<typename Head::Logits, Exec> logits(Pass<Exec>& pass, Tensor<Stream, Exec> x) const {
        Saved saved;
        if (is_first_) x = redistribute<Stream>(embedding_->forward(pass, saved.embedding));
        x = blocks_.forward(pass, std::move(x), saved.blocks);
        auto h = norm_->forward(pass, std::move(x), saved.norm);
        return head_->logits(pass, redistribute<typename Head::takes>(std::move(h)));
    }
    template <class F>
    void for_each_parameter(F&& f) {
        if (embedding_table_) embedding_table_->for_each_parameter(f);
        blocks_.for_each_parameter(f);
        if (norm_) norm_->for_each_parameter(f);
        if (head_table_) head_table_->for_each_parameter(f);
    }

  private:
    static Blocks make_blocks(Setup<Exec> const& setup, int stage, int stages, bool recompute) {
        using BlockLayer = Block::on<Stream, Exec>;
        using AttentionPart = typename BlockLayer::template layer<0>;
        using FeedForwardPart = typename BlockLayer::template layer<1>;
        using Choice = typename FeedForwardPart::BodyLayer;
        auto const parts = static_cast<std::size_t>(stages);
        if (setup.shape.layers % parts != 0)
            throw std::invalid_argument(std::to_string(setup.shape.layers) + " layers cannot be dealt evenly to " +
                                        std::to_string(stages) + " stages of the pipeline");
        std::size_t const count = setup.shape.layers / parts, first = count * static_cast<std::size_t>(stage);
        std::vector<typename Blocks::Inner> blocks;
        for (std::size_t layer = first; layer < first + count; ++layer) {
            std::string const prefix = "model.layers." + std::to_string(layer) + ".";
            auto choice = setup.shape.has_experts(layer)
                              ? Choice(typename Choice::SecondLayer(setup, prefix + "block_sparse_moe"))
                              : Choice(typename Choice::FirstLayer(setup, prefix + "mlp"));
            blocks.emplace_back(
                recompute,
                BlockLayer(
                    AttentionPart(typename AttentionPart::NormLayer(setup, prefix + "input_layernorm"),
                                  typename AttentionPart::BodyLayer(setup, prefix + "self_attn")),
                    FeedForwardPart(typename FeedForwardPart::NormLayer(setup, prefix + "post_attention_layernorm"),
                                    std::move(choice))));
        }
        return Blocks(std::move(blocks));
    }

    bool is_first_, is_last_;
    std::optional<Table> embedding_table_, head_table_;
    std::optional<Embedding> embedding_;
    Blocks blocks_;
    std::optional<Norm> norm_;
    std::optional<Head> head_;
};

} // namespace pentad::train
