// The two ends of a language model: the embedding and the head with its cross-entropy, both sharded over
// the vocabulary. The logits of all the vocabulary never exist on one rank. A vocabulary that tp does not divide is
// padded.
#pragma once

#include <pentad/kernels/cross_entropy.hpp>
#include <pentad/kernels/embedding.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/overlap.hpp>

#include <cstddef>
#include <string>
#include <utility>

namespace pentad {

namespace detail {
/// The sum of x in f64, on the host: waits for `exec`.
template <class A, class Exec>
double sum(Exec const& exec, View<A const, 1, Exec> x) {
    double result = 0;
    if (kernels::dry("sum", x)) return result;
    Kokkos::parallel_reduce(
        "pentad::sum", Kokkos::RangePolicy<Exec>(exec, 0, x.size()),
        KOKKOS_LAMBDA(std::size_t i, double& partial) { partial += static_cast<double>(x(i)); }, result);
    return result;
}
} // namespace detail

/// The table [vocab, hidden] of an embedding or a head. Tied, it is held by both ends of the pipeline and used for
/// different work there: its gradient is partial over them too.
template <class Stream, class Exec>
class VocabTable {
  public:
    using T = typename Stream::element;
    using Stored = Layout<T, Dims<Dim<ml::vocab, dynamic, ml::tp>, Dim<ml::hidden>>>;
    using Gathered = gathered_stream_t<Stream>;
    using Untied = Parameter<Stored, used_t<Stored, Gathered>, Exec>;
    using Tied = Parameter<Stored, used_t<Stored, Gathered, Layout<T, Dims<>, Replicated<ends<ml::pp>>>>, Exec>;
    using A = accumulator_t<T>;

    /// @param tokens of the vocabulary
    VocabTable(LayerSetup<Exec> const& setup, std::size_t tokens, std::string const& name, bool is_tied)
        : valid_(tokens) {
        auto const shards = static_cast<std::size_t>(setup.context.communicators().extent("tp"));
        std::size_t const padded = (valid_ + shards - 1) / shards * shards;
        if (is_tied)
            tied_ = Tied(setup.context, name, {padded, setup.hidden}, {}, valid_);
        else
            untied_ = Untied(setup.context, name, {padded, setup.hidden}, {}, valid_);
    }

    /// A layer that uses the table says so when it is made.
    void add_user() { ++users_; }
    [[nodiscard]] std::size_t users() const { return users_; }
    [[nodiscard]] View<T, 2, Exec> value() const { return stored().view(); }
    [[nodiscard]] View<A, 2, Exec> gradient() const {
        return tied_.exists() ? tied_.gradient().array() : untied_.gradient().array();
    }
    /// The first row of this rank, and how many of its rows are no padding.
    [[nodiscard]] std::size_t first_row() const {
        return stored().context().communicators().shard_index(AxisNames(ml::tp::name)) * stored().local()[0];
    }
    [[nodiscard]] std::size_t valid_rows() const {
        std::size_t const first = first_row();
        return first >= valid_ ? 0 : std::min(valid_ - first, stored().local()[0]);
    }
    [[nodiscard]] std::size_t extent() const { return stored().extents()[0]; }
    template <class F>
    void for_each_parameter(F&& f) {
        if (tied_.exists())
            f(tied_);
        else
            f(untied_);
    }

  private:
    [[nodiscard]] Tensor<Stored, Exec> const& stored() const {
        return tied_.exists() ? tied_.value() : untied_.value();
    }

    std::size_t valid_, users_ = 0;
    Untied untied_;
    Tied tied_;
};

/// Rows of the table by token; a rank of tp contributes the tokens whose rows it holds.
struct VocabEmbedding {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using output_layout = partial_stream_t<Stream>;
        using Table = VocabTable<Stream, Exec>;

        struct Saved {
            Tensor<dual_t<output_layout>, Exec> dy;
        };

        on(LayerSetup<Exec> const& setup, Table& table)
            : table_(&table), extents_{setup.batch, setup.seq, setup.hidden} {
            table.add_user();
        }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Saved&) const {
            Tensor<output_layout, Exec> y(pass.context, extents_);
            kernels::embedding_forward<T>(pass.context.exec(), tokens(pass), table_->value(),
                                          static_cast<i64>(table_->first_row()), y.rows());
            return y;
        }
        void backward_data(Pass<Exec>&, Tensor<dual_t<output_layout>, Exec> dy, Saved& saved) const {
            saved.dy = std::move(dy);
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            kernels::embedding_backward<T>(pass.context.exec(), tokens(pass), saved.dy.rows(),
                                           static_cast<i64>(table_->first_row()), table_->gradient());
            saved = {};
        }

