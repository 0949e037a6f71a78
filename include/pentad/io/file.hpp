// Room: io. A file descriptor with an owner, and errors that name the path and say why. What every other header of this
// folder stands on; POSIX.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace pentad::io {

/// Something that went wrong with a file while it was used: missing, unreadable, a full disk, not in its format.
class FileError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
    /// "cannot write /dev/full: No space left on device"
    FileError(std::string_view verb, std::filesystem::path const& path, int error)
        : std::runtime_error("cannot " + std::string(verb) + " " + path.string() + ": " +
                             std::generic_category().message(error)) {}
};

/// An open file.
class File {
  public:
    File() = default;
    /// A regular file; a folder, a pipe or a device is an error.
    static File open_for_reading(std::filesystem::path const& path) {
        File file(path, O_RDONLY | O_NONBLOCK, path); // a pipe would wait for its writer
        struct stat status{};
        if (::fstat(file.descriptor_, &status) != 0) throw FileError("read", path, errno);
        if (!S_ISREG(status.st_mode))
            throw FileError("cannot read " + path.string() + ": it is " +
                            (S_ISDIR(status.st_mode) ? "a folder" : "no regular file"));
        return file;
    }
    static File open_folder(std::filesystem::path const& path) { return File(path, O_RDONLY | O_DIRECTORY, path); }
    /// Makes the file, or empties it.
    static File create(std::filesystem::path const& path) { return File(path, O_WRONLY | O_CREAT | O_TRUNC, path); }
    /// Makes a file that stands for `shown`, which errors name. Where one is there already, the result is not open.
    static File create_new(std::filesystem::path const& path, std::filesystem::path const& shown) {
        return File(path, O_WRONLY | O_CREAT | O_EXCL, shown);
    }

    File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
    File& operator=(File&& other) noexcept {
        if (this == &other) return *this;
        if (is_open()) ::close(descriptor_);
        path_ = std::move(other.path_);
        descriptor_ = std::exchange(other.descriptor_, -1);
        return *this;
    }
    ~File() {
        if (is_open()) ::close(descriptor_);
    }

    [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
    [[nodiscard]] int descriptor() const { return descriptor_; }
    [[nodiscard]] std::filesystem::path const& path() const { return path_; }

    [[nodiscard]] std::uint64_t size() const {
        struct stat status{};
        if (::fstat(descriptor_, &status) != 0) throw FileError("read", path_, errno);
        return static_cast<std::uint64_t>(status.st_size);
    }

    void write(void const* data, std::size_t bytes) {
        auto const* next = static_cast<std::byte const*>(data);
        while (bytes > 0) {
            ssize_t const written = ::write(descriptor_, next, bytes); // the kernel writes at most 2 GiB a call
            if (written < 0 && errno == EINTR) continue;
            if (written < 0) throw FileError("write", path_, errno);
            next += written;
            bytes -= static_cast<std::size_t>(written);
        }
    }
    void write(std::string_view text) { write(text.data(), text.size()); }

    /// Reads exactly this many bytes; a file that ends before them is an error.
    void read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
        auto* next = static_cast<std::byte*>(data);
        while (bytes > 0) {
            ssize_t const got = ::pread(descriptor_, next, bytes, static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) throw FileError("read", path_, errno);
            if (got == 0)
                throw FileError("cannot read " + path_.string() + ": it ends " + std::to_string(bytes) +
                                " bytes before what its header promises");
            next += got;
            offset += static_cast<std::uint64_t>(got);
            bytes -= static_cast<std::size_t>(got);
        }
    }

    /// Waits until what was written is on the disk. Pipes and devices, which have no disk, are no error.
    void flush_to_disk() {
        if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
            throw FileError("write", path_, errno);
    }

    /// Closes; some file systems report only here that a write has failed.
    void close() {
        if (is_open() && ::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR)
            throw FileError("write", path_, errno);
    }

  private:
    File(std::filesystem::path const& path, int flags, std::filesystem::path shown) : path_(std::move(shown)) {
        do descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
        while (descriptor_ < 0 && errno == EINTR);
        bool const taken = errno == EEXIST && (flags & O_EXCL) != 0;
        if (descriptor_ < 0 && !taken) throw FileError((flags & O_CREAT) != 0 ? "write" : "read", path_, errno);
    }

    std::filesystem::path path_;
    int descriptor_ = -1;
};

/// The whole of a text file.
inline std::string read_file(std::filesystem::path const& path) {
    File const file = File::open_for_reading(path);
    std::string text(file.size(), '\0');
    file.read_at(0, text.data(), text.size());
    return text;
}

} // namespace pentad::io
