// ranks: 1 2 3 4 6
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/context/carry.hpp>
#include <pentad/kernels/chunk_scan.hpp>
#include <pentad/layout/ml.hpp>

#include <formulas/mamba.hpp>
#include <support/layer_check.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace support;
using context::Carrying;

namespace {

constexpr std::size_t sequences = 2, length = 24, all_heads = 4, groups = 2, states = 5, dim = 8;
constexpr i64 chunk = 3; // tokens: six ranks have one and a third each

template <class... More>
using Tokens = Layout<f64, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>, More...>>;
using OfGroups = Tokens<Dim<kv_heads, dynamic, tp>, Dim<state_dim>>;
using OfHeads = Tokens<Dim<heads, dynamic, tp>, Dim<head_dim>>;
using Decays = Tokens<Dim<heads, dynamic, tp>>;
using Positions = Layout<i32, Dims<Dim<batch, dynamic, dp>, Dim<seq, dynamic, cp>>>;
using States = context::HeadStates<f64>;
using Carry = context::Carry<States, Exec>;

/// Random tensors, with decays from about 1 to e^-2 a token.
Arrays inputs() {
    Arrays arrays{{"q", drawn({sequences, length, groups, states}, "q")},
                  {"k", drawn({sequences, length, groups, states}, "k")},
                  {"v", drawn({sequences, length, all_heads, dim}, "v")},
                  {"dy", drawn({sequences, length, all_heads, dim}, "dy")},
                  {"a", drawn({sequences, length, all_heads}, "a")}};
    for (auto& value : arrays["a"].values) value = -0.2 * std::abs(value);
    return arrays;
}

/// First tokens of documents in the two sequences: one in each, or several, of which some begin a rank's tokens and
/// some go on over ranks.
using Documents = std::array<std::vector<std::size_t>, sequences>;
Documents const one_each, packed{{{1, 4, 5, 12, 21}, {8, 18}}};

/// A scan over a sequence that is sharded over cp: this rank's part of everything.
struct ShardedScan {
    OnMesh const& mesh;
    LayerSetup<Exec> setup{.context = mesh.context, .batch = sequences, .seq = length};
    Stretches stretches{setup.partition()};
    Carry carry;
    bool decays;
    Tensor<OfGroups, Exec> q, k, dq, dk;
    Tensor<OfHeads, Exec> v, y, dy, dv;
    Tensor<Decays, Exec> a, da;
    Tensor<Positions, Exec> documents{};
    Carry::Saved saved{};

    ShardedScan(OnMesh const& on, Carrying carrying, bool has_decays, Arrays const& arrays,
                Documents const& begins = one_each)
        : mesh(on), carry(carrying), decays(has_decays), q(of<OfGroups>(arrays, "q")), k(of<OfGroups>(arrays, "k")),
          dq(mesh.context, q.extents()), dk(mesh.context, q.extents()), v(of<OfHeads>(arrays, "v")),
          y(mesh.context, v.extents()), dy(of<OfHeads>(arrays, "dy")), dv(mesh.context, v.extents()),
          a(of<Decays>(arrays, "a")), da(mesh.context, a.extents()) {
        if (begins == one_each) return;
        documents = {mesh.context, {sequences, length}};
        std::vector<i32> host;
        for (std::size_t const place : places(documents, Order::contiguous)) {
            std::size_t const t = place % length;
            std::size_t first = 0;
            for (std::size_t const begin : begins[place / length])
                if (begin <= t) first = begin;
            host.push_back(static_cast<i32>(t - first));
        }
        documents.set(host.data());
    }

