// Writes valid inputs of each fuzz target to FOLDER/<target>, for it to begin with: seeds FOLDER.
#include <pentad/checkpoint/manifest.hpp>
#include <pentad/io/atomic_file.hpp>
#include <pentad/io/hardware_file.hpp>
#include <pentad/io/safetensors.hpp>
#include <pentad/io/schedule_file.hpp>
#include <pentad/pipeline/generators.hpp>
#include <pentad/planner/hardware_presets.hpp>
#include <pentad/report/timeline.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

using namespace pentad;

namespace {

std::filesystem::path place(std::filesystem::path const& folder, std::string const& target, std::string const& name) {
    std::filesystem::create_directories(folder / target);
    return folder / target / name;
}

void schedules(std::filesystem::path const& folder) {
    for (auto const& generator : pipeline::generators) {
        pipeline::GeneratorOptions options{.ranks = 2, .micro_batches = 4};
        options.slices = generator.takes_slices ? 2 : 1;
        options.recompute = true;
        options.stage_operations = {.gather = !generator.name.starts_with("pipedream"), .reduce = true, .step = true};
        auto const schedule = pipeline::generate(generator.name, options);
        std::string const name(generator.name);
        io::write_file(place(folder, "schedule_json", name), io::to_json(schedule));
        io::write_file(place(folder, "schedule_text", name), to_string(schedule));
    }
}

void configs(std::filesystem::path const& folder) {
    std::string const llama =
        R"("hidden_size": 4096, "intermediate_size": 14336, "attention_bias": false, "rope_scaling": null,
           "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "head_dim": 128,
            "rope_theta": 5e5, "tie_word_embeddings": false, "vocab_size": 128256,)";
    for (auto const& [type, fields] : std::initializer_list<std::pair<std::string, std::string>>{
             {"llama", llama + R"("_name_or_path": "me/mine")"},
             {"mistral", llama + R"("sliding_window": null)"},
             {"mixtral",
              llama + R"("num_experts_per_tok": 2, "num_local_experts": 8, "layer_types": ["full_attention"])"},
             {"qwen3", llama + R"("use_sliding_window": false, "rope_parameters": {"rope_type": "default"})"},
             {"qwen3_moe", llama + R"("num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                "decoder_sparse_step": 2, "mlp_only_layers": [1, 3])"},
             {"deepseek_v3", llama + R"("first_k_dense_replace": 3, "kv_lora_rank": 512, "moe_intermediate_size": 2048,
                "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
                "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128)"},
             {"mamba2", R"("chunk_size": 256, "conv_kernel": 4, "expand": 2, "head_dim": 64, "hidden_size": 4096,
                "n_groups": 8, "num_heads": 128, "num_hidden_layers": 64, "state_size": 128, "use_bias": false,
                "tie_word_embeddings": false, "time_step_limit": [0.0, Infinity], "use_conv_bias": true,
                "vocab_size": 32768)"},
             {"gpt2", R"("n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "n_inner": null,
                "vocab_size": 50257)"}})
        io::write_file(place(folder, "model_config", type), "{\"model_type\": \"" + type + "\", " + fields + "}");
}

void tensors(std::filesystem::path const& folder) {
    io::SafetensorsWriter writer(place(folder, "safetensors", "three"),
                                 {{"a", "F64", {2, 1}}, {"b.weight", "F32", {3}}, {"c", "I64", {}}, {"d", "F32", {0}}},
                                 {{"format", "pt"}, {"step", "7"}});
    std::vector<double> const a{1, 2};
    std::vector<float> const b{3, 4, 5};
    std::vector<std::int64_t> const c{6};
    writer.append(std::span(a));
    writer.append(std::span(b));
    writer.append(std::span(c));
    writer.close();
}

void manifests(std::filesystem::path const& folder) {
    checkpoint::Manifest manifest{7, {{"seed", 1}}, {{"m", {4, 6}}, {"v", {3}}}, {}};
    for (std::int64_t rank = 0; rank < 2; ++rank) {
        checkpoint::StoredFile file{"rank-0000" + std::to_string(rank), 100, 5, {}};
        for (auto const* const state : {"weight", "momentum"})
            file.pieces.push_back({"m", state, "F32", {{{0, 3 * rank}, {4, 3}}, 0, 12}, {9}});
        if (rank == 0) file.pieces.push_back({"v", "weight", "F64", {{{0}, {3}}, 0, 2}, {1}});
        if (rank == 1) file.pieces.push_back({"v", "weight", "F64", {{{0}, {3}}, 2, 3}, {2}});
        manifest.files.push_back(file);
    }
    auto const text = checkpoint::text_of(manifest); // the target adds the checksum
    auto const begin = text.find(":{") + 1;
    io::write_file(place(folder, "manifest", "two"), text.substr(begin, text.size() - 2 - begin));
}

/// The files that tests/reference/io_files.py has written.
void checkpoints_and_tokens(std::filesystem::path const& folder) {
    std::filesystem::path const golden(PENTAD_GOLDEN_DIR "/io");
    auto const text_of = [&](std::string const& name) {
        std::ifstream file(golden / name, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    for (std::string const name : {"single/model.safetensors", "sharded/model-00001-of-00002.safetensors"})
        io::write_file(place(folder, "checkpoint", name.substr(0, 5)), text_of(name));
    io::write_file(place(folder, "checkpoint_index", "golden"), text_of("sharded/model.safetensors.index.json"));
    for (std::string const name : {"u2", "u4", "i4", "i8", "rows"})
        io::write_file(place(folder, "npy", name), "\x05\x01\x03" + text_of("tokens_" + name + ".npy"));
}

void trace(std::filesystem::path const& folder) {
    std::vector<std::string> parts;
    for (int rank = 0; rank < 2; ++rank) {
        std::vector<observe::Span> spans;
        std::int64_t time = 0;
        std::vector<std::pair<std::string_view, int>> order{
            {"forward", 0}, {"forward", 1}, {"backward", 0}, {"backward", 1}};
        if (rank == 1) order = {{"forward", 0}, {"backward", 0}, {"forward", 1}, {"backward", 1}};
        for (auto const& [name, micro_batch] : order) {
            spans.push_back({name, "pipeline", {.micro_batch = micro_batch, .stage = rank}, time, time + 1500, false});
            spans.push_back({"all-reduce", "communication", {.axis = "dp", .bytes = 8}, time, time + 500, true});
            time += 2000;
        }
        parts.push_back(report::timeline_part(spans, rank, "rank " + std::to_string(rank)));
    }
    report::write_timeline(place(folder, "trace", "two_ranks"), parts);
}

} // namespace

int main(int count, char** arguments) {
    if (count != 2) return 2;
    std::filesystem::path const folder(arguments[1]);
    schedules(folder);
    configs(folder);
    tensors(folder);
    manifests(folder);
    checkpoints_and_tokens(folder);
    trace(folder);
    for (auto const& machine : planner::machines())
        io::write_file(place(folder, "hardware", machine.name), io::to_json(machine));
    io::write_file(place(folder, "tuning", "groups"),
                   "pentad tuning 1\nmachine here, 2 processors\ngroup 2 ranks 1 nodes\nmpi all_reduce 0 100\n"
                   "group 16 ranks 4 nodes\nmpi all_to_all 16 32\nmpi reduce_scatter 500 18446744073709551615\n");
    for (char const* const start : {"\x04\x01\x01\x07", "\x01\x03\x02\x00", "\x08\x02\x01\x63"})
        io::write_file(place(folder, "token_data", std::to_string(start[0])),
                       std::string(start, 4) +
                           "a text from which windows of a few bytes are drawn, in up to four files");
}
