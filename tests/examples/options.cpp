#include <doctest/doctest.h>

#include "train_lm/model_file.hpp"
#include "train_lm/options.hpp"

#include "../io/scratch.hpp"

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/planner/estimate.hpp>
#include <pentad/train/planned.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace train_lm;

namespace {

using Words = std::vector<std::string>;

Words words_of(std::string const& line) {
    std::istringstream stream(line);
    return {std::istream_iterator<std::string>(stream), {}};
}

ParseResult parse_words(Words const& words, int ranks) {
    std::vector<char const*> arguments{"train_lm"};
    for (auto const& word : words) arguments.push_back(word.c_str());
    return parse(static_cast<int>(arguments.size()), arguments.data(), ranks);
}

ParseResult parse_line(std::string const& line, int ranks) { return parse_words(words_of(line), ranks); }
std::string error_of(std::string const& line, int ranks = 1) {
    auto const result = parse_line(line, ranks);
    return result.error + result.suggestion;
}

Options options_of(std::string const& line, int ranks = 1) {
    auto const result = parse_line(line, ranks);
    REQUIRE_MESSAGE(result.options, result.error);
    return *result.options;
}

/// The command line with what the sentence suggests in the place of what was there.
Words with_suggestion(Words words, std::string const& sentence) {
    auto const start = sentence.rfind(": try ");
    REQUIRE_MESSAGE(start != std::string::npos, sentence);
    Words const suggestion = words_of(sentence.substr(start + 6));
    auto const is_flag = [](std::string const& word) { return word.starts_with("--"); };
    for (auto const& flag : suggestion) {
        if (!is_flag(flag)) continue;
        for (auto at = words.begin(); at != words.end();) {
            if (at->starts_with(flag + "=")) {
                at = words.erase(at);
                continue;
            }
            if (*at != flag) {
                ++at;
                continue;
            }
            at = words.erase(at, std::find_if(at + 1, words.end(), is_flag));
        }
    }
    words.insert(words.end(), suggestion.begin(), suggestion.end());
    return words;
}

/// The sentence, after having seen that what it suggests works.
std::string mended(std::string const& line, int ranks = 1) {
    auto const sentence = error_of(line, ranks);
    auto const again = parse_words(with_suggestion(words_of(line), sentence), ranks);
    CHECK_MESSAGE(again.options, sentence << "\n  gives  " << again.error);
    return sentence;
}

} // namespace

TEST_CASE("without flags, everything has a value that works on any number of ranks") {
    for (int ranks = 1; ranks <= 40; ++ranks) {
        auto const options = options_of("", ranks);
        CHECK(options.extent("dp") == ranks);
        CHECK(options.batch % ranks == 0);
        CHECK(options.batch >= 24);
        CHECK(!check(options, ranks));
    }
    CHECK(!check(Options{}, 7));
    CHECK(!check_files(options_of("")));
}

TEST_CASE("flags of experts make the model's experts and its router") {
    using namespace pentad::model;
    auto const experts_of = [](std::string const& line, std::size_t layer = 3) {
        auto const model = make_model(options_of(line));
        auto const* experts = model.find<Experts>(layer);
        REQUIRE(experts != nullptr);
        return *experts;
    };
    CHECK(experts_of("--experts 4").router == Router{});
    CHECK(experts_of("--experts 4 --balance bias --bias-step proportional").router.bias_step == BiasStep::proportional);
    auto const predicting = make_model(options_of("--mtp 2 --experts 4"));
    CHECK(predicting.predictors == std::vector(2, predicting.blocks.back()));
    auto const deepseek =
        "--experts 8 --top-k 3 --router sigmoid --route-scale 2.5 --expert-groups 4 --top-groups 2 "
        "--balance bias+sequence-aux --bias-rate 0.01 --shared-experts 2 --expert-ffn 96 --dense-layers 1";
    CHECK(experts_of(deepseek) == Experts{.count = 8,
                                          .top_k = 3,
                                          .width = 96,
                                          .shared = 2,
                                          .router = {.score = RouterScore::sigmoid,
                                                     .scale = 2.5,
                                                     .groups = 4,
                                                     .top_groups = 2,
                                                     .balance_loss = BalanceLoss::sequence,
                                                     .has_bias = true,
                                                     .bias_rate = 0.01}});
    auto const model = make_model(options_of(deepseek));
    CHECK(model.find<GatedMlp>(0)->width == 576);
    CHECK(model.find<Experts>(1) != nullptr);
    CHECK(experts_of("--experts 4 --router switch --top-k 1").router == Router{.renormalises = false, .jitter = 0.01});
    CHECK(experts_of("--experts 4 --router expert-choice --capacity 2").router ==
          Router{.choice = RouterChoice::expert_choice,
                 .renormalises = false,
                 .balance_loss = BalanceLoss::none,
                 .capacity = 2});
    CHECK(experts_of("--experts 4 --capacity 1.25 --drop score --renormalise off").router ==
          Router{.renormalises = false, .capacity = 1.25, .drop = Drop::score});
}

TEST_CASE("latent attention is five sizes, with the heads, in place of all other attention") {
    auto const o =
        options_of("--heads 6 --window 9 --mixers a,m --latent-attention v=3,q=7,kv=8,nope=5,rope=4 --layers 2");
    auto const model = make_model(o);
    auto const* const part = model.find<pentad::model::LatentAttention>(0);
    REQUIRE(part != nullptr);
    CHECK(*part == pentad::model::LatentAttention{.heads = 6,
                                                  .head_dim = 5,
                                                  .rope_dim = 4,
                                                  .value_dim = 3,
                                                  .query_rank = 7,
                                                  .kv_rank = 8,
                                                  .sight = {.window = 9}});
    CHECK(model.first<pentad::model::Attention>() == nullptr);
    // Heads of hidden / heads = 3 elements, 5 ranks of cp that exchange none, kv heads that tp does not divide.
    (void)options_of(
        "--mesh cp=5 --cp ulysses --hidden 12 --heads 4 --seq 25 --latent-attention q=0,kv=8,rope=4,nope=5,v=3", 5);

    std::string const sizes = "--latent-attention ";
    for (std::string const text :
         {"q=0", "q=0,kv=8,rope=4,nope=5,v=3,q=0", "q=0,kv=8,rope=4,nope=5,v=x", "a,b", "q=0,kv=8,rope=4,nope=5,w=3"})
        CHECK(mended(sizes + text)
                  .starts_with("--latent-attention " + text +
                               " is not q=N,kv=N,rope=N,nope=N,v=N, each once: try --latent-attention q="));
    CHECK(mended(sizes + "q=0,kv=8,rope=3,nope=5,v=3") ==
          "--latent-attention q=0,kv=8,rope=3,nope=5,v=3: rope = 3 is odd, and rotary embedding turns pairs: try "
          "--latent-attention q=0,kv=8,rope=4,nope=5,v=3");
    CHECK(mended(sizes + "q=-1,kv=0,rope=4,nope=5,v=3") ==
          "--latent-attention q=-1,kv=0,rope=4,nope=5,v=3: q = -1 is not between 0 and 1048576: try "
          "--latent-attention q=0,kv=1,rope=4,nope=5,v=3");
    for (std::string const flag : {"--kv-heads 4", "--positions alibi", "--soft-cap 2", "--attention-sinks"})
        CHECK(error_of(flag + " --latent-attention q=0,kv=8,rope=4,nope=5,v=3") ==
              flag.substr(0, flag.find(' ')) + " is of attention that is not latent: leave it out");
    CHECK(error_of("--mesh tp=4 --tp-kind 2d --latent-attention q=0,kv=8,rope=4,nope=5,v=3", 4) ==
          "--tp-kind is of attention that is not latent: leave it out");
    CHECK(error_of("--mixers m --latent-attention q=0,kv=8,rope=4,nope=5,v=3") ==
          "--latent-attention is of attention, and no layer has any: leave it out");
}

