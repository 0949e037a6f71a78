// A pipeline schedule of one's own, as text: proven before it runs, timed, drawn; and a wrong one, which is refused
// with the instruction that is wrong.
//
// ranks: 1
#include <pentad/pipeline.hpp>
#include <pentad/report.hpp>

#include <array>
#include <cstdio>
#include <string>

using namespace pentad;

int main() {
    // GPipe on 2 ranks with 3 micro-batches: F and B are the passes, > and < what is sent and received.
    std::string text;
    pipeline::write_text(pipeline::generate("gpipe", {.ranks = 2, .micro_batches = 3}),
                         [&](std::string const& line) { text += line; });
    std::printf("%s\n", text.c_str());

    auto schedule = pipeline::parse_schedule(text);
    if (pipeline::validate(schedule).refusal) return 1;
    auto const times = pipeline::simulate(schedule, {});
    std::array const charts{report::planned_chart(schedule, {}, "mine")};
    std::printf("%s", report::chart_text(charts, {.columns = 60}).c_str());
    std::printf("bubble: %.0f %%\n", 100 * times.bubble());

    // The second rank forgets a backward pass.
    auto& instructions = schedule.instructions[1];
    for (std::size_t i = 0; i < instructions.size(); ++i)
        if (instructions[i].operation == pipeline::Operation::backward) {
            instructions.erase(instructions.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        }
    auto const verdict = pipeline::validate(schedule);
    if (verdict.refusal) std::printf("refused: %s\n", verdict.refusal->message().c_str());
    return verdict.refusal ? 0 : 1;
}
