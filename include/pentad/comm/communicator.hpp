// A communicator owned by an object, that knows along which mesh axes its ranks lie; and the set of
// communicators of a mesh, each made when what needs it is prepared, which the ranks of the group come to together.
#pragma once

#include <pentad/comm/axis_communicator.hpp>
#include <pentad/comm/choice.hpp>
#include <pentad/comm/detail/checked.hpp>
#include <pentad/comm/detail/two_level.hpp>
#include <pentad/comm/network.hpp>
#include <pentad/comm/node/group.hpp>
#include <pentad/layout/cost.hpp>
#include <pentad/mesh/mesh.hpp>
#include <pentad/observe/ledger.hpp>

#include <mpi.h>

#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pentad::comm {

/// The ranks of a group along some axes, with their MPI communicator and, where they share a node, its memory. A group
/// of one rank has neither and calls nothing.
class Communicator {
  public:
    Communicator() = default;
    /// Takes ownership of `handle`; collective over it. `mesh`, `tuning` and `ledger`, in which what is sent over the
    /// group is booked, must outlive the communicator, which is one of the ranks of `world` unless it is the world
    /// itself.
    [[gnu::cold]] Communicator(MPI_Comm handle, AxisNames axes, std::span<MeshAxisValue const> mesh,
                               Tuning const& tuning, observe::Ledger& ledger, Communicator const* world = nullptr);
    /// That of rank `rank` of `size` in a dry run, without MPI. @param node_of gives the node of each rank, when
    /// someone asks; null: all share one
    [[gnu::cold]] Communicator(int size, int rank, AxisNames axes, std::span<MeshAxisValue const> mesh,
                               Tuning const& tuning, observe::Ledger& ledger,
                               std::function<std::vector<int>()> node_of);
    Communicator(Communicator&& other) noexcept { swap(other); }
    Communicator& operator=(Communicator&& other) noexcept {
        swap(other);
        return *this;
    }
    [[gnu::cold]] ~Communicator() {
        if (handle_ != MPI_COMM_NULL) MPI_Comm_free(&handle_);
    }

    [[nodiscard]] MPI_Comm handle() const { return handle_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] int rank() const { return rank_; }
    /// The shared memory of the group; null where its ranks do not share a node.
    [[nodiscard]] node::Group* node() const {
        return node_ && node_->size() == static_cast<std::size_t>(size_) ? node_.get() : nullptr;
    }
    /// True where some ranks of the group share no memory.
    [[nodiscard]] bool crosses_network() const {
        bool const is_dry = handle_ == MPI_COMM_NULL;
        return size_ > 1 && (is_dry ? nodes().count() > 1 : node() == nullptr);
    }
    /// The two levels of a group on several nodes, of which each has as many of its ranks, two or more; else null.
    [[nodiscard]] Levels* levels() const { return levels_.get(); }
    /// Whether it has them; in a dry run, whether it would.
    [[nodiscard]] bool has_levels() const {
        return handle_ == MPI_COMM_NULL ? nodes().count() > 1 && nodes().each() > 1 : levels_ != nullptr;
    }
    /// Who is on which node, whether they share its memory or not.
    [[nodiscard]] Nodes const& nodes() const {
        if (node_of_) imagine_nodes();
        return nodes_;
    }
    /// Whether the MPI library's own algorithm is the faster, for `bytes` bytes of the unscattered side.
    [[nodiscard]] bool takes_mpi(observe::Operation operation, std::size_t bytes) const {
        if (auto const* const tuning = std::exchange(dry_tuning_, nullptr))
            tuning_ = &tuning->of(size_, has_levels() ? nodes().count() : 1);
        return tuning_ != nullptr && tuning_->takes_mpi(operation, bytes);
    }
    /// Whether the blocking calls of MPI may be used for collectives: where no ranks of the world share a node.
    /// Elsewhere a rank that blocks in MPI would keep those waiting who wait for its part in what is under way within a
    /// node. (Blocking and non-blocking calls do not match each other, so that it depends on what all ranks know.)
    [[nodiscard]] bool may_block() const { return may_block_; }
#if PENTAD_CHECKED
    [[nodiscard]] checked::Checker* checker() const { return checker_.get(); }
#endif
    [[nodiscard]] AxisNames const& axes() const { return axes_; }
    [[nodiscard]] std::span<MeshAxisValue const> mesh() const { return mesh_; }

