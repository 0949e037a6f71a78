#include <pentad/kernels/chunk_scan.hpp>

#include "slice.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

using namespace pentad;
using arrays::Exec;
using arrays::Slice;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// How fast states decay: `none` is no decay at all, `uneven` from nothing to all within a chunk.
enum class Decay { none, zero, slow, medium, uneven, strong };

struct Shape {
    i64 batch, seq, heads, groups, state, head_dim, chunk;
    Decay decay = Decay::medium;
    bool has_initial = true, has_final = true; ///< and the final state's gradient
    std::vector<i64> begins{}; ///< first tokens of documents, the first of them at most 0; empty: no documents
    [[nodiscard]] kernels::ScanSizes sizes() const { return {batch, seq, heads, groups, state, head_dim, chunk}; }
    /// The first token of token `t`'s document. Those of each further batch entry begin a token later.
    [[nodiscard]] i64 document(i64 b, i64 t) const {
        i64 result = begins.empty() ? -1 : begins[0];
        for (i64 const begin : begins)
            if (begin > 0 && begin + b <= t) result = begin + b;
        return result;
    }
    [[nodiscard]] bool is_first(i64 b, i64 t) const { return document(b, t) == t; }
};

/// Log decays [batch, seq, heads] as every second of a wider buffer, of which the rest is NaN.
template <class Acc>
class Decays {
  public:
    Decays(Shape const& s, int seed) : buffer_("decays", s.batch, s.seq, 2 * s.heads + 1), kind_(s.decay) {
        host_ = Kokkos::create_mirror_view(buffer_);
        arrays::Random random(static_cast<std::uint64_t>(seed));
        for (std::size_t i = 0; i < host_.size(); ++i) {
            bool const inside = i % host_.extent(2) % 2 == 1;
            double const drawn = 0.5 * random() - 0.5;
            double const value = kind_ == Decay::slow     ? 0.02 * drawn
                                 : kind_ == Decay::medium ? drawn
                                 : kind_ == Decay::uneven ? (random() > 0.5 ? 200 * drawn : 0)
                                 : kind_ == Decay::strong ? -50
                                                          : 0;
            host_.data()[i] = inside ? static_cast<Acc>(value) : std::numeric_limits<Acc>::quiet_NaN();
        }
        Kokkos::deep_copy(buffer_, host_);
    }
    auto view() const {
        using View = Kokkos::View<Acc***, Kokkos::LayoutStride, Exec, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
        std::size_t const row = buffer_.extent(2);
        Kokkos::LayoutStride const layout(buffer_.extent(0), buffer_.extent(1) * row, buffer_.extent(1), row, row / 2,
                                          2);
        return View(kind_ == Decay::none ? nullptr : buffer_.data() + 1, layout);
    }
    auto tokens(i64 begin, i64 end) const {
        return Kokkos::subview(view(), Kokkos::ALL, std::pair(begin, end), Kokkos::ALL);
    }
    void fetch() { Kokkos::deep_copy(host_, buffer_); }
    void set(i64 b, i64 t, i64 h, double value) {
        host_(b, t, 2 * h + 1) = static_cast<Acc>(value);
        Kokkos::deep_copy(buffer_, host_);
    }
    double operator()(i64 b, i64 t, i64 h) const {
        return kind_ == Decay::none ? 0.0 : static_cast<double>(host_(b, t, 2 * h + 1));
    }
    bool rest_untouched() const {
        for (std::size_t i = 0; i < host_.size(); ++i)
            if (i % host_.extent(2) % 2 == 0 && !std::isnan(host_.data()[i])) return false;
        return true;
    }

  private:
    Kokkos::View<Acc***, Kokkos::LayoutRight, Exec> buffer_;
    typename decltype(buffer_)::host_mirror_type host_;
    Decay kind_;
};

/// States [batch, heads, state, head_dim].
template <class Acc>
struct States {
    Kokkos::View<Acc****, Kokkos::LayoutRight, Exec> view;
    States(Shape const& s, int seed, bool given = true) {
        if (!given) return;
        view = decltype(view)("states", s.batch, s.heads, s.state, s.head_dim);
        auto const host = Kokkos::create_mirror_view(view);
        arrays::Random random(static_cast<std::uint64_t>(seed));
        for (std::size_t i = 0; i < host.size(); ++i) host.data()[i] = static_cast<Acc>(random());
        Kokkos::deep_copy(view, host);
    }
    [[nodiscard]] std::vector<double> values() const {
        auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
        return {host.data(), host.data() + host.size()};
    }
    void set(std::size_t i, double value) const {
        auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
        host.data()[i] = static_cast<Acc>(value);
        Kokkos::deep_copy(view, host);
    }
};

/// Positions [batch, seq] of tokens [begin, end) in their documents.
Kokkos::View<i32**, Kokkos::LayoutRight, Exec> positions(Shape const& s, i64 begin, i64 end) {
    Kokkos::View<i32**, Kokkos::LayoutRight, Exec> view;
    if (s.begins.empty()) return view;
    view = decltype(view)("positions", static_cast<std::size_t>(s.batch), static_cast<std::size_t>(end - begin));
    auto const host = Kokkos::create_mirror_view(view);
    for (i64 b = 0; b < s.batch; ++b)
        for (i64 t = begin; t < end; ++t) host(b, t - begin) = static_cast<i32>(t - s.document(b, t));
    Kokkos::deep_copy(view, host);
    return view;
}

