// A checkpoint as Hugging Face lays it out: model.safetensors, or the shards that model.safetensors.index.json
// names. Opened without its data; a rank reads the boxes that it holds. Nothing in the files is trusted.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/io/safetensors.hpp>
#include <pentad/io/tensor_box.hpp>
#include <pentad/mesh/one_line.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::io {

namespace detail {

/// The file with all tensors; or, where they are in several, the one that says in which.
inline constexpr std::string_view checkpoint_file = "model.safetensors";
inline constexpr std::string_view checkpoint_index = "model.safetensors.index.json";

} // namespace detail

/// The tensors of a checkpoint. Its files stay open: what replaces them later is not seen.
class Checkpoint {
  public:
    /// A folder with model.safetensors or model.safetensors.index.json; or one of these, of any name. Reads and checks
    /// all headers. @throws FileError a sentence about the first file that is missing or not right: which tensors it
    /// holds, and where, must be what the index says
    explicit Checkpoint(std::filesystem::path const& path);

    /// What was given to the constructor.
    [[nodiscard]] std::filesystem::path const& path() const { return path_; }
    /// All files, the index first.
    [[nodiscard]] std::vector<std::filesystem::path> const& files() const { return files_; }

    /// File by file, in the order of their data.
    [[nodiscard]] std::vector<TensorEntry> const& tensors() const& { return tensors_; }
    [[nodiscard]] std::vector<TensorEntry> tensors() && {
        return std::move(tensors_);
    } // outlives a temporary checkpoint
    [[nodiscard]] bool contains(std::string_view name) const { return index_.contains(name); }
    [[nodiscard]] TensorEntry const& tensor(std::string_view name) const { return tensors_[place_of(name).tensor]; }

    /// Reads the box of a tensor of F64, F32, BF16 or F16, row-major, as f64, f32 or bf16
    /// (SafetensorsReader::read_box).
    /// @throws FileError where the file has become shorter, or cannot be read; std::invalid_argument where the box is
    /// not inside the tensor or `into` not of its size
    template <class T>
    void read(std::string_view name, Box const& box, std::span<T> into) const {
        shards_[place_of(name).shard].read_box(name, box, into);
    }

    /// One sentence about all that a model of these tensors cannot take: tensors that are missing, of another shape, of
    /// elements that are not real numbers, or left over, but for those of which `is_ignored` says that they may be.
    /// Nothing where the checkpoint fits.
    [[nodiscard]] std::optional<std::string>
    refusal(std::span<NamedShape const> expected, std::function<bool(std::string_view)> const& is_ignored = {}) const;

  private:
    struct Place {
        std::size_t shard, tensor;
    };
    using FileOfTensor = std::map<std::string, std::string, std::less<>>;

    [[noreturn]] void refuse(std::string const& why) const {
        throw FileError("cannot read the checkpoint " + path_.string() + ": " + why);
    }

    [[nodiscard]] std::filesystem::path file_of(std::filesystem::path const& path) const;

    void open(std::filesystem::path const& file) {
        shards_.emplace_back(file);
        files_.push_back(file);
    }
    [[nodiscard]] std::string name_of(std::size_t shard) const {
        return one_line(shards_[shard].path().filename().string());
    }

    /// Opens the files that the index names, each a name of its own in the folder of the index.
    FileOfTensor open_shards(std::filesystem::path const& index);

    /// The index and the files name the same tensors in the same places.
    void compare_with(FileOfTensor const& by_index) const;

    [[nodiscard]] Place place_of(std::string_view name) const {
        auto const found = index_.find(name);
        if (found == index_.end()) refuse("it has no tensor " + detail::shown(name));
        return found->second;
    }

    std::filesystem::path path_;
    std::vector<std::filesystem::path> files_;
    std::vector<SafetensorsReader> shards_;
    std::vector<TensorEntry> tensors_;
    std::map<std::string, Place, std::less<>> index_;
};

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/checkpoint.hpp>
#endif