    /// "dp.cp"; it outlives the communicator's use in a trace as long as the communicator lives.
    [[nodiscard]] std::string const& label() const { return label_; }
    /// How what an exchange over this group costs is shared out among the axes.
    [[nodiscard]] Cost const& shares() const { return shares_; }
    /// Where what is sent over the group, and the time that this takes, are booked.
    [[nodiscard]] observe::Ledger& ledger() const { return *ledger_; }
    /// "over dp.cp (rank 1 of 4)", for messages.
    [[nodiscard]] std::string const& where() const { return where_; }

  private:
    [[gnu::cold]] void describe() {
        for (auto const axis : axes_) label_ += (label_.empty() ? "" : ".") + std::string(axis);
        where_ = "over " + label_ + " (rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ")";
        add_scatter_cost(shares_, mesh_, axes_, 1.0);
    }
    [[gnu::cold]] void imagine_nodes() const { nodes_ = Nodes(std::exchange(node_of_, {})(), rank_); }
    void swap(Communicator& other) noexcept;

    MPI_Comm handle_ = MPI_COMM_NULL;
    AxisNames axes_;
    std::string label_, where_;
    Cost shares_;
    std::span<MeshAxisValue const> mesh_;
    observe::Ledger* ledger_ = &observe::ledger();
    int size_ = 1;
    int rank_ = 0;
    std::unique_ptr<node::Group> node_;
    mutable Nodes nodes_;
    mutable std::function<std::vector<int>()> node_of_; ///< of a dry run, until it is asked
    std::unique_ptr<Levels> levels_;
    mutable Tuning::Group const* tuning_ = nullptr;
    mutable Tuning const* dry_tuning_ = nullptr; ///< of a dry run, until someone asks what of it holds here
    bool may_block_ = true;
#if PENTAD_CHECKED
    std::unique_ptr<checked::Checker> checker_;
#endif
};

/// The communicators of a mesh: one along each axis, one over all ranks, and those over several axes that were used.
class Communicators {
  public:
    /// Collective over `world`, whose size must be the number of ranks of the mesh. @param ledger of what is sent: two
    /// models in one process may have one each
    template <MeshOfRanks M>
    [[gnu::cold]] Communicators(MPI_Comm world, M const& mesh, observe::Ledger& ledger = observe::ledger())
        : axes_(mesh.axes().begin(), mesh.axes().end()), tuning_(read_tuning(world)), ledger_(&ledger) {
        make_world(world, mesh.size());
    }
    /// For a program that has communicators along the axes already, one for each: a rank's coordinate along an axis is
    /// its rank there, so that ranks of `world` may be in any order. All are copied. Collective over `world`.
    /// @throws std::invalid_argument on all ranks where they are not those of a mesh
    template <class... Axes>
    Communicators(MPI_Comm world, Mesh<Axes...> const& mesh, std::initializer_list<AxisCommunicator> given)
        : Communicators(detail::OrderedWorld(world, mesh.axes(), std::span(given.begin(), given.size())).handle(),
                        mesh) {}
    /// The communicators of one rank of any mesh in a dry run, where `ranks_per_node` ranks of the mesh that follow
    /// each other share a node. MPI need not have been started.
    template <MeshOfRanks M>
    [[gnu::cold]] Communicators(M const& mesh, int rank, int ranks_per_node)
        : axes_(mesh.axes().begin(), mesh.axes().end()), is_dry_(true) {
        if (rank < 0 || rank >= mesh.size() || ranks_per_node < 1)
            throw std::invalid_argument("rank " + std::to_string(rank) + " of a mesh of " +
                                        std::to_string(mesh.size()) + ", with " + std::to_string(ranks_per_node) +
                                        " ranks on a node: there is none");
        if (ranks_per_node < mesh.size()) node_of_ = [ranks_per_node](int i) { return i / ranks_per_node; };
        imagine_world(rank, mesh.size());
    }
    /// The communicators of this rank in a dry run on another mesh of the ranks of `real`, with their nodes and their
    /// tuning.
    template <MeshOfRanks M>
    [[gnu::cold]] Communicators(M const& mesh, Communicators const& real)
        : axes_(mesh.axes().begin(), mesh.axes().end()), tuning_(real.tuning_), is_dry_(true) {
        auto const& world = real.world();
        if (mesh.size() != world.size())
            throw std::invalid_argument("a mesh of " + std::to_string(mesh.size()) + " ranks for " +
                                        std::to_string(world.size()));
        if (world.nodes().count() > 1) node_of_ = [nodes = world.nodes()](int i) { return nodes.of(i); };
        imagine_world(world.rank(), mesh.size());
    }
    Communicators(Communicators const&) = delete;
    Communicators& operator=(Communicators const&) = delete;
    [[gnu::cold]] ~Communicators() {
        if (meeting_place_ != MPI_COMM_NULL) MPI_Comm_free(&meeting_place_);
    }

