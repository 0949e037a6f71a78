// The functions of <pentad/io/hardware_file.hpp>.
#pragma once

#include <pentad/io/hardware_file.hpp>

#include <pentad/io/atomic_file.hpp>
#include <pentad/io/file.hpp>
#include <pentad/io/json.hpp>
#include <pentad/mesh/inline.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <stdexcept>

namespace pentad::io::detail {

constexpr std::int64_t most_devices = 1'000'000'000;

/// A key with a number, and where it goes: above 0, or 0 where it may be, and at most `most`.
template <class Object>
struct NumberKey {
    std::string_view name;
    using Member = double Object::*; // nvcc puts parentheses round it otherwise
    Member member;
    double most;
    bool may_be_zero = false;
    bool is_optional = false;
};

using planner::Hardware;
using planner::Link;

constexpr std::array<NumberKey<Hardware>, 3> peak_keys{{{"bf16", &Hardware::peak_bf16, 1e18},
                                                        {"f32", &Hardware::peak_f32, 1e18},
                                                        {"fp8", &Hardware::peak_fp8, 1e18, true, true}}};
constexpr std::array<NumberKey<Hardware>, 2> memory_keys{
    {{"memory_bytes", &Hardware::memory_bytes, 1e15}, {"memory_bandwidth", &Hardware::memory_bandwidth, 1e15}}};
constexpr std::array<NumberKey<Hardware>, 12> fitted_keys{
    {{"product_efficiency", &Hardware::product_efficiency, 1, false, true},
     {"attention_efficiency", &Hardware::attention_efficiency, 1, false, true},
     {"pass_efficiency", &Hardware::pass_efficiency, 1, false, true},
     {"product_s", &Hardware::product_s, 1, true, true},
     {"pass_s", &Hardware::pass_s, 1, true, true},
     {"bandwidth_efficiency", &Hardware::bandwidth_efficiency, 1, false, true},
     {"launch_s", &Hardware::launch_s, 1, true, true},
     {"call_s", &Hardware::call_s, 1, true, true},
     {"micro_batch_s", &Hardware::micro_batch_s, 1, true, true},
     {"overlap", &Hardware::overlap, 1, true, true},
     {"sharing", &Hardware::sharing, 1, true, true},
     {"jitter_s", &Hardware::jitter_s, 1, true, true}}};
constexpr std::array<NumberKey<Link>, 4> link_keys{{{"latency_s", &Link::latency_s, 1, true},
                                                    {"bandwidth", &Link::bandwidth, 1e15},
                                                    {"message_latency_s", &Link::message_latency_s, 1, true, true},
                                                    {"message_bandwidth", &Link::message_bandwidth, 1e15, true, true}}};

/// The names of the keys, and the words of an object that are no number.
template <std::size_t others, class Object, std::size_t... counts>
constexpr auto words_of(std::array<std::string_view, others> const& words,
                        std::array<NumberKey<Object>, counts> const&... keys) {
    std::array<std::string_view, others + (0 + ... + counts)> all{};
    std::size_t next = 0;
    for (auto const word : words) all[next++] = word;
    auto const add = [&](auto const& list) {
        for (auto const& key : list) all[next++] = key.name;
    };
    (add(keys), ...);
    return all;
}
constexpr auto hardware_words =
    words_of(std::array<std::string_view, 5>{"name", "devices", "devices_per_node", "peak_flops", "links"}, memory_keys,
             fitted_keys);
constexpr auto peak_words = words_of(std::array<std::string_view, 0>{}, peak_keys);
constexpr auto link_words = words_of(std::array<std::string_view, 2>{"devices", "topology"}, link_keys);

template <class Object, std::size_t count>
void read_numbers(Json const& json, std::string const& path, std::array<NumberKey<Object>, count> const& keys,
                  Object& object) {
    for (auto const& key : keys) {
        std::string const name(key.name);
        if (key.is_optional && !json.contains(name)) continue;
        auto const& value = member(json, name, path + name);
        double const number = value.is_number() ? value.template get<double>() : -1;
        if (number > key.most || !(number > 0 || (key.may_be_zero && number == 0))) {
            std::ostringstream expected;
            expected << "a number " << (key.may_be_zero ? "from 0 to " : "above 0 and at most ") << key.most;
            refuse_json(path + name, expected.str(), value);
        }
        object.*key.member = number;
    }
}

template <class Object, std::size_t count>
void write_numbers(Object const& object, std::array<NumberKey<Object>, count> const& keys, OrderedJson& json) {
    for (auto const& key : keys) json[std::string(key.name)] = object.*key.member;
}

PENTAD_INLINE Link link_from_json(Json const& json, std::string const& where) {
    check_keys(json, where, where + ".", link_words);
    Link link;
    link.devices = whole_number(member(json, "devices", where + ".devices"), where + ".devices", 2, most_devices);
    read_numbers(json, where + ".", link_keys, link);
    if (!json.contains("topology")) return link;
    if (json["topology"] == "mesh")
        link.topology = planner::Topology::mesh;
    else if (json["topology"] != "switched")
        refuse_json(where + ".topology", "\"switched\" or \"mesh\"", json["topology"]);
    return link;
}

} // namespace pentad::io::detail

