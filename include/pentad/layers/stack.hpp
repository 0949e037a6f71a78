// The blocks of a model on this rank, as a list made at run time from the description: each a row of residual branches,
// y = x + part(norm(x)). The layouts of their residual streams may differ.
#pragma once

#include <pentad/kernels/elementwise.hpp>
#include <pentad/layers/places.hpp>
#include <pentad/layers/registry.hpp>
#include <pentad/layers/stream_edge.hpp>
#include <pentad/layers/unit.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/recomputation.hpp>
#include <pentad/tensor/any_tensor.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pentad {

template <class T, class Exec>
class Stack {
  public:
    using Any = AnyTensor<T, Exec>;

    /// The saved states of the norm and the part of each branch, made at the first forward pass and used again.
    struct Saved {
        struct Block {
            Any x; ///< where all of the block is recomputed
            std::vector<std::unique_ptr<SavedState>> layers;
            std::vector<Any> inputs; ///< of the parts that gather theirs again in the backward pass
            ActivationMemory::Record record = ActivationMemory::none;

            void clear() {
                x = {};
                for (auto const& layer : layers) layer->clear();
                for (auto& input : inputs) input = {};
            }
        };
        std::vector<Block> blocks;

        void clear() {
            for (auto& block : blocks) block.clear();
        }
    };

    /// Blocks [first, first + count) of the model. The first takes the stream in the layout of the block before it.
    /// Collective over the groups of the axes that layers, and streams of different layouts, communicate along.
    /// @param recompute of each block of the model: of one that recomputes everything only the input is saved
    /// @param meets_end whether the last block hands its output over in the layout of the model's ends; else in its own
    Stack(ModelPlaces<Exec> const& places, model::Model const& model, LayerRegistry<T, Exec> const& registry,
          std::size_t first, std::size_t count, model::Recomputation const& recompute, bool meets_end = false)
        : first_(first), blocks_(count) {
        if (meets_end) exit_ = StreamEdge<Exec>(places.before(first + count), places.ends());
        for (std::size_t i = 0; i < count; ++i) {
            auto const recomputed = recompute.of(first + i);
            auto const& [setup, stream] = places.of(first + i);
            auto& block = blocks_[i];
            block.entry = StreamEdge<Exec>(places.before(first + i), places.of(first + i));
            block.context = &setup->context;
            block.is_recomputed = recomputed.whole;
            block.first_unit = units_.size();
            for (auto const& branch : model.block(first + i).branches) {
                std::string const prefix = model::Model::prefix(first + i);
                auto& made = block.branches.emplace_back();
                made.part = registry.make(*setup, *stream, branch.part, prefix + branch.name);
                made.norm = registry.make_norm(*setup, *stream, model.norm, prefix + branch.norm);
                if (!recomputed.whole) made.recomputed = recomputed.pieces & made.part->pieces();
                made.part->recompute(made.recomputed);
                if (!recomputed.whole || block.branches.size() == 1) units_.emplace_back();
                for (auto* const layer : {made.norm.get(), made.part.get()})
                    layer->for_each_parameter([&](AnyParameter<T, Exec>& parameter) { units_.back().add(parameter); });
            }
        }
    }

