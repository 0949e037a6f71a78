#include "options.hpp"

#include "flags.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace train_lm {

namespace {

constexpr std::int64_t many = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();

std::vector<FlagGroup> make_flag_groups() {
    using O = Options;
    return {
        {"the mesh",
         {{"--mesh", "AXES",
           "extents of the axes, outermost first: dp=2,pp=2,ep=1,cp=1,tp=2 (those left out are 1; default: all ranks "
           "dp)",
           MeshValue{}},
          {"--sequence-parallel", "on|off", "shard activations between the tp regions along the sequence",
           OnOffValue{&O::sequence_parallel}},
          {"--schedule", "gpipe|1f1b", "pipeline schedule", ChoiceValue{&O::schedule, {"gpipe", "1f1b"}}},
          {"--cp", "ring|allgather", "how attention sees the keys and values of other cp ranks",
           ChoiceValue{&O::cp, {"ring", "allgather"}}},
          {"--zigzag", "",
           "give each cp rank an early and a late piece of the sequence, so that causal attention is even",
           Switch{&O::zigzag}},
          {"--zero", "0|1", "1: shard the optimizer state over the ranks that share a parameter",
           IntegerValue{&O::zero, 0, 1}}}},
        {"the data",
         {{"--data", "FILE",
           "text whose bytes are the tokens; repeat for more files (default: a short text of the program's own)",
           ListValue{&O::data}},
          {"--vocab", "N", "size of the vocabulary", IntegerValue{&O::vocab, 256, 1 << 24}},
          {"--ignore-byte", "B", "targets equal to this byte carry no loss",
           OptionalIntegerValue{&O::ignore_byte, 0, 255}},
          {"--seq", "N", "tokens in a sequence", IntegerValue{&O::seq, 1, 1 << 24}},
          {"--batch", "N", "sequences in a step (not given: 24, rounded up to a multiple of dp x ep x micro-batches)",
           IntegerValue{&O::batch, 1, 1 << 24}},
          {"--micro-batches", "N", "micro-batches in a step", IntegerValue{&O::micro_batches, 1, 1 << 20}}}},
        {"the model",
         {{"--layers", "N", "transformer layers", IntegerValue{&O::layers, 1, 1 << 16}},
          {"--hidden", "N", "width of the residual stream", IntegerValue{&O::hidden, 2, 1 << 20}},
          {"--heads", "N", "attention heads", IntegerValue{&O::heads, 1, 1 << 14}},
          {"--kv-heads", "N", "heads of keys and values (not given: as many as heads)",
           IntegerValue{&O::kv_heads, 1, 1 << 14}},
          {"--ffn", "N", "width of the feed-forward network, or of each expert", IntegerValue{&O::ffn, 1, 1 << 22}},
          {"--experts", "N", "experts in an MoE layer; 0: a dense model", IntegerValue{&O::experts, 0, 1 << 14}},
          {"--top-k", "N", "experts that a token goes to", IntegerValue{&O::top_k, 1, 1 << 14}},
          {"--moe-every", "N", "every N-th layer is an MoE layer", IntegerValue{&O::moe_every, 1, 1 << 16}},
          {"--tie-embeddings", "", "one matrix for the embedding and the output", Switch{&O::tie_embeddings}}}},
        {"training",
         {{"--steps", "N", "optimizer steps", IntegerValue{&O::steps, 0, many}},
          {"--lr", "X", "peak learning rate", RealValue{&O::lr, 0, 1e6}},
          {"--warmup", "N", "steps of linear warm-up, before a cosine decay", IntegerValue{&O::warmup, 0, many}},
          {"--weight-decay", "X", "decoupled weight decay", RealValue{&O::weight_decay, 0, 1e6}},
          {"--clip", "X", "largest global norm of the gradient; 0: any", RealValue{&O::clip, 0, 1e6}},
          {"--aux-coef", "X", "weight of the load-balancing loss", RealValue{&O::aux_coef, 0, 1e6}},
          {"--z-coef", "X", "weight of the router's z-loss", RealValue{&O::z_coef, 0, 1e6}},
          {"--seed", "N", "of parameters, data and samples", IntegerValue{&O::seed, 0, any}},
          {"--dtype", "f64|f32|bf16", "number format (bf16 keeps f32 master weights)",
           ChoiceValue{&O::dtype, {"f64", "f32", "bf16"}}},
          {"--recompute", "", "keep only the inputs of layers, and compute the rest again in the backward",
           Switch{&O::recompute}}}},
        {"output",
         {{"--log", "FILE", "one JSON object a step", TextValue{&O::log}},
          {"--dump-weights", "DIR", "model.safetensors and config.json of the final weights, into a folder that exists",
           TextValue{&O::dump_weights}},
          {"--trace", "FILE", "a timeline for ui.perfetto.dev", TextValue{&O::trace}},
          {"--sample", "N", "bytes to sample from the model at the end", IntegerValue{&O::sample, 0, 1 << 20}},
          {"--prompt", "TEXT", "what the sample goes on from", TextValue{&O::prompt}},
          {"--quiet", "", "print nothing but errors", Switch{&O::quiet}}}},
    };
}

template <class... Cases>
struct Overloaded : Cases... {
    using Cases::operator()...;
};

std::string real_text(double value) {
    std::array<char, 32> text{};
    auto const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
    return {text.data(), end};
}

/// The whole of a text as a number. What is too large for the type becomes its limit, which every flag refuses.
std::optional<std::int64_t> integer_of(std::string_view text) {
    std::int64_t value = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range)
        return text.front() == '-' ? std::numeric_limits<std::int64_t>::min() : any;
    return value;
}
std::optional<double> real_of(std::string_view text) {
    double value = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) return std::numeric_limits<double>::quiet_NaN();
    return value;
}

