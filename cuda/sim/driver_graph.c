/* Graphs: what a capture recorded, and launches of copies of it. */
#include "cuda/sim/driver_priv.h"
#include <stdlib.h>
#include <string.h>

static drv_op *op_clone(const drv_op *op) {
  drv_op *copy = malloc(op->bytes);
  if (!copy) return NULL;
  memcpy(copy, op, op->bytes);
  copy->next = NULL;
  return copy;
}

void drv_graph_free(CUgraph g) {
  drv_list_free(&g->nodes);
  drv_object_free(g);
}

void drv_exec_free(CUgraphExec x) {
  drv_list_free(&x->nodes);
  drv_object_free(x);
}

static CUresult graph_instantiate(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
  DRV_TRY(drv_object_check(graph, DRV_GRAPH));
  if (!out || flags) return drv_fail(CUDA_ERROR_INVALID_VALUE, "flags %llu", flags);
  CUgraphExec x = drv_object_new(DRV_EXEC, sizeof *x);
  if (!x) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "a graph");
  for (const drv_op *op = graph->nodes.head; op; op = op->next) {
    drv_op *copy = op_clone(op);
    if (!copy) {
      drv_exec_free(x);
      return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "a graph");
    }
    drv_list_add(&x->nodes, copy);
  }
  *out = x;
  return CUDA_SUCCESS;
}

static CUresult graph_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  DRV_TRY(drv_object_check(graph, DRV_GRAPH));
  if (!count) return drv_fail(CUDA_ERROR_INVALID_VALUE, "no place for the count");
  size_t room = nodes ? *count : 0, i = 0;
  if (nodes)
    for (drv_op *op = graph->nodes.head; op && i < room; op = op->next) nodes[i++] = (CUgraphNode)op;
  while (i < room) nodes[i++] = NULL;
  if (!nodes || room > graph->nodes.count) *count = graph->nodes.count;
  return CUDA_SUCCESS;
}

static CUresult graph_launch(CUgraphExec exec, CUstream handle) {
  CUstream s = NULL;
  DRV_TRY(drv_object_check(exec, DRV_EXEC));
  DRV_TRY(drv_stream_find(handle, &s));
  if (s->capture != DRV_NOT_CAPTURING)
    return drv_capture_spoil(s, CUDA_ERROR_NOT_SUPPORTED, "graphs inside of graphs are not simulated");
  for (const drv_op *op = exec->nodes.head; op; op = op->next)
    if (op->kind == DRV_OP_KERNEL) DRV_TRY(drv_object_check(op->as.kernel.function, DRV_FUNCTION));
  for (const drv_op *op = exec->nodes.head; op; op = op->next) {
    drv_op *copy = op_clone(op);
    if (!copy) return drv_fail(CUDA_ERROR_OUT_OF_MEMORY, "queued work");
    DRV_TRY(drv_push(s, copy));
  }
  s->after_graph = true;
  return CUDA_SUCCESS;
}

static CUresult graph_destroy(CUgraph graph) {
  DRV_TRY(drv_object_check(graph, DRV_GRAPH));
  drv_graph_free(graph);
  return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUgraphExec exec) {
  DRV_TRY(drv_object_check(exec, DRV_EXEC));
  drv_exec_free(exec);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  DRV_CALL(DRV_CONTEXT, graph_instantiate(exec, graph, flags));
}
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  DRV_CALL(DRV_CONTEXT, graph_nodes(graph, nodes, count));
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) { DRV_CALL(DRV_CONTEXT, graph_launch(exec, stream)); }
CUresult cuGraphExecDestroy(CUgraphExec exec) { DRV_CALL(DRV_CONTEXT, exec_destroy(exec)); }
CUresult cuGraphDestroy(CUgraph graph) { DRV_CALL(DRV_CONTEXT, graph_destroy(graph)); }
