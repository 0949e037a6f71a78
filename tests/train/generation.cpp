// ranks: 1 2 4
//
// Sequences that are written in passes of any cut, on any mesh, have the logits that training's forward pass has.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/observe/counters.hpp>
#include <pentad/train/evaluator.hpp>
#include <pentad/train/sampler.hpp>
#include <pentad/train/scheduler.hpp>

#include <support/on_mesh.hpp>
#include <support/tensor_grid.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace support;

namespace {

constexpr std::size_t longest = 21, vocabulary = 256;

struct Named {
    std::string name;
    model::Part part;
};

/// Every mixer of the library, in every form that changes what it keeps.
std::vector<Named> mixers() {
    std::vector<Named> all;
    auto const add = [&](std::string const& name, auto part) { all.push_back({name, part}); };
    model::Attention const plain{.heads = 4, .kv_heads = 2, .head_dim = 4};
    add("attention", plain);
    auto windowed = plain;
    windowed.sight.window = 5;
    windowed.has_bias = windowed.norms_queries_and_keys = true;
    add("attention in a window", windowed);
    auto capped = plain;
    capped.scores = {.soft_cap = 2, .alibi = true, .sinks = true};
    capped.rotates = false;
    capped.has_output_bias = true;
    add("attention with a cap, ALiBi and sinks", capped);
    model::LatentAttention latent{
        .heads = 4, .head_dim = 6, .rope_dim = 4, .value_dim = 5, .query_rank = 7, .kv_rank = 9};
    add("latent attention", latent);
    latent.query_rank = 0;
    latent.sight.window = 6;
    add("latent attention with whole queries in a window", latent);
    add("Mamba-2", model::Mamba2{.heads = 4, .head_dim = 3, .state = 8, .groups = 1, .convolution = 4, .chunk = 4});
    add("Mamba-2 with groups", model::Mamba2{.heads = 4, .head_dim = 3, .state = 8, .groups = 4, .convolution = 3});
    add("linear attention", model::LinearAttention{.heads = 4, .head_dim = 3});
    add("linear attention that does not fade",
        model::LinearAttention{.heads = 4, .head_dim = 3, .fading = model::Fading::none});
    return all;
}
/// Every kind of MLP and of router.
std::vector<Named> mlps() {
    std::vector<Named> all{{"a gated MLP", model::GatedMlp{12}},
                           {"a plain MLP", model::PlainMlp{.width = 12, .has_bias = true}}};
    auto const add = [&](std::string const& name, model::Router const& router) {
        all.push_back({name, model::Experts{.count = 4, .top_k = 2, .width = 8, .router = router}});
    };
    add("experts", {});
    add("experts by sigmoid, with biases, in groups",
        {.score = model::RouterScore::sigmoid, .groups = 2, .top_groups = 1, .has_bias = true});
    add("experts by a hash", {.choice = model::RouterChoice::hash, .balance_loss = model::BalanceLoss::none});
    add("experts by Sinkhorn", {.choice = model::RouterChoice::sinkhorn, .balance_loss = model::BalanceLoss::none});
    return all;
}
/// A run of a model of a mixer and an MLP, and plain attention between.
train::RunSettings run_of(Named const& mixer, Named const& mlp) {
    model::Model model{.hidden = 12, .vocab = vocabulary};
    auto const block = [](model::Part const& first, model::Part const& second) {
        return model::Block{{{first, "mixer", "input_layernorm"}, {second, "mlp", "post_attention_layernorm"}}};
    };
    auto const between = block(mixers()[0].part, model::GatedMlp{12});
    model.blocks = {block(mixer.part, mlp.part), between, block(mixer.part, mlp.part), between};
    return {.model = model, .strategy = {.batch = 4, .micro_batches = 1, .seq = longest}};
}

/// The logits behind a token of a sequence.
using Logits = std::map<std::pair<std::size_t, std::size_t>, std::vector<double>>;

/// Texts of different lengths.
std::vector<std::vector<std::int32_t>> texts(std::size_t count) {
    std::vector<std::vector<std::int32_t>> all(count);
    std::mt19937 random(7);
    for (std::size_t i = 0; i < count; ++i)
        for (std::size_t n = i == 0 ? longest : 1 + random() % longest; all[i].size() < n;)
            all[i].push_back(static_cast<std::int32_t>(random() % vocabulary));
    return all;
}

/// Cuts of the texts: in each pass some sequences go on by at most so many tokens. The same on all ranks.
Logits written(auto& runner, std::vector<std::vector<std::int32_t>> const& of, std::size_t most, std::uint32_t seed,
               std::size_t page = 16, bool comes_again = false) {
    auto generator = runner.generator(of.size(), longest, page);
    Logits logits;
    std::mt19937 random(seed);
    std::vector<bool> again(of.size(), comes_again);
    for (bool is_done = false; !is_done;) {
        std::vector<train::NextTokens> next;
        is_done = true;
        for (std::size_t i = 0; i < of.size(); ++i) {
            std::size_t const at = generator.length(i), left = of[i].size() - at;
            is_done = is_done && left == 0;
            if (left == 0 || random() % 3 == 0) continue;
            if (again[i] && at > of[i].size() / 2) { // what was there before is forgotten
                generator.restart(i);
                again[i] = false;
                is_done = false;
                continue;
            }
            next.push_back({i, std::span(of[i]).subspan(at, 1 + random() % std::min(most, left))});
        }
        std::shuffle(next.begin(), next.end(), random);
        if (next.empty()) continue;
        generator.advance(next);
        std::vector<double> all(next.size() * vocabulary, -std::numeric_limits<double>::infinity());
        generator.for_each_own([&](std::size_t i, std::size_t, std::size_t first, auto const& own) {
            for (std::size_t k = 0; k < own.size(); ++k) all[i * vocabulary + first + k] = static_cast<double>(own[k]);
        });
        train::total_over_mesh(runner.setup().context, Placement::partial_max, all);
        for (std::size_t i = 0; i < next.size(); ++i) {
            auto const begin = all.begin() + static_cast<std::ptrdiff_t>(i * vocabulary);
            logits[{next[i].sequence, generator.length(next[i].sequence) - 1}] = {begin, begin + vocabulary};
        }
    }
    return logits;
}

double largest_difference(Logits const& found, Logits const& expected) {
    REQUIRE(found.size() == expected.size());
    double most = 0;
    for (auto const& [at, logits] : found) {
        auto const& other = expected.at(at);
        for (std::size_t k = 0; k < logits.size(); ++k) {
            double const difference = std::abs(logits[k] - other[k]);
            most = std::max(most, std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity());
        }
    }
    return most;
}
/// Those that both have.
Logits common(Logits const& of, Logits const& with) {
    Logits both;
    for (auto const& [at, logits] : of)
        if (with.contains(at)) both[at] = logits;
    return both;
}

template <class Stream>
struct Writer {
    std::string text = varied_text();
    io::TokenData data;
    train::Evaluator<typename Stream::element, Exec> evaluator;

