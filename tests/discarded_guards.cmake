# Does the compiler warn of a guard without a name, which ends at its own semicolon? Run as a test:
# cmake -D CXX=<compiler> -D INCLUDE=<folder> -D WORK=<folder> -P discarded_guards.cmake
cmake_minimum_required(VERSION 3.25)
set(guards
    "NoGradGuard()"
    "AutoGradMode(false)"
    "InferenceMode()"
    "autograd::DetectAnomalyGuard()"
    "PolicyScope(nullptr)"
    "ErrorScope(\"f\")"
    "OpTimer(\"f\")"
    "Node::Wanted(nullptr)"
    "SavedHooks::Scope(nullptr)"
    "GradTag::Pass()"
    "GradTag::Pass{GradTag::current()}"
    "amp::autocast(kCPU, kFloat16)"
    "amp::autocast(kCPU, kFloat16, amp::Policy())"
    "amp::autocast{amp::capture()}"
    "amp::CastRecorder{plan}"
    "amp::inject({})"
    "amp::checked_step(scaler, optimizer, loss)"
    "Trace(\"trace.json\")"
    "Trace::Span(\"forward\")"
    "cuda::StreamGuard{stream}"
    "optim::AveragedModel::Swapped(averaged, model)"
    "optim::FreshStatistics{model}"
    "RandomScope{get_random_state()}"
    "ddp.no_sync()")

set(source ${WORK}/discarded_guards.cpp)
set(first 6)  # the line of the first guard
string(REPLACE ";" ";\n" lines "${guards}")
file(WRITE ${source} "#include <halftape/halftape.h>
using namespace halftape;
void f([[maybe_unused]] amp::CastPlan& plan, amp::GradScaler& scaler, optim::Optimizer& optimizer, const Tensor& loss,
       [[maybe_unused]] const cuda::Stream& stream, optim::AveragedModel& averaged, [[maybe_unused]] nn::Module& model,
       distributed::DistributedDataParallel& ddp) {
${lines};
const amp::autocast region(kCPU, kFloat16);
}\n")
execute_process(COMMAND ${CXX} -std=c++20 -fsyntax-only -Wall -I${INCLUDE} ${source} RESULT_VARIABLE failed
                OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(failed)
  message(FATAL_ERROR "${output}")
endif()
set(line ${first})
foreach(guard ${guards})
  if(NOT output MATCHES "discarded_guards.cpp:${line}:[0-9]+: warning: ignoring")
    list(APPEND unnoticed "${guard}")
  endif()
  math(EXPR line "${line} + 1")
endforeach()
if(unnoticed)
  message(FATAL_ERROR "no warning of ${unnoticed}\n${output}")
endif()
if(output MATCHES "discarded_guards.cpp:${line}:")
  message(FATAL_ERROR "a warning of the guard with a name\n${output}")
endif()
