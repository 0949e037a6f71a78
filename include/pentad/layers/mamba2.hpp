// Mamba-2 as far as a plan needs it: its products, parameters, exchanges and what it keeps. Its convolution and its
// scan have no kernels yet, so that it runs dry only.
#pragma once

#include <pentad/kernels/dry.hpp>
#include <pentad/layers/linear.hpp>
#include <pentad/model/parts.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace pentad {

/// Dao and Gu 2024, "Transformers are SSMs", section 7. Heads are sharded over tp; what belongs to groups is held by
/// every rank of it. Over cp the states at the ends of the ranks' pieces are gathered (section 8.2).
struct Mamba2 {
    template <class Stream, class Exec>
    class on {
      public:
        using T = typename Stream::element;
        using A = accumulator_t<T>;
        using input_layout = gathered_stream_t<Stream>;
        using output_layout = partial_stream_t<Stream>;
        using OfHeads = ColumnParallel<ffn, hidden, input_layout, Exec>; ///< gate, x and the steps of time
        using OfGroups = Linear<input_layout, Layout<T, Dims<Dim<latent>, Dim<hidden>>>, 1, Exec>; ///< B and C
        using Inner = typename OfHeads::output_layout;
        using Output = RowParallel<hidden, ffn, Inner, Exec>;
        using Vector = Layout<T, Dims<Dim<ffn, dynamic, tp>>>;
        using Filter = Layout<T, Dims<Dim<latent>, Dim<slot>>>;
        /// The states of the sequences at the end of each rank's piece.
        using States = Layout<A, Dims<Dim<batch, dynamic, dp, ep>, Dim<slot, dynamic, cp>, Dim<ffn, dynamic, tp>>>;

        struct Saved {
            typename OfHeads::Saved of_heads;
            typename OfGroups::Saved of_groups;
            typename Output::Saved output;
            Tensor<Inner, Exec> mixed, scanned; ///< behind the convolution and the scan
            memory::Buffer<typename Exec::memory_space> of_group, steps, states;
        };

        on(LayerSetup<Exec> const& setup, model::Mamba2 const& part, std::string const& name)
            : part_(part), batch_(setup.batch), seq_(setup.seq), tokens_(setup.template local_tokens<input_layout>()),
              tp_(static_cast<std::size_t>(setup.context.communicators().extent("tp"))),
              cp_(static_cast<std::size_t>(setup.context.communicators().extent("cp"))),
              of_heads_(setup.context, name + ".in_proj", {2 * part.inner() + part.heads, setup.hidden}),
              of_groups_(setup.context, name + ".in_proj_bc", {2 * part.groups * part.state, setup.hidden}),
              filter_(setup.context, name + ".conv1d",
                      {part.inner() + 2 * part.groups * part.state, part.convolution + 1}),
              decay_(setup.context, name + ".A_log", {part.heads}, {}, 0, false),
              skip_(setup.context, name + ".D", {part.heads}, {}, 0, false),
              step_(setup.context, name + ".dt_bias", {part.heads}, {}, 0, false),
              norm_(setup.context, name + ".norm.weight", {part.inner()}, {.ones = true}, 0, false),
              output_(setup.context, name + ".out_proj", {setup.hidden, part.inner()}) {
            observe::require_dry("Mamba-2");
        }

        /// The state, in accumulators, and what the convolution looks back at.
        [[nodiscard]] observe::DecodingState decoding_state() const {
            double const inner = number(part_.inner() / tp_);
            return {.sequence = number(sizeof(A)) * inner * number(part_.state) +
                                number(sizeof(T)) * (inner + 2 * groups() * number(part_.state)) *
                                    number(part_.convolution - 1)};
        }

