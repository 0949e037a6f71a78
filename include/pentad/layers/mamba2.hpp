// Mamba-2: a state-space layer whose heads are sharded over tp, and whose sequence may be sharded over cp.
#pragma once

#include <pentad/kernels/state_space.hpp>
#include <pentad/layers/causal_convolution.hpp>
#include <pentad/layers/gated_norm.hpp>
#include <pentad/layers/projection.hpp>
#include <pentad/layers/rounded.hpp>
#include <pentad/layers/state_scan.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/recomputation.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace pentad {

/// Dao and Gu 2024, "Transformers are SSMs", section 7, as Mamba2Mixer of transformers. Each rank of tp makes an equal
/// part of what groups of heads share (B and C); where there are fewer groups than ranks these parts are gathered.
/// @tparam Along what goes along the sequence over cp: context::Recurrence
template <class Along, class Communication = Blocking>
struct Mamba2 {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using input_layout = typename Communication::template boundary<Stream, gathered_stream_t<Stream>>;
        using output_layout = typename Communication::template boundary<Stream, partial_stream_t<Stream>>;
        using ToChannels = ColumnParallel<ml::ffn, ml::hidden, gathered_stream_t<Stream>, Exec>;     // z and x
        using ToShared = ColumnParallel<ml::state_dim, ml::hidden, gathered_stream_t<Stream>, Exec>; // B and C
        using ToSteps = ColumnParallel<ml::heads, ml::hidden, gathered_stream_t<Stream>, Exec>;      // dt
        using Channels = typename ToChannels::output_layout;
        using Shared = typename ToShared::output_layout;
        using Gathered = unsharded_t<Shared, ml::tp>;
        using Steps = typename ToSteps::output_layout;
        using Input = InputProjection<Communication, input_layout, ToChannels, ToChannels, ToShared, ToShared, ToSteps>;
        using Output = OutputProjection<Communication, RowParallel<ml::hidden, ml::ffn, Channels, Exec>, output_layout>;
        template <class X>
        using Convolution = CausalConvolution<X, typename Along::template Halo<X, Exec>, Exec>;
        using Scan = StateScan<T, Along, Exec>;
        using Norm = GatedNorm<kernels::GateBeforeNorm, Channels, Exec>;
        using OfHeads = Layout<T, Dims<Dim<ml::heads, dynamic, ml::tp>>>;
        template <class L>
        using Whole = unsharded_t<L, ml::cp>;
        template <class L>
        using InAccumulators = Tensor<with_element_t<L, A>, Exec>;

        /// B or C behind the convolution.
        struct SharedByHeads {
            Tensor<Shared, Exec> own;
            Tensor<Gathered, Exec> all; ///< instead, where a rank needs what others made
        };
        struct Saved {
            typename Input::Saved input;
            typename Output::Saved output;
            typename Convolution<Channels>::Saved x_convolution;
            typename Convolution<Shared>::Saved b_convolution, c_convolution;
            typename Scan::Saved scan;
            typename Norm::Saved norm;
            Tensor<Channels, Exec> gate, x, scanned; ///< z, x behind its convolution, and y of the scan and the skip
            SharedByHeads b, c;
            Tensor<Steps, Exec> raw; ///< steps of time in front of the softplus
            memory::Buffer<typename Exec::memory_space> sums;
        };