TEST_CASE("every flag reaches its option") {
    auto const o = options_of(
        "--mesh tp=2,dp=3,cp=1 --tokens a --tokens b --token-type uint32 --vocab 300 --ignore-token 10 --steps 7 "
        "--batch 12 --micro-batches 2 "
        "--seq 64 "
        "--layers 6 --hidden 96 --heads 6 --kv-heads 2 --ffn 128 --experts 4 --top-k 3 --moe-every 2 --tie-embeddings "
        "--window 9 --positions alibi --soft-cap 50 --attention-sinks "
        "--sequence-parallel on --schedule gpipe --cp allgather --zigzag --zero 3 --zero-ranks 3 --zero-keep on "
        "--zero-accumulate on --gradient-release --bucket-elements 1000 --recompute "
        "selective --recompute-every 3 --recompute-parts norms,attention --memory-limit 3GiB "
        "--dtype f64 --lr 0.5 --warmup 3 "
        "--weight-decay 0.25 --clip 0 --aux-coef 0.125 --z-coef 1e-4 --seed 99 --log l --dump-weights d --trace t "
        "--sample 5 --prompt p --quiet",
        6);
    REQUIRE(o.mesh.size() == 5);
    CHECK(o.mesh[0].name == "tp");
    CHECK(o.mesh[1].name == "dp");
    CHECK(o.mesh[2].name == "cp");
    CHECK(o.extent("dp") == 3);
    CHECK(o.extent("ep") == 1);
    CHECK(o.tokens == std::vector<std::string>{"a", "b"});
    CHECK(o.token_type == "uint32");
    CHECK(options_of("--data a --data b").data == std::vector<std::string>{"a", "b"});
    CHECK(o.vocab == 300);
    CHECK(o.ignore_token == 10);
    CHECK(o.steps == 7);
    CHECK(o.batch == 12);
    CHECK(o.strategy.micro_batches == 2);
    CHECK(o.strategy.seq == 64);
    CHECK(o.layers == 6);
    CHECK(o.hidden == 96);
    CHECK(o.heads == 6);
    CHECK(o.kv_heads == 2);
    CHECK(o.ffn == 128);
    CHECK(o.experts == 4);
    CHECK(o.top_k == 3);
    CHECK(o.moe_every == 2);
    CHECK(o.tie_embeddings);
    CHECK(o.window == 9);
    CHECK(o.positions == "alibi");
    CHECK(o.soft_cap == 50);
    CHECK(o.attention_sinks);
    CHECK(o.strategy.block.sequence_parallel);
    CHECK(o.strategy.schedule == "gpipe");
    CHECK(o.cp == "allgather");
    CHECK(o.zigzag);
    CHECK(o.strategy.sharding.stage == 3);
    CHECK(o.strategy.sharding.ranks == 3);
    CHECK(o.strategy.sharding.keeps_parameters);
    CHECK(o.strategy.sharding.accumulates_gradients);
    CHECK(o.strategy.sharding.releases_gradients);
    CHECK(o.strategy.bucket_elements == 1000);
    CHECK(o.recompute == "selective");
    CHECK(o.strategy.recompute.every == 3);
    CHECK(o.recompute_parts == "norms,attention");
    CHECK(o.memory_limit == "3GiB");
    using pentad::model::Piece;
    CHECK(recomputation_of(o) == pentad::model::Recomputation{.kind = pentad::model::Recomputation::Kind::selective,
                                                              .every = 3,
                                                              .pieces = {Piece::norms, Piece::attention}});
    CHECK(o.strategy.element == pentad::model::Element::f64);
    CHECK(o.lr == 0.5);
    CHECK(o.warmup == 3);
    CHECK(o.weight_decay == 0.25);
    CHECK(o.clip == 0);
    CHECK(options_of("--clip 2").clip == 2);
    CHECK(o.aux_coef == 0.125);
    CHECK(o.z_coef == 1e-4);
    CHECK(o.seed == 99);
    CHECK(o.log == "l");
    CHECK(o.dump_weights == "d");
    CHECK(o.trace == "t");
    CHECK(o.sample == 5);
    CHECK(o.prompt == "p");
    CHECK(o.quiet);
}

TEST_CASE("offload to a folder, with a window") {
    auto const o = options_of("--offload optimizer --offload-folder f --offload-window 1MiB");
    CHECK(offload_of(o).optimizer);
    CHECK(offload_of(o).folder == "f");
    CHECK(offload_of(o).window_bytes == std::size_t{1} << 20);
    CHECK(!offload_of(o).activations);
    CHECK(!offload_of(options_of("")).optimizer);
    auto const both = offload_of(options_of("--offload both --offload-folder f"));
    CHECK((both.optimizer && both.activations));
    auto const activations = offload_of(options_of("--offload activations --offload-folder f"));
    CHECK((!activations.optimizer && activations.activations));
    CHECK(offload_of(options_of("--offload optimizer --offload-folder f")).window_bytes == 0);
    CHECK(error_of("--offload optimizer") == "--offload optimizer needs a folder for its files: --offload-folder DIR");
    CHECK(error_of("--offload-folder f") == "--offload-folder f needs --offload optimizer, activations or both");
    CHECK(error_of("--offload-window 1MiB") == "--offload-window 1MiB needs --offload optimizer, activations or both");
    CHECK(error_of("--offload optimizer --offload-folder f --offload-window much") ==
          "--offload-window much is not a size such as 1GiB, 64MiB or 100000000: try --offload-window 1GiB");
    CHECK(error_of("--offload all") ==
          "--offload all is none of none, optimizer, activations, both: try --offload none");
}

TEST_CASE("an optimizer and its numbers; numbers of another one are refused") {
    auto const o =
        options_of("--optimizer muon --momentum 0.9 --nesterov off --muon-rate match-rms-adamw --epsilon 1e-6");
    CHECK(o.optimizer == "muon");
    CHECK(o.momentum == 0.9);
    CHECK(o.nesterov == "off");
    CHECK(o.muon_rate == "match-rms-adamw");
    CHECK(options_of("--optimizer sgd --momentum 0").momentum == 0);
    CHECK(options_of("--optimizer lion --beta2 0.98").optimizer == "lion");
    CHECK(error_of("--momentum 0.9") ==
          "--momentum is a number of --optimizer sgd, muon, not of adamw: leave out --momentum");
    CHECK(error_of("--optimizer lion --epsilon 1e-8") ==
          "--epsilon is a number of --optimizer adamw, muon, not of lion: leave out --epsilon");
    CHECK(error_of("--optimizer sgd --beta1 0.8") ==
          "--beta1 is a number of --optimizer adamw, lion, muon, not of sgd: leave out --beta1");
    CHECK(error_of("--optimizer sgd --muon-rate original") ==
          "--muon-rate is a number of --optimizer muon, not of sgd: leave out --muon-rate");
    CHECK(error_of("--optimizer sgd --momentum 0 --nesterov on") ==
          "--nesterov on looks ahead along the momentum, and --momentum is 0: leave out --nesterov");
    CHECK(error_of("--optimizer adam") == "--optimizer adam is none of adamw, sgd, lion, muon: try --optimizer adamw");
    CHECK(error_of("--optimizer sgd --momentum 1") == "--momentum 1 is not between 0 and 0.999999");
}

TEST_CASE("a value may follow an equals sign, and kv-heads follow heads") {
    CHECK(options_of("--steps=3 --heads=4 --mesh=dp=1").steps == 3);
    CHECK(options_of("--heads 4").kv_heads == 4);
    CHECK(options_of("--heads 4 --kv-heads 2").kv_heads == 2);
}

TEST_CASE("help names every flag and is no error") {
    auto const result = parse_line("--steps 3 --help", 1);
    CHECK(result.error.empty());
    CHECK(!result.options);
    for (auto const* flag : {"--mesh AXES", "--data FILE", "--sequence-parallel on|off", "--steps N", "(default 100)",
                             "--lr X", "(default 0.001)", "--quiet", "--help"})
        CHECK_MESSAGE(result.help.find(flag) != std::string::npos, flag);
    CHECK(!parse_line("-h", 1).help.empty());
}

TEST_CASE("an unknown flag is named, with the one that was meant") {
    CHECK(error_of("--stps 3") == "there is no flag --stps: did you mean --steps? (--help lists them)");
    CHECK(error_of("--microbatches=3") ==
          "there is no flag --microbatches: did you mean --micro-batches? (--help lists them)");
    CHECK(error_of("--steps 3 4") == "'4' belongs to no flag (--help lists them)");
    CHECK(mended("--quiet=yes") == "--quiet takes no value, and was given yes: try --quiet");
    CHECK(mended("--zigzag 1 --zigzag") == "--zigzag takes no value, and was given 1: try --zigzag");
}

