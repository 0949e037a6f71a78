// The two ends of a language model: the embedding and the head with its cross-entropy, both sharded over
// the vocabulary. The logits of all the vocabulary never exist on one rank. A vocabulary that its shards do not divide
// is padded.
#pragma once

#include <pentad/kernels/cross_entropy.hpp>
#include <pentad/kernels/embedding.hpp>
#include <pentad/kernels/gemm.hpp>
#include <pentad/layers/contract.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layers/tensor_parallel.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/tensor/overlap.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace pentad {

/// How the table [vocab, hidden] of an embedding or a head lies, what an embedding gives (a rank has the tokens whose
/// rows it holds), and the products of a head with it.
template <class Stream, class Communication, class Exec>
struct VocabParallel {
    using T = typename Stream::element;
    using Shards = ml::tp; ///< of the vocabulary
    using Table = Layout<T, Dims<Dim<ml::vocab, dynamic, Shards>, Dim<ml::hidden>>>;
    using Embedded = partial_stream_t<Stream>;
    using X = gathered_stream_t<Stream>;
    using input_layout = typename Communication::template boundary<Stream, X>;
    using Logits = product_t<X, Table, 1>;
    template <class... Others>
    using used = used_t<Table, X, Others...>;

    /// logits = x W^T; gives x as the backward pass needs it.
    static Tensor<X, Exec> multiply(Tensor<input_layout, Exec> x, Tensor<Table, Exec> const& table,
                                    Tensor<Logits, Exec>& logits) {
        logits = {x.context(), {x.extents()[0], x.extents()[1], table.extents()[0]}};
        return redistribute_and_consume<X, Communication, 1>(
            std::move(x), [&](Tensor<X, Exec> const& whole, RowRange rows) {
                kernels::gemm(whole.context().exec(), kernels::Transpose::no, kernels::Transpose::yes, 1.0,
                              detail::rows_of<1>(whole, rows), table.view(), 0.0, detail::rows_of<1>(logits, rows));
            });
    }
    static Tensor<dual_t<input_layout>, Exec>
    multiply_back(Tensor<Logits, Exec> const& dlogits, Tensor<Table, Exec> const& table, Tensor<X, Exec> const& x) {
        return produce_and_redistribute<dual_t<X>, dual_t<input_layout>, Communication, 1>(
            x.context(), x.extents(), [&](Tensor<dual_t<X>, Exec> const& dx, RowRange rows) {
                kernels::gemm(x.context().exec(), kernels::Transpose::no, kernels::Transpose::no, 1.0,
                              detail::rows_of<1>(dlogits, rows), table.view(), 0.0, detail::rows_of<1>(dx, rows));
            });
    }
    /// gradient += dlogits^T x
    static void add_gradient(Tensor<Logits, Exec> const& dlogits, Tensor<X, Exec> const& x,
                             View<accumulator_t<T>, 2, Exec> const& gradient) {
        kernels::gemm(x.context().exec(), kernels::Transpose::yes, kernels::Transpose::no, 1.0, dlogits.rows(),
                      x.rows(), 1.0, gradient);
    }
};

namespace detail {
template <class Stream>
struct GridEmbedded;
template <class T>
struct GridEmbedded<GridStream<T>> {
    using type = Layout<T,
                        Dims<Dim<ml::batch, dynamic, ml::dp, TensorGrid::first>, Dim<ml::seq, dynamic, ml::cp>,
                             Dim<ml::hidden, dynamic, TensorGrid::second>>,
                        Partial<TensorGrid::columns>>;
};
template <class T>
struct GridEmbedded<CubeStream<T>> {
    using type = Layout<T,
                        Dims<Dim<ml::batch, dynamic, ml::dp>, Dim<ml::seq, dynamic, ml::cp>,
                             Dim<ml::hidden, dynamic, TensorGrid::second, TensorGrid::first>>,
                        Partial<TensorGrid::columns>>;
};
} // namespace detail

/// On a grid the table is sharded as the other weights that take the stream.
template <StreamOnGrid Stream, class Communication, class Exec>
struct VocabParallel<Stream, Communication, Exec> {
    using T = typename Stream::element;
    using Shards = TensorGrid::columns;
    using Vocab = Dim<ml::vocab, dynamic, Shards>;
    using Table = Layout<T, Dims<Vocab, typename detail::GridWeights<Stream>::in>>;
    using Embedded = typename detail::GridEmbedded<Stream>::type;
    using X = Stream;
    using input_layout = Stream;
    using Logits = InsideGrid<T, Vocab>;
    using Map = GridMap<X, Table, 1, Logits, Exec>;
    template <class... Others>
    using used = used_t<Table, X, Logits, Embedded, Others...>;