    /// @param next the unit that computes after the last block, if any
    Any forward(Pass<Exec>& pass, Any x, Saved& saved, Unit<T, Exec> const* next = nullptr) const {
        prepare(saved);
        auto* const memory = pass.saves ? pass.saved : nullptr;
        for (std::size_t i = 0; i < blocks_.size(); ++i) {
            x = blocks_[i].entry.forward(std::move(x));
            if (memory != nullptr) memory->begin(x.block().name());
            if (blocks_[i].is_recomputed) saved.blocks[i].x = x;
            for (std::size_t at = 0; at < blocks_[i].units(); ++at) {
                std::size_t const unit = blocks_[i].first_unit + at;
                units_[unit].with_values([&] {
                    if (auto const* const then = unit + 1 < units_.size() ? &units_[unit + 1] : next) then->prefetch();
                    in_place(i, pass, [&](auto& own) {
                        x = forward(blocks_[i].of_unit(at), i, own, std::move(x), saved.blocks[i]);
                    });
                });
            }
            if (blocks_[i].is_recomputed)
                for (auto const& layer : saved.blocks[i].layers) layer->clear();
            if (!pass.saves) saved.blocks[i].clear();
            if (memory != nullptr) saved.blocks[i].record = memory->end(x.block().name(), saved.blocks[i].record);
        }
        return exit_.forward(std::move(x));
    }
    Any backward_data(Pass<Exec>& pass, Any dy, Saved& saved) const {
        dy = exit_.backward(std::move(dy));
        for_each_unit_backwards(pass, saved, [&](std::size_t i, std::size_t at) {
            in_place(i, pass, [&](auto& own) { dy = backward_data(i, at, own, std::move(dy), saved.blocks[i]); });
        });
        return dy;
    }
    void backward_weight(Pass<Exec>& pass, Saved& saved) const {
        for (std::size_t i = blocks_.size(); i-- > 0;)
            for (std::size_t at = blocks_[i].units(); at-- > 0;)
                in_place(i, pass, [&](auto& own) { backward_weight(i, at, own, saved.blocks[i]); });
    }
    /// Both backward passes, unit by unit: what is saved is freed, and gradients are complete, as early as can be.
    Any backward(Pass<Exec>& pass, Any dy, Saved& saved) const {
        dy = exit_.backward(std::move(dy));
        for_each_unit_backwards(pass, saved, [&](std::size_t i, std::size_t at) {
            in_place(i, pass, [&](auto& own) {
                dy = backward_data(i, at, own, std::move(dy), saved.blocks[i]);
                backward_weight(i, at, own, saved.blocks[i]);
            });
        });
        return dy;
    }
    /// The number of the first block here with a part that continues no sequences.
    [[nodiscard]] std::optional<std::size_t> first_without_sequences() const {
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            for (auto const& branch : blocks_[i].branches)
                if (!branch.part->continues_sequences()) return first_ + i;
        return {};
    }
    /// The decoding state of all blocks here.
    [[nodiscard]] observe::DecodingState decoding_state() const {
        observe::DecodingState sum;
        for (auto const& block : blocks_)
            for (auto const& branch : block.branches) sum += branch.part->decoding_state();
        return sum;
    }
    /// f(number of the block, load) for the routers here, over all training passes so far.
    template <class F>
    void for_each_router_load(F&& f) const {
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            for (auto const& branch : blocks_[i].branches)
                if (auto const load = branch.part->router_load()) f(first_ + i, *load);
    }
    /// f(number of the block, placement) for where the experts of blocks here are.
    template <class F>
    void for_each_expert_placement(F&& f) {
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            for (auto const& branch : blocks_[i].branches)
                if (auto* const placement = branch.part->expert_placement()) f(first_ + i, *placement);
    }
    void for_each_parameter(ParameterVisitor<T, Exec> const& visit) {
        for (auto const& unit : units_)
            for (auto* const parameter : unit.parameters()) visit(*parameter);
    }
    /// One for each branch; of a block that is recomputed, one for all its branches, which are needed together.
    [[nodiscard]] std::vector<Unit<T, Exec>>& units() { return units_; }
    [[nodiscard]] std::vector<Unit<T, Exec>> const& units() const { return units_; }

  private:
    using Layer = StreamLayer<T, Exec>;
    struct Branch {
        std::unique_ptr<Layer> norm, part;
        model::PieceSet recomputed; ///< of the part

        /// Whether the output of the norm is kept for the part, which gathers it again.
        [[nodiscard]] bool keeps_input() const {
            return drops_input(recomputed) && !recomputed.contains(model::Piece::norms);
        }
    };
    struct Range {
        std::size_t begin, end;
    };
    struct Block {
        StreamEdge<Exec> entry; ///< from the stream of the block before
        Context<Exec> const* context = nullptr;
        bool is_recomputed = false; ///< all of it
        std::vector<Branch> branches;
        std::size_t first_unit = 0;