TEST_CASE("a value that cannot be read is refused with one that works") {
    CHECK(mended("--steps ten") == "--steps ten is not a whole number: try --steps 100");
    CHECK(mended("--steps 1e3") == "--steps 1e3 is not a whole number: try --steps 100");
    CHECK(mended("--steps") == "--steps needs a value, N: try --steps 100");
    CHECK(mended("--steps --quiet") == "--steps needs a value, N: try --steps 100");
    CHECK(mended("--steps= --quiet") == "--steps needs a value, N: try --steps 100");
    CHECK(mended("--steps 99999999999999999999") ==
          "--steps 99999999999999999999 is not between 0 and 2147483647: try --steps 100");
    CHECK(mended("--steps -1") == "--steps -1 is not between 0 and 2147483647: try --steps 0");
    CHECK(mended("--heads abc --mesh tp=8", 8) == "--heads abc is not a whole number: try --heads 16");
    CHECK(mended("--hidden 9223372036854775807") ==
          "--hidden 9223372036854775807 is not between 2 and 1048576: try --hidden 192");
    CHECK(mended("--seed -1") == "--seed -1 is not between 0 and 9223372036854775806: try --seed 0");
    CHECK(mended("--seed 9223372036854775808") ==
          "--seed 9223372036854775808 is not between 0 and 9223372036854775806: try --seed 1");
    CHECK(mended("--layers=-1") == "--layers -1 is not between 1 and 65536: try --layers 1");
    CHECK(mended("--lr fast") == "--lr fast is not a number: try --lr 0.001");
    CHECK(mended("--lr nan") == "--lr nan is not between 0 and 1e+06: try --lr 0.001");
    CHECK(mended("--lr inf") == "--lr inf is not between 0 and 1e+06: try --lr 0.001");
    CHECK(mended("--lr 1e999") == "--lr 1e999 is not between 0 and 1e+06: try --lr 0.001");
    CHECK(mended("--clip -1") == "--clip -1 is not between 0 and 1e+06: try --clip 1");
    CHECK(mended("--dtype f16") == "--dtype f16 is none of f64, f32, bf16: try --dtype bf16");
    CHECK(mended("--schedule 1fib").ends_with(", dualpipe, chimera: try --schedule 1f1b"));
    CHECK(mended("--cp rings") ==
          "--cp rings is none of ring, allgather, ulysses, two-level, double-ring, auto: try --cp ring");
    CHECK(mended("--positions rotary") == "--positions rotary is none of rope, alibi, none: try --positions rope");
    CHECK(mended("--soft-cap -1") == "--soft-cap -1 is not between 0 and 1e+06: try --soft-cap 0");
    CHECK(mended("--sequence-parallel yes") ==
          "--sequence-parallel yes is none of on, off: try --sequence-parallel off");
    CHECK(mended("--zero 4") == "--zero 4 is not between 0 and 3: try --zero 0");
    CHECK(mended("--zero-ranks -1") == "--zero-ranks -1 is not between 0 and 65536: try --zero-ranks 0");
    CHECK(mended("--zero-keep yes --zero 3") == "--zero-keep yes is none of on, off: try --zero-keep off");
    CHECK(mended("--ignore-token 16777217") ==
          "--ignore-token 16777217 is not between 0 and 16777216: try --ignore-token 255");
    CHECK(mended("--ignore-token x") == "--ignore-token x is not a whole number: try --ignore-token 0");
    CHECK(mended("--ignore-token") == "--ignore-token needs a value, N: try --ignore-token 0");
    CHECK(mended("--vocab 100") == "--vocab 100 is less than the 256 bytes of text: try --vocab 256");
    CHECK(error_of("--vocab 1000 --sample 3") == "--sample 3 writes text, whose tokens are its 256 bytes, and --vocab "
                                                 "1000 has others: leave out one of the two");
    CHECK(options_of("--vocab 1000").vocab == 1000); // of which text has some
    CHECK(options_of("--vocab 97 --tokens a --token-type uint8").vocab == 97);
    CHECK(mended("--vocab 1") == "--vocab 1 is not between 2 and 16777216: try --vocab 256");
    CHECK(mended("--steps 3 --steps 4") == "--steps is given twice: try --steps 3");
    CHECK(error_of("--log") == "--log needs a value, FILE");
    CHECK(parse_words({"--prompt", ""}, 1).error.empty());
    for (auto const* flag : {"--batch", "--micro-batches", "--seq", "--layers", "--hidden", "--heads", "--kv-heads",
                             "--ffn", "--top-k", "--moe-every"})
        for (auto const* value : {"0", "-3"})
            CHECK(mended("--experts 4 " + std::string(flag) + " " + value).find(" is not between ") !=
                  std::string::npos);
    CHECK(mended("--experts -1") == "--experts -1 is not between 0 and 16384: try --experts 0");
}

TEST_CASE("a mesh that is not one is refused with the nearest that works") {
    CHECK(mended("--mesh dp=2,tp=2", 8) ==
          "--mesh dp=2,tp=2 is a mesh of 4 ranks, and the run has 8: try --mesh dp=4,tp=2");
    CHECK(mended("--mesh tp=3", 4) == "--mesh tp=3 is a mesh of 3 ranks, and the run has 4: try --mesh tp=4");
    CHECK(mended("--mesh pp=2,dp=2,tp=2", 6) ==
          "--mesh pp=2,dp=2,tp=2 is a mesh of 8 ranks, and the run has 6: try --mesh pp=2,tp=3");
    CHECK(mended("--mesh dp=2,dp=2", 4) == "--mesh dp=2,dp=2 names the axis dp twice: try --mesh dp=4");
    CHECK(mended("--mesh dp=2,zp=2", 4) ==
          "--mesh dp=2,zp=2 names the axis 'zp', which is none of dp, pp, ep, cp, tp: try --mesh dp=2,pp=2");
    CHECK(mended("--mesh dp=0,tp=2", 2) ==
          "--mesh dp=0,tp=2 gives dp the extent 0, which is not positive: try --mesh tp=2");
    CHECK(mended("--mesh dp=-2", 2) == "--mesh dp=-2 gives dp the extent -2, which is not positive: try --mesh dp=2");
    CHECK(mended("--mesh dp2", 2) == "--mesh dp2 is not a list of AXIS=EXTENT: try --mesh dp=2");
    CHECK(mended("--mesh dp=2,", 2) == "--mesh dp=2, is not a list of AXIS=EXTENT: try --mesh dp=2");
    CHECK(mended("--mesh ,dp=2", 2) == "--mesh ,dp=2 is not a list of AXIS=EXTENT: try --mesh dp=2");
    CHECK(mended("--mesh dp=", 2) == "--mesh dp= is not a list of AXIS=EXTENT: try --mesh dp=2");
    CHECK(mended("--mesh", 2) == "--mesh needs a value, AXES: try --mesh dp=2");
    CHECK(mended("--mesh dp=4294967296,tp=4294967296", 2) ==
          "--mesh dp=4294967296,tp=4294967296 is a mesh of 9223372036854775807 ranks, and the run has 2: try --mesh "
          "tp=2");
    CHECK(mended("--mesh dp=99999999999999999999", 2).ends_with(": try --mesh dp=2"));
    // Of the meshes as near, one with which the rest works.
    CHECK(mended("--mesh dp=2,tp=2 --batch 6", 8) ==
          "--mesh dp=2,tp=2 is a mesh of 4 ranks, and the run has 8: try --mesh dp=2,tp=4");
    CHECK(mended("--mesh dp=a,bp=2,cp=2,ep=2,pp=2,tp=2,tp=3", 32).find("is not a list") != std::string::npos);
}

