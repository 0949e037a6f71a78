// What a machine can do, in numbers: each preset says where they come from.
#pragma once

#include <pentad/layout/compact.hpp>
#include <pentad/model/precision.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pentad::planner {

using model::Element;

/// Bytes of an element, and of the accumulators that gradients, optimizer state and sums are kept in.
[[nodiscard]] constexpr double size_of(Element element) {
    return element == Element::f64 ? 8 : element == Element::f32 ? 4 : 2;
}
[[nodiscard]] constexpr double accumulator_size(Element element) { return element == Element::f64 ? 8 : 4; }
/// Bytes of an element that is kept or sent in fewer bits than accumulators; fp8: with its part of a scale.
[[nodiscard]] constexpr double compact_size(Compact compact, Element element) {
    constexpr std::size_t many = std::size_t{1} << 20;
    return static_cast<double>(compact_bytes(compact, many, static_cast<std::size_t>(accumulator_size(element)))) /
           many;
}

/// How the devices of a tier are joined.
enum class Topology {
    switched, ///< a device reaches any group with all of its bandwidth
    mesh,     ///< a link to each other device: a group of n has (n-1)/(devices-1) of the bandwidth, a pair one link
};

/// A tier of the network: the groups of `devices` neighbours that it joins.
struct Link {
    std::int64_t devices = 0;
    double latency_s = 0;
    double bandwidth = 0; ///< bytes/s that a device sends, in one direction, over all of its links of the tier
    Topology topology = Topology::switched;
    /// Latency and bandwidth of messages from rank to rank (rings, pipelines, the rows of experts), if collectives have
    /// others: ranks of a node reduce and gather through its memory. 0: the same.
    double message_latency_s = 0, message_bandwidth = 0;
};

struct Hardware {
    std::string name = {};
    std::int64_t devices = 1;
    std::int64_t devices_per_node = 1;
    double peak_f32 = 0, peak_bf16 = 0; ///< FLOP/s of products of one device; f64 runs at half of f32
    double peak_fp8 = 0;                ///< 0: it has no products in FP8
    double memory_bytes = 0;
    double memory_bandwidth = 0;  ///< bytes/s
    std::vector<Link> links = {}; ///< from the tier of the nearest neighbours to the one that joins all

    // Constants that are fitted to measurements, or measured.
    double product_efficiency = 1;     ///< part of the peak that products of large matrices reach
    double attention_efficiency = 0.7; ///< part of that which a fused attention reaches (Dao 2023, figures 4 to 6)
    double pass_efficiency = 1;        ///< part of the memory's bandwidth that passes over activations reach
    double product_s = 0;              ///< device time that a product, attention or scan takes besides its work
    double pass_s = 0;                 ///< device time that a pass over activations takes besides its work
    double bandwidth_efficiency = 1;   ///< part of the links' bandwidth that collectives reach
    double launch_s = 0;               ///< host time to start an operation; the device idles where these take longer
    /// Host time of the framework for a call: a product, attention or scan with the passes that belong to it, or an
    /// exchange. The same one several times in a row, as of queries, keys and values or round a ring, is one call.
    double call_s = 0;
    /// What a micro-batch takes in a stage besides its layers: data, the loss's bookkeeping, the pipeline's handshakes.
    double micro_batch_s = 0;
    double overlap = 0; ///< part of the gradients' communication that hides behind the backward pass

    /// How far devices share what they compute with: 0: each has its own; 1: what one leaves idle the others get, as
    /// ranks that share cores do. A pipeline's bubble costs so much less.
    double sharing = 0;
    double jitter_s = 0; ///< what two ranks that meet in an exchange wait for each other; more ranks, longer

    [[nodiscard]] double peak(Element element) const {
        return element == Element::bf16 ? peak_bf16 : element == Element::f32 ? peak_f32 : peak_f32 / 2;
    }
};

} // namespace pentad::planner