std::string joined(std::span<std::string_view const> words) {
    std::string text;
    for (auto const word : words) text += (text.empty() ? "" : ", ") + std::string(word);
    return text;
}

std::string range_reason(Flag const& flag, std::string_view given, std::string const& least, std::string const& most) {
    return std::string(flag.name) + " " + std::string(given) + " is not between " + least + " and " + most;
}

/// Reads one command line.
class Parser {
  public:
    explicit Parser(int ranks) : ranks_(ranks) {}

    ParseResult run(std::span<char const* const> arguments) {
        for (std::size_t i = 0; i < arguments.size(); ++i) {
            std::string_view argument = arguments[i];
            if (argument == "--help" || argument == "-h") return {{}, help(), {}};
            std::optional<std::string_view> value;
            if (auto const equals = argument.find('='); argument.starts_with("--") && equals != argument.npos) {
                value = argument.substr(equals + 1);
                argument = argument.substr(0, equals);
            }
            Flag const* const flag = find_flag(argument);
            if (flag == nullptr) return {{}, {}, unknown(argument)};
            if (std::holds_alternative<Switch>(flag->value)) {
                if (value)
                    return {{},
                            {},
                            std::string(argument) + " takes no value, and was given " + std::string(*value) + ": try " +
                                std::string(argument)};
            } else if (!value && i + 1 < arguments.size() && !std::string_view(arguments[i + 1]).starts_with("--")) {
                value = arguments[++i];
            }
            bool const repeated = std::find(given_.begin(), given_.end(), flag) != given_.end();
            given_.push_back(flag);
            if (repeated && !std::holds_alternative<ListValue>(flag->value))
                complain(*flag, std::string(argument) + " is given twice");
            else
                set(*flag, value.value_or(""));
        }
        complete_mesh();
        follow(options_);
        if (auto sentence = conclude(options_, complaint_, ranks_); !sentence.empty())
            return {{}, {}, std::move(sentence)};
        return {std::move(options_), {}, {}};
    }

  private:
    static std::string unknown(std::string_view argument) {
        if (!argument.starts_with("-")) return "'" + std::string(argument) + "' belongs to no flag (--help lists them)";
        std::vector<std::string_view> names{"--help"};
        for (FlagGroup const& group : flag_groups())
            for (Flag const& flag : group.flags) names.push_back(flag.name);
        return "there is no flag " + std::string(argument) + ": did you mean " +
               std::string(nearest_word(argument, names)) + "? (--help lists them)";
    }

    /// The first thing that is wrong is what will be said; all of it is mended in what will be suggested. The flag
    /// stays at its default, or near what was meant, from where conclude() looks for what works.
    void complain(Flag const& flag, std::string reason) {
        if (complaint_.reason.empty()) complaint_.reason = std::move(reason);
        complaint_.change(flag.name);
    }

