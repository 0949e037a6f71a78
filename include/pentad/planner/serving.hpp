// A model that answers requests: the time to the first token of an answer, the time of
// each further one, the memory of keys and values, and how long prompts wait.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/planner/detail/queue.hpp>
#include <pentad/planner/estimate.hpp>

#include <cstdint>
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
    [[nodiscard]] Strategy pass(std::int64_t sequences, std::int64_t tokens) const;
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

    /// The time to the first token that the part `share` of the requests do not exceed.
    [[nodiscard]] double first_token_quantile(double share) const { return first_token_s + queue.quantile(share); }
};

/// Times the passes of a service. The host's time does not count: servers record the operations of a pass and replay
/// them.
class Serving {
  public:
    /// @throws std::invalid_argument where the model cannot be laid out so
    Serving(Model const& model, Hardware const& hardware, Service const& service);

    [[nodiscard]] double first_token_s() const { return first_token_; }
    /// Seconds in which a stage does its part of a step of decoding. A group's requests are decoded in pp parts, each
    /// on another stage; answers are half written.
    [[nodiscard]] double pass_s(double batch) const;
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
    [[nodiscard]] ServingEstimate at(double requests_per_s) const;
    /// The most requests a second of which the part `share` has its first token within `limit` seconds.
    [[nodiscard]] double requests_within(double share, double limit) const;

  private:
    [[nodiscard]] Account account_of(Strategy const& c) const {
        return Account(model_, c, 1, dispatch_nodes(model_, c, hardware_.devices_per_node));
    }
    /// Forward through each stage, where every token also attends to `context` that were there before. Only the last
    /// token of a sequence needs logits.
    [[nodiscard]] std::vector<double> stage_seconds(Strategy const& c, double context) const;
    [[nodiscard]] static double forward_seconds(MeshPart const& part, Rates const& rates) {
        return detail::part_time(part, rates, true).forward.device;
    }
    /// Attention to what is in the cache: all of it is read.
    [[nodiscard]] static double attention_flops(MeshPart const& part, Strategy const& c, double context) {
        return static_cast<double>(c.micro_batch() * c.seq) * context * part.sums->state.flops;
    }
    [[nodiscard]] static double attention_bytes(MeshPart const& part, Strategy const& c, double context) {
        return static_cast<double>(c.micro_batch()) * context * part.sums->state.token;
    }
    [[nodiscard]] double message(Strategy const& c) const {
        return c.pp == 1 ? 0 : Rates(hardware_, c).message(pp::name, account_of(c).stream());
    }
    void measure_memory();
    [[nodiscard]] double further_tokens() const { return static_cast<double>(service_.output - 1); }
    /// Requests under way in a group, by Little's law: those that come while one is decoded, with prompts between
    /// steps.
    [[nodiscard]] double batch_at(double rate) const;

    Model model_;
    Hardware hardware_;
    Service service_;
    double first_token_ = 0; ///< through all stages
    double prompt_ = 0;      ///< of the slowest stage: the next prompt follows as soon
    double weights_ = 0, cache_ = 0, workspace_ = 0, largest_batch_ = 0;
};

} // namespace pentad::planner

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/planner/impl/serving.hpp>
#endif
