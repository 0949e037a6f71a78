// Reads pieces of a checkpoint's tensors, whichever files hold them: only the blocks that are needed, each verified.
#pragma once

#include <pentad/checkpoint/checksum.hpp>
#include <pentad/checkpoint/manifest.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/safetensors.hpp>
#include <pentad/io/tensor_box.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace pentad::checkpoint {

/// A file of a checkpoint is not what the manifest says.
class Damaged : public io::FileError {
  public:
    using io::FileError::FileError;
};

class Reader {
  public:
    /// Reads the manifest, whose largest size is that of a checkpoint of some 10^13 elements.
    /// @throws Damaged where it is not what was written, io::FileError where it cannot be read
    explicit Reader(std::filesystem::path folder);

    [[nodiscard]] std::filesystem::path const& folder() const { return folder_; }
    [[nodiscard]] Manifest const& manifest() const { return manifest_; }
    [[nodiscard]] bool contains(std::string_view tensor, std::string_view state) const {
        return places_.contains(std::string(tensor) + "/" + std::string(state));
    }

    /// Reads a piece of a state as f64, f32 or bf16 (rounded to nearest even).
    /// @throws std::invalid_argument where the checkpoint lacks the state, Damaged, io::FileError
    template <class T>
    void read(std::string const& tensor, std::string_view state, Piece const& wanted, std::span<T> into) const {
        auto const found = places_.find(tensor + "/" + std::string(state));
        if (found == places_.end())
            throw std::invalid_argument("the checkpoint " + folder_.string() + " has no " + tensor + "/" +
                                        std::string(state));
        std::uint64_t count = 0;
        for (auto const& [file, piece] : found->second) {
            auto const& stored = manifest_.files[file].pieces[piece];
            bool const is_real = io::detail::with_real_type(stored.type, [&](auto element) {
                count += read_common<decltype(element)>({file, piece}, wanted, into);
            });
            if (!is_real) damaged(manifest_.files[file].name, stored.name() + " is of type " + stored.type);
        }
        if (count != into.size()) throw std::invalid_argument("a part of " + tensor + " that is not inside of it");
    }
    /// Why the folder's name is not that of a checkpoint of the manifest's step, where it names a step
    /// ("step-00000040"); else nothing.
    [[nodiscard]] std::optional<std::string> name_fault() const;
    /// Calls f(file, sentence) for everything in the folder that is not what the manifest says: all files are read.
    template <class F>
    void verify(F&& f) const {
        if (auto const fault = name_fault()) f(std::string(manifest_file), *fault);
        std::vector<std::byte> block(block_bytes);
        for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
            try {
                (void)opened(i);
                for (std::size_t piece = 0; piece < manifest_.files[i].pieces.size(); ++piece) try {
                        for (std::size_t k = 0; k < manifest_.files[i].pieces[piece].blocks.size(); ++k)
                            read_block({i, piece}, k, block.data());
                    } catch (io::FileError const& error) {
                        f(manifest_.files[i].name, std::string(error.what()));
                    }
            } catch (io::FileError const& error) {
                f(manifest_.files[i].name, std::string(error.what()));
            }
        }
    }

  private:
    struct Place {
        std::size_t file, piece;
    };

    [[noreturn]] void damaged(std::string const& file, std::string const& why) const {
        throw Damaged("the checkpoint " + folder_.string() + " is damaged: " + file + ": " + why);
    }

    /// The file, whose header is verified when it is opened.
    io::SafetensorsReader const& opened(std::size_t i) const;
    /// Reads block k of a piece, and verifies it. Gives its bytes.
    std::size_t read_block(Place const& place, std::size_t k, std::byte* into) const;
    /// What a stored piece has of the wanted one. Gives how many elements.
    template <class Stored, class T>
    std::uint64_t read_common(Place const& place, Piece const& wanted, std::span<T> into) const {
        auto const& stored = manifest_.files[place.file].pieces[place.piece];
        constexpr std::uint64_t in_block = block_bytes / sizeof(Stored);
        std::uint64_t count = 0;
        std::optional<std::uint64_t> in_memory; // the block in `buffer`
        for_each_common_run(stored.piece, wanted, [&](std::uint64_t from, std::uint64_t to, std::uint64_t run) {
            count += run;
            while (run > 0) {
                std::uint64_t const block = from / in_block, skipped = from % in_block;
                std::uint64_t const part = std::min(run, in_block - skipped);
                bool const is_whole = skipped == 0 && (part == in_block || from + part == stored.piece.size());
                if (std::is_same_v<Stored, T> && is_whole) {
                    read_block(place, block, reinterpret_cast<std::byte*>(into.data() + to));
                } else {
                    if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(block_bytes);
                    if (in_memory != block) read_block(place, block, buffer_.get());
                    in_memory = block;
                    io::detail::convert<Stored>(buffer_.get() + skipped * sizeof(Stored), into.data() + to, part);
                }
                from += part, to += part, run -= part;
            }
        });
        return count;
    }

    std::filesystem::path folder_;
    Manifest manifest_;
    std::map<std::string, std::vector<Place>> places_;                  ///< of each state of a tensor
    std::vector<std::vector<std::string>> names_;                       ///< of the pieces of each file, in it
    mutable std::vector<std::unique_ptr<io::SafetensorsReader>> files_; ///< opened when they are first read
    mutable std::unique_ptr<std::byte[]> buffer_;
};

} // namespace pentad::checkpoint

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/checkpoint/impl/reader.hpp>
#endif
