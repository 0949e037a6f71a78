// The softmax top-k router with its load-balancing and z losses. It works on the residual stream as it
// lies: where tp shards the sequence, each rank routes its own tokens, and the router's gradient is partial over tp.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/kernels/router.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/parts.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace pentad::experts {

using namespace ml;

namespace detail {
/// sums = [choices of each expert, sum of each expert's probabilities, sum of lse^2], in f64.
template <class A, class Exec>
void gather_sums(Exec const& exec, View<i64 const, 1, Exec> counts, View<A const, 1, Exec> probability_sums,
                 View<A const, 1, Exec> lse, View<f64, 1, Exec> sums) {
    if (kernels::dry("router_sums", counts, probability_sums, lse, sums)) return;
    std::size_t const n = counts.extent(0);
    Kokkos::parallel_for(
        "pentad::router_sums", Kokkos::RangePolicy<Exec>(exec, 0, n), KOKKOS_LAMBDA(std::size_t e) {
            sums(e) = static_cast<f64>(counts(e));
            sums(n + e) = static_cast<f64>(probability_sums(e));
        });
    kernels::sum_of_squares<A>(exec, lse, View<f64, 0, Exec>(sums.data() + 2 * n));
}
} // namespace detail

/// probabilities = softmax(x W^T); the top k of them, renormalised, weigh the experts (Jiang et al. 2024, section 2.1).
/// Ties go to the lowest expert. Padding chooses none. Losses, over all T other tokens of the micro-batch on all ranks
/// and in all slices: load balancing E sum_e f_e P_e with f_e = choices of e / T and P_e the mean probability (Fedus et
/// al. 2021, eq. 4, with the k choices of a token counted each, as Hugging Face's Mixtral does), and z = mean of
/// logsumexp(logits)^2 (Zoph et al. 2022, eq. 5).
template <class Stream, class Exec>
class Router {
  public:
    using T = typename Stream::element;
    using A = accumulator_t<T>;
    using Weight = Layout<T, Dims<Dim<expert>, Dim<hidden>>>;
    using Bias = Layout<T, Dims<Dim<expert>>>;
    using Choice = with_element_t<with_last_dim_t<Stream, Dim<slot>>, i32>;
    using ChoiceWeight = with_element_t<with_last_dim_t<Stream, Dim<slot>>, A>;
    using Scores = with_element_t<with_last_dim_t<Stream, Dim<expert>>, A>;
    using Sums = summed_t<f64, Dims<Dim<expert>>, Stream>;

    struct Saved {
        Tensor<Stream, Exec> x;
        Tensor<Scores, Exec> probabilities, dlogits;
        Tensor<Choice, Exec> choice;
        Tensor<ChoiceWeight, Exec> weight;
        memory::Buffer<typename Exec::memory_space> lse, balance_gradient;
    };

    Router(LayerSetup<Exec> const& setup, model::Experts const& part, std::string const& name)
        : setup_(setup), weight_(setup.context, name + ".weight", {part.count, setup.hidden}), top_k_(part.top_k),
          renormalises_(part.renormalises), experts_(part.count), slices_(setup.slices),
          tokens_(static_cast<double>(setup.batch * setup.real_length())), sums_(2 * part.count + 1),
          gradient_(part.count) {
        weight_.set_matrix_dimensions({.rows = 1});
        if (part.has_balance_bias) {
            observe::require_dry("a router whose experts have a bias for balance");
            balance_bias_ = {setup.context, name + ".e_score_correction_bias", {part.count}, {.deviation = 0}};
        }
        prepare_redistribution<Sums, invariant_t<Sums>>(setup.context);
    }

