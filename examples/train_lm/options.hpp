// The command line of train_lm: what can be asked for, and what is refused before the first step.
// All of it is a pure function of the arguments, the file of --model and the number of ranks, so every rank comes to
// the same answer alone; only check_files looks at anything else.
#pragma once

#include <pentad/comm/agreement.hpp>
#include <pentad/io/token_data.hpp>
#include <pentad/model/context_choice.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/model/model.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/model/parts.hpp>
#include <pentad/model/precision.hpp>
#include <pentad/model/recomputation.hpp>
#include <pentad/model/tensor_kind.hpp>
#include <pentad/pipeline/schedule.hpp>
#include <pentad/strategy/strategy.hpp>
#include <pentad/train/run_settings.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace train_lm {

struct MeshAxis {
    std::string name;
    std::int64_t extent = 1;
};

/// What a run is to do. The values here are the defaults of the flags of the same names.
struct Options {
    /// Outermost first; after parse() all five axes are here, those not named with extent 1.
    std::vector<MeshAxis> mesh;
    std::string order = "as-given"; ///< of the axes of the mesh: as-given, or auto: what sends least between nodes
    /// The fields that one flag says each (report::strategy_flags); strategy_of() has the others.
    pentad::Strategy strategy{.seq = 192, .element = pentad::model::Element::f32};

    std::vector<std::string> data;   ///< files; none: the text that the program carries
    std::vector<std::string> tokens; ///< files of tokens, instead of text
    std::string token_type; ///< of files that do not say: uint8, uint16, uint32; empty: io::TokenFormat::automatic
    std::vector<std::string> validation;            ///< files of what the training data are
    std::int64_t validate_every = 0;                ///< steps; 0: at the end alone
    std::optional<std::int64_t> validation_batches; ///< not given: 4
    std::int64_t vocab = 256;
    std::optional<std::int64_t> ignore_token; ///< a target that carries no loss
    std::optional<std::int64_t> pack;         ///< the token that ends a document; none: sequences are one each

    std::string model;                             ///< a config.json, or its folder; empty: the sizes below
    std::optional<pentad::model::Model> described; ///< what it says; then the sizes below follow it
    double described_parameters = 0;
    std::string config;              ///< its text
    std::size_t file_predictors = 0; ///< modules of multi-token prediction that its checkpoint may have
    std::string weights;             ///< a checkpoint; empty: drawn
    std::int64_t layers = 4;
    std::int64_t hidden = 192;
    std::int64_t heads = 12;
    std::int64_t kv_heads = 12; ///< not given: as many as heads
    std::int64_t ffn = 576;
    std::int64_t experts = 0; ///< 0: dense
    std::int64_t top_k = 2;
    std::int64_t moe_every = 1;  ///< every n-th layer is MoE: layers n - 1, 2 n - 1, ... counted from 0
    std::int64_t expert_ffn = 0; ///< width of an expert; 0: ffn
    std::int64_t shared_experts = 0, dense_layers = 0;
    std::string router = "softmax"; ///< softmax, sigmoid, switch, expert-choice, hash, sinkhorn
    std::string renormalise;        ///< on, off; empty: as the router is published
    double route_scale = 1;
    std::int64_t expert_groups = 1, top_groups = 0; ///< 0: all
    std::string balance; ///< aux, sequence-aux, bias, bias+sequence-aux, none; empty: aux, where tokens choose
    double bias_rate = 1e-3;
    std::string bias_step = "sign";     ///< sign, proportional
    std::int64_t rebalance_experts = 0; ///< steps between moves of experts; 0: none
    double capacity = 0;                ///< in mean loads; 0: any load
    std::string drop = "position";      ///< position, score
    bool tie_embeddings = false;
    std::int64_t window = 0;        ///< of attention; 0: none
    std::string positions = "rope"; ///< rope, alibi, none
    double soft_cap = 0;            ///< of the scores of attention; 0: none
    bool attention_sinks = false;
    std::string
        latent_attention;     ///< the sizes of all attention, "q=0,kv=64,rope=16,nope=32,v=32"; empty: none is latent
    std::string mixers = "a"; ///< of the layers, again and again: attention, Mamba-2, linear attention
    std::int64_t state = 128; ///< rows of a state of Mamba-2
    std::int64_t groups = 1;  ///< of heads of Mamba-2 that share B and C
    std::int64_t expand = 2;  ///< width of Mamba-2 in widths of the stream
    std::int64_t conv = 4;    ///< tokens that its convolution sees
    std::int64_t chunk = 128; ///< tokens that it and linear attention scan at once

