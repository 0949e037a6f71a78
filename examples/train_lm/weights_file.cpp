// The weights as a safetensors file. A unit of its own: JSON is slow to compile.
#include "instantiate.hpp"

#include <pentad/io/safetensors.hpp>

#include <optional>

namespace train_lm {

namespace {

template <class A>
class SafetensorsSink final : public pentad::train::WeightSink<A> {
  public:
    explicit SafetensorsSink(std::filesystem::path const& path) : path_(path) {}
    void begin(std::vector<pentad::train::TensorEntry> const& entries) override {
        std::vector<pentad::io::TensorEntry> tensors;
        for (auto const& entry : entries)
            tensors.push_back({entry.name, std::string(pentad::io::safetensors_type<A>), entry.shape});
        writer_.emplace(path_, std::move(tensors));
    }
    void append(std::span<A const> piece) override { writer_->append(piece); }
    void end() override { writer_->close(); }

  private:
    std::filesystem::path path_;
    std::optional<pentad::io::SafetensorsWriter> writer_;
};

} // namespace

template <class A>
std::unique_ptr<pentad::train::WeightSink<A>> make_sink(std::filesystem::path const& path) {
    return std::make_unique<SafetensorsSink<A>>(path);
}
template std::unique_ptr<pentad::train::WeightSink<double>> make_sink(std::filesystem::path const&);
template std::unique_ptr<pentad::train::WeightSink<float>> make_sink(std::filesystem::path const&);

} // namespace train_lm
