// Multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2): modules on the last stage, of which the k-th
// predicts the token k further ahead than the head does.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/layers/stack.hpp>
#include <pentad/layers/vocabulary.hpp>
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

namespace detail {
/// joined[r] = [a[r], b[r]]
template <class T, class Exec>
void join_rows(Exec const& exec, kernels::In<T, 2, Exec> a, kernels::In<T, 2, Exec> b,
               kernels::Out<T, 2, Exec> joined) {
    if (kernels::dry("join_rows", a, b, joined)) return;
    std::size_t const width = a.extent(1);
    kernels::for_each_element(
        "pentad::join_rows", exec, a.size(), KOKKOS_LAMBDA(i64 i) {
            auto const r = static_cast<std::size_t>(i) / width, c = static_cast<std::size_t>(i) % width;
            joined(r, c) = a(r, c);
            joined(r, width + c) = b(r, c);
        });
}
/// Its adjoint.
template <class T, class Exec>
void split_rows(Exec const& exec, kernels::In<T, 2, Exec> joined, kernels::Out<T, 2, Exec> a,
                kernels::Out<T, 2, Exec> b) {
    if (kernels::dry("split_rows", joined, a, b)) return;
    std::size_t const width = a.extent(1);
    kernels::for_each_element(
        "pentad::split_rows", exec, a.size(), KOKKOS_LAMBDA(i64 i) {
            auto const r = static_cast<std::size_t>(i) / width, c = static_cast<std::size_t>(i) % width;
            a(r, c) = joined(r, c);
            b(r, c) = joined(r, width + c);
        });
}
} // namespace detail

/// The k-th module, from 1: h_k[i] = block(M [norm(embedding of token i + k); norm(h_{k-1}[i])]), from which the
/// model's head, behind a norm of the module's own, predicts token i + k + 1. h_0 is what the head takes, as in the
/// implementations that run the published weights. The last k positions of a sequence have token 0 there, and no loss.
template <class Stream, class Exec>
class Predictor {
  public:
    using T = typename Stream::element;
    using Activation = Tensor<Stream, Exec>;
    using Gradient = Tensor<dual_t<Stream>, Exec>;
    using Embedding = VocabEmbedding::on<Stream, Exec>;
    using Head = VocabHead<Overlap<4>>::on<Stream, Exec>;
    using Table = VocabTable<Stream, Exec>;
    using Norm = StreamLayer<Stream, Exec>;
    using Joined = with_last_dim_t<Stream, Dim<joined>>;
    using Weight = Layout<T, Dims<Dim<hidden>, Dim<joined>>>;
    static_assert(StreamOnGrid<Stream> || std::is_same_v<product_t<Joined, Weight, 1>, Stream>); // a grid makes none

    struct Saved {
        typename Embedding::Saved embedding;
        std::unique_ptr<SavedState> embedding_norm, input_norm, head_norm; ///< made at the first forward pass
        Tensor<Joined, Exec> joined;
        typename Stack<Stream, Exec>::Saved block;
        typename Head::Saved head;
        Gradient projected; ///< of what the projection gives, until its weight's gradient

        void clear() {
            embedding = {};
            for (auto* const norm : {embedding_norm.get(), input_norm.get(), head_norm.get()})
                if (norm != nullptr) norm->clear();
            joined = {};
            block.clear();
            head = {};
            projected = {};
        }
    };

    /// @param depth k - 1
    Predictor(LayerSetup<Exec> const& setup, model::Model const& model, LayerRegistry<Stream, Exec> const& registry,
              std::size_t depth, model::Recomputation const& recompute, Table& embedding, Table& head)
        : depth_(depth), embedding_(setup, embedding, model.padding_token), head_(setup, head),
          block_(setup, model, registry, model.blocks.size() + depth, 1, recompute) {
        std::string const prefix = model::Model::prefix(model.blocks.size() + depth);
        embedding_norm_ = registry.make_norm(setup, model.norm, prefix + "enorm");
        input_norm_ = registry.make_norm(setup, model.norm, prefix + "hnorm");
        head_norm_ = registry.make_norm(setup, model.norm, prefix + "shared_head.norm");
        projection_ = {setup.context, prefix + "eh_proj.weight", {setup.hidden, 2 * setup.hidden}};
        projection_.set_matrix_dimensions({.rows = 1});
    }

