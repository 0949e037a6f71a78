#include "options.hpp"

#include "flags.hpp"

#include <pentad/io/distinct_files.hpp>
#include <pentad/io/hardware_file.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/mesh/nearest_word.hpp>
#include <pentad/mesh/number.hpp>
#include <pentad/mesh/one_line.hpp>
#include <pentad/model/presets.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/hardware_presets.hpp>
#include <pentad/report/blocks_flag.hpp>
#include <pentad/report/field_flags.hpp>
#include <pentad/report/plan_text.hpp>
#include <pentad/train/planned.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>
#include <sstream>
#include <string_view>
#include <vector>

namespace pentad_plan {

namespace {

using Task = Options::Task;
constexpr std::int64_t many = 1'000'000'000;

std::int64_t whole(std::string const& flag, std::string const& text, std::int64_t least, std::int64_t most) {
    auto const value = number_in<std::int64_t>(text);
    if (!value || *value < least || *value > most)
        refuse(flag + " " + text + " is not a whole number from " + std::to_string(least) + " to " +
               std::to_string(most));
    return *value;
}
double real(std::string const& flag, std::string const& text) {
    auto const value = number_in<double>(text);
    if (!value || !(*value > 0) || *value > 1e9)
        refuse(flag + " " + text + " is not a number above 0, at most 1000000000");
    return *value;
}
double real(std::string const& flag, std::string const& text, double least, double most) {
    auto const value = number_in<double>(text);
    if (!value || !(*value >= least) || *value > most)
        refuse(flag + " " + text + " is not a number from " + report::exact(least) + " to " + report::exact(most));
    return *value;
}
constexpr std::array<std::string_view, 2> off_and_on{"off", "on"};
/// The index of a word among those that a flag takes.
std::size_t choice(std::string const& flag, std::string const& text, std::span<std::string_view const> words) {
    auto const found = std::find(words.begin(), words.end(), text);
    if (found == words.end())
        refuse(flag + " " + text + " is unknown: did you mean " + std::string(nearest_word(text, words)) + "?");
    return static_cast<std::size_t>(found - words.begin());
}
/// "dp=4,tp=2": the axes that it names, of these, in any order.
Extents extents(std::string const& flag, std::string const& text,
                std::span<std::string_view const> axes = pentad::axis_order) {
    Extents given;
    std::istringstream items(text + ",");
    for (std::string item; std::getline(items, item, ',');) {
        auto const equals = item.find('=');
        if (equals == item.npos) refuse(flag + " " + text + " is not a list of AXIS=EXTENT, as in dp=4,pp=2");
        auto const axis = item.substr(0, equals);
        choice(flag + " " + text + ": axis", axis, axes);
        if (given.contains(axis)) refuse(flag + " " + text + " names " + axis + " twice");
        given[axis] = whole(flag + " " + axis + " =", item.substr(equals + 1), 1, many);
    }
    return given;
}
template <class Presets>
auto const& preset(std::string const& flag, std::string const& name, Presets const& presets) {
    if (auto const* found = planner::detail::preset_named(presets, name)) return *found;
    std::vector<std::string_view> names;
    for (auto const& one : presets) names.push_back(one.name);
    refuse(flag + " " + name + " is unknown: did you mean " + std::string(nearest_word(name, names)) +
           "? (--list shows all)");
}

/// Reads one command line.
class Parser {
  public:
    explicit Parser(std::optional<planner::Hardware> const& measured)
        : measured_(measured),
          app_("Plans the training, or the serving, of a model on a machine: which mesh, how the batch is cut, what is "
               "sharded, kept or computed again.",
               "pentad_plan") {
        app_.allow_extras(); // refused below, with what was meant
        for (auto const& [heading, flags] : flag_groups())
            for (auto const& [name, shown, help] : flags) {
                auto* const added = shown.empty() ? app_.add_flag(name, help)
                                                  : app_.add_option(name, values_[name], help)->option_text(shown);
                added->group(heading);
                names_.push_back(name);
            }
    }