    void set(Flag const& flag, std::string_view text) {
        std::string const named = std::string(flag.name) + " " + std::string(text);
        bool const is_switch = std::holds_alternative<Switch>(flag.value);
        if (text.empty() && !is_switch) {
            if (flag.shown == "FILE" || flag.shown == "DIR" || flag.shown == "TEXT") // no value of ours would be right
                complaint_.reason = complaint_.reason.empty()
                                        ? std::string(flag.name) + " needs a value, " + std::string(flag.shown)
                                        : complaint_.reason;
            else
                complain(flag, std::string(flag.name) + " needs a value, " + std::string(flag.shown));
            return;
        }
        std::visit(
            Overloaded{
                [&](IntegerValue const& target) {
                    auto const value = integer_of(text);
                    if (!value)
                        complain(flag, named + " is not a whole number");
                    else if (*value < target.least || *value > target.most)
                        out_of_range(flag, target, text, *value);
                    else
                        options_.*target.member = *value;
                    if (target.member == &Options::batch) options_.batch_given = value.has_value();
                    if (target.member == &Options::kv_heads) options_.kv_heads_given = value.has_value();
                },
                [&](OptionalIntegerValue const& target) {
                    auto const value = integer_of(text);
                    options_.*target.member = std::clamp(value.value_or(target.least), target.least, target.most);
                    if (!value)
                        complain(flag, named + " is not a whole number");
                    else if (*value != options_.*target.member)
                        complain(flag,
                                 range_reason(flag, text, std::to_string(target.least), std::to_string(target.most)));
                },
                [&](RealValue const& target) {
                    auto const value = real_of(text);
                    if (!value)
                        complain(flag, named + " is not a number");
                    else if (!(*value >= target.least && *value <= target.most))
                        complain(flag, range_reason(flag, text, real_text(target.least), real_text(target.most)));
                    else
                        options_.*target.member = *value;
                },
                [&](ChoiceValue const& target) {
                    bool const known =
                        std::find(target.choices.begin(), target.choices.end(), text) != target.choices.end();
                    options_.*target.member = known ? text : nearest_word(text, target.choices);
                    if (!known) complain(flag, named + " is none of " + joined(target.choices));
                },
                [&](OnOffValue const& target) {
                    options_.*target.member = text == "on";
                    if (text != "on" && text != "off") complain(flag, named + " is none of on, off");
                },
                [&](TextValue const& target) { options_.*target.member = text; },
                [&](ListValue const& target) { (options_.*target.member).emplace_back(text); },
                [&](MeshValue) { mesh_ = text; },
                [&](Switch const& target) { options_.*target.member = true; },
            },
            flag.value);
    }

    /// Too small a number is taken as the least; one beyond all bounds as nothing, since just within the bounds is not
    /// what anyone would want.
    void out_of_range(Flag const& flag, IntegerValue const& target, std::string_view text, std::int64_t value) {
        complain(flag, range_reason(flag, text, std::to_string(target.least), std::to_string(target.most)));
        if (value < target.least) options_.*target.member = target.least;
    }

    /// Reads --mesh as far as it makes sense, so that what is suggested stays close to what was meant.
    void complete_mesh() {
        Flag const& flag = *find_flag("--mesh");
        auto const named = [&](std::string_view axis) {
            return std::any_of(options_.mesh.begin(), options_.mesh.end(),
                               [&](MeshAxis const& known) { return known.name == axis; });
        };
        std::string_view rest = mesh_;
        while (!rest.empty()) {
            auto const comma = std::min(rest.find(','), rest.size());
            std::string_view const item = rest.substr(0, comma);
            bool const trailing = comma + 1 == rest.size();
            rest.remove_prefix(std::min(comma + 1, rest.size()));
            auto const equals = item.find('=');
            auto const extent = equals == item.npos ? std::nullopt : integer_of(item.substr(equals + 1));
            std::string_view axis = item.substr(0, equals);
            if (!extent || trailing) complain(flag, "--mesh " + mesh_ + " is not a list of AXIS=EXTENT");
            if (std::find(std::begin(axis_names), std::end(axis_names), axis) == std::end(axis_names)) {
                complain(flag, "--mesh " + mesh_ + " names the axis '" + std::string(axis) + "', which is none of " +
                                   joined(axis_names));
                std::vector<std::string_view> left;
                std::copy_if(std::begin(axis_names), std::end(axis_names), std::back_inserter(left),
                             [&](auto name) { return !named(name); });
                if (left.empty()) continue;
                axis = nearest_word(axis, left);
            }
            if (named(axis)) {
                complain(flag, "--mesh " + mesh_ + " names the axis " + std::string(axis) + " twice");
                continue;
            }
            std::int64_t const size = extent.value_or(1);
            if (size < 1)
                complain(flag, "--mesh " + mesh_ + " gives " + std::string(axis) + " the extent " +
                                   std::to_string(size) + ", which is not positive");
            options_.mesh.push_back({std::string(axis), std::clamp(size, std::int64_t{1}, many)});
        }
        if (mesh_.empty()) options_.mesh.push_back({"dp", ranks_});
        for (auto const axis : axis_names)
            if (!named(axis)) options_.mesh.push_back({std::string(axis), 1});
    }

