// The functions of <pentad/io/checkpoint_writer.hpp>.
#pragma once

#include <pentad/io/checkpoint_writer.hpp>

#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/mesh/inline.hpp>

#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

namespace pentad::io::detail {

/// Whether a checkpoint may have a file of this name.
PENTAD_INLINE bool is_checkpoint_name(std::string_view name) {
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

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE void CheckpointWriter::publish(AtomicFile& description) {
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

PENTAD_INLINE auto CheckpointWriter::shared_out(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes) -> Shards {
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

PENTAD_INLINE void CheckpointWriter::begin_shard() {
    std::size_t const shard = writers_.size();
    writers_.emplace_back(folder_ / file_name(shard), shards_[shard]);
    left_ = 0;
    for (auto const& tensor : shards_[shard]) left_ += detail::tensor_bytes(tensor.type, tensor.shape).value();
}

PENTAD_INLINE std::string CheckpointWriter::index_text() const {
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

PENTAD_INLINE std::vector<std::filesystem::path> CheckpointWriter::obsolete() const {
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

PENTAD_INLINE void CheckpointWriter::remove_left_behind() const {
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

PENTAD_INLINE CheckpointWriter::CheckpointWriter(std::filesystem::path folder, std::vector<TensorEntry> tensors,
                                                 std::uint64_t shard_bytes)
    : folder_(std::move(folder)), shards_(shared_out(std::move(tensors), shard_bytes)) {
    allow_open_files(shards_.size());
    remove_left_behind();
    begin_shard();
}

} // namespace pentad::io