    Options run(int argc, char const* const* argv) {
        Options o;
        for (int i = 1; i < argc; ++i) { // CLI11 takes --json=off for --json
            std::string const argument = argv[i], name = argument.substr(0, argument.find('='));
            bool const is_switch =
                std::find(names_.begin(), names_.end(), name) != names_.end() && !values_.contains(name);
            if (is_switch && name != argument)
                refuse(name + " takes no value, and was given " + argument.substr(name.size() + 1));
        }
        try {
            app_.parse(argc, argv);
        } catch (CLI::CallForHelp const&) {
            o.help = app_.help();
            return o;
        } catch (CLI::ParseError const& error) {
            refuse(error.what());
        }
        if (app_.remaining_size() > 0) unknown(app_.remaining().front());
        choose_task(o);
        check_files();
        if (o.task == Task::list) return o;
        if (o.task != Task::write_hardware) read_model(o);
        read_hardware(o);
        if (o.task == Task::write_hardware) return o;
        read_numbers(o);
        use_devices(o);
        return o;
    }

  private:
    [[nodiscard]] bool has(std::string const& name) const { return app_.count(name) > 0; }
    [[nodiscard]] std::string const& text(std::string const& name) const { return values_.at(name); }

    [[noreturn]] void unknown(std::string const& argument) const {
        if (!argument.starts_with("-")) refuse("'" + argument + "' belongs to no flag (--help lists them)");
        std::vector<std::string_view> const names(names_.begin(), names_.end());
        auto const name = argument.substr(0, argument.find('='));
        refuse("there is no flag " + name + ": did you mean " + std::string(nearest_word(name, names)) +
               "? (--help lists them)");
    }