    /// h_k from h_{k-1}. Adds the losses of its tokens to pass.predicted_sum. The caller has acquired the
    /// values of the tables and of its parameters, but for those of units().
    Activation forward(Pass<Exec>& pass, Activation h, Saved& saved) const {
        auto const& exec = pass.context.exec();
        if (!saved.head_norm) {
            saved.embedding_norm = embedding_norm_->make_saved();
            saved.input_norm = input_norm_->make_saved();
            saved.head_norm = head_norm_->make_saved();
        }
        auto own = ahead(pass);
        auto extents = h.extents();
        auto const embedded = embedding_norm_->forward(
            own, redistribute<Stream>(embedding_.forward(own, saved.embedding)), *saved.embedding_norm);
        auto const input = input_norm_->forward(own, std::move(h), *saved.input_norm);
        extents[2] = 2 * input.extents()[2];
        saved.joined = Tensor<Joined, Exec>(pass.context, extents);
        detail::join_rows<T>(exec, embedded.rows(), input.rows(), saved.joined.rows());
        Activation x(pass.context, input.extents());
        kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::yes, 1.0, saved.joined.rows(),
                      projection_.value().view(), 0.0, x.rows());
        x = block_.forward(own, std::move(x), saved.block);
        auto predicted = head_norm_->forward(own, x, *saved.head_norm);
        head_.forward(own, redistribute<typename Head::input_layout>(std::move(predicted)), saved.head);
        add_sums(pass, own);
        return x;
    }
    /// The gradient of h_{k-1}. @param dh of h_k by the module after it; empty: there is none
    Gradient backward_data(Pass<Exec>& pass, Gradient dh, Saved& saved) const {
        auto const& exec = pass.context.exec();
        auto own = ahead(pass);
        auto dx = head_norm_->backward_data(own, redistribute<dual_t<Stream>>(head_.backward_data(own, saved.head)),
                                            *saved.head_norm);
        if (!dh.empty()) kernels::add<T>(exec, dh.flat(), dx.flat());
        dx = block_.backward_data(own, std::move(dx), saved.block);
        Tensor<dual_t<Joined>, Exec> const djoined(pass.context, saved.joined.extents());
        kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0, dx.rows(), projection_.value().view(),
                      0.0, djoined.rows());
        Gradient dembedded(pass.context, dx.extents()), dinput(pass.context, dx.extents());
        detail::split_rows<T>(exec, djoined.rows(), dembedded.rows(), dinput.rows());
        saved.projected = std::move(dx);
        dembedded = embedding_norm_->backward_data(own, std::move(dembedded), *saved.embedding_norm);
        embedding_.backward_data(own, redistribute<dual_t<typename Embedding::output_layout>>(std::move(dembedded)),
                                 saved.embedding);
        return input_norm_->backward_data(own, std::move(dinput), *saved.input_norm);
    }
    /// Of its own parameters but those of units().
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        head_norm_->backward_weight(pass, *saved.head_norm);
        embedding_norm_->backward_weight(pass, *saved.embedding_norm);
        input_norm_->backward_weight(pass, *saved.input_norm);
        kernels::gemm(pass.context.exec(), kernels::Transpose::yes, kernels::Transpose::no, 1.0, saved.projected.rows(),
                      saved.joined.rows(), 1.0, projection_.gradient().array());
        saved.projected = {};
        saved.joined = {};
    }
    void backward_weight_of_block(Pass<Exec>& pass, Saved& saved) const {
        auto own = ahead(pass);
        block_.backward_weight(own, saved.block);
    }
    void backward_weight_of_head(Pass<Exec>& pass, Saved& saved) const {
        auto own = ahead(pass);
        head_.backward_weight(own, saved.head);
    }
    void backward_weight_of_embedding(Pass<Exec>& pass, Saved& saved) const {
        auto own = ahead(pass);
        embedding_.backward_weight(own, saved.embedding);
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
        f(projection_);
        head_norm_->for_each_parameter(f);
    }

  private:
    /// The same pass over the tokens ahead, with sums of its own.
    [[nodiscard]] Pass<Exec> ahead(Pass<Exec> const& pass) const {
        auto own = pass;
        own.tokens = pass.ahead[depth_].tokens;
        own.targets = pass.ahead[depth_].targets;
        own.loss_scale = pass.predicted_scale * pass.loss_scale;
        own.loss_sum = own.balance_sum = own.z_sum = 0;
        return own;
    }
    static void add_sums(Pass<Exec>& pass, Pass<Exec> const& own) {
        pass.predicted_sum += own.loss_sum;
        pass.balance_sum += own.balance_sum;
        pass.z_sum += own.z_sum;
    }

    std::size_t depth_;
    Embedding embedding_;
    Head head_;
    Stack<Stream, Exec> block_;
    std::unique_ptr<Norm> embedding_norm_, input_norm_, head_norm_;
    Parameter<Weight, used_t<Weight, Joined>, Exec> projection_;
};

} // namespace pentad::train
