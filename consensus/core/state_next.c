// SPDX-License-Identifier: GPL-2.0-or-later
// Commands that only the builds for tests of upgrades have (PMS_VERSION_BUMP, see base/version.c): a kind of
// feature level 2, which does nothing. Here so that few objects differ between the builds.
#include "consensus/core/state_internal.h"
#include "base/json.h"

#if defined(PMS_VERSION_BUMP) && PMS_VERSION_BUMP > 0

static int on_probe(struct pms_apply *a)
{
    PMS_MUST(pms_json_set_bool(a->result, "probed", true));
    return 0;
}

const struct pms_op pms_ops_next[] = {{"probe", on_probe, 2, false}};
const size_t pms_ops_next_n = 1;

#else

const struct pms_op pms_ops_next[1] = {{0}};
const size_t pms_ops_next_n = 0;

#endif