    Writer(OnMesh const& mesh, train::RunSettings const& settings)
        : data(text, "the text", static_cast<std::int64_t>(settings.strategy.seq), 1),
          evaluator(mesh.context, Stream::value, settings,
                    train::ProvenSchedules(pipeline::generate(
                        "1f1b",
                        {.ranks = mesh.shape.pp, .micro_batches = static_cast<int>(settings.strategy.micro_batches)})),
                    data) {}
};

/// The logits behind each token, on one rank.
Logits alone(train::RunSettings const& settings, std::vector<std::vector<std::int32_t>> const& of) {
    OnMesh const one({}, 0, MPI_COMM_SELF);
    Writer<InvariantStream<f64>> writer(one, settings);
    return written(writer.evaluator, of, 1, 3);
}

} // namespace

TEST_CASE("what is written token by token has the loss of training's forward pass") {
    if (world_size() > 1) return;
    auto const some = mlps();
    std::size_t turn = 0;
    for (auto const& mixer : mixers()) {
        auto const& mlp = some[turn++ % some.size()];
        INFO(mixer.name, " and ", mlp.name);
        auto run = run_of(mixer, mlp);
        run.strategy.batch = 1;
        if (turn % 2 == 0) run.model.positions = longest;
        std::string const text = varied_text().substr(0, longest + 1);
        std::vector<std::vector<std::int32_t>> const one(1, {text.begin(), text.end() - 1});
        OnMesh const mesh({});
        Writer<InvariantStream<f64>> writer(mesh, run);
        double const expected = writer.evaluator.validate({text, "the text", longest, 1}, 1).loss;
        for (std::size_t const most : {std::size_t(1), std::size_t(4), longest}) {
            auto const logits =
                most == 1 ? written(writer.evaluator, one, 1, 1) : written(writer.evaluator, one, most, 2);
            if (most > 1) {
                CHECK(largest_difference(logits, common(alone(run, one), logits)) < 1e-12);
                continue;
            }
            double loss = 0;
            for (std::size_t i = 0; i < longest; ++i) {
                double sum = 0;
                for (double const x : logits.at({0, i})) sum += std::exp(x);
                loss += std::log(sum) - logits.at({0, i})[static_cast<std::size_t>(text[i + 1])];
            }
            CHECK(loss / longest == doctest::Approx(expected).epsilon(1e-12));
        }
    }
}