TEST_CASE("sizes that the mesh does not divide are refused with the nearest that works") {
    CHECK(mended("--layers 5 --mesh pp=2", 2) == "--layers 5 is not divisible by pp = 2: try --stages 3,2");
    CHECK(mended("--heads 6 --mesh tp=4 --hidden 96", 4) == "--heads 6 is not divisible by tp = 4: try --heads 8");
    CHECK(mended("--heads 6 --kv-heads 4") == "--kv-heads 4 does not divide --heads 6: try --kv-heads 3");
    CHECK(mended("--heads 12 --kv-heads 6 --mesh tp=4", 4) ==
          "--kv-heads 6 and tp = 4: neither divides the other: try --kv-heads 4");
    CHECK(options_of("--heads 12 --kv-heads 2 --mesh tp=4", 4).kv_heads == 2);
    CHECK(options_of("--heads 12 --kv-heads 3 --mesh tp=3", 3).kv_heads == 3);
    CHECK(mended("--hidden 100") == "--hidden 100 is not divisible by --heads 12: try --hidden 96");
    CHECK(mended("--hidden 36") ==
          "--hidden 36 over --heads 12 gives heads of 3, and rotary embedding turns pairs: try --hidden 48");
    CHECK(options_of("--hidden 36 --positions alibi").hidden == 36);
    CHECK(options_of("--hidden 36 --positions none").hidden == 36);
    CHECK(mended("--ffn 100 --mesh tp=3", 3) == "--ffn 100 is not divisible by tp = 3: try --ffn 99");
    CHECK(mended("--experts 6 --mesh ep=4", 4) == "--experts 6 is not divisible by ep = 4: try --experts 8");
    CHECK(options_of("--mesh ep=4", 4).experts == 0); // a dense model may use ep
    CHECK(mended("--experts 4 --top-k 5") == "--top-k 5 is more than --experts 4: try --top-k 4");
    CHECK(error_of("--top-k 5") == "--top-k is of experts, and the model has none: leave it out");
    CHECK(mended("--experts 4 --moe-every 5") ==
          "--moe-every 5 is more than --layers 4, so that no layer has experts: try --moe-every 4");
    CHECK(mended("--experts 4 --dense-layers 4") ==
          "--dense-layers 4 of --layers 4 leaves no layer with experts: try --dense-layers 3");
    CHECK(mended("--experts 4 --expert-ffn 25 --mesh tp=2", 2) ==
          "--expert-ffn 25 is not divisible by tp = 2: try --expert-ffn 26");
    CHECK(mended("--experts 4 --expert-ffn 27 --shared-experts 1 --mesh tp=2,dp=2 --expert-mesh ep=4", 4) ==
          "--shared-experts 1 of --expert-ffn 27 are not divisible by tp = 2: try --expert-ffn 28");
    CHECK(mended("--experts 4 --mesh tp=2,dp=2 --expert-mesh ep=8", 4) ==
          "--expert-mesh ep=8 is a mesh of 8 ranks, and dp x cp x tp of --mesh tp=2,dp=2 has 4: try --expert-mesh "
          "ep=4,etp=1");
    CHECK(mended("--experts 4 --mesh tp=2,dp=2 --expert-mesh edp=2,ep=4", 4) ==
          "--expert-mesh edp=2,ep=4 is a mesh of 8 ranks, and dp x cp x tp of --mesh tp=2,dp=2 has 4: try "
          "--expert-mesh ep=4,etp=1");
    CHECK(mended("--experts 4 --mesh tp=4 --expert-mesh etp=4,eq=1", 4) ==
          "--expert-mesh etp=4,eq=1 is not a list of AXIS=EXTENT, of the axes edp, ep and etp: try --expert-mesh "
          "ep=1,etp=4");
    CHECK(mended("--experts 4 --mesh tp=4 --expert-mesh ep=2,ep=2", 4) ==
          "--expert-mesh ep=2,ep=2 names the axis ep twice: try --expert-mesh ep=2,etp=1");
    CHECK(mended("--experts 6 --mesh tp=4 --expert-mesh ep=4", 4) ==
          "--experts 6 is not divisible by ep = 4: try --experts 8");
    CHECK(mended("--experts 4 --expert-ffn 26 --mesh dp=4 --expert-mesh etp=4", 4) ==
          "--expert-ffn 26 is not divisible by etp = 4: try --expert-ffn 28");
    CHECK(mended("--experts 6 --mesh dp=2,pp=2,cp=3 --layers 4 --expert-mesh ep=2", 12) ==
          "--expert-mesh ep=2 does not fit --mesh dp=2,pp=2,cp=3: ep = 2 does not divide the ranks that follow each "
          "other, of which there are dp x cp x tp = 2 x 3 x 1 = 6: make the axes that both views have the outermost "
          "ones: try --expert-mesh ep=3,etp=1");
    CHECK(options_of("--experts 6 --mesh pp=2,dp=2,cp=3 --layers 4 --expert-mesh ep=2", 12).experts_on().ep == 2);
    CHECK(error_of("--mesh tp=2 --expert-mesh ep=2", 2) ==
          "--expert-mesh ep=2 is of experts, and the model has none: leave it out");
    CHECK(error_of("--experts 4 --mesh ep=2,tp=2 --expert-mesh ep=4", 4) ==
          "--expert-mesh ep=4 and ep = 2 of --mesh both say where experts are: leave one of them out");
    CHECK(mended("--experts 8 --expert-groups 3") ==
          "--expert-groups 3 does not divide --experts 8: try --expert-groups 4");
    CHECK(mended("--experts 8 --expert-groups 4 --top-groups 5") ==
          "--top-groups 5 is more than --expert-groups 4: try --top-groups 4");
    CHECK(mended("--experts 8 --expert-groups 4 --top-groups 1 --top-k 3") ==
          "--top-groups 1 of --expert-groups 4 have fewer experts than --top-k 3: try --top-groups 2");
    CHECK(error_of("--experts 4 --bias-step proportional") ==
          "--bias-step says nothing without --balance bias: leave it out");
    CHECK(mended("--mtp-coef 0.1") == "--mtp-coef 0.1 says nothing without --mtp: try --mtp-coef 0.3");
    CHECK(error_of("--mtp 1 --mesh tp=4 --tp-kind 2d --layers 2 --hidden 48 --heads 4", 4) ==
          "--tp-kind 2d does not predict more than one token: use one dimension: try --tp-kind 1d");
    CHECK(error_of("--router sigmoid") == "--router is of experts, and the model has none: leave it out");
    CHECK(error_of("--experts 4 --drop score") == "--drop says nothing without --capacity: leave it out");
    CHECK(error_of("--experts 4 --bias-rate 0.1") == "--bias-rate says nothing without --balance bias: leave it out");
    CHECK(error_of("--experts 4 --router hash --balance aux") ==
          "--balance aux is for tokens that choose their experts, not for --router hash: leave it out");
    CHECK(mended("--batch 10 --micro-batches 4 --mesh dp=2", 2) ==
          "--batch 10 is not divisible by dp x micro-batches = 2 x 4 = 8: try --batch 8");
    CHECK(mended("--batch 8 --micro-batches 65535") ==
          "--batch 8 is not divisible by dp x micro-batches = 1 x 65535 = 65535: try --batch 65535"); // at once
    CHECK(mended("--batch 5 --mesh dp=2,ep=3", 6) ==
          "--batch 5 is not divisible by dp x ep x micro-batches = 2 x 3 x 1 = 6: try --batch 6");
    CHECK(options_of("--seq 1021 --zigzag --sequence-parallel on --mesh cp=4,tp=2", 8).strategy.seq ==
          1021); // is padded
    CHECK(mended("--layers 6 --schedule zb-v --mesh pp=2", 2) ==
          "--layers 6 is not divisible by pp x chunks = 2 x 2 = 4: try --stages 2,2,1,1");
    CHECK(options_of("--seq 23 --schedule terapipe --slices 4 --zigzag --mesh cp=2", 2).strategy.seq == 23);
    // Where one flag alone cannot mend it, several.
    CHECK(mended("--mesh tp=5", 5) == "--heads 12 is not divisible by tp = 5: try --heads 10 --hidden 200 --ffn 575");
    CHECK(mended("--layers 65536 --hidden 1048560 --ffn 4194304") ==
          "--layers 65536 makes a model of more than 4e12 parameters: try --layers 4 --ffn 576 --hidden 192");
    CHECK(mended("--batch 16777216 --seq 16777216").find(" is more than 68719476736 tokens in a step: try --batch ") !=
          std::string::npos);
}

TEST_CASE("what ZeRO cannot shard or keep is refused with the nearest that works") {
    CHECK(mended("--zero-ranks 2", 4) == "--zero-ranks 2 shards nothing with --zero 0: try --zero 1");
    CHECK(mended("--zero 3 --zero-ranks 3", 8) == "--zero-ranks 3 does not divide dp = 8: try --zero-ranks 4");
    CHECK(mended("--zero 2 --zero-ranks 4 --mesh tp=2,dp=2", 4) ==
          "--zero-ranks 4 does not divide dp = 2: try --zero-ranks 2");
    CHECK(mended("--zero 1 --zero-keep on", 2) ==
          "--zero-keep on keeps gathered parameters, and --zero 1 gathers none: try --zero 3");
    CHECK(mended("--zero-accumulate on", 2) == "--zero-accumulate on is a choice of --zero 2 and 3: with --zero 0 "
                                               "whole gradients are accumulated anyway: try --zero 2");
    CHECK(mended("--zero-accumulate on --zero-keep on --zero-ranks 2 --zero 1", 2).ends_with(": try --zero 3"));
    CHECK(mended("--mesh dp=2 --zero 1 --zero-ranks 4", 8) ==
          "--mesh dp=2 is a mesh of 2 ranks, and the run has 8: try --mesh dp=8");
    CHECK(options_of("--zero 3 --zero-ranks 2 --zero-keep on --zero-accumulate on", 4).strategy.sharding.ranks == 2);
}

