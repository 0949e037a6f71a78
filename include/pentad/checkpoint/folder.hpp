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
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <utility>
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
/// The folder that a checkpoint is written to before it is complete.
inline std::filesystem::path partial_folder(std::filesystem::path const& folder, std::int64_t step) {
    return folder / ("." + folder_name(step) + ".partial");
}

namespace detail {

/// The entries of a folder. @throws io::FileError where it cannot be read
inline std::vector<std::filesystem::path> entries(std::filesystem::path const& folder) {
    std::vector<std::filesystem::path> paths;
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        paths.push_back(at->path());
    if (error) throw io::FileError("read", folder, error.value());
    return paths;
}

} // namespace detail

struct Listed {
    std::int64_t step;
    std::filesystem::path path;
};
/// The complete checkpoints of a folder, the newest last. @throws io::FileError where the folder cannot be read
inline std::vector<Listed> list(std::filesystem::path const& folder) {
    std::vector<Listed> found;
    for (auto const& path : detail::entries(folder)) {
        std::string const name = path.filename().string();
        std::int64_t step = -1;
        if (!name.starts_with("step-")) continue;
        auto const [rest, failed] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
        if (failed == std::errc() && step >= 0 && folder_name(step) == name) found.push_back({step, path});
    }
    std::sort(found.begin(), found.end(), [](Listed const& a, Listed const& b) { return a.step < b.step; });
    return found;
}
/// Whether a path is a checkpoint, and not a folder of checkpoints.
inline bool is_checkpoint(std::filesystem::path const& path) {
    std::error_code ignored;
    return std::filesystem::exists(path / manifest_file, ignored);
}

namespace detail {

inline void rename(std::filesystem::path const& from, std::filesystem::path const& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) throw io::FileError("write", to, errno);
}

/// Removes a folder with all that is in it.
inline void remove(std::filesystem::path const& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) throw io::FileError("remove", path, error.value());
}

/// Removes the files that a spare folder has had and the checkpoint that was written to it has not.
inline void remove_others(std::filesystem::path const& partial, Manifest const& manifest) {
    std::set<std::string> known{std::string(manifest_file)};
    for (auto const& file : manifest.files) known.insert(file.name);
    for (auto const& path : entries(partial))
        if (!known.contains(path.filename().string())) detail::remove(path);
}

} // namespace detail

/// Makes the folder for the files of a checkpoint, from the spare one if there is one; other ranks may have made it.
/// Not the folder around it: where that is gone, it is an error. @throws io::FileError
inline std::filesystem::path make_partial(std::filesystem::path const& folder, std::int64_t step) {
    auto path = partial_folder(folder, step);
    // Of all ranks that try, one succeeds; where another has begun with a new folder, none.
    if (::rename((folder / spare_folder).c_str(), path.c_str()) == 0) return path;
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) throw io::FileError("write", path, errno);
    return path;
}
/// Writes the manifest and gives the checkpoint its name, by one rename: all files are on the disk. @throws
/// io::FileError
inline void publish(std::filesystem::path const& folder, Manifest const& manifest) {
    auto const partial = partial_folder(folder, manifest.step);
    detail::remove_others(partial, manifest);
    io::write_file(partial / manifest_file, text_of(manifest));
    detail::rename(partial, folder / folder_name(manifest.step));
    io::File::open_folder(folder).flush_to_disk();
}
/// Removes all but the newest `keep` checkpoints; one of them becomes the spare folder. @throws io::FileError
inline void retain(std::filesystem::path const& folder, std::size_t keep) {
    auto const all = list(folder);
    for (std::size_t i = 0; i + keep < all.size(); ++i) {
        if (::rename(all[i].path.c_str(), (folder / spare_folder).c_str()) == 0) {
            io::File::open_folder(folder).flush_to_disk(); // before its files are overwritten
            continue;
        }
        // Renamed first, so that a checkpoint is whole or not there.
        auto const removed = folder / ("." + all[i].path.filename().string() + ".removed");
        detail::rename(all[i].path, removed);
        detail::remove(removed);
    }
}
/// Removes the spare folder: nothing is saved any more.
inline void remove_spare(std::filesystem::path const& folder) {
    std::error_code ignored; // it does no harm
    std::filesystem::remove_all(folder / spare_folder, ignored);
}
/// Removes what runs that were killed have left unfinished, or makes it the spare folder. @throws io::FileError
inline void remove_left_behind(std::filesystem::path const& folder) {
    for (auto const& path : detail::entries(folder)) {
        std::string const name = path.filename().string();
        if (!name.starts_with(".step-") || !(name.ends_with(".partial") || name.ends_with(".removed"))) continue;
        std::error_code ignored;
        bool const is_folder = std::filesystem::is_directory(path, ignored);
        if (!is_folder || ::rename(path.c_str(), (folder / spare_folder).c_str()) != 0) detail::remove(path);
    }
}

/// Held by the run that saves to a folder.
class FolderLock {
  public:
    /// @throws io::FileError where another run holds it, or no file can be made
    explicit FolderLock(std::filesystem::path const& folder) : file_(io::File::create(folder / lock_file)) {
        if (!io::detail::lock(file_)) throw io::FileError("another run saves to the folder " + folder.string());
    }

  private:
    io::File file_;
};

} // namespace pentad::checkpoint
