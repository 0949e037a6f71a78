// Room: io. Text as training data: a byte is a token, a sequence is a window of seq + 1 bytes of one file. Which window
// is a pure function of (seed, number of the sequence), so every rank finds the sequences of any mesh by itself.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/tensor/random.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::io {

/// A whole file in memory, read-only; the operating system brings the pages as they are used.
class MappedFile {
  public:
    explicit MappedFile(std::filesystem::path const& path) {
        auto const file = File::open_for_reading(path);
        size_ = file.size();
        if (size_ == 0) return; // an empty mapping is an error of the operating system
        void* const address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
        if (address == MAP_FAILED) throw FileError("read", path, errno);
        data_ = static_cast<unsigned char const*>(address);
    }
    MappedFile(MappedFile&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    MappedFile& operator=(MappedFile&&) = delete;
    ~MappedFile() {
        if (data_ != nullptr) ::munmap(const_cast<unsigned char*>(data_), size_);
    }

    [[nodiscard]] std::span<unsigned char const> bytes() const { return {data_, size_}; }

  private:
    unsigned char const* data_ = nullptr;
    std::size_t size_ = 0;
};

class TextData {
  public:
    using Window = std::span<unsigned char const>;

    /// The files in this order; `seq` is the number of targets in a sequence. Refuses (FileError) a file that is
    /// missing, empty, or too short for one window.
    TextData(std::vector<std::filesystem::path> const& paths, std::int64_t seq, std::uint64_t seed)
        : TextData(seq, seed) {
        if (paths.empty()) throw std::invalid_argument("training data need at least one file");
        for (auto const& path : paths) {
            files_.emplace_back(path);
            add(files_.back().bytes(), path.string());
        }
    }
    /// A text in memory, which outlives this object.
    TextData(std::string_view text, std::string const& name, std::int64_t seq, std::uint64_t seed)
        : TextData(seq, seed) {
        add({reinterpret_cast<unsigned char const*>(text.data()), text.size()}, name);
    }

    /// The window of a sequence, counted from 0 over the whole run: seq + 1 bytes at an offset drawn uniformly from all
    /// that fit. Tokens are bytes 0 to seq - 1, targets bytes 1 to seq.
    [[nodiscard]] Window window(std::int64_t sequence) const {
        auto const drawn =
            random::uniform_below(seed_, random::stream("data"), static_cast<std::uint64_t>(sequence), windows());
        auto const text =
            std::upper_bound(texts_.begin(), texts_.end(), drawn, [](std::uint64_t number, Text const& candidate) {
                return number < candidate.windows_end;
            });
        std::uint64_t const before = text == texts_.begin() ? 0 : std::prev(text)->windows_end;
        return text->bytes.subspan(drawn - before, static_cast<std::size_t>(seq_) + 1);
    }

    /// How many different windows there are.
    [[nodiscard]] std::uint64_t windows() const { return texts_.back().windows_end; }
    [[nodiscard]] std::uint64_t bytes() const { return windows() + texts_.size() * static_cast<std::uint64_t>(seq_); }

  private:
    struct Text {
        Window bytes;
        std::uint64_t windows_end; ///< windows in this text and those before it
    };

    TextData(std::int64_t seq, std::uint64_t seed) : seq_(seq), seed_(seed) {
        if (seq < 1) throw std::invalid_argument("a sequence needs at least one token, not " + std::to_string(seq));
    }

    void add(Window bytes, std::string const& name) {
        auto const needed = static_cast<std::uint64_t>(seq_) + 1;
        if (bytes.empty())
            throw FileError(name + " is empty: a window of seq = " + std::to_string(seq_) + " needs " +
                            std::to_string(needed) + " bytes");
        if (bytes.size() < needed)
            throw FileError(
                name + " has " + std::to_string(bytes.size()) +
                " bytes, and a window of seq = " + std::to_string(seq_) + " needs " + std::to_string(needed) +
                (bytes.size() > 1 ? ": seq <= " + std::to_string(bytes.size() - 1) + " would fit" : ": no seq fits"));
        std::uint64_t const before = texts_.empty() ? 0 : windows();
        texts_.push_back({bytes, before + bytes.size() - static_cast<std::uint64_t>(seq_)});
    }

    std::int64_t seq_;
    std::uint64_t seed_;
    std::vector<MappedFile> files_;
    std::vector<Text> texts_;
};

} // namespace pentad::io
