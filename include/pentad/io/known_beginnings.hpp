// Files that say by their first bytes what they are. What has no header of its own, text and raw tokens, is compared
// with them, since anything can be read as such.
#pragma once

#include <pentad/io/file.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace pentad::io {

/// A format that begins so.
struct KnownBeginning {
    std::string_view bytes;
    std::string_view name;   ///< "a Parquet file"
    std::string_view advice; ///< what its user does instead
    std::size_t at = 0;      ///< where in the file the bytes are; 8: behind a length of what follows
};

inline constexpr std::string_view npy_beginning = "\x93NUMPY";
inline constexpr std::string_view megatron_beginning{"MMIDIDX\0\0", 9};

namespace detail {
inline constexpr std::string_view unpack = "unpack it first";
inline constexpr std::string_view make_tokens = "make a text, or a .npy file of tokens, of it";
inline constexpr std::string_view without_header = "give its tokens without the header, the first 1024 bytes";
} // namespace detail

/// Whatever text or tokens are kept in, and what such files are packed in.
inline constexpr std::array known_beginnings{
    KnownBeginning{npy_beginning, "a NumPy array", "it holds tokens, and is no text"},
    KnownBeginning{megatron_beginning, "the index of a Megatron data set", "the tokens are in the .bin file beside it"},
    KnownBeginning{{"TNTIDX\0\0", 8}, "the index of a fairseq data set", detail::make_tokens},
    KnownBeginning{"LITPKDS", "a packed data set of LitGPT", detail::make_tokens},
    KnownBeginning{{"\x88\xd8\x34\x01", 4}, "an llm.c file of uint16 tokens", detail::without_header},
    KnownBeginning{{"\xa1\xd9\x34\x01", 4}, "an llm.c file of uint32 tokens", detail::without_header},
    KnownBeginning{"{\"", "a safetensors file", detail::make_tokens, 8},
    KnownBeginning{"PAR1", "a Parquet file", detail::make_tokens},
    KnownBeginning{"ARROW1", "an Arrow file", detail::make_tokens},
    KnownBeginning{
        {"\x10\0\0\0\0\0\n\0", 8}, "an Arrow stream, as Hugging Face keeps data sets", detail::make_tokens, 8},
    KnownBeginning{"\x89HDF\r\n\x1a\n", "an HDF5 file", detail::make_tokens},
    KnownBeginning{"\x80\x04\x95", "a pickle of Python", detail::make_tokens},
    KnownBeginning{"\x80\x05\x95", "a pickle of Python", detail::make_tokens},
    KnownBeginning{"Obj\x01", "an Avro file", detail::make_tokens},
    KnownBeginning{{"SQLite format 3\0", 16}, "an SQLite data base", detail::make_tokens},
    KnownBeginning{"PK\x03\x04", "a zip archive, as .npz files and those of torch.save are", detail::unpack},
    KnownBeginning{"\x1f\x8b\x08", "a gzip file", detail::unpack},
    KnownBeginning{"\x28\xb5\x2f\xfd", "a zstd file", detail::unpack},
    KnownBeginning{{"\xfd\x37zXZ\0", 6}, "an xz file", detail::unpack},
    KnownBeginning{"1AY&SY", "a bzip2 file", detail::unpack, 4},
    KnownBeginning{"\x04\x22\x4d\x18", "an LZ4 file", detail::unpack},
    KnownBeginning{"\x7f\x45LF", "a program", "name a file of data"},
};

/// The format that a file begins as; null if it is not known.
[[gnu::cold]] KnownBeginning const* known_beginning(File const& file);

/// Whether the first bytes of a file, 64 of them at least, are printable ASCII: text, and no numbers.
[[gnu::cold]] bool begins_as_text(File const& file);

} // namespace pentad::io

#if !PENTAD_COMPILED_FUNCTIONS
#include <pentad/io/impl/known_beginnings.hpp>
#endif
