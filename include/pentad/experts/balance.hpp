// The losses of a router: of balance (model::BalanceLoss), over all tokens of a micro-batch or of each sequence, and z.
#pragma once

#include <pentad/kernels/compiled.hpp>
#include <pentad/kernels/elementwise.hpp>
#include <pentad/kernels/router.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::experts {

using namespace ml;

namespace detail {
/// sums = [choices of each expert, sum of each expert's shares of tokens, sum of lse^2], in f64.
template <class A, class Exec>
void gather_sums(Exec const& exec, View<i64 const, 1, Exec> counts, View<A const, 1, Exec> share_sums,
                 View<A const, 1, Exec> lse, View<f64, 1, Exec> sums) {
    if (kernels::dry("router_sums", counts, share_sums, lse, sums)) return;
    std::size_t const n = counts.extent(0);
    Kokkos::parallel_for(
        "pentad::router_sums", Kokkos::RangePolicy<Exec>(exec, 0, n), KOKKOS_LAMBDA(std::size_t e) {
            sums(e) = static_cast<f64>(counts(e));
            sums(n + e) = static_cast<f64>(share_sums(e));
        });
    kernels::sum_of_squares<A>(exec, lse, View<f64, 0, Exec>(sums.data() + 2 * n));
}
PENTAD_KERNEL_OF_ACCUMULATORS(gather_sums)

template <class Stream>
struct SequenceSums;
template <class T, class Batch, class... D, class... States>
struct SequenceSums<Layout<T, Dims<Batch, D...>, States...>> {
    using type = summed_t<f64, Dims<Batch, Dim<expert>>, Layout<T, Dims<Batch, D...>, States...>>;
};
} // namespace detail

/// Over the T tokens of a micro-batch on all ranks and in all slices, without padding, with f_e the choices of expert e
/// and P_e the sum of its shares (score / sum of the token's scores):
///   micro_batch  E / T^2 sum_e f_e P_e (Fedus et al. 2021, eq. 4; all k choices of a token count, as in Hugging
///                Face's Mixtral)
///   sequence     the mean over sequences of E / (k T^2) sum_e f_e P_e of each (DeepSeek-V3, eq. 17 to 20)
///   z            mean of logsumexp(logits)^2 (Zoph et al. 2022, eq. 5)
/// Choices that an expert has no room for count. What each rank notes of a loss adds up to it over the ranks that share
/// out the tokens.
template <class Stream, class Exec>
class BalanceLoss {
  public:
    using A = accumulator_t<typename Stream::element>;
    using Memory = memory::Buffer<typename Exec::memory_space>;
    /// [choices of experts, shares of experts, squares]: of all tokens, or of each sequence.
    using Sums = summed_t<f64, Dims<Dim<expert>>, Stream>;
    using SequenceSums = typename detail::SequenceSums<Stream>::type;

    /// What a backward pass needs: the gradient of each expert's share of a token.
    struct Gradient {
        Memory block;
        std::size_t rows = 0; ///< sequences of this rank, one for all tokens, or none where there is no loss
        View<A, 2, Exec> view(std::size_t experts) const {
            return View<A, 2, Exec>(static_cast<A*>(block.data()), rows, experts);
        }
    };

    BalanceLoss(LayerSetup<Exec> const& setup, model::Experts const& part)
        : loss_(part.router.balance_loss), experts_(part.count), top_k_(part.top_k), slices_(setup.slices),
          slice_sums_(setup.template slice_state<std::vector<double>>()), batch_(setup.batch),
          tokens_(static_cast<double>(setup.batch * setup.real_length())) {
        if (of_sequences()) {
            sequences_ = Tensor<SequenceSums, Exec>::without_memory(setup.context, {setup.batch, columns()}).local()[0];
            prepare_redistribution<SequenceSums, invariant_t<SequenceSums>>(setup.context);
        } else if (has_loss())
            prepare_redistribution<Sums, invariant_t<Sums>>(setup.context);
        sums_.resize(sequences_ * columns());
        gradient_.resize(sequences_ * experts_);
    }

    /// Tokens of all sequences of a micro-batch, without padding.
    [[nodiscard]] double tokens() const { return tokens_; }

    /// Adds up what the losses are made of, over the ranks that share a loss, notes the losses in the pass, and the
    /// gradient where all slices of the sequences have been seen. Collective over these ranks.
    void forward(Pass<Exec>& pass, View<A const, 2, Exec> scores, View<A const, 1, Exec> total,
                 View<A const, 1, Exec> lse, View<i32 const, 2, Exec> index, Gradient& gradient) const {
        if (pass.ragged != nullptr) return;        // nobody learns from them
        if (slices_ > 1 && pass.is_replay) return; // the sums of whole sequences are known
        if (of_sequences())
            add_up<SequenceSums>(pass.context, {batch_, columns()}, scores, total, lse, index);
        else
            add_up<Sums>(pass.context, {columns()}, scores, total, lse, index);
        if (slices_ > 1) { // the losses are those of whole sequences
            auto& all = *pass.at_slice(slice_sums_).memory;
            if (pass.slice == 0) all.assign(sums_.size(), 0);
            for (std::size_t i = 0; i < all.size(); ++i) sums_[i] = all[i] += sums_[i];
            if (pass.slice + 1 < slices_) return;
        }
        if (!pass.is_replay) note_losses(pass);
        if (slices_ == 1) note_gradient(pass, sums_, gradient);
    }
    /// Before a backward pass: the gradient where slices of sequences have one together.
    void prepare_backward(Pass<Exec>& pass, Gradient& gradient) const {
        if (slices_ > 1) note_gradient(pass, *pass.at_slice(slice_sums_).memory, gradient);
    }

