# halftape::torch_compat: <torch/torch.h> and its relatives over this library, so that one source
# compiles against either. Headers alone.
add_library(halftape_torch_compat INTERFACE)
add_library(halftape::torch_compat ALIAS halftape_torch_compat)
set_target_properties(halftape_torch_compat PROPERTIES EXPORT_NAME torch_compat)
target_link_libraries(halftape_torch_compat INTERFACE halftape)

# What programs include instead of, or beside, <torch/torch.h>.
set(forwards ${PROJECT_BINARY_DIR}/torch_compat)
foreach(header torch/all.h torch/autograd.h torch/cuda.h torch/enum.h torch/nn.h torch/optim.h torch/types.h torch/utils.h
        torch/data.h torch/data/dataloader.h torch/data/dataloader_options.h torch/data/datasets.h torch/data/datasets/base.h
        torch/data/datasets/map.h torch/data/datasets/mnist.h torch/data/datasets/tensor.h torch/data/example.h
        torch/data/iterator.h torch/data/samplers.h torch/data/transforms.h torch/data/worker_exception.h
        torch/ordered_dict.h torch/nn/cloneable.h torch/nn/functional.h torch/nn/init.h torch/nn/module.h torch/nn/modules.h
        torch/nn/options.h torch/nn/pimpl.h torch/nn/utils.h torch/nn/functional/activation.h
        torch/nn/functional/distance.h torch/nn/functional/dropout.h torch/nn/functional/linear.h
        torch/nn/modules/activation.h torch/nn/modules/common.h torch/nn/modules/container/any.h
        torch/nn/modules/container/functional.h torch/nn/modules/container/moduledict.h
        torch/nn/modules/container/modulelist.h torch/nn/modules/container/named_any.h
        torch/nn/modules/container/parameterdict.h torch/nn/modules/container/parameterlist.h
        torch/nn/modules/container/sequential.h torch/nn/modules/distance.h torch/nn/modules/dropout.h
        torch/nn/modules/linear.h torch/nn/options/activation.h torch/nn/options/distance.h
        torch/nn/options/dropout.h torch/nn/options/linear.h torch/nn/utils/clip_grad.h
        torch/nn/utils/convert_parameters.h torch/csrc/utils/memory.h torch/csrc/autograd/variable.h
        torch/csrc/autograd/custom_function.h ATen/ATen.h ATen/TensorIndexing.h ATen/autocast_mode.h
        c10/core/ScalarType.h c10/core/TensorOptions.h c10/core/Device.h c10/util/ArrayRef.h c10/util/Exception.h
        c10/util/Optional.h c10/util/irange.h c10/util/variant.h c10/core/InferenceMode.h c10/core/GradMode.h torch/serialize.h
        torch/serialize/archive.h torch/serialize/input-archive.h torch/serialize/output-archive.h torch/serialize/tensor.h
        torch/expanding_array.h torch/script.h torch/special.h torch/csrc/utils/variadic.h)
  file(CONFIGURE OUTPUT ${forwards}/${header} CONTENT "#pragma once\n#include <torch/torch.h>\n")
endforeach()

target_include_directories(halftape_torch_compat INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cmake/torch_compat> $<BUILD_INTERFACE:${forwards}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/torch_compat>)
if(NOT HALFTAPE_INSTALL)
  return()
endif()
install(TARGETS halftape_torch_compat EXPORT halftape)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/cmake/torch_compat/ ${forwards}/
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/torch_compat COMPONENT development FILES_MATCHING PATTERN "*.h")

# find_package(Torch), for a program's own CMakeLists.txt: from an install, and from this build folder. CMake does not look in
# either by itself, as it would then find this library where LibTorch is meant: Torch_DIR names one.
set(torch_config_folder ${CMAKE_INSTALL_DATADIR}/halftape/torch)
function(write_torch_config file TORCH_CONFIG_HALFTAPE_DIR TORCH_CONFIG_PREFIX)
  configure_package_config_file(cmake/TorchConfig.cmake.in ${file} INSTALL_DESTINATION ${torch_config_folder})
endfunction()
write_torch_config(${PROJECT_BINARY_DIR}/installed/TorchConfig.cmake "\${PACKAGE_PREFIX_DIR}/${CMAKE_INSTALL_LIBDIR}/cmake/halftape"
                   "\${PACKAGE_PREFIX_DIR}")
write_torch_config(${PROJECT_BINARY_DIR}/TorchConfig.cmake "\${CMAKE_CURRENT_LIST_DIR}" "\${CMAKE_CURRENT_LIST_DIR}")
# A program that asks for an older release is content.
file(STRINGS cmake/torch_compat/torch/version.h torch_version REGEX "TORCH_VERSION \"")
string(REGEX MATCH "[0-9.]+" torch_version "${torch_version}")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TorchConfigVersion.cmake VERSION ${torch_version} COMPATIBILITY AnyNewerVersion)
install(FILES ${PROJECT_BINARY_DIR}/installed/TorchConfig.cmake ${PROJECT_BINARY_DIR}/TorchConfigVersion.cmake
        DESTINATION ${torch_config_folder} COMPONENT development)
export(TARGETS halftape halftape_torch_compat halftape_warnings halftape_hardening halftape_sanitizers NAMESPACE halftape::
       FILE ${PROJECT_BINARY_DIR}/halftapeTargets.cmake)