double distance(std::vector<double> const& found, std::vector<double> const& expected) {
    double worst = found.size() == expected.size() ? 0 : infinity;
    for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
        double const error = std::abs(found[i] - expected[i]);
        worst = std::isnan(error) ? infinity : std::max(worst, error);
    }
    return worst;
}
double largest(std::vector<double> const& values) {
    double result = 0;
    for (double const value : values) result = std::max(result, std::abs(value));
    return result;
}

/// The interface, or one of the implementations behind it that a machine may not choose by itself.
enum class Path {
    automatic,
    device,
    by_group,
    by_chunk,
    numbers ///< on the host, products of numbers also where the CPU multiplies pairs of bf16
};

/// Everything that a scan reads and writes.
template <class T>
struct Scan {
    using Acc = accumulator_t<T>;
    explicit Scan(Shape const& shape, int seed = 0)
        : s(shape), q(s.batch, s.seq, s.groups, s.state, seed + 1), k(s.batch, s.seq, s.groups, s.state, seed + 2),
          v(s.batch, s.seq, s.heads, s.head_dim, seed + 3), dy(s.batch, s.seq, s.heads, s.head_dim, seed + 4),
          y(s.batch, s.seq, s.heads, s.head_dim, seed + 5), dq(s.batch, s.seq, s.groups, s.state, seed + 6),
          dk(s.batch, s.seq, s.groups, s.state, seed + 7), dv(s.batch, s.seq, s.heads, s.head_dim, seed + 8),
          a(s, seed + 9), da(s, seed + 10), initial(s, seed + 11, s.has_initial), d_final(s, seed + 12, s.has_final),
          final_state(s, seed + 13, s.has_final), d_initial(s, seed + 14, s.has_initial),
          documents(positions(s, 0, s.seq)) {}

    /// Uninitialised, which here is NaN.
    auto workspace(std::size_t size) const {
        Kokkos::View<Acc*, Exec> const memory("workspace", size);
        Kokkos::deep_copy(memory, std::numeric_limits<Acc>::quiet_NaN());
        return memory;
    }
    void forward(Path path = Path::automatic) {
        namespace detail = kernels::detail;
        detail::ScanResult<T> const result{initial.view.data(), detail::heads_of("scan", "y", y.view()),
                                           final_state.view.data(), nullptr};
        if (path == Path::numbers) {
            if constexpr (kernels::runs_on_host<Exec>) {
                i64 const size = detail::padded_state<Acc>(sizes());
                auto const memory = workspace(static_cast<std::size_t>(s.batch * s.heads * size));
                detail::scan_forward_host<Acc>(exec, problem(), result,
                                               detail::ScanStates<Acc>{memory.data(), 1, size});
                exec.fence();
            }
        } else if (path != Path::device) {
            kernels::chunk_scan_forward(exec, q.view(), k.view(), v.view(), a.view(), initial.view, s.chunk, y.view(),
                                        final_state.view, workspace(kernels::chunk_scan_workspace<T>(exec, s.sizes())),
                                        documents);
        } else {
            auto const memory = workspace(detail::device_forward_workspace(sizes()));
            detail::scan_forward_device(exec, problem(), result, memory.data());
            exec.fence();
        }
        exec.fence();
        y.fetch();
    }
    void backward(Path path = Path::automatic) {
        namespace detail = kernels::detail;
        if (path == Path::automatic) {
            kernels::chunk_scan_backward(
                exec, q.view(), k.view(), v.view(), a.view(), initial.view, dy.view(), d_final.view, s.chunk, dq.view(),
                dk.view(), dv.view(), da.view(), d_initial.view,
                workspace(kernels::chunk_scan_backward_workspace<T>(exec, s.sizes())), documents);
        } else {
            detail::ScanGradient<T> const gradient{detail::constant<T>(detail::heads_of("scan", "dy", dy.view())),
                                                   initial.view.data(),
                                                   d_final.view.data(),
                                                   d_initial.view.data(),
                                                   detail::heads_of("scan", "dq", dq.view()),
                                                   detail::heads_of("scan", "dk", dk.view()),
                                                   detail::heads_of("scan", "dv", dv.view()),
                                                   detail::of_tokens<Acc>("da", da.view(), sizes())};
            if (path == Path::device) {
                auto const memory = workspace(detail::device_backward_workspace(sizes()));
                detail::scan_backward_device(exec, problem(), gradient, memory.data());
                exec.fence();
            } else if constexpr (kernels::runs_on_host<Exec>) {
                auto const memory =
                    workspace(static_cast<std::size_t>(detail::host_states<T>(sizes(), 2 * sizes().chunks())));
                if (path == Path::numbers)
                    detail::scan_backward_host<Acc>(exec, problem(), gradient, memory.data(), false);
                else
                    detail::scan_backward_host<detail::operand_t<T>>(exec, problem(), gradient, memory.data(),
                                                                     path == Path::by_chunk);
                exec.fence();
            }
        }
        exec.fence();
        dq.fetch();
        dk.fetch();
        dv.fetch();
        da.fetch();
    }
    [[nodiscard]] kernels::ScanSizes sizes() const { return kernels::detail::checked(s.sizes()); }
    auto problem() const {
        return kernels::detail::scan_problem<T>(sizes(), q.view(), k.view(), v.view(), a.view(), documents);
    }
    /// What the state before a token is multiplied with.
    [[nodiscard]] double decay(i64 b, i64 t, i64 h) const { return s.is_first(b, t) ? 0 : std::exp(a(b, t, h)); }