    static Tensor<X, Exec> multiply(Tensor<X, Exec> x, Tensor<Table, Exec> const& table, Tensor<Logits, Exec>& logits) {
        auto const all = pentad::multiply<typename Map::Outputs>(Map::inputs(x), weights(table));
        logits = Tensor<Logits, Exec>::unchecked(x.context(), {x.extents()[0], x.extents()[1], table.extents()[0]},
                                                 all.block(), all.array_data());
        return x;
    }
    static Tensor<X, Exec> multiply_back(Tensor<Logits, Exec> const& dlogits, Tensor<Table, Exec> const& table,
                                         Tensor<X, Exec> const& x) {
        auto const dx = pentad::multiply<typename Map::Inputs>(Map::outputs(dlogits), weights(table));
        return Tensor<X, Exec>::unchecked(x.context(), x.extents(), dx.block(), dx.array_data());
    }
    static void add_gradient(Tensor<Logits, Exec> const& dlogits, Tensor<X, Exec> const& x,
                             View<accumulator_t<T>, 2, Exec> const& gradient) {
        pentad::multiply_into(detail::as_grid_matrix<typename Map::Gradient>(x.context(), gradient),
                              Map::outputs(dlogits), Map::inputs(x));
    }

  private:
    static Tensor<typename Map::Weights, Exec> weights(Tensor<Table, Exec> const& table) {
        return detail::as_grid_matrix<typename Map::Weights>(table.context(), table.rows());
    }
};

namespace detail {
/// The tokens that this rank has in a layout L [batch, seq, ...], among the tokens `[batch@dp, seq@cp]` of a pass: tp
/// may share out the batch.
template <class L, class Exec>
View<i32 const, 1, Exec> tokens_in(Context<Exec> const& context, View<i32 const, 2, Exec> const& all) {
    AxisNames sharing;
    for (auto const axis : L::value.dimensions[0].axes)
        if (whole_axis_name(axis) == ml::tp::name) sharing.push(axis);
    auto const& communicators = context.communicators();
    std::size_t const count = all.size() / ranks_along(communicators.mesh(), sharing);
    return View<i32 const, 1, Exec>(all.data() + communicators.shard_index(sharing) * count, count);
}
} // namespace detail

/// The table [vocab, hidden] of an embedding or a head. Tied, it is held by both ends of the pipeline and used for
/// different work there: its gradient is partial over them too.
template <class Stream, class Exec>
class VocabTable {
  public:
    using Parallel = VocabParallel<Stream, Blocking, Exec>;
    using T = typename Stream::element;
    using Stored = typename Parallel::Table;
    using Untied = Parameter<Stored, typename Parallel::template used<>, Exec>;
    using Tied = Parameter<Stored, typename Parallel::template used<Layout<T, Dims<>, Replicated<ends<ml::pp>>>>, Exec>;
    using A = accumulator_t<T>;

    /// @param tokens of the vocabulary
    VocabTable(LayerSetup<Exec> const& setup, std::size_t tokens, std::string const& name, bool is_tied)
        : valid_(tokens) {
        auto const shards = static_cast<std::size_t>(setup.context.communicators().extent(Parallel::Shards::name));
        std::size_t const padded = (valid_ + shards - 1) / shards * shards;
        if (is_tied)
            tied_ = Tied(setup.context, name, {padded, setup.hidden}, {}, valid_);
        else
            untied_ = Untied(setup.context, name, {padded, setup.hidden}, {}, valid_);
    }

    [[nodiscard]] Tensor<Stored, Exec> const& stored() const {
        return tied_.exists() ? tied_.value() : untied_.value();
    }
    [[nodiscard]] View<A, 2, Exec> gradient() const {
        return tied_.exists() ? tied_.gradient().array() : untied_.gradient().array();
    }
    /// The first row of this rank, and how many of its rows are no padding.
    [[nodiscard]] std::size_t first_row() const {
        return stored().context().communicators().shard_index(AxisNames(Parallel::Shards::name)) * stored().local()[0];
    }
    [[nodiscard]] std::size_t valid_rows() const {
        std::size_t const first = first_row();
        return first >= valid_ ? 0 : std::min(valid_ - first, stored().local()[0]);
    }
    template <class F>
    void for_each_parameter(F&& f) {
        if (tied_.exists())
            f(tied_);
        else
            f(untied_);
    }

  private:
    std::size_t valid_;
    Untied untied_;
    Tied tied_;
};

