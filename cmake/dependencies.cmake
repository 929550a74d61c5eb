# What the build needs, from the system. A missing piece is named together with its Debian package.
find_package(Threads REQUIRED)
if(MINGW AND NOT CMAKE_USE_PTHREADS_INIT)
  message(FATAL_ERROR "halftape needs a MinGW-w64 with threads of POSIX (Debian: x86_64-w64-mingw32-g++-posix)")
endif()

find_package(Eigen3 3.4 QUIET NO_MODULE)
if(NOT TARGET Eigen3::Eigen)
  message(FATAL_ERROR "Eigen 3.4 was not found: install libeigen3-dev, or set Eigen3_DIR")
endif()
# As system headers: its warnings are not ours.
add_library(halftape_eigen INTERFACE)
get_target_property(eigen_include Eigen3::Eigen INTERFACE_INCLUDE_DIRECTORIES)
target_include_directories(halftape_eigen SYSTEM INTERFACE ${eigen_include})

find_package(ZLIB QUIET)
if(NOT ZLIB_FOUND)
  message(STATUS "halftape: zlib was not found; .gz files cannot be read (Debian: zlib1g-dev)")
endif()
