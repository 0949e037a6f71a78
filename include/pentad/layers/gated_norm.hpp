// RMSNorm with a gate, over all heads or over groups of them, which ranks of tp may share.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/gated_norm.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace pentad {

/// The norm of y and its gate, both `[batch, seq, channels@tp]`. Sums of a group that ranks of tp share are partial
/// over tp. @tparam Gate where the gate is: kernels::GateBeforeNorm or GateAfterNorm
template <class Gate, class X, class Exec>
class GatedNorm {
  public:
    using T = typename X::element;
    using A = accumulator_t<T>;
    using Weight = last_dimension_t<X>;
    using OwnSums = with_element_t<with_last_dim_t<X, Dim<ml::group, dynamic, ml::tp>>, A>;
    using PartialSums = with_element_t<with_last_dim_t<summands_t<X, ml::tp>, Dim<ml::group>>, A>;
    using WholeSums = with_element_t<with_last_dim_t<unsharded_t<X, ml::tp>, Dim<ml::group>>, A>;

    /// A sum for each token and group.
    struct Sums {
        Tensor<OwnSums, Exec> own;     ///< where a group is on one rank of tp
        Tensor<WholeSums, Exec> whole; ///< where ranks share it
    };
    struct Saved {
        Sums squares;
        memory::Buffer<typename Exec::memory_space> weight_gradient;
    };

    /// @throws std::invalid_argument where neither groups nor tp is a multiple of the other
    GatedNorm(LayerSetup<Exec> const& setup, std::string const& name, std::size_t channels, std::size_t groups)
        : weight_(setup.context, name + ".weight", {channels}, {.values = InitialValues::ones}), groups_(groups),
          epsilon_(static_cast<A>(setup.norm_epsilon)) {
        auto const& communicators = setup.context.communicators();
        auto const ranks = static_cast<std::size_t>(communicators.extent(ml::tp::name));
        if (groups == 0 || (groups % ranks != 0 && ranks % groups != 0))
            throw std::invalid_argument(name + ": " + std::to_string(groups) + " groups and tp = " +
                                        std::to_string(ranks) + ": one must be a multiple of the other");
        columns_ = channels / groups;
        is_shared_ = groups < ranks;
        if (is_shared_) mine_ = communicators.shard_index(AxisNames(ml::tp::name)) * groups / ranks;
    }

    Tensor<X, Exec> forward(Pass<Exec>& pass, Tensor<X, Exec> const& y, Tensor<X, Exec> const& gate,
                            Saved& saved) const {
        saved.squares = sums(pass, y, [&](View<A, 2, Exec> const& squares) {
            kernels::gated_norm_squares<Gate, T>(pass.context.exec(), y.rows(), gate.rows(), squares);
        });
        return output_again(pass, y, gate, saved);
    }
    Tensor<X, Exec> output_again(Pass<Exec>& pass, Tensor<X, Exec> const& y, Tensor<X, Exec> const& gate,
                                 Saved const& saved) const {
        Tensor<X, Exec> n(pass.context, y.extents());
        kernels::gated_norm_forward<Gate, T>(pass.context.exec(), y.rows(), gate.rows(), mine(saved.squares),
                                             weight_.value().flat(), epsilon_, columns_, n.rows());
        return n;
    }
    /// From dn, the gradients of y, in its place, and of the gate, in that of the gate. That of the weight waits in
    /// `saved` for backward_weight.
    void backward_data(Pass<Exec>& pass, Tensor<dual_t<X>, Exec> const& dn, Tensor<X, Exec> const& y,
                       Tensor<X, Exec> const& gate, Saved& saved) const {
        auto const& exec = pass.context.exec();
        auto const dots = sums(pass, y, [&](View<A, 2, Exec> const& own) {
            kernels::gated_norm_dots<Gate, T>(exec, dn.rows(), y.rows(), gate.rows(), weight_.value().flat(), own);
        });
        saved.weight_gradient = pass.context.take(weight_.size() * sizeof(A));
        kernels::gated_norm_backward_weight<Gate, T>(exec, dn.rows(), y.rows(), gate.rows(), mine(saved.squares),
                                                     epsilon_, columns_, weight_gradient(saved));
        kernels::gated_norm_backward<Gate, T>(exec, dn.rows(), y.rows(), gate.rows(), mine(saved.squares), mine(dots),
                                              weight_.value().flat(), epsilon_, columns_, dn.rows(), gate.rows());
        saved.squares = {};
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        kernels::add<A>(pass.context.exec(), weight_gradient(saved), weight_.gradient().array_flat());
        saved = {};
    }
    template <class F>
    void for_each_parameter(F&& f) {
        f(weight_);
    }

  private:
    /// Sums of this rank's columns, which `write` makes, and of those of the ranks that share their groups.
    template <class Write>
    Sums sums(Pass<Exec>& pass, Tensor<X, Exec> const& y, Write&& write) const {
        typename Tensor<OwnSums, Exec>::extents_type const extents{y.extents()[0], y.extents()[1], groups_};
        Sums result;
        if (!is_shared_) {
            result.own = {pass.context, extents};
            write(result.own.rows());
            return result;
        }
        Tensor<PartialSums, Exec> partial(pass.context, extents);
        if (groups_ > 1) partial.clear();
        write(of_own_group(partial.array_rows()));
        result.whole = redistribute<WholeSums>(std::move(partial));
        return result;
    }
    [[nodiscard]] View<A, 2, Exec> mine(Sums const& sums) const {
        return is_shared_ ? of_own_group(sums.whole.rows()) : sums.own.rows();
    }
    [[nodiscard]] View<A, 2, Exec> of_own_group(View<A, 2, Exec> const& all) const {
        return kernels::columns(all, mine_, mine_ + 1);
    }
    [[nodiscard]] View<A, 1, Exec> weight_gradient(Saved const& saved) const {
        return View<A, 1, Exec>(static_cast<A*>(saved.weight_gradient.data()), weight_.size());
    }

    Parameter<Weight, used_t<Weight, X>, Exec> weight_;
    std::size_t groups_, columns_ = 0; ///< of the norm, and channels of each
    A epsilon_;
    bool is_shared_ = false; ///< whether ranks of tp share a group
    std::size_t mine_ = 0;   ///< the one of this rank's channels, where they do
};

} // namespace pentad
