// Requests for text that come and end at any time, written together: each pass takes a token of every sequence that is
// being written and parts of the prompts of those that are not yet (continuous batching: Yu et al. 2022, "Orca",
// section 3; chunked prefill: Agrawal et al. 2024, "Sarathi-Serve", section 4).
#pragma once

#include <pentad/train/generator.hpp>
#include <pentad/train/sampling.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

/// A sequence to be written.
struct WritingRequest {
    std::vector<std::int32_t> prompt{};
    std::size_t most_tokens = 16; ///< that follow it
    Sampling how{};
    std::vector<std::int32_t> stop_tokens{}; ///< a token among these is the last
    std::int64_t priority = 0;               ///< larger ones begin first, equal ones in their order
};

enum class WritingEnd { stop_token, length };

/// A token that was written for a request.
struct WrittenToken {
    std::size_t request = 0;
    ChosenToken token{};
    std::optional<WritingEnd> end{}; ///< why it is the last; none: others follow
};

/// All functions but those that say so are called by all ranks alike. A request that is admitted has room for all of
/// its tokens, so that it can end; one that can never have it is refused at once. Requests wait for a place in the
/// order of their priorities.
template <class T, class Exec>
class Scheduler {
  public:
    /// @param generator without sequences, which outlives the scheduler @param most_tokens of a pass; one for each
    /// sequence at least
    Scheduler(Generator<T, Exec>& generator, std::size_t most_tokens)
        : generator_(&generator), most_tokens_(std::max(most_tokens, generator.sequences())),
          places_(generator.sequences()) {}

    /// The number of the request, from 0. @throws std::invalid_argument where it can never be written
    std::size_t submit(WritingRequest request);
    /// Ends a request without another token.
    void cancel(std::size_t request);
    /// Whether nothing is left to be written. Not collective.
    [[nodiscard]] bool is_idle() const {
        return waiting_.empty() && std::none_of(places_.begin(), places_.end(), [](auto const& at) { return at; });
    }
    /// Requests that wait, and those that have a place. Not collective.
    [[nodiscard]] std::size_t waiting() const { return waiting_.size(); }
    [[nodiscard]] std::size_t running() const {
        return places_.size() - static_cast<std::size_t>(std::count(places_.begin(), places_.end(), std::nullopt));
    }
    /// A pass, and the tokens that it has given. Collective over all ranks.
    std::vector<WrittenToken> step();

  private:
    struct Running {
        std::size_t number = 0;
        WritingRequest request{};
        std::vector<std::int32_t> tokens{}; ///< of the prompt, and those that follow
        std::size_t seen = 0;               ///< of these, by the model

        [[nodiscard]] bool is_writing() const { return tokens.size() > request.prompt.size(); }
        friend bool operator==(Running const& a, Running const& b) { return a.number == b.number; }
    };
    /// Gives places to those that wait.
    void admit();

    Generator<T, Exec>* generator_;
    std::size_t most_tokens_, submitted_ = 0;
    std::vector<std::optional<Running>> places_; ///< a sequence of the generator each
    std::deque<Running> waiting_;
};

template <class T, class Exec>
std::size_t Scheduler<T, Exec>::submit(WritingRequest request) {
    auto const number = [](std::size_t n) { return std::to_string(n); };
    if (request.prompt.empty()) throw std::invalid_argument("a prompt has one token at least");
    if (request.most_tokens == 0) throw std::invalid_argument("most_tokens = 0: nothing would be written");
    if (request.prompt.size() + request.most_tokens > generator_->room_for())
        throw std::invalid_argument("a prompt of " + number(request.prompt.size()) + " tokens and " +
                                    number(request.most_tokens) + " behind it: there is room for " +
                                    number(generator_->room_for()) + " in a sequence");
    if (auto const why = request.how.refusal(); !why.empty()) throw std::invalid_argument(why);
    generator_->require_tokens(request.prompt);
    auto const place = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](auto const& other) { return other.request.priority < request.priority; });
    Running waits{submitted_, std::move(request)};
    waits.tokens = waits.request.prompt;
    waiting_.insert(place, std::move(waits));
    return submitted_++;
}

template <class T, class Exec>
void Scheduler<T, Exec>::cancel(std::size_t request) {
    std::erase_if(waiting_, [&](auto const& other) { return other.number == request; });
    for (auto& place : places_)
        if (place && place->number == request) place.reset();
}

template <class T, class Exec>
void Scheduler<T, Exec>::admit() {
    for (std::size_t i = 0; i < places_.size() && !waiting_.empty(); ++i) {
        if (places_[i]) continue;
        places_[i] = std::move(waiting_.front());
        waiting_.pop_front();
        generator_->restart(i);
    }
}

template <class T, class Exec>
std::vector<WrittenToken> Scheduler<T, Exec>::step() {
    admit();
    std::vector<NextTokens> next;
    std::vector<TokenRequest> wanted;
    std::size_t left = most_tokens_;
    auto const take = [&](std::size_t place, std::size_t count) {
        auto& at = *places_[place];
        next.push_back({place, std::span<std::int32_t const>(at.tokens).subspan(at.seen, count)});
        at.seen += count;
        left -= count;
    };
    for (std::size_t i = 0; i < places_.size(); ++i)
        if (places_[i] && places_[i]->is_writing()) take(i, 1);
    std::vector<std::size_t> prompts; // in the order in which they have waited
    for (std::size_t i = 0; i < places_.size(); ++i)
        if (places_[i] && !places_[i]->is_writing()) prompts.push_back(i);
    std::sort(prompts.begin(), prompts.end(), [&](std::size_t a, std::size_t b) {
        auto const order = [](Running const& of) { return std::pair(-of.request.priority, of.number); };
        return order(*places_[a]) < order(*places_[b]);
    });
    std::optional<std::size_t> cut; // the prompt that does not end in this pass
    for (auto const i : prompts) {
        std::size_t const rest = places_[i]->tokens.size() - places_[i]->seen;
        if (rest <= left)
            take(i, rest);
        else if (!cut)
            cut = i;
    }
    std::size_t const ended = next.size();
    if (cut && left > 0) take(*cut, left);
    if (next.empty()) return {};
    generator_->advance(next);
    for (std::size_t i = 0; i < ended; ++i)
        wanted.push_back({places_[next[i].sequence]->request.how, places_[next[i].sequence]->tokens});
    auto chosen = chosen_tokens<T, Exec>(*generator_, wanted);
    std::vector<WrittenToken> written;
    for (std::size_t i = 0; i < ended; ++i) {
        auto& place = places_[next[i].sequence];
        auto const token = chosen[i].chosen.token;
        auto& one = written.emplace_back(WrittenToken{place->number, std::move(chosen[i]), {}});
        auto const& stops = place->request.stop_tokens;
        place->tokens.push_back(token);
        if (std::find(stops.begin(), stops.end(), token) != stops.end())
            one.end = WritingEnd::stop_token;
        else if (place->tokens.size() == place->request.prompt.size() + place->request.most_tokens)
            one.end = WritingEnd::length;
        if (one.end) place.reset();
    }
    return written;
}

} // namespace pentad::train