TEST_CASE("logits of sequences that are written depend on no mesh, cut or neighbour") {
    auto const all_mixers = mixers(), all_mlps = mlps();
    auto const prompts = texts(5);
    std::map<std::pair<std::size_t, std::size_t>, Logits> expected;
    std::size_t turn = 0;
    for (auto const& m : meshes([](MeshShape const& m) { return m.dp * m.ep <= 4; }))
        for (std::size_t count = 0; count < 3; ++count, ++turn) {
            std::size_t const mixer = turn % all_mixers.size();
            std::size_t mlp = turn / 2 % all_mlps.size();
            if (m.ep > 1 && mlp < 2) mlp += 2; // experts
            auto run = run_of(all_mixers[mixer], all_mlps[mlp]);
            INFO(m.text(), ": ", all_mixers[mixer].name, " and ", all_mlps[mlp].name);
            auto& reference = expected[{mixer, mlp}];
            if (reference.empty()) reference = alone(run, prompts);
            run.strategy.block.zigzag = turn % 2 == 0; // of no matter here
            run.strategy.sharding.stage = turn % 3 == 0 && m.dp * m.ep > 1 ? 3 : 0;
            OnMesh const mesh(m, OnMesh::mesh(m, 2));
            auto const check = [&]<class Stream>() {
                Writer<Stream> writer(mesh, run);
                std::size_t const most = turn % 2 == 0 ? 9 : 2;
                auto const logits = written(writer.evaluator, prompts, most, static_cast<std::uint32_t>(turn),
                                            std::array{1, 3, 7, 16}[turn % 4], turn % 4 == 1);
                CHECK(largest_difference(logits, common(reference, logits)) < 1e-11);
            };
            check.template operator()<InvariantStream<f64>>();
            if (m.tp > 1) check.template operator()<SequenceStream<f64>>();
        }
}

TEST_CASE("sequences are written on grids of tensor parallelism") {
    if (world_size() == 1) return;
    auto const prompts = texts(5);
    for (auto const& grid : grids_of_all_ranks({{1, 2, 1}, {1, 1, 2}, {1, 2, 2}, {2, 1, 1}, {2, 2, 1}})) {
        INFO(grid.text());
        auto run = run_of(mixers()[0], mlps()[0]);
        auto const expected = alone(run, prompts);
        OnMesh const on(grid.shape(), grid.mesh());
        Writer<GridStream<f64>> writer(on, run);
        auto const logits = written(writer.evaluator, prompts, 4, 5);
        CHECK(largest_difference(logits, common(expected, logits)) < 1e-11);
    }
}

TEST_CASE("what is kept of sequences are the bytes that the layers say") {
    for (auto const& mixer : mixers()) {
        INFO(mixer.name);
        auto const run = run_of(mixer, mlps()[0]);
        OnMesh const mesh({.dp = world_size()});
        Writer<InvariantStream<f64>> writer(mesh, run);
        auto const state = writer.evaluator.model().decoding_state();
        auto const before = observe::counters()[observe::Memory::caches].bytes;
        auto const sequences = static_cast<std::size_t>(world_size());
        auto generator = writer.evaluator.generator(3 * sequences, longest);
        CHECK(static_cast<double>(generator.bytes()) == 3 * (state.token * longest + state.sequence));
        auto const held = observe::counters()[observe::Memory::caches].bytes - before;
        CHECK(held >= static_cast<std::int64_t>(generator.bytes())); // blocks of memory are rounded up
        CHECK(held <= static_cast<std::int64_t>(generator.bytes() + 256 * 20));
        CHECK(observe::counters()[observe::Memory::gradients].bytes == 0);
    }
}

