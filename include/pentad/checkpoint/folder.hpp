// The folder in which a run keeps its checkpoints: one folder for each, "step-00000040", which is there when it is
// complete. Folders with other names are unfinished, or being removed: ".step-00000040.partial". The next checkpoint
// overwrites the files of one that is no longer kept, which is several times as fast as writing new files (PostgreSQL
// does the same with its WAL segments).
#pragma once

#include <pentad/checkpoint/manifest.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/temporaries.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace pentad::checkpoint {

inline constexpr std::string_view lock_file = ".lock";
/// The folder of the files that the next checkpoint overwrites.
inline constexpr std::string_view spare_folder = ".spare";

/// "step-00000040"
inline std::string folder_name(std::int64_t step) {
    std::string digits = std::to_string(step);
    digits.insert(0, 8 - std::min<std::size_t>(8, digits.size()), '0');
    return "step-" + digits;
}
/// The step of which a folder of this name is the checkpoint; none where it is no such name.
std::optional<std::int64_t> step_of(std::string_view folder_name);
/// The folder that a checkpoint is written to before it is complete.
inline std::filesystem::path partial_folder(std::filesystem::path const& folder, std::int64_t step) {
    return folder / ("." + folder_name(step) + ".partial");
}

namespace detail {

/// The entries of a folder. @throws io::FileError where it cannot be read
std::vector<std::filesystem::path> entries(std::filesystem::path const& folder);

} // namespace detail

struct Listed {
    std::int64_t step;
    std::filesystem::path path;
};
/// The complete checkpoints of a folder, the newest last. @throws io::FileError where the folder cannot be read
std::vector<Listed> list(std::filesystem::path const& folder);
/// Whether a path is a checkpoint, and not a folder of checkpoints.
inline bool is_checkpoint(std::filesystem::path const& path) {
    std::error_code ignored;
    return std::filesystem::exists(path / manifest_file, ignored);
}

namespace detail {

/// Whether it is a folder itself, and no link to one: the files of others are not written over.
bool is_own_folder(std::filesystem::path const& path);

inline void rename(std::filesystem::path const& from, std::filesystem::path const& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) throw io::FileError("write", to, errno);
}

/// Removes a folder with all that is in it.
inline void remove(std::filesystem::path const& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) throw io::FileError("remove", path, error.value());
}

} // namespace detail

/// Makes the folder for the files of a checkpoint, from the spare one if there is one; other ranks may have made it.
/// Not the folder around it: where that is gone, it is an error. Nothing is written through a link. @throws
/// io::FileError
std::filesystem::path make_partial(std::filesystem::path const& folder, std::int64_t step);
/// Writes the manifest and gives the checkpoint its name, by one rename: all files are on the disk. @throws
/// io::FileError
void publish(std::filesystem::path const& folder, Manifest const& manifest);
/// Removes all but the newest `keep` checkpoints; one of them becomes the spare folder. A link that stands for a
/// checkpoint is removed without the folder that it leads to. @throws io::FileError
void retain(std::filesystem::path const& folder, std::size_t keep);
/// Removes the spare folder: nothing is saved any more.
inline void remove_spare(std::filesystem::path const& folder) {
    std::error_code ignored; // it does no harm
    std::filesystem::remove_all(folder / spare_folder, ignored);
}
/// Removes what runs that were killed have left unfinished, or makes it the spare folder; a spare folder that is a link
/// is removed. To be called before anything is saved. @throws io::FileError
void remove_left_behind(std::filesystem::path const& folder);

/// Held by the run that saves to a folder.
class FolderLock {
  public:
    /// @throws io::FileError where another run holds it, or no file can be made
    explicit FolderLock(std::filesystem::path const& folder) : file_(opened(folder / lock_file)) {
        if (!io::detail::lock(file_)) throw io::FileError("another run saves to the folder " + folder.string());
    }

  private:
    static io::File opened(std::filesystem::path const& path) {
        try {
            return io::File::open_to_append(path);
        } catch (io::FileError const& error) {
            throw io::FileError(error.what() +
                                std::string(": remove that file, or save to a folder in which you may write"));
        }
    }

    io::File file_;
};

} // namespace pentad::checkpoint

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/checkpoint/impl/folder.hpp>
#endif