    std::int64_t steps = 100;
    std::int64_t batch = 24; ///< sequences in the global batch; not given: rounded up to what the mesh divides
    double lr = 1e-3;
    double min_lr = -1;              ///< negative: a tenth of lr
    std::string optimizer = "adamw"; ///< adamw, sgd, lion, muon
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double momentum = -1;               ///< negative: 0.9 of sgd, 0.95 of muon
    std::string nesterov;               ///< on, off; empty: on of muon alone
    std::string muon_rate = "original"; ///< original, match-rms-adamw
    std::int64_t warmup = 10;           ///< steps
    double weight_decay = 0.1;
    double clip = 1; ///< largest global norm of the gradient; 0: any
    std::int64_t max_bad_steps = 3;
    std::int64_t mtp = 0; ///< modules that predict further tokens
    double mtp_coef = 0.3;
    double aux_coef = 0.01;
    double z_coef = 0.001;
    double usual_aux_coef = 0.01, usual_z_coef = 0.001; ///< their defaults, which --model sets
    std::int64_t seed = 1;

    std::int64_t slices = 1;   ///< of each sequence
    std::string stages;        ///< layers of each stage, "3,5,4,4", or "balanced"; empty: as many for each
    std::string blocks;        ///< "0-3:sequence-parallel=on", of blocks that differ from the rest
    std::string pair = "auto"; ///< auto, on, off
    std::string schedule_file;
    std::string cp = "ring";                 ///< ring, allgather, ulysses, two-level, double-ring, auto
    std::int64_t cp_heads = 0, cp_inner = 0; ///< parts of cp of two-level and double-ring; 0: not given
    std::string expert_mesh;                 ///< "ep=4,etp=1"; empty: the ranks of ep, and tp shards the width
    bool zigzag = false;
    std::string recompute = "none";              ///< none, selective, full, auto
    std::string recompute_parts = "activations"; ///< of selective
    std::string memory_limit;                    ///< "8GiB", of a rank; empty: what the host has
    std::string offload = "none";                ///< none, optimizer, activations, both
    std::string offload_folder;                  ///< of the offload files
    std::string offload_window;                  ///< "1GiB", of a rank; empty: a few of the largest buckets or layers

    std::string save;                 ///< a folder for checkpoints; empty: none
    std::string save_every = "10min"; ///< SaveInterval
    std::optional<std::int64_t> keep; ///< checkpoints; not given: 3
    std::string resume;               ///< a checkpoint, a folder of them, or "auto"; empty: a fresh start

    std::string log;          ///< empty: none
    std::string dump_weights; ///< empty: none
    std::string trace;        ///< empty: none
    std::int64_t sample = 0;  ///< bytes to sample at the end
    std::string prompt = "In the beginning";
    bool quiet = false;

    /// What the user gave: the others follow the mesh and the heads.
    bool batch_given = false;
    bool kv_heads_given = false;
    bool schedule_given = false; ///< or chunks, or slices

    /// The extent of an axis of the mesh; 1 if the mesh does not name the axis.
    [[nodiscard]] std::int64_t extent(std::string_view axis) const;
    /// What --expert-mesh says, as far as it can be read; none: it is not given.
    [[nodiscard]] std::optional<pentad::model::ExpertMesh> folded_experts() const;
    /// How experts lie on the ranks of a stage.
    [[nodiscard]] pentad::model::ExpertMesh experts_on() const {
        return folded_experts().value_or(
            pentad::model::ExpertMesh{static_cast<int>(extent("ep")), static_cast<int>(extent("tp"))});
    }
    /// Whether forwards and backwards of the schedule are pairs.
    [[nodiscard]] bool pairs() const;
    /// --cp with what belongs to it, and what that makes of the mesh.
    [[nodiscard]] pentad::model::ContextChoice context() const;
    [[nodiscard]] pentad::model::ContextSplit context_split() const { return context().on(extent("cp")); }
    /// The sizes of a layer that the ranks of tp divide.
    [[nodiscard]] pentad::model::TensorDivisors tensor_divisors() const;
    /// The number of sequences divides by this: dp x ep x what tp shares out x micro-batches.
    [[nodiscard]] std::int64_t batch_divisor() const;
    /// Stages of the pipeline: pp x chunks.
    [[nodiscard]] std::int64_t stage_count() const;
};

