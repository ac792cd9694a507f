// SPDX-License-Identifier: GPL-2.0-or-later
// pmsd's command line.
#include "cmd/pmsd/options.h"
#include "base/err.h"
#include "base/version.h"
#include "cmd/version.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: pmsd [OPTIONS]\n"
    "\n"
    "The node daemon of pms. It runs in the foreground and is told what to do by pmsctl.\n"
    "\n"
    "  --state-dir D   who this node is, and Raft's log (default /var/lib/pms/raft)\n"
    "  --brick-dir D   where bricks are made unless told otherwise (default /var/lib/pms/bricks)\n"
    "  --socket S      the local API (default $PMS_SOCKET or /run/pms/pmsd.sock)\n"
    "  --plugin-dir D  folder with bs_pms.so (default: beside this program)\n"
    "  --tgtd P        the tgtd program (default: beside this program)\n"
    "  --read-mode M   auto, probe or lease (default auto). lease: reads are answered under the promises of\n"
    "                  the other copies; wrong if this machine's clock may stop, as a paused virtual "
    "machine's\n"
    "                  does. probe: each waits for an answer of the others. auto: probe in a virtual "
    "machine\n"
    "  --log-level L   debug, info, warn or error (default info)\n"
    "  --version       prints the versions: of the program, and of what it speaks and reads\n"
    "  --help          prints this\n"
    "\n"
    "Exit status: 0 stopped by SIGTERM or SIGINT, 1 failed (the last line of the log says why), 2 wrong "
    "usage.\n";

enum { OPT_STATE = 256, OPT_BRICK, OPT_SOCKET, OPT_PLUGIN, OPT_TGTD, OPT_LEVEL, OPT_READ_MODE, OPT_VERSION };

static int read_mode_parse(const char *text, enum pms_read_mode *mode)
{
    static const char *const names[] = {"auto", "probe", "lease"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *mode = (enum pms_read_mode)i;
            return 0;
        }
    }
    fprintf(stderr, "pmsd: --read-mode is auto, probe or lease, not %s\n", text);
    return PMS_EUSAGE;
}

static void versions_print(void)
{
    char node[PMS_VERSIONS_TEXT_SIZE], ring[PMS_VERSIONS_TEXT_SIZE], brick[PMS_VERSIONS_TEXT_SIZE];

    printf("pmsd %s\n"
           "protocol between nodes: version %s\n"
           "plugin: version %s\n"
           "bricks: version %s\n"
           "feature level: up to %u\n",
           PMS_VERSION, pms_versions_format(pms_node_versions, node),
           pms_versions_format(pms_ring_versions, ring), pms_versions_format(pms_brick_versions, brick),
           pms_feature_level_max);
}

int pms_options_parse(int argc, char **argv, struct pms_options *opt)
{
    static const struct option longs[] = {
        {"state-dir", required_argument, NULL, OPT_STATE},
        {"brick-dir", required_argument, NULL, OPT_BRICK},
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"plugin-dir", required_argument, NULL, OPT_PLUGIN},
        {"tgtd", required_argument, NULL, OPT_TGTD},
        {"log-level", required_argument, NULL, OPT_LEVEL},
        {"read-mode", required_argument, NULL, OPT_READ_MODE},
        {"version", no_argument, NULL, OPT_VERSION},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *socket = getenv("PMS_SOCKET");
    int c;

    *opt = (struct pms_options){.state_dir = "/var/lib/pms/raft",
                                .brick_dir = "/var/lib/pms/bricks",
                                .socket = socket != NULL && *socket ? socket : "/run/pms/pmsd.sock",
                                .log_level = PMS_LOG_INFO};
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
        switch (c) {
        case OPT_STATE:
            opt->state_dir = optarg;
            break;
        case OPT_BRICK:
            opt->brick_dir = optarg;
            break;
        case OPT_SOCKET:
            opt->socket = optarg;
            break;
        case OPT_PLUGIN:
            opt->plugin_dir = optarg;
            break;
        case OPT_TGTD:
            opt->tgtd = optarg;
            break;
        case OPT_LEVEL:
            if (pms_log_level_parse(optarg, &opt->log_level) != 0) {
                fprintf(stderr, "pmsd: --log-level is debug, info, warn or error, not %s\n", optarg);
                return PMS_EUSAGE;
            }
            break;
        case OPT_READ_MODE:
            if (read_mode_parse(optarg, &opt->read_mode) != 0)
                return PMS_EUSAGE;
            break;
        case OPT_VERSION:
            versions_print();
            return 1;
        case 'h':
            fputs(help, stdout);
            return 1;
        default:
            fputs("pmsd: see pmsd --help\n", stderr);
            return PMS_EUSAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "pmsd: unexpected argument %s; see pmsd --help\n", argv[optind]);
        return PMS_EUSAGE;
    }
    return 0;
}
