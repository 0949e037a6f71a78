#include "options.hpp"

#include "flags.hpp"
#include "model_file.hpp"

#include <pentad/mesh/nearest_word.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace train_lm {

using pentad::nearest_word;

namespace {

constexpr std::int64_t many = std::numeric_limits<std::int32_t>::max();

/// The whole of a text as a number. What is too large for the type becomes its limit, which every flag must refuse.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
    Number value = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
    using Limits = std::numeric_limits<Number>;
    if (error == std::errc::result_out_of_range) return text.front() == '-' ? Limits::lowest() : Limits::max();
    return value;
}

/// Reads one command line: CLI11 finds the texts of each flag, and here is what they mean.
class Parser {
  public:
    Parser(int ranks, MeshPlanner const& planner) : ranks_(ranks), planner_(planner) {}

    ParseResult run(int argc, char const* const* argv) {
        CLI::App app("Trains a language model on text, over a mesh of MPI ranks.", "mpiexec -n N train_lm");
        app.set_help_flag("-h,--help", "this text");
        app.allow_extras(); // unknown() refuses them
        for (FlagGroup const& group : flag_groups())
            for (Flag const& flag : group.flags)
                // No text and several are let through, for read() to refuse.
                app.add_option(std::string(flag.name),
                               CLI::callback_t([&](CLI::results_t const& texts) { return read(flag, texts); }),
                               help(flag))
                    ->option_text(std::string(flag.shown))
                    ->group(std::string(group.heading))
                    ->expected(0, 1)
                    ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
        auto arguments = prepared(argc, argv);
        try {
            app.parse(arguments);
        } catch (CLI::CallForHelp const&) {
            return {{}, app.help(), {}};
        }
        if (app.remaining_size() > 0) return {{}, {}, unknown(app.remaining().front())};
        options_.batch_given = app.count("--batch") > 0;
        options_.kv_heads_given = app.count("--kv-heads") > 0;
        options_.schedule_given = app.count("--schedule") > 0 || app.count("--chunks") > 0 || app.count("--slices") > 0;
        if (!options_.model.empty())
            if (auto sentence = use_model(app); !sentence.empty()) return {{}, {}, std::move(sentence)};
        check_optimizer_flags(app);
        if (mesh_ == "auto") plan_mesh();
        complete_mesh();
        follow(options_);
        auto conclusion = conclude(options_, complaint_, ranks_);
        if (conclusion.reason.empty()) return {std::move(options_), {}, {}};
        ParseResult refused{{}, {}, std::move(conclusion.reason)};
        if (!conclusion.suggestion.empty()) {
            refused.suggestion = ": try" + conclusion.suggestion;
            refused.suggested = std::move(conclusion.repaired);
        }
        return refused;
    }

  private:
    /// Takes the model from its file. Why that cannot be, or nothing.
    std::string use_model(CLI::App const& app) {
        for (auto const* const name : {"--layers",
                                       "--hidden",
                                       "--heads",
                                       "--kv-heads",
                                       "--ffn",
                                       "--vocab",
                                       "--experts",
                                       "--top-k",
                                       "--moe-every",
                                       "--expert-ffn",
                                       "--shared-experts",
                                       "--dense-layers",
                                       "--router",
                                       "--renormalise",
                                       "--route-scale",
                                       "--expert-groups",
                                       "--top-groups",
                                       "--tie-embeddings",
                                       "--latent-attention",
                                       "--mixers",
                                       "--state",
                                       "--groups",
                                       "--expand",
                                       "--conv",
                                       "--chunk"})
            if (app.count(name) > 0)
                return std::string(name) + " and --model: the file says all of the model; leave out " + name;
        auto const given = options_;
        auto refusal = read_model(options_);
        options_.aux_coef = app.count("--aux-coef") > 0 ? given.aux_coef : options_.usual_aux_coef;
        options_.z_coef = app.count("--z-coef") > 0 ? given.z_coef : options_.usual_z_coef;
        return refusal;
    }

