// Activations that blocks save, in a file of the rank, or on a device in the memory of the host, between their passes.
// They are copied to a slot of a small window, from which a thread writes them while the rank computes on; it reads
// them ahead of need, in the order in which they were needed in the step before.
#pragma once

#include <pentad/layers/activation_memory.hpp>
#include <pentad/memory/copy.hpp>
#include <pentad/memory/pool.hpp>
#include <pentad/memory/view.hpp>
#include <pentad/model/offload.hpp>
#include <pentad/observe/dry_run.hpp>
#include <pentad/tensor/context.hpp>
#include <pentad/zero/offload_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pentad::train {

template <class Exec>
class OffloadedActivations final : public ActivationMemory {
  public:
    /// @throws io::FileError where the folder has no files without a name
    OffloadedActivations(Context<Exec> const& context, model::Offload const& settings)
        : context_(&context), window_bytes_(settings.window_bytes), in_memory_(settings.folder.empty()) {
        if (!in_memory_) file_.open(settings.folder, 0, 64);
    }

    void begin(memory::BlockName const& input) override {
        names_.assign(1, input);
        context_->activations().record(&names_);
    }
    Record end(memory::BlockName const& output, Record number) override {
        auto& pool = context_->activations();
        pool.record(nullptr);
        std::erase_if(names_, [&](auto const& name) { return name == output || !pool.exists(name); });
        if (number == none) {
            number = records_.size();
            records_.emplace_back();
        }
        auto& record = records_[number];
        record.blocks.swap(names_);
        record.bytes = 0;
        for (auto const& block : record.blocks) record.bytes += pool.size(block);
        if (record.bytes == 0) return number;
        record.bytes = model::whole_pages(record.bytes);
        record.slot = free_slot(record.bytes);
        auto& slot = slots_[record.slot];
        slot.record = number;
        auto* to = slot.data();
        for (auto const& block : record.blocks) {
            if (observe::dry_run() == nullptr) // otherwise the slot has no memory
                memory::copy_to_host(context_->exec(), to, pool.data(block), pool.size(block));
            pool.evict(block);
            to += pool.size(block);
        }
        saved_bytes_ += record.bytes;
        most_bytes_ = std::max(most_bytes_, saved_bytes_);
        record.offset = in_memory_ ? 0 : take_space(record.bytes);
        slot.request = file_.write(record.offset, slot.data(), record.bytes);
        slot.is_read = false;
        return number;
    }
    void bring_back(Record number) override {
        auto& record = records_[number];
        if (record.bytes == 0) return;
        records_[last_].next = number;
        last_ = number;
        if (record.slot == none) read(number, free_slot(record.bytes));
        auto& slot = slots_[record.slot];
        if (slot.is_read) file_.wait(slot.request);
        bool const is_lost = slot.is_read && !file_.failure().empty();
        auto& pool = context_->activations();
        auto const* from = slot.data();
        for (auto const& block : record.blocks) {
            pool.bring_back(block);
            if (is_lost) // zeros are valid indices
                memory::clear(context_->exec(), pool.data(block), pool.size(block));
            else
                memory::copy_from_host(context_->exec(), pool.data(block), from, pool.size(block));
            from += pool.size(block);
        }
        slot.record = none;
        record.slot = none;
        saved_bytes_ -= record.bytes;
        if (!in_memory_) free_.push_back({record.offset, record.bytes});
        record.bytes = 0;
        if (saved_bytes_ == 0) free_.assign(1, {0, file_bytes_});
        read_ahead(record.next);
    }

    /// Once it has failed, zeros are brought back. Closed where the memory of the host is used.
    [[nodiscard]] zero::OffloadFile& file() { return file_; }
    [[nodiscard]] model::OffloadReport report() const { return file_.report(most_bytes_, window_held_); }

  private:
    struct Saved {
        std::vector<memory::BlockName> blocks;
        std::size_t bytes = 0; ///< 0: nothing is saved
        std::uint64_t offset = 0;
        std::size_t slot = none;
        Record next = none; ///< what was needed after it, the last time
    };
    struct Slot {
        memory::Buffer<Kokkos::HostSpace> block{};
        std::size_t bytes = 0;
        Record record = none;
        std::uint64_t request = 0; ///< the last that reads or writes its memory
        bool is_read = false;      ///< from the file
        std::uint64_t used = 0;    ///< when it got its record

