// The weights as a checkpoint, with their config.json. A unit of its own: JSON is slow to compile.
#include "instantiate.hpp"

#include <pentad/train/checkpoint_sink.hpp>

namespace train_lm {

template <class A>
std::unique_ptr<pentad::train::WeightSink<A>> make_sink(std::filesystem::path const& folder,
                                                        std::string const& config) {
    return std::make_unique<pentad::train::CheckpointSink<A>>(folder, config);
}
template std::unique_ptr<pentad::train::WeightSink<double>> make_sink(std::filesystem::path const&, std::string const&);
template std::unique_ptr<pentad::train::WeightSink<float>> make_sink(std::filesystem::path const&, std::string const&);

} // namespace train_lm