    /// Refuses numbers that the chosen optimizer does not have.
    void check_optimizer_flags(CLI::App const& app) {
        for (FlagGroup const& group : flag_groups())
            for (Flag const& flag : group.flags) {
                auto const optimizers = optimizers_with(flag.name);
                bool const is_used = optimizers.empty() || std::find(optimizers.begin(), optimizers.end(),
                                                                     options_.optimizer) != optimizers.end();
                std::string const name(flag.name);
                if (is_used || app.count(name) == 0) continue;
                complaint_.leave_out(name + " is a number of --optimizer " + joined(optimizers) + ", not of " +
                                         options_.optimizer + ": leave out " + name,
                                     flag.name);
            }
        if (options_.optimizer == "sgd" && options_.nesterov == "on" && options_.momentum == 0)
            complaint_.leave_out(
                "--nesterov on looks ahead along the momentum, and --momentum is 0: leave out --nesterov",
                "--nesterov");
    }

    static std::string help(Flag const& flag) {
        auto const value = value_text(flag, Options{});
        bool const said = value.empty() || flag.help.find("(default: ") != flag.help.npos;
        return std::string(flag.help) + (said ? "" : " (default " + value + ")");
    }

    /// The arguments in CLI11's order, the last first. It takes -inf for a flag, so that joins the flag before it; and
    /// it tells no empty text from none, so these are noted.
    std::vector<std::string> prepared(int argc, char const* const* argv) {
        std::vector<std::string> arguments;
        for (int i = 1; i < argc; ++i) {
            std::string const text = argv[i];
            auto const* const flag = i > 1 ? find_flag(argv[i - 1]) : nullptr;
            if (flag != nullptr && text.empty()) given_empty_.emplace_back(flag->name);
            if (flag != nullptr && text.starts_with('-') && number_of<double>(text))
                arguments.back() += "=" + text;
            else
                arguments.push_back(text);
        }
        std::reverse(arguments.begin(), arguments.end());
        return arguments;
    }

    static std::string unknown(std::string const& argument) {
        if (!argument.starts_with("-")) return "'" + argument + "' belongs to no flag (--help lists them)";
        std::vector<std::string_view> names{"--help"};
        for (FlagGroup const& group : flag_groups())
            for (Flag const& flag : group.flags) names.push_back(flag.name);
        auto const name = argument.substr(0, argument.find('='));
        return "there is no flag " + name + ": did you mean " + std::string(nearest_word(name, names)) +
               "? (--help lists them)";
    }

    bool read(Flag const& flag, std::vector<std::string> const& texts) {
        bool const list = std::holds_alternative<ListValue>(flag.value);
        for (auto const& text : std::span(texts).first(list ? texts.size() : 1)) set(flag, text);
        if (!list && texts.size() > 1) complaint_.add(std::string(flag.name) + " is given twice", flag.name);
        return true;
    }

