// ranks: 1 4 8
//
// A checkpoint written on one mesh is read on another, each rank its own part: the loss is the same, and so is what is
// written again.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/io/checkpoint_writer.hpp>
#include <pentad/train/export.hpp>
#include <pentad/train/import.hpp>

#include <support/folder.hpp>
#include <support/training.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

using namespace support;

namespace {

using Stream = InvariantStream<f64>;

/// Shards of at most 20 kB.
class Sink final : public train::WeightSink<f64> {
  public:
    explicit Sink(std::filesystem::path folder) : folder_(std::move(folder)) {}
    void begin(std::vector<io::NamedShape> const& entries) override {
        std::vector<io::TensorEntry> tensors;
        for (auto const& entry : entries) tensors.push_back({entry.name, "F64", entry.shape});
        writer_.emplace(folder_, std::move(tensors), 20'000);
    }
    void append(std::span<f64 const> piece) override { writer_->append(piece); }
    void end() override {
        io::AtomicFile config(folder_ / "config.json");
        config.write("{}");
        writer_->publish(config);
    }

  private:
    std::filesystem::path folder_;
    std::optional<io::CheckpointWriter> writer_;
};

/// Blocks of all kinds: dense and with experts, biases or norms of queries and keys; a vocabulary that tp does not
/// divide.
train::RunSettings run(model::Family family) {
    train::RunSettings settings{.model = model::decoder({.layers = 4,
                                                         .hidden = 16,
                                                         .heads = 4,
                                                         .kv_heads = 2,
                                                         .head_dim = 8,
                                                         .ffn = 12,
                                                         .vocab = 41,
                                                         .experts = model::has_experts(family) ? 4u : 0u}),
                                .strategy = {.batch = 8, .micro_batches = 2, .seq = 12, .sharding = {.stage = 1}},
                                .learning_rate = 0.01,
                                .warmup = 0};
    for (auto& block : settings.model.blocks) {
        auto attention = *block.branches[0].part.as<model::Attention>();
        attention.has_bias = family == model::Family::qwen2;
        attention.norms_queries_and_keys = family == model::Family::qwen3 || family == model::Family::qwen3_moe;
        block.branches[0].part = attention;
    }
    return settings;
}

MeshShape mesh_of(model::Family family) {
    if (world_size() == 1) return {};
    if (world_size() == 4) return {.pp = 2, .tp = 2};
    return model::has_experts(family) ? MeshShape{.pp = 2, .ep = 2, .tp = 2} : MeshShape{.pp = 2, .cp = 2, .tp = 2};
}

} // namespace

TEST_CASE("a checkpoint of one rank is read on any mesh, and written again the same") {
    for (auto const family : {model::Family::llama, model::Family::mixtral, model::Family::qwen2, model::Family::qwen3,
                              model::Family::qwen3_moe}) {
        CAPTURE(model::name(family));
        auto settings = run(family);
        REQUIRE(model::family_of(settings.model) == family);
        Folder const one, many;
        double expected = 0;
        {
            Alone const alone;
            Training<Stream> training(alone, settings);
            training.trainer.step(1); // weights that no seed draws, biases that are not zero
            if (world_rank() == 0) {
                Sink sink(one.path());
                train::export_weights<f64>(alone.context, training.trainer.model(), training.trainer.store(), family,
                                           sink);
            }
            expected = training.trainer.evaluate(2).loss;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        io::Checkpoint const checkpoint(one.path());
        CHECK(checkpoint.files().size() > 2);
        settings.seed = 99; // other weights to begin with
        OnMesh const mesh(mesh_of(family), 2);
        Training<Stream> training(mesh, settings);
        CHECK(training.trainer.evaluate(2).loss != doctest::Approx(expected).epsilon(1e-6));
        train::import_weights<f64>(mesh.context, training.trainer.model(), training.trainer.store(), family,
                                   checkpoint);
        settings.seed = 1;
        Training<Stream> same_data(mesh, settings); // the data depend on the seed
        train::import_weights<f64>(mesh.context, same_data.trainer.model(), same_data.trainer.store(), family,
                                   checkpoint);
        CHECK(same_data.trainer.evaluate(2).loss == doctest::Approx(expected).epsilon(1e-13));

        Sink sink(many.path());
        train::export_weights<f64>(mesh.context, training.trainer.model(), training.trainer.store(), family, sink);
        MPI_Barrier(MPI_COMM_WORLD);
        io::Checkpoint const again(many.path());
        for (auto const& [name, type, shape] : checkpoint.tensors()) {
            auto const box = io::Box::whole(shape);
            std::vector<double> a(io::detail::elements(box)), b(a.size());
            checkpoint.read(name, box, std::span(a));
            again.read(name, box, std::span(b));
            CHECK_MESSAGE(a == b, name);
        }
    }
}

TEST_CASE("what a checkpoint may have beside the model: a tied head that is the table, modules that are passed over") {
    auto settings = run(model::Family::llama);
    settings.model.ties_embeddings = true;
    enum class Beside { nothing, head, other_head, head_of_other_shape, predictor };
    auto const refusal = [&](Beside beside) {
        /// Adds one tensor behind the model's.
        class With final : public train::WeightSink<f64> {
          public:
            With(Sink& sink, Beside beside) : sink_(&sink), beside_(beside) {}
            void begin(std::vector<io::NamedShape> const& entries) override {
                auto all = entries;
                rows_ = entries.front().shape[0];
                width_ = entries.front().shape[1];
                REQUIRE(entries.front().name == "model.embed_tokens.weight");
                if (beside_ == Beside::predictor)
                    all.push_back({"model.layers.4.eh_proj.weight", {rows_, width_}});
                else if (beside_ == Beside::head_of_other_shape)
                    all.push_back({"lm_head.weight", {width_, rows_}});
                else if (beside_ != Beside::nothing)
                    all.push_back({"lm_head.weight", {rows_, width_}});
                sink_->begin(all);
            }
            void append(std::span<f64 const> piece) override {
                auto const missing = static_cast<std::size_t>(rows_ * width_) - table_.size();
                table_.insert(table_.end(), piece.begin(),
                              piece.begin() + static_cast<std::ptrdiff_t>(std::min(missing, piece.size())));
                sink_->append(piece);
            }
            void end() override {
                if (beside_ == Beside::other_head) table_.back() += 1e-3;
                if (beside_ != Beside::nothing) sink_->append(table_);
                sink_->end();
            }

          private:
            Sink* sink_;
            Beside beside_;
            std::int64_t rows_ = 0, width_ = 0;
            std::vector<f64> table_;
        };
        Folder const folder;
        double expected = 0;
        {
            Alone const alone;
            Training<Stream> written(alone, settings);
            if (world_rank() == 0) {
                Sink sink(folder.path());
                With with(sink, beside);
                train::export_weights<f64>(alone.context, written.trainer.model(), written.trainer.store(),
                                           model::Family::llama, with);
            }
            expected = written.trainer.evaluate(1).loss;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        OnMesh const mesh(mesh_of(model::Family::llama), 2);
        Training<Stream> training(mesh, settings);
        std::vector<std::string> const passed_over{"model.layers.4."};
        try {
            train::import_weights<f64>(mesh.context, training.trainer.model(), training.trainer.store(),
                                       model::Family::llama, io::Checkpoint(folder.path()), passed_over);
        } catch (std::invalid_argument const& error) {
            return std::string(error.what());
        }
        CHECK(training.trainer.evaluate(1).loss == doctest::Approx(expected).epsilon(1e-13));
        return std::string();
    };
    for (auto const fits : {Beside::nothing, Beside::head, Beside::predictor}) CHECK(refusal(fits) == "");
    for (auto const other : {Beside::other_head, Beside::head_of_other_shape})
        CHECK(refusal(other).find(
                  "does not fit the model: its lm_head.weight is not its model.embed_tokens.weight, which "
                  "the model has as its head (tie_word_embeddings)") != std::string::npos);
}

TEST_CASE("a checkpoint that does not fit the model is refused on all ranks, with the names of the tensors") {
    auto settings = run(model::Family::llama);
    Folder const folder;
    {
        Alone const alone;
        Training<Stream> training(alone, settings);
        if (world_rank() == 0) {
            Sink sink(folder.path());
            train::export_weights<f64>(alone.context, training.trainer.model(), training.trainer.store(),
                                       model::Family::llama, sink);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    settings.model.blocks[1].branches[1].part = model::GatedMlp{16};
    settings.model.blocks.push_back(settings.model.blocks[0]);
    settings.model.blocks.push_back(settings.model.blocks[0]);
    OnMesh const mesh(mesh_of(model::Family::llama), 2);
    Training<Stream> training(mesh, settings);
    std::string said;
    try {
        train::import_weights<f64>(mesh.context, training.trainer.model(), training.trainer.store(),
                                   model::Family::llama, io::Checkpoint(folder.path()));
    } catch (std::invalid_argument const& error) {
        said = error.what();
    }
    CHECK(said.find("it lacks 18 tensors") != said.npos);
    CHECK(said.find("3 tensors of another shape (model.layers.1.mlp.gate_proj.weight is [12, 16], not [16, 16]") !=
          said.npos);
}
