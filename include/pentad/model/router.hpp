// How a router sends tokens to experts, as plain values: what scores are, who chooses, what weighs the experts, what
// keeps their load even, and how many tokens an expert takes.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace pentad::model {

/// What makes the scores of experts from a token's logits.
enum class RouterScore {
    softmax,
    sigmoid ///< each expert by itself (DeepSeek-AI 2024, "DeepSeek-V3", eq. 15)
};
/// Who chooses.
enum class RouterChoice {
    top_k,         ///< each token its best experts
    expert_choice, ///< each expert its best tokens of the whole micro-batch (Zhou et al. 2022, section 3.2)
    hash,          ///< nobody: experts follow from the token's number in the vocabulary (Roller et al. 2021)
    sinkhorn ///< each token its best experts, after the scores were balanced (Clark et al. 2022, "S-BASE"); in training
};
/// Routers by name: what --router says.
inline constexpr std::array<std::string_view, 6> router_names{"softmax",       "sigmoid", "switch",
                                                              "expert-choice", "hash",    "sinkhorn"};
/// A loss that keeps the load of experts even.
enum class BalanceLoss {
    none,
    micro_batch, ///< of all tokens of a micro-batch (Fedus et al. 2021, eq. 4)
    sequence     ///< of each sequence (DeepSeek-V3, eq. 17 to 20)
};
/// The losses, with a bias or without: what --balance says.
inline constexpr std::array<std::string_view, 5> balance_names{"aux", "sequence-aux", "bias", "bias+sequence-aux",
                                                               "none"};
/// Which tokens an expert that is full does not take.
enum class Drop {
    position, ///< the last
    score     ///< those with the least score
};
inline constexpr std::array<std::string_view, 2> drop_names{"position", "score"};

/// How far a step moves the bias of an expert.
enum class BiasStep {
    sign,        ///< by bias_rate
    proportional ///< by bias_rate times the excess of its load over the mean load, where that is less than 1
};
inline constexpr std::array<std::string_view, 2> bias_step_names{"sign", "proportional"};

struct Router {
    RouterScore score = RouterScore::softmax;
    RouterChoice choice = RouterChoice::top_k;
    bool renormalises = true; ///< the weights of a token's experts sum to 1, before they are scaled
    double scale = 1;         ///< of the weights
    /// Experts are in groups of consecutive ones, and a token chooses within the best `top_groups` of them
    /// (DeepSeek-V3, section 2.1.2). A group is as good as its best expert, with sigmoid scores as its best two
    /// together.
    std::size_t groups = 1, top_groups = 1;
    /// Training: the router's input is multiplied with random numbers from 1 - jitter to 1 + jitter (Fedus et al. 2021,
    /// section 2.4).
    double jitter = 0;
    BalanceLoss balance_loss = BalanceLoss::micro_batch;
    /// Each expert has a bias that counts in the choice alone, and that moves after each step by `bias_rate` against
    /// the excess of its load (Wang et al. 2024, arXiv 2408.15664).
    bool has_bias = false;
    double bias_rate = 1e-3;
    BiasStep bias_step = BiasStep::sign;
    /// An expert takes floor(`capacity` x mean choices), and one at least; with expert_choice always as many. 0: any.
    double capacity = 0;
    Drop drop = Drop::position;

    /// One of balance_names.
    void set_balance(std::string_view name);
    /// Whether an expert's tokens depend on all tokens of the micro-batch.
    [[nodiscard]] bool needs_whole_sequences() const {
        return capacity > 0 || choice == RouterChoice::expert_choice || choice == RouterChoice::sinkhorn;
    }
    /// Choices of an expert, of `tokens` that choose `top_k` of `experts` each, where capacity limits them.
    [[nodiscard]] std::size_t most_choices(std::size_t experts, std::size_t top_k, double tokens) const;
    /// Why `experts` cannot be routed so; empty where they can.
    [[nodiscard]] std::string refusal(std::size_t experts, std::size_t top_k) const;
    [[nodiscard]] std::string text() const;
    friend bool operator==(Router const&, Router const&) = default;
};

/// The router of one of router_names, with the weights, the jitter and the loss that go with it.
Router named_router(std::string_view name);

/// That of DeepSeek-AI 2024, "DeepSeek-V3", sections 2.1.2 and 4.2.
inline constexpr Router deepseek_v3_router{.score = RouterScore::sigmoid,
                                           .scale = 2.5,
                                           .groups = 8,
                                           .top_groups = 4,
                                           .balance_loss = BalanceLoss::sequence,
                                           .has_bias = true};

} // namespace pentad::model

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/model/impl/router.hpp>
#endif
