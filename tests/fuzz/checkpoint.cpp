// A file of tensors: every box of every tensor, as every element, is what the whole tensor has there; a file that
// is cut while it is read is an error.
#include "input.hpp"

#include <pentad/io/checkpoint.hpp>

#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace pentad;

template <class T>
std::vector<T> read(io::Checkpoint const& checkpoint, std::string const& name, io::Box const& box) {
    std::vector<T> values(io::detail::elements(box));
    checkpoint.read<T>(name, box, values);
    return values;
}

template <class T>
bool is_same(T a, T b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

/// Checks a box that is drawn from the input.
void check_box(io::Checkpoint const& checkpoint, io::TensorEntry const& tensor, std::vector<double> const& whole,
               std::span<std::uint8_t const> drawn) {
    std::size_t next = 0;
    auto const below = [&](std::int64_t bound) {
        return static_cast<std::int64_t>(drawn[next++ % drawn.size()]) % bound;
    };
    auto box = io::Box::whole(tensor.shape);
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
        box.offsets[d] = below(tensor.shape[d] + 1);
        box.extents[d] = below(tensor.shape[d] - box.offsets[d] + 1);
    }
    auto const f64s = read<double>(checkpoint, tensor.name, box);
    auto const f32s = read<float>(checkpoint, tensor.name, box);
    auto const bf16s = read<bf16>(checkpoint, tensor.name, box);
    for (std::size_t i = 0; i < f64s.size(); ++i) {
        std::size_t rest = i, element = 0, stride = 1;
        for (std::size_t d = tensor.shape.size(); d-- > 0;) {
            auto const extent = static_cast<std::size_t>(box.extents[d]);
            element += (rest % extent + static_cast<std::size_t>(box.offsets[d])) * stride;
            rest /= extent;
            stride *= static_cast<std::size_t>(tensor.shape[d]);
        }
        double const expected = whole[element];
        fuzz::check(is_same(f64s[i], expected), "a box has the elements of the tensor");
        if (expected != expected) continue;
        fuzz::check(is_same(f32s[i], static_cast<float>(expected)), "f32 is the rounded number");
        fuzz::check(is_same(bf16s[i], bf16(static_cast<float>(expected))), "bf16 is the rounded number");
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    fuzz::MemoryFile const file(fuzz::text(data, size));
    try {
        io::Checkpoint const checkpoint(file.path());
        std::vector<io::NamedShape> expected;
        for (auto const& tensor : checkpoint.tensors()) {
            expected.push_back({tensor.name, tensor.shape});
            if (!io::detail::with_real_type(tensor.type, [](auto) {})) continue;
            auto const whole = read<double>(checkpoint, tensor.name, io::Box::whole(tensor.shape));
            for (std::size_t trial = 0; trial < 4; ++trial)
                check_box(checkpoint, tensor, whole, {data + size * trial / 8, size - size * trial / 8});
        }
        auto const refusal = checkpoint.refusal(expected);
        fuzz::check(!refusal || refusal->find("not of F64") != refusal->npos, "a checkpoint fits itself");
        std::filesystem::resize_file(file.path(), size / 2);
        for (auto const& tensor : checkpoint.tensors())
            if (io::detail::with_real_type(tensor.type, [](auto) {}))
                (void)read<float>(checkpoint, tensor.name, io::Box::whole(tensor.shape));
    } catch (io::FileError const&) {
    }
    return 0;
}
