// Whether all ranks of a job were started alike, asked before anything else: ranks that differ in their
// arguments, environment, build or input files would hang, or train to other losses.
#pragma once

#include <mpi.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pentad::comm {

/// Something that has to be the same on all ranks: of a kind, "arguments", a value, "--seed 1".
struct Fact {
    std::string kind, value;
    bool operator==(Fact const&) const = default;
};

namespace detail {

/// The first value of a kind that one has and the other has not.
std::string only_in(std::span<Fact const> one, std::span<Fact const> other, std::string_view kind);

/// What distinguishes a rank from the others.
std::string difference(std::vector<std::vector<Fact>> const& facts);

} // namespace detail

/// Empty where all ranks have the same facts; else a sentence that says which rank differs in what, the same on every
/// rank. Collective; where ranks agree, one all-reduce of 16 bytes.
std::string disagreement(MPI_Comm world, std::span<Fact const> facts);

/// What the linker wrote into this program to tell builds apart, in hexadecimal; empty where it wrote nothing.
std::string build_id();

/// What all ranks of a program must have been started with: its arguments, the variables that change what is computed
/// or sent, the build.
std::vector<Fact> start_facts(int argc, char const* const* argv);

} // namespace pentad::comm

#if !PENTAD_COMPILED_TENSOR
#include <pentad/comm/impl/agreement.hpp>
#endif
