# pentad_add_test(MODULE.WHAT ...): the one way that tests are registered.
#
#   SOURCES file...        a doctest program with the main of KIND; or
#   COMMAND program arg... an existing program
#   KIND plain|kokkos|mpi  which main (tests/main_<kind>.cpp): nothing, Kokkos, MPI and Kokkos. With COMMAND, mpi
#                          means that the command is started by mpiexec. Default: plain
#   RANKS n...             run once for each count (mpi only; 6 is as usual as 2 and 4)
#   CORE_RANKS n...        of these `./dev test` runs these counts alone; the others have the label beyond-core. Default: all
#   THREADS n              OpenMP threads of a rank; default 1
#   TIMEOUT seconds        of each run; default 120
#   LABELS label...        beside module:<module> and ranks:<n>, which every test gets
#   ENVIRONMENT VAR=x...   beside the usual
#   HEADERS_ONLY           does not link pentad::compiled
#
# A run of n ranks is named MODULE.WHAT.n, and takes ranks x threads processors in the eyes of ctest -j. An
# MPI_TEST_CASE runs in the run with exactly its rank count; one without such a run fails the largest.
find_package(doctest QUIET)
if(NOT doctest_FOUND)
    message(FATAL_ERROR "Pentad's tests need doctest, which CMake does not find. Debian: apt install doctest-dev. "
        "Spack: spack install doctest. Or leave them out: -DPENTAD_TESTS=OFF.")
endif()

foreach(KIND IN ITEMS plain kokkos mpi)
    add_library(pentad_test_${KIND} OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/main_${KIND}.cpp)
    target_link_libraries(pentad_test_${KIND} PUBLIC doctest::doctest PRIVATE pentad_own_flags)
    target_include_directories(pentad_test_${KIND} PUBLIC ${PROJECT_SOURCE_DIR}/tests)