        [[nodiscard]] std::size_t units() const { return is_recomputed ? 1 : branches.size(); }
        /// The branches of its unit number `at`.
        [[nodiscard]] Range of_unit(std::size_t at) const {
            return is_recomputed ? Range{0, branches.size()} : Range{at, at + 1};
        }
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
    /// f(pass) with the pass in the place of a block.
    template <class F>
    void in_place(std::size_t i, Pass<Exec>& pass, F&& f) const {
        if (blocks_[i].context == &pass.context) return f(pass);
        auto own = pass.on(*blocks_[i].context);
        f(own);
        pass.add_sums(own);
    }
    Any forward(Range branches, std::size_t i, Pass<Exec>& pass, Any x, typename Saved::Block& saved) const {
        for (std::size_t at = branches.begin; at < branches.end; ++at) {
            auto const& branch = blocks_[i].branches[at];
            auto input = branch.norm->forward(pass, x, *saved.layers[2 * at]);
            if (branch.keeps_input()) saved.inputs[at] = input;
            auto y = pass.ragged != nullptr ? branch.part->continue_sequences(pass, std::move(input))
                                            : branch.part->forward(pass, std::move(input), *saved.layers[2 * at + 1]);
            kernels::add<T>(pass.context.exec(), x.flat(), y.flat());
            x = std::move(y);
        }
        return x;
    }
    /// Calls f(block, unit of the block) from the last to the first, when what the block saved is in memory.
    template <class F>
    void for_each_unit_backwards(Pass<Exec>& pass, Saved& saved, F&& f) const {
        for (std::size_t i = blocks_.size(); i-- > 0;) {
            if (pass.saved != nullptr) pass.saved->bring_back(saved.blocks[i].record);
            for (std::size_t at = blocks_[i].units(); at-- > 0;) f(i, at);
        }
    }
    Any backward_data(std::size_t i, std::size_t of_block, Pass<Exec>& pass, Any dy,
                      typename Saved::Block& saved) const {
        std::size_t const unit = blocks_[i].first_unit + of_block;
        units_[unit].with_values([&] {
            if (unit > 0) units_[unit - 1].prefetch();
            auto const branches = blocks_[i].of_unit(of_block);
            if (blocks_[i].is_recomputed) {
                pass.is_replay = true;
                (void)forward(branches, i, pass, std::move(saved.x), saved);
                pass.is_replay = false;
            }
            for (std::size_t at = branches.end; at-- > branches.begin;) {
                auto const& [norm, part, recomputed] = blocks_[i].branches[at];
                auto &of_norm = *saved.layers[2 * at], &of_part = *saved.layers[2 * at + 1];
                if (blocks_[i].branches[at].keeps_input())
                    part->restore_input(std::move(saved.inputs[at]), of_part);
                else if (drops_input(recomputed))
                    part->restore_input(norm->output_again(pass, of_norm), of_part);
                auto dx = norm->backward_data(pass, part->backward_data(pass, dy, of_part), of_norm);
                kernels::add<T>(pass.context.exec(), dy.flat(), dx.flat());
                dy = std::move(dx);
            }
        });
        if (of_block == 0) dy = blocks_[i].entry.backward(std::move(dy));
        return dy;
    }
    void backward_weight(std::size_t i, std::size_t of_block, Pass<Exec>& pass, typename Saved::Block& saved) const {
        units_[blocks_[i].first_unit + of_block].add_gradients(pass, [&] {
            auto const branches = blocks_[i].of_unit(of_block);
            for (std::size_t at = branches.end; at-- > branches.begin;) {
                blocks_[i].branches[at].part->backward_weight(pass, *saved.layers[2 * at + 1]);
                blocks_[i].branches[at].norm->backward_weight(pass, *saved.layers[2 * at]);
            }
        });
    }

    std::size_t first_; ///< of the model's blocks
    std::vector<Block> blocks_;
    StreamEdge<Exec> exit_; ///< to the model's ends
    std::vector<Unit<T, Exec>> units_;
};

} // namespace pentad