        on(LayerSetup<Exec> const& setup, model::Mamba2 const& part, std::string const& name)
            : part_(checked(part, setup, name)), shared_(part.groups * part.state),
              ranks_(static_cast<std::size_t>(setup.context.communicators().extent(ml::tp::name))),
              gathers_(part.groups % ranks_ != 0),
              input_(rows_of<ToChannels>(setup, name, "z", 0, part.inner()),
                     rows_of<ToChannels>(setup, name, "x", part.inner(), part.inner()),
                     rows_of<ToShared>(setup, name, "B", 2 * part.inner(), shared_),
                     rows_of<ToShared>(setup, name, "C", 2 * part.inner() + shared_, shared_),
                     rows_of<ToSteps>(setup, name, "dt", 2 * part.inner() + 2 * shared_, part.heads)),
              x_convolution_(convolution<Channels>(setup, name, "x", 0, part.inner())),
              b_convolution_(convolution<Shared>(setup, name, "B", part.inner(), shared_)),
              c_convolution_(convolution<Shared>(setup, name, "C", part.inner() + shared_, shared_)),
              bias_(setup.context, name + ".dt_bias", {part.heads}, {.values = InitialValues::step_bias}),
              log_rate_(setup.context, name + ".A_log", {part.heads}, {.values = InitialValues::log_of_number}),
              skip_(setup.context, name + ".D", {part.heads}, {.values = InitialValues::ones}),
              scan_(setup, part.heads, part.state, part.head_dim, part.chunk),
              norm_(setup, name + ".norm", part.inner(), part.norm_groups),
              output_({setup.context, name + ".out_proj", {setup.hidden, part.inner()}}) {
            if (gathers_)
                own_group_ = setup.context.communicators().shard_index(AxisNames(ml::tp::name)) * part.groups / ranks_;
        }

