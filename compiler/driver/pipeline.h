/* pipeline.h - from a loaded model to the module, plan and source of one compilation. */
#ifndef TAPERC_DRIVER_PIPELINE_H
#define TAPERC_DRIVER_PIPELINE_H

#include "compiler/passes/pass.h"
#include "compiler/schedule/plan.h"

#define PIPELINE_MAX 256 /* passes in one list */

/* Runs a pass list: "default" stands for the default pipeline of the options. `list` NULL: that pipeline alone. An
 *unknown name is reported. false: reported in the sink; out_bug tells a defect of the compiler from a wrong input. */
bool pipeline_run(ir_module *m, const char *list, const pass_options *options, const pass_run_options *run,
                  diag_sink *sink, bool *out_bug);

/* "a,b,default" -> passes, at most `cap`. An unknown name is reported; false. */
bool pipeline_parse(const char *list, const pass_options *options, diag_sink *sink, const pass_info **out, size_t cap,
                    size_t *out_n);

/* The options as words: "-O2 --norms=deferred --fold=full". */
void pipeline_print_options(const pass_options *options, text *out);

#endif
