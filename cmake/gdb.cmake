# Installs how gdb prints tensors and modules: in share/halftape/ for `source`; and for a shared library also where gdb looks by
# itself, which is a folder named as that of the library below share/gdb/auto-load, under the name of the file that the links to
# it lead to. Known only when installing: the prefix may be another one then.
set(halftape_gdb ${CMAKE_CURRENT_LIST_DIR}/../scripts/halftape-gdb.py)
install(FILES ${halftape_gdb} DESTINATION ${CMAKE_INSTALL_DATADIR}/halftape COMPONENT development)
set(shared halftape)
if(kind STREQUAL STATIC)
  set(shared halftape_other)
endif()
if(TARGET ${shared} AND CMAKE_SYSTEM_NAME STREQUAL Linux)
  install(CODE "
    get_filename_component(library_folder \"${CMAKE_INSTALL_LIBDIR}\" ABSOLUTE BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
    get_filename_component(data_folder \"${CMAKE_INSTALL_DATADIR}\" ABSOLUTE BASE_DIR \"\${CMAKE_INSTALL_PREFIX}\")
    file(INSTALL \"${halftape_gdb}\" DESTINATION \"\${data_folder}/gdb/auto-load\${library_folder}\"
         RENAME \"$<TARGET_FILE_NAME:${shared}>-gdb.py\")"
          COMPONENT development)
endif()
