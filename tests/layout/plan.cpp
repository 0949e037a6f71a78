#include <doctest/doctest.h>

#include <pentad/layout/cost.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/layout/plan.hpp>

#include <array>
#include <string_view>
#include <tuple>
#include <utility>

using namespace pentad;
using namespace pentad::ml;

namespace {

template <class D, class... States>
using L = Layout<f32, D, States...>;
template <class From, class To>
constexpr std::string_view plan = Plan<From, To>::text();
template <class From, class To>
constexpr std::string_view adjoint = AdjointPlan<From, To>::text();
template <class From, class To>
constexpr PlanError error = Plan<From, To>::value.error;

// Every pair of sum layouts along one axis: the table of docs/design.md.
using Whole = Dims<Dim<batch, 8>, Dim<seq, 4>>;
using Shard = L<Dims<Dim<batch, 8, tp>, Dim<seq, 4>>>; // of the first dimension
using Other = L<Dims<Dim<batch, 8>, Dim<seq, 4, tp>>>; // of the second
using Summand = L<Whole, Partial<tp>>;
using Copy = L<Whole, Replicated<tp>>;
using Same = L<Whole>;

static_assert(plan<Shard, Shard> == "nothing" && plan<Summand, Summand> == "nothing" && plan<Copy, Copy> == "nothing" &&
              plan<Same, Same> == "nothing");
static_assert(plan<Shard, Other> == "all_to_all(tp) from batch to seq" &&
              plan<Other, Shard> == "all_to_all(tp) from seq to batch");
static_assert(plan<Shard, Summand> == "zero_pad(tp) of batch" && plan<Other, Summand> == "zero_pad(tp) of seq");
static_assert(plan<Shard, Copy> == "all_gather(tp) of batch" && plan<Other, Copy> == "all_gather(tp) of seq");
static_assert(plan<Shard, Same> == "all_gather(tp) of batch" && plan<Other, Same> == "all_gather(tp) of seq");
static_assert(plan<Summand, Shard> == "reduce_scatter(tp) of batch" &&
              plan<Summand, Other> == "reduce_scatter(tp) of seq");
static_assert(plan<Summand, Copy> == "all_reduce(tp)" && plan<Summand, Same> == "all_reduce(tp)");
static_assert(plan<Copy, Shard> == "slice(tp) of batch" && plan<Same, Other> == "slice(tp) of seq");
static_assert(plan<Copy, Summand> == "keep_first(tp)" && plan<Same, Summand> == "keep_first(tp)");
static_assert(plan<Copy, Same> == "relabel(tp)" && plan<Same, Copy> == "relabel(tp)");

// The gradient's plan: each row of the table that the design promises.
static_assert(adjoint<Shard, Copy> == "reduce_scatter(tp) of batch");
static_assert(adjoint<Shard, Same> == "slice(tp) of batch");
static_assert(adjoint<Summand, Shard> == "all_gather(tp) of batch");
static_assert(adjoint<Summand, Same> == "relabel(tp)"); // nothing is sent
static_assert(adjoint<Summand, Copy> == "all_reduce(tp)");
static_assert(adjoint<Same, Copy> == "all_reduce(tp)");
static_assert(adjoint<Same, Shard> == "all_gather(tp) of batch");
static_assert(adjoint<Shard, Other> == "all_to_all(tp) from seq to batch");
static_assert(adjoint<Copy, Shard> == "zero_pad(tp) of batch"); // nothing is sent: zeros elsewhere

// Several axes: one collective where it can be one; what shrinks the tensor first, what makes it grow last.
static_assert(plan<L<Dims<Dim<batch, 8, dp, cp>>>, L<Dims<Dim<batch, 8>>>> == "all_gather(dp.cp) of batch");
static_assert(plan<L<Dims<Dim<batch, 8>>, Partial<dp, cp, tp>>, L<Dims<Dim<batch, 8>>>> == "all_reduce(dp.cp.tp)");
static_assert(plan<L<Dims<Dim<flat>>, Partial<cp, dp>>, L<Dims<Dim<flat, dynamic, dp, cp>>>> ==
              "reduce_scatter(dp.cp) of flat");
static_assert(plan<L<Dims<Dim<flat>>, Partial<dp, ends<pp>, cp>>, L<Dims<Dim<flat, dynamic, dp, cp>>>> ==
              "reduce_scatter(dp.cp) of flat; all_reduce(ends(pp))");
static_assert(plan<L<Dims<Dim<batch, 8, dp, cp>>>, L<Dims<Dim<batch, 8, dp>>>> == "all_gather(cp) of batch");
static_assert(plan<L<Dims<Dim<seq, 8, cp, tp>>>, L<Dims<Dim<seq, 8, cp>>, Replicated<tp>>> == "all_gather(tp) of seq");
static_assert(adjoint<L<Dims<Dim<seq, 8, cp, tp>>>, L<Dims<Dim<seq, 8, cp>>, Replicated<tp>>> ==
              "reduce_scatter(tp) of seq");
static_assert(plan<L<Dims<Dim<seq, 8, cp>, Dim<hidden, 8>>, Partial<tp>>, L<Dims<Dim<seq, 8>, Dim<hidden, 8, tp>>>> ==
              "reduce_scatter(tp) of hidden; all_gather(cp) of seq");
static_assert(plan<L<Dims<Dim<seq, 8, cp>>, Partial<tp>>, L<Dims<Dim<seq, 8>>>> ==
              "all_reduce(tp); all_gather(cp) of seq");
static_assert(plan<L<Dims<Dim<seq, 8, cp>, Dim<heads, 8, tp>>>, L<Dims<Dim<seq, 8>, Dim<heads, 8, tp, cp>>>> ==
              "all_to_all(cp) from seq to heads"); // the all-to-all of Ulysses
// Several exchanges are one, which sends each element once; so is what an axis-by-axis plan has no order for.
static_assert(plan<L<Dims<Dim<seq, 8, cp, tp>, Dim<heads, 8>>>, L<Dims<Dim<seq, 8>, Dim<heads, 8, tp, cp>>>> ==
              "exchange(cp.tp)");
static_assert(plan<L<Dims<Dim<seq, 8, cp>, Dim<hidden, 8, tp>>>, L<Dims<Dim<seq, 8, tp>, Dim<hidden, 8, cp>>>> ==
              "exchange(cp.tp)");
static_assert(plan<L<Dims<Dim<seq, 8, dp, cp, tp>>>, L<Dims<Dim<seq, 8, dp, tp, cp>>>> == "exchange(cp.tp)");
static_assert(plan<L<Dims<Dim<seq, 8, cp>>, Partial<dp>>, L<Dims<Dim<seq, 8, tp>>>> ==
              "all_reduce(dp); exchange(cp.tp)");
static_assert(plan<L<Dims<Dim<seq, 8, cp>>, Partial<tp>>, L<Dims<Dim<seq, 8, tp, cp>>>> == "exchange(cp.tp)");
static_assert(plan<L<Dims<Dim<seq, 8, cp, tp>>>, L<Dims<Dim<seq, 8>>, Partial<tp>>> == "exchange(cp.tp)");
static_assert(plan<L<Dims<Dim<seq, 8, cp>, Dim<hidden, 8, tp>>>, L<Dims<Dim<seq, 8>, Dim<hidden, 8>>, Partial<tp>>> ==
              "all_gather(cp) of seq; zero_pad(tp) of hidden"); // zeros are not sent
static_assert(plan<L<Dims<Dim<seq, 8, cp>>, Replicated<tp>>, L<Dims<Dim<seq, 8, cp, tp>>, Replicated<dp>>> ==
              "slice(tp) of seq; relabel(dp)");
static_assert(plan<L<Dims<Dim<kv_heads, 8, outer<tp>, inner<tp>>>>,
                   L<Dims<Dim<kv_heads, 8, outer<tp>>>, Replicated<inner<tp>>>> == "all_gather(inner(tp)) of kv_heads");
static_assert(plan<L<Dims<Dim<flat>>, Partial<inner<tp>>>, L<Dims<Dim<flat>>>> == "all_reduce(inner(tp))");

// What is not a sum may be reduced to the value, and nothing else.
static_assert(plan<L<Dims<Dim<token>>, PartialMax<tp>>, L<Dims<Dim<token>>>> == "all_reduce(tp) of partial max");
static_assert(plan<L<Dims<Dim<token>>, PartialLogSumExp<tp>>, L<Dims<Dim<token>>, Replicated<tp>>> ==
              "all_reduce(tp) of partial log-sum-exp");
static_assert(plan<L<Dims<Dim<token>>, PartialMax<tp>, Partial<cp>>, L<Dims<Dim<token>>>> ==
              "all_reduce(cp); all_reduce(tp) of partial max");

// Refused, each for its reason.
static_assert(error<Same, Layout<f64, Whole>> == PlanError::elements_differ);
static_assert(error<Same, L<Dims<Dim<batch, 8>>>> == PlanError::dimensions_differ);
static_assert(error<Same, L<Dims<Dim<seq, 4>, Dim<batch, 8>>>> == PlanError::dimensions_differ);
static_assert(error<Same, L<Dims<Dim<batch, 8>, Dim<seq, 5>>>> == PlanError::extents_differ);
static_assert(error<Same, L<Dims<Dim<batch>, Dim<seq>>>> ==
              PlanError::none); // a dynamic extent is compared at run time
template <class... Axes>
using Flat = L<Dims<Dim<flat, 8, Axes...>>>;
using Log = L<Dims<Dim<token, 8>>, PartialLogSumExp<tp>>;
using Max = L<Dims<Dim<token, 8>>, PartialMax<tp>>;
static_assert(error<Log, L<Dims<Dim<token, 8, tp>>>> == PlanError::partial_reduction &&
              error<Max, Log> == PlanError::partial_reduction);
static_assert(error<Max, L<Dims<Dim<token, 8>>, Partial<tp>>> == PlanError::partial_reduction);
static_assert(error<L<Dims<Dim<token, 8>>>, Max> == PlanError::partial_reduction);
static_assert(error<Max, Max> == PlanError::none && plan<Log, Log> == "nothing");
static_assert(error<Flat<outer<tp>>, Flat<tp>> == PlanError::part_of_axis);
static_assert(error<Flat<ends<pp>>, L<Dims<Dim<flat, 8>>, Partial<pp>>> == PlanError::part_of_axis);
static_assert(plan<Max, Log> == plan_error_texts[static_cast<std::size_t>(PlanError::partial_reduction)]);
static_assert(!Redistributable<Max, Log> && Redistributable<Flat<dp, cp>, Flat<cp>>);

// Every layout of two dimensions over two axes.
template <class... States>
using W = L<Whole, States...>;
template <class... A>
struct On {
    template <class... B>
    using with = L<Dims<Dim<batch, 8, A...>, Dim<seq, 4, B...>>>;
};
template <class A, class B>
using Layouts = std::tuple<
    typename On<A, B>::template with<>, typename On<B, A>::template with<>, typename On<>::template with<A, B>,
    typename On<>::template with<B, A>, typename On<A>::template with<B>, typename On<B>::template with<A>,
    L<Dims<Dim<batch, 8, A>, Dim<seq, 4>>, Partial<B>>, L<Dims<Dim<batch, 8, A>, Dim<seq, 4>>, Replicated<B>>,
    L<Dims<Dim<batch, 8, A>, Dim<seq, 4>>>, L<Dims<Dim<batch, 8, B>, Dim<seq, 4>>, Partial<A>>,
    L<Dims<Dim<batch, 8, B>, Dim<seq, 4>>, Replicated<A>>, L<Dims<Dim<batch, 8, B>, Dim<seq, 4>>>,
    L<Dims<Dim<batch, 8>, Dim<seq, 4, A>>, Partial<B>>, L<Dims<Dim<batch, 8>, Dim<seq, 4, A>>, Replicated<B>>,
    L<Dims<Dim<batch, 8>, Dim<seq, 4, A>>>, L<Dims<Dim<batch, 8>, Dim<seq, 4, B>>, Partial<A>>,
    L<Dims<Dim<batch, 8>, Dim<seq, 4, B>>, Replicated<A>>, L<Dims<Dim<batch, 8>, Dim<seq, 4, B>>>, W<Partial<A, B>>,
    W<Partial<A>, Replicated<B>>, W<Partial<A>>, W<Replicated<A>, Partial<B>>, W<Replicated<A, B>>, W<Replicated<A>>,
    W<Partial<B>>, W<Replicated<B>>, W<>>;
constexpr auto values = []<class... Ls>(std::tuple<Ls...>*) {
    return std::array{std::pair(Ls::value, dual_t<Ls>::value)...};
}(static_cast<Layouts<cp, tp>*>(nullptr));
static_assert(values.size() == 27);

constexpr std::array<std::size_t, 2> extents{8, 4};
constexpr Mesh<Axis<dp>, Axis<tp>> mesh(2, 4);
template <class From, class To>
constexpr double on(std::string_view axis) {
    return cost_of<From, To>(extents, mesh).on(axis);
}
// The tensor has 8 x 4 x 4 = 128 bytes; tp = 4.
static_assert(on<Shard, Copy>("tp") == 96 && on<Other, Same>("tp") == 96);       // 3/4 of the whole
static_assert(on<Summand, Shard>("tp") == 96 && on<Summand, Other>("tp") == 96); // 3/4 of the whole
static_assert(on<Summand, Same>("tp") == 192 && on<Summand, Copy>("tp") == 192); // both
static_assert(on<Shard, Other>("tp") == 24);                                     // 3/4 of a shard
static_assert(on<Same, Shard>("tp") == 0 && on<Copy, Summand>("tp") == 0 && on<Shard, Summand>("tp") == 0 &&
              on<Same, Copy>("tp") == 0);
// Over dp x tp = 8 ranks: an all-reduce of 128 bytes is 2 x 7/8 of it, 32 of them between the groups of tp.
static_assert(on<W<Partial<dp, tp>>, Same>("tp") == 192 && on<W<Partial<dp, tp>>, Same>("dp") == 32);
static_assert(cost_of<W<Partial<dp, tp>>, Same>(extents, mesh).total() == 224);
static_assert(on<L<Dims<Dim<batch, 8, dp, tp>, Dim<seq, 4>>>, Same>("tp") == 96 &&
              on<L<Dims<Dim<batch, 8, dp, tp>, Dim<seq, 4>>>, Same>("dp") == 16);
// A reduce-scatter over tp before a gather over dp: what the gather moves is a quarter.
using Both = L<Dims<Dim<batch, 8, dp>, Dim<seq, 4>>, Partial<tp>>;
static_assert(on<Both, Other>("tp") == 48 && on<Both, Other>("dp") == 16);
static_assert(on<Both, Other>("pp") == 0);

} // namespace

TEST_CASE("every pair of sum layouts over two axes has a plan, and so has its adjoint") {
    for (auto const& [from, dual_from] : values)
        for (auto const& [to, dual_to] : values) {
            CHECK_MESSAGE(make_plan(from, to).valid(), to_string(from), " -> ", to_string(to));
            CHECK(make_plan(dual_to, dual_from).valid());
        }
}
