// What tests on meshes share: the meshes that the ranks of a run can form, whole arrays and their shards, comparisons.
#pragma once

#include <pentad/layout/ml.hpp>
#include <pentad/layout/partition.hpp>
#include <pentad/model/mesh.hpp>
#include <pentad/tensor/redistribute.hpp>
#include <pentad/tensor/tensor.hpp>

#include <support/world.hpp>

#include <Kokkos_Core.hpp>
#include <doctest/doctest.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace support {

using namespace pentad;
using namespace pentad::ml;
using Exec = Kokkos::DefaultExecutionSpace;

struct MeshShape {
    int dp = 1, pp = 1, ep = 1, cp = 1, tp = 1;
    bool inside_out = false;                       ///< dp innermost in rank space, instead of tp
    std::optional<model::ExpertMesh> experts = {}; ///< instead of ep

    [[nodiscard]] int ranks() const { return dp * pp * ep * cp * tp; }
    [[nodiscard]] std::string text() const {
        std::string result;
        auto const add = [&](char const* axis, int extent) {
            if (extent > 1) result += axis + ("=" + std::to_string(extent)) + " ";
        };
        add("dp", dp), add("pp", pp), add("ep", ep), add("cp", cp), add("tp", tp);
        if (experts) add("experts on ep", experts->ep), add("etp", experts->etp);
        return result.empty() ? "one rank" : result + (inside_out ? "(inside out)" : "");
    }
};

/// The meshes of all ranks of this run that `fits` says yes to, every second one with its axes in the opposite order.
template <class Fits>
std::vector<MeshShape> meshes(Fits&& fits) {
    std::vector<MeshShape> found;
    int const n = world_size();
    MeshShape m;
    for (m.dp = 1; m.dp <= n; ++m.dp)
        for (m.pp = 1; m.pp <= n; ++m.pp)
            for (m.ep = 1; m.ep <= n; ++m.ep)
                for (m.cp = 1; m.cp <= n; ++m.cp)
                    for (m.tp = 1; m.tp <= n; ++m.tp)
                        if (m.ranks() == n && fits(m)) {
                            found.push_back(m);
                            m.inside_out = !m.inside_out;
                        }
    return found;
}

/// The same meshes with every way to fold the experts' axes over them that `fits_experts` says yes to.
template <class Fits, class FitsExperts>
std::vector<MeshShape> foldings(Fits&& fits, FitsExperts&& fits_experts) {
    std::vector<MeshShape> found;
    for (auto m : meshes([&](MeshShape const& mesh) { return mesh.ep == 1 && mesh.pp == 1 && fits(mesh); }))
        for (int ep = 1; ep <= m.ranks(); ++ep)
            for (int etp = 1; etp <= m.ranks() / ep; ++etp) {
                m.experts = {ep, etp};
                if (m.ranks() % (ep * etp) == 0 && fits_experts(*m.experts)) found.push_back(m);
            }
    return found;
}

/// A mesh over ranks, with what tensors on it need. Where tp exceeds `kv_heads` it is split.
struct OnMesh {
    MeshShape shape;
    comm::Communicators communicators;
    Context<Exec> context{communicators};

    explicit OnMesh(MeshShape m, std::size_t kv_heads = 0, MPI_Comm ranks = MPI_COMM_WORLD)
        : OnMesh(m, mesh(m, static_cast<int>(kv_heads)), ranks) {}
    OnMesh(MeshShape m, model::ModelMesh const& mesh, MPI_Comm ranks = MPI_COMM_WORLD,
           observe::Ledger& ledger = observe::ledger())
        : shape(m), communicators(ranks, mesh, ledger) {}

    /// @param inner_cp the extent of inner(cp)
    static model::ModelMesh mesh(MeshShape const& m, int kv_heads, int inner_cp = 1) {
        model::RankMesh const usual(m.dp, m.pp, m.ep, m.cp, m.tp);
        auto const ordered = m.inside_out ? usual.ordered<tp, cp, ep, pp, dp>() : usual;
        auto const views =
            m.experts ? model::with_experts(ordered.merged<dp, ep>(), *m.experts) : model::with_experts(ordered);
        return views.split<tp>(kv_heads == 0 ? 1 : std::max(1, m.tp / kv_heads)).split<cp>(inner_cp);
    }
};

/// Only this rank.
struct Alone : OnMesh {
    Alone() : OnMesh({}, 0, MPI_COMM_SELF) {}
};

/// A whole tensor, row-major.
struct Whole {
    std::vector<std::size_t> extents;
    std::vector<double> values;

    /// The magnitude of the largest element; 1 where all are zero.
    [[nodiscard]] double scale() const {
        double largest = 0;
        for (double const value : values) largest = std::max(largest, std::abs(value));
        return largest > 0 ? largest : 1;
    }
};

inline double dot(Whole const& a, Whole const& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.values.size(); ++i) sum += a.values[i] * b.values[i];
    return sum;
}

/// The largest difference; NaN is infinitely far.
inline double worst(std::vector<double> const& found, std::vector<double> const& expected) {
    double largest = found.size() == expected.size() ? 0 : std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
        double const difference = std::abs(found[i] - expected[i]);
        largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
    }
    return largest;
}
/// The same, relative to the largest element of `expected`.
inline double distance(Whole const& found, Whole const& expected) {
    return worst(found.values, expected.values) / expected.scale();
}