TEST_CASE("gradients that cannot be released are refused with what works") {
    CHECK(mended("--gradient-release") == "--gradient-release updates weights before the norm of all gradients, which "
                                          "clip limits, is known: try --clip 0");
    CHECK(options_of("--gradient-release --clip 0").strategy.sharding.releases_gradients);
    CHECK(mended("--gradient-release --clip 0 --schedule dualpipe --mesh pp=2 --micro-batches 2", 2) ==
          "--schedule dualpipe reduces gradients at times of its own: they cannot be released: try --schedule 1f1b");
    CHECK(mended("--gradient-release --schedule pipedream --mesh pp=2 --micro-batches 2", 2)
              .ends_with("which clip limits, is not known: try --clip 0 --schedule 1f1b"));
    CHECK(
        options_of("--gradient-release --clip 0 --schedule zb-v --mesh pp=2", 2).strategy.sharding.releases_gradients);
}

TEST_CASE("a schedule that is not defined for the mesh is refused with what is") {
    CHECK(mended("--schedule 1f1b --chunks 2") ==
          "--schedule 1f1b is defined for 1 chunk a rank, not 2: try --schedule interleaved-1f1b");
    CHECK(mended("--slices 2") == "--schedule 1f1b is defined for 1 slice a sequence, not 2: try --schedule terapipe");
    CHECK(mended("--schedule hanayo --chunks 3 --mesh pp=2", 2) ==
          "--schedule hanayo is defined for 2, 4, 6, ... chunks a rank, not 3: try --chunks 4 --layers 8");
    CHECK(mended("--schedule gpipe --slices 2") ==
          "--schedule gpipe is defined for 1 slice a sequence, not 2: try --slices 1");
    CHECK(mended("--schedule dualpipe --mesh pp=3", 3)
              .starts_with("--schedule dualpipe is defined for an even number of ranks, not 3: try --schedule 1f1b"));
    CHECK(options_of("--schedule pipedream --mesh pp=2", 2).clip == 1); // one update: as 1F1B
    CHECK(
        mended("--schedule pipedream --micro-batches 2 --mesh pp=2", 2) ==
        "--schedule pipedream updates each stage on its own, so that the norm of all gradients, which clip limits, is "
        "not known: try --clip 0");
    CHECK(mended("--schedule pipedream-2bw --micro-batches 4 --clip 0 --tie-embeddings --mesh pp=2", 2) ==
          "--schedule pipedream-2bw updates each stage on its own: its two ends cannot share an embedding, which is "
          "tied: try --schedule 1f1b");
    CHECK(options_of("--schedule zb-v --mesh pp=2", 2).stage_count() == 4);
    CHECK(options_of("--schedule interleaved-1f1b --chunks 2 --mesh pp=2", 2).stage_count() == 4);
}

TEST_CASE("recomputation that is none is refused with what is") {
    CHECK(mended("--recompute some") ==
          "--recompute some is none of none, selective, full, auto: try --recompute none");
    CHECK(mended("--dtype") == "--dtype needs a value, f64|f32|bf16: try --dtype f32");
    CHECK(mended("--recompute") == "--recompute needs a value, none|selective|full|auto: try --recompute none");
    CHECK(mended("--recompute selective --recompute-parts atention,norms") ==
          "--recompute-parts atention,norms is not a list of inputs, norms, activations, attention, rows: try "
          "--recompute-parts attention");
    CHECK(mended("--recompute full --recompute-parts norms") ==
          "--recompute-parts belongs to --recompute selective, not to full: try --recompute selective");
    CHECK(mended("--recompute-every 2") ==
          "--recompute-every 2 belongs to --recompute selective or full, not to none: try --recompute full");
    CHECK(mended("--recompute full --recompute-every 0") ==
          "--recompute-every 0 is not between 1 and 65536: try --recompute-every 1");
    CHECK(mended("--recompute auto --stages balanced") == "--recompute auto needs the layers of each stage, which "
                                                          "--stages balanced measures later: try --recompute full");
    for (auto const* const size : {"8GB", "-3GiB", "0", "GiB", "1e99", "nan"})
        CHECK(mended("--memory-limit " + std::string(size)) ==
              "--memory-limit " + std::string(size) +
                  " is not a size such as 8GiB, 500MiB or 1000000000: try --memory-limit 8GiB");
    CHECK(options_of("--recompute auto --memory-limit 1.5GiB").memory_limit == "1.5GiB");
}

TEST_CASE("weights of the losses of routers are those of --model, unless flags give others") {
    test::Scratch const scratch;
    auto const model = scratch / "config.json";
    test::write_text(model, R"({"model_type": "mixtral", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 256,
        "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 48, "num_local_experts": 4,
        "num_experts_per_tok": 2, "router_aux_loss_coef": 0.25, "eos_token_id": 2})");
    auto const with_model = [&](std::string const& flags) { return options_of("--model " + model.string() + flags); };
    auto const coefficients = [](Options const& o) { return std::pair(o.aux_coef, o.z_coef); };
    CHECK(coefficients(with_model("")) == std::pair(0.25, 0.0));
    CHECK(coefficients(with_model(" --aux-coef 0.01 --z-coef 0.5")) == std::pair(0.01, 0.5)); // as without --model
    CHECK(coefficients(options_of("--experts 4")) == std::pair(0.01, 0.001));
    auto const said = lines_of_model(with_model(" --z-coef 0.5"), nullptr);
    REQUIRE(said.size() == 1);
    CHECK(said[0].starts_with("losses of routers: balance times 0.25 (--aux-coef), z times 0.5 (--z-coef)"));
    CHECK(lines_of_model(options_of("--experts 4"), nullptr).empty());
}

TEST_CASE("layers of predictors that a file names and the run has not are passed over in the weights") {
    test::Scratch const scratch;
    auto const model = scratch / "config.json";
    test::write_text(model, R"({"model_type": "deepseek_v3", "hidden_size": 32, "num_hidden_layers": 2,
        "num_nextn_predict_layers": 2, "vocab_size": 256, "num_attention_heads": 4, "intermediate_size": 48,
        "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1})");
    auto const starts = [&](std::string const& flags) {
        return passed_over(options_of("--model " + model.string() + flags));
    };
    CHECK(starts("") == Words{"model.layers.2.", "model.layers.3."});
    CHECK(starts(" --mtp 1") == Words{"model.layers.3."});
    CHECK(starts(" --mtp 2").empty());
    CHECK(passed_over(options_of("")).empty());
}

TEST_CASE("layers of stages that are not those of the model are refused with a deal that is") {
    CHECK(options_of("--stages 1,3 --mesh pp=2", 2).stages == "1,3");
    CHECK(options_of("--stages balanced --layers 5 --mesh pp=2", 2).stages == "balanced");
    CHECK(options_of("--stages 0,5 --layers 5 --mesh pp=2", 2).layers == 5); // needs not be divisible then
    CHECK(mended("--stages 1,2 --mesh pp=2", 2) ==
          "--stages 1,2 is of 3 layers, and the model has 4: try --stages 2,2");
    CHECK(mended("--stages 4 --layers 5 --mesh pp=2", 2) ==
          "--stages 4 is for 1 stages, and the pipeline has 2: try --stages 3,2");
    CHECK(mended("--stages 2,x --mesh pp=2", 2) ==
          "--stages 2,x is neither a list of numbers nor balanced: try --stages 2,2");
    CHECK(mended("--stages 2,-1,3 --mesh pp=2", 2) ==
          "--stages 2,-1,3 is neither a list of numbers nor balanced: try --stages 2,2");
}

