// PENTAD_INLINE, for the folders `impl` only: functions there are inline, but where lib/ compiles them.
#pragma once

#ifndef PENTAD_INLINE
#define PENTAD_INLINE inline
#endif