namespace pentad::io {

PENTAD_INLINE std::string to_json(planner::Hardware const& hardware) {
    detail::OrderedJson json{
        {"name", hardware.name}, {"devices", hardware.devices}, {"devices_per_node", hardware.devices_per_node}};
    detail::write_numbers(hardware, detail::peak_keys, json["peak_flops"]);
    detail::write_numbers(hardware, detail::memory_keys, json);
    auto& links = json["links"] = detail::OrderedJson::array();
    for (auto const& link : hardware.links) {
        detail::OrderedJson tier{{"devices", link.devices}};
        detail::write_numbers(link, detail::link_keys, tier);
        tier["topology"] = link.topology == planner::Topology::mesh ? "mesh" : "switched";
        links.push_back(tier);
    }
    detail::write_numbers(hardware, detail::fitted_keys, json);
    return detail::dump(json, 2) + "\n";
}

PENTAD_INLINE planner::Hardware hardware_from_json(std::string_view text) {
    using detail::member, detail::refuse_json, detail::whole_number;
    auto const json = detail::parse_object(text);
    detail::check_keys(json, "the file", "", detail::hardware_words);
    planner::Hardware hardware;
    if (json.contains("name")) hardware.name = detail::text(json["name"], "name");
    hardware.devices = whole_number(member(json, "devices", "devices"), "devices", 1, detail::most_devices);
    std::string const per_node = "devices_per_node";
    hardware.devices_per_node = whole_number(member(json, per_node, per_node), per_node, 1, detail::most_devices);
    if (hardware.devices > hardware.devices_per_node && hardware.devices % hardware.devices_per_node != 0)
        refuse_json("devices", "whole nodes of " + std::to_string(hardware.devices_per_node) + ", not " +
                                   std::to_string(hardware.devices));
    auto const& peaks = member(json, "peak_flops", "peak_flops");
    detail::check_keys(peaks, "peak_flops", "peak_flops.", detail::peak_words);
    detail::read_numbers(peaks, "peak_flops.", detail::peak_keys, hardware);
    detail::read_numbers(json, "", detail::memory_keys, hardware);
    detail::read_numbers(json, "", detail::fitted_keys, hardware);

    auto const& links = member(json, "links", "links");
    if (!links.is_array()) refuse_json("links", "a list of tiers", links);
    std::int64_t joined = 1;
    for (auto const& tier : links) {
        std::string const where = "links[" + std::to_string(hardware.links.size()) + "]";
        auto const& link = hardware.links.emplace_back(detail::link_from_json(tier, where));
        if (link.devices <= joined)
            refuse_json(where + ".devices", "more than the " + std::to_string(joined) +
                                                " that the tier before joins, not " + std::to_string(link.devices));
        joined = link.devices;
    }
    if (joined < hardware.devices)
        refuse_json("links", "that the last tier joins all " + std::to_string(hardware.devices) + " devices, not " +
                                 std::to_string(joined));
    return hardware;
}

PENTAD_INLINE planner::Hardware read_hardware(std::filesystem::path const& path) {
    std::string const text = read_file(path, std::uint64_t{1} << 20);
    try {
        return hardware_from_json(text);
    } catch (std::invalid_argument const& error) {
        throw FileError("cannot read the hardware " + path.string() + ": " + error.what());
    }
}

PENTAD_INLINE void write_hardware(std::filesystem::path const& path, planner::Hardware const& hardware) {
    write_file(path, to_json(hardware));
}

} // namespace pentad::io
