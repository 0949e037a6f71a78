#include "options.hpp"

#include "command_line.hpp"

#include <pentad/mesh/nearest_word.hpp>
#include <pentad/mesh/number.hpp>
#include <pentad/program/exit_status.hpp>
#include <pentad/report/strategy_flags.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

namespace pentad_generate {

namespace {

using pentad::Strategy;
using pentad::program::BadInput;

/// The flags of a strategy that say how a model lies on its ranks while it writes.
constexpr std::array<std::string_view, 6> strategy_flags{"--dtype",   "--zero",      "--zero-keep",
                                                         "--tp-kind", "--row-dtype", "--sequence-parallel"};

/// "dp=1,tp=2": extents and the order of the axes.
void set_mesh(Strategy& strategy, std::string const& text) {
    std::map<std::string_view, std::int64_t Strategy::*> const extents{{"dp", &Strategy::dp},
                                                                       {"pp", &Strategy::pp},
                                                                       {"ep", &Strategy::ep},
                                                                       {"cp", &Strategy::cp},
                                                                       {"tp", &Strategy::tp}};
    std::vector<std::string_view> names, order;
    for (auto const& [name, extent] : extents) names.push_back(name);
    std::istringstream items(text);
    for (std::string item; std::getline(items, item, ',');) {
        auto const equals = std::min(item.find('='), item.size());
        auto const name = std::string_view(item).substr(0, equals);
        auto const extent =
            pentad::number_in<std::int64_t>(std::string_view(item).substr(std::min(equals + 1, item.size())));
        auto const found = extents.find(name);
        if (found == extents.end())
            throw BadInput("--mesh " + text + " names the axis '" + std::string(name) + "': did you mean " +
                           std::string(pentad::nearest_word(name, names)) + "?");
        if (!extent || *extent < 1)
            throw BadInput("--mesh " + text + " is not a list of AXIS=EXTENT, such as dp=1,tp=2");
        if (std::find(order.begin(), order.end(), found->first) != order.end())
            throw BadInput("--mesh " + text + " names the axis " + std::string(name) + " twice");
        strategy.*found->second = *extent;
        order.push_back(found->first);
    }
    for (auto const axis : pentad::axis_order)
        if (std::find(order.begin(), order.end(), axis) == order.end()) order.push_back(axis);
    for (std::size_t i = 0; i < order.size(); ++i)
        strategy.order[i] = *std::find(pentad::axis_order.begin(), pentad::axis_order.end(), order[i]);
}

} // namespace

Parsed parse(int argc, char const* const* argv, int ranks) {
    using command_line::whole_number;
    constexpr std::int64_t many = std::int64_t{1} << 30;
    Options o;
    o.strategy.element = pentad::model::Element::f32;
    o.strategy.dp = ranks;
    std::string mesh;
    CLI::App app("Writes texts by a language model, over a mesh of MPI ranks.", "mpiexec -n N pentad_generate");
    app.add_option("--model", o.model,
                   "folder with config.json and safetensors, as train_lm --dump-weights and Hugging Face have it, or a "
                   "checkpoint of train_lm")
        ->required();
    app.add_option(
           "--prompts", o.prompts,
           "file, or - for standard input: an object of JSON on each line, {\"prompt\": TEXT} or {\"tokens\": "
           "[...]}, which may have max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, stop, "
           "stop_tokens, log_probabilities, priority and id of its own")
        ->required();
    app.add_flag("--text", o.as_text, "each line of --prompts is a prompt");
    app.add_option("--mesh", mesh, "extents of dp, pp, ep, cp and tp, such as dp=1,tp=4 (default: dp = the ranks)");
    for (auto const name : strategy_flags) {
        auto const& row = pentad::report::strategy_flag(name);
        app.add_option_function<std::string>(
               std::string(name),
               [&o, &row](std::string const& text) {
                   if (!pentad::report::set_flag(o.strategy, row, text))
                       throw CLI::ValidationError(std::string(row.flag),
                                                  text + " is none of " + std::string(row.shown));
               },
               pentad::report::flag_help(row))
            ->option_text(std::string(row.shown) + " (default: " + pentad::report::flag_value(o.strategy, row) + ")");
    }
    auto const number = [&](char const* name, std::size_t& value, std::int64_t least, char const* help) {
        app.add_option(name, value, help)->capture_default_str()->check(whole_number(least, many));
    };
    number("--max-tokens", o.max_tokens, 1, "tokens that follow a prompt at most");
    app.add_option("--temperature", o.how.temperature, "logits are divided by it; 0: the likeliest token")
        ->capture_default_str();
    number("--top-k", o.how.top_k, 0, "of the likeliest K tokens alone; 0: of all");
    app.add_option("--top-p", o.how.top_p, "of the likeliest tokens whose probabilities add up to P")
        ->capture_default_str();
    app.add_option("--min-p", o.how.min_p, "of the tokens with at least P times the largest probability")
        ->capture_default_str();
    app.add_option("--repetition-penalty", o.how.repetition_penalty, "on tokens that are there already; 1: none")
        ->capture_default_str();
    app.add_option("--seed", o.how.seed, "of the draws")->capture_default_str();
    number("--log-probabilities", o.how.log_probabilities, 0, "of each token, and of the likeliest N in its place");
    app.add_option("--stop", o.stops, "text that ends a text, and is left out; may be given again");
    app.add_flag("--ignore-end", o.goes_on, "go on behind the model's own end of a text");
    number("--sequences", o.sequences, 1, "texts that are written at once at most");
    number("--length", o.length, 0, "tokens of a prompt and what follows it at most; 0: what the model is made for");
    number("--pass-tokens", o.pass_tokens, 1, "tokens of a pass at most: long prompts are read in parts");
    number("--page", o.page, 1, "tokens in a row whose keys and values one rank of cp keeps");
    app.add_flag("--quiet", o.quiet, "say nothing about speed");
    try {
        app.parse(argc, argv);
    } catch (CLI::CallForHelp const&) {
        return {{}, app.help()};
    } catch (CLI::ParseError const& error) {
        throw BadInput(error.what());
    }
    if (!mesh.empty()) {
        o.strategy.dp = 1;
        set_mesh(o.strategy, mesh);
    }
    auto const& s = o.strategy;
    if (std::int64_t const all = s.dp * s.pp * s.ep * s.cp * s.tp; all != ranks)
        throw BadInput("--mesh " + (mesh.empty() ? "of dp alone" : mesh) + " is of " + std::to_string(all) +
                       " ranks on " + std::to_string(ranks) + ": start it with mpiexec -n " + std::to_string(all));
    if (auto const why = o.how.refusal(); !why.empty()) throw BadInput(why);
    return {o, ""};
}

} // namespace pentad_generate
