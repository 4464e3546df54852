# Installs the build into a fresh prefix, then configures, builds and runs tests/cli/outside against
# it. cmake -DBUILD_DIR=... -DWORK_DIR=... -DBUILD_TYPE=... -DCXX_COMPILER=... -DCXX_FLAGS=... -DSOURCE_DIR=...
#       -P install_test.cmake
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}: ${result}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --config ${BUILD_TYPE} --prefix ${WORK_DIR}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/outside -B ${WORK_DIR}/build
  -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix -DCMAKE_BUILD_TYPE=${BUILD_TYPE}
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CXX_FLAGS})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build --config ${BUILD_TYPE})
run(${WORK_DIR}/build/outside)
if(NOT output MATCHES "sage[a-z0-9_]*: [1-9][0-9]* bytes")
  message(FATAL_ERROR "the outside program lists no kernel with a workspace:\n${output}")
endif()

# Nothing of this build may be needed by the installed package.
file(GLOB_RECURSE package ${WORK_DIR}/prefix/*.cmake)
foreach(file ${package})
  file(READ ${file} text)
  foreach(leak sagebench_warnings ${BUILD_DIR} ${SOURCE_DIR})
    string(FIND "${text}" "${leak}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} mentions ${leak}")
    endif()
  endforeach()
endforeach()
message(STATUS "${output}")
