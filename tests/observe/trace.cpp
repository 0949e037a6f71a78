#include <doctest/doctest.h>

#include <pentad/observe/trace.hpp>

using namespace pentad::observe;

TEST_CASE("scopes are recorded when they end, with their times nested") {
    Trace trace;
    trace.enable(10);
    {
        Scope outer(trace, "forward", "pipeline", {.micro_batch = 3});
        Scope inner(trace, "all-reduce", "communication", {.axis = "tp", .bytes = 64});
    }
    REQUIRE(trace.spans().size() == 2);
    auto const& inner = trace.spans()[0];
    auto const& outer = trace.spans()[1];
    CHECK(inner.name == "all-reduce");
    CHECK(inner.detail.axis == "tp");
    CHECK(inner.detail.bytes == 64);
    CHECK(outer.detail.micro_batch == 3);
    CHECK(outer.start_ns >= 0);
    CHECK(outer.start_ns <= inner.start_ns);
    CHECK(inner.start_ns <= inner.end_ns);
    CHECK(inner.end_ns <= outer.end_ns);
}

TEST_CASE("a trace that is off records nothing") {
    Trace trace;
    {
        Scope scope(trace, "a", "b");
    }
    CHECK(trace.spans().empty());
    trace.enable(1);
    trace.disable();
    {
        Scope scope(trace, "a", "b");
    }
    CHECK(trace.spans().empty());
    CHECK(trace.dropped() == 0);
}

TEST_CASE("a full buffer drops spans, counts them, and does not move") {
    Trace trace;
    trace.enable(2);
    auto const* buffer = trace.spans().data();
    for (int i = 0; i < 5; ++i) Scope scope(trace, "a", "b");
    CHECK(trace.spans().size() == 2);
    CHECK(trace.dropped() == 3);
    CHECK(trace.spans().data() == buffer);
}
