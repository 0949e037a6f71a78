// The functions of <pentad/checkpoint/folder.hpp>.
#pragma once

#include <pentad/checkpoint/folder.hpp>

#include <pentad/mesh/inline.hpp>

#include <sys/stat.h>

#include <charconv>
#include <set>

namespace pentad::checkpoint {

PENTAD_INLINE std::optional<std::int64_t> step_of(std::string_view name) {
    constexpr std::string_view start = "step-";
    if (!name.starts_with(start)) return std::nullopt;
    std::int64_t step = -1;
    auto const [rest, failed] = std::from_chars(name.data() + start.size(), name.data() + name.size(), step);
    if (failed != std::errc() || step < 0 || folder_name(step) != name) return std::nullopt;
    return step;
}

} // namespace pentad::checkpoint

namespace pentad::checkpoint::detail {

PENTAD_INLINE bool is_own_folder(std::filesystem::path const& path) {
    std::error_code ignored;
    return std::filesystem::is_directory(std::filesystem::symlink_status(path, ignored));
}

PENTAD_INLINE std::vector<std::filesystem::path> entries(std::filesystem::path const& folder) {
    std::vector<std::filesystem::path> paths;
    std::error_code error;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        paths.push_back(at->path());
    if (error) throw io::FileError("read", folder, error.value());
    return paths;
}

} // namespace pentad::checkpoint::detail

namespace pentad::checkpoint {

PENTAD_INLINE std::vector<Listed> list(std::filesystem::path const& folder) {
    std::vector<Listed> found;
    for (auto const& path : detail::entries(folder))
        if (auto const step = step_of(path.filename().string())) found.push_back({*step, path});
    std::sort(found.begin(), found.end(), [](Listed const& a, Listed const& b) { return a.step < b.step; });
    return found;
}

} // namespace pentad::checkpoint

namespace pentad::checkpoint::detail {

/// Removes the files that a spare folder has had and the checkpoint that was written to it has not, and its links,
/// which the manifest would be written through.
PENTAD_INLINE void remove_others(std::filesystem::path const& partial, Manifest const& manifest) {
    std::set<std::string> known{std::string(manifest_file)};
    for (auto const& file : manifest.files) known.insert(file.name);
    std::error_code ignored;
    for (auto const& path : entries(partial))
        if (!known.contains(path.filename().string()) || std::filesystem::is_symlink(path, ignored))
            detail::remove(path);
}

} // namespace pentad::checkpoint::detail

namespace pentad::checkpoint {

PENTAD_INLINE std::filesystem::path make_partial(std::filesystem::path const& folder, std::int64_t step) {
    auto path = partial_folder(folder, step);
    // The rename succeeds on one of the ranks that try it, and on none if another rank already writes to a new folder.
    auto const spare = folder / spare_folder;
    if (detail::is_own_folder(spare) && ::rename(spare.c_str(), path.c_str()) == 0) return path;
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) throw io::FileError("write", path, errno);
    if (!detail::is_own_folder(path)) throw io::FileError("write", path, ENOTDIR);
    return path;
}

PENTAD_INLINE void publish(std::filesystem::path const& folder, Manifest const& manifest) {
    auto const partial = partial_folder(folder, manifest.step);
    detail::remove_others(partial, manifest);
    io::write_file(partial / manifest_file, text_of(manifest));
    detail::rename(partial, folder / folder_name(manifest.step));
    io::File::open_folder(folder).flush_to_disk();
}

PENTAD_INLINE void retain(std::filesystem::path const& folder, std::size_t keep) {
    auto const all = list(folder);
    for (std::size_t i = 0; i + keep < all.size(); ++i) {
        if (detail::is_own_folder(all[i].path) && ::rename(all[i].path.c_str(), (folder / spare_folder).c_str()) == 0) {
            io::File::open_folder(folder).flush_to_disk(); // before its files are overwritten
            continue;
        }
        // Renamed first, so that a checkpoint is whole or not there.
        auto const removed = folder / ("." + all[i].path.filename().string() + ".removed");
        detail::rename(all[i].path, removed);
        detail::remove(removed);
    }
}

PENTAD_INLINE void remove_left_behind(std::filesystem::path const& folder) {
    std::error_code ignored;
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(folder / spare_folder, ignored)))
        detail::remove(folder / spare_folder);
    for (auto const& path : detail::entries(folder)) {
        std::string const name = path.filename().string();
        if (!name.starts_with(".step-") || !(name.ends_with(".partial") || name.ends_with(".removed"))) continue;
        if (!detail::is_own_folder(path) || ::rename(path.c_str(), (folder / spare_folder).c_str()) != 0)
            detail::remove(path);
    }
}

} // namespace pentad::checkpoint
