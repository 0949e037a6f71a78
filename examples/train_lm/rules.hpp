// What the numbers of a command line must obey, and the search for the nearest ones that do.
// Private to the units of train_lm_options.
#pragma once

#include "flags.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace train_lm {

inline std::string text(std::int64_t number) { return std::to_string(number); }
inline bool divides(std::int64_t divisor, std::int64_t number) { return divisor < 1 || number % divisor == 0; }

/// A broken rule: what is wrong, and the flag to change.
struct Fault {
    Integer flag;
    std::string reason;
};
/// The first broken rule.
std::optional<Fault> first_fault(Options const& options);
/// Whether the numbers break no rule.
bool obeys_rules(Options const& options);
/// Whether the flag is a size of the model, which a config.json says in its place.
bool is_of_model(Integer flag);

/// The value of a flag nearest to where it stands for which `works`; of two as near, the larger.
std::optional<Options> nearest(Options options, Integer member, std::function<bool(Options const&)> const& works);

/// Mends the first fault: by one flag that breaks nothing new where there is such a value, else by the nearest that
/// mends it, and what that breaks is mended next; else by its default, where several flags share the fault.
void mend(Options& options, Fault const& fault);

} // namespace train_lm