    static std::string help() {
        std::string text = "Trains a language model on text, over a mesh of MPI ranks.\n\n"
                           "  mpiexec -n N train_lm [flags]\n";
        Options defaults;
        for (FlagGroup const& group : flag_groups()) {
            text += "\n" + std::string(group.heading) + ":\n";
            for (Flag const& flag : group.flags) {
                std::string line =
                    "  " + std::string(flag.name) + (flag.shown.empty() ? "" : " ") + std::string(flag.shown);
                line.resize(std::max<std::size_t>(line.size() + 1, 30), ' ');
                text += line + std::string(flag.help);
                auto const value = value_text(flag, defaults);
                bool const said =
                    flag.help.find("default:") != flag.help.npos || flag.help.find("not given:") != flag.help.npos;
                if (!said && !value.empty()) text += " (default " + value + ")";
                text += "\n";
            }
        }
        return text + "\n  --help                      this text\n";
    }

    int ranks_;
    Options options_;
    std::string mesh_;
    Complaint complaint_;
    std::vector<Flag const*> given_;
};

} // namespace

std::span<FlagGroup const> flag_groups() {
    static std::vector<FlagGroup> const groups = make_flag_groups();
    return groups;
}

Flag const* find_flag(std::string_view name) {
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (flag.name == name) return &flag;
    return nullptr;
}

Flag const& flag_of(Integer member) {
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (auto const* value = std::get_if<IntegerValue>(&flag.value); value != nullptr && value->member == member)
                return flag;
    std::abort(); // every whole number has a flag
}

std::string value_text(Flag const& flag, Options const& options) {
    return std::visit(Overloaded{
                          [&](IntegerValue const& target) { return std::to_string(options.*target.member); },
                          [&](OptionalIntegerValue const& target) {
                              auto const& value = options.*target.member;
                              return value ? std::to_string(*value) : "";
                          },
                          [&](RealValue const& target) { return real_text(options.*target.member); },
                          [&](ChoiceValue const& target) { return options.*target.member; },
                          [&](OnOffValue const& target) { return std::string(options.*target.member ? "on" : "off"); },
                          [&](TextValue const& target) { return options.*target.member; },
                          [&](MeshValue) { return mesh_text(options.mesh); },
                          [&](ListValue const&) { return std::string(); },
                          [&](Switch const&) { return std::string(); },
                      },
                      flag.value);
}

std::string mesh_text(std::span<MeshAxis const> mesh) {
    std::string text;
    for (auto const& [name, extent] : mesh)
        if (extent != 1) text += (text.empty() ? "" : ",") + name + "=" + std::to_string(extent);
    return text.empty() ? "dp=1" : text;
}

std::string_view nearest_word(std::string_view word, std::span<std::string_view const> candidates) {
    auto const distance = [&](std::string_view other) { // edits: letters put in, left out or exchanged
        std::vector<std::size_t> row(other.size() + 1);
        std::iota(row.begin(), row.end(), std::size_t{0});
        for (std::size_t i = 0; i < word.size(); ++i) {
            std::size_t diagonal = std::exchange(row[0], i + 1);
            for (std::size_t j = 0; j < other.size(); ++j)
                diagonal = std::exchange(
                    row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (word[i] == other[j] ? 0 : 1)}));
        }
        return row.back();
    };
    return *std::min_element(candidates.begin(), candidates.end(),
                             [&](auto a, auto b) { return distance(a) < distance(b); });
}

std::int64_t Options::extent(std::string_view axis) const {
    for (MeshAxis const& known : mesh)
        if (known.name == axis) return known.extent;
    return 1;
}

std::int64_t Options::batch_divisor() const { return product({extent("dp"), extent("ep"), micro_batches}); }

void follow(Options& options) {
    if (!options.kv_heads_given) options.kv_heads = options.heads;
    if (!options.batch_given) {
        std::int64_t const divisor = std::max<std::int64_t>(options.batch_divisor(), 1);
        options.batch = product({(Options{}.batch - 1) / divisor + 1, divisor});
    }
}

ParseResult parse(int argc, char const* const* argv, int ranks) {
    std::span const arguments(argv, static_cast<std::size_t>(argc));
    return Parser(ranks).run(arguments.subspan(std::min<std::size_t>(1, arguments.size())));
}

} // namespace train_lm
