// An index of shards, beside two good ones: what is accepted names just their tensors, and no file elsewhere.
#include "input.hpp"

#include <pentad/io/checkpoint.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace {

namespace fs = std::filesystem;
using namespace pentad;

/// A folder with the golden shards, links to files and a folder, and tensors that no index may reach.
class Folder {
  public:
    Folder() {
        fs::path const golden = PENTAD_GOLDEN_DIR "/io/sharded";
        fs::create_directories(path() / "folder");
        for (char const* const name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"})
            for (fs::path const& folder : {path(), path() / "folder", outer_})
                fs::copy_file(golden / name, folder / name);
        fs::create_symlink("/dev/zero", path() / "zero");
        fs::create_symlink("model-00001-of-00002.safetensors", path() / "link");
    }
    Folder(Folder const&) = delete;
    Folder& operator=(Folder const&) = delete;
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(outer_, ignored);
    }
    [[nodiscard]] fs::path path() const { return outer_ / "inner"; }

  private:
    fs::path outer_ = "/dev/shm/pentad-fuzz-index." + std::to_string(::getpid());
};

fs::path folder() {
    static Folder const folder;
    return folder.path();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    auto const index = folder() / "model.safetensors.index.json";
    {
        std::ofstream file(index, std::ios::binary | std::ios::trunc);
        file.write(reinterpret_cast<char const*>(data), static_cast<std::streamsize>(size));
    }
    try {
        io::Checkpoint const checkpoint(folder());
        std::size_t count = 0;
        for (std::size_t i = 1; i < checkpoint.files().size(); ++i) {
            fuzz::check(checkpoint.files()[i].parent_path() == folder(), "files are in the folder of the index");
            io::SafetensorsReader const shard(checkpoint.files()[i]);
            for (auto const& tensor : shard.tensors()) {
                ++count;
                fuzz::check(checkpoint.contains(tensor.name) && checkpoint.tensor(tensor.name).shape == tensor.shape,
                            "the tensors of a shard are those of the checkpoint");
            }
        }
        fuzz::check(count == checkpoint.tensors().size(), "the checkpoint has no others");
        auto const box = io::Box::whole(checkpoint.tensors().front().shape);
        std::vector<float> values(io::detail::elements(box));
        checkpoint.read<float>(checkpoint.tensors().front().name, box, values);
    } catch (io::FileError const&) {
    }
    return 0;
}