      private:
        static View<i32 const, 1, Exec> tokens(Pass<Exec> const& pass) {
            return View<i32 const, 1, Exec>(pass.tokens.data(), pass.tokens.size());
        }

        Table* table_;
        std::array<std::size_t, 3> extents_;
    };
};

/// The logits and the cross-entropy of the next token (Shoeybi et al. 2019, section 3: parallel over the vocabulary).
/// The loss is a sum over valid targets; the quotient is taken once, where all of it is known.
template <class Communication = Blocking>
struct VocabHead {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using Table = VocabTable<Stream, Exec>;
        using X = gathered_stream_t<Stream>;
        using input_layout = typename Communication::template boundary<Stream, X>;
        using Logits = product_t<X, typename Table::Stored, 1>;
        template <class... States>
        using TokenValue = token_values_t<Stream, A, States...>;

        struct Saved {
            Tensor<X, Exec> x;
            Tensor<Logits, Exec> logits;
            Tensor<TokenValue<>, Exec> lse;
        };

        on(LayerSetup<Exec> const&, Table& table) : table_(&table) { table.add_user(); }

        /// x W^T, this rank's part of the vocabulary.
        Tensor<Logits, Exec> logits(Pass<Exec>& pass, Tensor<input_layout, Exec> x) const {
            Saved saved;
            multiply(pass, std::move(x), saved);
            return saved.logits;
        }
        /// Adds the losses of the valid targets to pass.loss_sum.
        void forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("head forward", "compute");
            auto const& exec = pass.context.exec();
            std::array<std::size_t, 2> const tokens{x.extents()[0], x.extents()[1]};
            multiply(pass, std::move(x), saved);
            Tensor<TokenValue<PartialLogSumExp<ml::tp>>, Exec> lse(pass.context, tokens);
            Tensor<TokenValue<Partial<ml::tp>>, Exec> target_logit(pass.context, tokens);
            kernels::cross_entropy_partial<T>(exec, saved.logits.rows(), targets(pass), first_row(), valid_rows(),
                                              lse.flat(), target_logit.flat());
            saved.lse = redistribute<TokenValue<>>(std::move(lse));
            auto loss = redistribute<TokenValue<>>(std::move(target_logit));
            kernels::cross_entropy_token_loss<A>(exec, saved.lse.flat(), loss.flat(), targets(pass), loss.flat());
            if (!pass.is_replay) pass.loss_sum += detail::sum<A, Exec>(exec, loss.flat());
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("head backward", "compute");
            auto const& exec = pass.context.exec();
            kernels::cross_entropy_backward<T>(exec, saved.logits.rows(), saved.lse.flat(), targets(pass), first_row(),
                                               valid_rows(), static_cast<A>(pass.loss_scale));
            return produce_and_redistribute<dual_t<X>, dual_t<input_layout>, Communication, 1>(
                pass.context, saved.x.extents(), [&](Tensor<dual_t<X>, Exec> const& dx, RowRange rows) {
                    kernels::gemm(exec, kernels::Transpose::no, kernels::Transpose::no, 1.0,
                                  detail::rows_of<1>(saved.logits, rows), table_->value(), 0.0,
                                  detail::rows_of<1>(dx, rows));
                });
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("head weights", "compute");
            kernels::gemm(pass.context.exec(), kernels::Transpose::yes, kernels::Transpose::no, 1.0,
                          saved.logits.rows(), saved.x.rows(), 1.0, table_->gradient());
            saved = {};
        }

      private:
        void multiply(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            saved.logits = {pass.context, {x.extents()[0], x.extents()[1], table_->extent()}};
            saved.x = redistribute_and_consume<X, Communication, 1>(
                std::move(x), [&](Tensor<X, Exec> const& whole, RowRange rows) {
                    kernels::gemm(pass.context.exec(), kernels::Transpose::no, kernels::Transpose::yes, 1.0,
                                  detail::rows_of<1>(whole, rows), table_->value(), 0.0,
                                  detail::rows_of<1>(saved.logits, rows));
                });
        }
        static View<i32 const, 1, Exec> targets(Pass<Exec> const& pass) {
            return View<i32 const, 1, Exec>(pass.targets.data(), pass.targets.size());
        }
        [[nodiscard]] i64 first_row() const { return static_cast<i64>(table_->first_row()); }
        [[nodiscard]] i64 valid_rows() const { return static_cast<i64>(table_->valid_rows()); }

        Table* table_;
    };
};

} // namespace pentad
