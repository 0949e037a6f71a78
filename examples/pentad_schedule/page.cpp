#include "page.hpp"

#include "descriptions.hpp"
#include "facts.hpp"

#include <pentad/io/atomic_file.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/search.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/report/chart_svg.hpp>
#include <pentad/report/pipeline_chart.hpp>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

namespace pentad_schedule {

namespace {

using namespace pentad;

constexpr std::string_view beginning =
    R"(# Pipeline schedules

Written by `pentad_schedule --docs docs`; a test holds that this page is what the program writes. Pictures and numbers come from the
generators, the validator and the simulator of `include/pentad/pipeline`, for p = 4 ranks, m = 8 micro-batches and F = D = W = 1 on
every stage. `pentad_schedule --schedule zb-v --stages 8 --micro-batches 16` draws any other: on the terminal, as SVG, for
ui.perfetto.dev, in times of your own, and with `--ran TRACE` beside what `train_lm --trace TRACE` has recorded.

## How to read it

A line of a picture is a rank, a box a compute: a forward (F), a backward (B), or its parts for the data (D) and for the weights (W);
the number is the micro-batch. Where a rank has several stages of the model (chunks), darker is later. What is white is waiting.

- **Bubble**: 1 - work / (p x span), the span being the longest time of a rank from its first compute to the end of its last. The
  second one is for F = 10, D = 11, W = 7.
- **Held**: the most micro-batches of which a rank keeps activations, in activations of all its stages: a chunk counts 1/v.
- **Sent**: the most messages that a rank sends for each micro-batch. With K slices each is K times smaller.
- **Weights**: copies of each stage x versions of it that are kept at once.
- **Synchronous**: all micro-batches of a step see the same weights, and training is what it is on one rank.
- **Waits**: closed form of what the rank with the longest span waits in it, between stages that are alike, and where it holds;
  B = D + W. Tests compare it with the simulator, to the unit. The bubble is waiting / (waiting + work).

| schedule | bubble | 10, 11, 7 | held | sent | weights | synchronous | waits | where |
|---|---|---|---|---|---|---|---|---|
)";

constexpr std::string_view where_counts_differ = R"(## Where a count differs from a paper

The count wins; `tests/pipeline` holds it.

- **1F1B** does not remove the bubble: it is GPipe's, (p - 1)/(m + p - 1). It bounds memory.
- **Interleaved 1F1B** and **looped breadth-first** have their closed form for every m >= p, not only for multiples of p.
- **ZB-H1** waits (p - 1)(F + D - W) where W <= F.
- **ZB-H2** waits (p - 1)(F + D - 2W) on a rank's own span where W <= F and W <= D: nothing only where F + D = 2W.
- **ZB-V** waits for nothing from m = 2p - 1 on; 2p is not needed.
- **V-Half** and **V-Min**, said to have about a half and about two thirds of 1F1B's 6(p - 1) units, wait 7(p - 1)/2 (p odd) or
  7p/2 - 2 (p even), and 4p - 5, or 4p - 3 where 3 divides p.
- **DualPipe** waits (p/2 - 1)(P + B - 3W) only where F = D = W, P being the time of a pair (`--pair`). Ranks that compute one thing
  after the other wait (p/2 - 1)(F + D - W), and in **DualPipeV** (p - 1)(F + D - W) of a chunk.
- **Chimera** waits (p - 2)F only where F = B, and **Hanayo** (p - 1)(F + B) of a chunk only where F = B and p divides m; where
  B = 2F and m = p Hanayo waits 4(p - 1)F.

)";

constexpr std::string_view language = R"(## The language

A schedule is data: on which rank each stage is, and what each rank does, in order. An instruction is one of

| symbol | operation | |
|---|---|---|
)";

/// What each operation is for, in their order.
constexpr std::array<std::string_view, operation_names.size()> meanings{
    "needs the activation of the stage before, and of a slice the slice before",
    "data and weights in one; needs the gradient of the stage after",
    "the part of a backward that the stage before waits for",
    "the rest of it, any time later",
    "the forward again, from the input that was kept",
    "to the stage after",
    "from the stage before; posted here, waited for by the compute that needs it",
    "to the stage before",
    "from the stage after",
    "of a stage, from the ranks that share them out (ZeRO)",
    "of a stage, over the ranks that have summands of them",
    "of a stage"};

constexpr std::string_view ending = R"(
with the number of the micro-batch (of the update for the last three): `F3`; `F3.1` is slice 1 of micro-batch 3, and `F3@2` names the
stage, where a rank has several. `F3& B1` is a pair: the forward of a micro-batch and the backward of another take turns, each computing
while the other waits for its exchanges (DeepSeek-AI 2024, section 3.2.1). A pair begins when both have what they need, and what they make
is sent when both have ended: it takes as long as its computes, or its exchanges, or the longer of the two passes, whatever is longest.
DualPipe and DualPipeV have pairs with `--pair`, and `train_lm` runs them so where tokens travel to experts on other ranks.

