# pentad_link_compiled(TARGET SOURCE...): links pentad::compiled where the examples are built with it too. A unit that defines
# PENTAD_CHECKED itself cannot.
function(pentad_link_compiled TARGET)
    set(TEXT "")
    foreach(SOURCE IN LISTS ARGN)
        file(READ ${SOURCE} ONE)
        string(APPEND TEXT "${ONE}")
    endforeach()
    if(PENTAD_EXAMPLES AND NOT TEXT MATCHES "#define PENTAD_CHECKED")
        target_link_libraries(${TARGET} PRIVATE pentad::compiled)
    endif()
endfunction()