TEST_CASE("a schedule in a file is refused where it does not fit the rest of the command line") {
    test::Scratch const scratch;
    auto const path = (scratch / "own.txt").string();
    auto const refusal = [&](std::string const& line) {
        return check_files(options_of("--schedule-file " + path + " " + line, 2)).value_or("");
    };
    auto const flag = "--schedule-file " + path;
    auto const own = [&](pentad::pipeline::GeneratorOptions const& options, std::string const& name) {
        test::write_text(path, pentad::pipeline::to_string(pentad::pipeline::generate(name, options)));
    };
    CHECK(refusal("--mesh pp=2").starts_with("--schedule-file: cannot read "));
    own({.ranks = 2, .micro_batches = 4}, "zb-h1");
    CHECK(refusal("--mesh pp=2 --micro-batches 4").empty());
    CHECK(refusal("--mesh pp=2") == flag + " is for 4 micro-batches, and the run has 1: try --micro-batches 4");
    CHECK(refusal("--mesh dp=2 --micro-batches 4") == flag + " is for 2 ranks, and the mesh has pp = 1");
    CHECK(refusal("--mesh pp=2 --micro-batches 4 --layers 5").find("say how many each has with --stages") !=
          std::string::npos);
    CHECK(refusal("--mesh pp=2 --micro-batches 4 --layers 5 --stages 2,2").ends_with(": try --stages 3,2"));
    own({.ranks = 2, .micro_batches = 4, .slices = 5}, "terapipe");
    CHECK(refusal("--mesh pp=2 --micro-batches 4 --seq 12").empty());
    own({.ranks = 2, .micro_batches = 4}, "pipedream");
    CHECK(refusal("--mesh pp=2 --micro-batches 4").ends_with("is not known: try --clip 0"));
    CHECK(refusal("--mesh pp=2 --micro-batches 4 --clip 0 --tie-embeddings")
              .ends_with("cannot share an embedding, which is tied"));
    own({.ranks = 2, .micro_batches = 4}, "dualpipe");
    CHECK(refusal("--mesh pp=2 --micro-batches 4 --clip 0 --gradient-release") ==
          flag + " reduces gradients at times of its own: they cannot be released: leave out --gradient-release");
    own({.ranks = 2, .micro_batches = 4, .recompute = true}, "1f1b");
    CHECK(refusal("--mesh pp=2 --micro-batches 4 --recompute full").ends_with("leave out --recompute"));
    auto const evaluation =
        pentad::pipeline::forwards_of(pentad::pipeline::generate("1f1b", {.ranks = 2, .micro_batches = 4}), 4);
    test::write_text(path, pentad::pipeline::to_string(evaluation));
    CHECK(refusal("--mesh pp=2 --micro-batches 4") == flag + " has no backward passes: it cannot train");
    auto broken = pentad::pipeline::generate("1f1b", {.ranks = 2, .micro_batches = 4});
    std::swap(broken.instructions[1].front(), broken.instructions[1].back());
    test::write_text(path, pentad::pipeline::to_string(broken));
    CHECK(refusal("--mesh pp=2 --micro-batches 4").starts_with(flag + ": rank 1: "));
    test::write_text(path, "schedule: what\n");
    CHECK(refusal("--mesh pp=2 --micro-batches 4").starts_with("--schedule-file: "));
    std::string const whole = " says all of the schedule: leave out --schedule, --chunks and --slices";
    // Of a file that would be refused, nothing is suggested.
    CHECK(error_of("--schedule gpipe --schedule-file own.txt") == "--schedule-file own.txt" + whole);
    test::write_text(path,
                     pentad::pipeline::to_string(pentad::pipeline::generate("1f1b", {.ranks = 1, .micro_batches = 1})));
    CHECK(error_of("--schedule gpipe " + flag) == flag + whole + ": try " + flag);
}

TEST_CASE("whatever is asked for works, or works as suggested") {
    std::mt19937 draw(2026);
    auto const pick = [&](std::vector<int> const& values) { return std::to_string(values[draw() % values.size()]); };
    int refused = 0;
    for (int trial = 0; trial < 1000; ++trial) {
        int const ranks = 1 + static_cast<int>(draw() % 32);
        std::string line;
        auto const add = [&](std::string const& flag, std::string const& value) {
            if (draw() % 3 == 0) line += flag + " " + value + " ";
        };
        std::string mesh;
        for (auto const* axis : {"tp", "dp", "cp", "ep", "pp"})
            if (draw() % 2 == 0) mesh += (mesh.empty() ? "" : ",") + std::string(axis) + "=" + pick({1, 2, 2, 3, 4, 5});
        if (!mesh.empty()) line += "--mesh " + mesh + " ";
        add("--layers", pick({0, 1, 2, 3, 5, 8}));
        add("--hidden", pick({1, 31, 32, 48, 96, 100}));
        add("--heads", pick({-1, 1, 3, 4, 6, 8, 1 << 20}));
        add("--kv-heads", pick({0, 1, 2, 3, 4, 7}));
        add("--ffn", pick({1, 7, 64, 100}));
        if (draw() % 3 == 0) {
            line += "--experts " + pick({1, 3, 4, 6, 8}) + " ";
            add("--top-k", pick({1, 2, 3, 9}));
            add("--moe-every", pick({1, 2, 3, 10}));
        }
        add("--batch", pick({1, 3, 8, 12, 100}));
        add("--micro-batches", pick({1, 2, 3, 4, 7}));
        add("--seq", pick({1, 7, 16, 20, 24, 100}));
        constexpr std::array kinds{"1d", "2d", "2.5d", "3d"};
        if (draw() % 2 == 0) add("--tp-kind", kinds[draw() % kinds.size()]);
        add("--sequence-parallel", draw() % 2 == 0 ? "on" : "off");
        auto const& generators = pentad::pipeline::generators;
        add("--schedule", std::string(generators[draw() % generators.size()].name));
        add("--chunks", pick({0, 1, 2, 3, 4}));
        if (draw() % 3 == 0) add("--slices", pick({1, 2, 4}));
        if (draw() % 3 == 0) add("--stages", draw() % 2 == 0 ? "2,2" : "balanced");
        if (draw() % 3 == 0) {
            constexpr std::array words{"none", "selective", "full", "auto", "all"};
            add("--recompute", words[draw() % words.size()]);
            add("--recompute-every", pick({0, 1, 2}));
            add("--recompute-parts", draw() % 2 == 0 ? "norms" : "norms,");
            add("--memory-limit", draw() % 2 == 0 ? "1GiB" : "1GB");
        }
        if (draw() % 3 == 0) line += "--zigzag ";
        if (draw() % 2 == 0) {
            constexpr std::array words{"ring", "allgather", "ulysses", "two-level", "double-ring", "auto"};
            add("--cp", words[draw() % words.size()]);
            add("--cp-heads", pick({0, 1, 2, 3, 4}));
            add("--cp-inner", pick({0, 1, 2, 3, 4}));
        }
        add("--zero", pick({0, 1, 2, 3, 4}));
        if (draw() % 2 == 0) add("--zero-ranks", pick({0, 1, 2, 3, 4, 8}));
        if (draw() % 2 == 0) add("--zero-keep", draw() % 2 == 0 ? "on" : "off");
        if (draw() % 2 == 0) add("--zero-accumulate", draw() % 2 == 0 ? "on" : "off");
        if (draw() % 8 == 0) line += "--gradient-release ";
        add("--clip", pick({0, 1}));
        CAPTURE(line);
        CAPTURE(ranks);
        auto const result = parse_line(line, ranks);
        if (!result.options) {
            ++refused;
            mended(line, ranks);
        } else {
            CHECK(!check(*result.options, ranks));
        }
    }
    CHECK(refused > 400);
}

TEST_CASE("data that cannot give a window are refused by name") {
    test::Scratch const scratch;
    auto const path = (scratch / "a.txt").string();
    auto const refusal = [&](std::string const& line, int ranks = 1) {
        return check_files(options_of(line, ranks)).value_or("");
    };
    CHECK(refusal("--data " + path) ==
          "--data " + path + ": cannot read " + path +
              ": No such file or directory; without --data, a text of the program's own is used");
    CHECK(refusal("--data " + scratch.path().string()) ==
          "--data " + scratch.path().string() + ": cannot read " + scratch.path().string() +
              ": it is a folder; without --data, a text of the program's own is used");
    test::write_text(path, "");
    CHECK(refusal("--data " + path) == "--data " + path + " is empty, and a text of at least 193 bytes is needed");
    test::write_text(path, "x");
    CHECK(refusal("--data " + path) == "--data " + path + " has 1 bytes, and --seq 192 needs 193; no sequence fits it");
    test::write_text(path, std::string(24, 'x'));
    CHECK(refusal("--seq 24 --data " + path) ==
          "--data " + path + " has 24 bytes, and --seq 24 needs 25: try --seq 23");
    CHECK(refusal("--seq 24 --mesh cp=4 --data " + path, 4) ==
          "--data " + path + " has 24 bytes, and --seq 24 needs 25: try --seq 23");
    CHECK(refusal("--seq 20 --mesh cp=4 --data " + path, 4) == "");
    CHECK(refusal("--seq 65536") ==
          "the program's own text has 10597 bytes, and --seq 65536 needs 65537: try --seq 10596");
}

