// SPDX-License-Identifier: GPL-2.0-or-later
// With whom we have no version of the protocol in common: remembered for whoever asks, logged once and not at
// each of the many attempts.
#include "base/err.h"
#include "base/log.h"
#include "consensus/raft/net_internal.h"

#include <string.h>

static void forget(struct pms_net *net, unsigned i)
{
    net->mismatches_n--;
    memmove(&net->mismatches[i], &net->mismatches[i + 1],
            (net->mismatches_n - i) * sizeof(net->mismatches[0]));
}

void pms_net_version_note(struct pms_net *net, const struct pms_handshake *hs, int status)
{
    struct pms_versions own = hs->self.versions;
    char theirs_text[PMS_VERSIONS_TEXT_SIZE], own_text[PMS_VERSIONS_TEXT_SIZE];
    unsigned i = 0;

    if (status != 0 && status != PMS_EVERSION)
        return;
    while (i < net->mismatches_n && net->mismatches[i].node != hs->peer)
        i++;
    if (i < net->mismatches_n) {
        if (status == PMS_EVERSION &&
            memcmp(&net->mismatches[i].versions, &hs->versions, sizeof(hs->versions)) == 0)
            return;
        forget(net, i);
    }
    if (status == 0)
        return;
    if (net->mismatches_n == PMS_NET_MISMATCHES_MAX)
        forget(net, 0);
    net->mismatches[net->mismatches_n++] = (struct pms_net_mismatch){hs->peer, hs->versions};
    pms_log(
        PMS_LOG_ERROR,
        "node %s speaks version %s of the protocol between nodes, this node version %s: they cannot talk; "
        "upgrade pms on %s (said once, tried on)",
        pms_log_hexid(hs->peer), pms_versions_format(hs->versions, theirs_text),
        pms_versions_format(own, own_text), hs->versions.min > own.max ? "this node" : "that node");
}

unsigned pms_net_mismatches(const struct pms_net *net, struct pms_net_mismatch *out, unsigned n)
{
    if (n > net->mismatches_n)
        n = net->mismatches_n;
    memcpy(out, net->mismatches, n * sizeof(*out));
    return n;
}
