// Operators and annotations of torch, from RecordFunction callbacks: rows of `op` and `range`.
#pragma once

namespace pasta::torch {

// Registers the callbacks. After a self_test() that passed, once.
void start_operators();

// Turns the operator callbacks off while nothing is collected, so that a closed gate costs
// operators nothing. Annotations stay on: they may open the gate.
void follow_gate();

// Modules, from hooks on torch.nn.Module.
void module_entered(const char* path);
void module_left();

// In the child of a fork: what the thread was inside of belongs to the parent's trace.
void forget_operators();

// Operators were recorded: a program whose operators are seen allocates tensors too.
bool saw_operators();

}  // namespace pasta::torch