    /// A flag whose text is refused stays at its default, or near what was meant, from where conclude() looks for what
    /// works.
    void set(Flag const& flag, std::string const& text) {
        std::string const named = std::string(flag.name) + " " + text;
        auto const complain = [&](std::string const& reason) { complaint_.add(reason, flag.name); };
        auto const* const words = std::get_if<TextValue>(&flag.value);
        bool const is_empty_text = words != nullptr && words->may_be_empty &&
                                   std::find(given_empty_.begin(), given_empty_.end(), flag.name) != given_empty_.end();
        if (text.empty() && !flag.shown.empty() && !is_empty_text) {
            complain(named + "needs a value, " + std::string(flag.shown));
            if (!std::holds_alternative<OptionalIntegerValue>(flag.value)) return; // it stays at its default
        }
        // Too small a count is taken as the least; one beyond all bounds as nothing, since just within the bounds is
        // not what anyone would want.
        auto const set_number = [&]<class Number>(Number least, Number most, auto& member) {
            constexpr bool whole = std::is_integral_v<Number>;
            using Member = std::remove_reference_t<decltype(member)>;
            auto const value = number_of<Number>(text);
            if (value && *value >= least && *value <= most) {
                member = static_cast<Member>(*value);
                return;
            }
            complain(named + (!value ? whole ? " is not a whole number" : " is not a number"
                                     : " is not between " + number_text(least) + " and " + number_text(most)));
            if constexpr (std::is_same_v<Member, std::optional<Number>>) // there is no default
                member = std::clamp(value.value_or(least), least, most);
            else if (whole && value && *value < least)
                member = static_cast<Member>(least);
        };
        auto const chosen = [&](std::span<std::string_view const> choices) {
            bool const known = std::find(choices.begin(), choices.end(), text) != choices.end();
            if (!known) complain(named + " is none of " + joined(choices));
            return known ? std::string_view(text) : nearest_word(text, choices);
        };
        auto const set_switch = [&](bool& member) {
            member = true;
            if (!text.empty()) complain(std::string(flag.name) + " takes no value, and was given " + text);
        };
        auto const set_on_off = [&](bool& member) {
            member = text == "on";
            if (text != "on" && text != "off") complain(named + " is none of on, off");
        };
        auto const set_field = [&]<class T>(pentad::report::StrategyFlag const& row, T& member) {
            if constexpr (std::is_same_v<T, bool>)
                flag.is_switch() ? set_switch(member) : set_on_off(member);
            else if constexpr (std::is_integral_v<T>)
                set_number(static_cast<std::int64_t>(row.least), static_cast<std::int64_t>(row.most), member);
            else if constexpr (std::is_floating_point_v<T>)
                set_number(row.least, row.most, member);
            else if constexpr (pentad::HasWords<T>) {
                auto const words = pentad::report::flag_words<T>();
                auto const word = chosen(words);
                member = static_cast<T>(std::find(words.begin(), words.end(), word) - words.begin());
            } else if constexpr (std::is_same_v<T, std::string>)
                member = chosen(pentad::pipeline::schedule_names);
        };
        std::visit(Overloaded{
                       [&]<class Number, class Member>(NumberValue<Number, Member> const& target) {
                           set_number(target.least, target.most, options_.*target.member);
                       },
                       [&](ChoiceValue const& target) { options_.*target.member = chosen(target.choices); },
                       [&](TextValue const& target) { options_.*target.member = text; },
                       [&](ListValue const& target) { (options_.*target.member).push_back(text); },
                       [&](MeshValue) { mesh_ = text; },
                       [&](StrategyValue const& target) {
                           pentad::report::with_field(options_.strategy, target.row->field,
                                                      [&](auto& member) { set_field(*target.row, member); });
                       },
                       [&](Switch const& target) { set_switch(options_.*target.member); },
                   },
                   flag.value);
    }

    void plan_mesh() {
        mesh_.clear();
        if (!options_.schedule_file.empty())
            return complaint_.add("--mesh auto does not know the schedule of --schedule-file: name the mesh", "--mesh");
        if (!planner_ || !complaint_.reason.empty()) return;
        // A batch that every mesh can share out.
        if (!options_.batch_given) {
            auto const shares = product({ranks_, options_.strategy.micro_batches});
            options_.batch = product({(options_.batch - 1) / shares + 1, shares});
            options_.batch_given = true;
        }
        follow(options_);
        try {
            auto planned = planner_(options_);
            mesh_ = std::move(planned.mesh);
            options_.expert_mesh = std::move(planned.expert_mesh);
            options_.stages = std::move(planned.stages);
        } catch (std::bad_optional_access const&) { // a list that cannot be read: conclude() says which
        } catch (NoRoom const& error) {
            complaint_.leave_out(std::string("--mesh auto: ") + error.what(), "--mesh");
        } catch (std::invalid_argument const& error) {
            complaint_.add(std::string("--mesh auto: ") + error.what(), "--mesh");
        }
    }

