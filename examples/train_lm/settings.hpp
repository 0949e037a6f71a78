// The settings that the numbers of a run come from, as far as its model does not have them: what is compared when a run
// goes on from a checkpoint.
#pragma once

#include "flags.hpp"
#include "options.hpp"

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace train_lm {

/// The value of a flag in a checkpoint, as value_text() wrote it; empty: it was not given.
using StoredValue = std::function<std::string(std::string_view flag)>;

/// Sets an option to what value_text() wrote of it; empty: to its default. A switch is "on" or not; lists stay.
void set_value(Options& options, Flag const& flag, std::string const& text);

/// The flags that the numbers do not depend on in such a run.
[[nodiscard]] std::set<std::string_view> silent_flags(Options const& options);

/// The settings on which the numbers depend and that are others than before: "--clip 0.1 (was 1), ..."; empty: none
/// are. What is compared is what a value stands for, not how it was given, and flags that say nothing in this run are
/// left out.
[[nodiscard]] std::string changed_settings(Options const& now, StoredValue const& before);

} // namespace train_lm
