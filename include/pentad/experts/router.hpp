// The router: scores of experts from a linear map of the tokens, who chooses (choice.hpp), weights, the losses
// (balance.hpp), and the bias that balances without one. Each rank routes tokens of its own.
#pragma once

#include <pentad/experts/balance.hpp>
#include <pentad/experts/choice.hpp>
#include <pentad/experts/detail/random_rows.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/kernels/router.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layers/router_load.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/memory/host_array.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

namespace pentad::experts {

using namespace ml;

/// Scores are a softmax or sigmoid of x W^T, in accumulators whatever the stream's elements; chosen experts are weighed
/// by their scores (model::Router). Padding chooses none.
template <class Stream, class Exec>
class Router {
  public:
    using T = typename Stream::element;
    using A = accumulator_t<T>;
    using Weight = Layout<T, Dims<Dim<expert>, Dim<hidden>>>;
    using Bias = Layout<T, Dims<Dim<expert>>>;
    using ChoiceOf = Choice<Stream, Exec>;
    using Losses = BalanceLoss<Stream, Exec>;
    using Chosen = with_element_t<with_last_dim_t<Stream, Dim<slot>>, i32>;
    using ChoiceWeight = with_element_t<with_last_dim_t<Stream, Dim<slot>>, A>;
    using Scores = with_element_t<with_last_dim_t<Stream, Dim<expert>>, A>;

    struct Saved {
        Tensor<Stream, Exec> x;
        Tensor<Scores, Exec> scores, dlogits;
        Tensor<Scores, Exec> logits; ///< of sigmoid scores, where there is a z loss
        Tensor<Chosen, Exec> choice;
        Tensor<ChoiceWeight, Exec> weight;
        memory::Buffer<typename Exec::memory_space> lse, total;
        typename Losses::Gradient balance;
    };

    Router(LayerSetup<Exec> const& setup, model::Experts const& part, std::string const& name)
        : setup_(setup), weight_(setup.context, name + ".weight", {part.count, setup.hidden}),
          choice_(setup, part, name), losses_(setup, part), jitter_(part.router.jitter), stream_(random::stream(name)),
          experts_(part.count), form_{.is_sigmoid = part.router.score == model::RouterScore::sigmoid,
                                      .renormalises = part.router.renormalises,
                                      .scale = part.router.scale} {
        weight_.set_matrix_dimensions({.rows = 1});
        load_ = setup.context.take((part.count + 1) * sizeof(i64));
        memory::clear(setup.context.exec(), load_.data(), (part.count + 1) * sizeof(i64));
        if (part.router.has_bias) {
            bias_ = {setup.context, name + ".e_score_correction_bias", {part.count}, {.deviation = 0}};
            seen_bias_ = setup.context.take(part.count * sizeof(A));
            memory::clear(setup.context.exec(), seen_bias_.data(), part.count * sizeof(A));
            auto const count = static_cast<double>(part.count);
            double const mean = setup.micro_batches * losses_.tokens() * static_cast<double>(part.top_k) / count;
            bias_.set_own_optimizer(
                model::LoadBalance{.rate = part.router.bias_rate,
                                   .tolerance = 0.5 / count,
                                   .whole = part.router.bias_step == model::BiasStep::proportional ? mean : 0});
        }
    }

