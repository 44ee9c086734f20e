# compile_together(target name count source...): compile so many of the target's sources at a time,
# as groups of that name. Each alone would read the same headers and instantiate the same templates,
# which takes most of its time. A source that has compile options of its own stays alone.
function(compile_together target name count)
  set(index 0)
  set(sources ${ARGN})
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source ${sources})
    math(EXPR group "${index} / ${count}")
    math(EXPR index "${index} + 1")
    set_source_files_properties("${source}"
      TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP "${name}_${group}")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