    void forward(Pass<Exec>& pass, Tensor<Stream, Exec> const& x, Saved& saved) const {
        auto const& context = pass.context;
        auto const& exec = context.exec();
        std::array<std::size_t, 3> extents = x.extents();
        extents[2] = experts_;
        saved.probabilities = Tensor<Scores, Exec>(context, extents);
        extents[2] = top_k_;
        saved.choice = Tensor<Choice, Exec>(context, extents);
        saved.weight = Tensor<ChoiceWeight, Exec>(context, extents);
        auto const p = saved.probabilities.rows();
        saved.lse = context.take(p.extent(0) * sizeof(A));
        kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::yes, 1.0, x.rows(), weight_.value().view(), 0.0,
                      p);
        std::size_t const length = x.local()[1];
        kernels::router_forward<A>(exec, p, p, lse(saved), saved.choice.rows(), saved.weight.rows(), renormalises_,
                                   {.length = static_cast<i64>(length),
                                    .tokens = static_cast<i64>(setup_.template real_tokens<Stream>(pass, length))});
        balance(pass, saved);
        saved.x = x;
    }

    /// The part of the tokens [batch, seq, ...] that goes to experts: those that are no padding. Of a dry run whose
    /// rank stands for all the mean.
    template <class L>
    [[nodiscard]] double routed_part(Pass<Exec> const& pass, std::size_t length) const {
        if (observe::dry_run_for_all() != nullptr)
            return static_cast<double>(setup_.real_length()) / static_cast<double>(setup_.slices * setup_.seq);
        return static_cast<double>(setup_.template real_tokens<L>(pass, length)) / static_cast<double>(length);
    }
    /// The gradient of x from that of the weights of the choices.
    Tensor<dual_t<Stream>, Exec> backward_data(Pass<Exec>& pass, Tensor<ChoiceWeight, Exec> const& dweight,
                                               Saved& saved) const {
        auto const& exec = pass.context.exec();
        if (slices_ > 1) note_gradient(pass, saved, pass.memory->template of<std::vector<double>>(this));
        saved.dlogits = Tensor<Scores, Exec>(pass.context, saved.probabilities.extents());
        kernels::router_backward<A>(exec, saved.probabilities.rows(), lse(saved), saved.choice.rows(),
                                    saved.weight.rows(), dweight.rows(), balance_gradient(saved),
                                    static_cast<A>(pass.z_scale / tokens_), saved.dlogits.rows(), renormalises_);
        Tensor<dual_t<Stream>, Exec> dx(pass.context, saved.x.extents());
        with_logits_gradient(pass, saved, [&](auto const& d) {
            kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0, d, weight_.value().view(), 0.0,
                          dx.rows());
        });
        return dx;
    }
    /// Frees x, of which backward_data needs the extents.
    static void drop_input(Saved& saved) {
        saved.x = Tensor<Stream, Exec>(saved.x.context(), saved.x.extents(), {}, nullptr);
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        with_logits_gradient(pass, saved, [&](auto const& d) {
            kernels::gemm(pass.context.exec(), kernels::Transpose::yes, kernels::Transpose::no, 1.0, d, saved.x.rows(),
                          1.0, weight_.gradient().array());
        });
        saved = {};
    }
    template <class F>
    void for_each_parameter(F&& f) {
        f(weight_);
        if (balance_bias_.exists()) f(balance_bias_);
    }

  private:
    static View<A, 1, Exec> lse(Saved const& saved) {
        return View<A, 1, Exec>(static_cast<A*>(saved.lse.data()), saved.probabilities.rows().extent(0));
    }
    View<A, 1, Exec> balance_gradient(Saved const& saved) const {
        return View<A, 1, Exec>(static_cast<A*>(saved.balance_gradient.data()), experts_);
    }
    /// The products want the gradient of the logits in the elements of x.
    template <class F>
    void with_logits_gradient(Pass<Exec>& pass, Saved const& saved, F&& f) const {
        if constexpr (std::is_same_v<T, A>) {
            f(saved.dlogits.rows());
        } else {
            Tensor<with_element_t<Scores, T>, Exec> rounded(pass.context, saved.dlogits.extents());
            kernels::convert<A, T>(pass.context.exec(), saved.dlogits.flat(), rounded.flat());
            f(rounded.rows());
        }
    }
    /// Reduces the sums that the losses are made of and notes the losses and the gradient of the probabilities.
    void balance(Pass<Exec>& pass, Saved& saved) const {
        if (slices_ > 1 && pass.is_replay) return; // the sums of whole sequences are known
        auto const& context = pass.context;
        auto const& exec = context.exec();
        auto const p = saved.probabilities.rows();
        memory::Buffer<typename Exec::memory_space> const counts = context.take(experts_ * sizeof(i64)),
                                                          columns = context.take(experts_ * sizeof(A));
        View<i64, 1, Exec> const count_view(static_cast<i64*>(counts.data()), experts_);
        View<A, 1, Exec> const column_view(static_cast<A*>(columns.data()), experts_);
        kernels::router_counts<Exec>(exec, saved.choice.rows(), count_view);
        kernels::router_probability_sums<A>(exec, p, column_view);
        Tensor<Sums, Exec> sums(context, {sums_.size()});
        detail::gather_sums<A, Exec>(exec, count_view, column_view, lse(saved), sums.flat());
        auto const total = redistribute<invariant_t<Sums>>(std::move(sums));
        total.get(sums_.data());
        if (slices_ > 1) { // the losses are those of whole sequences
            auto& all = pass.memory->template of<std::vector<double>>(this);
            if (pass.slice == 0) all.assign(sums_.size(), 0);
            for (std::size_t i = 0; i < all.size(); ++i) sums_[i] = all[i] += sums_[i];
            if (pass.slice + 1 < slices_) return;
        }
        if (!pass.is_replay) {
            double const n = static_cast<double>(experts_);
            for (std::size_t e = 0; e < experts_; ++e)
                pass.balance_sum += n * (sums_[e] / tokens_) * sums_[experts_ + e] / tokens_;
            pass.z_sum += sums_[2 * experts_] / tokens_;
        }
        if (slices_ == 1) note_gradient(pass, saved, sums_);
    }
    /// The gradient of the load-balancing loss with respect to the probabilities, from the sums of whole sequences.
    void note_gradient(Pass<Exec> const& pass, Saved& saved, std::vector<double> const& sums) const {
        double const n = static_cast<double>(experts_);
        for (std::size_t e = 0; e < experts_; ++e)
            gradient_[e] = static_cast<A>(pass.balance_scale * n * (sums[e] / tokens_) / tokens_);
        saved.balance_gradient = pass.context.take(experts_ * sizeof(A));
        memory::copy_from_host(pass.context.exec(), saved.balance_gradient.data(), gradient_.data(),
                               experts_ * sizeof(A));
    }

    LayerSetup<Exec> setup_;
    Parameter<Weight, used_t<Weight, Stream>, Exec> weight_;
    Parameter<Bias, used_t<Bias, Stream>, Exec> balance_bias_;
    std::size_t top_k_;
    bool renormalises_;
    std::size_t experts_, slices_;
    double tokens_;                    ///< in whole sequences
    mutable std::vector<double> sums_; // host copies, kept so that a step allocates nothing
    mutable std::vector<A> gradient_;
};

} // namespace pentad::experts
