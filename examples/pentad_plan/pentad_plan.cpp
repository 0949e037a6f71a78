// Plans how a model is trained, or served, on a machine: the best meshes with their memory, time and bytes, the account
// of one, pictures, and C++ types to paste. See --help and docs/planner.md.
// Exit status: 0 done, 2 bad input (or nothing fits), 3 a file cannot be written, 1 anything else.
#include "measure.hpp"
#include "options.hpp"

#include <pentad/io/file.hpp>
#include <pentad/io/hardware_file.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/hardware_presets.hpp>
#include <pentad/planner/model_presets.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
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

} // namespace

int main(int argc, char** argv) {
    constexpr int bad_input = 2, outside_failure = 3, internal_error = 1;
    bool is_first = true; // the rank that talks
    auto const complain = [&](char const* what, int status) {
        if (is_first) std::fprintf(stderr, "pentad_plan: %s\n", what);
        return status;
    };
    bool writing = false;
    try {
        std::optional<Measurement> measurement;
        std::optional<planner::Hardware> measured;
        if (std::find(argv, argv + argc, std::string_view("--measure")) != argv + argc) {
            measurement.emplace(argc, argv);
            is_first = measurement->is_first();
            (void)parse(argc, argv, measurement->any()); // what is wrong is said before the measurement
            measured = measurement->machine();
        }
        auto const options = parse(argc, argv, measured);
        if (!is_first) return 0;
        std::fputs(answer(options, writing).c_str(), stdout);
        writing = true;
        if (std::fflush(stdout) != 0) return complain("cannot write the answer", outside_failure);
        return 0;
    } catch (std::invalid_argument const& error) {
        return complain(error.what(), bad_input);
    } catch (io::FileError const& error) {
        return complain(error.what(), writing ? outside_failure : bad_input);
    } catch (std::exception const& error) {
        return complain(error.what(), internal_error);
    }
}