    /// What is done, and that no flag is given that has no meaning there.
    void choose_task(Options& o) {
        struct Kind {
            char const* flag;
            Task task;
            std::vector<std::string> flags;
        };
        using Names = std::vector<std::string>;
        auto const joined = [](std::initializer_list<Names> lists) {
            Names all;
            for (auto const& list : lists) all.insert(all.end(), list.begin(), list.end());
            return all;
        };
        auto const machine = joined({flags_under("the machine"), flags_under("the model"), {"--dtype"}});
        auto training = joined({machine, flags_under("training"), flags_under("what is given"), {"--types"}});
        std::erase(training, "--mesh"); // a single plan has all of it in its own flag
        auto const plan = flags_under("what else one plan has");
        std::array const kinds{
            Kind{"--list", Task::list, {}},
            Kind{"--hardware-out", Task::write_hardware, flags_under("the machine")},
            Kind{"--evaluate", Task::evaluate, joined({training, plan, {"--json"}})},
            Kind{"--explain", Task::explain, joined({training, plan})},
            Kind{"--serve", Task::serve, joined({machine, flags_under("serving"), {"--mesh", "--top", "--json"}})},
            Kind{"", Task::search, joined({training, {"--mesh", "--top", "--svg", "--json"}})},
        };
        auto const& kind = *std::find_if(kinds.begin(), kinds.end() - 1, [&](Kind const& x) { return has(x.flag); });
        o.task = kind.task;
        for (auto const& name : names_) {
            if (!has(name) || name == kind.flag) continue;
            if (std::find(kind.flags.begin(), kind.flags.end(), name) != kind.flags.end()) continue;
            if (o.task != Task::search) refuse(name + " has no meaning with " + kind.flag);
            bool const of_plan = std::find(plan.begin(), plan.end(), name) != plan.end();
            refuse(name + (of_plan ? " is for --evaluate and --explain" : " is for --serve"));
        }
        o.json = has("--json");
        o.types = has("--types");
        if (o.json && o.types) refuse("--json and --types are two answers: ask for one");
        o.top = has("--top") ? static_cast<std::size_t>(whole("--top", text("--top"), 1, 1000)) : 5;
        if (has("--svg")) o.svg = text("--svg");
        if (has("--hardware-out")) o.hardware_out = text("--hardware-out");
        if (has("--mesh")) o.mesh = extents("--mesh", text("--mesh"));
        for (auto const* name : {"--evaluate", "--explain"})
            if (has(name)) o.mesh = extents(name, text(name));
    }
    /// The files that are named, before any is opened: no two of them are one, and outputs can be written.
    void check_files() const {
        std::vector<io::FlagFile> files;
        if (has("--model-json")) files.push_back({"--model-json", io::config_path(text("--model-json")), false});
        if (has("--hardware-json")) files.push_back({"--hardware-json", text("--hardware-json"), false});
        for (auto const* output : {"--hardware-out", "--svg"})
            if (has(output)) files.push_back({output, text(output), true});
        if (auto const why = io::refusal_of(files)) refuse(*why);
        for (auto const& file : files)
            if (file.is_output) io::check_writable(file.path);
    }
    void one_of(std::string const& a, std::string const& b) const {
        if (has(a) == has(b))
            refuse(has(a) ? a + " and " + b + " are both given: give one" : "give " + a + " NAME or " + b + " FILE");
    }
    void read_model(Options& o) {
        one_of("--model", "--model-json");
        auto const chosen = has("--model") ? preset("--model", text("--model"), model::presets())
                                           : io::read_model(text("--model-json"));
        if (has("--model-json")) o.model_file = text("--model-json");
        o.request.model = train::planned_model(chosen.model, chosen.name.empty() ? text("--model-json") : chosen.name);
        if (!has("--expert-imbalance")) return;
        if (o.request.model.experts() == nullptr)
            refuse("--expert-imbalance: " + o.request.model.name + " has no experts");
        o.request.model.imbalance = real("--expert-imbalance", text("--expert-imbalance"));
        if (o.request.model.imbalance < 1)
            refuse("--expert-imbalance " + text("--expert-imbalance") +
                   " is below 1: the fullest rank has the mean, or more");
    }
    void read_hardware(Options& o) {
        if (measured_) {
            for (auto const* other : {"--hardware", "--hardware-json", "--devices"})
                if (has(other)) refuse(std::string(other) + " has no meaning with --measure: devices are the ranks");
            o.request.hardware = *measured_;
            return;
        }
        if (!has("--hardware") && !has("--hardware-json"))
            refuse("give --hardware NAME, --hardware-json FILE, or --measure");
        one_of("--hardware", "--hardware-json");
        o.request.hardware = has("--hardware") ? preset("--hardware", text("--hardware"), planner::machines())
                                               : io::read_hardware(text("--hardware-json"));
        if (o.request.hardware.name.empty()) o.request.hardware.name = one_line(text("--hardware-json"));
        if (has("--devices"))
            o.request.hardware =
                planner::with_devices(o.request.hardware, whole("--devices", text("--devices"), 1, many));
    }
    /// The devices of one plan are the product of its axes.
    void use_devices(Options& o) const {
        double product = 1;
        for (auto const& [axis, extent] : o.mesh) product *= static_cast<double>(extent);
        bool const is_plan = o.task == Task::evaluate || o.task == Task::explain;
        auto const devices = static_cast<double>(o.request.hardware.devices);
        std::string const of_plan =
            "the mesh has " + std::to_string(static_cast<std::int64_t>(std::min(product, 1e18))) + " ranks, ";
        if (!is_plan) {
            if (product > devices || std::fmod(devices, product) != 0)
                refuse(of_plan + "which do not divide the " + std::to_string(o.request.hardware.devices) +
                       " devices: give --devices");
            return;
        }
        if (has("--devices") && product != devices) refuse(of_plan + "and --devices says " + text("--devices"));
        if (product <= devices) return;
        auto const& links = o.request.hardware.links;
        if (links.empty() || static_cast<double>(links.back().devices) < product)
            refuse(of_plan + "and " + o.request.hardware.name + " joins " +
                   std::to_string(links.empty() ? 1 : links.back().devices) +
                   " devices: give --devices, or a larger last link");
        o.request.hardware.devices = static_cast<std::int64_t>(product);
    }
    /// Takes a field of the strategy from its flag: a search keeps it.
    void read_field(planner::Request& request, report::StrategyFlag const& flag) const {
        std::string const name(flag.flag), given = flag.shown.empty() ? "on" : text(name);
        report::with_field(request.given, flag.field, [&]<class T>(T& member) {
            if constexpr (std::is_same_v<T, bool>)
                member = choice(name, given, off_and_on) == 1;
            else if constexpr (std::is_integral_v<T>)
                member = static_cast<T>(
                    whole(name, given, static_cast<std::int64_t>(flag.least), static_cast<std::int64_t>(flag.most)));
            else if constexpr (std::is_floating_point_v<T>)
                member = real(name, given, flag.least, flag.most);
            else if constexpr (HasWords<T>)
                member = static_cast<T>(choice(name, given, report::flag_words<T>()));
            else if constexpr (std::is_same_v<T, std::string>) // a schedule
                member = pipeline::generators[choice(name, given, pipeline::schedule_names)].name;
        });
        if (flag.field == "precision.rows" && request.model.experts() == nullptr)
            refuse(name + " is of experts, and " + request.model.name + " has none: leave it out");
        bool const is_open = flag.field == "chunks" && request.given.chunks == 0; // as few as there can be
        if (!is_open) request.open.remove(flag.field);
    }
    void read_numbers(Options& o) {
        auto& request = o.request;
        auto& given = request.given;
        for (auto const& flag : report::strategy_flags)
            if (has_flag(flag) && has(std::string(flag.flag))) read_field(request, flag);
        for (auto const* const flag : {"--local-ranks", "--outer-lr", "--outer-momentum"})
            if (has(flag) && !given.local.is_on())
                refuse(std::string(flag) + " says nothing without --local-steps: leave it out");
        if (has("--chunks") && has("--schedule") && given.chunks > 0 &&
            !pipeline::find_generator(given.schedule)->takes_chunks(static_cast<int>(given.chunks)))
            refuse(pipeline::undefined(given.schedule,
                                       {.ranks = 2, .micro_batches = 4, .chunks = static_cast<int>(given.chunks)}));
        if (auto const lacking = train::element_refusal(given.element); !lacking.empty()) refuse("--dtype: " + lacking);
        if (has("--product-dtype"))
            given.fp8_products =
                choice("--product-dtype", text("--product-dtype"), std::array<std::string_view, 2>{"full", "fp8"}) == 1;
        if (given.fp8_products && given.element != planner::Element::bf16)
            refuse("--product-dtype fp8 is for --dtype bf16");
        if (given.fp8_products && request.hardware.peak_fp8 == 0)
            refuse("--product-dtype fp8: " + request.hardware.name +
                   " has no products in FP8 (peak_flops.fp8 of its JSON is 0): leave it out");
        auto const needed = [&](std::string const& name, std::int64_t most) {
            if (!has(name)) refuse("give " + name + " N");
            return whole(name, text(name), 1, most);
        };
        if (o.task == Task::serve) {
            o.prompt = needed("--prompt", 1 << 24);
            o.output = needed("--output", 1 << 24);
            if (has("--rate")) o.rate = real("--rate", text("--rate"));
            if (has("--ttft-p95-ms")) o.first_token_p95_s = real("--ttft-p95-ms", text("--ttft-p95-ms")) / 1e3;
            static constexpr std::array<std::string_view, 2> objectives{"throughput", "latency"};
            if (has("--objective"))
                o.objective =
                    static_cast<planner::ServingObjective>(choice("--objective", text("--objective"), objectives));
            if (o.extent("cp").value_or(1) != 1) refuse("--mesh: cp is 1 with --serve");
            return;
        }
        auto const size = [&](std::string const& name, std::string const& examples) {
            auto const bytes = report::bytes_in(text(name));
            if (!bytes) refuse(name + " " + text(name) + " is not a size such as " + examples);
            return *bytes;
        };
        if (!has("--seq")) refuse("give --seq N");
        given.batch = needed("--global-batch", 1 << 24);
        for (auto const& [axis, extent] : o.mesh)
            for_each_field<Strategy>([&]<class Member>(Field<Strategy, Member> const& field) {
                if constexpr (std::is_same_v<Member, std::int64_t>)
                    if (field.name == axis) request.keep(field.member, extent);
            });
        if (has("--micro-batch"))
            request.least_micro_batch = request.most_micro_batch =
                whole("--micro-batch", text("--micro-batch"), 1, 1 << 24);
        if (has("--optimizer")) {
            static std::array<std::pair<std::string_view, model::Optimizer>, 4> const known{
                {{"adamw", model::AdamW()}, {"sgd", model::Sgd()}, {"lion", model::Lion()}, {"muon", model::Muon()}}};
            std::vector<std::string_view> names;
            for (auto const& [name, optimizer] : known) names.push_back(name);
            given.optimizer = known[choice("--optimizer", text("--optimizer"), names)].second;
        }
        if (has("--offload"))
            given.offload =
                model::offload_of(model::offload_names[choice("--offload", text("--offload"), model::offload_names)]);
        if (has("--offload-window")) {
            if (!given.offload.optimizer && !given.offload.activations) refuse("--offload-window belongs to --offload");
            given.offload.window_bytes = static_cast<std::size_t>(size("--offload-window", "1GiB, 64MiB or 100000000"));
        }
        auto& recompute = given.recompute;
        using Kind = model::Recomputation::Kind;
        if (has("--recompute"))
            recompute.kind = static_cast<Kind>(
                choice("--recompute", text("--recompute"), std::span(model::recomputation_names).first(4)));
        if (has("--recompute")) request.open.remove(&Strategy::recompute);
        auto const kind = recompute.kind;
        if (has("--recompute-every") && kind != Kind::selective && kind != Kind::full)
            refuse("--recompute-every belongs to --recompute selective or full");
        if (has("--memory-limit")) {
            auto const limit = size("--memory-limit", "60GiB, 500MiB or 1000000000");
            request.hardware.memory_bytes = std::min(request.hardware.memory_bytes, limit);
        }
        if (has("--recompute-parts")) {
            if (kind != Kind::selective) refuse("--recompute-parts belongs to --recompute selective");
            auto const pieces = model::pieces_of(text("--recompute-parts"));
            if (!pieces)
                refuse("--recompute-parts " + text("--recompute-parts") +
                       " is not a list of inputs, norms, activations, attention, rows");
            recompute.pieces = *pieces;
        }
        if (has("--expert-mesh")) read_expert_mesh(o);
        if (!given.precision.keeps_masters && given.element != planner::Element::bf16)
            refuse("--master-weights off is for --dtype bf16: other weights are updated as they are");
        if (has("--pair") &&
            choice("--pair", text("--pair"), std::array<std::string_view, 3>{"auto", "on", "off"}) > 0) {
            request.keep(&Strategy::pairs, text("--pair") == "on");
            auto const& schedule = given.schedule;
            if (given.pairs && has("--schedule") && !pipeline::find_generator(schedule)->has_pairs)
                refuse("--pair on and --schedule " + schedule +
                       ", which has no pairs, as dualpipe and dualpipe-v have");
        }
        if (has("--stages")) read_stages(o);
        given.block.zigzag = true;
        if (has("--zigzag"))
            request.keep(&model::BlockStrategy::zigzag, choice("--zigzag", text("--zigzag"), off_and_on) == 1);
        if (has("--zero"))
            if (auto const refused = given.sharding.refusal())
                refuse(report::in_flags(refused->why, [](std::string_view) { return true; }));
        if (has("--order")) read_order(o);
        if (has("--blocks")) {
            o.blocks = text("--blocks");
            if (!report::with_blocks(given, o.blocks)) refuse(report::no_list_of_blocks(o.blocks));
        }
        read_context(o);
    }

