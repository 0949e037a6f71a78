// A model that answers requests: the time to the first token of an answer, the time of
// each further one, the memory of keys and values, and how long prompts wait.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/planner/detail/queue.hpp>
#include <pentad/planner/estimate.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::planner {

using namespace ml;

/// What is served, and by what: dp x ep groups of pp x tp devices, each with requests of its own; groups along ep share
/// their experts.
struct Service {
    std::int64_t dp = 1, pp = 1, ep = 1, tp = 1;
    std::int64_t prompt = 1, output = 1; ///< tokens of a request
    Element element = Element::bf16;

    [[nodiscard]] std::int64_t groups() const { return dp * ep; }
    [[nodiscard]] std::int64_t devices() const { return groups() * pp * tp; }
    /// A pass over as many tokens of each of as many sequences in a group.
    [[nodiscard]] Configuration pass(std::int64_t sequences, std::int64_t tokens) const {
        Configuration c;
        c.dp = dp, c.pp = pp, c.ep = ep, c.tp = tp;
        c.seq = tokens;
        c.micro_batch = sequences;
        c.global_batch = sequences * groups();
        c.element = element;
        return c;
    }
};

/// What a service can do with as many requests a second, or with as many as it can take.
struct ServingEstimate {
    double first_token_s = 0; ///< of a prompt that does not wait
    double token_s = 0;       ///< of each further token: a step of decoding, and the prompts between steps
    double requests_per_s = 0;
    double tokens_per_s = 0; ///< of answers
    double load = 0;         ///< part of a group's time that goes into prompts
    double batch = 0;        ///< requests that a group decodes at once
    double largest_batch = 0;
    double weights = 0, cache = 0; ///< bytes on the fullest rank; cache: of a request at its full length
    double memory_peak = 0;
    bool fits = false;
    PromptQueue queue{0, 1};

    /// Of the time to the first token: what the part `share` of the requests do not exceed.
    [[nodiscard]] double first_token_quantile(double share) const { return first_token_s + queue.quantile(share); }
};

/// Times the passes of a service. The host's time does not count: servers record the operations of a pass and replay
/// them.
class Serving {
  public:
    /// @throws std::invalid_argument where the model cannot be laid out so
    Serving(Model const& model, Hardware const& hardware, Service const& service)
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

    [[nodiscard]] double first_token_s() const { return first_token_; }
    /// Seconds in which a stage does its part of a step of decoding. A group's requests are decoded in pp parts, each
    /// on another stage; answers are half written.
    [[nodiscard]] double pass_s(double batch) const {
        auto const part = static_cast<std::int64_t>(std::ceil(batch / static_cast<double>(service_.pp)));
        auto const token = service_.pass(std::max<std::int64_t>(part, 1), 1);
        auto const times =
            stage_seconds(token, static_cast<double>(service_.prompt) + 0.5 * static_cast<double>(service_.output));
        return *std::max_element(times.begin(), times.end()) + (service_.pp > 1 ? message(token) : 0);
    }
    /// Seconds of a step of decoding, in which every request gets a token.
    [[nodiscard]] double step_s(double batch) const { return static_cast<double>(service_.pp) * pass_s(batch); }
    [[nodiscard]] double largest_batch() const { return largest_batch_; }

    /// The requests a second that all groups together can take, for ever.
    [[nodiscard]] double most_requests_per_s() const {
        if (largest_batch_ == 0) return 0;
        double const decoding = further_tokens() * step_s(largest_batch_) / largest_batch_;
        return static_cast<double>(service_.groups()) / (prompt_ + decoding);
    }
    /// With so many requests a second, at random times and to groups at random. Where they are more than it can take,
    /// prompts wait for ever.
    [[nodiscard]] ServingEstimate at(double requests_per_s) const {
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
    /// The most requests a second of which the part `share` has its first token within `limit` seconds.
    [[nodiscard]] double requests_within(double share, double limit) const {
        double low = 0, high = most_requests_per_s();
        if (high == 0 || at(high).first_token_quantile(share) <= limit) return high;
        for (int i = 0; i < 40; ++i) {
            double const middle = (low + high) / 2;
            (at(middle).first_token_quantile(share) <= limit ? low : high) = middle;
        }
        return low;
    }

  private:
    [[nodiscard]] Account account_of(Configuration const& c) const {
        return Account(model_, c, 1, dispatch_nodes(model_, c, hardware_.devices_per_node));
    }
    /// Forward through each stage, where every token also attends to `context` that were there before. Only the last
    /// token of a sequence needs logits.
    [[nodiscard]] std::vector<double> stage_seconds(Configuration const& c, double context) const {
        Rates const rates(hardware_, c);
        auto const all = account_of(c), last = account_of(service_.pass(c.micro_batch, 1));
        std::vector<double> list;
        for (auto const& stage : stage_shapes(model_, service_.pp)) {
            double& sum = list.emplace_back(0);
            all.for_each_kind(stage, [&](MeshPart const& part, double count) {
                bool const is_head = &part == &all.parts().back();
                sum += count * (forward_seconds(is_head ? last.parts().back() : part, rates) +
                                rates.attention(attention_flops(part, c, context), attention_bytes(part, c, context)));
            });
        }
        return list;
    }
    [[nodiscard]] static double forward_seconds(MeshPart const& part, Rates const& rates) {
        return detail::part_time(part, rates).forward.device;
    }
    /// Attention to what is in the cache: all of it is read.
    [[nodiscard]] static double attention_flops(MeshPart const& part, Configuration const& c, double context) {
        return static_cast<double>(c.micro_batch * c.seq) * context * part.sums->state.flops;
    }
    [[nodiscard]] static double attention_bytes(MeshPart const& part, Configuration const& c, double context) {
        return static_cast<double>(c.micro_batch) * context * part.sums->state.token;
    }
    [[nodiscard]] double message(Configuration const& c) const {
        return c.pp == 1 ? 0 : Rates(hardware_, c).message(pp::name, account_of(c).stream());
    }
    void measure_memory() {
        auto const c = service_.pass(1, service_.prompt);
        auto const account = account_of(c);
        double const length = static_cast<double>(service_.prompt + service_.output);
        for (auto const& part : account.parts()) workspace_ = std::max(workspace_, part.sums->memory.forward);
        largest_batch_ = std::numeric_limits<double>::infinity();
        for (auto const& stage : stage_shapes(model_, service_.pp)) {
            double weights = 0, cache = 0;
            account.for_each_kind(stage, [&](MeshPart const& part, double count) {
                part.for_each_parameter([&](ParameterAccount const& parameter) {
                    weights += count * size_of(c.element) * parameter.elements;
                });
                auto const& state = part.sums->state;
                cache += count * (state.sequence + length * state.token);
            });
            double const room = (hardware_.memory_bytes - weights - workspace_) / cache;
            if (room < largest_batch_) largest_batch_ = room, weights_ = weights, cache_ = cache;
        }
        largest_batch_ = std::max(std::floor(largest_batch_), 0.0);
    }
    [[nodiscard]] double further_tokens() const { return static_cast<double>(service_.output - 1); }
    /// Requests under way in a group, by Little's law: those that come while one is decoded, with prompts between
    /// steps.
    [[nodiscard]] double batch_at(double rate) const {
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

    Model model_;
    Hardware hardware_;
    Service service_;
    double first_token_ = 0; ///< through all stages
    double prompt_ = 0;      ///< of the slowest stage: the next prompt follows as soon
    double weights_ = 0, cache_ = 0, workspace_ = 0, largest_batch_ = 0;
};

} // namespace pentad::planner
