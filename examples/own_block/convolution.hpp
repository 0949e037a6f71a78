// A mixer that the library does not know: y = (silu(x Wg^T) * (w o x Wu^T)) Wo^T, with a causal convolution w o u of
// each channel. tp shards the channels and cp the sequence; the tails of shards, which later ones need, are gathered
// over cp.
#pragma once

#include <pentad/kernels.hpp>
#include <pentad/layers.hpp>
#include <stdexcept>
#include <string>
#include <tuple>
using namespace pentad;
using namespace pentad::ml;
struct Convolution { // what the model says of it
    static constexpr std::string_view kind = "gated convolution";
    std::size_t width, taps;
    friend bool operator==(Convolution const&, Convolution const&) = default;
    [[nodiscard]] std::string text() const { return std::to_string(taps) + " taps, width " + std::to_string(width); }
    [[nodiscard]] bool sees_later_tokens() const { return false; } // where it did, padding would be among them
};
/// The sequence here, and the tails of all shards.
template <class T, class Exec>
struct Past {
    View<T, 3, Exec> here, tails; ///< [batch, position, channel]
    i64 reach, rest, before;      ///< positions of a tail and before it; where the tail of the shard before ends, or 0
    /// The element at position s, which may lie before this shard; null before the sequence.
    KOKKOS_FUNCTION T* at(i64 b, i64 s, i64 c) const {
        return s >= 0 ? &here(b, s, c) : before == 0 ? nullptr : &tails(b, before + s, c);
    }
};
/// f(batch, position, channel) for all of `v`; in a dry run a pass over it and `more`.
template <class Exec, class V, class F, class... More>
void each(char const* name, Exec const& exec, V const& v, F const& f, More const&... more) {
    if (kernels::dry(name, v, more...)) return;
    i64 const n = static_cast<i64>(v.extent(1)), m = static_cast<i64>(v.extent(2));
    kernels::for_each_element(name, exec, v.size(), KOKKOS_LAMBDA(i64 i) { f(i / m / n, i / m % n, i % m); });
}
struct GatedConvolution {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using input_layout = gathered_stream_t<Stream>;
        using output_layout = partial_stream_t<Stream>;
        using Up = ColumnParallel<ffn, hidden, input_layout, Exec>;
        using Inner = typename Up::output_layout;
        using Taps = Layout<T, Dims<Dim<ffn, dynamic, tp>, Dim<slot>>>;
        using Tails = Layout<T, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>, Dim<ffn, dynamic, tp>>>;
        using AllTails = unsharded_t<Tails, cp>;
        using Input = InputProjection<Blocking, input_layout, Up, Up>;
        using Kept = ConvolutionTail<T, Exec>; // the library's
        using Output = OutputProjection<Blocking, RowParallel<hidden, ffn, Inner, Exec>, output_layout>;
        struct Saved {
            typename Input::Saved input;
            typename Output::Saved output;
            Tensor<Inner, Exec> gate, u, v;
            Tensor<AllTails, Exec> tails;
            Tensor<dual_t<Inner>, Exec> dv;
        };
        on(LayerSetup<Exec> const& s, Convolution const& part, std::string const& name)
            : input_(Up(s.context, name + ".gate", {part.width, s.hidden}),
                     Up(s.context, name + ".up", {part.width, s.hidden})),
              taps_(s.context, name + ".taps", {part.width, part.taps}, {.deviation = 0.5}),
              output_({s.context, name + ".down", {s.hidden, part.width}}),
              kept_(s.template sequence_state<Kept>(&s.context, part.taps - 1, taps_.value().local()[0])),
              reach_(part.taps - 1), shard_(s.context.communicators().shard_index(AxisNames(cp::name))),
              shards_(s.partition().ranks()) {
            if (s.slices > 1 || !s.partition().is_contiguous() || s.seq / shards_ < reach_)
                throw std::invalid_argument(name + " takes sequences in one piece a rank, not shorter than its taps");
        }
        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            auto const& exec = pass.context.exec();
            std::tie(saved.gate, saved.u) = input_.forward(std::move(x), saved.input);
            auto const extents = saved.u.extents();
            Tensor<Tails, Exec> own(pass.context, {extents[0], shards_ * reach_, extents[2]});
            auto const u = saved.u.view(), v = (saved.v = {pass.context, extents}).view();
            auto const mine = past_of(saved.u, own);
            auto const keep = KOKKOS_LAMBDA(i64 b, i64 i, i64 c) { mine.tails(b, i, c) = u(b, mine.rest + i, c); };
            each("tails", exec, mine.tails, keep, mine.tails);
            saved.tails = redistribute<AllTails>(std::move(own));
            auto const past = past_of(saved.u, saved.tails);
            convolve(exec, past, v);
            Tensor<Inner, Exec> z(pass.context, extents);
            kernels::swiglu_forward<T>(exec, saved.gate.rows(), saved.v.rows(), z.rows());
            return output_.forward(std::move(z), saved.output);
        }
        /// Tokens of sequences that are being written: their last ones are kept by each rank of cp, which gathers all.
        Tensor<output_layout, Exec> continue_sequences(Pass<Exec>& pass, Tensor<input_layout, Exec> x) const {
            using All = unsharded_t<Inner, cp>;
            Saved saved;
            auto [gate, own] = input_.forward(std::move(x), saved.input);
            auto const u = redistribute<All>(std::move(own));
            Tensor<All, Exec> v(pass.context, u.extents());
            v.clear();
            auto const& kept = pass.sequences->of(kept_);
            std::size_t const width = u.local()[2];
            pass.ragged->for_each_run([&](TokenRun const& run) {
                if (run.position == 0) kept.clear(run.sequence);
                std::size_t const first = pass.ragged->row_of_lane(run) * width;
                View<T, 3, Exec> const here(u.data() + first, 1, run.length, width),
                    tail(kept.of(run.sequence).data(), 1, reach_, width);
                auto const reach = static_cast<i64>(reach_);
                convolve(pass.context.exec(), {here, tail, reach, 0, reach},
                         View<T, 3, Exec>(v.data() + first, 1, run.length, width));
                kept.advance(run.sequence, View<T, 2, Exec>(here.data(), run.length, width));
            });
            auto const mine = redistribute<Inner>(std::move(v));
            Tensor<Inner, Exec> z(pass.context, mine.extents());
            kernels::swiglu_forward<T>(pass.context.exec(), gate.rows(), mine.rows(), z.rows());
            return output_.forward(std::move(z), saved.output);
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            auto const& exec = pass.context.exec();
            auto const dz = output_.backward_data(std::move(dy), saved.output);
            Tensor<dual_t<Inner>, Exec> dgate(pass.context, dz.extents()), du(pass.context, dz.extents());
            Tensor<dual_t<AllTails>, Exec> dtails(pass.context, saved.tails.extents());
            auto const dv = (saved.dv = {pass.context, dz.extents()}).view();
            auto const w = taps_.value().view();
            kernels::swiglu_backward<T>(exec, dz.rows(), saved.gate.rows(), saved.v.rows(), dgate.rows(),
                                        saved.dv.rows());
            du.clear(), dtails.clear();
            auto const past = past_of(du, dtails);
            auto const spread = KOKKOS_LAMBDA(i64 b, i64, i64 c) { // one thread for a channel of a sequence
                for (i64 s = 0; s < static_cast<i64>(dv.extent(1)); ++s)
                    for (i64 j = 0; j <= past.reach; ++j)
                        if (T* const x = past.at(b, s - j, c)) *x = T(A(*x) + A(w(c, j)) * A(dv(b, s, c)));
            };
            each("convolution backward", exec, Kokkos::subview(dv, Kokkos::ALL, std::pair(0, 1), Kokkos::ALL), spread,
                 dv, w, past.here, past.here, past.tails, past.tails);
            auto const own = redistribute<dual_t<Tails>>(std::move(dtails));
            auto const mine = past_of(du, own);
            auto const add = KOKKOS_LAMBDA(i64 b, i64 i, i64 c) {
                T& x = mine.here(b, mine.rest + i, c);
                x = T(A(x) + A(mine.tails(b, i, c)));
            };
            each("tails backward", exec, mine.tails, add, mine.tails, mine.tails);
            return input_.backward_data(std::move(dgate), std::move(du), saved.input);
        }
        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            output_.backward_weight(saved.output);
            auto const past = past_of(saved.u, saved.tails);
            auto const dv = saved.dv.view();
            auto const dw = taps_.gradient().array();
            i64 const taps = past.reach + 1, n = static_cast<i64>(dv.extent(1));
            auto const product = KOKKOS_LAMBDA(i64 row, int i) {
                T const* const x = past.at(row / n, row % n - i % taps, i / taps);
                return x == nullptr ? A(0) : A(*x) * A(dv(row / n, row % n, i / taps));
            };
            auto const add = KOKKOS_LAMBDA(int i, A sum) { dw(i / taps, i % taps) += sum; };
            if (!kernels::dry("convolution weights", past.here, past.tails, dv, dw, dw))
                kernels::sum_over_rows<A>("taps", pass.context.exec(), dv.extent(0) * dv.extent(1), dw.size(), product,
                                          add);
            input_.backward_weight(saved.input);
            saved = {};
        }
        void for_each_parameter(auto&& f) { input_.for_each_parameter(f), f(taps_), output_.for_each_parameter(f); }

        /// v = w o the past. (Public, since nvcc wants it so of a function with a device lambda.)
        void convolve(Exec const& exec, Past<T, Exec> const& past, View<T, 3, Exec> const& v) const {
            auto const w = taps_.value().view();
            auto const sum_of_taps = KOKKOS_LAMBDA(i64 b, i64 s, i64 c) {
                A sum = 0;
                for (i64 j = 0; j <= past.reach; ++j)
                    if (T const* const x = past.at(b, s - j, c)) sum += A(w(c, j)) * A(*x);
                v(b, s, c) = T(sum);
            };
            each("convolution", exec, v, sum_of_taps, past.here, past.tails, w);
        }

      private:
        template <class L, class M>
        Past<T, Exec> past_of(Tensor<L, Exec> const& here, Tensor<M, Exec> const& tails) const {
            auto const reach = static_cast<i64>(reach_), positions = static_cast<i64>(here.local()[1]);
            return {here.array(), tails.array(), reach, positions - reach, static_cast<i64>(shard_) * reach};
        }
        Input input_;
        Parameter<Taps, used_t<Taps, Inner>, Exec> taps_;
        Output output_;
        StateKey<Kept> kept_;
        std::size_t reach_, shard_, shards_;
    };
};
