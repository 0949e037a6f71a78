// Constraints on the numeric options, and the search for the nearest values that satisfy them.
// Private to the units of train_lm_options.
#pragma once

#include "flags.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace train_lm {

inline std::string text(std::int64_t number) { return std::to_string(number); }
inline bool divides(std::int64_t divisor, std::int64_t number) { return divisor < 1 || number % divisor == 0; }

/// The vocabulary of text, whose bytes are taken for tokens.
inline constexpr std::int64_t bytes_of_text = 256;

/// A violated constraint, and the flag to change.
struct Fault {
    std::string_view flag;
    std::string reason;
};
/// The first violated constraint.
std::optional<Fault> first_fault(Options const& options);
/// How many constraints do not hold, and whether all do.
std::size_t fault_count(Options const& options);
inline bool obeys_rules(Options const& options) { return fault_count(options) == 0; }
/// A sentence of the library in the words of flags: "heads = 6 ..." becomes "--heads 6 ...".
std::string in_flags(std::string const& why, Options const& options);
/// The flag that sets a field of the library's refusals; empty where none does.
std::string_view flag_of_field(std::string_view field, Options const& options);
/// The number that a flag of this name sets; null where it sets none.
Integer integer_of(std::string_view flag);
/// Whether any layer has attention, latent or not; and whether any has other than latent.
bool has_attention(Options const& options);
bool has_grouped_attention(Options const& options);
/// Whether the flag is a model size, which --model reads from config.json instead.
bool is_of_model(std::string_view flag);

/// The options with `member` set to the value nearest to its current one for which `works` holds (on a tie, the
/// larger one); none where there is no such value.
std::optional<Options> nearest(Options options, Integer number, std::function<bool(Options const&)> const& works);

/// Repairs `fault`, the first one. Tries, in this order: the nearest value of its flag that violates nothing else; the
/// nearest value that satisfies this constraint, leaving new faults to the next call; the flag's default. Whether the
/// flag is a number, which alone can be repaired so.
bool repair(Options& options, Fault const& fault);

} // namespace train_lm
