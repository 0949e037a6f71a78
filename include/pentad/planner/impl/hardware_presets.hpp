// The functions of <pentad/planner/hardware_presets.hpp>.
#pragma once

#include <pentad/planner/hardware_presets.hpp>

#include <pentad/mesh/inline.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace pentad::planner::detail {

/// A node of eight NVIDIA GPUs behind an NVSwitch, and a network adapter for each. Sources that the GPUs share:
/// latencies: what NCCL's cost model takes for a step of a ring with its Simple protocol (NCCL, src/graph/tuning.cc,
///   hwLatencies);
/// network: its tier joins as many devices as have trained one model (Llama 3, section 3.3.1: 16384);
/// bandwidth_efficiency: 235 of 300 GB/s of NVLink that NCCL's all-reduce reaches on eight A100 (S. Bekman, "Machine
///   Learning Engineering", network/README.md), an assumption for later GPUs and for the network;
/// launch_s: an assumption, for an operation that the host starts, such as a norm or a product: a framework that is
///   not fused starts several.
PENTAD_INLINE Hardware gpu_node(std::string name, double peak_f32, double peak_bf16, double memory_bytes,
                                double memory_bandwidth, double nvlink, double network, double product_efficiency,
                                double peak_fp8 = 0) {
    return {.name = std::move(name),
            .devices = 8,
            .devices_per_node = 8,
            .peak_f32 = peak_f32,
            .peak_bf16 = peak_bf16,
            .peak_fp8 = peak_fp8,
            .memory_bytes = memory_bytes,
            .memory_bandwidth = memory_bandwidth,
            .links = {{.devices = 8, .latency_s = 3.4e-6, .bandwidth = nvlink},
                      {.devices = 16384, .latency_s = 14e-6, .bandwidth = network}},
            .product_efficiency = product_efficiency,
            .bandwidth_efficiency = 0.78,
            .launch_s = 10e-6};
}

} // namespace pentad::planner::detail

