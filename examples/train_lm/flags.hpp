// The flags of train_lm as one table: the parser, the help, the checks and the suggestions all read it.
// Private to the units of train_lm_options.
#pragma once

#include "options.hpp"

#include <pentad/report/strategy_flags.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace train_lm {

/// A whole number that a flag sets.
class Integer {
  public:
    constexpr Integer() = default;
    constexpr Integer(std::int64_t Options::* member) : member_(member) {}
    explicit constexpr Integer(pentad::report::StrategyFlag const& row) : row_(&row) {}

    [[nodiscard]] std::int64_t get(Options const& options) const;
    void set(Options& options, std::int64_t value) const;
    explicit constexpr operator bool() const { return member_ != nullptr || row_ != nullptr; }
    friend constexpr bool operator==(Integer const&, Integer const&) = default;

  private:
    std::int64_t Options::* member_ = nullptr;
    pentad::report::StrategyFlag const* row_ = nullptr;
};
/// The number of a flag of the strategy.
inline Integer of_strategy(std::string_view flag) { return Integer(pentad::report::strategy_flag(flag)); }

/// A number of at least this and at most that.
template <class Number, class Member = Number>
struct NumberValue {
    Member Options::* member;
    Number least;
    Number most;
};
using IntegerValue = NumberValue<std::int64_t>;
using OptionalIntegerValue = NumberValue<std::int64_t, std::optional<std::int64_t>>;
using RealValue = NumberValue<double>;
struct ChoiceValue {
    std::string Options::* member;
    std::vector<std::string_view> choices;
};
struct TextValue {
    std::string Options::* member;
    bool may_be_empty = false;
};
struct ListValue {
    std::vector<std::string> Options::* member;
};
struct MeshValue {};
/// A field of the strategy.
struct StrategyValue {
    pentad::report::StrategyFlag const* row;
};
/// A flag without a value.
struct Switch {
    bool Options::* member;
};

/// The effect of another value of a flag on a run that goes on from a checkpoint.
enum class Effect {
    nothing, ///< but for rounding
    numbers, ///< it is said when the run goes on (settings.hpp)
    data,    ///< likewise, by what is in the files
    model,   ///< of which the checkpoint is: another one is refused
};

struct Flag {
    std::string_view name; ///< with its dashes
    Effect effect;
    std::string_view shown; ///< its value in the help
    std::string help;
    std::variant<IntegerValue, OptionalIntegerValue, RealValue, ChoiceValue, TextValue, ListValue, MeshValue,
                 StrategyValue, Switch>
        value;

    /// Whether it takes no value.
    [[nodiscard]] bool is_switch() const { return shown.empty(); }
};

/// A visitor of Flag::value, of one lambda for each kind.
template <class... Cases>
struct Overloaded : Cases... {
    using Cases::operator()...;
};

/// The flags between two headings of the help.
struct FlagGroup {
    std::string_view heading;
    std::vector<Flag> flags;
};

std::span<FlagGroup const> flag_groups();
/// The flag of this name, or none.
Flag const* find_flag(std::string_view name);
Flag const& flag_of(Integer number);
/// The whole number that a flag sets, between limits; none if it sets something else.
struct LimitedInteger {
    Integer number;
    std::int64_t least, most;
};
std::optional<LimitedInteger> integer_of(Flag const& flag);
/// A number as a user would type it; empty for an option that is not set.
template <class Number>
std::string number_text(Number value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}
inline std::string number_text(std::optional<std::int64_t> value) { return value ? number_text(*value) : ""; }

/// "a, b"
std::string joined(std::span<std::string_view const> words);
/// Its value as one would write it.
std::string value_text(Flag const& flag, Options const& options);
/// "--heads 6"
std::string given(Integer number, Options const& options);

/// "dp=2,tp=4"; axes of extent 1 are left out.
std::string mesh_text(std::span<MeshAxis const> mesh);
/// All axes of what mesh_text() wrote.
std::vector<MeshAxis> mesh_of(std::string_view text);
/// The options with a mesh that was planned for them.
Options with_mesh(Options options, PlannedMesh const& planned);
/// The optimizers that a flag is a number of; none: it is of all.
std::span<std::string_view const> optimizers_with(std::string_view flag);
/// Whether each stage updates its weights on its own, several times in a run of the schedule that --schedule names.
bool updates_often(Options const& options);
inline constexpr std::string_view axis_names[] = {"dp", "pp", "ep", "cp", "tp"};

/// The product of sizes, or the largest number where that is more.
constexpr std::int64_t product(std::initializer_list<std::int64_t> sizes) {
    std::int64_t result = 1;
    for (std::int64_t const size : sizes)
        if (__builtin_mul_overflow(result, size, &result)) return std::numeric_limits<std::int64_t>::max();
    return result;
}

/// Sets what the user did not give and what follows from the rest: batch from the mesh, kv_heads from heads.
void follow(Options& options);

/// A command line that is wrong already: why, and the flags that have been set to something else since.
struct Complaint {
    std::string reason; ///< empty: nothing is wrong yet
    std::vector<std::string_view> changed;
    bool must_leave_out = false; ///< a flag must be removed, which a suggestion of values cannot express

    /// Only the first error is reported; the suggestion repairs all of them.
    void add(std::string const& why, std::string_view flag) {
        if (reason.empty()) reason = why;
        if (std::find(changed.begin(), changed.end(), flag) == changed.end()) changed.push_back(flag);
    }
    /// An error that only the removal of the flag repairs.
    void leave_out(std::string const& why, std::string_view flag) {
        add(why, flag);
        must_leave_out = true;
    }
};
/// The first error in the options, and flags that would repair all errors. Both are empty for valid options.
struct Conclusion {
    std::string reason;
    std::string suggestion; ///< " --heads 8 --hidden 192", as far as numbers tell; empty where nothing was found
    Options repaired;       ///< with the suggestion
};
/// Checks and repairs the options. @param suggests whether a repair is wanted: looking for one takes time
Conclusion conclude(Options options, Complaint complaint, int ranks, bool suggests = true);

/// Validates --schedule, --chunks and --slices. Repairs them by the nearest valid chunks or slices, else by 1F1B.
void repair_schedule(Options& options, Complaint& complaint);
/// Validates --recompute, what belongs to it, and --memory-limit. Repairs them by their defaults.
void repair_recomputation(Options& options, Complaint& complaint);
/// Validates --offload and what belongs to it. Repairs the window by the default.
void repair_offload(Options& options, Complaint& complaint);
/// --expert-mesh: that it is one of the ranks of --mesh.
void repair_expert_mesh(Options& options, Complaint& complaint);
/// Deals the layers to `count` stages: --stages.
void deal_stages(Options& options, std::int64_t count);
/// Validates --stages for `count` stages. Repairs it by an even split of the layers.
void repair_stages(Options& options, std::int64_t count, Complaint& complaint);
/// Validates --save-every, and that the flags of checkpoints go together. Repairs the interval by the default.
void repair_checkpoints(Options& options, Complaint& complaint);
/// Validates --schedule-file against the other options: the error, if any.
std::optional<std::string> check_schedule_file(Options const& options);

} // namespace train_lm