    template <class L>
    Tensor<L, Exec> of(Arrays const& arrays, char const* name) const {
        return shard<L>(mesh, arrays.at(name), Order::contiguous);
    }
    [[nodiscard]] Tensor<States, Exec> new_states() const {
        auto const ranks = static_cast<std::size_t>(mesh.communicators.extent("cp"));
        return {mesh.context, {sequences, ranks, all_heads, states, dim}};
    }
    [[nodiscard]] Tensor<Carry::Decay, Exec> new_decays() const {
        if (!decays && documents.empty()) return {};
        return {mesh.context, {sequences, new_states().extents()[1], all_heads}};
    }
    /// This rank's, without the dimension of stretches.
    static View<f64, 4, Exec> own(Tensor<States, Exec> const& tensor) {
        if (tensor.empty()) return {};
        auto const& local = tensor.local();
        return View<f64, 4, Exec>(tensor.data(), local[0], local[2], local[3], local[4]);
    }
    static View<f64, 2, Exec> own(Tensor<Carry::Decay, Exec> const& tensor) {
        if (tensor.empty()) return {};
        return View<f64, 2, Exec>(tensor.data(), tensor.local()[0], tensor.local()[2]);
    }
    [[nodiscard]] View<i32, 2, Exec> positions() const {
        return documents.empty() ? View<i32, 2, Exec>() : documents.view();
    }
    [[nodiscard]] View<f64, 3, Exec> log_decay() const { return decays ? a.view() : View<f64, 3, Exec>(); }
    [[nodiscard]] View<f64, 3, Exec> d_log_decay() const { return decays ? da.view() : View<f64, 3, Exec>(); }
    [[nodiscard]] auto workspace() const {
        kernels::ScanSizes const sizes{static_cast<i64>(v.local()[0]),
                                       static_cast<i64>(v.local()[1]),
                                       static_cast<i64>(v.local()[2]),
                                       static_cast<i64>(q.local()[2]),
                                       states,
                                       dim,
                                       chunk};
        return Kokkos::View<f64*, Exec>("workspace",
                                        kernels::chunk_scan_backward_workspace<f64>(mesh.context.exec(), sizes));
    }

    Tensor<States, Exec> forward() {
        auto const& exec = mesh.context.exec();
        auto const memory = workspace();
        auto const left = new_states();
        auto const total = new_decays();
        kernels::chunk_scan_state(exec, k.view(), v.view(), log_decay(), chunk, own(left), own(total), memory,
                                  positions());
        auto const initial = carry.forward(left, total, stretches, {}, saved);
        kernels::chunk_scan_forward(exec, q.view(), k.view(), v.view(), log_decay(), own(initial), chunk, y.view(),
                                    View<f64, 4, Exec>(), memory, positions());
        return initial;
    }
    /// The gradient of the state behind the tokens first, and then one backward pass that takes it.
    void backward(Tensor<States, Exec> const& initial) {
        auto const& exec = mesh.context.exec();
        auto const memory = workspace();
        auto const d_initial = new_states(), before = new_states();
        kernels::chunk_scan_initial_gradient(exec, q.view(), log_decay(), dy.view(), chunk, own(d_initial), memory,
                                             positions());
        auto const behind = carry.backward(d_initial, stretches, {}, saved).state;
        kernels::chunk_scan_backward(exec, q.view(), k.view(), v.view(), log_decay(), own(initial), dy.view(),
                                     own(behind), chunk, dq.view(), dk.view(), dv.view(), d_log_decay(), own(before),
                                     memory, positions());
    }
    /// As a tape would: each of the three steps of the forward pass backward by itself.
    void backward_by_steps(Tensor<States, Exec> const& initial) {
        auto const& exec = mesh.context.exec();
        auto const memory = workspace();
        auto const d_initial = new_states();
        View<f64, 4, Exec> const none;
        kernels::chunk_scan_backward(exec, q.view(), k.view(), v.view(), log_decay(), own(initial), dy.view(), none,
                                     chunk, dq.view(), dk.view(), dv.view(), d_log_decay(), own(d_initial), memory,
                                     positions());
        auto const gradients = carry.backward(d_initial, stretches, {}, saved);
        Tensor<OfHeads, Exec> const no_dy(mesh.context, dy.extents()), more_dv(mesh.context, dv.extents());
        Tensor<OfGroups, Exec> const more_dq(mesh.context, dq.extents()), more_dk(mesh.context, dk.extents());
        Tensor<Decays, Exec> const more_da(mesh.context, da.extents());
        no_dy.clear();
        kernels::chunk_scan_backward(exec, q.view(), k.view(), v.view(), log_decay(), none, no_dy.view(),
                                     own(gradients.state), chunk, more_dq.view(), more_dk.view(), more_dv.view(),
                                     decays ? more_da.view() : View<f64, 3, Exec>(), none, memory, positions());
        kernels::add<f64>(exec, more_dk.flat(), dk.flat());
        kernels::add<f64>(exec, more_dv.flat(), dv.flat());
        if (!decays) return;
        kernels::add<f64>(exec, more_da.flat(), da.flat());
        auto const each = da.view();
        auto const total = own(gradients.decay);
        Kokkos::parallel_for(
            Kokkos::MDRangePolicy<Exec, Kokkos::Rank<3>>(exec, {0, 0, 0},
                                                         {each.extent_int(0), each.extent_int(1), each.extent_int(2)}),
            KOKKOS_LAMBDA(int b, int t, int h) { each(b, t, h) += total(b, h); });
        exec.fence();
    }
};

struct Result {
    std::map<std::string, Whole> tensors;
};

Result scan(OnMesh const& mesh, Carrying carrying, bool decays, bool by_steps, Arrays const& arrays,
            Documents const& begins) {
    ShardedScan scan(mesh, carrying, decays, arrays, begins);
    auto const initial = scan.forward();
    if (by_steps)
        scan.backward_by_steps(initial);
    else
        scan.backward(initial);
    Result result{{{"y", gather(scan.y, Order::contiguous)},
                   {"dq", gather(scan.dq, Order::contiguous)},
                   {"dk", gather(scan.dk, Order::contiguous)},
                   {"dv", gather(scan.dv, Order::contiguous)}}};
    if (decays) result.tensors["da"] = gather(scan.da, Order::contiguous);
    return result;
}

/// On any mesh what one rank computes, which the test of the kernel holds against the recurrence.
void check_scan(Documents const& begins) {
    Arrays const arrays = inputs();
    for (bool const decays : {true, false}) {
        Result const alone = scan(Alone(), Carrying::passed, decays, false, arrays, begins);
        for (auto const& m : meshes([](MeshShape const& m) { return m.pp * m.ep == 1 && m.dp <= 2 && m.tp <= 2; }))
            for (auto const carrying : {Carrying::passed, Carrying::gathered})
                for (bool const by_steps : {false, true}) {
                    INFO(m.text(), carrying == Carrying::passed ? " passed" : " gathered", decays ? "" : " no decay",
                         by_steps ? " by steps" : "");
                    Result const found = scan(OnMesh(m), carrying, decays, by_steps, arrays, begins);
                    for (auto const& [name, whole] : alone.tensors)
                        CHECK_MESSAGE(distance(found.tensors.at(name), whole) < 1e-12, name);
                }
    }
}

} // namespace

