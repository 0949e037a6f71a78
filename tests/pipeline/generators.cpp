#include <doctest/doctest.h>

#include <pentad/pipeline/generators.hpp>
#include <pentad/pipeline/text.hpp>
#include <pentad/pipeline/validator.hpp>

#include <algorithm>
#include <ctime>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

using namespace pentad::pipeline;

namespace {

bool defined(Generator const& generator, int p, int chunks) {
    int const more = chunks - generator.least_chunks;
    return (!generator.even_ranks || p % 2 == 0) &&
           (generator.chunk_step == 0 ? more == 0 : more >= 0 && more % generator.chunk_step == 0);
}

std::string lines_of_ranks(std::string_view name, GeneratorOptions const& options) {
    std::string const text = to_string(generate(name, options));
    return text.substr(text.find("rank 0"));
}

std::vector<int> peaks(std::string_view name, GeneratorOptions const& options) {
    auto verdict = validate(generate(name, options));
    REQUIRE_MESSAGE(!verdict.refusal, verdict.refusal->message());
    return verdict.peak_in_flight;
}

/// Calls check(rank, peak) for each rank, p in 1..16 and m in 1..64 where `domain` holds.
template <class Domain, class Check>
void for_all_peaks(std::string_view name, int chunks, Domain domain, Check check) {
    for (int p = 1; p <= 16; ++p)
        for (int m = 1; m <= 64; ++m) {
            if (!domain(p, m)) continue;
            auto const found = peaks(name, {.ranks = p, .micro_batches = m, .chunks = chunks});
            int wrong = 0;
            for (int rank = 0; rank < p; ++rank)
                wrong += found[static_cast<std::size_t>(rank)] == check(p, m, rank) ? 0 : 1;
            CHECK_MESSAGE(wrong == 0, name, " on ", p, " ranks with ", m, " micro-batches");
        }
}
constexpr auto everywhere = [](int, int) { return true; };

} // namespace

TEST_CASE("the validator accepts every schedule on 1 to 16 ranks with 1 to 64 micro-batches and 1 to 4 chunks") {
    for (Generator const& generator : generators)
        for (int p = 1; p <= 16; ++p)
            for (int m = 1; m <= 64; m += m < 32 ? 1 : 4) // of the larger ones each fourth
                for (int chunks = 1; chunks <= 4; ++chunks) {
                    if (!defined(generator, p, chunks)) continue;
                    auto const schedule = generate(generator.name, {.ranks = p, .micro_batches = m, .chunks = chunks});
                    auto const verdict = validate(schedule);
                    if (verdict.refusal)
                        FAIL_CHECK(generator.name << " " << p << " " << m << " " << chunks << ": "
                                                  << verdict.refusal->message());
                    if (!generator.has_pairs) continue;
                    for (bool const recompute : {false, true}) {
                        auto const paired =
                            generate(generator.name, {.ranks = p,
                                                      .micro_batches = m,
                                                      .chunks = chunks,
                                                      .recompute = recompute,
                                                      .pairs = true,
                                                      .stage_operations = {.gather = true, .reduce = true}});
                        if (auto const other = validate(paired); other.refusal)
                            FAIL_CHECK(generator.name << " of pairs " << p << " " << m << ": "
                                                      << other.refusal->message());
                        if (m >= 3 * p) CHECK(has_pairs(paired));
                    }
                }
}

TEST_CASE("what is added for whole stages, for recomputation and in slices is accepted as well") {
    for (Generator const& generator : generators)
        for (int p = 1; p <= 6; ++p)
            for (int const m : {1, 2, 3, 6, 12, 13}) {
                GeneratorOptions options{.ranks = p, .micro_batches = m, .recompute = true};
                if (!defined(generator, p, generator.least_chunks)) continue;
                options.slices = generator.takes_slices ? 1 + m % 4 : 1;
                options.stage_operations = {
                    .gather = generator.name.substr(0, 9) != "pipedream", .reduce = true, .step = true};
                auto const schedule = generate(generator.name, options);
                auto const verdict = validate(schedule);
                CHECK_MESSAGE(!verdict.refusal, verdict.refusal->message(), " in ", to_string(schedule));
            }
}