    void forward(Pass<Exec>& pass, Tensor<Stream, Exec> const& x, Saved& saved) const {
        auto const& context = pass.context;
        auto const& exec = context.exec();
        auto extents = x.extents();
        extents[2] = experts_;
        saved.scores = Tensor<Scores, Exec>(context, extents);
        bool const keeps_logits = form_.is_sigmoid && pass.z_scale != 0 && pass.saves;
        saved.logits = keeps_logits ? Tensor<Scores, Exec>(context, extents) : Tensor<Scores, Exec>();
        extents[2] = choice_.slots();
        saved.choice = Tensor<Chosen, Exec>(context, extents);
        saved.weight = Tensor<ChoiceWeight, Exec>(context, extents);
        auto const scores = saved.scores.rows();
        auto const logits = keeps_logits ? saved.logits.rows() : scores;
        saved.lse = context.take(scores.extent(0) * sizeof(A));
        saved.total = context.take(scores.extent(0) * sizeof(A));
        with_input(pass, x, [&](auto const& seen) {
            kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::yes, 1.0, seen, weight_.value().view(), 0.0,
                          logits);
        });
        auto const rows = token_rows(pass, x.local()[1]);
        kernels::router_scores<A>(exec, logits, scores, lse(saved), total(saved), form_, rows);
        choice_.choose(pass, scores, bias(), rows, saved.choice.rows());
        kernels::router_weights<A>(exec, scores, saved.choice.rows(), saved.weight.rows(), form_);
        if (pass.trains && !pass.is_replay) note_load(exec, saved.choice.rows());
        losses_.forward(pass, scores, total(saved), lse(saved), saved.choice.rows(), saved.balance);
        saved.x = x;
    }

