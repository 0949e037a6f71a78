// The functions of <pentad/model/router.hpp>.
#pragma once

#include <pentad/model/router.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <cmath>

namespace pentad::model {

PENTAD_INLINE std::size_t Router::most_choices(std::size_t experts, std::size_t top_k, double tokens) const {
    double const factor = capacity > 0 ? capacity : 1;
    double const most = std::floor(factor * static_cast<double>(top_k) * tokens / static_cast<double>(experts));
    return static_cast<std::size_t>(std::clamp(most, 1.0, std::max(1.0, tokens)));
}

PENTAD_INLINE void Router::set_balance(std::string_view name) {
    has_bias = name.starts_with("bias");
    balance_loss = name == "aux"                    ? BalanceLoss::micro_batch
                   : name.ends_with("sequence-aux") ? BalanceLoss::sequence
                                                    : BalanceLoss::none;
}

PENTAD_INLINE std::string Router::refusal(std::size_t experts, std::size_t top_k) const {
    auto const number = [](std::size_t n) { return std::to_string(n); };
    if (top_k < 1 || top_k > experts)
        return "a token goes to 1 to " + number(experts) + " of " + number(experts) + " experts, not to " +
               number(top_k);
    if (groups < 1 || experts % groups != 0)
        return number(experts) + " experts cannot be divided into " + number(groups) + " equal groups";
    if (groups > 64) return "experts are in at most 64 groups, not in " + number(groups);
    if (top_groups < 1 || top_groups > groups)
        return "a token chooses among the experts of 1 to " + number(groups) + " groups, not of " + number(top_groups);
    if (top_k > top_groups * (experts / groups))
        return "a token cannot choose " + number(top_k) + " experts in " + number(top_groups) + " groups of " +
               number(experts / groups);
    if (!(scale > 0)) return "the weights of experts are scaled by a positive number";
    if (!(jitter >= 0 && jitter < 1)) return "jitter is from 0 to below 1";
    if (!(capacity >= 0) || !(bias_rate >= 0)) return "a capacity and the rate of biases are not negative";
    if (choice == RouterChoice::top_k) return {};
    if (groups > 1) return "groups of experts are for tokens that choose their experts";
    if (balance_loss != BalanceLoss::none || has_bias)
        return "only tokens that choose their experts need balance: set no loss and no bias";
    return {};
}

PENTAD_INLINE Router named_router(std::string_view name) {
    using enum RouterChoice;
    Router router{.score = name == "sigmoid" ? RouterScore::sigmoid : RouterScore::softmax,
                  .choice = name == "expert-choice" ? expert_choice
                            : name == "hash"        ? hash
                            : name == "sinkhorn"    ? sinkhorn
                                                    : top_k,
                  .jitter = name == "switch" ? 0.01 : 0};
    bool const weighs_by_score = router.choice == expert_choice || router.choice == sinkhorn || name == "switch";
    router.renormalises = !weighs_by_score;
    router.set_balance(router.choice == top_k ? "aux" : "none");
    return router;
}

PENTAD_INLINE std::string Router::text() const {
    std::string words = score == RouterScore::sigmoid ? "sigmoid" : "softmax";
    if (choice == RouterChoice::expert_choice) words += ", experts choose";
    if (choice == RouterChoice::hash) words += ", by a hash of the token";
    if (choice == RouterChoice::sinkhorn) words += ", balanced by Sinkhorn";
    if (groups > 1) words += ", in " + std::to_string(top_groups) + " of " + std::to_string(groups) + " groups";
    if (has_bias) words += ", balanced by a bias";
    return words;
}

} // namespace pentad::model
