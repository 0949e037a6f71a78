#include "flags.hpp"

#include "options.hpp"

#include <pentad/mesh/number.hpp>
#include <pentad/model/router.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/report/blocks_flag.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace train_lm {

namespace {

constexpr std::int64_t many = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();

/// The flag of a field of the strategy.
Flag strategy(std::string_view name, Effect effect) {
    auto const& row = pentad::report::strategy_flag(name);
    return {row.flag, effect, row.shown, pentad::report::flag_help(row), StrategyValue{&row}};
}

std::vector<FlagGroup> make_flag_groups() {
    using O = Options;
    return {
        {"the mesh",
         {{"--mesh", Effect::numbers, "AXES",
           "extents of the axes, outermost first: dp=2,pp=2,ep=1,cp=1,tp=2 (default: all ranks dp; axes left out are "
           "1); or auto: the one that is planned to be fastest on this machine, which is measured first",
           MeshValue{}},
          {"--order", Effect::nothing, "as-given|auto",
           "of the axes, on several nodes: as --mesh names them, or the order that sends least between nodes",
           ChoiceValue{&O::order, {"as-given", "auto"}}},
          strategy("--tp-kind", Effect::nothing),
          strategy("--sequence-parallel", Effect::nothing),
          strategy("--schedule", Effect::numbers),
          strategy("--chunks", Effect::nothing),
          {"--slices", Effect::nothing, "N", "slices of each sequence, one after the other in the pipeline",
           IntegerValue{&O::slices, 1, 1 << 16}},
          {"--pair", Effect::nothing, "auto|on|off",
           "with dualpipe and dualpipe-v the forward of a micro-batch and the backward of another take turns, each "
           "computing while the other waits for its exchanges; auto: where tokens travel to experts of other ranks",
           ChoiceValue{&O::pair, {"auto", "on", "off"}}},
          {"--stages", Effect::numbers, "N,N,...|balanced",
           "layers of each stage of the pipeline, or by the time that they take here (default: as many for each)",
           TextValue{&O::stages}},
          {"--schedule-file", Effect::numbers, "FILE", "a schedule of your own, as text or JSON",
           TextValue{&O::schedule_file}},
          {"--cp", Effect::nothing, "ring|allgather|ulysses|two-level|double-ring|auto",
           "how attention sees the keys and values of other cp ranks: round a ring; gathered; heads exchanged for "
           "sequence; that among some of the ranks, and rings of the others; rings of neighbours, and a ring of such "
           "rings; or what is planned to be the fastest",
           ChoiceValue{&O::cp, {pentad::model::context_names.begin(), pentad::model::context_names.end()}}},
          {"--cp-heads", Effect::nothing, "N",
           "two-level: ranks that exchange heads: --cp-inner neighbours (default: these), or the cp / --cp-inner ranks "
           "that the rings of neighbours leave",
           IntegerValue{&O::cp_heads, 0, 1 << 16}},
          {"--cp-inner", Effect::nothing, "N",
           "two-level and double-ring: neighbours along cp, which should share a node (default: --cp-heads, or the "
           "ranks of cp that a node holds)",
           IntegerValue{&O::cp_inner, 0, 1 << 16}},
          strategy("--attention-output", Effect::nothing),
          {"--blocks", Effect::nothing, "LIST", std::string(pentad::report::blocks_help), TextValue{&O::blocks}},
          {"--expert-mesh", Effect::nothing, "AXES",
           "experts see the ranks of dp x cp x tp as edp x ep x etp, edp=1,ep=4,etp=2: copies, ranks with different "
           "experts, and ranks that share the width of each (default: the ranks of ep in --mesh, whose width tp "
           "shards; edp, left out, is what the ranks allow, the others 1)",
           TextValue{&O::expert_mesh, true}},
          {"--zigzag", Effect::nothing, "",
           "give each cp rank an early and a late piece of the sequence, so that causal attention is even",
           Switch{&O::zigzag}},
          strategy("--zero", Effect::nothing),
          strategy("--zero-ranks", Effect::nothing),
          strategy("--zero-keep", Effect::nothing),
          strategy("--zero-accumulate", Effect::nothing),
          strategy("--gradient-release", Effect::nothing),
          strategy("--bucket-elements", Effect::nothing)}},
        {"the data",
         {{"--data", Effect::data, "FILE",
           "text whose bytes are the tokens; repeat for more files (default: a short text of the program's own)",
           ListValue{&O::data}},
          {"--tokens", Effect::data, "FILE",
           "tokens instead of text: .npy, or little-endian numbers (--token-type); repeat for more files",
           ListValue{&O::tokens}},
          {"--token-type", Effect::numbers, "uint8|uint16|uint32",
           "of files of tokens that are not .npy (default: what an index of Megatron-LM beside the file says, else "
           "uint16)",
           ChoiceValue{&O::token_type, {"uint8", "uint16", "uint32"}}},
          {"--validation", Effect::nothing, "FILE",
           "text held out, or with --tokens tokens: its loss is computed after the last step; repeat for more files",
           ListValue{&O::validation}},
          {"--vocab", Effect::model, "N", "size of the vocabulary", IntegerValue{&O::vocab, 2, 1 << 24}},
          {"--ignore-token", Effect::numbers, "N", "targets equal to this token (of text: byte) carry no loss",
           OptionalIntegerValue{&O::ignore_token, 0, 1 << 24}},
          {"--pack", Effect::numbers, "BYTE|TOKEN",
           "a document ends with each such token (of text: byte): no token sees another document, positions begin anew "
           "in each, and the token that ends one predicts nothing. Over cp, sequences are dealt by the work that their "
           "documents make, unless --zigzag or slices",
           OptionalIntegerValue{&O::pack, 0, 1 << 24}},
          strategy("--seq", Effect::numbers),
          {"--batch", Effect::numbers, "N",
           "sequences in a step (default: 24, rounded up to a multiple of dp x ep x micro-batches)",
           IntegerValue{&O::batch, 1, 1 << 24}},
          strategy("--micro-batches", Effect::numbers)}},
        {"the model",
         {{"--model", Effect::model, "FILE",
           "a config.json (or its folder) of llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, mamba2, bamba or "
           "deepseek_v3: all of "
           "the model",
           TextValue{&O::model}},
          {"--weights", Effect::nothing, "FILE",
           "weights to begin with: a safetensors file, an index of several, or their folder; with --resume auto, where "
           "there is no checkpoint",
           TextValue{&O::weights}},
          {"--layers", Effect::model, "N", "transformer layers", IntegerValue{&O::layers, 1, 1 << 16}},
          {"--hidden", Effect::model, "N", "width of the residual stream", IntegerValue{&O::hidden, 2, 1 << 20}},
          {"--heads", Effect::model, "N", "attention heads", IntegerValue{&O::heads, 1, 1 << 14}},
          {"--kv-heads", Effect::model, "N", "heads of keys and values (default: as many as heads)",
           IntegerValue{&O::kv_heads, 1, 1 << 14}},
          {"--ffn", Effect::model, "N", "width of the feed-forward network, or of each expert",
           IntegerValue{&O::ffn, 1, 1 << 22}},
          {"--mtp", Effect::model, "N",
           "multi-token prediction: N modules behind the last layer, each with a block like the last layer's; the "
           "k-th predicts the token k further ahead",
           IntegerValue{&O::mtp, 0, 16}},
          {"--experts", Effect::model, "N", "experts in an MoE layer; 0: a dense model",
           IntegerValue{&O::experts, 0, 1 << 14}},
          {"--top-k", Effect::model, "N", "experts that a token goes to", IntegerValue{&O::top_k, 1, 1 << 14}},
          {"--moe-every", Effect::model, "N", "every N-th layer is an MoE layer",
           IntegerValue{&O::moe_every, 1, 1 << 16}},
          {"--expert-ffn", Effect::model, "N", "width of an expert (default: --ffn)",
           IntegerValue{&O::expert_ffn, 0, 1 << 22}},
          {"--shared-experts", Effect::model, "N", "experts that every token goes to, beside those that are chosen",
           IntegerValue{&O::shared_experts, 0, 1 << 10}},
          {"--dense-layers", Effect::model, "N", "the first N layers have MLPs of width --ffn instead of experts",
           IntegerValue{&O::dense_layers, 0, 1 << 16}},
          {"--router", Effect::model, "softmax|sigmoid|switch|expert-choice|hash|sinkhorn",
           "who chooses experts: tokens, by a softmax or sigmoids; by a softmax whose probability is the weight, with "
           "jitter (Switch); experts, which see all tokens of a micro-batch; a hash of the token; tokens, after the "
           "scores were balanced",
           ChoiceValue{&O::router, {pentad::model::router_names.begin(), pentad::model::router_names.end()}}},
          {"--renormalise", Effect::model, "on|off",
           "the weights of a token's experts sum to 1 (default: on of softmax, sigmoid and hash)",
           ChoiceValue{&O::renormalise, {"on", "off"}}},
          {"--route-scale", Effect::model, "X", "factor of the weights of routed experts",
           RealValue{&O::route_scale, 1e-6, 1e6}},
          {"--expert-groups", Effect::model, "N",
           "groups of experts, as many in each: a token chooses within the best --top-groups",
           IntegerValue{&O::expert_groups, 1, 64}},
          {"--top-groups", Effect::model, "N", "groups that a token chooses experts of (default: all)",
           IntegerValue{&O::top_groups, 0, 64}},
          {"--balance", Effect::model, "aux|sequence-aux|bias|bias+sequence-aux|none",
           "what keeps the load of experts even: a loss of all tokens of a micro-batch, or of each sequence (both "
           "times "
           "--aux-coef); or a bias for the choice alone, moved by --bias-rate after each step (default: aux, where "
           "tokens choose)",
           ChoiceValue{&O::balance, {pentad::model::balance_names.begin(), pentad::model::balance_names.end()}}},
          {"--bias-rate", Effect::numbers, "X", "with --balance bias: by how much a step moves a bias",
           RealValue{&O::bias_rate, 0, 1e3}},
          {"--bias-step", Effect::numbers, "sign|proportional",
           "with --balance bias: a step moves a bias against the excess of its expert's load over the mean; sign: by "
           "the "
           "rate; proportional: by the rate times excess / mean, at most the rate",
           ChoiceValue{&O::bias_step, {pentad::model::bias_step_names.begin(), pentad::model::bias_step_names.end()}}},
          {"--capacity", Effect::numbers, "X",
           "an expert takes up to X times the mean number of tokens, of all in a micro-batch; 0: all that choose it; "
           "with --router expert-choice it takes as many (default: 1)",
           RealValue{&O::capacity, 0, 1e6}},
          {"--drop", Effect::numbers, "position|score",
           "with --capacity: an expert that is full drops the last tokens, or the worst",
           ChoiceValue{&O::drop, {pentad::model::drop_names.begin(), pentad::model::drop_names.end()}}},
          {"--tie-embeddings", Effect::model, "", "one matrix for the embedding and the output",
           Switch{&O::tie_embeddings}},
          {"--window", Effect::model, "N",
           "tokens that attention sees back from each, itself included; 0: all (with --model: its own)",
           IntegerValue{&O::window, 0, 1 << 24}},
          {"--positions", Effect::model, "rope|alibi|none",
           "how attention knows them: rotary embedding (with --model: its own); ALiBi, scores that fall with the "
           "distance; or by its causal mask alone",
           ChoiceValue{&O::positions, {"rope", "alibi", "none"}}},
          {"--soft-cap", Effect::model, "X",
           "the scores of attention become X tanh(score / X), as in Gemma 2; 0: they stay (with --model: its own)",
           RealValue{&O::soft_cap, 0, 1e6}},
          {"--attention-sinks", Effect::model, "",
           "each head learns a score more for its softmax, of a key without a value, as in gpt-oss",
           Switch{&O::attention_sinks}},
          {"--latent-attention", Effect::model, "q=N,kv=N,rope=N,nope=N,v=N",
           "attention as in DeepSeek-V2 and V3: keys and values are made from a vector of kv elements, queries from "
           "one "
           "of q (0: from the stream); of each head, queries and keys have nope elements without a position and rope "
           "with one, values have v",
           TextValue{&O::latent_attention}},
          {"--mixers", Effect::model, "a|m|l,...",
           "of the layers, again and again: attention, Mamba-2 or linear attention, such as m,m,a; heads are of "
           "hidden / heads elements everywhere",
           TextValue{&O::mixers}},
          {"--state", Effect::model, "N", "rows of the state of a head of Mamba-2",
           IntegerValue{&O::state, 1, 1 << 14}},
          {"--groups", Effect::model, "N", "groups of heads of Mamba-2, which share its B and C",
           IntegerValue{&O::groups, 1, 1 << 14}},
          {"--expand", Effect::model, "N", "width of Mamba-2 in widths of the residual stream",
           IntegerValue{&O::expand, 1, 64}},
          {"--conv", Effect::model, "N", "tokens that the convolution of Mamba-2 sees", IntegerValue{&O::conv, 1, 64}},
          {"--chunk", Effect::model, "N", "tokens that Mamba-2 and linear attention scan at once",
           IntegerValue{&O::chunk, 1, 4096}}}},
        {"training",
         {{"--steps", Effect::numbers, "N", "optimizer steps", IntegerValue{&O::steps, 0, many}},
          {"--lr", Effect::numbers, "X", "peak learning rate", RealValue{&O::lr, 0, 1e6}},
          {"--min-lr", Effect::numbers, "X",
           "learning rate after the last step, --lr at most (default: a tenth of --lr)", RealValue{&O::min_lr, 0, 1e6}},
          {"--optimizer", Effect::numbers, "adamw|sgd|lion|muon",
           "what updates the weights; muon: matrices by Muon, embeddings, the head, norms and biases by AdamW",
           ChoiceValue{&O::optimizer, {"adamw", "sgd", "lion", "muon"}}},
          {"--beta1", Effect::numbers, "X",
           "decay of AdamW's first moment, or of the average that Lion takes the sign of",
           RealValue{&O::beta1, 0, 0.999999}},
          {"--beta2", Effect::numbers, "X", "decay of AdamW's second moment, or of Lion's momentum",
           RealValue{&O::beta2, 0, 0.999999}},
          {"--epsilon", Effect::numbers, "X", "added to the root of AdamW's second moment",
           RealValue{&O::epsilon, 1e-30, 1}},
          {"--momentum", Effect::numbers, "X", "decay of the momentum of sgd (default: 0.9) or muon (default: 0.95)",
           RealValue{&O::momentum, 0, 0.999999}},
          {"--nesterov", Effect::numbers, "on|off", "look ahead along the momentum (default: of sgd off, of muon on)",
           ChoiceValue{&O::nesterov, {"on", "off"}}},
          {"--muon-rate", Effect::numbers, "original|match-rms-adamw",
           "how Muon adjusts the learning rate to the shape of a matrix: sqrt(max(1, rows / columns)), or "
           "0.2 sqrt(max(rows, columns)), for steps as large as AdamW's",
           ChoiceValue{&O::muon_rate, {"original", "match-rms-adamw"}}},
          {"--warmup", Effect::numbers, "N", "steps of linear warm-up, before a cosine decay",
           IntegerValue{&O::warmup, 0, many}},
          {"--weight-decay", Effect::numbers, "X", "weight decay: of sgd added to the gradient, else decoupled",
           RealValue{&O::weight_decay, 0, 1e6}},
          {"--clip", Effect::numbers, "X", "largest global norm of the gradient; 0: any", RealValue{&O::clip, 0, 1e6}},
          {"--max-bad-steps", Effect::nothing, "N",
           "end after this many steps in a row with a loss or a gradient that is not finite; such steps change nothing",
           IntegerValue{&O::max_bad_steps, 1, many}},
          strategy("--local-steps", Effect::numbers),
          strategy("--local-ranks", Effect::numbers),
          strategy("--outer-lr", Effect::numbers),
          strategy("--outer-momentum", Effect::numbers),
          {"--validate-every", Effect::nothing, "N",
           "compute the loss on --validation every N steps too; 0: at the end alone",
           IntegerValue{&O::validate_every, 0, many}},
          {"--validation-batches", Effect::nothing, "N",
           "batches of --validation whose loss is computed, the same ones each time (default: 4)",
           OptionalIntegerValue{&O::validation_batches, 1, 1 << 16}},
          {"--aux-coef", Effect::numbers, "X",
           "weight of the load-balancing loss (default: what --model says; else 0.01)",
           RealValue{&O::aux_coef, 0, 1e6}},
          {"--z-coef", Effect::numbers, "X", "weight of the router's z-loss (default: what --model says; else 0.001)",
           RealValue{&O::z_coef, 0, 1e6}},
          {"--rebalance-experts", Effect::nothing, "N",
           "every N steps, move experts between the ranks of ep to even out the loads of ranks, as measured in that "
           "step; optimizer state moves with them. 0: never",
           IntegerValue{&O::rebalance_experts, 0, many}},
          {"--mtp-coef", Effect::numbers, "X", "with --mtp: weight of the mean loss of its modules",
           RealValue{&O::mtp_coef, 0, 1e6}},
          {"--seed", Effect::numbers, "N", "of parameters, data and samples", IntegerValue{&O::seed, 0, any - 1}},
          strategy("--dtype", Effect::numbers),
          strategy("--master-weights", Effect::numbers),
          strategy("--moment-dtype", Effect::numbers),
          strategy("--reduce-dtype", Effect::numbers),
          strategy("--row-dtype", Effect::numbers),
          strategy("--row-parts", Effect::nothing),
          {"--recompute", Effect::nothing, "none|selective|full|auto",
           "what blocks recompute in the backward pass instead of keeping it: --recompute-parts, everything but their "
           "inputs, or (auto) the least work that fits into memory",
           ChoiceValue{&O::recompute, {"none", "selective", "full", "auto"}}},
          strategy("--recompute-every", Effect::nothing),
          {"--recompute-parts", Effect::nothing, "LIST", "selective: " + joined(pentad::model::piece_names),
           TextValue{&O::recompute_parts}},
          {"--memory-limit", Effect::nothing, "BYTES|GiB",
           "memory of a rank, such as 8GiB, 500MiB or bytes: for --recompute auto, and a run that needs more is "
           "refused "
           "(default: what the host has)",
           TextValue{&O::memory_limit}},
          {"--offload", Effect::nothing, "none|optimizer|activations|both",
           "keep the optimizer's state (bf16: and the f32 weights), the activations that layers save for the backward "
           "pass, or both in files instead of memory: they are read ahead of need and written while the run computes; "
           "needs --offload-folder, except on a device, where the memory of the host is used without it",
           ChoiceValue{&O::offload, {pentad::model::offload_names.begin(), pentad::model::offload_names.end()}}},
          {"--offload-folder", Effect::nothing, "DIR",
           "a folder on a fast disk of each host; the files have no names there", TextValue{&O::offload_folder}},
          {"--offload-window", Effect::nothing, "BYTES|GiB",
           "memory of a rank, for states and for activations each, for what is worked on or comes next (default: two "
           "of the largest bucket's states, three of the largest layer's activations)",
           TextValue{&O::offload_window}}}},
        {"checkpoints",
         {{"--save", Effect::nothing, "FOLDER",
           "save the state of the run there while it goes on, after the last step, and at SIGTERM or SIGUSR1, which "
           "then "
           "end the run with status 0",
           TextValue{&O::save}},
          {"--save-every", Effect::nothing, "N|Ns|Nmin", "steps, seconds or minutes from one checkpoint to the next",
           TextValue{&O::save_every}},
          {"--keep", Effect::nothing, "N", "newest checkpoints that are kept; older ones are removed (default: 3)",
           OptionalIntegerValue{&O::keep, 1, many}},
          {"--resume", Effect::nothing, "FOLDER|auto",
           "go on from a checkpoint, or the newest of a folder; on any mesh, with any schedule, ZeRO stage and dtype. "
           "auto: the newest complete one in the folder of --save, or a fresh start where there is none",
           TextValue{&O::resume}}}},
        {"output",
         {{"--log", Effect::nothing, "FILE", "one JSON object a step", TextValue{&O::log}},
          {"--dump-weights", Effect::nothing, "DIR",
           "model.safetensors and config.json of the final weights, into a folder that exists",
           TextValue{&O::dump_weights}},
          {"--trace", Effect::nothing, "FILE", "a timeline for ui.perfetto.dev", TextValue{&O::trace}},
          {"--sample", Effect::nothing, "N", "bytes to sample from the model at the end",
           IntegerValue{&O::sample, 0, 1 << 20}},
          {"--prompt", Effect::nothing, "TEXT", "what the sample goes on from", TextValue{&O::prompt, true}},
          {"--quiet", Effect::nothing, "", "print nothing but errors and what --sample asks for", Switch{&O::quiet}}}},
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

std::int64_t Integer::get(Options const& options) const {
    if (member_ != nullptr) return options.*member_;
    std::int64_t value = 0;
    pentad::report::with_field(options.strategy, row_->field, [&]<class T>(T const& member) {
        if constexpr (std::is_integral_v<T>) value = static_cast<std::int64_t>(member);
    });
    return value;
}
void Integer::set(Options& options, std::int64_t value) const {
    if (member_ != nullptr) {
        options.*member_ = value;
        return;
    }
    pentad::report::with_field(options.strategy, row_->field, [&]<class T>(T& member) {
        if constexpr (std::is_integral_v<T>) member = static_cast<T>(value);
    });
}

std::optional<LimitedInteger> integer_of(Flag const& flag) {
    if (auto const* const value = std::get_if<IntegerValue>(&flag.value))
        return LimitedInteger{value->member, value->least, value->most};
    auto const* const value = std::get_if<StrategyValue>(&flag.value);
    if (value == nullptr) return std::nullopt;
    pentad::Strategy const usual;
    bool is_integer = false;
    pentad::report::with_field(usual, value->row->field, [&]<class T>(T const&) {
        is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;
    });
    if (!is_integer) return std::nullopt;
    return LimitedInteger{Integer(*value->row), static_cast<std::int64_t>(value->row->least),
                          static_cast<std::int64_t>(value->row->most)};
}

Flag const& flag_of(Integer number) {
    for (FlagGroup const& group : flag_groups())
        for (Flag const& flag : group.flags)
            if (auto const value = integer_of(flag); value && value->number == number) return flag;
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
                          [&](TextValue const& target) { return options.*target.member; },
                          [&](MeshValue) { return mesh_text(options.mesh); },
                          [&](StrategyValue const& target) {
                              return flag.is_switch() ? std::string()
                                                      : pentad::report::flag_value(options.strategy, *target.row);
                          },
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

std::vector<MeshAxis> mesh_of(std::string_view text) {
    std::vector<MeshAxis> mesh;
    std::istringstream items{std::string(text)};
    for (std::string item; std::getline(items, item, ',');) {
        auto const equals = std::min(item.find('='), item.size());
        auto const extent =
            pentad::number_in<std::int64_t>(std::string_view(item).substr(std::min(equals + 1, item.size())));
        mesh.push_back({item.substr(0, equals), extent.value_or(1)});
    }
    for (auto const axis : axis_names)
        if (std::none_of(mesh.begin(), mesh.end(), [&](MeshAxis const& known) { return known.name == axis; }))
            mesh.push_back({std::string(axis), 1});
    return mesh;
}

Options with_mesh(Options options, PlannedMesh const& planned) {
    options.mesh = mesh_of(planned.mesh);
    options.expert_mesh = planned.expert_mesh;
    options.stages = planned.stages;
    follow(options);
    return options;
}

std::span<std::string_view const> optimizers_with(std::string_view flag) {
    struct Owned {
        std::string_view flag;
        std::vector<std::string_view> optimizers;
    };
    static std::vector<Owned> const all{{"--beta1", {"adamw", "lion", "muon"}}, {"--beta2", {"adamw", "lion", "muon"}},
                                        {"--epsilon", {"adamw", "muon"}},       {"--momentum", {"sgd", "muon"}},
                                        {"--nesterov", {"sgd", "muon"}},        {"--muon-rate", {"muon"}}};
    for (auto const& owned : all)
        if (owned.flag == flag) return owned.optimizers;
    return {};
}

std::string given(Integer number, Options const& options) {
    Flag const& flag = flag_of(number);
    return std::string(flag.name) + " " + value_text(flag, options);
}

} // namespace train_lm
