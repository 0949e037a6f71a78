// The weights as a checkpoint, with their config.json. A unit of its own: JSON is slow to compile.
#include "instantiate.hpp"

#include <pentad/io/checkpoint_writer.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

namespace train_lm {

namespace {

template <class A>
class CheckpointSink final : public pentad::train::WeightSink<A> {
  public:
    CheckpointSink(std::filesystem::path folder, std::string config)
        : folder_(std::move(folder)), config_(std::move(config)) {}
    void begin(std::vector<pentad::io::NamedShape> const& entries) override {
        std::vector<pentad::io::TensorEntry> tensors;
        for (auto const& entry : entries)
            tensors.push_back({entry.name, std::string(pentad::io::safetensors_type<A>), entry.shape});
        writer_.emplace(folder_, std::move(tensors));
    }
    void append(std::span<A const> piece) override {
        if (!std::all_of(piece.begin(), piece.end(), [](A value) { return std::isfinite(value); }))
            throw pentad::io::FileError("weights that are not finite are not written to " + folder_.string());
        writer_->append(piece);
    }
    void end() override {
        pentad::io::AtomicFile config(folder_ / "config.json");
        config.write(config_);
        writer_->publish(config);
    }

  private:
    std::filesystem::path folder_;
    std::string config_;
    std::optional<pentad::io::CheckpointWriter> writer_;
};

} // namespace

template <class A>
std::unique_ptr<pentad::train::WeightSink<A>> make_sink(std::filesystem::path const& folder,
                                                        std::string const& config) {
    return std::make_unique<CheckpointSink<A>>(folder, config);
}
template std::unique_ptr<pentad::train::WeightSink<double>> make_sink(std::filesystem::path const&, std::string const&);
template std::unique_ptr<pentad::train::WeightSink<float>> make_sink(std::filesystem::path const&, std::string const&);

} // namespace train_lm
