// What a run keeps in files instead of memory, as a value, and the memory that it takes then.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pentad::model {

/// The optimizer's state, the activations that blocks save for their backward pass, or both are kept in files of each
/// rank. For each of the two there is a window of memory, with what is in use and what is used next.
struct Offload {
    bool optimizer = false;
    bool activations = false;
    /// Where the files are; they have no name, and are gone with the process. Empty: memory of the host instead, which
    /// is of use where the program computes on a device.
    std::string folder{};
    std::size_t window_bytes = 0; ///< of memory, for each of the two; at least the largest bucket's state, or block's
                                  ///< activations. 0: twice that, or three times

    friend bool operator==(Offload const&, Offload const&) = default;
};
/// What can be offloaded, by name.
inline constexpr std::array<std::string_view, 4> offload_names{"none", "optimizer", "activations", "both"};
/// @param name one of offload_names
inline Offload offload_of(std::string_view name) {
    return {.optimizer = name == "optimizer" || name == "both", .activations = name == "activations" || name == "both"};
}
/// What a window of activations has by default: one block's is filled, one's written, and one's read ahead.
inline constexpr std::size_t activation_slots = 3;

/// Files are read and written with O_DIRECT, in multiples of this.
inline constexpr std::size_t offload_page = 4096;
/// The least number of bytes in whole pages.
inline std::size_t whole_pages(std::size_t bytes) { return (bytes + offload_page - 1) / offload_page * offload_page; }
/// The first page in memory, which has a page more than is needed.
inline std::byte* page_in(void* memory) {
    return reinterpret_cast<std::byte*>(whole_pages(reinterpret_cast<std::uintptr_t>(memory)));
}

/// Bytes from one tensor of a bucket's state to the next.
inline std::size_t offload_stride(std::size_t bytes) {
    constexpr std::size_t alignment = 256; // as buffers of the pool have it
    return (bytes + alignment - 1) / alignment * alignment;
}
/// Bytes of the state of a bucket. @param tensors the bytes of each
inline std::size_t offloaded_bytes(std::span<std::size_t const> tensors) {
    std::size_t bytes = 0;
    for (auto const tensor : tensors) bytes += offload_stride(tensor);
    return whole_pages(bytes);
}

/// The memory for states: slots, each of which can hold any bucket's.
struct OffloadWindow {
    std::size_t slot = 0;  ///< bytes of the largest state
    std::size_t slots = 0; ///< all states where they fit: then nothing is written to the file

    [[nodiscard]] std::size_t bytes() const { return slots == 0 ? 0 : slot * slots + offload_page; }
};
/// @param states the bytes of each bucket's state that has any
inline OffloadWindow offload_window(std::span<std::size_t const> states, std::size_t window_bytes) {
    OffloadWindow window;
    if (states.empty()) return window;
    window.slot = *std::max_element(states.begin(), states.end());
    window.slots = window_bytes == 0 ? 2 : std::max<std::size_t>(window_bytes / window.slot, 1);
    window.slots = std::min(window.slots, states.size());
    return window;
}

/// Bytes of the memory for activations: slots, each of which can hold any block's of a micro-batch.
/// @param most bytes of a block @param records that there are at once, at most
inline std::size_t activation_window(std::size_t most, std::size_t records, std::size_t window_bytes) {
    if (most == 0) return 0;
    std::size_t const slot = whole_pages(most) + offload_page;
    std::size_t const slots = window_bytes == 0 ? activation_slots : std::max<std::size_t>(window_bytes / slot, 1);
    return slot * std::min(slots, records);
}

/// What offload has done so far on a rank.
struct OffloadReport {
    double state_bytes = 0;  ///< in the file, at most
    double window_bytes = 0; ///< in memory
    double read_bytes = 0, written_bytes = 0;
    double disk_seconds = 0;   ///< in which the file was read or written
    double waited_seconds = 0; ///< in which updates waited for it
    bool is_direct = false;    ///< with O_DIRECT
};

} // namespace pentad::model
