// The functions of <pentad/io/file.hpp>.
#pragma once

#include <pentad/io/file.hpp>

#include <pentad/mesh/hash.hpp>
#include <pentad/mesh/inline.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace pentad::io {

PENTAD_INLINE auto File::open_for_reading(std::filesystem::path const& path, std::uint64_t most) -> File {
    struct stat status{};
    if (::stat(path.c_str(), &status) != 0) throw FileError("read", path, errno);
    require_regular(status, path);
    File file(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, path); // a pipe put there meanwhile must not block
    if (::fstat(file.descriptor_, &status) != 0) throw FileError("read", path, errno);
    require_regular(status, path);
    if (static_cast<std::uint64_t>(status.st_size) > most)
        throw FileError("cannot read " + path.string() + ": it has " + std::to_string(status.st_size) +
                        " bytes, and at most " + std::to_string(most) + " are allowed");
    return file;
}

PENTAD_INLINE auto File::open_to_lock(std::filesystem::path const& path) -> File {
    File file;
    file.path_ = path;
    file.descriptor_ = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return file;
}

PENTAD_INLINE auto File::open_to_overwrite(std::filesystem::path const& path) -> File {
    constexpr int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK; // it waits for no reader of a pipe
    for (bool is_last : {false, true}) {
        File file;
        file.path_ = path;
        file.descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
        struct stat status{};
        if (file.is_open() && ::fstat(file.descriptor_, &status) == 0 && S_ISREG(status.st_mode) &&
            status.st_nlink == 1)
            return file;
        if (is_last || ::unlink(path.c_str()) != 0) break;
    }
    return File(path, flags | O_EXCL, path); // says why
}

PENTAD_INLINE auto File::create_unnamed(std::filesystem::path const& folder, std::filesystem::path const& shown)
    -> File {
    File file;
    file.path_ = shown;
    file.descriptor_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (file.is_open() && ::access(file.name_of_descriptor().c_str(), F_OK) != 0) file = File(); // no /proc
    return file;
}

PENTAD_INLINE auto File::operator=(File&& other) noexcept -> File& {
    if (this == &other) return *this;
    if (is_open()) ::close(descriptor_);
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    return *this;
}

PENTAD_INLINE bool File::give_name(std::filesystem::path const& name) {
    if (::linkat(AT_FDCWD, name_of_descriptor().c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) return true;
    if (errno != EEXIST) throw FileError("write", path_, errno);
    return false;
}

PENTAD_INLINE void File::write(void const* data, std::size_t bytes) {
    auto const* next = static_cast<std::byte const*>(data);
    while (bytes > 0) {
        ssize_t const written = ::write(descriptor_, next, bytes); // the kernel writes at most 2 GiB a call
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) throw FileError("write", path_, errno);
        next += written;
        bytes -= static_cast<std::size_t>(written);
    }
}

PENTAD_INLINE void File::read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
    auto* next = static_cast<std::byte*>(data);
    std::uint64_t const end = offset + bytes;
    while (bytes > 0) {
        ssize_t const got = ::pread(descriptor_, next, bytes, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw FileError("read", path_, errno);
        if (got == 0)
            throw FileError("cannot read " + path_.string() + ": it has " + std::to_string(size()) +
                            " bytes, and had " + std::to_string(end) + " or more when it was opened");
        next += got;
        offset += static_cast<std::uint64_t>(got);
        bytes -= static_cast<std::size_t>(got);
    }
}

PENTAD_INLINE File::File(std::filesystem::path const& path, int flags, std::filesystem::path shown)
    : path_(std::move(shown)) {
    do descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    while (descriptor_ < 0 && errno == EINTR);
    bool const taken = errno == EEXIST && (flags & O_EXCL) != 0;
    if (descriptor_ < 0 && !taken) throw FileError((flags & O_CREAT) != 0 ? "write" : "read", path_, errno);
}

PENTAD_INLINE void allow_open_files(std::size_t more) {
    constexpr std::size_t others = 512;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= more + others) return;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, more + others);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

PENTAD_INLINE std::string fingerprint(std::filesystem::path const& path) {
    try {
        File const file = File::open_for_reading(path);
        std::uint64_t const size = file.size();
        constexpr std::uint64_t samples = 64;
        std::array<char, 4096> sample{};
        std::uint64_t hash = fnv1a("");
        for (std::uint64_t i = 0; i < samples; ++i) {
            std::uint64_t const from = size <= samples * sample.size() ? i * sample.size() : size / samples * i;
            if (from >= size) break;
            auto const bytes = static_cast<std::size_t>(std::min<std::uint64_t>(sample.size(), size - from));
            file.read_at(from, sample.data(), bytes);
            hash = fnv1a({sample.data(), bytes}, hash);
        }
        std::array<char, 20> digits{};
        std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(hash));
        return std::to_string(size) + " bytes, " + digits.data();
    } catch (FileError const& error) {
        return error.what();
    }
}

PENTAD_INLINE std::string read_file(std::filesystem::path const& path, std::uint64_t most) {
    File const file = File::open_for_reading(path, most);
    std::string text(std::min(file.size(), most), '\0');
    file.read_at(0, text.data(), text.size());
    return text;
}

} // namespace pentad::io
