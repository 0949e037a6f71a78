// Plans how a model is trained, or served, on a machine: the best meshes with their memory, time and bytes, the account
// of one, pictures, and C++ types to paste. See --help and docs/planner.md.
// Exit status: 0 done, 2 bad input (or nothing fits), 3 a file cannot be written or memory is short, 1 anything else.
#include "command_line.hpp"
#include "options.hpp"
#include "ranks.hpp"

#include <pentad/io/file.hpp>
#include <pentad/io/hardware_file.hpp>
#include <pentad/io/temporaries.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/hardware_presets.hpp>
#include <pentad/planner/model_presets.hpp>
#include <pentad/program/exit_status.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using namespace pentad_plan;

std::string presets() {
    std::string text = "models:";
    for (auto const& model : planner::models()) text += " " + model.name;
    text += "\nhardware:";
    for (auto const& machine : planner::machines()) text += " " + machine.name;
    text += "\nschedules:";
    for (auto const& generator : pipeline::generators) text += " " + std::string(generator.name);
    return text + "\n";
}

std::string answer(Options const& o, bool& writing) {
    if (!o.help.empty()) return o.help;
    switch (o.task) {
    case Options::Task::list:
        return presets();
    case Options::Task::write_hardware:
        writing = true;
        io::write_hardware(o.hardware_out, o.hardware);
        return "";
    case Options::Task::evaluate:
        return evaluate(o);
    case Options::Task::explain:
        return explain(o);
    case Options::Task::serve:
        return serve(o);
    default:
        return search(o, writing);
    }
}

/// Calls f(writing), which says when it begins to write. The exit status, with a sentence where it is not 0.
template <class F>
int status_of(F const& f) {
    constexpr int bad_input = 2, outside_failure = 3, internal_error = 1;
    auto const complain = [](char const* what, int status) {
        std::fprintf(stderr, "pentad_plan: %s\n", command_line::one_line(what).c_str());
        return status;
    };
    bool writing = false;
    try {
        f(writing);
        return 0;
    } catch (std::invalid_argument const& error) {
        return complain(error.what(), bad_input);
    } catch (io::FileError const& error) {
        return complain(error.what(), writing ? outside_failure : bad_input);
    } catch (std::bad_alloc const&) {
        return complain("there is not enough memory for it", outside_failure);
    } catch (std::exception const& error) {
        return complain(error.what(), internal_error);
    }
}

/// One rank answers, and all end with its status; the arguments of the others are not looked at.
int run(int argc, char** argv) {
    bool measures = std::find(argv, argv + argc, std::string_view("--measure")) != argv + argc;
    std::optional<Ranks> ranks;
    if (measures || Ranks::are_launched()) ranks.emplace(argc, argv);
    bool const is_first = !ranks || ranks->is_first();

    std::optional<planner::Hardware> measured;
    if (ranks && ranks->of_first(measures ? 1 : 0) != 0) {
        // What is wrong is said before the measurement, and help needs none.
        int status = is_first ? status_of([&](bool&) { measures = parse(argc, argv, ranks->any()).help.empty(); }) : 0;
        if (status = ranks->of_first(status); status != 0) return status;
        if (ranks->of_first(measures ? 1 : 0) != 0) measured = ranks->machine();
    }
    int status = 0;
    if (is_first)
        status = status_of([&](bool& writing) {
            auto const options = parse(argc, argv, measured);
            std::fputs(answer(options, writing).c_str(), stdout);
            writing = true;
            command_line::flush_output();
        });
    return ranks ? ranks->of_first(status) : status;
}

} // namespace

int main(int argc, char** argv) {
    program::ignore_file_size_signal();
    io::remove_temporaries_on_signals();
    try {
        return run(argc, argv);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "pentad_plan: %s\n", command_line::one_line(error.what()).c_str());
        return 1;
    }
}
