// Offload, read from the options; validates --offload and its folder and window.
#include "flags.hpp"
#include "options.hpp"

#include <pentad/memory/view.hpp>
#include <pentad/report/format.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <string>

namespace train_lm {

pentad::model::Offload offload_of(Options const& o) {
    auto offload = pentad::model::offload_of(o.offload);
    offload.folder = o.offload_folder;
    offload.window_bytes = static_cast<std::size_t>(pentad::report::bytes_in(o.offload_window).value_or(0));
    return offload;
}

void repair_offload(Options& o, Complaint& complaint) {
    if (o.offload == "none") {
        if (!o.offload_folder.empty())
            complaint.leave_out("--offload-folder " + o.offload_folder +
                                    " needs --offload optimizer, activations or both",
                                "--offload-folder");
        if (!o.offload_window.empty())
            complaint.leave_out("--offload-window " + o.offload_window +
                                    " needs --offload optimizer, activations or both",
                                "--offload-window");
    } else if (o.offload_folder.empty() && pentad::memory::runs_on_host<Kokkos::DefaultExecutionSpace>)
        complaint.leave_out("--offload " + o.offload + " needs a folder for its files: --offload-folder DIR",
                            "--offload");
    if (!o.offload_window.empty() && !pentad::report::bytes_in(o.offload_window)) {
        complaint.add("--offload-window " + o.offload_window + " is not a size such as 1GiB, 64MiB or 100000000",
                      "--offload-window");
        o.offload_window = "1GiB";
    }
}

} // namespace train_lm
