// Gathers the weights as whole tensors under their published names, the same for any mesh, and hands them
// to a sink on rank 0: parameter by parameter, so that no rank ever holds more than one of them (the same matrix of all
// experts of a layer is one) whole.
#pragma once

#include <pentad/comm/rooted.hpp>
#include <pentad/io/tensor_box.hpp>
#include <pentad/layers/parameter.hpp>
#include <pentad/layout/ml.hpp>
#include <pentad/model/family.hpp>
#include <pentad/tensor/redistribute.hpp>

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace pentad::train {

using namespace ml;

/// Where rank 0 puts the weights: the names and shapes ([out, in] of a matrix) of all tensors first, then the elements
/// in their order, in pieces of any size.
template <class A>
class WeightSink {
  public:
    virtual ~WeightSink() = default;
    virtual void begin(std::vector<io::NamedShape> const& entries) = 0;
    virtual void append(std::span<A const> piece) = 0;
    virtual void end() = 0;
};

namespace detail {

/// The published tensors of a parameter: one, of which it may be some rows, or one for each expert; matrices as [out,
/// in], without padding.
template <class T, class Exec>
std::vector<io::NamedShape> published(AnyParameter<T, Exec> const& parameter, std::optional<model::Family> family) {
    auto const& layout = parameter.stored_layout();
    auto const extents = std::span(parameter.global_extents()).first(layout.rank);
    std::size_t const mark = parameter.name().find("{}");
    bool const by_expert = mark != std::string::npos;
    std::vector<std::int64_t> shape;
    std::size_t const first = by_expert ? 1 : 0;
    for (std::size_t d = first; d < extents.size(); ++d) {
        auto const extent = static_cast<std::int64_t>(d == 0 ? parameter.valid_rows() : extents[d]);
        // heads x head_dim are the rows of q, k and v, and the columns of o
        bool const is_in_a_head = d > first && layout.dimensions[d].name == head_dim::name;
        if (is_in_a_head)
            shape.back() *= extent;
        else
            shape.push_back(extent);
    }
    if (auto const& rows = parameter.published_rows()) {
        shape[0] = static_cast<std::int64_t>(rows->count);
        return {{model::published_name(family, rows->tensor), shape}};
    }
    if (!by_expert) return {{model::published_name(family, parameter.name()), shape}};
    std::vector<io::NamedShape> entries;
    for (std::size_t e = 0; e < extents[0]; ++e) {
        std::string name = parameter.name();
        name.replace(mark, 2, std::to_string(e));
        entries.push_back({model::published_name(family, name), shape});
    }
    return entries;
}

/// Whether this rank is the first along every axis but that of the stages.
template <class Exec>
bool is_first_along_all_but_stages(Context<Exec> const& context) {
    for (auto const axis : axes_of_view(context.communicators().mesh()))
        if (axis != pp::name && context.communicators().coordinate(axis) != 0) return false;
    return true;
}

/// The descriptions of all tensors, on the first rank along pp: the others send their own as text.
template <class Exec>
std::vector<std::vector<io::NamedShape>> gather_entries(Exec const& exec, comm::Communicator const& comm,
                                                        std::vector<io::NamedShape> const& own) {
    std::vector<std::vector<io::NamedShape>> all{own};
    using Text = Kokkos::View<char*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    using Size = Kokkos::View<i64*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    if (comm.rank() > 0) {
        std::string text;
        for (auto const& entry : own) {
            text += entry.name + " " + std::to_string(entry.shape.size());
            for (auto const extent : entry.shape) text += " " + std::to_string(extent);
            text += "\n";
        }
        auto size = static_cast<i64>(text.size());
        comm::send(exec, comm, Size(&size, 1), 0);
        comm::send(exec, comm, Text(text.data(), text.size()), 0);
        return all;
    }
    for (int stage = 1; stage < comm.size(); ++stage) {
        i64 size = 0;
        comm::receive(exec, comm, Size(&size, 1), stage);
        std::string text(static_cast<std::size_t>(size), ' ');
        comm::receive(exec, comm, Text(text.data(), text.size()), stage);
        std::istringstream in(text);
        auto& entries = all.emplace_back();
        io::NamedShape entry;
        for (std::size_t rank = 0; in >> entry.name >> rank;) {
            entry.shape.resize(rank);
            for (auto& extent : entry.shape) in >> extent;
            entries.push_back(entry);
        }
    }
    return all;
}

} // namespace detail

/// Collective over all ranks; only rank 0 uses its sink. Not during a step.
/// @param family whose names the tensors get
/// @throws on rank 0 what the sink throws: after all ranks have done their part, so that none hangs.
/// @throws io::FileError on all ranks where the weights of one are offloaded and could not be read
template <class T, class Exec, class Model, class Store>
void export_weights(Context<Exec> const& context, Model& model, Store& store, std::optional<model::Family> family,
                    WeightSink<accumulator_t<T>>& sink) {
    using A = accumulator_t<T>;
    auto& communicators = context.communicators();
    auto const& exec = context.exec();
    auto const& stages = communicators.along(AxisNames(pp::name));
    bool const has_first = !model.stages().empty() && model.stages().front() == 0;
    bool const is_first_holder = communicators.coordinate(inner<pp>::name) == 0;
    bool const is_root = detail::is_first_along_all_but_stages(context);
    bool const is_writer = is_root && stages.rank() == 0;
    // Where two ranks hold the same stages the first writes them; a tied embedding is written with the first stage.
    auto const is_written = [&](auto const& parameter) {
        return is_first_holder && (has_first || parameter.name() != "model.embed_tokens.weight");
    };

    std::vector<io::NamedShape> own;
    model.for_each_parameter([&](auto const& parameter) {
        if (!is_written(parameter)) return;
        if (auto const& rows = parameter.published_rows(); rows && rows->first > 0) return; // it has been named
        for (auto& entry : detail::published(parameter, family)) own.push_back(std::move(entry));
    });
    std::vector<std::vector<io::NamedShape>> entries;
    if (is_root) entries = detail::gather_entries(exec, stages, own);
    std::exception_ptr failure;
    auto const attempt = [&failure](auto&& write) {
        if (failure) return;
        try {
            write();
        } catch (...) {
            failure = std::current_exception();
        }
    };
    if (is_writer) {
        std::vector<io::NamedShape> all;
        for (auto const& stage : entries) all.insert(all.end(), stage.begin(), stage.end());
        attempt([&] { sink.begin(all); });
    }

    std::vector<A> host, rows; // the latter of a tensor that is not complete yet
    using Host = Kokkos::View<A*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    auto const show = [&](auto const& parameter) {
        if (!is_written(parameter)) return;
        auto const& stored = parameter.stored_layout();
        auto whole_layout = stored;
        for (std::size_t d = 0; d < stored.rank; ++d) whole_layout.dimensions[d].axes = {};
        auto const whole = pentad::detail::carry_out(
            parameter.context(), make_plan(stored, whole_layout),
            pentad::detail::Shard<A, Exec>{
                {parameter.local_extents(), stored.rank}, {}, parameter.flat_gradient().data()});
        if (!is_root) return;
        std::size_t const row = whole.size() / whole.local[0];
        host.resize(row * parameter.valid_rows());
        if (parameter.stack_order() == nullptr)
            memory::copy_to_host(exec, host.data(), whole.data, host.size() * sizeof(A));
        else
            for (std::size_t place = 0; place < whole.local[0]; ++place)
                memory::copy_to_host(exec, host.data() + parameter.matrix_at(place) * row, whole.data + place * row,
                                     row * sizeof(A));
        if (is_writer) {
            attempt([&] { sink.append(std::span<A const>(host)); });
            return;
        }
        rows.insert(rows.end(), host.begin(), host.end());
        std::size_t next = 0;
        for (auto const& entry : detail::published(parameter, family)) {
            std::size_t const size = io::detail::elements(entry.shape);
            if (rows.size() < next + size) return;
            comm::send(exec, stages, Host(rows.data() + next, size), 0, 1);
            next += size;
        }
        rows.clear();
    };
    auto const receive_others = [&] {
        if (!is_writer) return;
        for (int stage = 1; stage < stages.size(); ++stage)
            for (auto const& entry : entries[static_cast<std::size_t>(stage)]) {
                host.resize(io::detail::elements(entry.shape));
                comm::receive(exec, stages, Host(host.data(), host.size()), stage, 1);
                attempt([&] { sink.append(std::span<A const>(host)); });
            }
    };
    store.for_each_exported(show, receive_others);
    if (!is_writer) return;
    attempt([&] { sink.end(); });
    if (failure) std::rethrow_exception(failure);
}

} // namespace pentad::train