TEST_CASE("output that cannot be written is refused by name, and finding out leaves nothing behind") {
    test::Scratch const scratch;
    auto const folder = scratch.path().string();
    auto const refusal = [&](std::string const& line) { return check_files(options_of(line)).value_or(""); };
    CHECK(refusal("--log " + folder + "/log --trace " + folder + "/trace --dump-weights " + folder) == "");
    CHECK(std::filesystem::is_empty(scratch.path()));
    CHECK(refusal("--log /dev/full --trace /dev/null") == "");
    CHECK(refusal("--log " + folder) ==
          "--log " + folder + ": " + folder + " is a folder, and a file is needed: try --log " + folder + "/log");
    CHECK(refusal("--log " + folder + "/no/log") == "--log " + folder + "/no/log: the folder " + folder +
                                                        "/no cannot be used: No such file or directory: try --log " +
                                                        folder + "/log");
    CHECK(refusal("--trace " + folder + "/no/t") == "--trace " + folder + "/no/t: the folder " + folder +
                                                        "/no cannot be used: No such file or directory: try --trace " +
                                                        folder + "/t");
    CHECK(refusal("--dump-weights " + folder + "/no") ==
          "--dump-weights " + folder + "/no: the folder " + folder +
              "/no cannot be used: No such file or directory: try --dump-weights " + folder);
    test::write_text(scratch / "file", "text");
    CHECK(refusal("--dump-weights " + folder + "/file") ==
          "--dump-weights " + folder + "/file: " + folder + "/file is not a folder: try --dump-weights " + folder);
    CHECK(refusal("--log " + folder + "/file/log").ends_with(": try --log " + folder + "/log"));
    CHECK(refusal("--log no/such/folder/log").ends_with(": try --log ./log"));
    CHECK(refusal("--log " + folder + "/file") == "");
    CHECK(test::text_of(scratch / "file") == "text");
    CHECK(refusal("--log " + folder + "/x --trace " + folder + "/x") ==
          "--trace " + folder + "/x and --log " + folder + "/x are the same file: give each a file of its own");
    CHECK(refusal("--dump-weights /proc") == "--dump-weights /proc: no file can be made in the folder /proc: No such "
                                             "file or directory: try --dump-weights .");
}

TEST_CASE("nothing is suggested that the files would refuse, or flags that are to be left out") {
    auto const bare = parse_words({"--batch", "x", "--seq", "65536"}, 1);
    CHECK(bare.suggestion == ": try --batch 24");
    CHECK(bare.sentence() == "--batch x is not a whole number"); // the program's own text is shorter
    CHECK(parse_words({"--batch", "x"}, 1).sentence() == "--batch x is not a whole number: try --batch 24");
    auto const twice = parse_words({"--seed", "1", "--seed", "1", "--chunks", "0", "--schedule-file", "s"}, 1);
    CHECK(twice.error == "--seed is given twice");
    CHECK(twice.suggestion.empty());
}

TEST_CASE("train_lm refuses the sizes that the planner refuses, which runs the layers dry, and no others") {
    std::mt19937 random(5);
    auto const draw = [&](std::initializer_list<int> from) { return from.begin()[random() % from.size()]; };
    int accepted = 0, refused = 0;
    for (int i = 0; i < 600; ++i) {
        Options o;
        bool const has_experts = draw({0, 1}) == 1;
        o.mesh = {{"dp", draw({1, 1, 2, 3})},
                  {"pp", draw({1, 1, 2})},
                  {"ep", has_experts ? draw({1, 2, 3}) : 1},
                  {"cp", draw({1, 1, 2})},
                  {"tp", draw({1, 2, 3, 4})}};
        int ranks = 1;
        for (auto const& axis : o.mesh) ranks *= static_cast<int>(axis.extent);
        o.heads = draw({1, 2, 3, 4, 6, 8, 12});
        o.kv_heads = draw({1, 2, 3, 4, 6});
        o.kv_heads_given = o.batch_given = true;
        o.hidden = o.heads * draw({2, 4});
        o.ffn = draw({8, 9, 12, 14});
        o.experts = has_experts ? draw({2, 3, 4, 6}) : 0;
        if (int const top_k = draw({1, 2}); has_experts) o.top_k = top_k;
        o.layers = 2;
        o.strategy.micro_batches = draw({1, 2});
        o.batch = o.batch_divisor();
        o.strategy.seq = draw({1, 12, 17, 24});
        o.zigzag = draw({0, 1}) == 1;
        o.strategy.block.sequence_parallel = draw({0, 1}) == 1;
        auto const own = refusal(o, ranks);
        std::string planned;
        try {
            auto const model = pentad::model::decoder({.layers = 2,
                                                       .hidden = static_cast<std::size_t>(o.hidden),
                                                       .heads = static_cast<std::size_t>(o.heads),
                                                       .kv_heads = static_cast<std::size_t>(o.kv_heads),
                                                       .ffn = static_cast<std::size_t>(o.ffn),
                                                       .vocab = 256,
                                                       .experts = static_cast<std::size_t>(o.experts),
                                                       .top_k = static_cast<std::size_t>(o.top_k)});
            planned = pentad::planner::misfit(
                pentad::train::planned_model(model),
                {.dp = o.extent("dp"),
                 .pp = o.extent("pp"),
                 .ep = o.extent("ep"),
                 .cp = o.extent("cp"),
                 .tp = o.extent("tp"),
                 .batch = o.batch,
                 .seq = o.strategy.seq,
                 .block = {.sequence_parallel = o.strategy.block.sequence_parallel, .zigzag = o.zigzag},
                 .element = pentad::planner::Element::f32});
        } catch (std::invalid_argument const& error) { // of the description
            planned = error.what();
        }
        CHECK_MESSAGE(own.empty() == planned.empty(), own, " | ", planned);
        (planned.empty() ? accepted : refused) += 1;
    }
    MESSAGE(accepted, " accepted, ", refused, " refused");
    CHECK(accepted > 50);
    CHECK(refused > 50);
}

TEST_CASE("--order is as given, or found") {
    CHECK(options_of("--mesh tp=2", 2).order == "as-given");
    CHECK(options_of("--mesh tp=2 --order auto", 2).order == "auto");
    CHECK(error_of("--order aut") == "--order aut is none of as-given, auto: try --order auto");
}

TEST_CASE("tensor parallelism on a grid: tp is one, and the model and the batch are divided by its sides") {
    auto const kind = [](std::string const& line, int ranks) {
        return options_of(line, ranks).strategy.block.tensor_kind;
    };
    CHECK(kind("--mesh tp=4 --tp-kind 2d", 4) == pentad::model::TensorKind::two_d);
    CHECK(kind("--mesh tp=8 --tp-kind 3d", 8) == pentad::model::TensorKind::three_d);
    CHECK(options_of("--mesh dp=2,tp=8 --tp-kind 2.5d", 16).batch == 24); // follows the mesh: a multiple of 8
    CHECK(error_of("--mesh tp=4 --tp-kind 3d", 4) ==
          "tp = 4 is no 3d grid: that has rows x depth x columns, all above 1, such as 8 = 2 x 2 x 2 ranks: try "
          "--tp-kind 1d");
    CHECK(error_of("--mesh tp=4 --tp-kind 4d", 4) == "--tp-kind 4d is none of 1d, 2d, 2.5d, 3d: try --tp-kind 1d");
    CHECK(error_of("--mesh tp=4 --tp-kind 2d --heads 3 --hidden 48", 4) ==
          "--heads 3 is not divisible by 2 of --tp-kind 2d and tp = 4: try --heads 4");
    CHECK(error_of("--mesh tp=4 --tp-kind 2d --kv-heads 1", 4) ==
          "--kv-heads 1 is not divisible by 2 of --tp-kind 2d and tp = 4: try --kv-heads 2");
    CHECK(error_of("--mesh tp=4 --tp-kind 2d --batch 3", 4) ==
          "--batch 3 is not divisible by dp x the grid of tp x micro-batches = 1 x 2 x 1 = 2: try --batch 4");
    CHECK(error_of("--mesh tp=4 --tp-kind 2d --experts 4", 4) ==
          "--tp-kind 2d is of attention and MLPs, not of experts: try --tp-kind 1d");
    CHECK(error_of("--mesh tp=4 --tp-kind 2d --mixers m,a", 4) ==
          "--tp-kind 2d is of attention and MLPs, not of Mamba-2: try --tp-kind 1d");
    CHECK(error_of("--mesh tp=4 --tp-kind 2d --sequence-parallel on", 4) ==
          "--tp-kind 2d shards tokens anyway: sequence parallelism is of one dimension: try --sequence-parallel off");
    CHECK(error_of("--mesh tp=4 --tp-kind 2d --pack 10", 4) ==
          "--pack and --tp-kind 2d: documents are packed with --tp-kind 1d alone");
}

