// A checkpoint as Hugging Face lays it out: model.safetensors, or the shards that model.safetensors.index.json
// names. Opened without its data; a rank reads the boxes that it holds. Nothing in the files is trusted.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/io/safetensors.hpp>
#include <pentad/io/tensor_box.hpp>
#include <pentad/mesh/one_line.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace pentad::io {

namespace detail {

/// The file with all tensors; or, where they are in several, the one that says in which.
inline constexpr std::string_view checkpoint_file = "model.safetensors";
inline constexpr std::string_view checkpoint_index = "model.safetensors.index.json";

/// "a, b, c and 4 more"
class SomeNames {
  public:
    void add(std::string const& name) {
        if (++count_ > most) return;
        text_ += (count_ > 1 ? ", " : "") + name;
    }
    [[nodiscard]] std::size_t count() const { return count_; }
    [[nodiscard]] std::string text() const {
        return count_ <= most ? text_ : text_ + " and " + std::to_string(count_ - most) + " more";
    }

  private:
    static constexpr std::size_t most = 3;
    std::size_t count_ = 0;
    std::string text_;
};

} // namespace detail

/// The tensors of a checkpoint. Its files stay open: what replaces them later is not seen.
class Checkpoint {
  public:
    /// A folder with model.safetensors or model.safetensors.index.json; or one of these, of any name. Reads and checks
    /// all headers. @throws FileError a sentence about the first file that is missing or not right: which tensors it
    /// holds, and where, must be what the index says
    explicit Checkpoint(std::filesystem::path const& path) : path_(path) {
        auto const file = file_of(path);
        FileOfTensor by_index;
        if (file.extension() == ".json")
            by_index = open_shards(file);
        else
            open(file);
        for (std::size_t shard = 0; shard < shards_.size(); ++shard)
            for (auto const& tensor : shards_[shard].tensors()) {
                auto const [place, is_new] = index_.try_emplace(tensor.name, Place{shard, tensors_.size()});
                if (!is_new)
                    refuse("tensor " + detail::shown(tensor.name) + " is in both " + name_of(place->second.shard) +
                           " and " + name_of(shard));
                tensors_.push_back(tensor);
            }
        if (!by_index.empty()) compare_with(by_index);
    }

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
    refusal(std::span<NamedShape const> expected, std::function<bool(std::string_view)> const& is_ignored = {}) const {
        detail::SomeNames missing, others, left_over, unreadable;
        std::set<std::string_view> known;
        for (auto const& [name, shape] : expected) {
            known.insert(name);
            std::string const shown = detail::shown(name);
            if (!contains(name)) {
                missing.add(shown);
                continue;
            }
            auto const& found = tensor(name);
            if (found.shape != shape)
                others.add(shown + " is " + detail::shape_text(found.shape) + ", not " + detail::shape_text(shape));
            else if (!detail::with_real_type(found.type, [](auto) {}))
                unreadable.add(shown + " holds " + one_line(found.type));
        }
        for (auto const& [name, type, shape] : tensors_)
            if (!known.contains(name) && !(is_ignored && is_ignored(name))) left_over.add(detail::shown(name));

        std::string reasons;
        auto const add = [&reasons](detail::SomeNames const& names, std::string const& before,
                                    std::string const& after) {
            if (names.count() == 0) return;
            reasons += (reasons.empty() ? "" : "; ") + before + std::to_string(names.count()) +
                       (names.count() == 1 ? " tensor" : " tensors") + after + " (" + names.text() + ")";
        };
        add(missing, "it lacks ", "");
        add(others, "it has ", " of another shape");
        add(unreadable, "it has ", " not of F64, F32, BF16 or F16");
        add(left_over, "it has ", " that the model does not have");
        if (reasons.empty()) return std::nullopt;
        return path_.string() + " does not fit the model: " + reasons;
    }

  private:
    struct Place {
        std::size_t shard, tensor;
    };
    using FileOfTensor = std::map<std::string, std::string, std::less<>>;

    [[noreturn]] void refuse(std::string const& why) const {
        throw FileError("cannot read the checkpoint " + path_.string() + ": " + why);
    }

    [[nodiscard]] std::filesystem::path file_of(std::filesystem::path const& path) const {
        std::error_code ignored;
        if (!std::filesystem::is_directory(path, ignored)) return path;
        auto const is_there = [&](std::string_view name) {
            return std::filesystem::exists(std::filesystem::symlink_status(path / name, ignored));
        };
        std::string const file(detail::checkpoint_file), index(detail::checkpoint_index);
        bool const has_file = is_there(file), has_index = is_there(index);
        if (has_file && has_index) refuse("it has both " + file + " and " + index + ": name the one to read");
        if (!has_file && !has_index) refuse("it has neither " + file + " nor " + index);
        return path / (has_file ? file : index);
    }

    void open(std::filesystem::path const& file) {
        shards_.emplace_back(file);
        files_.push_back(file);
    }
    [[nodiscard]] std::string name_of(std::size_t shard) const {
        return one_line(shards_[shard].path().filename().string());
    }

    /// Opens the files that the index names, each a name of its own in the folder of the index.
    FileOfTensor open_shards(std::filesystem::path const& index) {
        std::string const text = read_file(index, std::uint64_t{64} << 20); // of the largest models it has some MiB
        files_.push_back(index);
        FileOfTensor by_index;
        std::set<std::string> files;
        try {
            auto const json = detail::parse_object(text);
            auto const& names = detail::member(json, "weight_map", "weight_map");
            if (!names.is_object() || names.empty())
                detail::refuse_json("weight_map", "an object of tensors and their files", names);
            for (auto const& [tensor, file] : names.items()) {
                std::string const where = "weight_map." + detail::shown(tensor);
                auto name = detail::text(file, where);
                if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos)
                    detail::refuse_json(where, "the name of a file in the folder of the index", file);
                files.insert(name);
                by_index.emplace(tensor, std::move(name));
            }
        } catch (std::invalid_argument const& error) {
            refuse(one_line(index.filename().string()) + ": " + error.what());
        }
        allow_open_files(files.size());
        for (auto const& name : files) open(index.parent_path() / name);
        return by_index;
    }

    /// The index and the files name the same tensors in the same places.
    void compare_with(FileOfTensor const& by_index) const {
        for (auto const& [tensor, file] : by_index) {
            auto const found = index_.find(tensor);
            if (found != index_.end() && shards_[found->second.shard].path().filename() == file) continue;
            refuse("the index puts tensor " + detail::shown(tensor) + " into " + one_line(file) +
                   (found == index_.end() ? ", which lacks it" : ", and it is in " + name_of(found->second.shard)));
        }
        for (auto const& [tensor, place] : index_)
            if (!by_index.contains(tensor))
                refuse(name_of(place.shard) + " has tensor " + detail::shown(tensor) +
                       ", which the index does not name");
    }

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
