#include <doctest/doctest.h>

#include <pentad/model/presets.hpp>
#include <pentad/planner/hardware_presets.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>

using namespace pentad;
using namespace pentad::planner;

namespace {

model::Preset const& find_model(std::string_view name) {
    static std::string const kind = "model";
    return planner::detail::find_preset(model::presets(), name, kind);
}

std::string refusal(std::function<void()> const& call) {
    try {
        call();
    } catch (std::invalid_argument const& error) {
        return error.what();
    }
    return "";
}

} // namespace

TEST_CASE("a preset is found however its name is punctuated, and no two share a name") {
    CHECK(find_model("llama-3-8b").name == "llama-3-8b");
    CHECK(find_model("LLaMA3-8B").name == "llama-3-8b");
    CHECK(find_model("gpt3_175B").name == "gpt-3-175b");
    CHECK(find_model("mamba-2-1.3b").name == "mamba2-1.3b");
    CHECK(find_hardware("Ascend 910B").name == "ascend-910b");
    for (auto const& preset : model::presets()) CHECK(&find_model(preset.name) == &preset);
    for (auto const& machine : machines()) CHECK(&find_hardware(machine.name) == &machine);
}

TEST_CASE("a name that is none is refused with those that are") {
    CHECK(refusal([] { (void)find_model("llama-4"); }) ==
          "there is no model 'llama-4': choose one of llama-2-7b, llama-1b, llama-3-8b, llama-3-70b, llama-3-405b, "
          "mixtral-8x7b, mixtral-8x22b, deepseek-v3, gpt-3-175b, mamba2-1.3b, mamba2-2.7b, mamba2-7b");
    CHECK(refusal([] { (void)find_hardware(""); }) ==
          "there is no hardware '': choose one of a100, h100, h200, h800, ascend-910b, cpu");
}

TEST_CASE("the sizes of a model fit each other") {
    for (auto const& [name, model] : model::presets()) {
        CAPTURE(name);
        if (auto const* attention = model.first<model::Attention>()) {
            CHECK(attention->heads % attention->kv_heads == 0);
            CHECK(attention->heads * attention->head_dim == model.hidden);
        }
        if (auto const* mixer = model.first<model::Mamba2>()) CHECK(mixer->inner() == 2 * model.hidden);
        if (auto const* experts = model.first<model::Experts>()) CHECK(experts->top_k <= experts->count);
    }
}

TEST_CASE("a machine is one node, with numbers of its datasheet that grow outwards as they should") {
    for (auto const& machine : machines()) {
        CAPTURE(machine.name);
        CHECK(machine.devices == machine.devices_per_node);
        REQUIRE(machine.links.size() == 2);
        CHECK(machine.links[0].devices == machine.devices);
        CHECK(machine.links[0].bandwidth > machine.links[1].bandwidth);
        CHECK(machine.links[0].latency_s <= machine.links[1].latency_s);
        CHECK(machine.memory_bandwidth > machine.links[0].bandwidth);
        CHECK(machine.peak_bf16 >= machine.peak_f32);
        for (double const part : {machine.product_efficiency, machine.bandwidth_efficiency})
            CHECK((part > 0.5 && part < 1));
    }
    auto const& h100 = find_hardware("h100");
    auto const& h800 = find_hardware("h800");
    CHECK(h100.peak(Element::bf16) == 989.5e12);
    CHECK(h100.links[0].bandwidth == 450e9);
    CHECK(h800.links[0].bandwidth == 200e9);
    CHECK(h800.links[1].bandwidth == h100.links[1].bandwidth);
    CHECK(find_hardware("h200").memory_bytes == 141e9);
    auto const& ascend = find_hardware("ascend-910b");
    CHECK(ascend.links[0].topology == Topology::mesh);
    CHECK(ascend.links[0].bandwidth == 7 * 56e9 / 2);
}

TEST_CASE("a machine of more devices is whole nodes that its last link joins") {
    auto const& h100 = find_hardware("h100");
    CHECK(with_devices(h100, 4).devices == 4);
    CHECK(with_devices(h100, 4).devices_per_node == 8);
    CHECK(with_devices(with_devices(h100, 4), 64).devices == 64);
    CHECK(with_devices(h100, 16384).links[1].devices == 16384);
    CHECK(with_devices(h100, 32768).links[1].devices == 32768);
    CHECK(with_devices(h100, 32768).links[0].devices == 8);
    auto single = h100;
    single.links.clear();
    CHECK(with_devices(single, 1).devices == 1);
}

TEST_CASE("devices that a machine cannot have are refused") {
    auto h100 = find_hardware("h100");
    auto const refused = [&](std::int64_t devices) { return refusal([&] { (void)with_devices(h100, devices); }); };
    CHECK(refused(0) == "0 devices of h100: give 1 to 1000000000");
    CHECK(refused(-8) == "-8 devices of h100: give 1 to 1000000000");
    CHECK(refused(INT64_MAX) == "9223372036854775807 devices of h100: give 1 to 1000000000");
    CHECK(refused(12) == "12 devices of h100: they do not fill nodes of 8: give 8 or 16");
    h100.links.pop_back();
    CHECK(refused(16) == "16 devices of h100: there is no link between nodes: give one");
    CHECK(refused(8) == "");
    h100.links[0].topology = Topology::mesh;
    h100.devices_per_node = 4;
    CHECK(refused(16) == "16 devices of h100: the last link is a mesh of 8: give a link that joins the meshes");
    h100.links.clear();
    CHECK(refused(2) == "2 devices of h100: there is no link between them: give one");
    h100.name = "";
    CHECK(refused(2) == "2 devices of the hardware: there is no link between them: give one");
}
