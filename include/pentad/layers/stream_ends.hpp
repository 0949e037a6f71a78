// The ends of a language model: embeddings of tokens and positions before its blocks, the head behind them, and the
// projection that joins the stream with an embedding for multi-token prediction. As StreamLayer is, they are typed
// inside, and the stream is a layout value outside.
#pragma once

#include <pentad/layers/joined_projection.hpp>
#include <pentad/layers/positions.hpp>
#include <pentad/layers/stream_layer.hpp>
#include <pentad/layers/vocabulary.hpp>
#include <pentad/layout/streams.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad {

/// The table of an embedding or a head.
template <class T, class Exec>
class StreamTable {
  public:
    virtual ~StreamTable() = default;
    virtual void for_each_parameter(ParameterVisitor<T, Exec> const& visit) = 0;
};

/// Tokens of a pass as a value of the stream.
template <class T, class Exec>
class StreamEmbedding {
  public:
    virtual ~StreamEmbedding() = default;
    [[nodiscard]] virtual std::unique_ptr<SavedState> make_saved() const = 0;
    virtual AnyTensor<T, Exec> forward(Pass<Exec>& pass, SavedState& saved) const = 0;
    virtual void backward_data(Pass<Exec>& pass, AnyTensor<T, Exec> dy, SavedState& saved) const = 0;
    virtual void backward_weight(Pass<Exec>& pass, SavedState& saved) const = 0;
};

/// The logits of the next tokens, and their loss.
template <class T, class Exec>
class StreamHead {
  public:
    virtual ~StreamHead() = default;
    [[nodiscard]] virtual std::unique_ptr<SavedState> make_saved() const = 0;
    /// Adds the losses of the valid targets to pass.loss_sum.
    virtual void forward(Pass<Exec>& pass, AnyTensor<T, Exec> x, SavedState& saved) const = 0;
    /// In the layout StreamEnds::logits().
    virtual AnyTensor<T, Exec> logits(AnyTensor<T, Exec> x) const = 0;
    virtual AnyTensor<T, Exec> backward_data(Pass<Exec>& pass, SavedState& saved) const = 0;
    virtual void backward_weight(Pass<Exec>& pass, SavedState& saved) const = 0;
};

/// Learned embeddings of positions, added to the stream.
template <class T, class Exec>
class StreamPositions {
  public:
    virtual ~StreamPositions() = default;
    [[nodiscard]] virtual std::unique_ptr<SavedState> make_saved() const = 0;
    virtual AnyTensor<T, Exec> forward(Pass<Exec>& pass, AnyTensor<T, Exec> x) const = 0;
    virtual AnyTensor<T, Exec> backward_data(AnyTensor<T, Exec> dy, SavedState& saved) const = 0;
    virtual void backward_weight(Pass<Exec>& pass, SavedState& saved) const = 0;
    virtual void for_each_parameter(ParameterVisitor<T, Exec> const& visit) = 0;
};

/// JoinedProjection, of two values of the stream.
template <class T, class Exec>
class StreamJoin {
  public:
    virtual ~StreamJoin() = default;
    [[nodiscard]] virtual std::unique_ptr<SavedState> make_saved() const = 0;
    virtual AnyTensor<T, Exec> forward(Pass<Exec>& pass, AnyTensor<T, Exec> a, AnyTensor<T, Exec> b,
                                       SavedState& saved) const = 0;
    /// The gradients of both.
    virtual std::pair<AnyTensor<T, Exec>, AnyTensor<T, Exec>> backward_data(Pass<Exec>& pass, AnyTensor<T, Exec> dy,
                                                                            SavedState& saved) const = 0;
    virtual void backward_weight(Pass<Exec>& pass, SavedState& saved) const = 0;
    virtual void for_each_parameter(ParameterVisitor<T, Exec> const& visit) = 0;
};