    Exec exec;
    Shape s;
    Slice<T> q, k, v, dy, y;
    Slice<Acc> dq, dk, dv;
    Decays<Acc> a, da;
    States<Acc> initial, d_final, final_state, d_initial;
    Kokkos::View<i32**, Kokkos::LayoutRight, Exec> documents;
};

/// The recurrence, token by token, and its adjoint, in f64. Documents begin from zero.
struct Reference {
    std::vector<double> y, final_state, dq, dk, dv, da, d_initial;
};
template <class T>
Reference recurrence(Scan<T> const& scan) {
    Shape const& s = scan.s;
    Reference r;
    i64 const per_state = s.state * s.head_dim;
    r.dq.assign(s.batch * s.seq * s.groups * s.state, 0);
    r.dk = r.dq;
    r.y.assign(s.batch * s.seq * s.heads * s.head_dim, 0);
    r.dv = r.y;
    r.da.assign(s.batch * s.seq * s.heads, 0);
    auto const initial = scan.initial.values(), d_final = scan.d_final.values();
    for (i64 b = 0; b < s.batch; ++b)
        for (i64 h = 0; h < s.heads; ++h) {
            i64 const g = h / (s.heads / s.groups), at = (b * s.heads + h) * per_state;
            std::vector<std::vector<double>> states(s.seq + 1, std::vector<double>(per_state, 0));
            if (!initial.empty()) std::copy_n(initial.begin() + at, per_state, states[0].begin());
            // Of a token, read once for all elements of the state.
            std::vector<double> q(s.state), k(s.state), v(s.head_dim), dy(s.head_dim);
            double decay = 0;
            auto const read = [&](i64 t) {
                decay = scan.decay(b, t, h);
                for (i64 n = 0; n < s.state; ++n) q[n] = scan.q(b, t, g, n), k[n] = scan.k(b, t, g, n);
                for (i64 d = 0; d < s.head_dim; ++d) v[d] = scan.v(b, t, h, d), dy[d] = scan.dy(b, t, h, d);
            };
            for (i64 t = 0; t < s.seq; ++t) {
                read(t);
                double *const before = states[t].data(), *const after = states[t + 1].data(),
                              *const y = r.y.data() + ((b * s.seq + t) * s.heads + h) * s.head_dim;
                for (i64 n = 0; n < s.state; ++n)
                    for (i64 d = 0; d < s.head_dim; ++d) {
                        double const now = decay * before[n * s.head_dim + d] + k[n] * v[d];
                        after[n * s.head_dim + d] = now;
                        y[d] += q[n] * now;
                    }
            }
            r.final_state.insert(r.final_state.end(), states[s.seq].begin(), states[s.seq].end());
            std::vector<double> slope(per_state, 0);
            if (!d_final.empty()) std::copy_n(d_final.begin() + at, per_state, slope.begin());
            for (i64 t = s.seq; t-- > 0;) {
                read(t);
                double *const before = states[t].data(), *const after = states[t + 1].data(),
                              *const dq = r.dq.data() + ((b * s.seq + t) * s.groups + g) * s.state,
                              *const dk = r.dk.data() + ((b * s.seq + t) * s.groups + g) * s.state,
                              *const dv = r.dv.data() + ((b * s.seq + t) * s.heads + h) * s.head_dim;
                double da = 0;
                for (i64 n = 0; n < s.state; ++n)
                    for (i64 d = 0; d < s.head_dim; ++d) {
                        i64 const i = n * s.head_dim + d;
                        slope[i] += q[n] * dy[d];
                        dq[n] += after[i] * dy[d];
                        dk[n] += slope[i] * v[d];
                        dv[d] += slope[i] * k[n];
                        da += slope[i] * decay * before[i];
                        slope[i] *= decay;
                    }
                r.da[(b * s.seq + t) * s.heads + h] += da;
            }
            r.d_initial.insert(r.d_initial.end(), slope.begin(), slope.end());
        }
    return r;
}

/// The outputs as attention without softmax: each pair of tokens of a document with the decay between them.
template <class T>
std::vector<double> quadratic_form(Scan<T> const& scan) {
    Shape const& s = scan.s;
    std::vector<double> y(s.batch * s.seq * s.heads * s.head_dim, 0);
    auto const initial = scan.initial.values();
    for (i64 b = 0; b < s.batch; ++b)
        for (i64 h = 0; h < s.heads; ++h)
            for (i64 i = 0; i < s.seq; ++i) {
                i64 const g = h / (s.heads / s.groups), to = ((b * s.seq + i) * s.heads + h) * s.head_dim;
                double log_decay = 0;
                i64 const begin = s.document(b, i);
                for (i64 j = i; j >= std::max<i64>(begin, 0); log_decay += scan.a(b, j--, h)) {
                    double score = 0;
                    for (i64 n = 0; n < s.state; ++n) score += scan.q(b, i, g, n) * scan.k(b, j, g, n);
                    double const weight = std::exp(log_decay) * score;
                    for (i64 d = 0; d < s.head_dim; ++d) y[to + d] += weight * scan.v(b, j, h, d);
                }
                if (initial.empty() || begin >= 0) continue;
                double const left = std::exp(log_decay);
                for (i64 n = 0; n < s.state; ++n)
                    for (i64 d = 0; d < s.head_dim; ++d)
                        y[to + d] +=
                            left * scan.q(b, i, g, n) * initial[((b * s.heads + h) * s.state + n) * s.head_dim + d];
            }
    return y;
}

