// Where buffers come from: a pool of slabs in a memory space, from which blocks are cut best-fit and into
// which they return. After the first steps it has what a step needs, so that a steady-state step allocates nothing.
// Slabs on the host are shared with the other ranks of the node, where there are any.
#pragma once

#include <pentad/memory/shared_memory.hpp>
#include <pentad/observe/counters.hpp>
#include <pentad/observe/dry_run.hpp>

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace pentad::memory {

template <class MemorySpace>
class Pool;

/// Names a block of a pool, whether or not it still exists.
struct BlockName {
    std::size_t node = 0;
    std::uint64_t number = 0; ///< of the block, counted from 1; 0: of none
    bool operator==(BlockName const&) const = default;
};

/// A block of a pool, shared by its copies and returned by the last of them. Work that uses it must have been submitted
/// to the execution space instance that the pool's users share before it returns: the next owner's work comes after it.
template <class MemorySpace>
class Buffer {
  public:
    Buffer() = default;
    Buffer(Buffer const& other) : pool_(other.pool_), node_(other.node_) {
        if (pool_ != nullptr) pool_->share(node_);
    }
    Buffer(Buffer&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), node_(other.node_) {}
    Buffer& operator=(Buffer other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(node_, other.node_);
        return *this;
    }
    ~Buffer() {
        if (pool_ != nullptr) pool_->release(node_);
    }
    [[nodiscard]] void* data() const { return pool_ == nullptr ? nullptr : pool_->address(node_); }
    /// True when no copy of this block exists: its owner may write over it.
    [[nodiscard]] bool sole_owner() const { return pool_ != nullptr && pool_->owners(node_) == 1; }
    [[nodiscard]] BlockName name() const { return pool_ == nullptr ? BlockName() : pool_->name(node_); }

  private:
    friend class Pool<MemorySpace>;
    Buffer(Pool<MemorySpace>* pool, std::size_t node) : pool_(pool), node_(node) {}
    Pool<MemorySpace>* pool_ = nullptr;
    std::size_t node_ = 0;
};

/// Slabs of one memory space, for buffers of one kind. For the one host thread that drives Pentad. It must outlive its
/// blocks, and end before Kokkos does.
template <class MemorySpace>
class Pool {
  public:
    /// Made in a dry run, it gives addresses without memory.
    explicit Pool(observe::Memory kind, bool is_dry = observe::dry_run() != nullptr) : kind_(kind), is_dry_(is_dry) {}
    Pool(Pool const&) = delete;
    Pool& operator=(Pool const&) = delete;
    [[gnu::cold]] ~Pool() {
        for (auto const& slab : slabs_) {
            if (is_dry_) continue;
            if (slab.is_shared)
                shared_memory().free(slab.data);
            else
                Kokkos::kokkos_free<MemorySpace>(slab.data);
        }
    }

    /// A block of at least `bytes` bytes, aligned to 256.
    [[nodiscard]] Buffer<MemorySpace> take(std::size_t bytes) {
        Node node = place((std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment);
        node.number = ++taken_;
        std::size_t at = nodes_.size();
        if (unused_.empty()) {
            nodes_.push_back(node);
            unused_.reserve(nodes_.capacity()); // so that giving blocks back never asks for memory
            free_.reserve(nodes_.capacity() + slabs_.size() + 1);
        } else {
            at = unused_.back();
            unused_.pop_back();
            nodes_[at] = node;
        }
        if (record_ != nullptr) record_->push_back(name(at));
        return {this, at};
    }

    /// From now on adds the names of blocks that are taken to a list; null: to none.
    void record(std::vector<BlockName>* names) { record_ = names; }
    [[nodiscard]] bool exists(BlockName const& block) const {
        return block.number != 0 && nodes_[block.node].number == block.number && nodes_[block.node].owners > 0;
    }
    [[nodiscard]] std::size_t size(BlockName const& block) const { return nodes_[block.node].size; }
    [[nodiscard]] void* data(BlockName const& block) const { return address(block.node); }
    /// Returns the memory of a block to the pool; its contents are lost. Its buffers remain valid, and their data() is
    /// null until bring_back().
    void evict(BlockName const& block) {
        give_back(nodes_[block.node]);
        nodes_[block.node].slab = none;
    }
    /// Gives an evicted block memory again, uninitialised.
    void bring_back(BlockName const& block) {
        auto& node = nodes_[block.node];
        auto const placed = place(node.size);
        node.slab = placed.slab;
        node.offset = placed.offset;
    }

  private:
    friend class Buffer<MemorySpace>;
    static constexpr std::size_t none = static_cast<std::size_t>(-1); ///< the slab of a block without memory
    static constexpr std::size_t alignment = 256;
    static constexpr std::size_t smallest_slab = std::size_t{1} << 20;

    struct Slab {
        std::byte* data;
        bool is_shared; ///< in a segment, which the other ranks of the node can map
        void* begin() const {
            return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(data) + alignment - 1) / alignment *
                                           alignment);
        }
    };
    struct Range {
        std::size_t slab, offset, size;
    };
    struct Node {
        std::size_t slab, offset, size;
        std::size_t owners = 1;
        std::uint64_t number = 0; ///< of the block that it is
    };

    /// Memory of so many bytes.
    Node place(std::size_t size) {
        auto best = free_.end();
        for (auto range = free_.begin(); range != free_.end(); ++range)
            if (range->size >= size && (best == free_.end() || range->size < best->size)) best = range;
        if (best == free_.end()) best = grow(size);
        Node const node{best->slab, best->offset, size};
        best->offset += size;
        best->size -= size;
        if (best->size == 0) free_.erase(best);
        observe::counters().held(kind_, static_cast<std::int64_t>(size));
        return node;
    }
    [[gnu::cold]] typename std::vector<Range>::iterator grow(std::size_t size) {
        std::size_t const least = std::max(size, smallest_slab);
        std::size_t slab_size = std::max(least, total_ / 4 / alignment * alignment);
        try {
            slabs_.push_back(is_dry_ ? Slab{observe::dry_run()->address(slab_size + alignment), false}
                                     : allocate(slab_size + alignment));
        } catch (std::exception const&) { // near a limit of memory: no more than is needed
            if (slab_size == least) throw;
            slab_size = least;
            slabs_.push_back(allocate(slab_size + alignment));
        }
        total_ += slab_size;
        observe::counters().allocated(kind_);
        free_.reserve(nodes_.capacity() + slabs_.size() + 1);
        free_.push_back({slabs_.size() - 1, 0, slab_size});
        return free_.end() - 1;
    }
    [[gnu::cold]] static Slab allocate(std::size_t bytes) {
        if constexpr (std::is_same_v<MemorySpace, Kokkos::HostSpace>)
            if (shared_memory().has_peers())
                if (void* const data = shared_memory().allocate(bytes)) return {static_cast<std::byte*>(data), true};
        return {static_cast<std::byte*>(Kokkos::kokkos_malloc<MemorySpace>("pentad::Pool", bytes)), false};
    }
    void* address(std::size_t node) const {
        if (nodes_[node].slab == none) return nullptr;
        return static_cast<std::byte*>(slabs_[nodes_[node].slab].begin()) + nodes_[node].offset;
    }
    void share(std::size_t node) { ++nodes_[node].owners; }
    [[nodiscard]] std::size_t owners(std::size_t node) const { return nodes_[node].owners; }
    [[nodiscard]] BlockName name(std::size_t node) const { return {node, nodes_[node].number}; }
    void release(std::size_t node) {
        if (--nodes_[node].owners == 0) retire(node);
    }
    /// Apart from the count, which is compiled into every place that lets go of a buffer.
    [[gnu::noinline]] void retire(std::size_t node) {
        if (nodes_[node].slab != none) give_back(nodes_[node]);
        unused_.push_back(node);
    }
    void give_back(Node const& block) {
        observe::counters().released(kind_, static_cast<std::int64_t>(block.size));
        auto next = std::lower_bound(free_.begin(), free_.end(), block, [](Range const& range, Node const& b) {
            return std::pair(range.slab, range.offset) < std::pair(b.slab, b.offset);
        });
        bool const joins_next =
            next != free_.end() && next->slab == block.slab && next->offset == block.offset + block.size;
        bool const joins_previous = next != free_.begin() && (next - 1)->slab == block.slab &&
                                    (next - 1)->offset + (next - 1)->size == block.offset;
        if (joins_previous) {
            (next - 1)->size += block.size + (joins_next ? next->size : 0);
            if (joins_next) free_.erase(next);
        } else if (joins_next) {
            next->offset = block.offset;
            next->size += block.size;
        } else
            free_.insert(next, {block.slab, block.offset, block.size});
    }

    observe::Memory kind_;
    bool is_dry_;
    std::vector<Slab> slabs_;
    std::vector<Range> free_; ///< sorted by slab and offset, no two adjacent
    std::vector<Node> nodes_;
    std::vector<std::size_t> unused_;
    std::size_t total_ = 0;
    std::uint64_t taken_ = 0; ///< blocks
    std::vector<BlockName>* record_ = nullptr;
};

/// The pool of staging buffers of a memory space; it ends with Kokkos.
template <class MemorySpace>
Pool<MemorySpace>& staging_pool() {
    static auto* pool = [] {
        static std::unique_ptr<Pool<MemorySpace>> owned =
            std::make_unique<Pool<MemorySpace>>(observe::Memory::communication, false);
        Kokkos::push_finalize_hook([] { owned.reset(); });
        return owned.get();
    }();
    return *pool;
}

} // namespace pentad::memory