TEST_CASE("a model that cannot write sequences says why") {
    OnMesh const mesh({.dp = world_size()});
    auto const refused = [&](train::RunSettings const& run, std::size_t length = longest) {
        Writer<InvariantStream<f32>> writer(mesh, run);
        try {
            (void)writer.evaluator.generator(1, length);
        } catch (std::invalid_argument const& error) {
            return std::string(error.what());
        }
        return std::string("not refused");
    };
    auto const all = mixers();
    auto sees_later = *all[0].part.as<model::Attention>();
    sees_later.sight.causal = false;
    CHECK(refused(run_of({"", sees_later}, mlps()[0])) == "sequences are written by models whose tokens see earlier "
                                                          "ones only: this one has a part whose tokens see later ones");
    CHECK(refused(run_of(all[0], {"", model::Experts{.count = 4,
                                                     .top_k = 2,
                                                     .width = 6,
                                                     .router = {.choice = model::RouterChoice::expert_choice,
                                                                .balance_loss = model::BalanceLoss::none}}})) ==
          "block 0 has a layer that writes no sequences: give it continue_sequences(), or say that it is_tokenwise "
          "(layers/layer.hpp)");
    CHECK(refused(run_of(all[0], mlps()[0]), longest + 1) == "sequences of 22 tokens for a model of 21");
}

TEST_CASE("a request gets the same tokens, whatever is written beside it, and none waits for ever") {
    auto const run = run_of(mixers()[0], mlps()[2]);
    auto const prompts = texts(7);
    auto const request_of = [&](std::size_t i) {
        train::WritingRequest request{.prompt = prompts[i],
                                      .most_tokens = std::min(longest - prompts[i].size(), 1 + i)};
        request.how = {.temperature = i % 3 == 0 ? 0.0 : 0.8, .top_k = i % 2 == 0 ? 20u : 0u, .seed = i};
        return request;
    };
    using Texts = std::map<std::size_t, std::vector<std::int32_t>>;
    auto const written_by = [&](OnMesh const& mesh, std::size_t sequences, std::size_t most, std::uint32_t seed) {
        Writer<InvariantStream<f64>> writer(mesh, run);
        auto generator = writer.evaluator.generator(sequences, longest, 2);
        train::Scheduler scheduler(generator, most);
        std::mt19937 random(seed);
        std::map<std::size_t, std::size_t> of_number;
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < prompts.size(); ++i)
            if (prompts[i].size() < longest) order.push_back(i);
        std::shuffle(order.begin(), order.end(), random);
        Texts texts;
        std::size_t ended = 0;
        for (std::size_t at = 0, steps = 0; at < order.size() || !scheduler.is_idle(); ++steps) {
            REQUIRE(steps < 1000);
            for (; at < order.size() && random() % 3 > 0; ++at)
                of_number[scheduler.submit(request_of(order[at]))] = order[at];
            for (auto const& token : scheduler.step()) {
                texts[of_number.at(token.request)].push_back(token.token.chosen.token);
                ended += token.end ? 1 : 0;
            }
        }
        CHECK(ended == order.size());
        return texts;
    };
    OnMesh const one({}, 0, MPI_COMM_SELF);
    auto const expected = written_by(one, 1, 1, 1);
    for (auto const& [i, tokens] : expected) CHECK(tokens.size() == request_of(i).most_tokens);
    std::uint32_t seed = 2;
    for (auto const& m : meshes([](MeshShape const& m) { return m.dp * m.ep <= 4; })) {
        INFO(m.text());
        OnMesh const mesh(m, OnMesh::mesh(m, 2));
        CHECK(written_by(mesh, 3, 1 + seed % 6, seed) == expected);
        ++seed;
    }

    Writer<InvariantStream<f64>> writer(one, run);
    auto generator = writer.evaluator.generator(2, longest);
    train::Scheduler scheduler(generator, 4);
    CHECK_THROWS_WITH_AS(scheduler.submit({.prompt = {1, 2}, .most_tokens = longest}),
                         "a prompt of 2 tokens and 21 behind it: there is room for 21 in a sequence",
                         std::invalid_argument);
    CHECK_THROWS_AS(scheduler.submit({.prompt = {256}}), std::invalid_argument);
    CHECK_THROWS_AS(scheduler.submit({.prompt = {}}), std::invalid_argument);
    for (int i = 0; i < 3; ++i) (void)scheduler.submit({.prompt = {1}, .most_tokens = 3, .how = {.temperature = 0}});
    auto const urgent = scheduler.submit({.prompt = {1}, .most_tokens = 1, .how = {.temperature = 0}, .priority = 1});
    auto const first = scheduler.step();
    CHECK(first.size() == 2);
    CHECK(first[0].request == urgent);
    CHECK(scheduler.waiting() == 2);
    scheduler.cancel(0);
    CHECK(scheduler.running() == 0);
    auto const token = first[1].token.chosen.token;
    auto const stops = scheduler.submit(
        {.prompt = {1}, .most_tokens = 3, .how = {.temperature = 0}, .stop_tokens = {token}, .priority = 2});
    for (auto const& other : scheduler.step())
        if (other.request == stops) CHECK((other.end == train::WritingEnd::stop_token));
}
