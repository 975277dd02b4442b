/* scan.h - how the results of `taperc scan` are written. */
#ifndef TAPERC_CLI_SCAN_H
#define TAPERC_CLI_SCAN_H

#include "compiler/cli/cli.h"
#include "compiler/cli/json.h"
#include "compiler/driver/scan.h"
#include "compiler/driver/stress.h"

/* The member "norms", and with it "scan": what was measured. In the order of execution. */
void scan_put_norms_json(json_out *j, const scan_result *r);
/* A table, the norm whose removal alone costs most first, and a line that sums up. */
void scan_put_norms(text *out, const scan_result *r);
/* The member "stress" of the JSON result; `model` makes text of ids. */
void scan_put_stress_json(json_out *j, const taper_model *model, const stress_result *r);
void scan_put_stress(text *out, const taper_model *model, const stress_result *r);
/* The verdict alone, one line with a newline. */
void scan_put_verdict(text *out, const stress_result *r);

#endif
