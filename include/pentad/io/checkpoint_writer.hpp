// Writes a checkpoint as Hugging Face lays it out, tensor by tensor: one model.safetensors, or, where that would
// be too large, shards and their index.
#pragma once

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/checkpoint.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/io/safetensors.hpp>
#include <pentad/mesh/one_line.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace pentad::io {

namespace detail {

/// "model-00002-of-00007.safetensors", for the second (1) of 7
inline std::string shard_name(std::size_t shard, std::size_t shards) {
    std::array<char, 80> name{};
    std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
    return name.data();
}

/// Whether a checkpoint may have a file of this name.
inline bool is_checkpoint_name(std::string_view name) {
    if (name == checkpoint_file || name == checkpoint_index) return true;
    auto const skip = [&name](std::string_view start) {
        bool const is_there = name.starts_with(start);
        if (is_there) name.remove_prefix(start.size());
        return is_there;
    };
    auto const skip_number = [&name] {
        std::size_t const digits = std::min(name.find_first_not_of("0123456789"), name.size());
        name.remove_prefix(digits);
        return digits >= 5;
    };
    return skip("model-") && skip_number() && skip("-of-") && skip_number() && name == ".safetensors";
}

} // namespace detail

/// The tensors are known before their data, which come in their order, in pieces of any size. The files appear together
/// with publish(), and what the folder held of an earlier checkpoint disappears.
class CheckpointWriter {
  public:
    /// A shard has at most this many bytes of data, or one tensor; the default is that of transformers.
    static constexpr std::uint64_t default_shard_bytes = 5'000'000'000;

    /// @throws std::invalid_argument where safetensors cannot hold a tensor; FileError
    CheckpointWriter(std::filesystem::path folder, std::vector<TensorEntry> tensors,
                     std::uint64_t shard_bytes = default_shard_bytes)
        : folder_(std::move(folder)), shards_(shared_out(std::move(tensors), shard_bytes)) {
        allow_open_files(shards_.size());
        remove_left_behind();
        begin_shard();
    }

    /// Adds data to the tensor whose turn it is; a piece may end one tensor and begin the next.
    template <class T>
    void append(std::span<T const> piece) {
        while (!piece.empty()) {
            while (left_ == 0 && writers_.size() < shards_.size()) begin_shard();
            // In the last shard the writer itself refuses what is too much.
            bool const is_last = writers_.size() == shards_.size();
            std::size_t const count = is_last ? piece.size() : std::min<std::uint64_t>(piece.size(), left_ / sizeof(T));
            writers_.back().append(piece.first(std::max<std::size_t>(count, 1)));
            left_ -= std::min<std::uint64_t>(left_, count * sizeof(T));
            piece = piece.subspan(count);
        }
    }

    /// How many files the tensors are in.
    [[nodiscard]] std::size_t shards() const { return shards_.size(); }

    /// Puts all files in place, together with what describes them (config.json): io::publish. Every tensor is complete.
    void publish(AtomicFile& description) {
        std::vector<AtomicFile*> files;
        for (auto& writer : writers_) files.push_back(&writer.finish());
        if (files.size() < shards_.size())
            throw std::logic_error("tensor " + shards_[files.size()].front().name + " is not complete");
        std::optional<AtomicFile> index;
        if (shards_.size() > 1) {
            index.emplace(folder_ / detail::checkpoint_index);
            index->write(index_text());
            files.push_back(&*index);
        }
        io::publish(files, description, obsolete());
    }

  private:
    using Shards = std::vector<std::vector<TensorEntry>>;

    /// Tensors in their order, as many in a shard as fit.
    static Shards shared_out(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes) {
        detail::check_writable(tensors);
        Shards shards(1);
        std::uint64_t bytes = 0;
        for (auto& tensor : tensors) {
            std::uint64_t const more = detail::tensor_bytes(tensor.type, tensor.shape).value();
            if (bytes > 0 && more > shard_bytes - std::min(shard_bytes, bytes)) {
                shards.emplace_back();
                bytes = 0;
            }
            bytes += more;
            shards.back().push_back(std::move(tensor));
        }
        return shards;
    }

    [[nodiscard]] std::string file_name(std::size_t shard) const {
        return shards_.size() == 1 ? std::string(detail::checkpoint_file) : detail::shard_name(shard, shards_.size());
    }
    void begin_shard() {
        std::size_t const shard = writers_.size();
        writers_.emplace_back(folder_ / file_name(shard), shards_[shard]);
        left_ = 0;
        for (auto const& tensor : shards_[shard]) left_ += detail::tensor_bytes(tensor.type, tensor.shape).value();
    }

    [[nodiscard]] std::string index_text() const {
        std::uint64_t bytes = 0;
        detail::Json names = detail::Json::object();
        for (std::size_t shard = 0; shard < shards_.size(); ++shard)
            for (auto const& tensor : shards_[shard]) {
                bytes += detail::tensor_bytes(tensor.type, tensor.shape).value();
                names[tensor.name] = file_name(shard);
            }
        detail::Json const index{{"metadata", {{"total_size", bytes}}}, {"weight_map", std::move(names)}};
        return index.dump(2) + "\n";
    }

    /// Files of an earlier checkpoint that this one does not replace.
    [[nodiscard]] std::vector<std::filesystem::path> obsolete() const {
        std::set<std::string> names;
        for (std::size_t shard = 0; shard < shards_.size(); ++shard) names.insert(file_name(shard));
        if (shards_.size() > 1) names.insert(std::string(detail::checkpoint_index));
        std::vector<std::filesystem::path> paths;
        std::error_code error;
        for (std::filesystem::directory_iterator at(folder_, error), end; at != end; at.increment(error)) {
            std::string const name = at->path().filename().string();
            if (detail::is_checkpoint_name(name) && !names.contains(name) &&
                !std::filesystem::is_directory(at->symlink_status(error)))
                paths.push_back(at->path());
        }
        if (error) throw FileError("read", folder_, error.value());
        return paths;
    }

    /// Removes the temporary files of checkpoints with another number of shards whose process is gone.
    void remove_left_behind() const {
        std::vector<std::filesystem::path> paths;
        std::error_code ignored;
        for (std::filesystem::directory_iterator at(folder_, ignored), end; at != end; at.increment(ignored)) {
            std::string name = at->path().filename().string(); // .NAME.PID.ATTEMPT.tmp
            if (!name.starts_with('.') || !name.ends_with(".tmp")) continue;
            for (int i = 0; i < 3; ++i) name.resize(std::min(name.rfind('.'), name.size()));
            name.erase(0, 1);
            if (detail::is_checkpoint_name(name)) paths.push_back(folder_ / name);
        }
        for (auto const& path : paths) detail::remove_left_behind(path);
    }

    std::filesystem::path folder_;
    Shards shards_;
    std::deque<SafetensorsWriter> writers_; ///< of the first shards; they stay where they are, as AtomicFile does
    std::uint64_t left_ = 0;                ///< bytes that the last one still takes
};

} // namespace pentad::io