namespace pentad::planner {

PENTAD_INLINE std::vector<Hardware> const& machines() {
    // Peaks are those of dense products: of f32 without TF32, of bf16 without sparsity. The part of the bf16 peak that
    // large products reach is the best of a search over shapes (S. Bekman, "Machine Learning Engineering",
    // compute/accelerator/README.md, table of maximum achievable matmul FLOPS): A100 271.2 of 312, H100 794.5 of 989
    // TFLOP/s, "H200 is the same".
    static std::vector<Hardware> const list{
        // NVIDIA A100 80 GB SXM datasheet (2021): 19.5 and 312 TFLOP/s, 80 GB at 2039 GB/s, NVLink 600 GB/s both ways.
        // DGX A100 user guide: an adapter of 200 Gbit/s for each GPU.
        detail::gpu_node("a100", 19.5e12, 312e12, 80e9, 2039e9, 300e9, 25e9, 271.2 / 312),
        // NVIDIA H100 SXM datasheet (2023): 67 TFLOP/s, 1979 TFLOP/s with sparsity, which is also
        // what FP8 has without it, 80 GB at 3.35 TB/s, NVLink 900 GB/s
        // both ways. DGX H100 user guide: an adapter of 400 Gbit/s for each GPU.
        detail::gpu_node("h100", 67e12, 989.5e12, 80e9, 3.35e12, 450e9, 50e9, 794.5 / 989, 1979e12),
        // NVIDIA H200 SXM datasheet (2024): as H100, with 141 GB at 4.8 TB/s. DGX H200 user guide: 400 Gbit/s.
        detail::gpu_node("h200", 67e12, 989.5e12, 141e9, 4.8e12, 450e9, 50e9, 794.5 / 989, 1979e12),
        // Zhao et al. 2025, "Insights into DeepSeek-V3", section 4.1: an H100 whose NVLink is cut to 400 GB/s both
        // ways, and an adapter of 400 Gbit/s for each GPU. Its f64 is cut too, to far less than half of f32.
        detail::gpu_node("h800", 67e12, 989.5e12, 80e9, 3.35e12, 200e9, 50e9, 794.5 / 989, 1979e12),
        // bf16 and memory: Amer, Karim et al., "Distributed Hybrid Parallelism for Large Language Models" (378.88
        // TFLOP/s, 60 GB). The rest: Huawei, Atlas 800T A2 training server with Ascend 910B2: 99 TFLOP/s of f32, HBM
        // at 1600 GB/s, eight devices in a full mesh, each with 7 HCCS links of 392 GB/s together (both ways), and a
        // port of 200 Gbit/s. There is no public figure of latencies: they are left out, as is launch_s, of which
        // call_s has
        // its part. All after the links is fitted to that paper's step times of four models and its figures 6 and 7
        // together (tests/train/plan_estimate.cpp).
        {.name = "ascend-910b",
         .devices = 8,
         .devices_per_node = 8,
         .peak_f32 = 99e12,
         .peak_bf16 = 378.88e12,
         .memory_bytes = 60e9,
         .memory_bandwidth = 1.6e12,
         .links = {{.devices = 8, .latency_s = 0, .bandwidth = 196e9, .topology = Topology::mesh},
                   {.devices = 16384, .latency_s = 0, .bandwidth = 25e9}},
         .product_efficiency = 0.967,
         .attention_efficiency = 1,
         .pass_efficiency = 0.465,
         .product_s = 72e-6,
         .pass_s = 47e-6,
         .bandwidth_efficiency = 0.887,
         .call_s = 606e-6,
         .micro_batch_s = 7.6e-3,
         .jitter_s = 77e-6},
        // A core of a server with an AMD EPYC 7763 (AMD datasheet: 64 cores at 2.45 GHz, of two fused multiply-adds of
        // eight f32 a cycle; 204.8 GB/s of memory), bf16 multiplied as f32. Assumptions: 256 GB of memory, ranks that
        // copy with a third of the core's share of its bandwidth, a port of 200 Gbit/s for the node, the latencies of
        // MPI, and the efficiencies of a BLAS and of copies.
        {.name = "cpu",
         .devices = 64,
         .devices_per_node = 64,
         .peak_f32 = 2.45e9 * 32,
         .peak_bf16 = 2.45e9 * 32,
         .memory_bytes = 256e9 / 64,
         .memory_bandwidth = 204.8e9 / 64,
         .links = {{.devices = 64, .latency_s = 1e-6, .bandwidth = 204.8e9 / 64 / 3},
                   {.devices = 16384, .latency_s = 2e-6, .bandwidth = 25e9 / 64}},
         .product_efficiency = 0.8,
         .bandwidth_efficiency = 0.8,
         .launch_s = 0},
    };
    return list;
}

PENTAD_INLINE Hardware with_devices(Hardware hardware, std::int64_t devices) {
    auto const refuse = [&](std::string const& why) {
        throw std::invalid_argument(std::to_string(devices) + " devices of " +
                                    (hardware.name.empty() ? "the hardware" : hardware.name) + ": " + why);
    };
    std::int64_t const node = hardware.devices_per_node;
    if (devices < 1 || devices > 1'000'000'000) refuse("give 1 to 1000000000");
    if (devices > node && devices % node != 0)
        refuse("they do not fill nodes of " + std::to_string(node) + ": give " + std::to_string(devices / node * node) +
               " or " + std::to_string((devices / node + 1) * node));
    if (devices > 1 && hardware.links.empty()) refuse("there is no link between them: give one");
    if (devices > 1 && devices > hardware.links.back().devices) {
        Link& last = hardware.links.back();
        if (last.devices <= node && devices > node) refuse("there is no link between nodes: give one");
        if (last.topology == Topology::mesh)
            refuse("the last link is a mesh of " + std::to_string(last.devices) +
                   ": give a link that joins the meshes");
        last.devices = devices;
    }
    hardware.devices = devices;
    return hardware;
}

} // namespace pentad::planner