TEST_CASE("a scan over cp, with its state carried from rank to rank, is the scan of the whole sequence") {
    check_scan(one_each);
}

TEST_CASE("packed documents take nothing from those before them, whichever ranks of cp they are on") {
    check_scan(packed);
}

TEST_CASE("states that are passed and states that are gathered are the same, bit for bit") {
    OnMesh const mesh({.cp = world_size()});
    Arrays const arrays = inputs();
    for (auto const& begins : {one_each, packed}) {
        ShardedScan passed(mesh, Carrying::passed, true, arrays, begins),
            gathered(mesh, Carrying::gathered, true, arrays, begins);
        auto const one = gather(passed.forward(), Order::contiguous),
                   other = gather(gathered.forward(), Order::contiguous);
        CHECK(one.values == other.values);
        if (world_size() > 1) CHECK(one.scale() != 1); // they are not all zeros
    }
}

TEST_CASE("what carrying states sends is its closed form") {
    int const n = world_size();
    OnMesh const mesh({.cp = n});
    planner::MambaSizes const of{.batch = sequences,
                                 .seq = length,
                                 .heads = all_heads,
                                 .head_dim = dim,
                                 .groups = groups,
                                 .state = states,
                                 .chunk = 1};
    for (auto const carrying : {Carrying::passed, Carrying::gathered}) {
        ShardedScan scan(mesh, carrying, true, inputs());
        observe::ledger().clear();
        (void)scan.forward();
        double const forward = observe::ledger().bytes("cp");
        observe::ledger().clear();
        (void)scan.carry.backward(scan.new_states(), scan.stretches, {}, scan.saved);
        planner::SentBytes const found{forward, observe::ledger().bytes("cp")};
        if (carrying == Carrying::gathered) {
            CHECK(found == planner::mamba_gathered_state_bytes(of, {.cp = n}, sizeof(f64)));
        } else { // the last rank has nobody to send to, backward the first
            auto const each = planner::mamba_passed_state_bytes(of, {.cp = n}, sizeof(f64));
            bool const is_last = world_rank() + 1 == n, is_first = world_rank() == 0;
            CHECK(found == planner::SentBytes{is_last ? 0 : each.forward, is_first ? 0 : each.backward});
        }
    }
}

