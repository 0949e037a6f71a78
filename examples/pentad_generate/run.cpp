#include "run.hpp"

#include "requests.hpp"
#include "writer.hpp"

#include <pentad/checkpoint/folder.hpp>
#include <pentad/comm/broadcast_text.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/observe/ledger.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/report/format.hpp>
#include <pentad/train/elements.hpp>
#include <pentad/train/stages.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace pentad_generate {

namespace {

namespace program = pentad::program;
namespace train = pentad::train;
using Clock = std::chrono::steady_clock;

/// Where the weights are, and what model they are of.
struct Source {
    std::string config;                                 ///< the text of a config.json
    std::optional<pentad::checkpoint::Reader> reader{}; ///< of a checkpoint of train_lm
    std::optional<pentad::io::Checkpoint> weights{};    ///< or published weights
};
Source open_model(std::string const& model) {
    Source source;
    std::filesystem::path folder = model;
    if (!pentad::checkpoint::is_checkpoint(folder))
        if (auto const found = pentad::checkpoint::list(folder); !found.empty()) folder = found.back().path;
    if (!pentad::checkpoint::is_checkpoint(folder)) {
        source.config = pentad::io::read_config(model);
        source.weights.emplace(folder);
        return source;
    }
    source.reader.emplace(folder);
    auto const& run = source.reader->manifest().run;
    if (!run.contains("config"))
        throw program::BadInput("--model " + model + ": the checkpoint does not say of which model it is");
    source.config = run.at("config").dump();
    return source;
}

/// The whole of --prompts. @throws io::FileError
std::string read_all(std::string const& prompts) {
    if (prompts == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
    std::ifstream file(prompts, std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) throw pentad::io::FileError(prompts + ": cannot be read, or is empty");
    return std::move(text).str();
}

/// How long a text that the model goes on with may be: what is asked for, or what its config.json says.
std::size_t length_of(Options const& options, std::string const& config) {
    if (options.length > 0) return options.length;
    auto const plain = pentad::io::plain_config(config);
    for (char const* const name : {"max_position_embeddings", "n_positions"})
        if (plain.contains(name) && plain.at(name).is_number_unsigned()) return plain.at(name).get<std::size_t>();
    return 2048;
}

train::RunSettings settings_of(Options const& options, pentad::model::Model model, std::size_t length) {
    train::RunSettings settings{.model = std::move(model), .strategy = options.strategy};
    auto& s = settings.strategy;
    s.batch = s.dp * s.ep * s.tp; // as few as all ranks can share
    s.micro_batches = 1;
    s.seq = static_cast<std::int64_t>(length);
    return settings;
}

/// What has been written, on the first rank: answers leave in the order of the requests.
class Answers {
  public:
    Answers(std::vector<Request> const& requests, TextForm const& form)
        : requests_(&requests), form_(&form), answers_(requests.size()), last_(requests.size(), Clock::now()) {}

    /// Takes a token. Whether its text ends by itself, at a text of stop.
    bool take(train::WrittenToken const& written) {
        auto& answer = answers_[written.request];
        auto const now = Clock::now();
        double const since = std::chrono::duration<double>(now - last_[written.request]).count();
        (answer.tokens.empty() ? first_ : between_).push_back(since);
        if (answer.tokens.empty()) answer.first_token = since;
        last_[written.request] = now;
        answer.seconds += since;
        answer.tokens.push_back(written.token);
        if (form_->exists()) {
            auto const text = text_of(answer, written.end == train::WritingEnd::stop_token);
            for (auto const& stop : (*requests_)[written.request].stops)
                if (auto const at = text.find(stop); at != text.npos) {
                    answer.text = text.substr(0, at);
                    answer.end = "stop_text";
                    return true;
                }
            answer.text = text;
        }
        if (written.end) answer.end = *written.end == train::WritingEnd::stop_token ? "stop_token" : "length";
        return false;
    }
    /// Says the answers that are next and complete.
    void say() {
        for (; next_ < answers_.size() && !answers_[next_].end.empty(); ++next_)
            std::printf("%s\n", answer_line(next_, (*requests_)[next_], answers_[next_], *form_).c_str());
        std::fflush(stdout);
    }
    [[nodiscard]] std::vector<double> const& first() const { return first_; }
    [[nodiscard]] std::vector<double> const& between() const { return between_; }

  private:
    [[nodiscard]] std::string text_of(Answer const& answer, bool without_last) const {
        std::vector<std::int32_t> tokens;
        for (auto const& token : answer.tokens) tokens.push_back(token.chosen.token);
        if (without_last) tokens.pop_back();
        return form_->decode(tokens);
    }

    std::vector<Request> const* requests_;
    TextForm const* form_;
    std::vector<Answer> answers_;
    std::vector<Clock::time_point> last_; ///< token of each, or its submission
    std::vector<double> first_, between_;
    std::size_t next_ = 0;
};

/// The time that this part of all are not longer than.
std::string percentile(std::vector<double> of, double part) {
    if (of.empty()) return "-";
    std::sort(of.begin(), of.end());
    return pentad::report::duration(of[static_cast<std::size_t>(part * static_cast<double>(of.size() - 1))]);
}

void say_speed(std::vector<Request> const& requests, Answers const& answers, double seconds, std::size_t cache_bytes) {
    std::size_t prompt = 0, written = answers.first().size() + answers.between().size();
    for (auto const& request : requests) prompt += request.writing.prompt.size();
    std::fprintf(stderr,
                 "%zu requests, %zu tokens of prompts, %zu tokens written in %.2f s: %.1f tokens/s\n"
                 "first token after %s (median), %s (95 %%); from token to token %s, %s\n"
                 "caches of this rank: %s",
                 requests.size(), prompt, written, seconds, static_cast<double>(written) / seconds,
                 percentile(answers.first(), 0.5).c_str(), percentile(answers.first(), 0.95).c_str(),
                 percentile(answers.between(), 0.5).c_str(), percentile(answers.between(), 0.95).c_str(),
                 pentad::report::bytes(static_cast<double>(cache_bytes)).c_str());
    for (auto const axis : pentad::view_axes)
        if (double const sent = pentad::observe::ledger().bytes(axis); sent > 0)
            std::fprintf(stderr, "; sent along %s: %s", std::string(axis).c_str(), pentad::report::bytes(sent).c_str());
    std::fprintf(stderr, "\n");
}

} // namespace

void run(Options const& options, program::Ranks& ranks) {
    std::optional<Source> source;
    ranks.on_all([&] { program::with_files_of_user([&] { source.emplace(open_model(options.model)); }); });
    pentad::io::ModelConfig described;
    ranks.on_all([&] {
        try {
            described = pentad::io::model_from_config(source->config, pentad::io::ConfigUse::training);
            if (auto const why = train::element_refusal(options.strategy.element); !why.empty())
                throw program::BadInput(why);
        } catch (std::invalid_argument const& error) {
            throw program::BadInput("--model " + options.model + ": " + error.what());
        }
    });
    std::size_t const length = length_of(options, source->config);
    TextForm const form = described.model.vocab == 256 ? bytes_form() : TextForm{};

    std::string text; // the first rank reads the prompts
    ranks.on_first([&] {
        program::with_files_of_user(
            [&] { text = packed(read_requests(read_all(options.prompts), options, form, length)); });
    });
    auto const requests = unpacked(pentad::comm::broadcast_text(MPI_COMM_WORLD, std::move(text), 0));

    auto const settings = settings_of(options, described.model, length);
    auto const schedule =
        pentad::pipeline::generate("1f1b", {.ranks = static_cast<int>(options.strategy.pp), .micro_batches = 1});
    std::optional<pentad::comm::Communicators> communicators;
    std::unique_ptr<Writer> writer;
    ranks.on_all([&] {
        auto const views = pentad::model::split_tensor_axis(options.strategy.views(), pentad::ml::tp(), settings.model,
                                                            options.strategy.block.tensor_kind);
        communicators.emplace(
            MPI_COMM_WORLD,
            train::for_schedule(pentad::model::split_data(views, 1).split<pentad::ml::cp>(1), schedule));
        train::with_element(options.strategy.element, [&]<class T>(T) {
            writer = make<T>({*communicators, settings, train::ProvenSchedules(schedule)});
        });
        std::vector<std::string> passed_over; // modules of multi-token prediction
        for (std::size_t i = 0; i < described.predictors; ++i)
            passed_over.push_back(pentad::model::Model::prefix(settings.model.blocks.size() + i));
        if (source->weights)
            writer->import_weights(*source->weights, passed_over);
        else
            writer->restore(*source->reader, {});
        writer->begin(std::min(options.sequences, requests.size()), length, options.page, options.pass_tokens);
        for (auto const& request : requests) (void)writer->submit(request.writing);
    });
    source.reset();
    pentad::observe::ledger().clear();

    Answers answers(requests, form);
    auto const start = Clock::now();
    while (!writer->is_idle()) {
        std::string ended; // requests that a text of stop has ended, as the first rank finds
        auto const written = writer->step();
        if (ranks.is_first())
            for (auto const& token : written)
                if (answers.take(token) && !token.end) ended += std::to_string(token.request) + " ";
        std::istringstream numbers(pentad::comm::broadcast_text(MPI_COMM_WORLD, std::move(ended), 0));
        for (std::size_t number = 0; numbers >> number;) writer->cancel(number);
        if (ranks.is_first()) answers.say();
    }
    double const seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (ranks.is_first() && !options.quiet) say_speed(requests, answers, seconds, writer->cache_bytes());
}

} // namespace pentad_generate
