// From the heads of attention to the residual stream: each rank of tp multiplies its heads by its part of the
// projection and the products are summed, or heads are exchanged for sequence and each rank multiplies its tokens by
// all of it.
#pragma once

#include <pentad/layers/projection.hpp>
#include <pentad/layers/tensor_parallel.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/resharded.hpp>
#include <pentad/model/attention_output.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

namespace pentad {

namespace detail {
/// Makes the output of heads that Projection describes, around one map.
template <class Projection>
struct OneHeadsMap {
    template <class Stream, class Query, class Communication, class Exec>
    static auto make(LayerSetup<Exec> const& setup, std::string const& name, std::size_t heads, std::size_t head_dim) {
        using Of = typename Projection::template on<Stream, Query, Communication, Exec>;
        return Of(typename Of::map_type(setup.context, name, {setup.hidden, heads, head_dim}));
    }
};
} // namespace detail

/// Each rank of tp multiplies its heads by its part of the projection; the products are summed.
struct SummedHeads : detail::OneHeadsMap<SummedHeads> {
    template <class Stream, class Query, class Communication, class Exec>
    using on = typename TensorParallel<Stream, Communication, Exec>::template Output<
        Query, Dim<ml::heads, dynamic, typename TensorParallel<Stream, Communication, Exec>::columns>,
        Dim<ml::head_dim>>;
};
/// Heads are exchanged for sequence, and each rank multiplies its tokens by the whole projection
/// (model::AttentionOutput::all_to_all).
struct ExchangedHeads : detail::OneHeadsMap<ExchangedHeads> {
    template <class Stream, class Query, class Communication, class Exec>
    using on = ExchangedProjection<
        Query,
        Linear<resharded_t<Query, ml::tp, ml::seq>,
               Layout<typename Query::element, Dims<Dim<ml::hidden>, Dim<ml::heads>, Dim<ml::head_dim>>>, 1, Exec>>;
};
/// Either of them, as BlockStrategy::attention_output says.
struct ChosenHeads {
    template <class Stream, class Query, class Communication, class Exec>
    class on {
        using Summed = SummedHeads::on<Stream, Query, Communication, Exec>;
        using Exchanged = ExchangedHeads::on<Stream, Query, Communication, Exec>;

      public:
        using input_layout = Query;
        using output_layout = Stream;
        using Saved = std::variant<typename Summed::Saved, typename Exchanged::Saved>;

        template <class Output>
        explicit on(Output output) : output_(std::move(output)) {}

        Tensor<Stream, Exec> forward(Tensor<Query, Exec> x, Saved& saved) const {
            return visit(saved, [&](auto const& output, auto& its) {
                return redistribute<Stream>(output.forward(std::move(x), its));
            });
        }
        Tensor<dual_t<Query>, Exec> backward_data(Tensor<dual_t<Stream>, Exec> dy, Saved& saved) const {
            return visit(saved, [&]<class Output>(Output const& output, auto& its) {
                return output.backward_data(redistribute<dual_t<typename Output::output_layout>>(std::move(dy)), its);
            });
        }
        void backward_weight(Saved& saved) const {
            visit(saved, [](auto const& output, auto& its) { output.backward_weight(its); });
        }
        void drop_input(Saved& saved) const {
            visit(saved, []<class Output>(Output const&, auto& its) { Output::drop_input(its); });
        }
        void restore_input(Tensor<Query, Exec> x, Saved& saved) const {
            visit(saved, [&]<class Output>(Output const&, auto& its) { Output::restore_input(std::move(x), its); });
        }
        Tensor<Query, Exec> const& input(Saved const& saved) const {
            if (auto const* const summed = std::get_if<0>(&saved)) return Summed::input(*summed);
            return Exchanged::input(std::get<1>(saved));
        }
        template <class F>
        void for_each_parameter(F&& f) {
            std::visit([&f](auto& output) { output.for_each_parameter(f); }, output_);
        }

      private:
        /// Calls f(output, its saved state).
        template <class F>
        decltype(auto) visit(Saved& saved, F&& f) const {
            if (auto const* const summed = std::get_if<Summed>(&output_)) {
                if (saved.index() != 0) saved.template emplace<0>();
                return f(*summed, std::get<0>(saved));
            }
            if (saved.index() != 1) saved.template emplace<1>();
            return f(std::get<Exchanged>(output_), std::get<1>(saved));
        }

        std::variant<Summed, Exchanged> output_;
    };
    template <class Stream, class Query, class Communication, class Exec>
    static on<Stream, Query, Communication, Exec> make(LayerSetup<Exec> const& setup, std::string const& name,
                                                       std::size_t heads, std::size_t head_dim) {
        using Of = on<Stream, Query, Communication, Exec>;
        if (setup.block.attention_output == model::AttentionOutput::all_to_all)
            return Of(ExchangedHeads::make<Stream, Query, Communication>(setup, name, heads, head_dim));
        return Of(SummedHeads::make<Stream, Query, Communication>(setup, name, heads, head_dim));
    }
};

} // namespace pentad
