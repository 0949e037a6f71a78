// A model, said once, as a value: an embedding, a list of blocks, a head. Layers, names of parameters, checks and
// plans are made from it.
#pragma once

#include <pentad/model/part.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace pentad::model {

/// A residual branch of a block: y = x + part(norm(x)).
struct Branch {
    Part part;
    std::string name; ///< of its parameters, behind that of the block: "self_attn"
    std::string norm; ///< of the norm's: "input_layernorm"

    friend bool operator==(Branch const&, Branch const&) = default;
};

/// What a stage of a pipeline is dealt by, and what is recomputed at once.
struct Block {
    std::vector<Branch> branches;

    friend bool operator==(Block const&, Block const&) = default;
};

/// RMSNorm, or LayerNorm with its bias (Ba et al. 2016).
enum class NormKind { rms, layer };

/// A causal language model. Blocks may differ.
struct Model {
    std::size_t hidden = 128; ///< width of the residual stream
    std::size_t vocab = 256;
    std::vector<Block> blocks{};
    /// Blocks of the modules of multi-token prediction (DeepSeek-V3, section 2.2): the k-th module predicts the token k
    /// further ahead.
    std::vector<Block> predictors{};
    bool ties_embeddings = false; ///< the head multiplies by the table of the embedding
    double norm_epsilon = 1e-5;
    NormKind norm = NormKind::rms;
    std::size_t positions = 0; ///< learned embeddings of so many positions; 0: none
    /// The token whose row of the embedding has no gradient, as PyTorch's nn.Embedding with this padding_idx. Weight
    /// decay shrinks it, and a tied head trains it.
    std::optional<std::size_t> padding_token{};

    /// Whether the last stage uses the table of the embedding too: for a tied head, or for predictors.
    [[nodiscard]] bool shares_embedding() const { return ties_embeddings || !predictors.empty(); }
    /// Blocks, and behind them those of the predictors.
    [[nodiscard]] std::size_t block_count() const { return blocks.size() + predictors.size(); }
    [[nodiscard]] Block const& block(std::size_t i) const {
        return i < blocks.size() ? blocks[i] : predictors.at(i - blocks.size());
    }
    /// What the names of a block's parameters begin with.
    [[nodiscard]] static std::string prefix(std::size_t block) { return "model.layers." + std::to_string(block) + "."; }
    /// The first branch of a block that is described by a P, or null.
    template <Describes P>
    [[nodiscard]] P const* find(std::size_t number) const {
        for (auto const& branch : block(number).branches)
            if (auto const* part = branch.part.as<P>()) return part;
        return nullptr;
    }
    /// The first description P of any block, or null.
    template <Describes P>
    [[nodiscard]] P const* first() const {
        for (std::size_t i = 0; i < block_count(); ++i)
            if (auto const* part = find<P>(i)) return part;
        return nullptr;
    }
    /// A line for the ends and for each run of blocks that are alike.
    [[nodiscard]] std::string text() const {
        auto const line_of = [](Block const& block) {
            std::string line;
            for (auto const& branch : block.branches)
                line += (line.empty() ? "" : "; ") + std::string(branch.part.kind()) + " (" + branch.part.text() + ")";
            return line;
        };
        std::string text = "width " + std::to_string(hidden) + ", vocabulary of " + std::to_string(vocab) +
                           (padding_token ? ", padding " + std::to_string(*padding_token) : "") +
                           (ties_embeddings ? ", tied embeddings\n" : "\n");
        for (std::size_t first = 0, next = 0; first < blocks.size(); first = next) {
            for (next = first + 1; next < blocks.size() && blocks[next] == blocks[first];) ++next;
            text += "blocks " + std::to_string(first) + " to " + std::to_string(next - 1) + ": " +
                    line_of(blocks[first]) + "\n";
        }
        for (std::size_t i = 0; i < predictors.size(); ++i)
            text += "predicts " + std::to_string(i + 2) + " tokens ahead: " + line_of(predictors[i]) + "\n";
        return text;
    }
};

} // namespace pentad::model