endforeach()
# What MPI tests share, such as the counter behind the MPI profiling interface.
file(GLOB SUPPORT CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.cpp)
target_sources(pentad_test_mpi PRIVATE ${SUPPORT})
# The pure modules see neither Kokkos nor MPI: their tests get the headers, and Random123's.
target_include_directories(pentad_test_plain PUBLIC ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(pentad_test_plain PUBLIC Pentad::Random123)
target_link_libraries(pentad_test_kokkos PUBLIC pentad::pentad)
target_link_libraries(pentad_test_mpi PUBLIC pentad::pentad)

function(pentad_add_test NAME)
    cmake_parse_arguments(PARSE_ARGV 1 TEST "HEADERS_ONLY" "KIND;THREADS;TIMEOUT" "SOURCES;COMMAND;RANKS;CORE_RANKS;LABELS;ENVIRONMENT")
    string(REGEX REPLACE "\\..*" "" MODULE ${NAME})
    foreach(DEFAULT IN ITEMS KIND=plain THREADS=1 TIMEOUT=120)
        string(REGEX MATCH "(.*)=(.*)" _ ${DEFAULT})
        if(NOT TEST_${CMAKE_MATCH_1})
            set(TEST_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
        endif()
    endforeach()
    if(TEST_UNPARSED_ARGUMENTS OR NOT TEST_KIND MATCHES "^(plain|kokkos|mpi)$" OR (TEST_SOURCES AND TEST_COMMAND))
        message(FATAL_ERROR "pentad_add_test(${NAME}): wrong arguments: ${ARGN}")
    endif()
    if(TEST_KIND STREQUAL "mpi" AND NOT TEST_RANKS)
        message(FATAL_ERROR "pentad_add_test(${NAME}): an MPI test needs RANKS")
    elseif(NOT TEST_KIND STREQUAL "mpi" AND TEST_SOURCES AND TEST_RANKS)
        message(FATAL_ERROR "pentad_add_test(${NAME}): RANKS is for KIND mpi")
    endif()

    if(TEST_SOURCES)
        string(REPLACE "." "_" TARGET test_${NAME})
        add_executable(${TARGET} ${TEST_SOURCES})
        target_link_libraries(${TARGET} PRIVATE pentad_test_${TEST_KIND} pentad_own_flags)
        if(NOT TEST_KIND STREQUAL "plain")
            set(LEVEL -Og) # a third less to compile than -O1
            if(PENTAD_NVCC OR NAME MATCHES "^(kernels|comm\\.node|train\\.(planned|memory_forms))") # which compute a lot
                set(LEVEL -O1)
            endif()
            target_compile_options(${TARGET} PRIVATE $<$<CONFIG:Release>:${LEVEL}>)
            if(NOT TEST_HEADERS_ONLY)
                pentad_link_compiled(${TARGET} ${TEST_SOURCES})
            endif()
        endif()
        target_compile_definitions(${TARGET} PRIVATE PENTAD_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/reference/golden")
        set(TEST_COMMAND $<TARGET_FILE:${TARGET}>)
    endif()
    if(NOT TEST_RANKS)
        set(TEST_RANKS 1)
    endif()
    list(JOIN TEST_RANKS " " ALL_RANKS)
    foreach(COUNT IN LISTS TEST_RANKS)
        set(RUN ${NAME})
        set(LAUNCH ${TEST_COMMAND})
        if(TEST_KIND STREQUAL "mpi")
            set(RUN ${NAME}.${COUNT})
            set(LAUNCH ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${COUNT} ${MPIEXEC_PREFLAGS} ${TEST_COMMAND} ${MPIEXEC_POSTFLAGS})
        endif()
        add_test(NAME ${RUN} COMMAND ${LAUNCH} COMMAND_EXPAND_LISTS)
        math(EXPR PROCESSORS "${COUNT} * ${TEST_THREADS}")
        set(SCOPE "")
        if(TEST_CORE_RANKS AND NOT COUNT IN_LIST TEST_CORE_RANKS)
            set(SCOPE beyond-core)
        endif()
        # UCX takes 0.4 s to patch the memory calls of each process, for networks that these tests do not use.
        set_tests_properties(${RUN} PROPERTIES
            PROCESSORS ${PROCESSORS}
            TIMEOUT ${TEST_TIMEOUT}
            LABELS "module:${MODULE};ranks:${COUNT};${SCOPE};${TEST_LABELS}"
            ENVIRONMENT "OMP_NUM_THREADS=${TEST_THREADS};OMP_PROC_BIND=false;KOKKOS_DISABLE_WARNINGS=1;UCX_MEM_MMAP_HOOK_MODE=none;PENTAD_TEST_RANKS=${ALL_RANKS};${TEST_ENVIRONMENT}")
    endforeach()
endfunction()

# pentad_add_must_not_compile(SOURCE...): the compiler refuses each of these programs with PENTAD_WRONG, and says what the
# `// expect: <regex>` lines of the program ask for. Without PENTAD_WRONG it compiles.
function(pentad_add_must_not_compile)
    find_package(Python3 QUIET COMPONENTS Interpreter)
    if(NOT Python3_FOUND)
        message(WARNING "No Python 3: must_not_compile is not tested.")
        return()
    endif()
    add_test(NAME must_not_compile COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/must_not_compile/check.py ${CMAKE_CURRENT_BINARY_DIR}
        ${CMAKE_CXX_COMPILER} ${PROJECT_BINARY_DIR}/compile_flags.txt ${ARGN})
    set_tests_properties(must_not_compile PROPERTIES TIMEOUT 300 LABELS "module:must_not_compile;must-not-compile")
endfunction()

# compile_flags.txt: how a user of pentad::compiled compiles, a flag a line, for the checks above.
add_library(pentad_user OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/main_plain.cpp)
target_link_libraries(pentad_user PRIVATE pentad::compiled)
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/compile_flags.txt CONTENT
"${CMAKE_CXX20_STANDARD_COMPILE_OPTION}
$<JOIN:$<TARGET_PROPERTY:COMPILE_OPTIONS>,
>
-I$<JOIN:$<REMOVE_DUPLICATES:$<TARGET_PROPERTY:INCLUDE_DIRECTORIES>>,
-I>
-D$<JOIN:$<TARGET_PROPERTY:COMPILE_DEFINITIONS>,
-D>
" TARGET pentad_user)