    /// Checks that do not need the nodes; choose_context() does the others.
    void read_context(Options& o) const {
        if (has("--cp")) {
            using Kind = model::ContextChoice::Kind;
            auto const kind = static_cast<Kind>(choice("--cp", text("--cp"), model::context_names));
            bool const is_of_heads = kind != Kind::ring && kind != Kind::all_gather && kind != Kind::automatic;
            if (is_of_heads && model::query_heads(o.request.model.description(), 1) == 0)
                refuse("--cp " + text("--cp") + ": " + o.request.model.name +
                       " has no attention that goes over cp so: give --cp ring or allgather");
            o.context = model::ContextChoice{.kind = kind};
        }
        auto given = o.context.value_or(model::ContextChoice());
        if (has("--cp-heads")) given.heads = whole("--cp-heads", text("--cp-heads"), 2, 1 << 16);
        if (has("--cp-inner")) given.inner = whole("--cp-inner", text("--cp-inner"), 2, 1 << 16);
        // Where cp is searched, one that both divide.
        auto const cp =
            o.extent("cp").value_or(std::max<std::int64_t>(given.heads, 1) * std::max<std::int64_t>(given.inner, 1));
        for (auto const& why : {given.refused_heads(cp), given.refused_inner(cp)})
            if (!why.empty()) refuse(why);
        if (o.context) o.context = given;
    }

