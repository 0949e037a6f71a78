// A safetensors file: every tensor that it names can be read, and what is written again reads the same.
#include "input.hpp"

#include <pentad/io/safetensors.hpp>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace pentad;

/// Calls `use` with an element of the tensor's type, where C++ has that.
bool with_element(std::string_view type, auto const& use) {
    if (type == "F64") return use(double()), true;
    if (type == "F32") return use(float()), true;
    if (type == "I64") return use(std::int64_t()), true;
    return false;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    fuzz::MemoryFile const file(fuzz::text(data, size));
    std::vector<io::TensorEntry> known;
    try {
        io::SafetensorsReader const reader(file.path());
        for (auto const& tensor : reader.tensors()) {
            fuzz::check(reader.contains(tensor.name), "a tensor is found by its name");
            if (with_element(tensor.type, [&](auto element) { (void)reader.read<decltype(element)>(tensor.name); }) &&
                is_printable(tensor.name))
                known.push_back(tensor);
        }
        static std::filesystem::path const copy = "/dev/shm/pentad-fuzz." + std::to_string(::getpid());
        {
            io::SafetensorsWriter writer(copy, known, reader.metadata());
            for (auto const& tensor : known)
                with_element(tensor.type, [&](auto element) {
                    using T = decltype(element);
                    auto const values = reader.read<T>(tensor.name);
                    writer.append(std::span<T const>(values));
                });
            writer.close();
        }
        io::SafetensorsReader const again(copy);
        std::filesystem::remove(copy);
        fuzz::check(again.metadata() == reader.metadata(), "metadata are read back as they were written");
        for (auto const& tensor : known) {
            fuzz::check(again.contains(tensor.name) && again.tensor(tensor.name).shape == tensor.shape,
                        "tensors are read back as they were written");
            with_element(tensor.type, [&](auto element) {
                using T = decltype(element);
                auto const old_values = reader.read<T>(tensor.name), values = again.read<T>(tensor.name);
                fuzz::check(values.size() == old_values.size() &&
                                (values.empty() ||
                                 std::memcmp(values.data(), old_values.data(), values.size() * sizeof(T)) == 0),
                            "their elements too");
            });
        }
    } catch (io::FileError const&) {
    }
    return 0;
}
