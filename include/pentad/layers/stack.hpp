// The blocks of a model on this rank, as a list made at run time from the description: each a row of residual branches,
// y = x + part(norm(x)).
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/layers/unit.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/recomputation.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pentad {

template <class Stream, class Exec>
class Stack {
  public:
    using T = typename Stream::element;
    using input_layout = Stream;
    using output_layout = Stream;
    using Activation = Tensor<Stream, Exec>;
    using Gradient = Tensor<dual_t<Stream>, Exec>;

    /// Of each branch, its norm and its part; made at the first forward pass and used again.
    struct Saved {
        struct Block {
            Activation x; ///< where all of the block is recomputed
            std::vector<std::unique_ptr<SavedState>> layers;
            std::vector<Activation> inputs; ///< of each part, where these are gathered again
            ActivationMemory::Record record = ActivationMemory::none;
        };
        std::vector<Block> blocks;

        void clear() {
            for (auto& block : blocks) {
                block.x = {};
                for (auto const& layer : block.layers) layer->clear();
                for (auto& input : block.inputs) input = {};
            }
        }
    };

    /// Blocks [first, first + count) of the model.
    /// @param recompute of each block of the model: of one that recomputes everything only the input is saved
    Stack(LayerSetup<Exec> const& setup, model::Model const& model, LayerRegistry<Stream, Exec> const& registry,
          std::size_t first, std::size_t count, model::Recomputation const& recompute)
        : blocks_(count), units_(count) {
        for (std::size_t i = 0; i < count; ++i) {
            auto const recomputed = recompute.of(first + i);
            blocks_[i].is_recomputed = recomputed.whole;
            for (auto const& branch : model.blocks.at(first + i).branches) {
                std::string const prefix = model::Model::prefix(first + i);
                auto& made = blocks_[i].branches.emplace_back();
                made.norm = registry.make_norm(setup, model.norm, prefix + branch.norm);
                made.part = registry.make(setup, branch.part, prefix + branch.name);
                if (!recomputed.whole) made.recomputed = recomputed.pieces & made.part->pieces();
                made.part->recompute(made.recomputed);
            }
            for (auto const& [norm, part, pieces] : blocks_[i].branches)
                for (auto* const layer : {norm.get(), part.get()})
                    layer->for_each_parameter([&](AnyParameter<T, Exec>& parameter) { units_[i].add(parameter); });
        }
    }

    /// @param next the unit that computes after the last block, if any
    Activation forward(Pass<Exec>& pass, Activation x, Saved& saved, Unit<T, Exec> const* next = nullptr) const {
        prepare(saved);
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            if (pass.saved != nullptr) pass.saved->begin(x.block().name());
            if (blocks_[i].is_recomputed) saved.blocks[i].x = x;
            units_[i].with_values([&] {
                if (auto const* const then = i + 1 < units_.size() ? &units_[i + 1] : next) then->prefetch();
                x = forward(i, pass, std::move(x), saved.blocks[i]);
            });
            if (blocks_[i].is_recomputed)
                for (auto const& layer : saved.blocks[i].layers) layer->clear();
            if (pass.saved != nullptr)
                saved.blocks[i].record = pass.saved->end(x.block().name(), saved.blocks[i].record);
        }
        return x;
    }
    Gradient backward_data(Pass<Exec>& pass, Gradient dy, Saved& saved) const {
        for (std::size_t i = blocks_.size(); i-- > 0;) dy = backward_data(i, pass, std::move(dy), saved.blocks[i]);
        return dy;
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        for (std::size_t i = blocks_.size(); i-- > 0;) backward_weight(i, pass, saved.blocks[i]);
    }
    /// Both backward passes, block by block: what is saved is freed, and gradients are complete, as early as can be.
    Gradient backward(Pass<Exec>& pass, Gradient dy, Saved& saved) const {
        for (std::size_t i = blocks_.size(); i-- > 0;) {
            dy = backward_data(i, pass, std::move(dy), saved.blocks[i]);
            backward_weight(i, pass, saved.blocks[i]);
        }
        return dy;
    }
    /// Of all blocks here.
    [[nodiscard]] observe::DecodingState decoding_state() const {
        observe::DecodingState sum;
        for (auto const& block : blocks_)
            for (auto const& branch : block.branches) sum += branch.part->decoding_state();
        return sum;
    }
    void for_each_parameter(ParameterVisitor<T, Exec> const& visit) {
        for (auto const& unit : units_)
            for (auto* const parameter : unit.parameters()) visit(*parameter);
    }
    /// One for each block.
    [[nodiscard]] std::vector<Unit<T, Exec>>& units() { return units_; }
    [[nodiscard]] std::vector<Unit<T, Exec>> const& units() const { return units_; }

  private:
    using Layer = StreamLayer<Stream, Exec>;
    struct Branch {
        std::unique_ptr<Layer> norm, part;
        model::PieceSet recomputed; ///< of the part

        /// Whether the output of the norm is kept for the part, which gathers it again.
        [[nodiscard]] bool keeps_input() const {
            return drops_input(recomputed) && !recomputed.contains(model::Piece::norms);
        }
    };
    struct Block {
        bool is_recomputed = false; ///< all of it
        std::vector<Branch> branches;
    };

    void prepare(Saved& saved) const {
        if (saved.blocks.size() == blocks_.size()) return;
        saved.blocks.resize(blocks_.size());
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            for (auto const& branch : blocks_[i].branches) {
                saved.blocks[i].layers.push_back(branch.norm->make_saved());
                saved.blocks[i].layers.push_back(branch.part->make_saved());
            }
            saved.blocks[i].inputs.resize(blocks_[i].branches.size());
        }
    }
    Activation forward(std::size_t i, Pass<Exec>& pass, Activation x, typename Saved::Block& saved) const {
        auto const& branches = blocks_[i].branches;
        for (std::size_t at = 0; at < branches.size(); ++at) {
            auto const& [norm, part, recomputed] = branches[at];
            auto input = norm->forward(pass, x, *saved.layers[2 * at]);
            if (branches[at].keeps_input()) saved.inputs[at] = input;
            auto y = part->forward(pass, std::move(input), *saved.layers[2 * at + 1]);
            kernels::add<T>(pass.context.exec(), x.flat(), y.flat());
            x = std::move(y);
        }
        return x;
    }
    Gradient backward_data(std::size_t i, Pass<Exec>& pass, Gradient dy, typename Saved::Block& saved) const {
        if (pass.saved != nullptr) pass.saved->bring_back(saved.record);
        units_[i].with_values([&] {
            if (i > 0) units_[i - 1].prefetch();
            if (blocks_[i].is_recomputed) {
                pass.is_replay = true;
                (void)forward(i, pass, std::move(saved.x), saved);
                pass.is_replay = false;
            }
            auto const& branches = blocks_[i].branches;
            for (std::size_t at = branches.size(); at-- > 0;) {
                auto const& [norm, part, recomputed] = branches[at];
                auto &of_norm = *saved.layers[2 * at], &of_part = *saved.layers[2 * at + 1];
                if (branches[at].keeps_input())
                    part->restore_input(std::move(saved.inputs[at]), of_part);
                else if (drops_input(recomputed))
                    part->restore_input(norm->output_again(pass, of_norm), of_part);
                auto dx = norm->backward_data(pass, part->backward_data(pass, dy, of_part), of_norm);
                kernels::add<T>(pass.context.exec(), dy.flat(), dx.flat());
                dy = std::move(dx);
            }
        });
        return dy;
    }
    void backward_weight(std::size_t i, Pass<Exec>& pass, typename Saved::Block& saved) const {
        units_[i].add_gradients(pass, [&] {
            auto const& branches = blocks_[i].branches;
            for (std::size_t at = branches.size(); at-- > 0;) {
                branches[at].part->backward_weight(pass, *saved.layers[2 * at + 1]);
                branches[at].norm->backward_weight(pass, *saved.layers[2 * at]);
            }
        });
    }

    std::vector<Block> blocks_;
    std::vector<Unit<T, Exec>> units_; ///< of each block
};

} // namespace pentad
