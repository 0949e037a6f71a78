// What can be said on the command line of pentad_plan.
#pragma once

#include <pentad/report/strategy_flags.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace pentad_plan {

struct Flag {
    std::string name;
    std::string shown; ///< placeholder of its value in the help; empty: a switch
    std::string help;
};
/// The flags between two headings of the help.
struct FlagGroup {
    std::string heading;
    std::vector<Flag> flags;
};

std::vector<FlagGroup> const& flag_groups();
/// The names of the flags under a heading that begins like this.
std::vector<std::string> flags_under(std::string_view heading);
/// Whether a flag of the table is one of pentad_plan's.
bool has_flag(pentad::report::StrategyFlag const& flag);

} // namespace pentad_plan
