// The flags of pentad_plan, under the headings of the help.
#include "flags.hpp"

#include <pentad/pipeline/generators.hpp>

namespace pentad_plan {

std::vector<FlagGroup> const& flag_groups() {
    static std::vector<FlagGroup> const groups{
        {"the model",
         {{"--model", "NAME", "a published model (--list)"},
          {"--model-json", "FILE", "the config.json of a model, or its folder"}}},
        {"the machine",
         {{"--hardware", "NAME", "a known machine (--list)"},
          {"--hardware-json", "FILE", "a machine of your own: edit what --hardware-out writes"},
          {"--measure", "", "the machine that this runs on, under mpiexec: a device is a rank (seconds)"},
          {"--devices", "N", "devices to plan for (default: those of the machine)"}}},
        {"training",
         {{"--seq", "N", "tokens in a sequence; where the mesh does not divide them, it is padded"},
          {"--global-batch", "N", "sequences in a step"},
          {"--optimizer", "adamw|sgd|lion|muon", "what updates the weights (adamw)"},
          {"--expert-imbalance", "X", "rows of the fullest rank's experts over the mean (1)"},
          {"--dtype", "f64|f32|bf16", "number format of weights and activations (bf16)"},
          {"--product-dtype", "full|fp8",
           "number format of the products of blocks; fp8, on a machine that has it, is planned alone: train_lm "
           "multiplies "
           "in --dtype (full)"},
          {"--master-weights", "on|off", "bf16: f32 weights are kept behind the bf16 ones (on)"},
          {"--moment-dtype", "full|bf16|fp8", "number format of the optimizer's moments (full: f32)"},
          {"--reduce-dtype", "full|bf16|fp8", "number format in which gradients travel (full: f32)"},
          {"--row-dtype", "full|bf16|fp8", "number format in which tokens travel to experts (full: that of --dtype)"},
          {"--offload", "none|optimizer|activations|both",
           "what is in files; the time that takes is not counted (none)"},
          {"--offload-window", "BYTES|GiB", "memory of a rank for each of them, as train_lm has it"}}},
        {"what is given, and not searched (with --evaluate and --explain: default)",
         {{"--mesh", "AXES", "extents of the axes that are given, as in dp=4,tp=2; in any order"},
          {"--micro-batch", "N", "sequences of a micro-batch on a rank (1)"},
          {"--zero", "0|1|2|3", "1: optimizer state sharded, 2: gradients too, 3: parameters too (0)"},
          {"--zero-ranks", "N", "ZeRO shards over as many neighbours along dp (all)"},
          {"--zero-keep", "on|off", "with --zero 3 gathered parameters are kept for the whole step (off)"},
          {"--zero-accumulate", "on|off",
           "with --zero 2 and 3 whole gradients are accumulated, and reduced once a step (off)"},
          {"--gradient-release", "", "weights are updated, and gradients freed, during the backward pass"},
          {"--schedule", "NAME", "pipeline schedule (1f1b): " + pentad::pipeline::generator_names()},
          {"--pair", "auto|on|off",
           "forwards and backwards of dualpipe and dualpipe-v take turns, as train_lm has it (auto)"},
          {"--stages", "N,N,...|balanced",
           "layers of each stage of the pipeline, as train_lm has it; balanced: the slowest stage is as fast as can be "
           "(as many for each; a search tries this and balanced)"},
          {"--recompute", "none|selective|full|auto",
           "what the backward computes again; auto: the least that fits (none)"},
          {"--recompute-every", "K", "of every K-th block alone"},
          {"--memory-limit", "BYTES|GiB", "memory of a device, such as 60GiB (default: that of the machine)"},
          {"--recompute-parts", "LIST", "selective: inputs, norms, activations, attention, rows (activations)"},
          {"--tp-kind", "1d|2d|2.5d|3d",
           "how the ranks of tp share attention and MLPs, as train_lm has it; of a grid, meshes whose tp is one (1d)"},
          {"--sequence-parallel", "on|off", "shard activations between the tp regions along the sequence (off)"},
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
          {"--attention-output", "reduce-scatter|all-to-all",
           "how heads of tp become the residual stream, as train_lm has it (reduce-scatter)"},
          {"--expert-mesh", "AXES",
           "experts see the devices of a stage as edp x ep x etp, as train_lm has it (the ranks of ep, and the width "
           "of each over tp)"}}},
        {"what else one plan has (with --evaluate and --explain)",
         {{"--chunks", "N", "stages on each rank (as few as the schedule is defined for)"},
          {"--order", "AXIS,AXIS,...", "axes of more than one rank, outermost first (dp,pp,ep,cp,tp)"}}},
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
          {"--json", "", "print JSON"},
          {"--svg", "FILE", "write a picture of memory against MFU"},
          {"--types", "", "print the C++ types of the best plan, to paste"}}},
    };
    return groups;
}

} // namespace pentad_plan
