// Exported weights as a checkpoint with its config.json. A header of its own: JSON is slow to compile.
#pragma once

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/checkpoint_writer.hpp>
#include <pentad/train/export.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

/// Writes what export_weights() gives to a folder that exists; the files appear together.
/// @tparam A the elements of the checkpoint
template <class A>
class CheckpointSink final : public WeightSink<A> {
  public:
    /// @param config the text of config.json
    CheckpointSink(std::filesystem::path folder, std::string config)
        : folder_(std::move(folder)), config_(std::move(config)) {}
    /// @throws io::FileError, as append() and end() do
    void begin(std::vector<io::NamedShape> const& entries) override {
        std::vector<io::TensorEntry> tensors;
        for (auto const& entry : entries)
            tensors.push_back({entry.name, std::string(io::safetensors_type<A>), entry.shape});
        writer_.emplace(folder_, std::move(tensors));
    }
    void append(std::span<A const> piece) override {
        if (!std::all_of(piece.begin(), piece.end(), [](A value) { return std::isfinite(value); }))
            throw io::FileError("weights that are not finite are not written to " + folder_.string());
        writer_->append(piece);
    }
    void end() override {
        io::AtomicFile config(folder_ / "config.json");
        config.write(config_);
        writer_->publish(config);
    }

  private:
    std::filesystem::path folder_;
    std::string config_;
    std::optional<io::CheckpointWriter> writer_;
};

} // namespace pentad::train
