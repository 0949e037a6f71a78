// The optimizer's state in a file instead of memory. A window of slots holds the states that an update works on and
// those that come next: a thread reads them ahead of need and writes back what was updated, while the rank computes.
#pragma once

#include <pentad/memory/copy.hpp>
#include <pentad/memory/pool.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/tensor/context.hpp>
#include <pentad/zero/offload_file.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::zero {

/// Where the states of the buckets of a rank are while no update uses them. States are expected in the order in which
/// updates came to them last, round and round; others are read when they are asked for. On a device the slots are
/// memory of the host, and one buffer of the device has the state that is in use.
template <class Exec>
class OffloadedStates {
  public:
    OffloadedStates(Context<Exec> const& context, model::Offload settings)
        : context_(&context), settings_(std::move(settings)) {}
    OffloadedStates(OffloadedStates const&) = delete;
    OffloadedStates& operator=(OffloadedStates const&) = delete;

    /// Adds a state of model::offloaded_bytes(), zeros. Gives its number. To be called before open().
    std::size_t add(std::size_t bytes) {
        states_.push_back({file_bytes_, bytes});
        file_bytes_ += bytes;
        return states_.size() - 1;
    }
    /// Takes memory for the window, and of the disk what it does not hold.
    /// @throws io::FileError where the folder has no room, or no files without a name
    void open() {
        std::vector<std::size_t> sizes;
        for (std::size_t i = 0; i < states_.size(); ++i) {
            sizes.push_back(states_[i].bytes);
            states_[i].next = (i + 1) % states_.size();
        }
        window_ = model::offload_window(sizes, settings_.folder.empty() ? std::numeric_limits<std::size_t>::max()
                                                                        : settings_.window_bytes);
        if (states_.empty()) return;
        last_ = states_.size() - 1;
        std::byte* next = nullptr;
        if constexpr (memory::runs_on_host<Exec>) {
            block_ = context_->take(window_.bytes(), observe::Memory::optimizer);
            next = model::page_in(block_.data());
        } else {
            block_ = context_->take(window_.slot, observe::Memory::optimizer);
            host_block_ = memory::staging_pool<Kokkos::HostSpace>().take(window_.bytes());
            next = model::page_in(host_block_.data());
        }
        for (std::size_t i = 0; i < window_.slots; ++i) slots_.push_back({next + i * window_.slot});
        if (uses_file()) file_.open(settings_.folder, file_bytes_, 4 * slots_.size() + 4);
    }

    /// Brings a state to memory, where it stays until release(). One at a time. What could not be read is not what it
    /// should be: the file's failure() says so.
    /// @param updates whether an update wants it: those that come next are expected from the order of updates;
    /// otherwise by their numbers
    [[nodiscard]] std::byte* acquire(std::size_t number, bool updates) {
        if (updates) states_[last_].next = number;
        if (updates) last_ = number;
        visits_ = !updates;
        bring(number);
        auto const& state = states_[number];
        auto const& slot = slots_[state.slot];
        file_.wait(slot.request);
        std::byte* data = slot.data;
        if constexpr (!memory::runs_on_host<Exec>) {
            data = static_cast<std::byte*>(block_.data());
            if (!state.is_new) memory::copy_from_host(context_->exec(), data, slot.data, state.bytes);
        }
        if (state.is_new) memory::clear(context_->exec(), data, state.bytes);
        return data;
    }
    /// @param changed what the memory holds is the state from now on; otherwise it is as it was
    void release(std::size_t number, bool changed) {
        auto& state = states_[number];
        auto& slot = slots_[state.slot];
        if (changed) {
            if constexpr (memory::runs_on_host<Exec>)
                context_->exec().fence("pentad: state to be written");
            else
                memory::copy_to_host(context_->exec(), slot.data, block_.data(), state.bytes);
            state.is_new = false;
            slot.request = file_.write(state.offset, slot.data, state.bytes);
        }
        bring(next_of(number));
    }
    /// Reads what the next updates want, after others have used the window.
    void expect_updates() {
        visits_ = false;
        if (!states_.empty()) bring(states_[last_].next);
    }

    /// Closed where the window holds all states.
    [[nodiscard]] OffloadFile& file() { return file_; }
    [[nodiscard]] model::OffloadReport report() const {
        return file_.report(uses_file() ? file_bytes_ : 0, window_.bytes());
    }

  private:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    struct State {
        std::uint64_t offset;
        std::size_t bytes;
        std::size_t next = none; ///< what updates came to after it
        std::size_t slot = none;
        bool is_new = true; ///< zeros, of which the file knows nothing
    };
    struct Slot {
        std::byte* data;
        std::size_t state = none;
        std::uint64_t request = 0; ///< the last that reads or writes its memory
        bool is_wanted = false;
    };

    [[nodiscard]] bool uses_file() const { return slots_.size() < states_.size(); }
    [[nodiscard]] std::size_t next_of(std::size_t number) const {
        return visits_ ? (number + 1) % states_.size() : states_[number].next;
    }
    /// Begins to read `first` and as many of its followers as there are slots, in place of other states.
    void bring(std::size_t first) {
        for (auto& slot : slots_) slot.is_wanted = false;
        auto number = first;
        for (std::size_t i = 0; i < slots_.size(); ++i, number = next_of(number))
            if (states_[number].slot != none) slots_[states_[number].slot].is_wanted = true;
        number = first;
        for (std::size_t i = 0, next = 0; i < slots_.size(); ++i, number = next_of(number)) {
            auto& state = states_[number];
            if (state.slot != none) continue;
            while (slots_[next].is_wanted) ++next; // there is one for each of them
            auto& slot = slots_[next];
            if (slot.state != none) states_[slot.state].slot = none;
            slot.state = number;
            slot.is_wanted = true;
            state.slot = next;
            if (!state.is_new) slot.request = file_.read(state.offset, slot.data, state.bytes);
        }
    }

    Context<Exec> const* context_;
    model::Offload settings_;
    std::vector<State> states_;
    std::uint64_t file_bytes_ = 0;
    model::OffloadWindow window_;
    memory::Buffer<typename Exec::memory_space> block_;
    memory::Buffer<Kokkos::HostSpace> host_block_; ///< of a device
    std::vector<Slot> slots_;
    std::size_t last_ = 0; ///< the state that was updated last
    bool visits_ = false;  ///< the last one was not asked for by an update
    OffloadFile file_;     ///< the last member: its thread uses the slots' memory
};

} // namespace pentad::zero