TEST_CASE("strategies of attention divide cp, and the heads of a rank of tp") {
    using enum pentad::ContextStrategy;
    using Split = pentad::model::ContextSplit;
    auto const split = [](std::string const& line, int ranks = 4) { return options_of(line, ranks).context_split(); };
    CHECK(split("--mesh cp=4,tp=2 --heads 8 --cp two-level --cp-heads 2", 8) == Split{heads_ring, 2});
    CHECK(split("--mesh cp=8 --heads 8 --hidden 64 --cp two-level --cp-heads 2 --cp-inner 4", 8) ==
          Split{ring_heads, 4});
    CHECK(split("--mesh cp=4 --heads 8 --hidden 64 --cp ulysses") == Split{heads_ring, 4});
    CHECK(split("--mesh cp=4 --cp double-ring --cp-inner 2") == Split{double_ring, 2});
    CHECK(split("--mesh cp=4 --cp auto") == Split{ring});
    CHECK(options_of("--mesh cp=4 --cp double-ring", 4).context().follows_nodes()); // which the run finds
    CHECK(error_of("--mesh cp=4 --cp ulysses --heads 6 --hidden 48", 4) ==
          "--heads 6 over tp = 1 gives 6, which are not divisible by the 4 ranks of cp that exchange heads: try "
          "--heads 8");
    CHECK(error_of("--mesh cp=4 --cp two-level --cp-inner 4 --heads 6 --hidden 48", 4) ==
          "--heads 6 over tp = 1 gives 6, which are not divisible by the 4 ranks of cp that exchange heads: try "
          "--heads 8");
    CHECK(error_of("--mesh cp=4 --cp-heads 2", 4) ==
          "--cp-heads 2 says nothing without --cp two-level: try --cp-heads 0");
    CHECK(error_of("--mesh cp=4 --cp two-level --cp-heads 3", 4) ==
          "--cp-heads 3 does not divide cp = 4: try --cp-heads 4");
    CHECK(error_of("--mesh cp=8 --cp two-level --cp-heads 3 --cp-inner 4 --heads 8", 8) ==
          "--cp-heads 3 does not divide cp = 8: try --cp-heads 4");
    CHECK(error_of("--mesh cp=4 --cp double-ring --cp-inner 3", 4) ==
          "--cp-inner 3 does not divide cp = 4: try --cp-inner 4");
}

TEST_CASE("local steps need groups to average, and one model wherever it is looked at") {
    auto const o = options_of("--mesh dp=4 --local-steps 8 --local-ranks 2 --outer-lr 0.7 --outer-momentum 0.9", 4);
    CHECK(o.strategy.local.steps == 8);
    CHECK(o.strategy.local.ranks == 2);
    CHECK(o.strategy.local.outer_learning_rate == 0.7);
    CHECK(o.strategy.local.outer_momentum == 0.9);
    CHECK(error_of("--local-steps 2") ==
          "--local-steps 2 with --local-ranks 1 and dp = 1: there is one group, with none to average with: try "
          "--local-steps 0");
    CHECK(error_of("--local-ranks 2", 2) == "--local-ranks 2 says nothing with --local-steps 0: try --local-ranks 1");
    CHECK(error_of("--outer-lr 0.7", 2) == "--outer-lr 0.7 says nothing without --local-steps: try --outer-lr 1");
    CHECK(error_of("--outer-momentum 0.9", 2) ==
          "--outer-momentum 0.9 says nothing without --local-steps: try --outer-momentum 0");
    CHECK(error_of("--local-steps 2 --local-ranks 3", 4) ==
          "--local-ranks 3 does not divide dp = 4: try --local-ranks 2");
    CHECK(error_of("--local-steps 4 --validate-every 6", 2) ==
          "--validate-every 6 is not divisible by --local-steps 4, between which there is no one model: try "
          "--validate-every 8");
    CHECK(error_of("--local-steps 2 --mesh dp=2,pp=2 --schedule pipedream --micro-batches 4 --clip 0", 4) ==
          "--schedule pipedream updates each stage on its own: ranks that train apart have no common step to average "
          "after: try --local-steps 0");
}

TEST_CASE("tokens that are none, text for another vocabulary, and learning rates that rise are refused") {
    CHECK(error_of("--tokens t --vocab 512 --ignore-token 600") ==
          "--ignore-token 600 is not in the vocabulary, which has 512 tokens, from 0 to 511: name the one that carries "
          "no loss, or leave it out");
    CHECK(error_of("--pack 256").ends_with(": name the one that ends documents, or leave it out"));
    CHECK(options_of("--tokens t --vocab 512 --ignore-token 511 --pack 0").pack == 0);
    CHECK(mended("--lr 1e-5 --min-lr 1e-4") ==
          "--min-lr 1e-04 is more than --lr 1e-05, and the learning rate falls from that to this: try --min-lr 1e-05");
    CHECK(options_of("--lr 1e-5 --min-lr 1e-5").min_lr == 1e-5);
}

TEST_CASE("a model of a file keeps its layers and its tokens: stages of unequal length, and no text") {
    test::Scratch const scratch;
    auto const config = (scratch / "config.json").string();
    auto const write = [&](int layers, int vocabulary) {
        test::write_text(config, R"({"model_type": "llama", "vocab_size": )" + std::to_string(vocabulary) +
                                     R"(, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, )" +
                                     R"("num_hidden_layers": )" + std::to_string(layers) + "}");
    };
    std::string const model = "--model " + config;
    write(24, 256);
    CHECK(mended(model + " --mesh pp=5", 5) ==
          model + ": --layers 24 is not divisible by pp = 5: try --stages 5,5,5,5,4");
    CHECK(options_of(model).vocab == 256);
    write(2, 256);
    CHECK(mended(model + " --mesh pp=5", 5) ==
          model + ": --layers 2 is less than the stages of the pipeline, pp = 5: try --mesh dp=5");
    write(2, 32000);
    CHECK(error_of(model) == model + ": its vocabulary has 32000 tokens, and those of text are its 256 bytes: give the "
                                     "model's own with --tokens FILE");
    CHECK(error_of(model + " --data text --sample 3").starts_with(model + ": its vocabulary has 32000 tokens, "));
    CHECK(options_of(model + " --tokens t").vocab == 32000);
}

TEST_CASE("--mesh auto takes what was planned, and suggests nothing where no mesh has room") {
    auto const planned = [](MeshPlanner const& planner) {
        constexpr std::array words{"train_lm", "--mesh", "auto", "--layers", "5"};
        return parse(static_cast<int>(words.size()), words.data(), 2, planner);
    };
    auto const found = planned([](Options const&) { return PlannedMesh{"pp=2", "", "2,3"}; });
    REQUIRE(found.options);
    CHECK(found.options->extent("pp") == 2);
    CHECK(found.options->stages == "2,3");
    auto const none = planned([](Options const&) -> PlannedMesh { throw NoRoom("no mesh fits"); });
    CHECK(none.error == "--mesh auto: no mesh fits");
    CHECK(none.suggestion.empty());
    auto const undivided = planned([](Options const&) -> PlannedMesh { throw std::invalid_argument("no mesh"); });
    CHECK(undivided.suggestion == ": try --mesh dp=2");
}
