// A model that answers requests: the time to the first token of an answer, the time of
// each further one, the memory of keys and values, and how long prompts wait.
#pragma once

#include <pentad/planner/estimate.hpp>
#include <pentad/planner/queue.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

namespace pentad::planner {

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

/// What a layer keeps of a request on a rank, for each token and once.
struct LayerCache {
    double token = 0, request = 0; ///< bytes
};

/// Keys and values of the rank's heads; with latent attention the latent vector and the rotary key, on every rank of tp
/// (DeepSeek-V2, section 2.1.2); of Mamba-2 the state, in accumulators, and what the convolution looks back at.
inline LayerCache layer_cache(Model const& model, Service const& service) {
    double const size = size_of(service.element), tp = static_cast<double>(service.tp);
    if (auto const& a = model.attention; a.is_latent())
        return {.token = size * static_cast<double>(a.kv_rank + a.rope_dim)};
    if (auto const& a = model.attention; a.heads > 0) {
        double const heads = std::max(1.0, static_cast<double>(a.kv_heads) / tp);
        return {.token = size * heads * static_cast<double>(a.key_width() + a.value_width())};
    }
    auto const& m = model.mamba;
    double const inner = static_cast<double>(m.inner()) / tp;
    double const groups = std::max(1.0, static_cast<double>(m.groups) / tp);
    return {.request =
                accumulator_size(service.element) * inner * static_cast<double>(m.state) +
                size * (inner + 2 * groups * static_cast<double>(m.state)) * static_cast<double>(m.convolution - 1)};
}

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
    /// Calls f(layer) once for each kind of layer, and adds up what it gives as often as the stages have that kind.
    template <class F>
    [[nodiscard]] std::vector<double> sums(F&& of_layer, double embedding, double head) const {
        auto const kinds = layer_kinds(model_);
        double const dense = kinds.dense < 0 ? 0 : of_layer(kinds.dense);
        double const expert = kinds.expert < 0 ? 0 : of_layer(kinds.expert);
        std::vector<double> list;
        for (auto const& stage : stage_shapes(model_, service_.pp)) {
            double& sum = list.emplace_back((stage.is_first ? embedding : 0) + (stage.is_last ? head : 0));
            for (std::int64_t layer = stage.first; layer < stage.first + stage.count; ++layer)
                sum += model_.has_experts(layer) ? expert : dense;
        }
        return list;
    }
    /// Forward through each stage, where every token also attends to `context` that were there before. Only the last
    /// token of a sequence needs logits.
    [[nodiscard]] std::vector<double> stage_seconds(Configuration const& c, double context) const {
        Rates const rates(hardware_, c);
        auto const nodes = dispatch_nodes(model_, c, hardware_.devices_per_node);
        auto const forward = [&](Configuration const& pass, auto&& list_work) {
            Work work(model_, pass, nodes);
            list_work(work);
            double sum = 0;
            for (auto const& x : work.operations())
                if (x.direction == Direction::forward) sum += rates.seconds(x);
            return sum;
        };
        auto const last_tokens = service_.pass(c.micro_batch, 1);
        return sums(
            [&](std::int64_t layer) {
                return forward(c, [&](Work& work) { work.layer(layer); }) +
                       (context > 0 && model_.attention.heads > 0 ? rates.seconds(attention_to(c, context)) : 0);
            },
            forward(c, [](Work& work) { work.embedding(); }), forward(last_tokens, [](Work& work) { work.head(); }));
    }
    /// Attention to what is in the cache: all of it is read. With latent attention the queries are taken to the latent
    /// space, and the outputs from there (DeepSeek-V2, appendix C): the products for a token are the same.
    [[nodiscard]] Operation attention_to(Configuration const& c, double context) const {
        auto const& a = model_.attention;
        double const widths =
            static_cast<double>(a.is_latent() ? 2 * a.kv_rank + a.rope_dim : a.key_width() + a.value_width());
        double const pairs = static_cast<double>(c.micro_batch * c.seq) * context;
        return {.name = "cache",
                .kind = Kind::attention,
                .flops = 2 * pairs * static_cast<double>(a.heads) / static_cast<double>(c.tp) * widths,
                .bytes = static_cast<double>(c.micro_batch) * context * layer_cache(model_, service_).token};
    }
    [[nodiscard]] double message(Configuration const& c) const {
        if (c.pp == 1) return 0;
        double const elements = static_cast<double>(c.micro_batch * c.seq * model_.hidden);
        return Rates(hardware_, c).message(pp::name, size_of(c.element) * elements);
    }
    void measure_memory() {
        auto const c = service_.pass(1, service_.prompt);
        auto const mesh = mesh_of(c, model_);
        auto const bytes = [&](auto&& list_weights) {
            Weights weights(model_, c);
            list_weights(weights);
            double elements = 0;
            for (auto const& weight : weights.list()) elements += weight.local_elements(mesh);
            return size_of(c.element) * elements;
        };
        bool const has_table = !model_.ties_embeddings || c.pp > 1;
        auto const weights =
            sums([&](std::int64_t layer) { return bytes([&](Weights& w) { w.layer(layer); }); },
                 bytes([](Weights& w) { w.embedding(); }), bytes([&](Weights& w) { w.head(has_table); }));
        auto const cache = layer_cache(model_, service_);
        double const length = static_cast<double>(service_.prompt + service_.output);
        auto const caches = sums([&](std::int64_t) { return cache.request + length * cache.token; }, 0, 0);
        // The stream, what comes of it, and the widest that a block makes of it.
        auto const& e = model_.experts;
        double const inner = static_cast<double>(3 * std::max(model_.ffn, e.top_k * e.ffn)) / static_cast<double>(c.tp);
        workspace_ = size_of(c.element) * static_cast<double>(c.seq) * (3 * static_cast<double>(model_.hidden) + inner);
        largest_batch_ = std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < weights.size(); ++i) {
            double const room = (hardware_.memory_bytes - weights[i] - workspace_) / caches[i];
            if (room < largest_batch_) largest_batch_ = room, weights_ = weights[i], cache_ = caches[i];
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
