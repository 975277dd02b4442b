/* module.c - a parsed module: what it holds, how it is freed. */
#include "cuda/sim/inst.h"
#include <stdlib.h>
#include <string.h>

void sim_module_unload(sim_module *m) {
  if (!m) return;
  for (size_t k = 0; k < m->kernel_count; k++) {
    free(m->kernels[k]->code.name);
    free(m->kernels[k]);
  }
  for (size_t k = 0; k < m->function_count; k++) free(m->functions[k].name);
  for (size_t k = 0; k < m->global_count; k++) {
    sim_memory_release(m->memory, m->globals[k].address);
    free(m->globals[k].name);
  }
  for (size_t k = 0; k < m->call_count; k++) {
    free(m->calls[k].in);
    free(m->calls[k].back);
  }
  for (size_t k = 0; k < m->file_count; k++) free(m->files[k]);
  free((void *)m->kernels);
  free(m->functions);
  free(m->globals);
  free(m->calls);
  free((void *)m->files);
  free(m->tables);
  free(m->places);
  free(m->constants);
  free(m->code);
  free(m->name);
  free(m);
}

uint32_t sim_module_target(const sim_module *m) { return m->target; }
uint32_t sim_module_version(const sim_module *m) { return m->version; }

const sim_kernel *sim_module_kernel(const sim_module *m, size_t index) {
  return index < m->kernel_count ? m->kernels[index] : NULL;
}

const sim_kernel *sim_module_find(const sim_module *m, const char *name) {
  for (size_t k = 0; k < m->kernel_count; k++)
    if (strcmp(m->kernels[k]->code.name, name) == 0) return m->kernels[k];
  return NULL;
}

const sim_kernel_facts *sim_facts(const sim_kernel *k) { return &k->facts; }

bool sim_module_global(const sim_module *m, const char *name, uint64_t *address, size_t *bytes) {
  for (size_t k = 0; k < m->global_count; k++) {
    if (strcmp(m->globals[k].name, name) != 0) continue;
    *address = m->globals[k].address;
    *bytes = m->globals[k].size;
    return true;
  }
  return false;
}