    /// Reads --mesh as far as it makes sense, so that what is suggested stays close to what was meant.
    void complete_mesh() {
        auto const complain = [&](std::string const& what) { complaint_.add("--mesh " + mesh_ + what, "--mesh"); };
        auto const named = [&](std::string_view axis) {
            return std::any_of(options_.mesh.begin(), options_.mesh.end(),
                               [&](MeshAxis const& known) { return known.name == axis; });
        };
        std::istringstream items(mesh_.empty() ? "dp=" + std::to_string(ranks_) : mesh_ + ",");
        for (std::string item; std::getline(items, item, ',');) {
            auto const equals = item.find('=');
            auto const extent = equals == item.npos ? std::nullopt : number_of<std::int64_t>(item.substr(equals + 1));
            if (!extent) {
                complain(" is not a list of AXIS=EXTENT");
                continue;
            }
            auto axis = std::string_view(item).substr(0, equals);
            if (std::find(std::begin(axis_names), std::end(axis_names), axis) == std::end(axis_names)) {
                complain(" names the axis '" + std::string(axis) + "', which is none of " + joined(axis_names));
                std::vector<std::string_view> left;
                std::copy_if(std::begin(axis_names), std::end(axis_names), std::back_inserter(left),
                             [&](auto name) { return !named(name); });
                if (left.empty()) continue;
                axis = nearest_word(axis, left);
            }
            if (named(axis)) {
                complain(" names the axis " + std::string(axis) + " twice");
                continue;
            }
            if (*extent < 1)
                complain(" gives " + std::string(axis) + " the extent " + std::to_string(*extent) +
                         ", which is not positive");
            options_.mesh.push_back({std::string(axis), std::max(*extent, std::int64_t{1})});
        }
        for (auto const axis : axis_names)
            if (!named(axis)) options_.mesh.push_back({std::string(axis), 1});
    }

    int ranks_;
    MeshPlanner const& planner_;
    Options options_;
    std::string mesh_;
    std::vector<std::string_view> given_empty_; ///< flags followed by a text without characters
    Complaint complaint_;
};

} // namespace

std::int64_t Options::extent(std::string_view axis) const {
    for (MeshAxis const& known : mesh)
        if (known.name == axis) return known.extent;
    return 1;
}

std::optional<std::vector<std::int64_t>> stage_layers(std::string_view text) {
    std::vector<std::int64_t> layers;
    std::istringstream items{std::string(text) + ","};
    for (std::string item; std::getline(items, item, ',');) {
        auto const count = number_of<std::int64_t>(item);
        if (!count || *count < 0 || *count > many) return std::nullopt;
        layers.push_back(*count);
    }
    return layers;
}

pentad::model::ContextChoice Options::context() const {
    auto const& names = pentad::model::context_names;
    auto const word = std::find(names.begin(), names.end(), cp) - names.begin();
    return {static_cast<pentad::model::ContextChoice::Kind>(word), cp_heads, cp_inner};
}
pentad::model::TensorDivisors Options::tensor_divisors() const {
    auto const tp = extent("tp");
    auto const factors = pentad::model::tensor_factors(strategy.block.tensor_kind, tp);
    if (!factors) return {.heads = tp, .width = tp};
    return pentad::model::divisors(strategy.block.tensor_kind, *factors);
}
std::int64_t Options::batch_divisor() const {
    return product({extent("dp"), extent("ep"), tensor_divisors().batch, strategy.micro_batches});
}

void follow(Options& options) {
    if (!options.kv_heads_given) options.kv_heads = options.heads;
    if (!options.batch_given) {
        std::int64_t const divisor = std::max<std::int64_t>(options.batch_divisor(), 1);
        options.batch = product({(Options{}.batch - 1) / divisor + 1, divisor});
    }
}

ParseResult parse(int argc, char const* const* argv, int ranks, MeshPlanner const& planner) {
    return Parser(ranks, planner).run(argc, argv);
}

} // namespace train_lm
