// The functions of <pentad/comm/communicator.hpp>.
#pragma once

#include <pentad/comm/communicator.hpp>

#include <pentad/comm/error.hpp>
#include <pentad/comm/progress.hpp>
#include <pentad/comm/progress_thread.hpp>
#include <pentad/mesh/inline.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <unordered_map>

namespace pentad::comm {

PENTAD_INLINE Communicator::Communicator(MPI_Comm handle, AxisNames axes, std::span<MeshAxisValue const> mesh,
                                         Tuning const& tuning, observe::Ledger& ledger, Communicator const* world)
    : handle_(handle), axes_(axes), mesh_(mesh), ledger_(&ledger) {
    check(MPI_Comm_size(handle_, &size_), "MPI_Comm_size");
    check(MPI_Comm_rank(handle_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_set_errhandler(handle_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    describe();
    if (size_ == 1) return;
    node_ = std::make_unique<node::Group>(handle_);
    if (node_->shares_cores()) progress().share_cores();
    nodes_ = Nodes(node_->node_of(), rank_);
    if (crosses_network()) progress_thread().start();
    if (node_->nodes() > 1) levels_ = std::make_unique<Levels>(handle_, *node_);
    tuning_ = &tuning.of(size_, levels_ ? static_cast<int>(node_->nodes()) : 1);
    may_block_ = world != nullptr ? world->may_block_ : nodes_.count() == size_;
#if PENTAD_CHECKED
    checker_ = std::make_unique<checked::Checker>(handle_, label_, where_);
#endif
}

PENTAD_INLINE Communicator::Communicator(int size, int rank, AxisNames axes, std::span<MeshAxisValue const> mesh,
                                         Tuning const& tuning, observe::Ledger& ledger,
                                         std::function<std::vector<int>()> node_of)
    : axes_(axes), mesh_(mesh), ledger_(&ledger), size_(size), rank_(rank), nodes_(size, rank),
      node_of_(std::move(node_of)), dry_tuning_(&tuning) {
    describe();
}

PENTAD_INLINE void Communicator::swap(Communicator& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(axes_, other.axes_);
    std::swap(label_, other.label_);
    std::swap(where_, other.where_);
    std::swap(shares_, other.shares_);
    std::swap(mesh_, other.mesh_);
    std::swap(ledger_, other.ledger_);
    std::swap(size_, other.size_);
    std::swap(rank_, other.rank_);
    std::swap(node_, other.node_);
    std::swap(nodes_, other.nodes_);
    std::swap(node_of_, other.node_of_);
    std::swap(levels_, other.levels_);
    std::swap(tuning_, other.tuning_);
    std::swap(dry_tuning_, other.dry_tuning_);
    std::swap(may_block_, other.may_block_);
#if PENTAD_CHECKED
    std::swap(checker_, other.checker_);
#endif
}

PENTAD_INLINE bool Communicators::split_by_node(std::string_view name) {
    auto const& nodes = along(AxisNames(name)).nodes();
    int const each = nodes.each();
    if (nodes.count() == 1 || each == 0) return false;
    auto const axis = std::find_if(axes_.begin(), axes_.end(), [&](auto const& a) { return a.name == name; });
    if (axis->inner == 1 && pentad::detail::can_split(*axis, each)) axis->inner = each;
    return axis->inner == each;
}

PENTAD_INLINE void Communicators::make_world(MPI_Comm world, int ranks) {
    MPI_Comm copy = MPI_COMM_NULL;
    check(MPI_Comm_dup(world, &copy), "MPI_Comm_dup");
    world_ = Communicator(copy, axes_of_view(axes_), axes_, tuning_, *ledger_);
    if (world_.size() != ranks)
        throw std::invalid_argument("the mesh has " + std::to_string(ranks) + " ranks and the communicator " +
                                    std::to_string(world_.size()));
    check(MPI_Comm_dup(world, &meeting_place_), "MPI_Comm_dup");
    for (auto const axis : axes_of_view(axes_)) (void)along(AxisNames(axis));
}

PENTAD_INLINE Communicator const& Communicators::make(AxisNames const& key) {
    if (is_dry_) {
        int size = 1;
        for (auto const name : key) size *= extent(name);
        return made_.emplace_back(size, static_cast<int>(shard_index(key)), key, axes_, tuning_, *ledger_,
                                  nodes_along(key));
    }
    auto const members = members_along(key);
    meet(members);
    MPI_Group world_group = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm handle = MPI_COMM_NULL;
    check(MPI_Comm_group(world_.handle(), &world_group), "MPI_Comm_group");
    check(MPI_Group_incl(world_group, static_cast<int>(members.size()), members.data(), &group), "MPI_Group_incl");
    check(MPI_Comm_create_group(world_.handle(), group, 0, &handle), "MPI_Comm_create_group");
    MPI_Group_free(&group);
    MPI_Group_free(&world_group);
    return made_.emplace_back(handle, key, axes_, tuning_, *ledger_, &world_);
}

PENTAD_INLINE void Communicators::imagine_world(int rank, int size) {
    std::function<std::vector<int>()> nodes;
    if (node_of_)
        nodes = [this, size] {
            std::vector<int> all;
            for (int i = 0; i < size; ++i) all.push_back(node_of_(i));
            return all;
        };
    world_ = Communicator(size, rank, axes_of_view(axes_), axes_, tuning_, *ledger_, std::move(nodes));
}

PENTAD_INLINE std::function<std::vector<int>()> Communicators::nodes_along(AxisNames const& axes) const {
    if (!node_of_) return {};
    return [this, axes] {
        std::vector<int> nodes;
        std::unordered_map<int, int> number;
        for (int const member : members_along(axes))
            nodes.push_back(number.try_emplace(node_of_(member), static_cast<int>(number.size())).first->second);
        return nodes;
    };
}

PENTAD_INLINE AxisNames Communicators::canonical(AxisNames const& axes) const {
    AxisNames key;
    for (auto const name : axes) {
        int const n = extent(name);
        if (n == 1) continue;
        auto const whole = whole_axis_name(name);
        key.push(extent(whole) == n ? whole : name);
    }
    return key;
}

PENTAD_INLINE void Communicators::meet(std::vector<int> const& members) const {
    std::size_t tag = 0; // several groups with one first member may meet at once
    for (int const member : members) tag = (tag * 31 + static_cast<std::size_t>(member)) % 32749;
    auto const message = [&](bool is_sent, int rank) {
        MPI_Request request = MPI_REQUEST_NULL;
        auto const number = static_cast<int>(tag);
        check(is_sent ? MPI_Isend(nullptr, 0, MPI_BYTE, rank, number, meeting_place_, &request)
                      : MPI_Irecv(nullptr, 0, MPI_BYTE, rank, number, meeting_place_, &request),
              is_sent ? "MPI_Isend" : "MPI_Irecv");
        check(progress().wait(request), "MPI_Wait");
    };
    int const first = members.front();
    if (world_.rank() != first) {
        message(true, first);
        message(false, first);
        return;
    }
    for (int const member : members)
        if (member != first) message(false, member);
    for (int const member : members)
        if (member != first) message(true, member);
}

PENTAD_INLINE Communicator const* Communicators::find(AxisNames const& key) const {
    if (key.empty()) return &self_;
    for (auto const& communicator : made_)
        if (communicator.axes() == key) return &communicator;
    return nullptr;
}

} // namespace pentad::comm
