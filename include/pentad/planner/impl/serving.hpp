// The functions of <pentad/planner/serving.hpp>.
#pragma once

#include <pentad/planner/serving.hpp>

#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace pentad::planner {

PENTAD_INLINE Strategy Service::pass(std::int64_t sequences, std::int64_t tokens) const {
    Strategy c;
    c.dp = dp, c.pp = pp, c.ep = ep, c.tp = tp;
    c.seq = tokens;
    c.batch = sequences * groups();
    c.element = element;
    return c;
}

PENTAD_INLINE Serving::Serving(Model const& model, Hardware const& hardware, Service const& service)
    : model_(model), hardware_(hardware), service_(service) {
    auto const prompt = service.pass(1, service.prompt);
    if (auto const why = misfit(model, prompt); !why.empty()) throw std::invalid_argument(why);
    if (service.output < 1) throw std::invalid_argument("the output must have a token");
    auto const times = stage_seconds(prompt, 0);
    for (double const time : times) first_token_ += time;
    first_token_ += static_cast<double>(service.pp - 1) * message(prompt);
    prompt_ = *std::max_element(times.begin(), times.end());
    measure_memory();
}

PENTAD_INLINE double Serving::pass_s(double batch) const {
    auto const part = static_cast<std::int64_t>(std::ceil(batch / static_cast<double>(service_.pp)));
    auto const token = service_.pass(std::max<std::int64_t>(part, 1), 1);
    auto const times =
        stage_seconds(token, static_cast<double>(service_.prompt) + 0.5 * static_cast<double>(service_.output));
    return *std::max_element(times.begin(), times.end()) + (service_.pp > 1 ? message(token) : 0);
}

PENTAD_INLINE ServingEstimate Serving::at(double requests_per_s) const {
    ServingEstimate result;
    double const rate = requests_per_s / static_cast<double>(service_.groups()); // of a group
    result.first_token_s = first_token_;
    result.load = rate * prompt_;
    result.largest_batch = largest_batch_;
    result.batch = batch_at(rate);
    double const pass = pass_s(result.batch);
    result.token_s = static_cast<double>(service_.pp) * pass / (1 - std::min(result.load, 1.0));
    result.requests_per_s = requests_per_s;
    result.tokens_per_s = requests_per_s * static_cast<double>(service_.output);
    result.weights = weights_;
    result.cache = cache_;
    result.fits = largest_batch_ >= 1;
    result.memory_peak = weights_ + workspace_ + std::max(result.batch, 1.0) * cache_;
    bool const keeps_up = requests_per_s <= most_requests_per_s() * (1 + 1e-9);
    result.queue = keeps_up ? PromptQueue(rate, prompt_, pass) : PromptQueue(1, 1);
    return result;
}

PENTAD_INLINE double Serving::requests_within(double share, double limit) const {
    double low = 0, high = most_requests_per_s();
    if (high == 0 || at(high).first_token_quantile(share) <= limit) return high;
    for (int i = 0; i < 40; ++i) {
        double const middle = (low + high) / 2;
        (at(middle).first_token_quantile(share) <= limit ? low : high) = middle;
    }
    return low;
}

PENTAD_INLINE std::vector<double> Serving::stage_seconds(Strategy const& c, double context) const {
    Rates const rates(hardware_, c);
    auto const all = account_of(c), last = account_of(service_.pass(c.micro_batch(), 1));
    std::vector<double> list;
    for (auto const& stage : stage_shapes(model_, c, service_.pp)) {
        double& sum = list.emplace_back(0);
        all.for_each_kind(stage, [&](MeshPart const& part, double count) {
            bool const is_head = &part == &all.parts().back();
            sum += count * (forward_seconds(is_head ? last.parts().back() : part, rates) +
                            rates.attention(attention_flops(part, c, context), attention_bytes(part, c, context)));
        });
    }
    return list;
}

PENTAD_INLINE void Serving::measure_memory() {
    auto const c = service_.pass(1, service_.prompt);
    auto const account = account_of(c);
    double const length = static_cast<double>(service_.prompt + service_.output);
    for (auto const& part : account.parts()) workspace_ = std::max(workspace_, part.sums->memory.forward);
    largest_batch_ = std::numeric_limits<double>::infinity();
    for (auto const& stage : stage_shapes(model_, c, service_.pp)) {
        double weights = 0, cache = 0;
        account.for_each_kind(stage, [&](MeshPart const& part, double count) {
            part.for_each_parameter(
                [&](ParameterAccount const& parameter) { weights += count * size_of(c.element) * parameter.elements; });
            auto const& state = part.sums->state;
            cache += count * (state.sequence + length * state.token);
        });
        double const room = (hardware_.memory_bytes - weights - workspace_) / cache;
        if (room < largest_batch_) largest_batch_ = room, weights_ = weights, cache_ = cache;
    }
    largest_batch_ = std::max(std::floor(largest_batch_), 0.0);
}

PENTAD_INLINE double Serving::batch_at(double rate) const {
    double const left = 1 - rate * prompt_;
    auto const under_way = [&](double batch) { return rate * further_tokens() * step_s(batch) / left; };
    if (left <= 0 || under_way(std::max(largest_batch_, 1.0)) >= largest_batch_) return largest_batch_;
    double low = 0, high = largest_batch_;
    while (high - low > 1) {
        double const middle = std::floor((low + high) / 2);
        (under_way(middle) > middle ? low : high) = middle;
    }
    return high;
}

} // namespace pentad::planner
