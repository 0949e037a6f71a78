// Text as training data: a byte is a token, a sequence is a window of seq + 1 bytes of one file. Which window
// is a pure function of (seed, number of the sequence), so every rank finds the sequences of any mesh by itself.
#pragma once

#include <pentad/io/file.hpp>
#include <pentad/layout/random.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pentad::io {

class TextData {
  public:
    /// The files in this order; `seq` is the number of targets in a sequence. Refuses (FileError) a file that is
    /// missing, empty, or too short for one window. The files stay open.
    TextData(std::vector<std::filesystem::path> const& paths, std::int64_t seq, std::uint64_t seed)
        : TextData(seq, seed) {
        if (paths.empty()) throw std::invalid_argument("training data need at least one file");
        allow_open_files(paths.size());
        for (auto const& path : paths) {
            auto file = File::open_for_reading(path);
            add({.file = std::move(file)}, path.string());
        }
    }
    /// A text in memory, which outlives this object.
    TextData(std::string_view text, std::string const& name, std::int64_t seq, std::uint64_t seed)
        : TextData(seq, seed) {
        add({.memory = text}, name);
    }

    /// The window of a sequence, counted from 0 over the whole run: seq + 1 bytes at an offset drawn uniformly from all
    /// that fit. Tokens are bytes 0 to seq - 1, targets bytes 1 to seq. Throws FileError where the bytes are not there
    /// any more: files are read, not mapped, as a mapped file that is cut short ends its readers by a signal.
    void read(std::int64_t sequence, std::span<unsigned char> window) const {
        if (window.size() != static_cast<std::size_t>(seq_) + 1)
            throw std::invalid_argument("a window of seq = " + std::to_string(seq_) + " has seq + 1 bytes, not " +
                                        std::to_string(window.size()));
        auto const drawn =
            random::uniform_below(seed_, random::stream("data"), static_cast<std::uint64_t>(sequence), windows());
        auto const text =
            std::upper_bound(texts_.begin(), texts_.end(), drawn, [](std::uint64_t number, Text const& candidate) {
                return number < candidate.windows_end;
            });
        std::uint64_t const before = text == texts_.begin() ? 0 : std::prev(text)->windows_end;
        if (text->file.is_open())
            text->file.read_at(drawn - before, window.data(), window.size());
        else
            std::memcpy(window.data(), text->memory.data() + (drawn - before), window.size());
    }

    /// How many different windows there are.
    [[nodiscard]] std::uint64_t windows() const { return texts_.back().windows_end; }
    [[nodiscard]] std::uint64_t bytes() const { return windows() + texts_.size() * static_cast<std::uint64_t>(seq_); }

  private:
    struct Text {
        File file{};                   ///< or, where it is not open,
        std::string_view memory{};     ///< a text in memory
        std::uint64_t windows_end = 0; ///< windows in this text and those before it
    };

    TextData(std::int64_t seq, std::uint64_t seed) : seq_(seq), seed_(seed) {
        if (seq < 1) throw std::invalid_argument("a sequence needs at least one token, not " + std::to_string(seq));
    }

    void add(Text text, std::string const& name) {
        auto const needed = static_cast<std::uint64_t>(seq_) + 1;
        std::uint64_t const bytes = text.file.is_open() ? text.file.size() : text.memory.size();
        if (bytes == 0)
            throw FileError(name + " is empty: a window of seq = " + std::to_string(seq_) + " needs " +
                            std::to_string(needed) + " bytes");
        if (bytes < needed)
            throw FileError(name + " has " + std::to_string(bytes) + " bytes, and a window of seq = " +
                            std::to_string(seq_) + " needs " + std::to_string(needed) +
                            (bytes > 1 ? ": seq <= " + std::to_string(bytes - 1) + " would fit" : ": no seq fits"));
        text.windows_end = (texts_.empty() ? 0 : windows()) + bytes - static_cast<std::uint64_t>(seq_);
        texts_.push_back(std::move(text));
    }

    /// Lets the process have so many more files open, where it may: usually it is limited to 1024, and may raise that.
    static void allow_open_files(std::size_t more) {
        constexpr std::size_t others = 512;
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= more + others) return;
        limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, more + others);
        (void)::setrlimit(RLIMIT_NOFILE, &limit);
    }

    std::int64_t seq_;
    std::uint64_t seed_;
    std::vector<Text> texts_;
};

} // namespace pentad::io