    void read_stages(Options& o) const {
        auto& given = o.request.given;
        if (text("--stages") == "balanced") return o.request.keep(&Strategy::balances_stages, true);
        std::istringstream items(text("--stages") + ",");
        for (std::string item; std::getline(items, item, ',');) {
            auto const layers = number_in<std::int64_t>(item);
            if (!layers || *layers < 0 || *layers > many)
                refuse("--stages " + text("--stages") + " is neither a list of numbers nor balanced");
            given.stage_layers.push_back(*layers);
        }
    }

    void read_expert_mesh(Options& o) const {
        static constexpr std::array<std::string_view, 3> axes{"edp", "ep", "etp"};
        std::string const flag = "--expert-mesh";
        auto const given = extents(flag, text(flag), axes);
        auto const extent = [&](std::string const& axis) {
            auto const found = given.find(axis);
            return found == given.end() ? 1 : static_cast<int>(std::min<std::int64_t>(found->second, 1 << 20));
        };
        o.request.keep(&Strategy::experts, model::ExpertMesh{extent("ep"), extent("etp")});
        if (o.extent("ep").value_or(1) > 1)
            refuse(flag + " " + text(flag) + " and ep of the mesh both say where experts are: leave one of them out");
        if (!given.contains("edp")) return;
        std::int64_t const ranks = o.request.hardware.devices / o.extent("pp").value_or(1),
                           of_experts = std::int64_t{extent("edp")} * extent("ep") * extent("etp");
        if (of_experts != ranks)
            refuse(flag + " " + text(flag) + " is of " + std::to_string(of_experts) + " devices, and a stage has " +
                   std::to_string(ranks));
    }
    void read_order(Options& o) const {
        std::istringstream items(text("--order") + ",");
        for (std::string axis; std::getline(items, axis, ',');) {
            choice("--order " + text("--order") + ": axis", axis, pentad::axis_order);
            if (std::find(o.order.begin(), o.order.end(), axis) != o.order.end())
                refuse("--order " + text("--order") + " names " + axis + " twice");
            o.order.push_back(axis);
        }
        for (auto const& [axis, extent] : o.mesh)
            if (extent > 1 && std::find(o.order.begin(), o.order.end(), axis) == o.order.end())
                refuse("--order " + text("--order") + " does not name " + axis + ", which has " +
                       std::to_string(extent) + " ranks");
    }

    std::optional<planner::Hardware> measured_;
    CLI::App app_;
    std::vector<std::string> names_;
    std::map<std::string, std::string> values_;
};

} // namespace

Options parse(int argc, char const* const* argv, std::optional<planner::Hardware> const& measured) {
    return Parser(measured).run(argc, argv);
}

} // namespace pentad_plan