/// Makes the ends of a model for a stream. What it makes is collective as the constructors of the layers are.
template <class T, class Exec>
class StreamEnds {
  public:
    virtual ~StreamEnds() = default;
    /// The layout of the logits [batch, seq, vocab], whose tokens are shared out as the losses of a head are.
    [[nodiscard]] virtual LayoutValue const& logits() const = 0;
    /// @param is_tied whether both ends of the pipeline use it
    [[nodiscard]] virtual std::unique_ptr<StreamTable<T, Exec>>
    make_table(LayerSetup<Exec> const& setup, std::size_t tokens, std::string const& name, bool is_tied) const = 0;
    /// @param table made by make_table(), which outlives the embedding @param padding the token without a gradient
    [[nodiscard]] virtual std::unique_ptr<StreamEmbedding<T, Exec>>
    make_embedding(LayerSetup<Exec> const& setup, StreamTable<T, Exec>& table,
                   std::optional<std::size_t> padding) const = 0;
    [[nodiscard]] virtual std::unique_ptr<StreamHead<T, Exec>> make_head(LayerSetup<Exec> const& setup,
                                                                         StreamTable<T, Exec>& table) const = 0;
    /// @throws std::invalid_argument where there are fewer positions than tokens in a sequence
    [[nodiscard]] virtual std::unique_ptr<StreamPositions<T, Exec>>
    make_positions(LayerSetup<Exec> const& setup, std::size_t positions, std::string const& name) const = 0;
    /// @throws std::invalid_argument on a grid of tensor parallelism
    [[nodiscard]] virtual std::unique_ptr<StreamJoin<T, Exec>> make_join(LayerSetup<Exec> const& setup,
                                                                         std::string const& name) const = 0;
};

/// The ends of models on a stream of layout Stream.
template <class Stream, class Exec>
class EndsOn final : public StreamEnds<typename Stream::element, Exec> {
    using T = typename Stream::element;
    using Any = AnyTensor<T, Exec>;
    using Embedding = VocabEmbedding::on<Stream, Exec>;
    using Head = typename VocabHead<Overlap<4>>::template on<Stream, Exec>;
    using Table = VocabTable<Stream, Exec>;
    using Gradient = Tensor<dual_t<Stream>, Exec>;

  public:
    [[nodiscard]] LayoutValue const& logits() const override { return Head::Logits::value; }
    [[nodiscard]] std::unique_ptr<StreamTable<T, Exec>> make_table(LayerSetup<Exec> const& setup, std::size_t tokens,
                                                                   std::string const& name,
                                                                   bool is_tied) const override {
        return std::make_unique<TableOn>(Table(setup, tokens, name, is_tied));
    }
    [[nodiscard]] std::unique_ptr<StreamEmbedding<T, Exec>>
    make_embedding(LayerSetup<Exec> const& setup, StreamTable<T, Exec>& table,
                   std::optional<std::size_t> padding) const override {
        return std::make_unique<EmbeddingOn>(Embedding(setup, of(table), padding));
    }
    [[nodiscard]] std::unique_ptr<StreamHead<T, Exec>> make_head(LayerSetup<Exec> const& setup,
                                                                 StreamTable<T, Exec>& table) const override {
        return std::make_unique<HeadOn>(Head(setup, of(table)));
    }
    [[nodiscard]] std::unique_ptr<StreamPositions<T, Exec>>
    make_positions(LayerSetup<Exec> const& setup, std::size_t positions, std::string const& name) const override {
        return std::make_unique<PositionsOn>(LearnedPositions<Stream, Exec>(setup, positions, name));
    }
    [[nodiscard]] std::unique_ptr<StreamJoin<T, Exec>> make_join(LayerSetup<Exec> const& setup,
                                                                 std::string const& name) const override {
        if constexpr (StreamOnGrid<Stream>)
            throw std::invalid_argument(name + ": tensor parallelism on a grid does not predict more than one token");
        else
            return std::make_unique<JoinOn<JoinedProjection::on<Stream, Exec>>>(
                JoinedProjection::on<Stream, Exec>(setup, name));
    }

  private:
    template <class Of>
    struct Saved final : SavedState {
        typename Of::Saved of{};
        void clear() override { of = {}; }
    };
    template <class Of>
    static typename Of::Saved& of(SavedState& saved) {
        return static_cast<Saved<Of>&>(saved).of;
    }