template <class Acc>
double distance(Decays<Acc> const& found, Shape const& s, std::vector<double> const& expected) {
    double worst = 0;
    std::size_t at = 0;
    for (i64 b = 0; b < s.batch; ++b)
        for (i64 t = 0; t < s.seq; ++t)
            for (i64 h = 0; h < s.heads; ++h) {
                double const error = std::abs(found(b, t, h) - expected[at++]);
                worst = std::isnan(error) ? infinity : std::max(worst, error);
            }
    return worst;
}

template <class T>
constexpr double tolerance = std::is_same_v<T, f64>   ? 1e-12
                             : std::is_same_v<T, f32> ? 1e-5
                                                      : 1e-2;

/// What is in accumulators is as exact as what products take.
template <class T>
double tolerance_of_sums(Path path) {
    using Element = typename kernels::detail::Operand<kernels::detail::operand_t<T>>::Element;
    bool const is_on_host = kernels::runs_on_host<Exec> && path != Path::device;
    return is_on_host && path != Path::numbers ? tolerance<Element> : tolerance<accumulator_t<T>>;
}

/// Forward and backward against the recurrence.
template <class T>
void check(Shape const& s, Path path = Path::automatic) {
    CAPTURE(s.batch);
    CAPTURE(s.seq);
    CAPTURE(s.heads);
    CAPTURE(s.groups);
    CAPTURE(s.state);
    CAPTURE(s.head_dim);
    CAPTURE(s.chunk);
    CAPTURE(static_cast<int>(s.decay));
    CAPTURE(s.has_initial);
    CAPTURE(s.has_final);
    CAPTURE(s.begins.size());
    Scan<T> scan(s);
    auto const expected = recurrence(scan);
    scan.forward(path);
    auto const within = [](double error, std::vector<double> const& values, double part) {
        return error <= part * std::max(1.0, largest(values));
    };
    double const exact = tolerance_of_sums<T>(path);
    CHECK(within(distance(scan.y, expected.y), expected.y, tolerance<T>));
    if (s.has_final)
        CHECK(within(distance(scan.final_state.values(), expected.final_state), expected.final_state, exact));
    scan.backward(path);
    CHECK(within(distance(scan.dq, expected.dq), expected.dq, exact));
    CHECK(within(distance(scan.dk, expected.dk), expected.dk, exact));
    CHECK(within(distance(scan.dv, expected.dv), expected.dv, exact));
    if (s.decay != Decay::none) CHECK(within(distance(scan.da, s, expected.da), expected.da, exact));
    if (s.has_initial) CHECK(within(distance(scan.d_initial.values(), expected.d_initial), expected.d_initial, exact));
    for (auto const* tensor : {&scan.dq, &scan.dk, &scan.dv}) CHECK(tensor->rest_untouched());
    CHECK(scan.y.rest_untouched());
    CHECK(scan.da.rest_untouched());
    for (i64 b = 0; b < s.batch && s.decay != Decay::none; ++b)
        for (i64 t = 0; t < s.seq; ++t)
            for (i64 h = 0; h < s.heads; ++h)
                if (s.is_first(b, t)) CHECK(scan.da(b, t, h) == 0);
}

/// Documents that begin at chunks' starts and ends and in the middle, of one token and of many chunks.
template <class T>
void check_documents(Path path = Path::automatic) {
    for (auto const decay : {Decay::none, Decay::zero, Decay::slow, Decay::medium, Decay::uneven, Decay::strong})
        for (i64 const chunk : {1, 13, 16, 100})
            for (i64 const first : {-7, 0}) { // the first began before the sequence, so that the initial state counts
                check<T>({2, 100, 4, 2, 8, 8, chunk, decay, true, true, {first, 5, 6, 15, 16, 31, 33, 48}}, path);
                check<T>({1, 100, 3, 3, 20, 9, chunk, decay, first == 0, first != 0, {first, 52, 99}}, path);
            }
    for (auto const& begins : {std::vector<i64>{-1000}, {0}, {-1, 1, 2, 3}, {0, 199}, {-5, 64, 128, 192}})
        check<T>({2, 200, 2, 1, 16, 16, 64, Decay::medium, true, true, begins}, path);
    check<T>({1, 270, 9, 1, 32, 16, 256, Decay::medium, true, true, {-3, 7, 130, 255, 256}}, path);
    check<T>({1, 150, 2, 1, 128, 64, 64, Decay::slow, true, true, {-3, 40, 64, 100}}, path);
}

