// --expert-mesh: the experts' view of the ranks, read and checked.
#include "flags.hpp"
#include "options.hpp"
#include "rules.hpp"

#include <pentad/mesh/number.hpp>
#include <pentad/model/mesh.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace train_lm {

namespace {

using O = Options;

/// "edp=2,ep=4,etp=1": what can be read of it, and what is wrong with it.
struct Read {
    pentad::model::ExpertMesh on;
    std::optional<std::int64_t> edp;
    std::string fault;

    explicit Read(std::string const& text) {
        std::string seen = ",";
        std::istringstream items(text + ",");
        for (std::string item; std::getline(items, item, ',');) {
            auto const equals = item.find('=');
            auto const axis = item.substr(0, equals);
            auto const extent =
                equals == item.npos ? std::nullopt : pentad::number_in<std::int64_t>(item.substr(equals + 1));
            bool const is_known = axis == "edp" || axis == "ep" || axis == "etp";
            if (!extent || *extent < 1 || *extent > 1 << 20 || !is_known)
                fault = "is not a list of AXIS=EXTENT, of the axes edp, ep and etp";
            else if (seen.find("," + axis + ",") != seen.npos)
                fault = "names the axis " + axis + " twice";
            if (!fault.empty()) return;
            seen += axis + ",";
            if (axis == "edp") edp = *extent;
            if (axis == "ep") on.ep = static_cast<int>(*extent);
            if (axis == "etp") on.etp = static_cast<int>(*extent);
        }
    }
};

/// Why the ranks of --mesh cannot be seen so; empty where they can.
std::string misfit(O const& o) {
    try {
        (void)strategy_of(o).views();
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return {};
}

/// --expert-mesh as it is to be: the nearest that divides the experts, their width and the ranks of a stage.
std::string nearest_expert_mesh(O const& o, std::int64_t ranks) {
    auto const wanted = o.folded_experts().value_or(pentad::model::ExpertMesh{});
    std::pair<std::int64_t, std::int64_t> best{1, 1};
    double least = std::numeric_limits<double>::infinity();
    auto const apart = [](std::int64_t a, int b) {
        return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(std::max(b, 1))));
    };
    for (std::int64_t ep = 1; ep <= ranks; ++ep)
        for (std::int64_t etp = 1; ep * etp <= ranks; ++etp) {
            if (ranks % (ep * etp) != 0 || o.experts % ep != 0 || o.expert_ffn % etp != 0) continue;
            auto other = o;
            other.expert_mesh = "ep=" + text(ep) + ",etp=" + text(etp);
            double const distance = apart(ep, wanted.ep) + apart(etp, wanted.etp);
            if (distance < least && misfit(other).empty()) {
                least = distance;
                best = {ep, etp};
            }
        }
    return "ep=" + text(best.first) + ",etp=" + text(best.second);
}

} // namespace

std::optional<pentad::model::ExpertMesh> Options::folded_experts() const {
    if (expert_mesh.empty()) return std::nullopt;
    return Read(expert_mesh).on;
}

void repair_expert_mesh(O& o, Complaint& complaint) {
    if (o.expert_mesh.empty()) return;
    std::string const flag = "--expert-mesh", named = flag + " " + o.expert_mesh;
    if (o.experts < 1) {
        complaint.leave_out(named + " is of experts, and the model has none: leave it out", flag);
        o.expert_mesh.clear();
        return;
    }
    if (o.extent("ep") > 1) {
        complaint.leave_out(named + " and ep = " + text(o.extent("ep")) +
                                " of --mesh both say where experts are: leave one of them out",
                            flag);
        o.expert_mesh.clear();
        return;
    }
    auto const ranks = product({o.extent("dp"), o.extent("cp"), o.extent("tp")});
    auto const refuse = [&](std::string const& why) {
        complaint.add(named + " " + why, "--expert-mesh");
        o.expert_mesh = nearest_expert_mesh(o, ranks);
    };
    Read const read(o.expert_mesh);
    if (!read.fault.empty()) return refuse(read.fault);
    auto const of_experts = product({read.edp.value_or(1), read.on.ep, read.on.etp});
    if (read.edp ? of_experts != ranks : ranks % of_experts != 0)
        return refuse("is a mesh of " + text(of_experts) + " ranks, and dp x cp x tp of --mesh " + mesh_text(o.mesh) +
                      " has " + text(ranks));
    if (auto const why = misfit(o); !why.empty()) refuse("does not fit --mesh " + mesh_text(o.mesh) + ": " + why);
}

} // namespace train_lm