TEST_CASE("small schedules are the ones of the papers") {
    CHECK(to_string(generate("gpipe", {.ranks = 2, .micro_batches = 2})) == "schedule gpipe\n"
                                                                            "micro-batches 2\n"
                                                                            "stages on ranks 0 1\n"
                                                                            "rank 0: F0 >a0 F1 >a1 <g0 <g1 B0 B1\n"
                                                                            "rank 1: <a0 <a1 F0 F1 B0 >g0 B1 >g1\n");
    CHECK(lines_of_ranks("1f1b", {.ranks = 2, .micro_batches = 3}) ==
          "rank 0: F0 >a0 F1 >a1 <g0 B0 <g1 F2 >a2 B1 <g2 B2\n"
          "rank 1: <a0 <a1 F0 B0 >g0 F1 <a2 B1 >g1 F2 B2 >g2\n");
    CHECK(lines_of_ranks("eager-1f1b", {.ranks = 2, .micro_batches = 3}) ==
          "rank 0: F0 >a0 F1 >a1 F2 >a2 <g0 B0 <g1 B1 <g2 B2\n"
          "rank 1: <a0 <a1 F0 <a2 B0 >g0 F1 B1 >g1 F2 B2 >g2\n");
    CHECK(lines_of_ranks("zb-h1", {.ranks = 2, .micro_batches = 2}) == "rank 0: F0 >a0 F1 >a1 <g0 D0 <g1 W0 D1 W1\n"
                                                                       "rank 1: <a0 <a1 F0 D0 >g0 F1 D1 >g1 W0 W1\n");
    CHECK(to_string(generate("terapipe", {.ranks = 2, .micro_batches = 1, .slices = 2})) ==
          "schedule terapipe\n"
          "micro-batches 1\n"
          "slices 2\n"
          "stages on ranks 0 1\n"
          "rank 0: F0.0 >a0.0 F0.1 >a0.1 <g0.1 <g0.0 B0.1 B0.0\n"
          "rank 1: <a0.0 <a0.1 F0.0 F0.1 B0.1 >g0.1 B0.0 >g0.0\n");
    CHECK(to_string(generate("pipedream", {.ranks = 2, .micro_batches = 2})) ==
          "schedule pipedream\n"
          "micro-batches 2\n"
          "updates 2\n"
          "weight-versions 2\n"
          "delay 1 0\n"
          "stages on ranks 0 1\n"
          "rank 0: F0 >a0 F1 >a1 <g0 B0 U0 <g1 B1 U1\n"
          "rank 1: <a0 <a1 F0 B0 >g0 U0 F1 B1 >g1 U1\n");
    CHECK(to_string(generate("chimera", {.ranks = 2, .micro_batches = 2})) ==
          "schedule chimera\n"
          "micro-batches 2\n"
          "stages on ranks 0 1\n"
          "stages on ranks 1 0\n"
          "rank 0: <a1@1 F0@0 >a0@0 F1@1 <g0@0 B1@1 >g1@1 B0@0\n"
          "rank 1: <a0@1 F1@0 >a1@0 F0@1 <g1@0 B0@1 >g0@1 B1@0\n");
    CHECK(lines_of_ranks("hanayo", {.ranks = 2, .micro_batches = 1}) ==
          "rank 0: F0@0 >a0@0 <a0@3 F0@3 B0@3 >g0@3 <g0@0 B0@0\n"
          "rank 1: <a0@1 F0@1 F0@2 >a0@2 <g0@2 B0@2 B0@1 >g0@1\n");
    CHECK(lines_of_ranks("looped-bfs", {.ranks = 1, .micro_batches = 2, .chunks = 2}) ==
          "rank 0: F0@0 F1@0 F0@1 F1@1 B0@1 B1@1 B0@0 B1@0\n");
    CHECK(lines_of_ranks("1f1b", {.ranks = 2,
                                  .micro_batches = 1,
                                  .recompute = true,
                                  .stage_operations = {.gather = true, .reduce = true, .step = true}}) ==
          "rank 0: G0 F0 >a0 R0 <g0 B0 S0 U0\n"
          "rank 1: G0 <a0 F0 R0 B0 >g0 S0 U0\n");
}