template <class T>
void check_shapes(Path path = Path::automatic) {
    for (auto const decay : {Decay::none, Decay::zero, Decay::slow, Decay::medium, Decay::uneven, Decay::strong}) {
        for (bool const given : {false, true}) {
            check<T>({2, 40, 4, 2, 8, 8, 16, decay, given, given}, path);
            check<T>({1, 130, 2, 1, 16, 24, 64, decay, given, !given}, path);
        }
        check<T>({1, 100, 3, 3, 20, 9, 100, decay}, path); // one chunk, odd widths
        check<T>({1, 61, 6, 1, 5, 16, 13, decay}, path);   // chunks that are no whole vectors
    }
    for (i64 const seq : {1, 2, 15, 16, 17, 63, 65, 200}) check<T>({2, seq, 2, 1, 16, 16, 64}, path);
    check<T>({1, 70, 4, 4, 64, 64, 1}, path);    // chunks of a token: the recurrence itself
    check<T>({1, 20, 2, 2, 16, 16, 1000}, path); // a chunk longer than the sequence
    check<T>({1, 270, 9, 1, 32, 16, 256}, path); // more heads than a thread takes at once
    check<T>({1, 70, 2, 1, 128, 64, 64}, path);
    check<T>({1, 70, 2, 1, 32, 128, 64}, path);
}

} // namespace

TEST_CASE_TEMPLATE("the chunked scan is the recurrence, and its gradient", T, f64, f32, bf16) { check_shapes<T>(); }

TEST_CASE_TEMPLATE("the device kernels of the scan compute the same", T, f64, f32, bf16) {
    check_shapes<T>(Path::device);
}

TEST_CASE_TEMPLATE("in packed documents the scan is the recurrence of each", T, f64, f32, bf16) {
    check_documents<T>();
    check_documents<T>(Path::device);
}

#if !defined(KOKKOS_ENABLE_CUDA) && !defined(KOKKOS_ENABLE_HIP) && !defined(KOKKOS_ENABLE_SYCL)
TEST_CASE_TEMPLATE("the host's two divisions of the scan's backward pass compute the same", T, f64, f32, bf16) {
    for (auto const path : {Path::by_group, Path::by_chunk}) {
        check_shapes<T>(path);
        check_documents<T>(path);
    }
}

TEST_CASE("a scan of bf16 as numbers, where the CPU multiplies no pairs, computes the same") {
    check_shapes<bf16>(Path::numbers);
    check_documents<bf16>(Path::numbers);
}
#endif

TEST_CASE("the chunked scan is the quadratic form") {
    for (auto const decay : {Decay::none, Decay::medium, Decay::uneven})
        for (i64 const chunk : {1, 16, 50, 64, 200})
            for (auto const path : {Path::automatic, Path::device}) {
                for (auto const& begins : {std::vector<i64>{}, {-1, 16, 17, 70, 128}}) {
                    Scan<f64> scan({2, 150, 4, 2, 16, 24, chunk, decay, true, true, begins});
                    scan.forward(path);
                    auto const expected = quadratic_form(scan);
                    CHECK(distance(scan.y, expected) <= 1e-12 * largest(expected));
                }
            }
}

TEST_CASE_TEMPLATE("states that decay at once leave each token to itself", T, f32, f64) {
    for (auto const path : {Path::automatic, Path::device}) {
        Scan<T> scan({1, 130, 2, 1, 16, 16, 64, Decay::strong});
        scan.forward(path);
        double worst = 0;
        for (i64 t = 1; t < scan.s.seq; ++t)
            for (i64 h = 0; h < scan.s.heads; ++h) {
                double score = 0;
                for (i64 n = 0; n < scan.s.state; ++n) score += scan.q(0, t, 0, n) * scan.k(0, t, 0, n);
                for (i64 d = 0; d < scan.s.head_dim; ++d)
                    worst = std::max(worst, std::abs(scan.y(0, t, h, d) - score * scan.v(0, t, h, d)));
            }
        CHECK(worst <= tolerance<T>);
        scan.backward(path);
        for (i64 t = 0; t < scan.s.seq; ++t) CHECK(std::abs(scan.da(0, t, 0)) <= 1e-19);
    }
}

namespace {

/// Runs both, and compares the numbers of sequences of 130 tokens. @param same_at what else is to hold of a token
template <class SameAt>
void check_same_bits(Path path, Scan<f32>& without, Scan<f32>& with, SameAt const& same_at) {
    for (auto* scan : {&without, &with}) {
        scan->forward(path);
        scan->backward(path);
    }
    CHECK(without.final_state.values() == with.final_state.values());
    CHECK(without.d_initial.values() == with.d_initial.values());
    bool same = true;
    for (i64 t = 0; t < 130; ++t)
        for (i64 d = 0; d < 16; ++d)
            same = same && without.y(0, t, 3, d) == with.y(0, t, 3, d) &&
                   without.dv(0, t, 3, d) == with.dv(0, t, 3, d) && without.dq(0, t, 1, d) == with.dq(0, t, 1, d) &&
                   without.dk(0, t, 1, d) == with.dk(0, t, 1, d) && same_at(t);
    CHECK(same);
}

} // namespace

TEST_CASE("a decay of one and no decay are the same, bit for bit") {
    for (auto const path : {Path::automatic, Path::device}) {
        Scan<f32> without({1, 130, 4, 2, 16, 16, 64, Decay::none}), with({1, 130, 4, 2, 16, 16, 64, Decay::zero});
        check_same_bits(path, without, with, [](i64) { return true; });
    }
}

