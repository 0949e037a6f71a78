// The short causal convolution of a state-space layer over a sequence that may be sharded over cp.
#pragma once

#include <pentad/kernels/causal_convolution.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace pentad {

namespace detail {
template <class Channel>
struct FilterOf;
template <class T, class D>
struct FilterOf<Layout<T, Dims<D>>> {
    using type = Layout<T, Dims<D, Dim<ml::slot, 1>, Dim<ml::tap>>>;
};
} // namespace detail

/// The last tokens of the sequences of a rank's lane that are being written, `[sequence, taps - 1, channels]`.
template <class T, class Exec>
class ConvolutionTail final : public SequenceState {
  public:
    ConvolutionTail(Context<Exec> const* context, std::size_t tokens, std::size_t channels)
        : context_(context), tokens_(tokens), channels_(channels) {}

    void make_room(SequenceRoom const& room) override {
        sequences_ = room.sequences;
        tokens_of_ = context_->take(bytes(), observe::Memory::caches);
        memory::clear(context_->exec(), tokens_of_.data(), bytes());
    }
    [[nodiscard]] std::size_t bytes() const override { return sequences_ * tokens_ * channels_ * sizeof(T); }
    [[nodiscard]] View<T, 2, Exec> of(std::size_t sequence) const {
        return View<T, 2, Exec>(static_cast<T*>(tokens_of_.data()) + sequence * tokens_ * channels_, tokens_,
                                channels_);
    }
    void clear(std::size_t sequence) const {
        if (!kernels::dry("convolution tail", of(sequence)))
            memory::clear(context_->exec(), of(sequence).data(), of(sequence).size() * sizeof(T));
    }
    /// Goes on by these rows.
    void advance(std::size_t sequence, View<T, 2, Exec> const& rows) const {
        auto const& exec = context_->exec();
        auto const tail = of(sequence);
        std::size_t const kept = tokens_ - std::min(tokens_, rows.extent(0)), fresh = tokens_ - kept;
        if (kernels::dry("convolution tail", rows, tail) || tokens_ == 0) return;
        for (std::size_t i = 0; i < kept; ++i) // one by one, since they overlap
            memory::copy(exec, tail.data() + i * channels_, tail.data() + (i + fresh) * channels_,
                         channels_ * sizeof(T));
        memory::copy(exec, tail.data() + kept * channels_, rows.data() + (rows.extent(0) - fresh) * channels_,
                     fresh * channels_ * sizeof(T));
    }

  private:
    Context<Exec> const* context_;
    std::size_t tokens_, channels_, sequences_ = 0;
    memory::Buffer<typename Exec::memory_space> tokens_of_;
};

/// y = silu(convolution of each channel of x) (kernels/causal_convolution.hpp), x being [batch, seq, channels].
/// @tparam Halo of X, what the ranks before give: context::Halo
template <class X, class Halo, class Exec>
class CausalConvolution {
  public:
    using T = typename X::element;
    using A = accumulator_t<T>;
    using Channel = last_dimension_t<X>;
    using Filter = typename detail::FilterOf<Channel>::type;
    using Gradient = Tensor<with_element_t<dual_t<X>, A>, Exec>;
    using Tail = ConvolutionTail<T, Exec>;

    struct Saved {
        Tensor<X, Exec> x;
        Tensor<typename Halo::layout, Exec> before; ///< empty: nothing is in front of any sequence
        memory::Buffer<typename Exec::memory_space> sums;
    };

    /// @param rows of the published tensors rows.tensor + ".weight" [channels, 1, taps] and rows.tensor + ".bias" which
    /// are this convolution's
    CausalConvolution(LayerSetup<Exec> const& setup, std::string const& name, PublishedRows const& rows,
                      std::size_t channels, std::size_t taps)
        : weight_(setup.context, name + ".weight", {channels, 1, taps},
                  {.deviation = 1 / std::sqrt(3.0 * static_cast<double>(taps))}),
          bias_(setup.context, name + ".bias", {channels}, {.deviation = 0}), taps_(taps),
          slices_(setup.template slice_state<typename Halo::Slices>()),
          tail_(setup.template sequence_state<Tail>(&setup.context, taps - 1, bias_.size())),
          stretches_(setup.partition()) {
        weight_.publish_as({rows.tensor + ".weight", rows.first, rows.count});
        bias_.publish_as({rows.tensor + ".bias", rows.first, rows.count});
        bool const is_whole = setup.slices == 1 && setup.context.communicators().extent(ml::cp::name) == 1;
        if (taps > 1 && !is_whole) halo_.emplace(taps - 1);
    }