  private:
    [[nodiscard]] bool of_sequences() const { return loss_ == model::BalanceLoss::sequence; }
    [[nodiscard]] bool has_loss() const { return loss_ != model::BalanceLoss::none; }
    [[nodiscard]] std::size_t columns() const { return 2 * experts_ + 1; }
    /// The factor of f_e P_e in the loss.
    [[nodiscard]] double factor() const {
        auto const n = static_cast<double>(experts_);
        if (!of_sequences()) return n / (tokens_ * tokens_);
        auto const sequences = static_cast<double>(batch_), length = tokens_ / sequences;
        return n / (static_cast<double>(top_k_) * length * length * sequences);
    }

    /// sums_ = those of a pass: of this rank's sequences, or of all tokens.
    template <class Layout>
    void add_up(Context<Exec> const& context, typename Tensor<Layout, Exec>::extents_type const& extents,
                View<A const, 2, Exec> scores, View<A const, 1, Exec> total, View<A const, 1, Exec> lse,
                View<i32 const, 2, Exec> index) const {
        auto const& exec = context.exec();
        Memory const counts = context.take(experts_ * sizeof(i64)), shares = context.take(experts_ * sizeof(A));
        View<i64, 1, Exec> const count_view(static_cast<i64*>(counts.data()), experts_);
        View<A, 1, Exec> const share_view(static_cast<A*>(shares.data()), experts_);
        Tensor<Layout, Exec> sums(context, extents);
        std::size_t const rows = scores.extent(0) / sequences_;
        for (std::size_t i = 0; i < sequences_; ++i) {
            std::pair const part{i * rows, (i + 1) * rows};
            auto const of_part = [&](auto const& view) {
                if constexpr (std::decay_t<decltype(view)>::rank == 2)
                    return Kokkos::subview(view, part, Kokkos::ALL);
                else
                    return Kokkos::subview(view, part);
            };
            kernels::router_counts<Exec>(exec, of_part(index), count_view);
            kernels::router_share_sums<A>(exec, of_part(scores), of_part(total), share_view);
            detail::gather_sums<A, Exec>(exec, count_view, share_view, of_part(lse),
                                         View<f64, 1, Exec>(sums.array_data() + i * columns(), columns()));
        }
        if (has_loss()) {
            auto const all = redistribute<invariant_t<Layout>>(std::move(sums));
            all.get(sums_.data());
        } else {
            memory::copy_to_host(exec, sums_.data(), sums.array_data(), sums_.size() * sizeof(f64));
        }
    }
    /// Whether what this rank knows of a loss is what it adds to it: one of the ranks that know the same.
    [[nodiscard]] bool counts_here(Context<Exec> const& context) const {
        if (!has_loss()) return true; // each knows its own tokens
        auto const& alike = of_sequences() ? SequenceSums::value.partial : Sums::value.partial;
        return context.communicators().shard_index(alike) == 0;
    }
    void note_losses(Pass<Exec>& pass) const {
        if (!counts_here(pass.context)) return;
        double const weight = factor();
        for (std::size_t i = 0; i < sequences_; ++i) {
            double const* const of_part = sums_.data() + i * columns();
            for (std::size_t e = 0; has_loss() && e < experts_; ++e)
                pass.balance_sum += weight * of_part[e] * of_part[experts_ + e];
            pass.z_sum += of_part[2 * experts_] / tokens_;
        }
    }
    /// With respect to shares, from the sums of whole sequences.
    void note_gradient(Pass<Exec> const& pass, std::vector<double> const& sums, Gradient& gradient) const {
        if (!has_loss()) return;
        double const weight = pass.balance_scale * factor();
        for (std::size_t i = 0; i < sequences_; ++i)
            for (std::size_t e = 0; e < experts_; ++e)
                gradient_[i * experts_ + e] = static_cast<A>(weight * sums[i * columns() + e]);
        gradient.rows = sequences_;
        gradient.block = pass.context.take(gradient_.size() * sizeof(A));
        memory::copy_from_host(pass.context.exec(), gradient.block.data(), gradient_.data(),
                               gradient_.size() * sizeof(A));
    }

    model::BalanceLoss loss_;
    std::size_t experts_, top_k_, slices_;
    StateKey<SliceState<std::vector<double>>> slice_sums_;
    std::size_t batch_;
    std::size_t sequences_ = 1; ///< of this rank, where each has a loss
    double tokens_;
    mutable std::vector<double> sums_; // host copies, kept so that a step allocates nothing
    mutable std::vector<A> gradient_;
};

} // namespace pentad::experts
