// Making queues with profiling that the program did not ask for, and hiding it from the program.
#pragma once

#include <memory>

#include "backends/opencl/cl_api.h"
#include "backends/opencl/entry.h"

namespace pasta::opencl {

struct Queue;

using CreateQueueByList = cl_command_queue(CL_API_CALL*)(cl_context, cl_device_id,
                                                         const cl_queue_properties*, cl_int*);

// The call `function(context, device, properties, error)` of the program, with profiling added.
cl_command_queue create_queue_by_list(Entry entry, CreateQueueByList function, cl_context context,
                                      cl_device_id device, const cl_queue_properties* properties,
                                      cl_int* error);

// The queue when it has profiling that the program must not see, else null.
std::shared_ptr<Queue> find_hiding_queue(cl_command_queue queue);

}  // namespace pasta::opencl
