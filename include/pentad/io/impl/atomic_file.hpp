// The functions of <pentad/io/atomic_file.hpp>.
#pragma once

#include <pentad/io/atomic_file.hpp>

#include <pentad/mesh/inline.hpp>

#include <cstdint>
#include <system_error>

namespace pentad::io {

PENTAD_INLINE AtomicFile::AtomicFile(std::filesystem::path const& path) : path_(target_of(path)) {
    // A device or a pipe is no file to replace: it is written as it is.
    std::error_code ignored;
    auto const status = std::filesystem::status(path_, ignored);
    direct_ = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
    if (direct_) {
        file_ = File::create(path_);
        return;
    }
    detail::remove_left_behind(path_);
    if (detail::may_be_unnamed) file_ = File::create_unnamed(folder(), path_);
    if (!file_.is_open())
        make_temporary([this](std::filesystem::path const& name) {
            file_ = File::create_new(name, path_);
            return file_.is_open() && detail::lock_own(file_, name);
        });
}

PENTAD_INLINE void AtomicFile::commit() {
    file_.flush_to_disk();
    detail::SignalsWait const wait;
    name();
    put_in_place();
    finish();
}

PENTAD_INLINE std::filesystem::path AtomicFile::target_of(std::filesystem::path const& path) {
    std::error_code error;
    if (!std::filesystem::is_symlink(path, error)) return path;
    auto target = std::filesystem::weakly_canonical(path, error);
    return error ? path : target;
}

PENTAD_INLINE void AtomicFile::put_in_place() {
    if (direct_) return;
    // Still locked: the next writer takes an unlocked file for one whose owner is gone.
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw FileError("write", path_, errno);
    in_place_ = true;
}

PENTAD_INLINE bool AtomicFile::is_in_place_already() const {
    constexpr std::uint64_t most = std::uint64_t{1} << 20;
    if (direct_ || file_.size() > most) return false;
    std::string text(file_.size(), '\0');
    file_.read_at(0, text.data(), text.size());
    try {
        return read_file(path_, most) == text;
    } catch (FileError const&) {
        return false;
    }
}

PENTAD_INLINE void publish(std::vector<AtomicFile*> const& files, AtomicFile& description,
                           std::vector<std::filesystem::path> const& obsolete) {
    // One rename is atomic by itself.
    bool const is_one = files.size() == 1 && obsolete.empty() && description.is_in_place_already();
    for (auto* const file : files) file->file_.flush_to_disk();
    if (!is_one) description.file_.flush_to_disk();
    detail::SignalsWait const wait;
    for (auto* const file : files) file->name();
    if (!is_one) {
        description.name();
        description.remove_old();
    }
    for (auto* const file : files) file->put_in_place();
    for (auto const& path : obsolete)
        if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw FileError("remove", path, errno);
    if (!is_one) description.put_in_place();
    for (auto* const file : files) file->finish();
    if (!is_one) description.finish();
}

} // namespace pentad::io
