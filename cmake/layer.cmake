# capstan_layer(NAME LIBS…): one library per folder of src/, from the files in it and in the folder of
# each device that is built. Layers may link those before them only; tools/check_layers.py checks the
# includes against the same order.
function(capstan_layer name)
  file(GLOB sources CONFIGURE_DEPENDS ${name}/*.cpp ${name}/cpu/*.cpp)
  add_library(capstan_${name} STATIC ${sources})
  target_link_libraries(capstan_${name} PUBLIC capstan_flags ${ARGN})
endfunction()
