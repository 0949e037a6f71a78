// Room: comm. Something under way, which goes on when it is asked to.
#pragma once

namespace pentad::comm {

/// An operation of the library's own. It is used again when it is complete.
class Pending {
  public:
    Pending() = default;
    Pending(Pending const&) = delete;
    Pending& operator=(Pending const&) = delete;
    virtual ~Pending() = default;
    /// Does what can be done without waiting. True when it is complete.
    virtual bool advance() = 0;
};

} // namespace pentad::comm
