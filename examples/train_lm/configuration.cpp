#include "configuration.hpp"

#include "run.hpp"

#include <pentad/train/planned.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace train_lm {

pentad::planner::Configuration configuration_of(Options const& options) {
    namespace planner = pentad::planner;
    auto const extent = [&](std::string_view axis) { return options.extent(axis); };
    planner::Configuration c{
        .dp = extent("dp"), .pp = extent("pp"), .ep = extent("ep"), .cp = extent("cp"), .tp = extent("tp")};
    for (std::size_t i = 0; i < c.order.size(); ++i)
        c.order[i] = *std::find(planner::axis_order.begin(), planner::axis_order.end(), options.mesh[i].name);
    c.inner_cp = options.inner_cp();
    c.sequence_parallel = options.sequence_parallel;
    c.element = options.dtype == "f64"   ? planner::Element::f64
                : options.dtype == "f32" ? planner::Element::f32
                                         : planner::Element::bf16;
    if (options.schedule_file.empty()) c.schedule = options.schedule;
    c.chunks = options.chunks;
    return pentad::train::planned_configuration(make_settings(options), c);
}

} // namespace train_lm
