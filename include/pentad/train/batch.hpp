// The tokens and targets of a step: this rank's part of the global batch, the same batch on every mesh.
#pragma once

#include <pentad/io/token_data.hpp>
#include <pentad/layers/layer.hpp>
#include <pentad/layout/local_steps.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/streams.hpp>
#include <pentad/tensor/any_tensor.hpp>
#include <pentad/train/detail/totals.hpp>
#include <pentad/train/packing.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// Micro-batch i of m is the global sequences i B/m to (i+1) B/m; these, and each slice of a sequence, are sharded as
/// the stream's. Padding is token 0, and predicts nothing.
template <class Exec>
class Batch {
  public:
    /// @param stream the layout of the residual stream
    /// @param ignored a target that carries no loss
    /// @param packing where documents end, none: sequences are one document each
    /// @param shows_padding whether some part sees later tokens, so that it has to be told where padding begins
    /// @param predictors of the model: the k-th is given the tokens k further ahead
    Batch(LayerSetup<Exec> const& setup, LayoutValue const& stream, std::size_t micro_batches,
          std::optional<i32> ignored, LocalSteps const& local = {}, std::optional<Packing> packing = {},
          bool shows_padding = false, std::size_t predictors = 0)
        : setup_(&setup), layout_(token_values<i32>(stream)), micro_batches_(micro_batches), predictors_(predictors),
          ignored_(ignored), local_(local), packing_(packing) {
        for (std::size_t i = 0; i < micro_batches * setup.slices * (1 + predictors); ++i) {
            tokens_.emplace_back(setup.context, layout_, extents());
            targets_.emplace_back(setup.context, layout_, extents());
        }
        for (std::size_t i = 0; i < tokens_.size(); ++i) ahead_.push_back({tokens_[i].rows(), targets_[i].rows()});
        host_tokens_.resize(tokens_[0].size());
        host_targets_.resize(tokens_[0].size());
        windows_.resize(tokens_[0].local()[0] * (setup.real_length() + 1));
        if (packing_ || (shows_padding && setup.padding > 0))
            for (std::size_t i = 0; i < micro_batches; ++i)
                maps_.push_back(std::make_unique<PackedMap<Exec>>(setup, stream));
        pentad::detail::prepare(setup.context, detail::total_plan(layout_.axes(), Placement::partial));
        if (local_.is_on()) pentad::detail::prepare(setup.context, detail::total_plan(own_axes(), Placement::partial));
    }
    Batch(Batch const&) = delete; // its tensors have its layout
    Batch& operator=(Batch const&) = delete;

    /// Fills in the batch of a step (from 1), and counts the valid targets, over all ranks, in each of `groups` groups
    /// of its micro-batches. Collective.
    /// @param shift added to the numbers of the sequences, which count from the first step's
    void load(io::TokenData const& data, std::int64_t step, int groups = 1, std::int64_t shift = 0) {
        auto const& communicators = setup_->context.communicators();
        std::size_t const shard = communicators.shard_index(layout_.dimensions[1].axes);
        std::size_t const rows = tokens_[0].local()[0], columns = tokens_[0].local()[1];
        std::size_t const first_row = rows * communicators.shard_index(layout_.dimensions[0].axes);
        valid_.assign(static_cast<std::size_t>(groups), 0);
        for (std::size_t i = 0; i < micro_batches_; ++i) {
            for (std::size_t row = 0; row < rows; ++row) {
                auto const sequence =
                    (static_cast<std::size_t>(step - 1) * micro_batches_ + i) * setup_->batch + first_row + row;
                data.read(static_cast<std::int64_t>(sequence) + shift, window(row));
            }
            if (!maps_.empty()) maps_[i]->set(packing_, windows_);
            auto const dealt = maps_.empty() ? setup_->partition() : maps_[i]->dealt();
            for (std::size_t slice = 0; slice < setup_->slices; ++slice)
                for (std::size_t ahead = 0; ahead <= predictors_; ++ahead) {
                    for (std::size_t at = 0; at < rows * columns; ++at) {
                        std::size_t const position = slice * setup_->seq + dealt.global_index(shard, at % columns);
                        auto const [token, target] = look_ahead(window(at / columns), position, ahead);
                        host_tokens_[at] = token;
                        host_targets_[at] = target;
                        if (ahead == 0 && target >= 0) ++valid_[i * valid_.size() / micro_batches_];
                    }
                    tokens_[index(i, slice) + ahead].set(host_tokens_.data());
                    targets_[index(i, slice) + ahead].set(host_targets_.data());
                }
        }
        if (local_.is_on()) {
            own_valid_ = valid_;
            total_over(setup_->context, own_axes(), Placement::partial, std::span(own_valid_));
        }
        total_over(setup_->context, layout_.axes(), Placement::partial, std::span(valid_));
    }
    /// Valid targets of the last batch, in each group of its micro-batches.
    [[nodiscard]] std::vector<double> const& valid() const { return valid_; }
    /// Valid targets of the ranks that share every step with this one, in each group; of all ranks if there are no
    /// local steps.
    [[nodiscard]] std::vector<double> const& own_valid() const { return local_.is_on() ? own_valid_ : valid_; }

