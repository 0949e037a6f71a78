// A timeline of a run, which is compared with a schedule of two ranks.
#include "input.hpp"

#include <pentad/pipeline/generators.hpp>
#include <pentad/report/measured_chart.hpp>

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    using namespace pentad;
    static auto const planned =
        report::planned_chart(pipeline::generate("1f1b", {.ranks = 2, .micro_batches = 2}), {}, "");
    fuzz::MemoryFile const file(fuzz::text(data, size));
    try {
        auto const chart = report::measured_chart(file.path(), planned);
        pipeline::Costs costs{.stages = {{}, {}}};
        report::set_times(costs, chart);
        for (auto const& bars : chart.ranks)
            for (auto const& bar : bars) fuzz::check(bar.start >= 0 && bar.end >= bar.start, "times are in order");
    } catch (io::FileError const&) {
    }
    return 0;
}