TEST_CASE("the forwards of a schedule are a schedule of their own, of as many micro-batches as are wanted") {
    auto const training = generate("1f1b", {.ranks = 2, .micro_batches = 3});
    auto const text = to_string(forwards_of(training, 2));
    CHECK(text.substr(text.find("rank 0")) == "rank 0: F0 >a0 F1 >a1\n"
                                              "rank 1: <a0 <a1 F0 F1\n");
    for (Generator const& generator : generators)
        for (int p = 1; p <= 8; ++p)
            for (int const m : {1, 3, 8}) {
                if (!defined(generator, p, generator.least_chunks)) continue;
                auto const schedule = generate(generator.name, {.ranks = p, .micro_batches = m});
                for (int const wanted : {1, m}) {
                    auto const verdict = validate(forwards_of(schedule, wanted));
                    CHECK_MESSAGE(!verdict.refusal, generator.name, " on ", p, ": ", verdict.refusal->message());
                }
            }
}

// Activations in flight, in micro-batches of one stage.
TEST_CASE(
    "GPipe holds everything, 1F1B min(m, p - s) on stage s (Narayanan et al. 2021), eager 1F1B twice that less one") {
    for_all_peaks("gpipe", 0, everywhere, [](int, int m, int) { return m; });
    for (auto const name : {"1f1b", "pipedream", "pipedream-2bw"})
        for_all_peaks(name, 0, everywhere, [](int p, int m, int s) { return std::min(m, p - s); });
    for_all_peaks("eager-1f1b", 0, everywhere, [](int p, int m, int s) { return std::min(m, 2 * (p - s) - 1); });
    for (int const slices : {1, 3})
        for (int const peak : peaks("terapipe", {.ranks = 3, .micro_batches = 4, .slices = slices}))
            CHECK(peak == 4 * slices);
}

TEST_CASE("PipeDream keeps p - s versions of the weights of stage s, PipeDream-2BW two of all") {
    for (int p = 1; p <= 8; ++p)
        for (int const m : {p, 2 * p, 5 * p}) {
            auto const versions = validate(generate("pipedream", {.ranks = p, .micro_batches = m})).weight_versions;
            for (int s = 0; s < p; ++s) CHECK(versions[static_cast<std::size_t>(s)] == p - s);
            auto const of_2bw = generate("pipedream-2bw", {.ranks = p, .micro_batches = m});
            CHECK(of_2bw.updates == m / p);
            CHECK(validate(of_2bw).weight_versions ==
                  std::vector(static_cast<std::size_t>(p), of_2bw.updates > 1 ? 2 : 1));
        }
}

TEST_CASE("interleaved 1F1B holds (1 + (p - 1) / (p v)) p v chunks on the first rank (Korthikanti et al. 2022)") {
    for (int chunks = 2; chunks <= 4; ++chunks)
        for_all_peaks(
            "interleaved-1f1b", chunks, [](int p, int m) { return m % p == 0; },
            [&](int p, int m, int r) { return std::min(chunks * m, chunks * p + p - 1 - 2 * r); });
    for_all_peaks("interleaved-1f1b", 1, everywhere, [](int p, int m, int s) { return std::min(m, p - s); });
    for (int chunks = 1; chunks <= 4; ++chunks)
        for_all_peaks("looped-bfs", chunks, everywhere, [&](int, int m, int) { return chunks * m; });
}

TEST_CASE("ZB-H1 holds p everywhere, ZB-H2 2p - 1, ZB-V 2p chunks of half the size (Qi et al. 2023, 2024)") {
    for_all_peaks("zb-h1", 0, everywhere, [](int p, int m, int) { return std::min(m, p); });
    for_all_peaks("zb-h2", 0, everywhere, [](int p, int m, int) { return std::min(m, 2 * p - 1); });
    for_all_peaks("zb-v", 0, [](int p, int m) { return m >= 2 * p - 1; }, [](int p, int, int) { return 2 * p; });
}

TEST_CASE("V-Half holds (p + 2) / 2 micro-batches of two chunks and V-Min (p + 4) / 3 (Qi et al. 2024)") {
    for (int p = 1; p <= 16; ++p)
        for (int m = 1; m <= 64; ++m) {
            auto const half = peaks("v-half", {.ranks = p, .micro_batches = m});
            auto const min = peaks("v-min", {.ranks = p, .micro_batches = m});
            int const most_half = *std::max_element(half.begin(), half.end());
            int const most_min = *std::max_element(min.begin(), min.end());
            CHECK(most_half <= (p + 2) / 2 * 2);
            CHECK(most_min <= (p + 4) / 3 * 2);
            if (m < p) continue;
            CHECK(most_half == (p + 2) / 2 * 2);
            CHECK(most_min == (p + 4) / 3 * 2);
        }
}

