// Writes a checkpoint as Hugging Face lays it out, tensor by tensor: one model.safetensors, or, where that would
// be too large, shards and their index.
#pragma once

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/checkpoint.hpp>
#include <pentad/io/safetensors.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace pentad::io {

namespace detail {

/// "model-00002-of-00007.safetensors", for the second (1) of 7
inline std::string shard_name(std::size_t shard, std::size_t shards) {
    std::array<char, 80> name{};
    std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
    return name.data();
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
                     std::uint64_t shard_bytes = default_shard_bytes);

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
    void publish(AtomicFile& description);

  private:
    using Shards = std::vector<std::vector<TensorEntry>>;

    /// Tensors in their order, as many in a shard as fit.
    static Shards shared_out(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes);

    [[nodiscard]] std::string file_name(std::size_t shard) const {
        return shards_.size() == 1 ? std::string(detail::checkpoint_file) : detail::shard_name(shard, shards_.size());
    }
    void begin_shard();

    [[nodiscard]] std::string index_text() const;

    /// Files of an earlier checkpoint that this one does not replace.
    [[nodiscard]] std::vector<std::filesystem::path> obsolete() const;

    /// Removes the temporary files of checkpoints with another number of shards whose process is gone.
    void remove_left_behind() const;

    std::filesystem::path folder_;
    Shards shards_;
    std::deque<SafetensorsWriter> writers_; ///< of the first shards; they stay where they are, as AtomicFile does
    std::uint64_t left_ = 0;                ///< bytes that the last one still takes
};

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/checkpoint_writer.hpp>
#endif
