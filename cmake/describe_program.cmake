# Writes manual and completions of TRIVET_PROGRAM, as it describes itself, into TRIVET_DESCRIPTION; the manual compressed if
# TRIVET_COMPRESS is set.
file(REMOVE_RECURSE ${TRIVET_DESCRIPTION})
file(MAKE_DIRECTORY ${TRIVET_DESCRIPTION}/man1)
execute_process(COMMAND ${TRIVET_PROGRAM} man-pages ${TRIVET_DESCRIPTION}/man1 COMMAND_ERROR_IS_FATAL ANY)
foreach(shell bash zsh fish)
  execute_process(COMMAND ${TRIVET_PROGRAM} completion ${shell} OUTPUT_FILE ${TRIVET_DESCRIPTION}/completion.${shell}
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
if(TRIVET_COMPRESS)
  file(GLOB pages ${TRIVET_DESCRIPTION}/man1/*)
  execute_process(COMMAND gzip -9n ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
