// A file descriptor with an owner, and errors that name the path and say why. All other headers of this
// folder use it; POSIX.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
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
    [[gnu::cold]] FileError(std::string_view verb, std::filesystem::path const& path, int error)
        : std::runtime_error("cannot " + std::string(verb) + " " + path.string() + ": " +
                             std::generic_category().message(error)) {}
};

/// An open file.
class File {
  public:
    File() = default;
    /// A regular file of at most `most` bytes. A folder, a pipe or a device is an error; it is not opened, as opening
    /// some of them has effects.
    [[gnu::cold]] static File open_for_reading(std::filesystem::path const& path,
                                               std::uint64_t most = std::numeric_limits<std::uint64_t>::max());
    /// Not open where it cannot be opened.
    static File open_to_lock(std::filesystem::path const& path);
    static File open_folder(std::filesystem::path const& path) { return File(path, O_RDONLY | O_DIRECTORY, path); }
    /// Makes the file, or empties it.
    static File create(std::filesystem::path const& path) { return File(path, O_WRONLY | O_CREAT | O_TRUNC, path); }
    /// What is written replaces the file's first bytes. A file that cannot be overwritten, or has further names (hard
    /// links), is replaced by a new one, and so is anything else of that name except a folder.
    static File open_to_overwrite(std::filesystem::path const& path);
    /// What is written comes at its end. Makes the file if there is none.
    static File open_to_append(std::filesystem::path const& path) {
        return File(path, O_WRONLY | O_CREAT | O_APPEND, path);
    }
    /// Makes a file that stands for `shown`, which errors name. If it is there already, the result is not open.
    static File create_new(std::filesystem::path const& path, std::filesystem::path const& shown) {
        return File(path, O_RDWR | O_CREAT | O_EXCL, shown);
    }
    /// Makes a file without a name, which is gone with its process unless it is given one; it stands for `shown`. Not
    /// open where the file system has no such files.
    static File create_unnamed(std::filesystem::path const& folder, std::filesystem::path const& shown);

    File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
    File& operator=(File&& other) noexcept;
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

    /// Gives a file that has none a name. False where there is a file of that name.
    bool give_name(std::filesystem::path const& name);

    void write(void const* data, std::size_t bytes);
    void write(std::string_view text) { write(text.data(), text.size()); }

    /// Reads exactly this many bytes; a file that ends before them is an error.
    void read_at(std::uint64_t offset, void* data, std::size_t bytes) const;

    /// Keeps the first bytes of a regular file. Pipes and devices are left as they are.
    void cut(std::uint64_t bytes) {
        if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0 && errno != EINVAL)
            throw FileError("write", path_, errno);
    }
    /// Lets the disk begin with what was written, so that flush_to_disk() has less to wait for.
    void start_flush() { (void)::sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE); }
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
    [[nodiscard]] std::string name_of_descriptor() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
    static void require_regular(struct stat const& status, std::filesystem::path const& path) {
        if (!S_ISREG(status.st_mode))
            throw FileError("cannot read " + path.string() + ": it is " +
                            (S_ISDIR(status.st_mode) ? "a folder" : "no regular file"));
    }

    File(std::filesystem::path const& path, int flags, std::filesystem::path shown);

    std::filesystem::path path_;
    int descriptor_ = -1;
};

/// Lets the process have so many more files open, where it may: usually it is limited to 1024, and may raise that.
void allow_open_files(std::size_t more);

/// "812 bytes, 3f2a...": what tells the contents of two files apart, at the cost of 64 reads however large they are;
/// for a file that cannot be read, why.
[[gnu::cold]] std::string fingerprint(std::filesystem::path const& path);

/// The whole of a file, which has at most `most` bytes. What reports a size of 0, as all of /proc does, counts as
/// empty: some files there never end.
[[gnu::cold]] std::string read_file(std::filesystem::path const& path, std::uint64_t most);

} // namespace pentad::io

#if !PENTAD_COMPILED_TENSOR
#include <pentad/io/impl/file.hpp>
#endif