    Tensor<X, Exec> forward(Pass<Exec>& pass, Tensor<X, Exec> x, Saved& saved) const {
        if (halo_) saved.before = halo_->forward(x, pass.stretches(stretches_), slices(pass));
        saved.x = std::move(x);
        return output_again(pass, saved);
    }
    Tensor<X, Exec> output_again(Pass<Exec>& pass, Saved const& saved) const {
        Tensor<X, Exec> y(pass.context, saved.x.extents());
        kernels::causal_convolution_forward<T>(pass.context.exec(), saved.x.rows(), saved.before.rows(), weight(),
                                               bias_.value().flat(), positions(pass), pass.stretches(stretches_).length,
                                               y.rows());
        return y;
    }
    /// y [tokens, channels] for the tokens of a run of a pass that continues sequences, x likewise.
    void continue_sequence(Pass<Exec>& pass, TokenRun const& run, View<T, 2, Exec> const& x,
                           View<T, 2, Exec> const& y) const {
        auto const& tail = pass.sequences->of(tail_);
        if (run.position == 0) tail.clear(run.sequence);
        kernels::causal_convolution_forward<T>(pass.context.exec(), x, tail.of(run.sequence), weight(),
                                               bias_.value().flat(), {}, run.length, y);
        tail.advance(run.sequence, x);
    }
    /// The gradient of x; dy is consumed. That of the filter waits in `saved` for backward_weight.
    Tensor<dual_t<X>, Exec> backward_data(Pass<Exec>& pass, Gradient dy, Saved& saved) const {
        auto const& exec = pass.context.exec();
        std::size_t const seq = pass.stretches(stretches_).length, channels = saved.x.local()[2];
        kernels::causal_convolution_backward<T>(exec, saved.x.rows(), saved.before.rows(), weight(),
                                                bias_.value().flat(), positions(pass), seq, dy.rows(), dy.rows());
        saved.sums = pass.context.take((weight_.size() + bias_.size()) * sizeof(A));
        auto* const sums = static_cast<A*>(saved.sums.data());
        kernels::causal_convolution_backward_weight<T>(exec, saved.x.rows(), saved.before.rows(), positions(pass), seq,
                                                       dy.rows(), View<A, 2, Exec>(sums, channels, taps_),
                                                       View<A, 1, Exec>(sums + weight_.size(), channels));
        typename Halo::Gradient after;
        if (halo_) {
            typename Halo::Gradient const d_before(pass.context, saved.before.extents());
            kernels::causal_convolution_backward_before<T>(exec, dy.rows(), weight(), positions(pass), seq,
                                                           d_before.rows());
            after = halo_->backward(d_before, pass.stretches(stretches_), slices(pass));
        }
        Tensor<dual_t<X>, Exec> dx(pass.context, saved.x.extents());
        kernels::causal_convolution_backward_data<T>(exec, dy.rows(), weight(), positions(pass), seq, after.rows(),
                                                     dx.rows());
        saved.x = {};
        saved.before = {};
        return dx;
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        auto* const sums = static_cast<A*>(saved.sums.data());
        kernels::add<A>(pass.context.exec(), View<A, 1, Exec>(sums, weight_.size()), weight_.gradient().array_flat());
        kernels::add<A>(pass.context.exec(), View<A, 1, Exec>(sums + weight_.size(), bias_.size()),
                        bias_.gradient().array_flat());
        saved = {};
    }
    template <class F>
    void for_each_weight(F&& f) {
        f(weight_);
    }
    template <class F>
    void for_each_bias(F&& f) {
        f(bias_);
    }

  private:
    static View<i32 const, 1, Exec> positions(Pass<Exec> const& pass) {
        return pass.map == nullptr ? View<i32 const, 1, Exec>() : pass.map->positions;
    }
    [[nodiscard]] AtSlice<typename Halo::Slices> slices(Pass<Exec> const& pass) const { return pass.at_slice(slices_); }
    [[nodiscard]] View<T, 2, Exec> weight() const {
        return View<T, 2, Exec>(weight_.value().data(), bias_.size(), taps_);
    }

    Parameter<Filter, used_t<Filter, X>, Exec> weight_;
    Parameter<Channel, used_t<Channel, X>, Exec> bias_;
    std::size_t taps_;
    StateKey<SliceState<typename Halo::Slices>> slices_;
    StateKey<Tail> tail_;
    Stretches stretches_;
    std::optional<Halo> halo_;
};

} // namespace pentad
