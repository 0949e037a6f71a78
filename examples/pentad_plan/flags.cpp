// The flags of pentad_plan, under the headings of the help.
#include "flags.hpp"

#include "options.hpp"

#include <pentad/report/blocks_flag.hpp>

#include <algorithm>

namespace pentad_plan {

namespace {

constexpr std::string_view of_training = "training";
constexpr std::string_view of_search = "what is given, and not searched (with --evaluate and --explain: default)";

std::vector<FlagGroup> own_groups() {
    return {
        {"the model",
         {{"--model", "NAME", "a published model (--list)"},
          {"--model-json", "FILE", "the config.json of a model, or its folder"}}},
        {"the machine",
         {{"--hardware", "NAME", "a known machine (--list)"},
          {"--hardware-json", "FILE", "a machine of your own: edit what --hardware-out writes"},
          {"--measure", "", "the machine that this runs on, under mpiexec: a device is a rank (seconds)"},
          {"--devices", "N", "devices to plan for (default: those of the machine)"}}},
        {std::string(of_training),
         {{"--global-batch", "N", "sequences in a step"},
          {"--optimizer", "adamw|sgd|lion|muon", "what updates the weights (adamw)"},
          {"--expert-imbalance", "X", "rows of the fullest rank's experts over the mean (1)"},
          {"--product-dtype", "full|fp8",
           "number format of the products of blocks; fp8, on a machine that has it, is planned alone: train_lm "
           "multiplies "
           "in --dtype (full)"},
          {"--offload", "none|optimizer|activations|both",
           "what is in files; the time that takes is not counted (none)"},
          {"--offload-window", "BYTES|GiB", "memory of a rank for each of them, as train_lm has it"}}},
        {std::string(of_search),
         {{"--mesh", "AXES", "extents of the axes that are given, as in dp=4,tp=2; in any order"},
          {"--micro-batch", "N", "sequences of a micro-batch on a rank (1)"},
          {"--pair", "auto|on|off",
           "forwards and backwards of dualpipe and dualpipe-v take turns, as train_lm has it (auto)"},
          {"--stages", "N,N,...|balanced",
           "layers of each stage of the pipeline, as train_lm has it; balanced: the slowest stage is as fast as can be "
           "(as many for each; a search tries this and balanced)"},
          {"--recompute", "none|selective|full|auto",
           "what the backward computes again; auto: the least that fits (none)"},
          {"--memory-limit", "BYTES|GiB", "memory of a device, such as 60GiB (default: that of the machine)"},
          {"--recompute-parts", "LIST", "selective: inputs, norms, activations, attention, rows (activations)"},
          {"--cp", "ring|allgather|ulysses|two-level|double-ring|auto",
           "how attention sees the keys and values of other cp ranks, as train_lm has it; auto: the fastest (ring)"},
          {"--cp-heads", "N",
           "two-level: ranks that exchange heads, --cp-inner or cp / --cp-inner of them (--cp-inner)"},
          {"--cp-inner", "N",
           "two-level and double-ring: neighbours along cp, with which the rest of cp forms a ring (--cp-heads; "
           "without it the ranks of cp on a node)"},
          {"--zigzag", "on|off",
           "each cp rank has an early and a late piece of the sequence, as with train_lm --zigzag; off: one piece, of "
           "which causal attention makes the last rank's the slowest (on)"},
          {"--expert-mesh", "AXES",
           "experts see the devices of a stage as edp x ep x etp, as train_lm has it (the ranks of ep, and the width "
           "of each over tp)"}}},
        {"what else one plan has (with --evaluate and --explain)",
         {{"--order", "AXIS,AXIS,...", "axes of more than one rank, outermost first (dp,pp,ep,cp,tp)"},
          {"--blocks", "LIST", std::string(report::blocks_help)}}},
        {"instead of a search",
         {{"--evaluate", "AXES", "the numbers of one plan: extents of its axes; those left out are 1"},
          {"--explain", "AXES",
           "the account of one plan: where its time, memory and bytes go, and what guidelines say"},
          {"--serve", "", "plan for answering requests: time to the first token, and of each further one"},
          {"--list", "", "the names of models, machines and schedules"},
          {"--hardware-out", "FILE", "write the machine as JSON, to edit"}}},
        {"serving",
         {{"--prompt", "N", "tokens of a prompt"},
          {"--output", "N", "tokens of an answer"},
          {"--rate", "X", "requests a second that come, at random times (default: as many as can be)"},
          {"--ttft-p95-ms", "X", "service level: 95 % of the requests have their first token within X ms"},
          {"--objective", "throughput|latency",
           "most requests a second, or the shortest answer (default throughput)"}}},
        {"output",
         {{"--top", "N", "plans to show (default 5)"},
          {"--json", "", "print JSON; of a search with the front of memory against time, which takes longer to find"},
          {"--svg", "FILE", "write a picture of memory against MFU"},
          {"--types", "", "print the C++ types of the best plan, to paste"}}},
    };
}

} // namespace

bool has_flag(report::StrategyFlag const& flag) {
    return flag.is_planned && flag.field != "micro_batches"; // which --micro-batch says
}

std::vector<FlagGroup> const& flag_groups() {
    static std::vector<FlagGroup> const groups = [] {
        auto all = own_groups();
        for (auto const& flag : report::strategy_flags) {
            if (!has_flag(flag)) continue;
            auto const heading = planner::searched_fields.contains(flag.field) ? of_search : of_training;
            auto& group =
                *std::find_if(all.begin(), all.end(), [&](FlagGroup const& one) { return one.heading == heading; });
            bool const has_default = !flag.shown.empty() && flag.field != "seq";
            auto const usual = report::flag_value(Strategy(), flag);
            group.flags.push_back({std::string(flag.flag), std::string(flag.shown),
                                   report::flag_help(flag) + (has_default ? " (" + usual + ")" : "")});
        }
        return all;
    }();
    return groups;
}

std::vector<std::string> flags_under(std::string_view heading) {
    std::vector<std::string> names;
    for (auto const& group : flag_groups())
        if (group.heading.starts_with(heading))
            for (auto const& flag : group.flags) names.push_back(flag.name);
    return names;
}

} // namespace pentad_plan
