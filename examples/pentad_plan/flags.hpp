// What can be said on the command line of pentad_plan.
#pragma once

#include <string>
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

} // namespace pentad_plan
