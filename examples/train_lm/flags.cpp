#include "flags.hpp"

#include "options.hpp"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace train_lm {

namespace {

constexpr std::int64_t many = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();

std::vector<FlagGroup> make_flag_groups() {
    using O = Options;
    return {
        {"the mesh",
         {{"--mesh", "AXES",
           "extents of the axes, outermost first: dp=2,pp=2,ep=1,cp=1,tp=2 (default: all ranks dp; axes left out are "
           "1); or auto: the one that is planned to be fastest on this machine, which is measured first",
           MeshValue{}},
          {"--sequence-parallel", "on|off", "shard activations between the tp regions along the sequence",
           OnOffValue{&O::sequence_parallel}},
          {"--schedule", "NAME", "pipeline schedule: " + joined(schedule_names()),
           ChoiceValue{&O::schedule, schedule_names()}},
          {"--chunks", "N", "stages on each rank (default: as few as the schedule is defined for)",
           IntegerValue{&O::chunks, 0, 1 << 10}},
          {"--slices", "N", "slices of each sequence, one after the other in the pipeline",
           IntegerValue{&O::slices, 1, 1 << 16}},
          {"--stages", "N,N,...|balanced",
           "layers of each stage of the pipeline, or by the time that they take here (default: as many for each)",
           TextValue{&O::stages}},
          {"--schedule-file", "FILE", "a schedule of your own, as text or JSON", TextValue{&O::schedule_file}},
          {"--cp", "ring|allgather", "how attention sees the keys and values of other cp ranks",
           ChoiceValue{&O::cp, {"ring", "allgather"}}},
          {"--zigzag", "",
           "give each cp rank an early and a late piece of the sequence, so that causal attention is even",
           Switch{&O::zigzag}},
          {"--zero", "0|1", "1: shard the optimizer state over the ranks that share a parameter",
           IntegerValue{&O::zero, 0, 1}},
          {"--bucket-elements", "N",
           "parameters after which a bucket is closed: its gradients are reduced while the backward pass goes on",
           IntegerValue{&O::bucket_elements, 1, any - 1}}}},
        {"the data",
         {{"--data", "FILE",
           "text whose bytes are the tokens; repeat for more files (default: a short text of the program's own)",
           ListValue{&O::data}},
          {"--tokens", "FILE",
           "tokens instead of text: .npy, or little-endian numbers (--token-type); repeat for more files",
           ListValue{&O::tokens}},
          {"--token-type", "uint16|uint32", "of files of tokens that are not .npy",
           ChoiceValue{&O::token_type, {"uint16", "uint32"}}},
          {"--validation", "FILE",
           "text held out, or with --tokens tokens: its loss is computed after the last step; repeat for more files",
           ListValue{&O::validation}},
          {"--vocab", "N", "size of the vocabulary", IntegerValue{&O::vocab, 2, 1 << 24}},
          {"--ignore-token", "N", "targets equal to this token (of text: byte) carry no loss",
           OptionalIntegerValue{&O::ignore_token, 0, 1 << 24}},
          {"--seq", "N", "tokens in a sequence", IntegerValue{&O::seq, 1, 1 << 24}},
          {"--batch", "N", "sequences in a step (default: 24, rounded up to a multiple of dp x ep x micro-batches)",
           IntegerValue{&O::batch, 1, 1 << 24}},
          {"--micro-batches", "N", "micro-batches in a step", IntegerValue{&O::micro_batches, 1, 1 << 16}}}},
        {"the model",
         {{"--model", "FILE",
           "a config.json (or its folder) of llama, mistral, mixtral, qwen2, qwen3 or qwen3_moe: all of the model",
           TextValue{&O::model}},
          {"--weights", "FILE", "a checkpoint to begin with: a safetensors file, an index of several, or their folder",
           TextValue{&O::weights}},
          {"--layers", "N", "transformer layers", IntegerValue{&O::layers, 1, 1 << 16}},
          {"--hidden", "N", "width of the residual stream", IntegerValue{&O::hidden, 2, 1 << 20}},
          {"--heads", "N", "attention heads", IntegerValue{&O::heads, 1, 1 << 14}},
          {"--kv-heads", "N", "heads of keys and values (default: as many as heads)",
           IntegerValue{&O::kv_heads, 1, 1 << 14}},
          {"--ffn", "N", "width of the feed-forward network, or of each expert", IntegerValue{&O::ffn, 1, 1 << 22}},
          {"--experts", "N", "experts in an MoE layer; 0: a dense model", IntegerValue{&O::experts, 0, 1 << 14}},
          {"--top-k", "N", "experts that a token goes to", IntegerValue{&O::top_k, 1, 1 << 14}},
          {"--moe-every", "N", "every N-th layer is an MoE layer", IntegerValue{&O::moe_every, 1, 1 << 16}},
          {"--tie-embeddings", "", "one matrix for the embedding and the output", Switch{&O::tie_embeddings}}}},
        {"training",
         {{"--steps", "N", "optimizer steps", IntegerValue{&O::steps, 0, many}},
          {"--lr", "X", "peak learning rate", RealValue{&O::lr, 0, 1e6}},
          {"--min-lr", "X", "learning rate after the last step (default: a tenth of --lr)",
           RealValue{&O::min_lr, 0, 1e6}},
          {"--beta1", "X", "decay of AdamW's first moment", RealValue{&O::beta1, 0, 0.999999}},
          {"--beta2", "X", "decay of AdamW's second moment", RealValue{&O::beta2, 0, 0.999999}},
          {"--epsilon", "X", "added to the root of AdamW's second moment", RealValue{&O::epsilon, 1e-30, 1}},
          {"--warmup", "N", "steps of linear warm-up, before a cosine decay", IntegerValue{&O::warmup, 0, many}},
          {"--weight-decay", "X", "decoupled weight decay", RealValue{&O::weight_decay, 0, 1e6}},
          {"--clip", "X", "largest global norm of the gradient; 0: any", RealValue{&O::clip, 0, 1e6}},
          {"--max-bad-steps", "N",
           "end after this many steps in a row with a loss or a gradient that is not finite; such steps change nothing",
           IntegerValue{&O::max_bad_steps, 1, many}},
          {"--validate-every", "N", "compute the loss on --validation every N steps too; 0: at the end alone",
           IntegerValue{&O::validate_every, 0, many}},
          {"--validation-batches", "N",
           "batches of --validation whose loss is computed, the same ones each time (default: 4)",
           OptionalIntegerValue{&O::validation_batches, 1, 1 << 16}},
          {"--aux-coef", "X", "weight of the load-balancing loss", RealValue{&O::aux_coef, 0, 1e6}},
          {"--z-coef", "X", "weight of the router's z-loss", RealValue{&O::z_coef, 0, 1e6}},
          {"--seed", "N", "of parameters, data and samples", IntegerValue{&O::seed, 0, any - 1}},
          {"--dtype", "f64|f32|bf16", "number format (bf16 keeps f32 master weights)",
           ChoiceValue{&O::dtype, {"f64", "f32", "bf16"}}},
          {"--recompute", "", "keep only the inputs of layers, and compute the rest again in the backward",
           Switch{&O::recompute}},
          {"--recompute-activations", "", "compute again what lies between the products of MLPs, and nothing else",
           Switch{&O::recompute_activations}}}},
        {"output",
         {{"--log", "FILE", "one JSON object a step", TextValue{&O::log}},
          {"--dump-weights", "DIR", "model.safetensors and config.json of the final weights, into a folder that exists",
           TextValue{&O::dump_weights}},
          {"--trace", "FILE", "a timeline for ui.perfetto.dev", TextValue{&O::trace}},
          {"--sample", "N", "bytes to sample from the model at the end", IntegerValue{&O::sample, 0, 1 << 20}},
          {"--prompt", "TEXT", "what the sample goes on from", TextValue{&O::prompt, true}},
          {"--quiet", "", "print nothing but errors and what --sample asks for", Switch{&O::quiet}}}},
    };
}

} // namespace

