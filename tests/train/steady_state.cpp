// ranks: 1 4 8
//
// A step of a run that has settled allocates no buffer, neither in a memory space of Kokkos nor on the host. No step
// makes a communicator.
#include <doctest/extensions/doctest_mpi.h>

#include <pentad/train/trainer.hpp>

#include <support/on_mesh.hpp>
#include <support/pmpi_counter.hpp>
#include <support/training.hpp>

#if defined(PENTAD_HAVE_ONEDNN)
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#endif

#include <cstdint>
#include <cstdlib>
#include <new>

using namespace support;

#if defined(PENTAD_HAVE_ONEDNN)
namespace {
thread_local bool inside_onednn = false;

/// Calls the library's function of this name; what is allocated meanwhile is the library's.
template <class F, class... Arguments>
auto call_onednn(char const* name, Arguments... arguments) {
    auto* const function = reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
    inside_onednn = true;
    auto const status = function(arguments...);
    inside_onednn = false;
    return status;
}
} // namespace

// These take the place of the library's own, as the profiling interface of MPI does: products on matrix units (AMX)
// allocate inside of oneDNN.
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                     dnnl_exec_arg_t const* arguments) {
    return call_onednn<decltype(dnnl_primitive_execute)>("dnnl_primitive_execute", primitive, stream, count, arguments);
}
dnnl_status_t dnnl_sgemm(char transpose_a, char transpose_b, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha,
                         float const* a, dnnl_dim_t a_stride, float const* b, dnnl_dim_t b_stride, float beta, float* c,
                         dnnl_dim_t c_stride) {
    return call_onednn<decltype(dnnl_sgemm)>("dnnl_sgemm", transpose_a, transpose_b, m, n, k, alpha, a, a_stride, b,
                                             b_stride, beta, c, c_stride);
}
#else
namespace {
constexpr bool inside_onednn = false;
} // namespace
#endif

namespace {

bool counting = false;
std::int64_t host_allocations = 0, kokkos_allocations = 0;

// What Kokkos keeps for a kernel's name is smaller than any buffer.
constexpr std::size_t smallest_buffer = 256;

/// Counts what is asked for outside the calls of the MPI library and oneDNN.
void* allocate(std::size_t bytes, std::size_t alignment) {
    if (counting && bytes >= smallest_buffer && !pmpi::inside_mpi() && !inside_onednn) ++host_allocations;
    void* const memory =
        std::aligned_alloc(alignment, (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

} // namespace

#if defined(__GNUC__) && !defined(__clang__) // inlined, `new` here is the aligned_alloc that `delete` frees
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

/// Times that pools asked for a slab, from Kokkos or in shared memory.
std::int64_t slabs() {
    std::int64_t sum = 0;
    for (auto const& count : observe::counters().memory) sum += count.allocations;
    return sum;
}

/// Six steps; the last two are counted.
template <class Stream>
void nothing_is_allocated(MeshShape const& m, train::RunSettings settings) {
    INFO(m.text());
    // The same window and the same weights in every step: experts get as many tokens as before.
    auto const text = varied_text().substr(0, settings.strategy.seq + 1);
    OnMesh const mesh(m, sizes(settings.model).kv_heads);
    settings.learning_rate = 0;
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, char const*, void const*, std::uint64_t) { ++kokkos_allocations; });
    host_allocations = kokkos_allocations = 0;
    counting = true;
    auto const slabs_before = slabs();
    Training<Stream> training(mesh, settings, text);
    auto& trainer = training.trainer;
    auto const communicators = mesh.context.communicators().count();
    for (std::int64_t step = 1; step <= 4; ++step) trainer.step(step);
    CHECK(host_allocations > 0); // the counters see what there is to see
    CHECK((world_size() > 1 || kokkos_allocations > 0));
    CHECK(slabs() > slabs_before);
    auto const slabs_of_start = slabs();
    host_allocations = kokkos_allocations = 0;
    for (std::int64_t step = 5; step <= 6; ++step) trainer.step(step);
    counting = false;
    Kokkos::Tools::Experimental::set_allocate_data_callback(nullptr);
    CHECK(host_allocations == 0);
    CHECK(kokkos_allocations == 0);
    CHECK(slabs() == slabs_of_start);
    CHECK(mesh.context.communicators().count() == communicators);
}

train::RunSettings run() {
    return {.model = model::decoder({.layers = 2, .hidden = 32, .heads = 4, .kv_heads = 2, .ffn = 64, .vocab = 64}),
            .strategy = {.batch = 16, .micro_batches = 2, .seq = 16},
            .steps = 6,
            .warmup = 0};
}

template <class F>
void on_some_meshes(F&& f) {
    if (world_size() == 1) {
        f(MeshShape{});
        return;
    }
    if (world_size() == 8) {
        f(MeshShape{.dp = 2, .pp = 2, .tp = 2});
        return;
    }
    f(MeshShape{.dp = 2, .tp = 2});
    f(MeshShape{.pp = 2, .cp = 2});
    f(MeshShape{.ep = 2, .tp = 2});
    f(MeshShape{.ep = 2, .cp = 2});
}

} // namespace

TEST_CASE("a dense model") {
    on_some_meshes([](MeshShape const& m) { nothing_is_allocated<InvariantStream<f32>>(m, run()); });
}
TEST_CASE("experts, recomputation, ZeRO-1 and sequence parallelism") {
    auto settings = run();
    change(settings, [&](auto& sizes) { sizes.experts = 4; });
    settings.strategy.recompute = {.kind = model::Recomputation::Kind::full};
    settings.strategy.sharding.stage = 1;
    on_some_meshes([&](MeshShape const& m) { nothing_is_allocated<SequenceStream<bf16>>(m, settings); });
}
TEST_CASE("Muon, which works on whole matrices") {
    auto settings = run();
    change(settings, [&](auto& sizes) { sizes.experts = 4, sizes.moe_every = 2; });
    settings.strategy.optimizer = model::Muon{};
    settings.strategy.sharding.stage = 3;
    on_some_meshes([&](MeshShape const& m) { nothing_is_allocated<InvariantStream<bf16>>(m, settings); });
}
