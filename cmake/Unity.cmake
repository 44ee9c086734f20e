# compile_together(target name count alone options source...): compile the target's sources in groups
# of `count`, with the given options. `name` is the prefix of the groups' names. This saves time,
# because most of it goes into reading the same headers and instantiating the same templates. A source
# stays alone if it matches a pattern in the list named by `alone` or has compile options of its own.
# Such sources still count as members of a group, so that adding one to the list does not change the
# other groups.
function(compile_together target name count alone options)
  get_target_property(folder ${target} BINARY_DIR)
  set(index 0)
  foreach(source ${ARGN})
    if(source MATCHES "\\.cpp$")
      math(EXPR group "${index} / ${count}")
      math(EXPR index "${index} + 1")
      set(property UNITY_GROUP "${name}_${group}")
      # The options are set on the source file that CMake generates for the group, by its name. There
      # is no other way to set them.
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