        Tensor<output_layout, Exec> forward(Pass<Exec>& pass, Tensor<input_layout, Exec> x, Saved& saved) const {
            observe::Scope const scope("state space forward", "compute");
            auto const& context = pass.context;
            auto const made = of_heads_.forward(x, saved.of_heads);
            auto const shared = of_groups_.forward(x, saved.of_groups);
            saved.mixed = {context, {batch_, seq_, 2 * part_.inner()}};
            saved.of_group = context.take(shared.size() * sizeof(T));
            saved.steps = context.take(2 * tokens_ * part_.heads / tp_ * sizeof(A));
            run().pass("convolution", bytes(2 * number(made.size() + shared.size())));
            saved.states = context.take(chunks() * state_elements() * sizeof(A));
            saved.scanned = {context, {batch_, seq_, part_.inner()}};
            scan("scan_forward", 1);
            exchange_states(context);
            run().pass("gated_norm", bytes(4 * number(saved.scanned.size())));
            Tensor<Inner, Exec> const y(context, saved.scanned.extents());
            return output_.forward(y, saved.output);
        }
        Tensor<dual_t<input_layout>, Exec> backward_data(Pass<Exec>& pass, Tensor<dual_t<output_layout>, Exec> dy,
                                                         Saved& saved) const {
            observe::Scope const scope("state space backward", "compute");
            auto const& context = pass.context;
            auto const d = output_.backward_data(std::move(dy), saved.output);
            run().pass("gated_norm", bytes(7 * number(d.size())));
            scan("scan_backward", 2.5);
            exchange_states(context);
            Tensor<dual_t<Inner>, Exec> dmade(context, {batch_, seq_, 2 * part_.inner() + part_.heads});
            Tensor<dual_t<typename OfGroups::output_layout>, Exec> dshared(
                context, {batch_, seq_, 2 * part_.groups * part_.state});
            run().pass("convolution", bytes(4 * number(dmade.size() + dshared.size())));
            saved.mixed = saved.scanned = {};
            saved.of_group = saved.steps = saved.states = {};
            auto dx = of_heads_.backward_data(std::move(dmade), saved.of_heads);
            auto const more = of_groups_.backward_data(std::move(dshared), saved.of_groups);
            kernels::dry("add", more.flat(), dx.flat(), dx.flat());
            return dx;
        }
        void backward_weight(Pass<Exec>&, Saved& saved) const {
            observe::Scope const scope("state space weights", "compute");
            output_.backward_weight(saved.output);
            of_heads_.backward_weight(saved.of_heads);
            of_groups_.backward_weight(saved.of_groups);
        }
        template <class F>
        void for_each_parameter(F&& f) {
            of_heads_.for_each_parameter(f);
            of_groups_.for_each_parameter(f);
            f(filter_);
            f(decay_);
            f(skip_);
            f(step_);
            f(norm_);
            output_.for_each_parameter(f);
        }

      private:
        static double number(std::size_t n) { return static_cast<double>(n); }
        static double bytes(double elements) { return elements * static_cast<double>(sizeof(T)); }
        static observe::DryRun& run() { return *observe::dry_run(); }

        [[nodiscard]] std::size_t chunk() const { return std::min(part_.chunk, seq_); }
        [[nodiscard]] std::size_t chunks() const { return std::max<std::size_t>(1, tokens_ / chunk()); }
        [[nodiscard]] double groups() const { return std::max(1.0, number(part_.groups) / number(tp_)); }
        /// Of a sequence, on this rank.
        [[nodiscard]] std::size_t state_elements() const { return part_.inner() / tp_ * part_.state; }

        /// Section 6: within chunks as attention without softmax (C B^T, of which the causal half counts, times x),
        /// across them by states (into them, and out of them).
        void scan(char const* name, double times) const {
            double const heads = number(part_.heads) / number(tp_), width = number(part_.head_dim);
            double const state = number(part_.state), length = number(chunk());
            double const flops =
                number(tokens_) * (groups() * length * state + heads * length * width + 4 * heads * state * width);
            double const moved = bytes(number(tokens_) * (2 * heads * width + 2 * groups() * state)) +
                                 2 * static_cast<double>(sizeof(A)) * number(chunks()) * number(state_elements());
            run().scan(name, times * flops, (times > 1 ? 3 : 1) * moved);
        }
        void exchange_states(Context<Exec> const& context) const {
            if (cp_ == 1) return;
            Tensor<States, Exec> ends(context, {batch_, cp_, part_.inner() * part_.state});
            (void)redistribute<unsharded_t<States, cp>>(std::move(ends));
        }

        model::Mamba2 part_;
        std::size_t batch_, seq_, tokens_, tp_, cp_;
        OfHeads of_heads_;
        OfGroups of_groups_;
        Parameter<Filter, used_t<Filter, input_layout>, Exec> filter_;
        Parameter<Vector, used_t<Vector, input_layout>, Exec> decay_, skip_, step_, norm_;
        Output output_;
    };
};

} // namespace pentad
