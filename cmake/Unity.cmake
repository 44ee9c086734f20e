# compile_together(target name count alone options source...): compile so many of the target's
# sources at a time, as groups of that name, with these options. Each would read the same headers and
# instantiate the same templates, which takes most of its time. Those that match one of the patterns
# in the list named `alone`, or have compile options of their own, stay alone; they count, so that one
# more of them leaves all other groups as they are.
function(compile_together target name count alone options)
  get_target_property(folder ${target} BINARY_DIR)
  set(index 0)
  foreach(source ${ARGN})
    if(source MATCHES "\\.cpp$")
      math(EXPR group "${index} / ${count}")
      math(EXPR index "${index} + 1")
      set(property UNITY_GROUP "${name}_${group}")
      # By the name that CMake gives a group's source: there is no other way to its options.
      set_source_files_properties(
        "${folder}/CMakeFiles/${target}.dir/Unity/unity_${name}_${group}_cxx.cxx"
        TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "${options}")
      foreach(pattern ${${alone}})
        if(source MATCHES "${pattern}")
          set(property SKIP_UNITY_BUILD_INCLUSION ON)
        endif()
      endforeach()
      set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES ${property})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
