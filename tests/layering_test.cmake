# Does cmake/layering.cmake refuse what it should? One forbidden include in each wing, and a folder that it does not know.
# Run as a test: cmake -D ROOT=<source folder> -D WORK=<folder> -P layering_test.cmake
cmake_minimum_required(VERSION 3.25)
# Wing, and what it may not include.
set(forbidden
    core/machine               core/array.h
    core/formula               core/contract/backend.h
    core                       core/capture/capture.h
    core/random                core/formula/ops.h
    core/contract              core/capture/graph.h
    core/contract/tasks        core/capture/graph.h
    core/capture               core/formula/ops.h
    cpu/runtime                cpu/kernels.h
    cpu/vector                 cpu/kernels.h
    cpu                        cpu/gemm/packed_gemm.h
    cpu/gemm                   autograd/tensor.h
    cpu/update                 cpu/gemm/packed_gemm.h
    cuda/runtime               cuda/vector/lanes.cuh
    cuda/vector                cuda/update/scaler.cuh
    cuda                       cuda/gemm/gemm.h
    cuda/update                cuda/mlp/mlp_tile.cuh
    cuda/gemm                  cuda/mlp/mlp_tile.cuh
    cuda/mlp                   cuda/gemm/gemm.h
    cuda/attention             cuda/mlp/mlp_tile.cuh
    autograd                   autograd/ops/loss/loss.h
    autograd/tape              autograd/ops/reduction/reduce.h
    autograd/ops               autograd/ops/product/matmul.h
    autograd/ops/creation      autograd/ops/product/matmul.h
    autograd/ops/elementwise   autograd/ops/product/matmul.h
    autograd/ops/indexing      autograd/ops/image/pool.h
    autograd/ops/layout        autograd/ops/loss/loss.h
    autograd/ops/reduction     autograd/ops/product/linear.h
    autograd/ops/product       autograd/ops/loss/loss.h
    autograd/ops/image         autograd/ops/loss/loss.h
    autograd/ops/loss          autograd/ops/image/conv.h
    nn                         nn/modules/linear.h
    nn/utils                   nn/modules/linear.h
    nn/modules                 nn/modules/sequence/rnn.h
    nn/modules/container       nn/modules/image/conv.h
    nn/modules/image           nn/modules/sequence/rnn.h
    nn/modules/loss            nn/modules/sequence/rnn.h
    nn/modules/sequence        nn/modules/image/conv.h
    optim                      optim/async/async_optimizer.h
    optim/state                optim/algorithms/lbfgs.h
    optim/algorithms           optim/async/async_optimizer.h
    optim/schedulers           optim/algorithms/lbfgs.h
    optim/async                optim/schedulers/lr_scheduler.h
    amp                        optim/schedulers/lr_scheduler.h
    amp/laws                   amp/grad_scaler.h
    amp/tools                  amp/inspector/ledger.h
    amp/inspector              io/file/file.h
    io                         amp/amp.h
    io/file                    io/formats/npy.h
    io/formats                 io/run/run_log.h
    io/data                    io/run/run_log.h
    io/data/sets               io/run/run_log.h
    io/run                     amp/grad_scaler.h
    distributed                distributed/data_parallel/data_parallel.h
    distributed/store          distributed/engine/engine.h
    distributed/engine         distributed/gloo/reduce.h
    distributed/gloo           autograd/tensor.h
    distributed/nccl           autograd/tensor.h
    distributed/data_parallel  distributed/gloo/reduce.h
    samples                    core/array.h
    benchmarks                 autograd/tensor.h)


file(REMOVE_RECURSE ${WORK})
set(wings "")
while(forbidden)
  list(POP_FRONT forbidden wing header)
  list(APPEND wings ${wing})
  file(WRITE ${WORK}/${wing}/probe.cpp "#include \"halftape/${header}\"\n")
endwhile()
file(WRITE ${WORK}/core/unknown/probe.cpp "")
file(WRITE ${WORK}/nn/eigen.cpp "#include <Eigen/Core>\n")
file(WRITE ${WORK}/io/io.h "#include \"halftape/io/formats/eigen.h\"\n")
file(WRITE ${WORK}/core/machine/extras.cpp "#include \"../../extras/libtorch/amp.h\"\n")
file(WRITE ${WORK}/core/machine/newer.cpp "const auto bits = std::bit_cast<int>(1.0F);\n")
execute_process(COMMAND ${CMAKE_COMMAND} -D ROOT=${WORK} -P ${ROOT}/cmake/layering.cmake
                RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
set(missed "")
foreach(wing ${wings})
  string(FIND "${output}" "${WORK}/${wing}/probe.cpp: ${wing}/ may not include " at)
  if(at EQUAL -1)
    list(APPEND missed ${wing})
  endif()
endforeach()
if(NOT output MATCHES "does not know its folder, core/unknown/")
  list(APPEND missed core/unknown)
endif()
if(NOT output MATCHES "nn/eigen.cpp: Eigen appears only under cpu/" OR NOT output MATCHES "io/io.h: only users include io/formats/eigen.h")
  list(APPEND missed Eigen)
endif()
if(NOT output MATCHES "core/machine/newer.cpp: libc\\+\\+ 13")
  list(APPEND missed libc++)
endif()
if(NOT output MATCHES "extras/ is no part of the library")
  list(APPEND missed extras)
endif()
if(missed OR NOT failed)
  message(FATAL_ERROR "not refused: ${missed}\n${output}")
endif()

# Every folder of sources is among these wings.
foreach(part core cpu cuda autograd nn optim io amp distributed)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${part}/*.h ${ROOT}/${part}/*.cpp ${ROOT}/${part}/*.cu)
  foreach(file ${files})
    cmake_path(GET file PARENT_PATH folder)
    if(NOT folder IN_LIST wings)
      message(FATAL_ERROR "${folder}/: name here what it may not include")
    endif()
  endforeach()
endforeach()
list(LENGTH wings count)
message(STATUS "a forbidden include was refused in each of ${count} wings")