    [[nodiscard]] Communicator const& world() const { return world_; }
    [[nodiscard]] observe::Ledger& ledger() const { return *ledger_; }
    [[nodiscard]] std::span<MeshAxisValue const> mesh() const { return axes_; }
    [[nodiscard]] int extent(std::string_view axis) const { return find_axis(axes_, axis).extent; }
    [[nodiscard]] int coordinate(std::string_view axis) const {
        return find_axis(axes_, axis).coordinate(world_.rank());
    }
    /// The ranks along `axes`.
    [[nodiscard]] std::size_t extent(AxisNames const& axes) const { return ranks_along(axes_, axes); }
    /// This rank's place among the shards of a dimension that `axes` shard, major to minor.
    [[nodiscard]] std::size_t shard_index(AxisNames const& axes) const {
        return place_along(axes_, axes, world_.rank());
    }

    /// How many have been made.
    [[nodiscard]] std::size_t count() const { return made_.size(); }
    /// The communicator along `axes`, major to minor. Along several axes its first use makes it: then it is collective
    /// over the group of ranks that differ along those axes only, and waits for them, while what is under way goes on.
    Communicator const& along(AxisNames const& axes) {
        auto const key = canonical(axes);
        auto const* const known = find(key);
        return known != nullptr ? *known : make(key);
    }

    /// Splits an axis where nodes end: inner(axis) are the ranks of a node, outer(axis) the nodes. False where they
    /// cannot be: the group along it lies on one node, or nodes have different numbers of its ranks, or these do not
    /// follow each other, or the mesh splits the axis elsewhere. The same on all ranks of the group.
    bool split_by_node(std::string_view name);

  private:
    /// That of all ranks, and those along each axis.
    [[gnu::cold]] void make_world(MPI_Comm world, int ranks);
    /// That along axes, in the form of `canonical`, the first time.
    [[gnu::cold]] Communicator const& make(AxisNames const& key);
    /// The world of a dry run.
    [[gnu::cold]] void imagine_world(int rank, int size);
    /// The ranks of the world in the group of this rank along axes.
    [[nodiscard, gnu::cold]] std::vector<int> members_along(AxisNames const& axes) const {
        return pentad::members_along(axes_, axes, world_.rank());
    }
    /// A function that finds the node of each rank of a group in a dry run, with nodes numbered in the order of their
    /// first ranks; null if all ranks of the mesh share a node.
    [[nodiscard, gnu::cold]] std::function<std::vector<int>()> nodes_along(AxisNames const& axes) const;
    /// Axes of extent 1 connect nobody; a part that is the whole axis is the axis.
    [[nodiscard]] AxisNames canonical(AxisNames const& axes) const;
    /// Waits until all members have come to make a communicator, which then waits for nobody else: it blocks in MPI,
    /// where nothing of the library's own goes on.
    [[gnu::cold]] void meet(std::vector<int> const& members) const;
    [[nodiscard]] Communicator const* find(AxisNames const& key) const;

    std::vector<MeshAxisValue> axes_;
    Tuning tuning_;
    observe::Ledger* ledger_ = &observe::ledger(); ///< in a dry run that of the dry run
    bool is_dry_ = false;
    std::function<int(int)> node_of_; ///< of a dry run: the node of a rank of the world; null: all share one
    MPI_Comm meeting_place_ = MPI_COMM_NULL;
    Communicator world_;
    Communicator self_;
    std::deque<Communicator> made_;
};

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/communicator.hpp>
#endif
