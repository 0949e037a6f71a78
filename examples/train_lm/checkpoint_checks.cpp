// Validates the options of checkpoints.
#include "flags.hpp"
#include "options.hpp"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace train_lm {

std::optional<SaveInterval> save_interval(std::string_view text) {
    std::int64_t number = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    std::string_view const unit = text.substr(static_cast<std::size_t>(end - text.data()));
    if (error != std::errc() || number < 1 || number > (std::int64_t{1} << 31)) return std::nullopt;
    if (unit.empty()) return SaveInterval{.steps = number};
    if (unit == "s") return SaveInterval{.seconds = static_cast<double>(number)};
    if (unit == "min") return SaveInterval{.seconds = 60 * static_cast<double>(number)};
    return std::nullopt;
}

void repair_checkpoints(Options& o, Complaint& complaint) {
    Options const defaults;
    if (!save_interval(o.save_every)) {
        complaint.add("--save-every " + o.save_every + " is neither steps (100) nor a time (30s, 10min)",
                      "--save-every");
        o.save_every = defaults.save_every;
    }
    if (o.save.empty()) {
        if (o.save_every != defaults.save_every)
            complaint.leave_out("--save-every " + o.save_every + " needs a folder: --save FOLDER", "--save-every");
        if (o.keep)
            complaint.leave_out("--keep " + std::to_string(*o.keep) + " needs a folder: --save FOLDER", "--keep");
        if (o.resume == "auto")
            complaint.leave_out("--resume auto needs the folder of the checkpoints: --save FOLDER", "--resume");
    }
    if (o.strategy.local.steps > 0 && !(o.save.empty() && o.resume.empty()))
        complaint.leave_out(
            "--local-steps: each group of ranks has an optimizer state of its own, which --save does not save and "
            "--resume does not read",
            "--local-steps");
    if (!o.resume.empty() && o.resume != "auto" && !o.weights.empty()) // auto may find none
        complaint.leave_out("--resume and --weights: a checkpoint has the weights", "--weights");
}

} // namespace train_lm