    struct TableOn final : StreamTable<T, Exec> {
        explicit TableOn(Table made) : table(std::move(made)) {}
        void for_each_parameter(ParameterVisitor<T, Exec> const& visit) override { table.for_each_parameter(visit); }
        Table table;
    };
    static Table& of(StreamTable<T, Exec>& table) { return dynamic_cast<TableOn&>(table).table; }

    struct EmbeddingOn final : StreamEmbedding<T, Exec> {
        explicit EmbeddingOn(Embedding made) : embedding(std::move(made)) {}
        [[nodiscard]] std::unique_ptr<SavedState> make_saved() const override {
            return std::make_unique<Saved<Embedding>>();
        }
        Any forward(Pass<Exec>& pass, SavedState& saved) const override {
            return redistribute<Stream>(embedding.forward(pass, of<Embedding>(saved)));
        }
        void backward_data(Pass<Exec>& pass, Any dy, SavedState& saved) const override {
            embedding.backward_data(
                pass,
                redistribute<dual_t<typename Embedding::output_layout>>(std::move(dy).template as<dual_t<Stream>>()),
                of<Embedding>(saved));
        }
        void backward_weight(Pass<Exec>& pass, SavedState& saved) const override {
            embedding.backward_weight(pass, of<Embedding>(saved));
        }
        Embedding embedding;
    };
    struct HeadOn final : StreamHead<T, Exec> {
        explicit HeadOn(Head made) : head(std::move(made)) {}
        [[nodiscard]] std::unique_ptr<SavedState> make_saved() const override {
            return std::make_unique<Saved<Head>>();
        }
        void forward(Pass<Exec>& pass, Any x, SavedState& saved) const override {
            head.forward(pass, input(std::move(x)), of<Head>(saved));
        }
        Any logits(Any x) const override { return head.logits(input(std::move(x))); }
        Any backward_data(Pass<Exec>& pass, SavedState& saved) const override {
            return redistribute<dual_t<Stream>>(head.backward_data(pass, of<Head>(saved)));
        }
        void backward_weight(Pass<Exec>& pass, SavedState& saved) const override {
            head.backward_weight(pass, of<Head>(saved));
        }
        static Tensor<typename Head::input_layout, Exec> input(Any x) {
            return redistribute<typename Head::input_layout>(std::move(x).template as<Stream>());
        }
        Head head;
    };
    struct PositionsOn final : StreamPositions<T, Exec> {
        using Of = LearnedPositions<Stream, Exec>;
        explicit PositionsOn(Of made) : positions(std::move(made)) {}
        [[nodiscard]] std::unique_ptr<SavedState> make_saved() const override { return std::make_unique<Saved<Of>>(); }
        Any forward(Pass<Exec>& pass, Any x) const override {
            return positions.forward(pass, std::move(x).template as<Stream>());
        }
        Any backward_data(Any dy, SavedState& saved) const override {
            return positions.backward_data(std::move(dy).template as<dual_t<Stream>>(), of<Of>(saved));
        }
        void backward_weight(Pass<Exec>& pass, SavedState& saved) const override {
            positions.backward_weight(pass, of<Of>(saved));
        }
        void for_each_parameter(ParameterVisitor<T, Exec> const& visit) override {
            positions.for_each_parameter(visit);
        }
        Of positions;
    };
    template <class Of>
    struct JoinOn final : StreamJoin<T, Exec> {
        explicit JoinOn(Of made) : join(std::move(made)) {}
        [[nodiscard]] std::unique_ptr<SavedState> make_saved() const override { return std::make_unique<Saved<Of>>(); }
        Any forward(Pass<Exec>& pass, Any a, Any b, SavedState& saved) const override {
            return join.forward(pass, std::move(a).template as<Stream>(), std::move(b).template as<Stream>(),
                                of<Of>(saved));
        }
        std::pair<Any, Any> backward_data(Pass<Exec>& pass, Any dy, SavedState& saved) const override {
            return join.backward_data(pass, std::move(dy).template as<dual_t<Stream>>(), of<Of>(saved));
        }
        void backward_weight(Pass<Exec>& pass, SavedState& saved) const override {
            join.backward_weight(pass, of<Of>(saved));
        }
        void for_each_parameter(ParameterVisitor<T, Exec> const& visit) override { join.for_each_parameter(visit); }
        Of join;
    };
};

} // namespace pentad