    [[nodiscard]] View<i32 const, 2, Exec> tokens(std::size_t micro_batch, std::size_t slice) const {
        return tokens_[index(micro_batch, slice)].rows();
    }
    /// Tokens and targets for the model's predictors.
    [[nodiscard]] std::span<TokensAhead<Exec> const> ahead(std::size_t micro_batch, std::size_t slice) const {
        return std::span(ahead_).subspan(index(micro_batch, slice) + 1, predictors_);
    }
    /// Null where the setup says where tokens are.
    [[nodiscard]] SequenceMap<Exec> const* map(std::size_t micro_batch, std::size_t slice) const {
        return maps_.empty() ? nullptr : &maps_[micro_batch]->of_slice(slice);
    }
    [[nodiscard]] View<i32 const, 2, Exec> targets(std::size_t micro_batch, std::size_t slice) const {
        return targets_[index(micro_batch, slice)].rows();
    }

  private:
    [[nodiscard]] std::array<std::size_t, 2> extents() const { return {setup_->batch, setup_->seq}; }
    [[nodiscard]] std::size_t index(std::size_t micro_batch, std::size_t slice) const {
        return (micro_batch * setup_->slices + slice) * (1 + predictors_);
    }
    /// The token so far ahead of a position of a sequence, and its target; negative: it carries no loss.
    [[nodiscard]] std::pair<i32, i32> look_ahead(std::span<i32 const> sequence, std::size_t position,
                                                 std::size_t ahead) const {
        std::size_t const at = position + ahead;
        if (at >= setup_->real_length()) return {0, -1};
        i32 const target = sequence[at + 1];
        bool counts = !ignored_ || target != *ignored_;
        for (std::size_t i = position; i <= at; ++i) // documents end here
            counts = counts && !(packing_ && sequence[i] == packing_->last);
        return {sequence[at], counts ? target : -1};
    }
    [[nodiscard]] std::span<i32> window(std::size_t row) {
        std::size_t const length = setup_->real_length() + 1;
        return std::span(windows_).subspan(row * length, length);
    }
    [[nodiscard]] AxisNames own_axes() const { return local_.together(layout_.axes()); }

    LayerSetup<Exec> const* setup_;
    LayoutValue layout_; ///< of tokens and targets
    std::size_t micro_batches_, predictors_;
    std::optional<i32> ignored_;
    LocalSteps local_;
    std::vector<AnyTensor<i32, Exec>> tokens_, targets_; ///< of each slice, and behind them those ahead
    std::vector<TokensAhead<Exec>> ahead_;               ///< both of each
    std::vector<i32> host_tokens_, host_targets_;
    std::vector<i32> windows_; ///< of a micro-batch: sequences, in all their slices, and the token after each
    std::optional<Packing> packing_;
    std::vector<std::unique_ptr<PackedMap<Exec>>> maps_; ///< of each micro-batch
    std::vector<double> valid_, own_valid_;
};

} // namespace pentad::train