TEST_CASE("carrying states can be run dry, and sends the same") {
    int const n = world_size();
    auto const sent = [&](auto const& context, Carrying carrying) {
        LayerSetup<Exec> const setup{.context = context, .batch = sequences, .seq = length};
        Stretches const stretches(setup.partition());
        Carry const carry(carrying);
        Carry::Saved saved;
        auto const ranks = static_cast<std::size_t>(n);
        Tensor<States, Exec> const left(context, {sequences, ranks, all_heads, states, dim});
        Tensor<Carry::Decay, Exec> const decay(context, {sequences, ranks, all_heads});
        left.clear();
        decay.clear();
        observe::ledger().clear();
        (void)carry.forward(left, decay, stretches, {}, saved);
        (void)carry.backward(left, stretches, {}, saved);
        return observe::ledger().bytes("cp");
    };
    for (auto const carrying : {Carrying::passed, Carrying::gathered}) {
        OnMesh const mesh({.cp = n});
        double const bytes = sent(mesh.context, carrying);
        observe::DryRun const run;
        comm::Communicators communicators(OnMesh::mesh({.cp = n}, 0), world_rank(), n);
        Context<Exec> const context(communicators);
        CHECK(sent(context, carrying) == bytes);
    }
}

TEST_CASE("a state that does not outlive its rank's tokens is the rank before's, as a short convolution's tail is") {
    using Tail = Layout<f32, Dims<Dim<batch, dynamic, dp>, Dim<stretch, dynamic, cp>, Dim<ffn, dynamic, tp>>>;
    using Rows = context::Carry<Tail, Exec>;
    static_assert(std::is_same_v<Rows::Decay, Tail>);
    auto const n = static_cast<std::size_t>(world_size());
    OnMesh const mesh({.cp = world_size()});
    LayerSetup<Exec> const setup{.context = mesh.context, .batch = sequences, .seq = length};
    Whole const tails = drawn({sequences, n, 6}, "tails"), slopes = drawn({sequences, n, 6}, "slopes");
    Whole decays = tails;
    for (auto& value : decays.values) value = -std::numeric_limits<double>::infinity();
    for (auto const carrying : {Carrying::passed, Carrying::gathered}) {
        Rows const carry(carrying);
        Stretches const stretches(setup.partition());
        Rows::Saved saved;
        auto const initial = gather(carry.forward(shard<Tail>(mesh, tails, Order::contiguous),
                                                  shard<Tail>(mesh, decays, Order::contiguous), stretches, {}, saved),
                                    Order::contiguous);
        auto const gradients = carry.backward(shard<Tail>(mesh, slopes, Order::contiguous), stretches, {}, saved);
        auto const d_tails = gather(gradients.state, Order::contiguous),
                   d_decays = gather(gradients.decay, Order::contiguous);
        for (std::size_t b = 0; b < sequences; ++b)
            for (std::size_t r = 0; r < n; ++r)
                for (std::size_t i = 0; i < 6; ++i) {
                    auto const at = [&](std::size_t rank) { return (b * n + rank) * 6 + i; };
                    auto const f32_of = [](double value) { return static_cast<double>(static_cast<f32>(value)); };
                    CHECK(initial.values[at(r)] == (r == 0 ? 0 : f32_of(tails.values[at(r - 1)])));
                    CHECK(d_tails.values[at(r)] == (r + 1 == n ? 0 : f32_of(slopes.values[at(r + 1)])));
                    CHECK(d_decays.values[at(r)] == 0);
                }
    }
}
