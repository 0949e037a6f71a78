// Plans how a model is trained, or served, on a machine: the best meshes with their memory, time and bytes, the account
// of one, pictures, and C++ types to paste. See --help and docs/planner.md.
// Exit status: 0 done, 2 bad input (or nothing fits), 3 a file cannot be written or memory is short, 1 anything else.
#include "flags.hpp"
#include "options.hpp"

#include <pentad/comm/environment.hpp>
#include <pentad/comm/threads.hpp>
#include <pentad/io/hardware_file.hpp>
#include <pentad/model/presets.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/hardware_presets.hpp>
#include <pentad/program/ranks.hpp>
#include <pentad/report/field_flags.hpp>
#include <pentad/train/machine.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using namespace pentad_plan;

std::string presets() {
    std::string text = "models:";
    for (auto const& model : model::presets()) text += " " + model.name;
    text += "\nhardware:";
    for (auto const& machine : planner::machines()) text += " " + machine.name;
    text += "\nschedules:";
    for (auto const& generator : pipeline::generators) text += " " + std::string(generator.name);
    return text + "\n";
}

bool has_flag(std::string_view name) {
    auto const& groups = flag_groups();
    return std::any_of(groups.begin(), groups.end(), [&](FlagGroup const& group) {
        return std::any_of(group.flags.begin(), group.flags.end(), [&](Flag const& flag) { return flag.name == name; });
    });
}

std::string answer(Options const& o) {
    if (!o.help.empty()) return o.help;
    if (o.task == Options::Task::list) return presets();
    if (o.task == Options::Task::write_hardware) {
        io::write_hardware(o.hardware_out, o.request.hardware);
        return "";
    }
    std::optional<Kokkos::ScopeGuard> kokkos; // for dry runs, which need one thread
    if (!Kokkos::is_initialized())
        kokkos.emplace(Kokkos::InitializationSettings().set_num_threads(1).set_disable_warnings(true));
    try {
        switch (o.task) {
        case Options::Task::evaluate:
            return evaluate(o);
        case Options::Task::explain:
            return explain(o);
        case Options::Task::serve:
            return serve(o);
        default:
            return search(o);
        }
    } catch (std::invalid_argument const& error) { // in the words of the library
        throw std::invalid_argument(report::in_flags(error.what(), has_flag));
    }
}

} // namespace

// MPI is started where --measure needs it or a launcher has started several ranks, and nowhere else: on the login node
// of a cluster it may not be.
int main(int argc, char** argv) {
    auto const parsed = [&](std::optional<planner::Hardware> const& measured) {
        return program::with_files_of_user([&] { return parse(argc, argv, measured); });
    };
    auto const print_answer = [&](std::optional<planner::Hardware> const& measured) {
        std::fputs(answer(parsed(measured)).c_str(), stdout);
    };
    bool const measures = std::find(argv, argv + argc, std::string_view("--measure")) != argv + argc;
    if (!measures && !comm::environment::is_launched())
        return program::run_alone("pentad_plan", [&] {
            print_answer({});
            return program::done;
        });
    return program::run_on_ranks("pentad_plan", argc, argv, [&](program::Ranks const& ranks) {
        std::optional<planner::Hardware> measured;
        std::optional<Kokkos::ScopeGuard> kokkos;
        if (measures) {
            // What is wrong is said before the measurement, and help needs none.
            planner::Hardware const any{.name = "any", .devices = ranks.size(), .devices_per_node = ranks.size()};
            bool is_needed = true;
            ranks.on_all([&] { is_needed = parsed(any).help.empty(); });
            if (is_needed) {
                kokkos.emplace(comm::kokkos_settings());
                measured = pentad::train::measured_machine(Kokkos::DefaultExecutionSpace());
            }
        }
        ranks.on_first([&] { print_answer(measured); });
        return program::done;
    });
}