TEST_CASE("DualPipe holds p + 1, DualPipeV 2p + 1 chunks (DeepSeek-AI 2025)") {
    for_all_peaks(
        "dualpipe", 0, [](int p, int m) { return p % 2 == 0 && m >= 2 * p; }, [](int p, int, int) { return p + 1; });
    for_all_peaks("dualpipe-v", 0, [](int p, int m) { return m >= 2 * p; }, [](int p, int, int) { return 2 * p + 1; });
}

TEST_CASE(
    "Chimera holds p/2 + 1 at the ends and p in the middle for p micro-batches, never more than p (Li, Hoefler 2021)") {
    for_all_peaks(
        "chimera", 0, [](int p, int m) { return p % 2 == 0 && m == p; },
        [](int p, int, int r) { return p / 2 + 1 + std::min(r, p - 1 - r); });
    for (int p = 2; p <= 16; p += 2)
        for (int m = 1; m <= 64; ++m)
            for (int const peak : peaks("chimera", {.ranks = p, .micro_batches = m})) CHECK(peak <= p);
}

TEST_CASE("Hanayo of w waves holds at most 2wp chunks") {
    for (int const chunks : {2, 4})
        for (int p = 1; p <= 16; ++p)
            for (int m = 1; m <= 64; ++m)
                for (int const peak : peaks("hanayo", {.ranks = p, .micro_batches = m, .chunks = chunks}))
                    CHECK(peak <= chunks * p);
}

TEST_CASE("an unknown name, and options for which a schedule is not defined, are refused with what is defined") {
    auto const refusal = [](std::string_view name, GeneratorOptions const& options) -> std::string {
        try {
            generate(name, options);
        } catch (std::invalid_argument const& error) {
            return error.what();
        }
        return "";
    };
    CHECK(refusal("gpip", {}) ==
          "gpip is no schedule; there are gpipe, terapipe, 1f1b, eager-1f1b, pipedream, pipedream-2bw, zb-h1, zb-h2, "
          "interleaved-1f1b, looped-bfs, zb-v, v-half, v-min, dualpipe-v, hanayo, dualpipe, chimera");
    CHECK(refusal("gpipe", {.ranks = 0}) == "gpipe needs at least one rank and one micro-batch, not 0 and 1");
    CHECK(refusal("1f1b", {.micro_batches = -1}) == "1f1b needs at least one rank and one micro-batch, not 1 and -1");
    CHECK(refusal("chimera", {.ranks = 3}) == "chimera is defined for an even number of ranks, not 3");
    CHECK(refusal("zb-v", {.chunks = 3}) == "zb-v is defined for 2 chunks a rank, not 3");
    CHECK(refusal("hanayo", {.chunks = 3}) == "hanayo is defined for 2, 4, 6, ... chunks a rank, not 3");
    CHECK(refusal("looped-bfs", {.chunks = -1}) == "looped-bfs is defined for 1 or more chunks a rank, not -1");
    CHECK(refusal("1f1b", {.slices = 2}) == "1f1b is defined for 1 slice a sequence, not 2");
    CHECK(refusal("terapipe", {.slices = 0}) == "terapipe is defined for 1 or more slices a sequence, not 0");
    CHECK(refusal("1f1b", {.updates = 2}) == "1f1b does not take a number of updates");
    CHECK(refusal("pipedream-2bw", {.ranks = 3, .micro_batches = 6, .updates = 3}) ==
          "pipedream-2bw needs updates of equally many micro-batches, at least 3 on 3 ranks: 6 micro-batches do not "
          "make 3");
    CHECK(refusal("pipedream", {.ranks = 2, .micro_batches = 2, .stage_operations = {.gather = true}}) ==
          "pipedream keeps several versions of its parameters whole: there is nothing to gather");
}

#if !defined(__SANITIZE_ADDRESS__) // with which everything takes ten times as long
TEST_CASE("a schedule of 1,024 stages and 4,096 micro-batches is generated and proven in less than 10 seconds") {
    auto const start = std::clock(); // of this process: others may be busy on the machine
    auto const schedule = generate("1f1b", {.ranks = 1024, .micro_batches = 4096});
    auto const verdict = validate(schedule);
    double const seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    CHECK(!verdict.refusal);
    CHECK(verdict.peak_in_flight.front() == 1024);
    CHECK(seconds < 10);
    MESSAGE(seconds, " seconds");
}
#endif
