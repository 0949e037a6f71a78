// The functions of <pentad/io/distinct_files.hpp>.
#pragma once

#include <pentad/io/distinct_files.hpp>

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/file.hpp>
#include <pentad/mesh/inline.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <cstddef>
#include <system_error>
#include <tuple>

namespace pentad::io::detail {

/// Identifies a file whatever its name: its device and inode, or those of its folder and the name that it will
/// have there. Nothing for devices and pipes, which may be written twice.
using FileIdentity = std::tuple<dev_t, ino_t, std::filesystem::path>;

PENTAD_INLINE std::optional<FileIdentity> identity_of(std::filesystem::path path) {
    std::error_code error;
    struct stat status{};
    for (int links = 0; links < 40; ++links) { // the limit of the kernel
        if (::stat(path.c_str(), &status) == 0)
            return S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)
                       ? std::optional(FileIdentity{status.st_dev, status.st_ino, {}})
                       : std::nullopt;
        // A link to a file that does not exist stands for that file.
        auto const target = std::filesystem::read_symlink(path, error);
        if (error) break;
        path = path.parent_path() / target;
    }
    path = std::filesystem::absolute(path, error).lexically_normal();
    if (path.filename().empty()) path = path.parent_path(); // "a/" is "a"
    if (::stat(path.parent_path().c_str(), &status) == 0)
        return FileIdentity{status.st_dev, status.st_ino, path.filename()};
    return FileIdentity{0, 0, std::filesystem::weakly_canonical(path, error)};
}

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE std::optional<std::string> refusal_of(std::vector<FlagFile> const& files) {
    std::vector<std::optional<detail::FileIdentity>> identities;
    for (FlagFile const& file : files) {
        auto const named = [](FlagFile const& one) { return one.flag + " " + one.path.string(); };
        if (file.path.empty()) return file.flag + " '' names no file";
        auto const identity = detail::identity_of(file.path);
        for (std::size_t at = 0; identity && at < identities.size(); ++at) {
            FlagFile const& other = files[at];
            if (identities[at] != identity || (!file.is_output && !other.is_output)) continue;
            if (file.is_output && other.is_output)
                return named(file) + " and " + named(other) + " are the same file: give each a file of its own";
            return named(file.is_output ? file : other) + " would overwrite " + named(file.is_output ? other : file) +
                   ", which is read: write another file";
        }
        identities.push_back(identity);
    }
    return std::nullopt;
}

PENTAD_INLINE void check_writable(std::filesystem::path const& path) {
    struct stat status{};
    bool const exists = ::stat(path.c_str(), &status) == 0;
    if (!exists && errno != ENOENT) throw FileError("write", path, errno); // such as a name that is too long
    if (exists && S_ISDIR(status.st_mode)) throw FileError("write", path, EISDIR);
    if (exists && !S_ISREG(status.st_mode)) return; // opening a pipe would wait for its reader
    AtomicFile const never_committed(path);
}

} // namespace pentad::io
