#include "convert.hpp"

#include <pentad/checkpoint/folder.hpp>
#include <pentad/checkpoint/reader.hpp>
#include <pentad/checkpoint/writer.hpp>
#include <pentad/io/atomic_file.hpp>
#include <pentad/io/checkpoint.hpp>
#include <pentad/io/checkpoint_writer.hpp>
#include <pentad/io/model_config.hpp>
#include <pentad/io/safetensors.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

using namespace pentad;

namespace {

/// Elements that are held at once.
constexpr std::uint64_t at_once = std::uint64_t{1} << 22;

/// Calls f with a zero of the element type of this name.
template <class F>
void with_element(std::string_view type, F&& f) {
    if (type == io::safetensors_type<f64>) return f(f64());
    if (type == io::safetensors_type<f32>) return f(f32());
    return f(bf16());
}

std::string type_of_weights(checkpoint::Manifest const& manifest) {
    for (auto const& file : manifest.files)
        for (auto const& piece : file.pieces)
            if (piece.state == checkpoint::weight_state) return piece.type;
    return std::string(io::safetensors_type<f32>);
}

/// A folder that is made where there is none; gone again where nothing has come into it.
class OutputFolder {
  public:
    explicit OutputFolder(std::filesystem::path path) : path_(std::move(path)) {
        is_new_ = ::mkdir(path_.c_str(), 0777) == 0;
        int const failed = is_new_ ? 0 : errno;
        std::error_code ignored;
        if (!is_new_ && !std::filesystem::is_directory(path_, ignored))
            throw std::invalid_argument(io::FileError("write", path_, failed == EEXIST ? ENOTDIR : failed).what());
    }
    OutputFolder(OutputFolder const&) = delete;
    OutputFolder& operator=(OutputFolder const&) = delete;
    ~OutputFolder() {
        if (is_new_) ::rmdir(path_.c_str()); // it stays where it is not empty
    }

  private:
    std::filesystem::path path_;
    bool is_new_ = false;
};

} // namespace

void to_hugging_face(std::filesystem::path const& path, std::filesystem::path const& folder,
                     std::string const& element) {
    checkpoint::Reader const reader(path);
    auto const& manifest = reader.manifest();
    if (!manifest.run.contains("config"))
        throw std::invalid_argument("the checkpoint " + path.string() + " has no config.json of its model");
    auto const type = element.empty() ? type_of_weights(manifest) : element;
    std::vector<io::TensorEntry> entries;
    for (auto const& [name, shape] : manifest.tensors) entries.push_back({name, type, shape});
    OutputFolder const made(folder);
    io::CheckpointWriter writer(folder, std::move(entries));
    with_element(type, [&](auto zero) {
        using T = decltype(zero);
        std::vector<T> values;
        for (auto const& [name, shape] : manifest.tensors) {
            std::uint64_t const size = io::detail::elements(shape);
            for (std::uint64_t begin = 0; begin < size; begin += at_once) {
                values.resize(std::min(at_once, size - begin));
                reader.read(name, checkpoint::weight_state, {io::Box::whole(shape), begin, begin + values.size()},
                            std::span(values));
                writer.append(std::span<T const>(values));
            }
        }
    });
    auto const config = io::stored_config(manifest.run.at("config").dump(), type == "F64"   ? "float64"
                                                                            : type == "F32" ? "float32"
                                                                                            : "bfloat16");
    io::AtomicFile description(folder / "config.json");
    description.write(config.dump(2) + "\n");
    writer.publish(description);
}

std::filesystem::path from_hugging_face(std::filesystem::path const& weights, std::filesystem::path const& folder,
                                        std::string const& element) {
    auto const config = io::read_config(weights);
    (void)io::model_from_config(config, io::ConfigUse::training); // what train_lm could not read is refused here
    io::Checkpoint const source(weights);
    for (auto const& [name, type, shape] : source.tensors()) {
        bool const is_real = io::detail::with_real_type(type, [](auto) {});
        if (!is_real) throw std::invalid_argument("tensor " + name + " holds " + type + ", which is not converted");
    }
    OutputFolder const made(folder);
    checkpoint::FolderLock const lock(folder);
    if (auto const found = checkpoint::list(folder); !found.empty())
        throw std::invalid_argument(folder.string() + " has the checkpoint of step " +
                                    std::to_string(found.back().step) + " already: convert to another folder");
    checkpoint::remove_left_behind(folder);
    auto const partial = checkpoint::make_partial(folder, 0);
    checkpoint::Manifest manifest{.step = 0, .run = {{"config", io::plain_config(config)}}, .tensors = {}, .files = {}};
    int number = 0;
    for (auto const& [name, type, shape] : source.tensors()) {
        manifest.tensors.push_back({name, shape});
        // bf16 weights are trained with f32 masters; a file holds one tensor, so that no more is in memory.
        with_element(element.empty() ? (type == "F64" ? type : "F32") : element, [&](auto zero) {
            using T = decltype(zero);
            std::vector<T> values(io::detail::elements(shape));
            source.read(name, io::Box::whole(shape), std::span(values));
            checkpoint::WrittenPiece const piece{{name,
                                                  std::string(checkpoint::weight_state),
                                                  std::string(io::safetensors_type<T>),
                                                  {io::Box::whole(shape), 0, values.size()}},
                                                 reinterpret_cast<std::byte const*>(values.data())};
            if (!values.empty())
                manifest.files.push_back(
                    checkpoint::write_pieces(partial / checkpoint::rank_file(number++), std::span(&piece, 1)));
        });
    }
    checkpoint::publish(folder, manifest);
    return folder / checkpoint::folder_name(0);
}