`pentad_schedule --text FILE` and `--json FILE` write a schedule, and `--schedule-file FILE` reads either.
It is proven before anything else: every compute once and in order, with the weights that it should see, each receive met by its send,
and no deadlock over two steps with one send buffer. This is 1F1B:

```
)";

/// What the page shows of a generator.
Schedule example_of(Generator const& generator) {
    GeneratorOptions options{.ranks = 4, .micro_batches = 8};
    if (generator.chunk_step == 1) options.chunks = 2; // one chunk is another schedule
    if (generator.takes_slices) options.slices = 2;
    return generate(generator.name, options);
}

std::string row_of(Description const& description, Schedule const& schedule, Facts const& facts) {
    std::string const name(description.name);
    std::string sizes;
    if (schedule.stages() > schedule.ranks()) sizes = ", v = " + std::to_string(schedule.stages() / schedule.ranks());
    if (schedule.slices > 1) sizes = ", K = " + std::to_string(schedule.slices);
    Costs const unequal{.stages = {{.forward = 10, .backward_data = 11, .backward_weight = 7}}};
    return "| [" + name + "](#" + name + ")" + sizes + " | " + percent(facts.times.bubble()) + " | " +
           percent(simulate(schedule, unequal).bubble()) + " | " + short_number(facts.held) + " | " +
           short_number(facts.sends) + " | " + std::to_string(facts.copies) + " x " + std::to_string(facts.versions) +
           " | " + (schedule.updates > 1 ? "no" : "yes") + " | " + std::string(description.wait) + " | " +
           std::string(description.domain) + " |\n";
}

/// The automatic schedule where one stage is slow, beside the best with a name: with its picture.
std::string automatic_section(std::filesystem::path const& folder) {
    GeneratorOptions const options{.ranks = 4, .micro_batches = 8};
    Costs costs;
    costs.stages.assign(4, {.forward = 10, .backward_data = 10, .backward_weight = 10});
    costs.stages[2] = {.forward = 15, .backward_data = 15, .backward_weight = 15};
    constexpr std::int64_t memory = 4; // 1F1B's
    auto const found = automatic(options, costs, {.memory = {memory}});
    auto const named = automatic(options, costs, {.memory = {memory}, .states = 0}); // nothing searched
    auto const chart = report::planned_chart(found.schedule, costs, headline(found.schedule));
    io::write_file(folder / "schedules/automatic.svg", report::chart_svg({&chart, 1}));
    return "### automatic\n\nNo rule but a search, for the times of each stage, of messages, and the memory of each "
           "rank: never slower "
           "than the best with a name that fits. Here stage 2 takes 15 units for each part and the others 10, and no "
           "rank "
           "may hold more than " +
           std::to_string(memory) + " micro-batches: it takes " + std::to_string(found.makespan) + " units" +
           (found.optimal ? ", and nothing is faster" : "") + "; the best with a name, " + named.schedule.name + ", " +
           std::to_string(named.makespan) +
           ".\n\n```sh\npentad_schedule --schedule automatic --forward 10,10,15,10 --backward-data 10,10,15,10 "
           "--backward-weight 10,10,15,10 --memory 4 --text FILE\n```\n\nwrites what `train_lm --schedule-file FILE` "
           "runs. "
           "What the stages of a model really take, `pentad_schedule --ran` shows.\n\n![" +
           headline(found.schedule) + "](schedules/automatic.svg)\n\n";
}

} // namespace

void write_page(std::filesystem::path const& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder / "schedules", error);
    if (error) throw io::FileError("write", folder / "schedules", error.value());

    std::string table, sections, operations;
    for (std::size_t at = 0; at < generators.size(); ++at) {
        auto const& description = descriptions[at];
        auto const schedule = example_of(generators[at]);
        auto const facts = facts_of(schedule, validate(schedule), {});
        auto const chart =
            report::planned_chart(schedule, {}, headline(schedule) + ": bubble " + percent(facts.times.bubble()));
        auto const picture = "schedules/" + schedule.name + ".svg";
        io::write_file(folder / picture, report::chart_svg({&chart, 1}));
        table += row_of(description, schedule, facts);
        sections += "### " + schedule.name + "\n\n" + std::string(description.title) +
                    (description.source.empty() ? "" : " (" + std::string(description.source) + ")") + ". " +
                    std::string(description.text) + "\n\n![" + headline(schedule) + "](" + picture + ")\n\n";
    }
    for (std::size_t at = 0; at < meanings.size(); ++at)
        operations += "| `" + std::string(symbol(static_cast<Operation>(at))) + "` | " +
                      std::string(operation_names[at]) + " | " + std::string(meanings[at]) + " |\n";
    std::string page(beginning);
    page.append(table).append("\n## The schedules\n\n").append(sections).append(automatic_section(folder));
    page.append(where_counts_differ);
    page.append(language).append(operations).append(ending);
    page += to_string(generate("1f1b", {.ranks = 2, .micro_batches = 3})) + "```\n";
    io::write_file(folder / "schedules.md", page);
}

} // namespace pentad_schedule