TEST_CASE("one document that began before the sequence and no documents are the same, bit for bit") {
    for (auto const path : {Path::automatic, Path::device}) {
        Scan<f32> without({1, 130, 4, 2, 16, 16, 64}),
            with({1, 130, 4, 2, 16, 16, 64, Decay::medium, true, true, {-1}});
        check_same_bits(path, without, with, [&](i64 t) { return without.da(0, t, 3) == with.da(0, t, 3); });
    }
}

TEST_CASE("what is in a document changes no bit of another's outputs and gradients") {
    Shape const s{1, 130, 4, 2, 16, 16, 64, Decay::medium, true, true, {-1, 40, 90}};
    for (auto const path : {Path::automatic, Path::device}) {
        Scan<f32> one(s), other(s);
        for (i64 t = 0; t < s.seq; ++t) // of the first and the last document
            for (i64 d = 0; d < 16 && (t < 40 || t >= 90); ++d) {
                other.v.set(0, t, 3, d, 2e9 * other.v(0, t, 3, d));
                other.dy.set(0, t, 3, d, -3e9 * other.dy(0, t, 3, d));
                other.k.set(0, t, 1, d, 1e9 * other.k(0, t, 1, d));
            }
        for (auto* scan : {&one, &other}) {
            scan->forward(path);
            scan->backward(path);
        }
        bool same = true, differs = true;
        for (i64 t = 40; t < 90; ++t)
            for (i64 d = 0; d < 16; ++d)
                same = same && one.y(0, t, 3, d) == other.y(0, t, 3, d) && one.dv(0, t, 3, d) == other.dv(0, t, 3, d) &&
                       one.dq(0, t, 1, d) == other.dq(0, t, 1, d) && one.dk(0, t, 1, d) == other.dk(0, t, 1, d) &&
                       one.da(0, t, 3) == other.da(0, t, 3);
        for (i64 d = 0; d < 16; ++d) differs = differs && one.y(0, 39, 3, d) != other.y(0, 39, 3, d);
        CHECK(same);
        CHECK(differs);
    }
}

namespace {

/// The state from zero with its total decay, and the gradient of the initial state where nobody uses the final one.
template <class T>
void check_states_alone(Path path, std::vector<i64> const& begins) {
    using Acc = accumulator_t<T>;
    namespace detail = kernels::detail;
    for (auto const decay : {Decay::none, Decay::slow, Decay::medium, Decay::strong}) {
        Shape const s{2, 100, 12, 2, 20, 24, 32, decay, false, false, begins};
        Scan<T> scan(s);
        States<Acc> const state(s, 20), d_initial(s, 21);
        Kokkos::View<Acc**, Kokkos::LayoutRight, Exec> const total("total", s.batch, s.heads);
        auto const sizes = scan.sizes();
        if (path == Path::automatic) {
            auto const memory = scan.workspace(kernels::chunk_scan_workspace<T>(scan.exec, s.sizes()));
            kernels::chunk_scan_state(scan.exec, scan.k.view(), scan.v.view(), scan.a.view(), s.chunk, state.view,
                                      total, memory, scan.documents);
            kernels::chunk_scan_initial_gradient(scan.exec, scan.q.view(), scan.a.view(), scan.dy.view(), s.chunk,
                                                 d_initial.view, memory, scan.documents);
            scan.exec.fence();
        } else {
            auto const memory = scan.workspace(detail::device_forward_workspace(sizes));
            detail::scan_forward_device(scan.exec, scan.problem(),
                                        detail::ScanResult<T>{nullptr, {}, state.view.data(), total.data()},
                                        memory.data());
            detail::ScanGradient<T> gradient{};
            gradient.dy = detail::constant<T>(detail::heads_of("scan", "dy", scan.dy.view()));
            gradient.d_initial = d_initial.view.data();
            detail::scan_initial_gradient_device(scan.exec, scan.problem(), gradient, memory.data());
            scan.exec.fence();
        }
        auto const expected = recurrence(scan);
        double const part = tolerance_of_sums<T>(path);
        CHECK(distance(state.values(), expected.final_state) <= part * largest(expected.final_state));
        CHECK(distance(d_initial.values(), expected.d_initial) <= part * largest(expected.d_initial));
        auto const totals = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), total);
        for (i64 b = 0; b < s.batch; ++b)
            for (i64 h = 0; h < s.heads; ++h) {
                double sum = 0;
                for (i64 t = 0; t < s.seq; ++t) sum += scan.a(b, t, h);
                if (s.document(b, s.seq - 1) >= 0)
                    CHECK(static_cast<double>(totals(b, h)) == -infinity);
                else
                    CHECK(std::abs(static_cast<double>(totals(b, h)) - sum) <= tolerance<Acc> * std::abs(sum));
            }
    }
}

} // namespace

TEST_CASE_TEMPLATE("the state alone is that of the scan from zero, and likewise the initial state's gradient", T, f64,
                   f32, bf16) {
    for (auto const path : {Path::automatic, Path::device})
        for (auto const& begins : {std::vector<i64>{}, {-1}, {0}, {-1, 64}, {-3, 7, 64, 80}, {-1, 98}})
            check_states_alone<T>(path, begins);
}

