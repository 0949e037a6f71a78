// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): modules on the last stage, of which the k-th
// predicts the token k further ahead than the head does.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/layers/stack.hpp>
#include <pentad/layers/stream_ends.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/recomputation.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace pentad::train {

using namespace ml;

/// The k-th module, from 1: h_k[i] = block(M [norm(embedding of token i + k); norm(h_{k-1}[i])]), from which the
/// model's head, behind a norm of the module's own, predicts token i + k + 1. h_0 is what the head takes, as in the
/// implementations that run the published weights. The last k positions of a sequence have token 0 there, and no loss.
template <class T, class Exec>
class Predictor {
  public:
    using Any = AnyTensor<T, Exec>;

    /// Made at the first forward pass and used again.
    struct Saved {
        std::unique_ptr<SavedState> embedding, embedding_norm, input_norm, projection, head_norm, head;
        typename Stack<T, Exec>::Saved block;

        void clear() {
            for (auto* const state : {embedding.get(), embedding_norm.get(), input_norm.get(), projection.get(),
                                      head_norm.get(), head.get()})
                if (state != nullptr) state->clear();
            block.clear();
        }
    };

    /// @param stream the layout of the residual stream @param depth k - 1
    Predictor(LayerSetup<Exec> const& setup, LayoutValue const& stream, model::Model const& model,
              LayerRegistry<T, Exec> const& registry, std::size_t depth, model::Recomputation const& recompute,
              StreamTable<T, Exec>& embedding, StreamTable<T, Exec>& head)
        : depth_(depth), embedding_(registry.ends(stream).make_embedding(setup, embedding, model.padding_token)),
          head_(registry.ends(stream).make_head(setup, head)),
          block_({setup, stream}, model, registry, model.blocks.size() + depth, 1, recompute) {
        std::string const prefix = model::Model::prefix(model.blocks.size() + depth);
        embedding_norm_ = registry.make_norm(setup, stream, model.norm, prefix + "enorm");
        input_norm_ = registry.make_norm(setup, stream, model.norm, prefix + "hnorm");
        head_norm_ = registry.make_norm(setup, stream, model.norm, prefix + "shared_head.norm");
        projection_ = registry.ends(stream).make_join(setup, prefix + "eh_proj");
    }

    /// h_k from h_{k-1}. Adds the losses of its tokens to pass.predicted_sum. The caller has acquired the
    /// values of the tables and of its parameters, but for those of units().
    Any forward(Pass<Exec>& pass, Any h, Saved& saved) const {
        if (!saved.head_norm) {
            saved.embedding = embedding_->make_saved();
            saved.embedding_norm = embedding_norm_->make_saved();
            saved.input_norm = input_norm_->make_saved();
            saved.projection = projection_->make_saved();
            saved.head_norm = head_norm_->make_saved();
            saved.head = head_->make_saved();
        }
        auto own = ahead(pass);
        auto embedded =
            embedding_norm_->forward(own, embedding_->forward(own, *saved.embedding), *saved.embedding_norm);
        auto input = input_norm_->forward(own, std::move(h), *saved.input_norm);
        auto x = projection_->forward(own, std::move(embedded), std::move(input), *saved.projection);
        x = block_.forward(own, std::move(x), saved.block);
        head_->forward(own, head_norm_->forward(own, x, *saved.head_norm), *saved.head);
        pass.add_sums(own, true);
        return x;
    }
    /// The gradient of h_{k-1}. @param dh of h_k by the module after it; empty: there is none
    Any backward_data(Pass<Exec>& pass, Any dh, Saved& saved) const {
        auto own = ahead(pass);
        auto dx = head_norm_->backward_data(own, head_->backward_data(own, *saved.head), *saved.head_norm);
        if (!dh.empty()) kernels::add<T>(pass.context.exec(), dh.flat(), dx.flat());
        dx = block_.backward_data(own, std::move(dx), saved.block);
        auto [dembedded, dinput] = projection_->backward_data(own, std::move(dx), *saved.projection);
        dembedded = embedding_norm_->backward_data(own, std::move(dembedded), *saved.embedding_norm);
        embedding_->backward_data(own, std::move(dembedded), *saved.embedding);
        return input_norm_->backward_data(own, std::move(dinput), *saved.input_norm);
    }
    /// The gradients of the module's own parameters, except the parameters of units().
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        head_norm_->backward_weight(pass, *saved.head_norm);
        embedding_norm_->backward_weight(pass, *saved.embedding_norm);
        input_norm_->backward_weight(pass, *saved.input_norm);
        projection_->backward_weight(pass, *saved.projection);
    }
    void backward_weight_of_block(Pass<Exec>& pass, Saved& saved) const {
        auto own = ahead(pass);
        block_.backward_weight(own, saved.block);
    }
    void backward_weight_of_head(Pass<Exec>& pass, Saved& saved) const {
        auto own = ahead(pass);
        head_->backward_weight(own, *saved.head);
    }
    void backward_weight_of_embedding(Pass<Exec>& pass, Saved& saved) const {
        auto own = ahead(pass);
        embedding_->backward_weight(own, *saved.embedding);
    }

    /// The units of its block.
    [[nodiscard]] std::vector<Unit<T, Exec>>& units() { return block_.units(); }
    template <class F>
    void for_each_router_load(F&& f) const {
        block_.for_each_router_load(f);
    }
    template <class F>
    void for_each_expert_placement(F&& f) {
        block_.for_each_expert_placement(f);
    }
    /// Its other parameters.
    template <class F>
    void for_each_parameter(F&& f) {
        for (auto* const norm : {embedding_norm_.get(), input_norm_.get()}) norm->for_each_parameter(f);
        projection_->for_each_parameter(f);
        head_norm_->for_each_parameter(f);
    }

  private:
    /// The pass over the tokens ahead, with sums of its own.
    [[nodiscard]] Pass<Exec> ahead(Pass<Exec> const& pass) const {
        auto own = pass.on(pass.context);
        own.tokens = pass.ahead[depth_].tokens;
        own.targets = pass.ahead[depth_].targets;
        own.loss_scale = pass.predicted_scale * pass.loss_scale;
        return own;
    }

    std::size_t depth_;
    std::unique_ptr<StreamEmbedding<T, Exec>> embedding_;
    std::unique_ptr<StreamHead<T, Exec>> head_;
    Stack<T, Exec> block_;
    std::unique_ptr<StreamLayer<T, Exec>> embedding_norm_, input_norm_, head_norm_;
    std::unique_ptr<StreamJoin<T, Exec>> projection_;
};

} // namespace pentad::train