/// How often a checkpoint is saved: after so many steps, or so much time. Exactly one of the two is not 0.
struct SaveInterval {
    std::int64_t steps = 0;
    double seconds = 0;
};
/// "100", "30s" or "10min"; none where it is anything else.
[[nodiscard]] std::optional<SaveInterval> save_interval(std::string_view text);
/// --offload with what belongs to it.
[[nodiscard]] pentad::model::Offload offload_of(Options const& options);
/// --recompute with what belongs to it. `auto` becomes a plan when the memory is known (memory_check.hpp).
[[nodiscard]] pentad::model::Recomputation recomputation_of(Options const& options);
/// Mamba-2 as the sizes describe it.
[[nodiscard]] pentad::model::Mamba2 mamba_of(Options const& options);
/// The router of the flags, of which --model has all but balance and capacity.
[[nodiscard]] pentad::model::Router router_of(Options const& options);
/// --latent-attention with --heads; or why it makes none, and a value like it that does.
struct LatentChoice {
    pentad::model::LatentAttention part;
    std::string refusal{}, instead{};
};
[[nodiscard]] LatentChoice latent_of(Options const& options);
/// The model of the sizes, or that of --model.
[[nodiscard]] pentad::model::Model make_model(Options const& options);
/// How the run lies on its ranks, and all of it. A list of --stages or --blocks that cannot be read is left
/// out.
[[nodiscard]] pentad::Strategy strategy_of(Options const& options);
[[nodiscard]] pentad::train::RunSettings make_settings(Options const& options);
/// Whether the run has steps, or a state to save: otherwise it holds weights alone.
[[nodiscard]] inline bool learns(Options const& options) { return options.steps > 0 || !options.save.empty(); }
/// "3,5,4,4" as numbers; none where it is anything else.
[[nodiscard]] std::optional<std::vector<std::int64_t>> stage_layers(std::string_view text);
/// The training data, or those of --validation. @throws io::FileError
[[nodiscard]] pentad::io::TokenData training_data(Options const& options);
[[nodiscard]] pentad::io::TokenData validation_data(Options const& options);
/// The schedule that the options name, of a file or by name. @throws std::invalid_argument, io::FileError
[[nodiscard]] pentad::pipeline::Schedule make_schedule(Options const& options);

/// One of the three: options to run with, a text to print with exit status 0, or a sentence to print with exit
/// status 2.
struct ParseResult {
    std::optional<Options> options;
    std::string help;
    std::string error;
    /// ": try --heads 8" behind the error, and the options with it: as far as numbers tell.
    std::string suggestion{};
    std::optional<Options> suggested{};

    /// The error with its suggestion, where check_files() has nothing against that. On one rank.
    [[nodiscard]] std::string sentence() const;
};

/// What stands for `--mesh auto`.
struct PlannedMesh {
    std::string mesh;        ///< "dp=2,tp=2"
    std::string expert_mesh; ///< of --expert-mesh; empty: none
    std::string stages;      ///< of --stages, where the layers are not as many for each; empty: not given
};
/// No mesh fits into the memory that there is; the sentence says what would.
class NoRoom : public std::invalid_argument {
  public:
    using std::invalid_argument::invalid_argument;
};
/// Finds the mesh of `--mesh auto` for what else is asked. @throws std::invalid_argument
using MeshPlanner = std::function<PlannedMesh(Options const&)>;

/// Reads the command line, and checks it with check(). Call it on all ranks; one of them prints.
[[nodiscard]] ParseResult parse(int argc, char const* const* argv, int ranks, MeshPlanner const& planner = {});

/// Everything about the numbers. The sentence names the flag, says what is wrong with it, and ends in ": try " and
/// flags that would work, found by search: "--heads 6 is not divisible by tp = 4: try --heads 8 --hidden 192".
[[nodiscard]] std::optional<std::string> check(Options const& options, int ranks);

/// The sentence of check() without a search for a suggestion; empty: the options are legal.
[[nodiscard]] std::string refusal(Options const& options, int ranks);

/// The config.json that --model names, if it is given.
[[nodiscard]] std::string model_file(int argc, char const* const* argv);
/// What these files hold, for ranks to compare.
[[nodiscard]] std::vector<pentad::comm::Fact> file_facts(std::vector<std::string> const& files);
/// What all ranks must find in the files that each of them reads.
[[nodiscard]] std::vector<pentad::comm::Fact> input_facts(Options const& options);

/// Everything about the files: data that are missing or too short, output that cannot be written. One rank calls it,
/// since it tries to make files (and removes them).
[[nodiscard]] std::optional<std::string> check_files(Options const& options);

} // namespace train_lm
