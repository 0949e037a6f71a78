// What the page of schedules says beside the pictures and the numbers: an entry for each generator, in their order.
#pragma once

#include <pentad/pipeline/generators.hpp>

#include <algorithm>
#include <array>
#include <string_view>

namespace pentad_schedule {

/// p ranks, m micro-batches, v chunks, K slices; F forward, D and W the parts of a backward B = D + W on one stage.
struct Description {
    std::string_view name; ///< the generator's
    std::string_view title;
    std::string_view source;
    std::string_view wait;   ///< closed form of what the rank with the longest span waits in it
    std::string_view domain; ///< where that holds
    std::string_view text;   ///< what it does, and when to take it
};

inline constexpr std::array descriptions{
    Description{.name = "gpipe",
                .title = "GPipe",
                .source = "Huang et al. 2019, arXiv:1811.06965",
                .wait = "(p - 1)(F + B)",
                .domain = "always",
                .text = "All forwards, then all backwards. The simplest schedule, and the one with the most memory: "
                        "every rank holds all m micro-batches. Take it for few micro-batches, or with recomputation, "
                        "where what is held is only the stages' inputs."},
    Description{.name = "terapipe",
                .title = "TeraPipe",
                .source = "Li et al. 2021, arXiv:2102.07988",
                .wait = "(p - 1)(F + B) of a slice",
                .domain = "always",
                .text = "GPipe with each sequence cut into K slices: causal attention lets slice k go on to the next "
                        "stage before slice k + 1 is computed, and the bubble is (p - 1)/(Km + p - 1). Take it for "
                        "long sequences and batches too small for many micro-batches; later slices attend to more and "
                        "take longer, so cut them shorter."},
    Description{
        .name = "1f1b",
        .title = "1F1B",
        .source = "Narayanan et al. 2021, arXiv:2006.09503 (PipeDream-Flush); Fan et al. 2021, arXiv:2007.01045",
        .wait = "(p - 1)(F + B)",
        .domain = "always",
        .text = "After a warm-up of p - 1 - s forwards, stage s does one forward and one backward in turn. The "
                "bubble is GPipe's; what it bounds is memory: stage s holds p - s micro-batches at most, "
                "however many there are. The default: one message of each kind a micro-batch, nothing to tune."},
    Description{.name = "eager-1f1b",
                .title = "Eager 1F1B",
                .source = "Zhuang et al. 2022, arXiv:2211.05322",
                .wait = "(p - 1)(F + B)",
                .domain = "always",
                .text = "1F1B with twice the warm-up, so that a message has the time of a forward and a backward to "
                        "arrive. Take it where the network between stages is slow and there is memory for 2(p - s) - 1 "
                        "micro-batches on stage s."},
    Description{.name = "pipedream",
                .title = "PipeDream",
                .source = "Narayanan et al. 2019, arXiv:1806.03377",
                .wait = "(p - 1)(F + B) in a window",
                .domain = "always",
                .text = "1F1B with an optimizer step after every backward and no flush: asynchronous. Stage s computes "
                        "with weights that are p - 1 - s updates old and keeps a version for each micro-batch under "
                        "way, so that forward and backward see the same. The bubble is only at the ends of a window of "
                        "many updates. Take it where throughput counts more than the equality with serial training, "
                        "and p copies of the first stage's weights fit."},
    Description{.name = "pipedream-2bw",
                .title = "PipeDream-2BW",
                .source = "Narayanan et al. 2021, arXiv:2006.09503",
                .wait = "(p - 1)(F + B) in a window",
                .domain = "always",
                .text = "Asynchronous as PipeDream, with an update for every group of at least p micro-batches, whose "
                        "weights are one update old on all stages: two versions are enough, whatever p. Take it in "
                        "PipeDream's place where memory for weights is short."},
    Description{.name = "zb-h1",
                .title = "ZB-H1",
                .source = "Qi et al. 2023, arXiv:2401.10241",
                .wait = "(p - 1)(F + D - W)",
                .domain = "m >= p, W <= F",
                .text = "1F1B with the backward in two parts: the stage before waits only for the gradient of the "
                        "data, and the weight part, which nobody waits for, fills the end. A third of 1F1B's bubble at "
                        "F = D = W. The first choice after 1F1B: the same messages, and no rank holds more than 1F1B's "
                        "first."},
    Description{.name = "zb-h2",
                .title = "ZB-H2",
                .source = "Qi et al. 2023, arXiv:2401.10241",
                .wait = "(p - 1)(F + D - 2W)",
                .domain = "m >= 2p - 1, W <= F, W <= D",
                .text = "ZB-H1 with 2p - 1 micro-batches in flight on every rank: no bubble within a rank's own span "
                        "at F = D = W. (The ranks' spans are shifted against each other: what that costs shows where "
                        "the optimizer's step waits for all.) Take it where activations are small and the times of the "
                        "three parts are near each other."},
    Description{.name = "interleaved-1f1b",
                .title = "Interleaved 1F1B",
                .source = "Narayanan et al. 2021, arXiv:2104.04473",
                .wait = "(p - 1)(F + B) of a chunk",
                .domain = "m >= p",
                .text =
                    "Each rank has v chunks of the model, v times as small, dealt out in rounds: the bubble is (p "
                    "- 1)/(vm + p - 1), for v times as many messages and somewhat more activations than 1F1B. Take "
                    "it on a fast network, with as many chunks as the layers allow; m need not be a multiple of p."},
    Description{.name = "looped-bfs",
                .title = "Looped breadth-first",
                .source = "Lamy-Poirier 2022, arXiv:2211.05953",
                .wait = "(p - 1)(F + B) of a chunk",
                .domain = "m >= p",
                .text = "Interleaved as well, but all micro-batches go through one chunk before the next: it holds "
                        "everything, as GPipe does, and needs the parameters of one chunk at a time, twice a step. "
                        "Take it with ZeRO-3: fewest gathers of parameters and reductions of gradients, each beside "
                        "the compute of another chunk."},
    Description{.name = "zb-v",
                .title = "ZB-V",
                .source = "Qi et al. 2023, arXiv:2401.10241",
                .wait = "0",
                .domain = "F = D = W, m >= 2p - 1",
                .text = "Two chunks a rank, laid out as a V, so that the last stage is on the first rank and backward "
                        "starts where forward began. No bubble at F = D = W in the memory of 1F1B's first rank, on all "
                        "ranks alike. The best synchronous schedule where the three parts take about as long; with "
                        "unequal times look at the simulated bubble first."},
    Description{.name = "v-half",
                .title = "V-Half",
                .source = "Qi et al. 2024, arXiv:2405.15362",
                .wait = "7(p - 1)/2 units (p odd), 7p/2 - 2 (p even)",
                .domain = "F = D = W = 1, m >= p",
                .text = "A V of two chunks a rank in which a fixed pattern bounds how long activations live: about "
                        "half of 1F1B's memory and a bubble between ZB-V's and 1F1B's. Take it where activations are "
                        "what does not fit, before recomputation, which costs a forward."},
    Description{.name = "v-min",
                .title = "V-Min",
                .source = "Qi et al. 2024, arXiv:2405.15362",
                .wait = "4p - 5 units, 4p - 3 where 3 divides p",
                .domain = "F = D = W = 1, m >= p > 1",
                .text = "The same with a third of 1F1B's memory and about two thirds of its bubble. Take it where "
                        "V-Half does not fit. Where the three times differ its bubble can exceed 1F1B's: look at the "
                        "simulated one first."},
    Description{.name = "dualpipe-v",
                .title = "DualPipeV",
                .source = "DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe",
                .wait = "(p - 1)(F + D - W) of a chunk",
                .domain = "F = D = W, m >= 2p",
                .text = "DualPipe cut in half: both directions are halves of one V, so that there is one copy of the "
                        "parameters. Its steady state is pairs of a forward and a backward of the other chunk, which "
                        "hide each other's exchanges of tokens with experts. Take it for MoE models whose dispatch "
                        "takes about as long as the compute; without pairs ZB-V waits less."},
    Description{.name = "hanayo",
                .title = "Hanayo",
                .source = "Liu et al. 2023, arXiv:2308.15762",
                .wait = "(p - 1)(F + B) of a chunk",
                .domain = "F = B, p divides m",
                .text = "The model goes through the ranks and back in waves, two chunks each; where a wave turns, it "
                        "stays on its rank and sends nothing. Interleaved 1F1B's bubble for slightly fewer messages. "
                        "Take it where that counts."},
    Description{.name = "dualpipe",
                .title = "DualPipe",
                .source = "DeepSeek-AI 2024, arXiv:2412.19437",
                .wait = "(p/2 - 1)(F + D - W)",
                .domain = "F = D = W, m even, m >= 2p",
                .text =
                    "Micro-batches enter at both ends, so that each rank has a stage of either direction, two "
                    "copies of the parameters are kept, and their gradients summed. Made, as DualPipeV, for pairs of "
                    "a forward and a backward, which hide the exchanges of tokens with experts. Take it where "
                    "expert parallelism makes the second copy cheap."},
    Description{.name = "chimera",
                .title = "Chimera",
                .source = "Li and Hoefler 2021, arXiv:2107.06925",
                .wait = "(p - 2) F",
                .domain = "F = B, p divides m",
                .text = "Two 1F1B pipelines in opposite directions, each filling the other's bubbles, with two copies "
                        "of the parameters: about half of 1F1B's bubble in no more than its memory for activations, "
                        "spread more evenly. Take it for few micro-batches (m about p) and models whose parameters are "
                        "small beside their activations."},
};

static_assert(std::equal(descriptions.begin(), descriptions.end(), pentad::pipeline::generators.begin(),
                         pentad::pipeline::generators.end(),
                         [](auto const& one, auto const& other) { return one.name == other.name; }),
              "each generator has a description, in the order of the generators");

inline Description const* description_of(std::string_view name) {
    for (auto const& one : descriptions)
        if (one.name == name) return &one;
    return nullptr;
}

} // namespace pentad_schedule