namespace {

void check_two_parts(std::vector<i64> const& begins) {
    Shape const s{2, 150, 4, 2, 16, 24, 32, Decay::medium, true, true, begins};
    i64 const cut = 70; // in the middle of a chunk of the whole
    Scan<f64> whole(s), parts(s);
    whole.forward();
    whole.backward();
    States<f64> const between(s, 30), d_between(s, 31);
    auto const memory = parts.workspace(kernels::chunk_scan_backward_workspace<f64>(parts.exec, s.sizes()));
    auto const at = [](auto const& slice, i64 begin, i64 end) { return slice.keys(begin, end); };
    auto const forward = [&](i64 begin, i64 end, auto const& initial, auto const& final_state) {
        kernels::chunk_scan_forward(parts.exec, at(parts.q, begin, end), at(parts.k, begin, end),
                                    at(parts.v, begin, end), parts.a.tokens(begin, end), initial.view, s.chunk,
                                    at(parts.y, begin, end), final_state.view, memory, positions(s, begin, end));
    };
    auto const backward = [&](i64 begin, i64 end, auto const& initial, auto const& d_final, auto const& d_initial) {
        kernels::chunk_scan_backward(parts.exec, at(parts.q, begin, end), at(parts.k, begin, end),
                                     at(parts.v, begin, end), parts.a.tokens(begin, end), initial.view,
                                     at(parts.dy, begin, end), d_final.view, s.chunk, at(parts.dq, begin, end),
                                     at(parts.dk, begin, end), at(parts.dv, begin, end), parts.da.tokens(begin, end),
                                     d_initial.view, memory, positions(s, begin, end));
        parts.exec.fence();
    };
    forward(0, cut, parts.initial, between);
    forward(cut, s.seq, between, parts.final_state);
    backward(cut, s.seq, between, parts.d_final, d_between);
    backward(0, cut, parts.initial, d_between, parts.d_initial);
    parts.exec.fence();
    auto const expected = recurrence(whole);
    for (auto* scan : {&whole, &parts}) {
        for (auto* tensor : {&scan->y, &scan->dq, &scan->dk, &scan->dv}) tensor->fetch();
        scan->da.fetch();
        CHECK(distance(scan->y, expected.y) <= 1e-12 * largest(expected.y));
        CHECK(distance(scan->final_state.values(), expected.final_state) <= 1e-12 * largest(expected.final_state));
        CHECK(distance(scan->dq, expected.dq) <= 1e-12 * largest(expected.dq));
        CHECK(distance(scan->dk, expected.dk) <= 1e-12 * largest(expected.dk));
        CHECK(distance(scan->dv, expected.dv) <= 1e-12 * largest(expected.dv));
        CHECK(distance(scan->da, s, expected.da) <= 1e-12 * largest(expected.da));
        CHECK(distance(scan->d_initial.values(), expected.d_initial) <= 1e-12 * largest(expected.d_initial));
    }
}

} // namespace

TEST_CASE("two parts of a sequence, with the state carried from one to the other, are the whole") {
    for (auto const& begins : {std::vector<i64>{}, {0, 30, 65, 100}, {-1, 66}, {-1, 70}, {-9, 71, 140}})
        check_two_parts(begins);
}

namespace {

void check_finite_differences(std::vector<i64> const& begins) {
    Shape const s{1, 11, 4, 2, 3, 5, 4, Decay::medium, true, true, begins};
    Scan<f64> scan(s);
    scan.forward();
    scan.backward();
    auto const loss = [&] {
        scan.forward();
        double sum = 0;
        for (i64 t = 0; t < s.seq; ++t)
            for (i64 h = 0; h < s.heads; ++h)
                for (i64 d = 0; d < s.head_dim; ++d) sum += scan.y(0, t, h, d) * scan.dy(0, t, h, d);
        auto const state = scan.final_state.values(), slope = scan.d_final.values();
        for (std::size_t i = 0; i < state.size(); ++i) sum += state[i] * slope[i];
        return sum;
    };
    double const step = 1e-5;
    auto const check_number = [&](double value, double gradient, auto const& set) {
        set(value + step);
        double const above = loss();
        set(value - step);
        double const below = loss();
        set(value);
        CHECK(std::abs((above - below) / (2 * step) - gradient) <= 1e-8);
    };
    auto const check_input = [&](Slice<f64>& input, Slice<f64> const& gradient) {
        for (i64 t = 0; t < s.seq; ++t)
            for (i64 h = 0; h < input.extent(2); ++h)
                for (i64 d = 0; d < input.extent(3); ++d)
                    check_number(input(0, t, h, d), gradient(0, t, h, d),
                                 [&](double value) { input.set(0, t, h, d, value); });
    };
    check_input(scan.q, scan.dq);
    check_input(scan.k, scan.dk);
    check_input(scan.v, scan.dv);
    for (i64 t = 0; t < s.seq; ++t)
        for (i64 h = 0; h < s.heads; ++h)
            check_number(scan.a(0, t, h), scan.da(0, t, h), [&](double value) { scan.a.set(0, t, h, value); });
    auto const initial = scan.initial.values(), d_initial = scan.d_initial.values();
    for (std::size_t i = 0; i < initial.size(); ++i)
        check_number(initial[i], d_initial[i], [&](double value) { scan.initial.set(i, value); });
}

} // namespace

TEST_CASE("the gradients of the scan are the limits of finite differences") {
    for (auto const& begins : {std::vector<i64>{}, {-1, 3, 4, 9}, {0, 6}}) check_finite_differences(begins);
}