        /// The state, in accumulators, and what the convolution looks back at.
        [[nodiscard]] observe::DecodingState decoding_state() const {
            auto const number = [](std::size_t n) { return static_cast<double>(n); };
            double const inner = number(part_.inner() / ranks_);
            double const groups = std::max(1.0, number(part_.groups) / number(ranks_));
            return {.sequence =
                        number(sizeof(A)) * inner * number(part_.state) +
                        number(sizeof(T)) * (inner + 2 * groups * number(part_.state)) * number(part_.convolution - 1)};
        }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("state space forward", "compute");
            auto [gate, channels, b, c, raw] = input_.forward(std::move(x), saved.input);
            saved.gate = std::move(gate);
            saved.raw = std::move(raw);
            saved.x = x_convolution_.forward(pass, std::move(channels), saved.x_convolution);
            saved.b = shared(b_convolution_.forward(pass, std::move(b), saved.b_convolution));
            saved.c = shared(c_convolution_.forward(pass, std::move(c), saved.c_convolution));
            saved.scanned = {pass.context, saved.gate.extents()};
            {
                auto const steps = discretised(pass, saved.raw, saved.x);
                scan_.forward(pass, scanned(pass, saved, steps), of_heads(pass, saved.scanned), saved.scan);
            }
            kernels::state_space_skip<T>(pass.context.exec(), saved.x.rows(), skip_.value().flat(),
                                         saved.scanned.rows());
            auto y = output_.forward(norm_.forward(pass, saved.scanned, saved.gate, saved.norm), saved.output);
            if (recomputed_.contains(model::Piece::activations)) saved.output.x = saved.x = {};
            if (drops_input(recomputed_)) Input::drop_input(saved.input);
            return y;
        }

        /// The states, and what the convolutions look back at, are kept: by each rank of cp, which gathers the tokens.
        Tensor<output_layout, Exec> continue_sequences(Pass<Exec>& pass, Tensor<input_layout, Exec> x) const {
            observe::Scope const scope("state space forward", "compute");
            Saved saved;
            auto [gate, channels, b, c, raw] = input_.forward(std::move(x), saved.input);
            auto const all = convolved(pass, x_convolution_, std::move(channels));
            auto const to_heads = [&](auto const& of) { return redistribute<unsharded_t<Whole<Shared>, ml::tp>>(of); };
            auto const own_b = convolved(pass, b_convolution_, std::move(b)),
                       own_c = convolved(pass, c_convolution_, std::move(c));
            Tensor<unsharded_t<Whole<Shared>, ml::tp>, Exec> all_b, all_c;
            if (gathers_) all_b = to_heads(own_b), all_c = to_heads(own_c);
            auto const steps = discretised(pass, redistribute<Whole<Steps>>(std::move(raw)), all);
            Tensor<Whole<Channels>, Exec> const y(pass.context, all.extents());
            y.clear();
            pass.ragged->for_each_run([&](TokenRun const& run) {
                auto const shared = [&](auto const& own, auto const& gathered) {
                    if (!gathers_)
                        return Of::heads(rows_of_run(pass, run, own.rows()), 0, run.length, part_.groups / ranks_,
                                         part_.state);
                    return Of::heads(rows_of_run(pass, run, gathered.rows()), own_group_ * part_.state, run.length, 1,
                                     part_.state);
                };
                auto const heads = [&](auto const& of) {
                    return Of::heads(rows_of_run(pass, run, of.rows()), 0, run.length, part_.heads / ranks_,
                                     part_.head_dim);
                };
                auto const decays = rows_of_run(pass, run, steps.decay.rows());
                scan_.continue_sequence(pass, run,
                                        {shared(own_c, all_c), shared(own_b, all_b), heads(steps.scaled),
                                         View<A, 3, Exec>(decays.data(), 1, run.length, decays.extent(1))},
                                        heads(y));
            });
            kernels::state_space_skip<T>(pass.context.exec(), all.rows(), skip_.value().flat(), y.rows());
            return output_.forward(norm_.forward(pass, redistribute<Channels>(y), gate, saved.norm), saved.output);
        }

        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("state space backward", "compute");
            auto const& context = pass.context;
            auto const& exec = context.exec();
            if (recomputed_.contains(model::Piece::activations)) {
                saved.x = x_convolution_.output_again(pass, saved.x_convolution);
                saved.output.x = norm_.output_again(pass, saved.scanned, saved.gate, saved.norm);
            }
            auto d = output_.backward_data(std::move(dy), saved.output);
            norm_.backward_data(pass, d, saved.scanned, saved.gate, saved.norm); // d is now that of saved.scanned
            saved.scanned = {};

            InAccumulators<dual_t<Channels>> dx(context, d.extents());
            saved.sums = context.take(3 * skip_.size() * sizeof(A));
            kernels::state_space_skip_gradient<T>(exec, saved.x.rows(), d.rows(), dx.flat(), sum(saved, 0));
            auto steps = discretised(pass, saved.raw, saved.x);
            InAccumulators<dual_t<Steps>> d_decay(context, saved.raw.extents());
            auto db = gradient_of_shared(pass, d), dc = gradient_of_shared(pass, d);
            scan_.backward(pass, scanned(pass, saved, steps), of_heads(pass, d), groups_of(pass, dc),
                           groups_of(pass, db), of_heads(pass, dx), of_tokens(pass, d_decay), saved.scan);
            steps.scaled = {};
            saved.b = saved.c = {};

            Tensor<dual_t<Steps>, Exec> d_raw(context, saved.raw.extents());
            kernels::state_space_steps_backward<T>(exec, saved.raw.rows(), bias_.value().flat(),
                                                   log_rate_.value().flat(), skip_.value().flat(), limits(),
                                                   saved.x.rows(), steps.step.rows(), d.rows(), dx.rows(),
                                                   d_decay.rows(), d_raw.rows(), steps.decay.rows());
            kernels::state_space_head_gradients<A>(exec, steps.decay.rows(), d_decay.rows(), sum(saved, 1),
                                                   sum(saved, 2));
            saved.x = {};
            saved.raw = {};
            d = {};
            auto d_channels = x_convolution_.backward_data(pass, std::move(dx), saved.x_convolution);
            auto d_b = b_convolution_.backward_data(pass, scattered(std::move(db)), saved.b_convolution);
            auto d_c = c_convolution_.backward_data(pass, scattered(std::move(dc)), saved.c_convolution);
            return input_.backward_data(std::move(saved.gate).template reinterpret_as<dual_t<Channels>>(),
                                        std::move(d_channels), std::move(d_b), std::move(d_c), std::move(d_raw),
                                        saved.input);
        }

        void backward_weight(Pass<Exec>& pass, Saved& saved) const {
            observe::Scope const scope("state space weights", "compute");
            output_.backward_weight(saved.output);
            norm_.backward_weight(pass, saved.norm);
            auto const& exec = pass.context.exec();
            kernels::add<A>(exec, sum(saved, 0), skip_.gradient().array_flat());
            kernels::add<A>(exec, sum(saved, 1), bias_.gradient().array_flat());
            kernels::add<A>(exec, sum(saved, 2), log_rate_.gradient().array_flat());
            x_convolution_.backward_weight(pass, saved.x_convolution);
            b_convolution_.backward_weight(pass, saved.b_convolution);
            c_convolution_.backward_weight(pass, saved.c_convolution);
            input_.backward_weight(saved.input);
            saved = {};
        }

        template <class F>
        void for_each_parameter(F&& f) {
            input_.for_each_parameter(f);
            x_convolution_.for_each_weight(f);
            b_convolution_.for_each_weight(f);
            c_convolution_.for_each_weight(f);
            x_convolution_.for_each_bias(f);
            b_convolution_.for_each_bias(f);
            c_convolution_.for_each_bias(f);
            f(bias_);
            f(log_rate_);
            f(skip_);
            norm_.for_each_parameter(f);
            output_.for_each_parameter(f);
        }
        [[nodiscard]] static model::PieceSet pieces() {
            return {model::Piece::inputs, model::Piece::norms, model::Piece::activations};
        }
        void recompute(model::PieceSet pieces) { recomputed_ = pieces; }
        static void restore_input(Tensor<input_layout, Exec> x, Saved& saved) {
            Input::restore_input(std::move(x), saved.input);
        }

      private:
        template <class S, class X>
        struct Discretised {
            InAccumulators<S> step, decay;
            Tensor<X, Exec> scaled; ///< step x
        };
        /// The gradient of B or C; of those that are gathered, of this rank's group alone.
        struct SharedGradient {
            InAccumulators<dual_t<Shared>> own;
            InAccumulators<dual_t<Gathered>> all;
        };
        using Of = Scanned<T, Exec>;

        static model::Mamba2 const& checked(model::Mamba2 const& part, LayerSetup<Exec> const& setup,
                                            std::string const& name) {
            auto const tp = setup.context.communicators().extent(ml::tp::name);
            if (auto const refused = part.refusal(model::PartRanks::of_tensor(model::TensorKind::one_d, tp)))
                throw std::invalid_argument(name + ": " + refused->why);
            return part;
        }
        /// Rows [first, first + count) of in_proj.
        template <class Map>
        Map rows_of(LayerSetup<Exec> const& setup, std::string const& name, std::string const& what, std::size_t first,
                    std::size_t count) const {
            Map map(setup.context, name + ".in_proj." + what, {count, setup.hidden});
            map.publish_as({name + ".in_proj.weight", first, 2 * part_.inner() + 2 * shared_ + part_.heads});
            return map;
        }
        template <class X>
        Convolution<X> convolution(LayerSetup<Exec> const& setup, std::string const& name, std::string const& what,
                                   std::size_t first, std::size_t count) const {
            return {setup,
                    name + ".conv1d." + what,
                    {name + ".conv1d", first, part_.inner() + 2 * shared_},
                    count,
                    part_.convolution};
        }

        [[nodiscard]] SharedByHeads shared(Tensor<Shared, Exec> own) const {
            if (!gathers_) return {std::move(own), {}};
            return {{}, redistribute<Gathered>(std::move(own))};
        }
        [[nodiscard]] SharedGradient gradient_of_shared(Pass<Exec>& pass,
                                                        Tensor<dual_t<Channels>, Exec> const& like) const {
            std::array<std::size_t, 3> const extents{like.extents()[0], like.extents()[1], shared_};
            SharedGradient d;
            if (!gathers_) {
                d.own = {pass.context, extents};
                return d;
            }
            d.all = {pass.context, extents};
            if (part_.groups > 1) d.all.clear();
            return d;
        }
        [[nodiscard]] InAccumulators<dual_t<Shared>> scattered(SharedGradient d) const {
            if (!gathers_) return std::move(d.own);
            return redistribute<with_element_t<dual_t<Shared>, A>>(std::move(d.all));
        }

        /// From the steps of time in front of the softplus, and x.
        template <class S, class X>
        [[nodiscard]] Discretised<S, X> discretised(Pass<Exec>& pass, Tensor<S, Exec> const& raw,
                                                    Tensor<X, Exec> const& x) const {
            Discretised<S, X> d{
                {pass.context, raw.extents()}, {pass.context, raw.extents()}, {pass.context, x.extents()}};
            kernels::state_space_steps<T>(pass.context.exec(), raw.rows(), bias_.value().flat(),
                                          log_rate_.value().flat(), limits(), x.rows(), d.step.rows(), d.decay.rows(),
                                          d.scaled.rows());
            return d;
        }
        /// x of all ranks of cp behind a convolution: they have it for the sequences of their lane.
        template <class X>
        [[nodiscard]] Tensor<Whole<X>, Exec> convolved(Pass<Exec>& pass, Convolution<X> const& convolution,
                                                       Tensor<X, Exec> x) const {
            auto const in = redistribute<Whole<X>>(std::move(x));
            Tensor<Whole<X>, Exec> out(pass.context, in.extents());
            out.clear();
            pass.ragged->for_each_run([&](TokenRun const& run) {
                convolution.continue_sequence(pass, run, rows_of_run(pass, run, in.rows()),
                                              rows_of_run(pass, run, out.rows()));
            });
            return out;
        }
        template <class V>
        static auto rows_of_run(Pass<Exec> const& pass, TokenRun const& run, V const& rows) {
            std::size_t const first = pass.ragged->row_of_lane(run);
            return Kokkos::subview(rows, std::pair(first, first + run.length), Kokkos::ALL);
        }
        [[nodiscard]] Of scanned(Pass<Exec> const& pass, Saved const& saved,
                                 Discretised<Steps, Channels> const& steps) const {
            return {groups_of(pass, saved.c), groups_of(pass, saved.b), of_heads(pass, steps.scaled),
                    of_tokens(pass, steps.decay)};
        }
        /// B, C or a gradient of them, as the scan takes it.
        template <class S>
        auto groups_of(Pass<Exec> const& pass, S const& shared) const {
            std::size_t const seq = scan_.stretches(pass).length;
            if (!gathers_) return Of::heads(shared.own.rows(), 0, seq, part_.groups / ranks_, part_.state);
            return Of::heads(shared.all.array_rows(), own_group_ * part_.state, seq, 1, part_.state);
        }
        template <class L>
        auto of_heads(Pass<Exec> const& pass, Tensor<L, Exec> const& channels) const {
            return Of::heads(channels.rows(), 0, scan_.stretches(pass).length, part_.heads / ranks_, part_.head_dim);
        }
        template <class L>
        View<A, 3, Exec> of_tokens(Pass<Exec> const& pass, Tensor<L, Exec> const& steps) const {
            auto const rows = steps.rows();
            std::size_t const seq = scan_.stretches(pass).length;
            return View<A, 3, Exec>(steps.data(), rows.extent(0) / seq, seq, rows.extent(1));
        }
        [[nodiscard]] View<A, 1, Exec> sum(Saved const& saved, std::size_t i) const {
            return View<A, 1, Exec>(static_cast<A*>(saved.sums.data()) + i * skip_.size(), skip_.size());
        }
        [[nodiscard]] kernels::StepLimits limits() const { return {part_.least_step, part_.most_step}; }

        model::Mamba2 part_;
        std::size_t shared_; ///< elements of B, and of C, of all groups
        std::size_t ranks_;  ///< of tp
        bool gathers_;       ///< B and C over tp
        std::size_t own_group_ = 0;
        Input input_;
        Convolution<Channels> x_convolution_;
        Convolution<Shared> b_convolution_, c_convolution_;
        Parameter<OfHeads, used_t<OfHeads, Steps>, Exec> bias_, log_rate_, skip_;
        Scan scan_;
        Norm norm_;
        Output output_;
        model::PieceSet recomputed_;
    };
};

} // namespace pentad
