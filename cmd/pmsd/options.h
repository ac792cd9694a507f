// SPDX-License-Identifier: GPL-2.0-or-later
// pmsd's command line.
#ifndef PMS_CMD_PMSD_OPTIONS_H
#define PMS_CMD_PMSD_OPTIONS_H

#include "base/log.h"

// How a primary makes sure that a read is not outdated (design, I3).
enum pms_read_mode {
    PMS_READ_AUTO,  // probe in a virtual machine, else lease
    PMS_READ_PROBE, // by heartbeats sent after the read arrived: right even if this machine's clock stops
    PMS_READ_LEASE, // by promises held: faster, and right as long as the clock runs
};

struct pms_options {
    const char *state_dir;  // node.json and Raft's log
    const char *brick_dir;  // default place of bricks
    const char *socket;     // the local API
    const char *plugin_dir; // NULL: beside this program
    const char *tgtd;       // NULL: beside this program
    enum pms_log_level log_level;
    enum pms_read_mode read_mode;
};

// 0: go on. 1: --help or --version was answered on stdout. PMS_EUSAGE: said on stderr.
// The strings belong to argv.
int pms_options_parse(int argc, char **argv, struct pms_options *opt);

#endif