        [[nodiscard]] std::byte* data() const { return model::page_in(block.data()); }
    };
    struct Space {
        std::uint64_t offset;
        std::size_t bytes;
    };

    [[nodiscard]] bool may_grow(std::size_t bytes) const {
        if (in_memory_) return true;
        return window_bytes_ == 0 ? slots_.size() < model::activation_slots
                                  : slots_.empty() || window_held_ + bytes + model::offload_page <= window_bytes_;
    }
    /// A slot without a record, of so many bytes at least: that of the oldest record, if need be.
    std::size_t free_slot(std::size_t bytes) {
        std::size_t best = none;
        for (std::size_t i = 0; i < slots_.size(); ++i)
            if (slots_[i].record == none && (best == none || (slots_[best].bytes < bytes && slots_[i].bytes >= bytes)))
                best = i;
        if (best == none && may_grow(bytes)) {
            best = slots_.size();
            slots_.emplace_back();
        }
        if (best == none) {
            best = static_cast<std::size_t>(
                std::min_element(slots_.begin(), slots_.end(),
                                 [](auto const& a, auto const& b) { return a.used < b.used; }) -
                slots_.begin());
            records_[slots_[best].record].slot = none;
            slots_[best].record = none;
        }
        auto& slot = slots_[best];
        file_.wait(slot.request);
        slot.used = ++uses_;
        if (slot.bytes < bytes) {
            slot.block = {};
            if constexpr (memory::runs_on_host<Exec>)
                slot.block = context_->take(bytes + model::offload_page);
            else
                slot.block = memory::staging_pool<Kokkos::HostSpace>().take(bytes + model::offload_page);
            window_held_ += bytes + (slot.bytes == 0 ? model::offload_page : 0) - slot.bytes;
            slot.bytes = bytes;
        }
        return best;
    }
    void read(Record number, std::size_t at) {
        auto& record = records_[number];
        auto& slot = slots_[at];
        slot.record = number;
        record.slot = at;
        slot.request = file_.read(record.offset, slot.data(), record.bytes);
        slot.is_read = true;
    }
    /// Begins to read what will be needed, where slots are free.
    void read_ahead(Record number) {
        for (std::size_t i = 0; i < slots_.size() && number != none; ++i, number = records_[number].next) {
            if (records_[number].bytes == 0) return; // not yet saved
            if (records_[number].slot != none) continue;
            bool const is_free =
                std::any_of(slots_.begin(), slots_.end(), [](auto const& s) { return s.record == none; });
            if (!is_free && !may_grow(records_[number].bytes)) return;
            read(number, free_slot(records_[number].bytes));
        }
    }
    /// So many bytes of the file.
    std::uint64_t take_space(std::size_t bytes) {
        auto best = free_.end();
        for (auto space = free_.begin(); space != free_.end(); ++space)
            if (space->bytes >= bytes && (best == free_.end() || space->bytes < best->bytes)) best = space;
        if (best == free_.end()) {
            auto const offset = file_bytes_;
            file_bytes_ += bytes;
            return offset;
        }
        auto const offset = best->offset;
        best->offset += bytes;
        best->bytes -= bytes;
        if (best->bytes == 0) free_.erase(best);
        return offset;
    }

    Context<Exec> const* context_;
    std::size_t window_bytes_; ///< that slots may have; 0: model::activation_slots of them
    bool in_memory_;           ///< of the host: without a file
    std::vector<memory::BlockName> names_;
    std::vector<Saved> records_;
    std::vector<Slot> slots_;
    std::vector<Space> free_; ///< of the file
    std::uint64_t file_bytes_ = 0, saved_bytes_ = 0, most_bytes_ = 0, uses_ = 0;
    std::size_t window_held_ = 0; ///< bytes of the slots
    Record last_ = 0;
    zero::OffloadFile file_; ///< the last member: its thread uses the slots' memory
};

} // namespace pentad::train
