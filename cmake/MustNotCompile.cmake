# Run by ctest for pentad_add_must_not_compile, with SOURCE, FLAGS (a file, a flag a line) and COMPILER.
file(STRINGS ${FLAGS} LINES)
list(FILTER LINES EXCLUDE REGEX "^-[ID]$") # what is left of an empty list
set(ARGUMENTS "")
foreach(LINE IN LISTS LINES)
    string(REGEX REPLACE "^SHELL:" "" LINE "${LINE}") # how CMake marks several flags in one
    separate_arguments(LINE UNIX_COMMAND "${LINE}")
    list(APPEND ARGUMENTS ${LINE})
endforeach()

execute_process(COMMAND ${COMPILER} ${ARGUMENTS} -DPENTAD_WRONG -fsyntax-only ${SOURCE}
    RESULT_VARIABLE STATUS OUTPUT_VARIABLE TEXT ERROR_VARIABLE TEXT)
if(STATUS STREQUAL "0")
    message(FATAL_ERROR "The wrong program compiles.")
endif()
string(REGEX REPLACE "\n *[0-9]* \\|[^\n]*" "" TEXT "${TEXT}") # what it says, without the lines of code that it quotes

file(READ ${SOURCE} PROGRAM)
set(EXPECTATIONS 0)
while(PROGRAM MATCHES "// expect: ([^\n]+)\n(.*)")
    set(EXPECTED "${CMAKE_MATCH_1}")
    set(PROGRAM "${CMAKE_MATCH_2}")
    math(EXPR EXPECTATIONS "${EXPECTATIONS} + 1")
    if(NOT TEXT MATCHES "${EXPECTED}")
        message(FATAL_ERROR "The wrong program does not compile, but the compiler does not say /${EXPECTED}/:\n${TEXT}")
    endif()
endwhile()
if(EXPECTATIONS EQUAL 0)
    message(FATAL_ERROR "${SOURCE} has no line `// expect: <regex>`, so any error would do.")
endif()