std::span<FlagGroup const> flag_groups() {
    static std::vector<FlagGroup> const groups = make_flag_groups();
    return groups;
}

Flag const* find_flag(std::string_view name) {
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (flag.name == name) return &flag;
    return nullptr;
}

Flag const& flag_of(Integer member) {
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (auto const* value = std::get_if<IntegerValue>(&flag.value); value != nullptr && value->member == member)
                return flag;
    std::abort(); // every whole number has a flag
}

std::string joined(std::span<std::string_view const> words) {
    std::string text;
    for (auto const word : words) text += (text.empty() ? "" : ", ") + std::string(word);
    return text;
}

std::string value_text(Flag const& flag, Options const& options) {
    return std::visit(Overloaded{
                          [&]<class Number, class Member>(NumberValue<Number, Member> const& target) {
                              return number_text(options.*target.member);
                          },
                          [&](ChoiceValue const& target) { return options.*target.member; },
                          [&](OnOffValue const& target) { return std::string(options.*target.member ? "on" : "off"); },
                          [&](TextValue const& target) { return options.*target.member; },
                          [&](MeshValue) { return mesh_text(options.mesh); },
                          [&](ListValue const&) { return std::string(); },
                          [&](Switch const&) { return std::string(); },
                      },
                      flag.value);
}

std::string mesh_text(std::span<MeshAxis const> mesh) {
    std::string text;
    for (auto const& [name, extent] : mesh)
        if (extent != 1) text += (text.empty() ? "" : ",") + name + "=" + std::to_string(extent);
    return text.empty() ? "dp=1" : text;
}

std::string given(Integer member, Options const& options) {
    Flag const& flag = flag_of(member);
    return std::string(flag.name) + " " + value_text(flag, options);
}

} // namespace train_lm