    /// Slots of a token.
    [[nodiscard]] std::size_t slots() const { return choice_.slots(); }
    /// Whether the choice for a token depends on no other token, but for training's.
    [[nodiscard]] bool is_tokenwise() const { return choice_.is_tokenwise(); }
    /// What the tokens [batch, seq, ...] choose; padding goes to no expert. A dry run whose rank stands for all ranks
    /// gets their mean.
    [[nodiscard]] Routed routed(Pass<Exec> const& pass, std::size_t length) const {
        auto routed = choice_.routed();
        bool const is_mean = observe::dry_run_for_all() != nullptr;
        auto const real = is_mean ? setup_.real_length() : setup_.template real_tokens<Stream>(pass, length);
        routed.tokens = static_cast<double>(real) / static_cast<double>(is_mean ? setup_.slices * setup_.seq : length);
        return routed;
    }
    /// The gradient of x from that of the weights of the choices.
    Tensor<dual_t<Stream>, Exec> backward_data(Pass<Exec>& pass, Tensor<ChoiceWeight, Exec> const& dweight,
                                               Saved& saved) const {
        auto const& exec = pass.context.exec();
        losses_.prepare_backward(pass, saved.balance);
        saved.dlogits = Tensor<Scores, Exec>(pass.context, saved.scores.extents());
        auto const scores = saved.scores.rows();
        auto const logits = saved.logits.empty() ? View<A const, 2, Exec>() : saved.logits.rows();
        i64 const rows_of_share = static_cast<i64>(scores.extent(0) / std::max<std::size_t>(saved.balance.rows, 1));
        kernels::router_backward<A>(exec, logits, scores, lse(saved), total(saved), saved.choice.rows(),
                                    saved.weight.rows(), dweight.rows(), saved.balance.view(experts_), rows_of_share,
                                    static_cast<A>(pass.z_scale / losses_.tokens()), saved.dlogits.rows(), form_,
                                    token_rows(pass, saved.x.local()[1]));
        Tensor<dual_t<Stream>, Exec> dx(pass.context, saved.x.extents());
        with_logits_gradient(pass, saved, [&](auto const& d) {
            kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0, d, weight_.value().view(), 0.0,
                          dx.rows());
        });
        if (has_jitter(pass)) jitter(pass, View<T const, 2, Exec>(dx.rows()), dx.rows());
        return dx;
    }
    /// Frees x, of which backward_data needs the extents.
    static void drop_input(Saved& saved) {
        saved.x = Tensor<Stream, Exec>::without_memory(saved.x.context(), saved.x.extents());
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        auto const& exec = pass.context.exec();
        with_logits_gradient(pass, saved, [&](auto const& d) {
            with_input(pass, saved.x, [&](auto const& seen) {
                kernels::gemm(exec, kernels::Transpose::yes, kernels::Transpose::no, 1.0, d, seen, 1.0,
                              weight_.gradient().array());
            });
        });
        if (bias_.exists()) { // here and not in the forward pass, which recomputation repeats
            auto const counts = pass.context.take(experts_ * sizeof(i64));
            View<i64, 1, Exec> const load(static_cast<i64*>(counts.data()), experts_);
            kernels::router_counts<Exec>(exec, saved.choice.rows(), load);
            kernels::add_excess_load<A>(exec, load, bias_.gradient().array());
        }
        saved = {};
    }
    /// The load of all training passes so far, with the biases by which the last one chose. Waits.
    [[nodiscard]] RouterLoad load() const {
        auto const& exec = setup_.context.exec();
        memory::HostArray<i64> const counts(experts_ + 1);
        memory::copy_to_host(exec, counts.data(), load_.data(), counts.size() * sizeof(i64));
        bool const has_seen = std::any_of(counts.data(), counts.data() + counts.size(), [](i64 n) { return n > 0; });
        RouterLoad load{.choices = {counts.data(), counts.data() + experts_},
                        .dropped = static_cast<double>(counts[experts_]),
                        .axes = Losses::Sums::value.partial,
                        .has_bias = bias_.exists() && has_seen};
        if (!load.has_bias) return load;
        memory::HostArray<A> const biases(experts_);
        memory::copy_to_host(exec, biases.data(), seen_bias_.data(), experts_ * sizeof(A));
        auto const [least, most] = std::minmax_element(biases.data(), biases.data() + experts_);
        load.least_bias = static_cast<double>(*least);
        load.most_bias = static_cast<double>(*most);
        return load;
    }
    template <class F>
    void for_each_parameter(F&& f) {
        f(weight_);
        if (bias_.exists()) f(bias_);
    }

  private:
    void note_load(Exec const& exec, View<i32 const, 2, Exec> choice) const {
        kernels::note_choices(exec, choice, View<i64, 1, Exec>(static_cast<i64*>(load_.data()), experts_ + 1));
        if (bias_.exists()) memory::copy(exec, seen_bias_.data(), bias().data(), experts_ * sizeof(A));
    }
    static View<A, 1, Exec> lse(Saved const& saved) {
        return View<A, 1, Exec>(static_cast<A*>(saved.lse.data()), saved.scores.rows().extent(0));
    }
    static View<A, 1, Exec> total(Saved const& saved) {
        return View<A, 1, Exec>(static_cast<A*>(saved.total.data()), saved.scores.rows().extent(0));
    }
    [[nodiscard]] View<A const, 1, Exec> bias() const {
        return bias_.exists() ? bias_.exact_value() : View<A const, 1, Exec>();
    }
    [[nodiscard]] kernels::TokenRows token_rows(Pass<Exec> const& pass, std::size_t length) const {
        return {.length = static_cast<i64>(length),
                .tokens = static_cast<i64>(setup_.template real_tokens<Stream>(pass, length))};
    }

    [[nodiscard]] bool has_jitter(Pass<Exec> const& pass) const { return jitter_ > 0 && pass.trains; }
    void jitter(Pass<Exec> const& pass, View<T const, 2, Exec> x, View<T, 2, Exec> y) const {
        auto const numbers = choice_.token_numbers(pass);
        jittered<T>(pass.context.exec(), x, choice_.number_view(numbers), jitter_, pass.draw, stream_, y);
    }
    /// Calls f(what the router sees of x).
    template <class F>
    void with_input(Pass<Exec> const& pass, Tensor<Stream, Exec> const& x, F&& f) const {
        if (!has_jitter(pass)) return f(x.rows());
        Tensor<Stream, Exec> const seen(pass.context, x.extents());
        jitter(pass, x.rows(), seen.rows());
        f(seen.rows());
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

    LayerSetup<Exec> setup_;
    Parameter<Weight, used_t<Weight, Stream>, Exec> weight_;
    Parameter<Bias, used_t<Bias, Stream>, Exec> bias_;
    ChoiceOf choice_;
    Losses losses_;
    double jitter_;
    std::uint64_t stream_;
    std::size_t experts_;
    kernels::RouterForm form_;
    memory::Buffer<typename Exec::memory_space> load_;      ///< RouterLoad: choices of each expert, those without room
    memory::Buffer<typename Exec::memory_space> seen_bias_; ///< as it was then; its values need not be in memory
};

} // namespace pentad::experts