/// Rows of the table by token; a rank contributes the tokens whose rows it holds.
struct VocabEmbedding {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using output_layout = typename VocabParallel<Stream, Blocking, Exec>::Embedded;
        using Table = VocabTable<Stream, Exec>;

        struct Saved {
            Tensor<dual_t<output_layout>, Exec> dy;
        };

        /// @param padding the token whose row has no gradient from here, as PyTorch's nn.Embedding with a
        /// padding_idx; a head that multiplies by the same table has its own
        on(LayerSetup<Exec> const& setup, Table& table, std::optional<std::size_t> padding = {})
            : table_(&table), setup_(setup), padding_(padding ? static_cast<i64>(*padding) : -1) {}

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Saved&) const {
            Tensor<output_layout, Exec> y(pass.context, setup_.stream_extents(pass));
            kernels::embedding_forward<T>(pass.context.exec(), tokens(pass), table_->stored().view(),
                                          static_cast<i64>(table_->first_row()), y.array_rows());
            return y;
        }
        void backward_data(Pass<Exec>&, Tensor<dual_t<output_layout>, Exec> dy, Saved& saved) const {
            saved.dy = std::move(dy);
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            kernels::embedding_backward<T>(pass.context.exec(), tokens(pass), saved.dy.rows(),
                                           static_cast<i64>(table_->first_row()), table_->gradient(), padding_);
            saved = {};
        }

      private:
        static View<i32 const, 1, Exec> tokens(Pass<Exec> const& pass) {
            return detail::tokens_in<output_layout>(pass.context, pass.tokens);
        }

        Table* table_;
        LayerSetup<Exec> setup_;
        i64 padding_;
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
        using Parallel = VocabParallel<Stream, Communication, Exec>;
        using X = typename Parallel::X;
        using input_layout = typename Parallel::input_layout;
        using Logits = typename Parallel::Logits;
        using Shards = typename Parallel::Shards;
        template <class... States>
        using TokenValue = values_of_tokens_t<Logits, A, States...>;

        struct Saved {
            Tensor<X, Exec> x;
            Tensor<Logits, Exec> logits;
            Tensor<TokenValue<>, Exec> lse;
        };

        on(LayerSetup<Exec> const&, Table& table) : table_(&table) {}

        /// x W^T, this rank's part of the vocabulary.
        Tensor<Logits, Exec> logits(Tensor<input_layout, Exec> x) const {
            Tensor<Logits, Exec> logits;
            (void)Parallel::multiply(std::move(x), table_->stored(), logits);
            return logits;
        }
        /// Adds the losses of the valid targets to pass.loss_sum.
        void forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("head forward", "compute");
            auto const& exec = pass.context.exec();
            std::array<std::size_t, 2> const tokens{x.extents()[0], x.extents()[1]};
            saved.x = Parallel::multiply(std::move(x), table_->stored(), saved.logits);
            Tensor<TokenValue<PartialLogSumExp<Shards>>, Exec> lse(pass.context, tokens);
            Tensor<TokenValue<Partial<Shards>>, Exec> target_logit(pass.context, tokens);
            kernels::cross_entropy_partial<T>(exec, saved.logits.rows(), targets(pass), first_row(), valid_rows(),
                                              lse.array_flat(), target_logit.array_flat());
            saved.lse = redistribute<TokenValue<>>(std::move(lse));
            auto loss = redistribute<TokenValue<>>(std::move(target_logit));
            kernels::cross_entropy_token_loss<A>(exec, saved.lse.flat(), loss.flat(), targets(pass), loss.flat());
            if (!pass.is_replay) pass.loss_sum += kernels::host_sum<A>(exec, loss.flat());
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("head backward", "compute");
            auto const& exec = pass.context.exec();
            kernels::cross_entropy_backward<T>(exec, saved.logits.rows(), saved.lse.flat(), targets(pass), first_row(),
                                               valid_rows(), static_cast<A>(pass.loss_scale));
            return Parallel::multiply_back(saved.logits, table_->stored(), saved.x);
        }
        void backward_weight(Pass<Exec>&, Saved& saved) const {
            observe::Scope const scope("head weights", "compute");
            Parallel::add_gradient(saved.logits, saved.x, table_->gradient());
            saved = {};
        }

      private:
        static View<i32 const, 1, Exec> targets(Pass<Exec> const& pass) {
            return detail::tokens_in<Logits>(pass.context, pass.targets);
        }
        [[nodiscard]] i64 first_row() const { return static_cast<i64>(table_->first_row()); }
        [[nodiscard]] i64 valid_rows() const { return static_cast<i64>(table_->valid_rows()); }

        Table* table_;
    };
};

} // namespace pentad