TEST_CASE("the same scan gives the same bits") {
    Shape const s{1, 200, 8, 1, 64, 64, 64};
    Scan<f32> first(s), second(s);
    for (auto* scan : {&first, &second}) {
        scan->forward();
        scan->backward();
    }
    bool same = first.final_state.values() == second.final_state.values() &&
                first.d_initial.values() == second.d_initial.values();
    for (i64 t = 0; t < s.seq; ++t)
        for (i64 d = 0; d < s.head_dim; ++d) {
            same =
                same && first.dq(0, t, 0, d) == second.dq(0, t, 0, d) && first.dk(0, t, 0, d) == second.dk(0, t, 0, d);
            for (i64 h = 0; h < s.heads; ++h)
                same = same && first.y(0, t, h, d) == second.y(0, t, h, d) &&
                       first.dv(0, t, h, d) == second.dv(0, t, h, d) && first.da(0, t, h) == second.da(0, t, h);
        }
    CHECK(same);
}

namespace {
int allocations = 0;
void count_allocation(Kokkos_Profiling_SpaceHandle, char const*, void const*, std::uint64_t) { ++allocations; }
} // namespace

TEST_CASE("the scan allocates nothing once it is warm") {
    Scan<f32> scan({2, 300, 4, 2, 128, 64, 128});
    auto const memory = scan.workspace(kernels::chunk_scan_backward_workspace<f32>(scan.exec, scan.s.sizes()));
    auto const run = [&] {
        kernels::chunk_scan_forward(scan.exec, scan.q.view(), scan.k.view(), scan.v.view(), scan.a.view(),
                                    scan.initial.view, scan.s.chunk, scan.y.view(), scan.final_state.view, memory);
        kernels::chunk_scan_backward(scan.exec, scan.q.view(), scan.k.view(), scan.v.view(), scan.a.view(),
                                     scan.initial.view, scan.dy.view(), scan.d_final.view, scan.s.chunk, scan.dq.view(),
                                     scan.dk.view(), scan.dv.view(), scan.da.view(), scan.d_initial.view, memory);
        scan.exec.fence();
    };
    run();
    allocations = 0;
    Kokkos::Tools::Experimental::set_allocate_data_callback(count_allocation);
    run();
    int const while_running = allocations;
    Kokkos::View<f32*, Exec> const counted("counted", 1);
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    CHECK(while_running == 0);
    CHECK(allocations == 1);
}

TEST_CASE("the scan names the operand that does not fit") {
    Shape const s{1, 4, 6, 2, 8, 8, 4};
    Scan<f32> scan(s);
    auto const message = [&](auto const& k, auto const& v, i64 chunk, std::size_t missing) -> std::string {
        try {
            auto const memory = scan.workspace(kernels::chunk_scan_workspace<f32>(scan.exec, s.sizes()) - missing);
            kernels::chunk_scan_forward(scan.exec, scan.q.view(), k.view(), v.view(), scan.a.view(), scan.initial.view,
                                        chunk, scan.y.view(), scan.final_state.view, memory);
        } catch (std::invalid_argument const& error) {
            return error.what();
        }
        return "";
    };
    Slice<f32> const k(1, 4, 2, 7, 1), v(1, 4, 5, 8, 2);
    CHECK(message(scan.k, scan.v, 4, 0).empty());
    CHECK(message(k, scan.v, 4, 0).find("k[1, 4, 2, 7] must be [1, 4, 2, 8]") != std::string::npos);
    CHECK(message(scan.k, v, 4, 0).find("5 heads are not a multiple of 2 groups") != std::string::npos);
    CHECK(message(scan.k, scan.v, 0, 0).find("in chunks of 0") != std::string::npos);
    CHECK(message(scan.k, scan.v, 4, 1).find("it must have") != std::string::npos);
    CHECK_THROWS_WITH(kernels::detail::checked({1, 5000, 2, 1, 8, 8, 4097}),
                      "chunk_scan: chunks of 4097 tokens; they have up to 4096");
    CHECK(kernels::detail::checked({1, 50, 2, 1, 8, 8, 4097}).chunk == 50);
    scan.documents = decltype(scan.documents)("positions", 1, 5);
    CHECK_THROWS_WITH(scan.forward(), "chunk_scan: positions[1, 5] must be [1, 4] to go with the other operands");
}

TEST_CASE("a dry run records the scan's operations, and nothing is computed") {
    Shape const s{2, 100, 4, 2, 16, 8, 32, Decay::medium, false, false};
    Scan<f32> scan(s);
    std::vector<observe::Work> work;
    {
        observe::DryRun run;
        scan.forward();
        scan.backward();
        work = run.work();
    }
    REQUIRE(work.size() == 2);
    double const pairs = 2 * (3 * (32 * 33 / 2) + 4 * 5 / 2), tokens = 2 * 100;
    double const scores = 2 * pairs * 2 * 16, mixed = 2 * pairs * 4 * 8, states = 2 * tokens * 4 * 16 * 8;
    CHECK(work[0].kind == observe::WorkKind::scan);
    CHECK(work[0].flops == scores + mixed + 2 * states);
    CHECK(work[1].flops == 3 * scores + 2 * mixed + 5 * states);
    CHECK(work[0].bytes == 4 * (2 * tokens * 2 * 16 + 2 * tokens * 4 * 8 + tokens * 4));
    CHECK(std::abs(scan.dq(0, 0, 0, 0) - Scan<f32>(s).dq(0, 0, 0, 0)) == 0);
}
