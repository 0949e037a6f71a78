// The weights as a safetensors file, and their config.json. A unit of its own: JSON is slow to compile.
#include "instantiate.hpp"

#include <pentad/io/safetensors.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

namespace train_lm {

namespace {

template <class A>
class SafetensorsSink final : public pentad::train::WeightSink<A> {
  public:
    SafetensorsSink(std::filesystem::path const& folder, std::string const& config)
        : path_(folder / "model.safetensors"), config_path_(folder / "config.json"), config_(config) {}
    void begin(std::vector<pentad::train::TensorEntry> const& entries) override {
        std::vector<pentad::io::TensorEntry> tensors;
        for (auto const& entry : entries)
            tensors.push_back({entry.name, std::string(pentad::io::safetensors_type<A>), entry.shape});
        writer_.emplace(path_, std::move(tensors));
    }
    void append(std::span<A const> piece) override {
        if (!std::all_of(piece.begin(), piece.end(), [](A value) { return std::isfinite(value); }))
            throw pentad::io::FileError("weights that are not finite are not written to " + path_.string());
        writer_->append(piece);
    }
    void end() override {
        pentad::io::AtomicFile config(config_path_);
        config.write(config_);
        pentad::io::publish({&writer_->finish()}, config);
    }

  private:
    std::filesystem::path path_, config_path_;
    std::string config_;
    std::optional<pentad::io::SafetensorsWriter> writer_;
};

} // namespace

template <class A>
std::unique_ptr<pentad::train::WeightSink<A>> make_sink(std::filesystem::path const& folder,
                                                        std::string const& config) {
    return std::make_unique<SafetensorsSink<A>>(folder, config);
}
template std::unique_ptr<pentad::train::WeightSink<double>> make_sink(std::filesystem::path const&, std::string const&);
template std::unique_ptr<pentad::train::WeightSink<float>> make_sink(std::filesystem::path const&, std::string const&);

} // namespace train_lm
