# Writes HEADER with the commit of SOURCE_DIR ("" outside a git checkout) unless it says so already.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define SAGEBENCH_COMMIT \"@commit@\"\n" @ONLY)
