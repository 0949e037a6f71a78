// The blocks of a model on this rank, as a list made at run time from the description: each a row of residual branches,
// y = x + part(norm(x)).
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/layers/unit.hpp>
#include <pentad/model/model.hpp>

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

    /// Of each branch, its norm and its part; made at the first forward pass and used again. With recomputation the
    /// input of the block instead.
    struct Saved {
        struct Block {
            Activation x;
            std::vector<std::unique_ptr<SavedState>> layers;
        };
        std::vector<Block> blocks;

        void clear() {
            for (auto& block : blocks) {
                block.x = {};
                for (auto const& layer : block.layers) layer->clear();
            }
        }
    };

    /// Blocks [first, first + count) of the model.
    /// @param recomputes a block keeps its input alone and does its forward pass again in the backward pass
    Stack(LayerSetup<Exec> const& setup, model::Model const& model, LayerRegistry<Stream, Exec> const& registry,
          std::size_t first, std::size_t count, bool recomputes)
        : recomputes_(recomputes), blocks_(count), units_(count) {
        for (std::size_t i = 0; i < count; ++i) {
            for (auto const& branch : model.blocks.at(first + i).branches) {
                std::string const prefix = model::Model::prefix(first + i);
                blocks_[i].push_back(registry.make_norm(setup, model.norm, prefix + branch.norm));
                blocks_[i].push_back(registry.make(setup, branch.part, prefix + branch.name));
            }
            for (auto const& layer : blocks_[i])
                layer->for_each_parameter([&](AnyParameter<T, Exec>& parameter) { units_[i].add(parameter); });
        }
    }

    /// @param next the unit that computes after the last block, if any
    Activation forward(Pass<Exec>& pass, Activation x, Saved& saved, Unit<T, Exec> const* next = nullptr) const {
        prepare(saved);
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            if (recomputes_) saved.blocks[i].x = x;
            units_[i].with_values([&] {
                if (auto const* const then = i + 1 < units_.size() ? &units_[i + 1] : next) then->prefetch();
                x = forward(i, pass, std::move(x), saved.blocks[i]);
            });
            if (recomputes_)
                for (auto const& layer : saved.blocks[i].layers) layer->clear();
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
            for (auto const& layer : block) sum += layer->decoding_state();
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
    /// Norm, part, norm, part, ...
    using BlockLayers = std::vector<std::unique_ptr<StreamLayer<Stream, Exec>>>;

    void prepare(Saved& saved) const {
        if (saved.blocks.size() == blocks_.size()) return;
        saved.blocks.resize(blocks_.size());
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            for (auto const& layer : blocks_[i]) saved.blocks[i].layers.push_back(layer->make_saved());
    }
    Activation forward(std::size_t i, Pass<Exec>& pass, Activation x, typename Saved::Block& saved) const {
        auto const& layers = blocks_[i];
        for (std::size_t at = 0; at < layers.size(); at += 2) {
            auto y =
                layers[at + 1]->forward(pass, layers[at]->forward(pass, x, *saved.layers[at]), *saved.layers[at + 1]);
            kernels::add<T>(pass.context.exec(), x.flat(), y.flat());
            x = std::move(y);
        }
        return x;
    }
    Gradient backward_data(std::size_t i, Pass<Exec>& pass, Gradient dy, typename Saved::Block& saved) const {
        units_[i].with_values([&] {
            if (i > 0) units_[i - 1].prefetch();
            if (recomputes_) {
                pass.is_replay = true;
                (void)forward(i, pass, std::move(saved.x), saved);
                pass.is_replay = false;
            }
            auto const& layers = blocks_[i];
            for (std::size_t at = layers.size(); at > 0; at -= 2) {
                auto dx = layers[at - 2]->backward_data(
                    pass, layers[at - 1]->backward_data(pass, dy, *saved.layers[at - 1]), *saved.layers[at - 2]);
                kernels::add<T>(pass.context.exec(), dy.flat(), dx.flat());
                dy = std::move(dx);
            }
        });
        return dy;
    }
    void backward_weight(std::size_t i, Pass<Exec>& pass, typename Saved::Block& saved) const {
        units_[i].add_gradients(pass, [&] {
            auto const& layers = blocks_[i];
            for (std::size_t at = layers.size(); at > 0; at -= 2) {
                layers[at - 1]->backward_weight(pass, *saved.layers[at - 1]);
                layers[at - 2]->backward_weight(pass, *saved.layers[at - 2]);
            }
        });
    }

    bool recomputes_;
    std::vector<BlockLayers> blocks_;
    std::vector<Unit<T, Exec>> units_; ///< of each block
};

} // namespace pentad
