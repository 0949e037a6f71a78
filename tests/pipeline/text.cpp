#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/text.hpp>

#include <stdexcept>
#include <string>
#include <string_view>

using namespace pentad::pipeline;

TEST_CASE("every schedule is read back as it was printed") {
    for (Generator const& generator : generators)
        for (int p = 2; p <= 4; p += 2)
            for (int m = 1; m <= 5; m += 2) {
                auto plain = generate(generator.name, {.ranks = p, .micro_batches = m});
                CHECK(parse_schedule(to_string(plain)) == plain);
                GeneratorOptions options{.ranks = p, .micro_batches = m, .recompute = true};
                options.slices = generator.takes_slices ? 3 : 1;
                options.pairs = generator.has_pairs;
                options.stage_operations = {.gather = plain.updates <= 1, .reduce = true, .step = true};
                auto const full = generate(generator.name, options);
                CHECK(parse_schedule(to_string(full)) == full);
            }
}

TEST_CASE("a schedule that a person wrote is read, with comments, blank lines and any order of what is said") {
    auto const schedule = parse_schedule("# mine\n"
                                         "micro-batches 2   # of 8 sequences\n\n"
                                         "stages on ranks 0 1 1 0\r\n"
                                         "  schedule my own\n"
                                         "rank 0: F0@0 >a0@0\n"
                                         "rank 1:\n");
    CHECK(schedule.name == "my own");
    CHECK(schedule.micro_batches == 2);
    CHECK(schedule.placements == std::vector<std::vector<int>>{{0, 1, 1, 0}});
    CHECK(schedule.instructions[0] ==
          std::vector<Instruction>{{Operation::forward, 0, 0}, {Operation::send_activation, 0, 0}});
    CHECK(schedule.instructions[1].empty());
}

TEST_CASE("what is wrong for the validator alone is read back as it was printed, too") {
    for (std::string const ranks : {"rank 0: F0@1 F0\nrank 1:\n", "rank 0: U0.1 F3.2\nrank 1: F0@7\n"}) {
        auto const schedule = parse_schedule("schedule x\nmicro-batches 0\nslices 0\nstages on ranks 0 1\n" + ranks);
        CHECK(parse_schedule(to_string(schedule)) == schedule);
    }
}

TEST_CASE("a text that is wrong is refused with the line and what is expected") {
    auto const refusal = [](std::string_view text) -> std::string {
        try {
            (void)parse_schedule(text);
        } catch (std::invalid_argument const& error) {
            return error.what();
        }
        return "";
    };
    std::string const head = "schedule x\nmicro-batches 2\nstages on ranks 0 1\n";
    std::string const several = "schedule x\nmicro-batches 2\nstages on ranks 0 1 0\n";
    CHECK(refusal(head + "rank 0: F0\nrank 1:") == "");
    std::string const an_instruction =
        " is no instruction: that is one of F B D W R >a <a >g <g G S U and a number, as in F0 or <g3";
    CHECK(refusal("schedule \xff") == "line 1: the name '\\xff' is not UTF-8, or has control characters in it");
    CHECK(refusal("schedule a\x1b[31m b") ==
          "line 1: the name 'a\\x1b[31m b' is not UTF-8, or has control characters in it");
    CHECK(refusal(head + "rank 0: " + std::string(100'000, 'x')).size() < 200);
    CHECK(refusal("slices " + std::string(100'000, 'x')) ==
          "line 1: '" + std::string(57, 'x') + "...' is not a number from 0 on");
    CHECK(refusal(std::string(100'000, 'x')).size() < 250);
    CHECK(refusal(head + "rank 0: F0 X1") == "line 4: 'X1'" + an_instruction);
    CHECK(refusal(head + "rank 0: F") == "line 4: 'F'" + an_instruction);
    CHECK(refusal(head + "rank 0: F-1") == "line 4: 'F-1'" + an_instruction);
    CHECK(refusal(head + "rank 0: F99999999999") == "line 4: 'F99999999999'" + an_instruction);
    CHECK(refusal(head + "rank 0: F0x") == "line 4: 'F0x'" + an_instruction);
    CHECK(refusal(head + "rank 0: F0.@1") == "line 4: 'F0.@1' has no number of a slice after the point");
    CHECK(refusal(head + "rank 0: F0@") == "line 4: 'F0@' has no number of a stage after the @");
    CHECK(refusal(several + "rank 0: F0") ==
          "line 4: 'F0' does not say which of the rank's stages it is for, as in F0@2");
    CHECK(refusal(head + "rank 1: F0") == "line 4: expected 'rank 0:' and what it does");
    CHECK(refusal(head + "rank 0: F0\nslices two") == "line 5: 'two' is not a number from 0 on");
    CHECK(refusal(head + "slices 1 2") == "line 4: slices takes one number, as in slices 2");
    CHECK(refusal(head + "recomputes 1") == "line 4: recomputes stands alone");
    CHECK(refusal(head + "micro-batches 2") == "line 4: micro-batches is said twice");
    CHECK(refusal("schedule") == "line 1: schedule takes a name");
    CHECK(refusal(head + "stages 0 1") ==
          "line 4: expected 'stages on ranks' and the rank of each stage, as in stages on ranks 0 1 1 0");
    CHECK(refusal(head + "stages on ranks 1") == "line 4: has 1 stages; the placement before has 2");
    CHECK(refusal(head + "rank 0:\nstages on ranks 1 0") ==
          "line 5: where the stages are is said before what the ranks do");
    CHECK(refusal("rank 0: F0") == "line 1: expected 'stages on ranks' before what the ranks do");
    CHECK(refusal("chunks 2") == "line 1: 'chunks' is none of: schedule, inference, micro-batches, slices, updates, "
                                 "weight-versions, delay, recomputes, gathers, reduces, stages on ranks, rank");
    CHECK(refusal("micro-batches 2\n") == "line 2: the text ends without schedule");
    CHECK(refusal(head) == "line 4: the text ends without what the ranks do: rank 0: F0 ...");
}