/// How the sequence is dealt to cp.
struct Dealing {
    Order order = Order::contiguous;
    ContextStrategy strategy = ContextStrategy::ring;
    std::vector<std::uint32_t> pieces{}; ///< dealt by this list; none: in the order

    Dealing(Order o, ContextStrategy s = ContextStrategy::ring,
            std::vector<std::uint32_t> list = {}) // NOLINT: an order alone
        : order(o), strategy(s), pieces(std::move(list)) {}
    [[nodiscard]] DealtSequence of(comm::Communicators const& on, std::size_t extent) const {
        auto const dealt =
            DealtSequence::of(order, strategy, extent, static_cast<std::size_t>(on.extent(outer<cp>::name)),
                              static_cast<std::size_t>(on.extent(inner<cp>::name)));
        auto const shards = dealt.shards().shards();
        return pieces.empty() || shards == 1 ? dealt : dealt.with({extent, shards, pieces});
    }
};

/// The index in the whole tensor of each element of this rank's shard. `order` is how the sequence is dealt to cp; a
/// sequence that is not sharded over cp lies in the order in which it was gathered.
template <class L>
std::vector<std::size_t> places(Tensor<L, Exec> const& tensor, Dealing const& order) {
    auto const& communicators = tensor.context().communicators();
    auto const shards = static_cast<std::size_t>(communicators.extent("cp"));
    std::vector<std::size_t> result(tensor.size(), 0);
    for (std::size_t d = 0, after = tensor.size(); d < L::rank; ++d) {
        std::size_t const local = tensor.local()[d], global = tensor.extents()[d];
        after /= std::max<std::size_t>(local, 1);
        std::size_t const first = communicators.shard_index(L::value.dimensions[d].axes) * local;
        std::optional<DealtSequence> dealt;
        if (L::value.dimensions[d].name == seq::name && shards > 1) dealt = order.of(communicators, global);
        for (std::size_t i = 0; i < result.size(); ++i) {
            std::size_t at = first + i / after % local;
            if (dealt) at = dealt->global_index(at / dealt->local_extent(), at % dealt->local_extent());
            result[i] = result[i] * global + at;
        }
    }
    return result;
}

/// What this rank contributes to a value that is partial: unequal shares whose sum is 1.
template <class L>
double share(Tensor<L, Exec> const& tensor) {
    auto const& communicators = tensor.context().communicators();
    double n = 1;
    for (auto const axis : L::value.partial) n *= communicators.extent(axis);
    return 2 * (static_cast<double>(communicators.shard_index(L::value.partial)) + 1) / (n * (n + 1));
}

template <class T>
double as_double(T value) {
    return static_cast<double>(static_cast<accumulator_t<T>>(value));
}

template <class L>
auto on_host(Tensor<L, Exec> const& tensor) {
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), tensor.array_flat());
}

/// This rank's shard of `whole`. Rows beyond those of `whole` are padding: zeros.
template <class L>
void fill(Tensor<L, Exec> const& tensor, Whole const& whole, Dealing const& order) {
    using T = typename L::element;
    auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), tensor.array_flat());
    auto const index = places(tensor, order);
    double const mine = share(tensor);
    for (std::size_t i = 0; i < index.size(); ++i)
        host(i) =
            T(static_cast<accumulator_t<T>>(index[i] < whole.values.size() ? mine * whole.values[index[i]] : 0.0));
    Kokkos::deep_copy(tensor.array_flat(), host);
}
template <class L>
Tensor<L, Exec> shard(OnMesh const& mesh, Whole const& whole, Dealing const& order) {
    typename Tensor<L, Exec>::extents_type extents{};
    std::copy_n(whole.extents.begin(), L::rank, extents.begin());
    Tensor<L, Exec> const tensor(mesh.context, extents);
    fill(tensor, whole, order);
    return tensor;
}

/// All of a tensor, on every rank. Collective.
template <class L>
Whole gather(Tensor<L, Exec> const& tensor, Dealing const& order) {
    auto const gathered = redistribute<whole_t<L>>(tensor);
    auto const index = places(gathered, order);
    auto const host = on_host(gathered);
    Whole whole{{tensor.extents().begin(), tensor.extents().end()}, std::vector<double>(index.size())};
    for (std::size_t i = 0; i < index.size(); ++i) whole.values[index[i]] = as_double(host(i));
    return whole;
}

/// How far this rank's shard is from that of `expected`, relative to the largest element of `expected`. Rows beyond
/// those of `expected` are padding, and zero. A partial tensor is reduced first.
template <class L>
double distance(Tensor<L, Exec> const& tensor, Whole const& expected, Dealing const& order) {
    if constexpr (is_partial<L>) {
        return distance(redistribute<invariant_t<L>>(tensor), expected, order);
    } else {
        auto const index = places(tensor, order);
        auto const host = on_host(tensor);
        std::vector<double> mine, wanted;
        for (std::size_t i = 0; i < index.size(); ++i) {
            mine.push_back(as_double(host(i)));
            wanted.push_back(index[i] < expected.values.size() ? expected.values[index[i]] : 0.0);
        }
        return worst(mine, wanted) / expected.scale();
    }
}

} // namespace support
