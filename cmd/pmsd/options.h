// SPDX-License-Identifier: GPL-2.0-or-later
// pmsd's command line.
#ifndef PMS_CMD_PMSD_OPTIONS_H
#define PMS_CMD_PMSD_OPTIONS_H

#include "base/log.h"

struct pms_options {
    const char *state_dir;  // node.json and Raft's log
    const char *brick_dir;  // default place of bricks
    const char *socket;     // the local API
    const char *plugin_dir; // NULL: beside this program
    const char *tgtd;       // NULL: beside this program
    enum pms_log_level log_level;
};

// 0: go on. 1: --help or --version was answered on stdout. PMS_EUSAGE: said on stderr.
// The strings belong to argv.
int pms_options_parse(int argc, char **argv, struct pms_options *opt);

#endif
