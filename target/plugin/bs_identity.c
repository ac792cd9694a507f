// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What the LUN says of itself: the same on every node, told by pmsd, never made of local numbers. SPC-4 7.8
 * (VPD pages 80h, 83h), SBC-4 6.6 (B0h), 6.5.5 (caching mode page).
 */
#include "target/plugin/plugin.h"

#include <stdlib.h>
#include <string.h>

/* Replaces a VPD page's contents; tgtd adds the four bytes of header and frees the page with the LUN. */
static struct vpd *vpd_replace(struct scsi_lu *lu, unsigned page, uint16_t size,
                               void (*update)(struct scsi_lu *, void *))
{
    struct vpd **slot = &lu->attrs.lu_vpd[PCODE_OFFSET(page)];
    struct vpd *vpd = alloc_vpd(size);

    if (!vpd)
        return NULL;
    free(*slot);
    *slot = vpd;
    vpd->vpd_update = update;
    return vpd;
}

/* tgtadm may ask for an update of serial or id: they are not its to change. */
static void vpd_keep(struct scsi_lu *lu, void *data)
{
    (void)lu;
    (void)data;
}

static int vpd_80(struct scsi_lu *lu, const struct pms_plug_hello_ok *h)
{
    size_t len = strlen(h->serial);
    struct vpd *vpd = vpd_replace(lu, 0x80, (uint16_t)len, vpd_keep);

    if (!vpd)
        return -1;
    memcpy(vpd->data, h->serial, len);
    return 0;
}

/* Two designators of the logical unit: T10 vendor (ASCII, "PMS     " and the id) and NAA 6. */
static int vpd_83(struct scsi_lu *lu, const struct pms_plug_hello_ok *h)
{
    size_t id = strlen(h->t10_id), t10 = 8 + id;
    struct vpd *vpd = vpd_replace(lu, 0x83, (uint16_t)(4 + t10 + 4 + sizeof(h->naa)), vpd_keep);
    uint8_t *p;

    if (!vpd)
        return -1;
    p = vpd->data;
    p[0] = 2; /* code set ASCII */
    p[1] = 1; /* association logical unit, type T10 vendor */
    p[3] = (uint8_t)t10;
    memset(p + 4, ' ', 8);
    memcpy(p + 4, h->vendor, strlen(h->vendor));
    memcpy(p + 12, h->t10_id, id);
    p += 4 + t10;
    p[0] = 1; /* binary */
    p[1] = 3; /* NAA */
    p[3] = sizeof(h->naa);
    memcpy(p + 4, h->naa, sizeof(h->naa));
    return 0;
}

static int vpd_b0(struct scsi_lu *lu, const struct pms_plug_hello_ok *h)
{
    struct vpd *vpd = vpd_replace(lu, 0xb0, BLOCK_LIMITS_VPD_LEN, vpd_keep);
    uint32_t max = h->io_bytes_max / h->block_bytes, best = (1u << 20) / h->block_bytes;
    uint8_t *p;

    if (!vpd)
        return -1;
    p = vpd->data; /* byte 4 of the page */
    p[0] = 1;      /* WSNZ: WRITE SAME of 0 blocks is refused */
    p[1] = 0;      /* COMPARE AND WRITE is not supported */
    put_unaligned_be16((uint16_t)(h->phys_bytes / h->block_bytes),
                       p + 2);                          /* OPTIMAL TRANSFER LENGTH GRANULARITY */
    put_unaligned_be32(max, p + 4);                     /* MAXIMUM TRANSFER LENGTH */
    put_unaligned_be32(best < max ? best : max, p + 8); /* OPTIMAL TRANSFER LENGTH */
    put_unaligned_be64(PMS_SAME_BLOCKS, p + 32);        /* MAXIMUM WRITE SAME LENGTH */
    return 0;
}

/* WCE as pmsd says; nothing of the page can be changed by MODE SELECT. */
static void caching(struct scsi_lu *lu, const struct pms_plug_hello_ok *h)
{
    struct mode_pg *pg = find_mode_page(lu, 0x08, 0);
    uint8_t none[64] = {0};

    if (!pg || pg->pcode_size > (int)sizeof(none))
        return;
    pg->mode_data[0] = (uint8_t)((pg->mode_data[0] & ~0x04) | (h->wce ? 0x04 : 0));
    set_mode_page_changeable_mask(lu, 0x08, 0, none);
}

/* What every new login is offered. Times and sizes: RFC 7143 13. */
static void session_params(int tid, const struct pms_plug_hello_ok *h)
{
    struct iscsi_target *target = target_find_by_id(tid);

    if (!target)
        return;
    target->session_param[ISCSI_PARAM_MAX_RECV_DLENGTH].val = 262144;
    target->session_param[ISCSI_PARAM_FIRST_BURST].val = 262144;
    target->session_param[ISCSI_PARAM_MAX_BURST].val = 1 << 20;
    target->session_param[ISCSI_PARAM_INITIAL_R2T_EN].val = 0;
    target->session_param[ISCSI_PARAM_IMM_DATA_EN].val = 1;
    target->session_param[ISCSI_PARAM_DEFAULTTIME2WAIT].val = 0;
    iscsi_update_target_nop_interval(tid, (int)h->nop_interval_s);
    iscsi_update_target_nop_count(tid, (int)h->nop_count);
}

int pms_identity_apply(struct scsi_lu *lu, const struct pms_plug_hello_ok *h)
{
    uint64_t blocks = h->size_bytes / h->block_bytes;
    unsigned exponent = 0;

    if (strlen(h->vendor) > VENDOR_ID_LEN || strlen(h->product) > PRODUCT_ID_LEN ||
        strlen(h->revision) > PRODUCT_REV_LEN || strlen(h->serial) > SCSI_SN_LEN || h->serial[0] == 0 ||
        strlen(h->t10_id) > SCSI_ID_LEN || h->naa[0] >> 4 != 6) {
        pms_plug_log("pmsd gave an identity that does not fit the standard's fields");
        return -1;
    }
    if (vpd_80(lu, h) || vpd_83(lu, h) || vpd_b0(lu, h))
        return -1;
    snprintf(lu->attrs.vendor_id, sizeof(lu->attrs.vendor_id), "%s", h->vendor);
    snprintf(lu->attrs.product_id, sizeof(lu->attrs.product_id), "%s", h->product);
    snprintf(lu->attrs.product_rev, sizeof(lu->attrs.product_rev), "%s", h->revision);
    snprintf(lu->attrs.scsi_sn, sizeof(lu->attrs.scsi_sn), "%s", h->serial);
    snprintf(lu->attrs.scsi_id, sizeof(lu->attrs.scsi_id), "%s", h->t10_id);
    lu->attrs.thinprovisioning = 0;
    lu->attrs.removable = 0;
    while (h->block_bytes << exponent < h->phys_bytes)
        exponent++;
    lu->attrs.lbppbe = (unsigned char)exponent;
    lu->attrs.no_auto_lbppbe = 1;
    lu->attrs.la_lba = 0;
    put_unaligned_be32(blocks >> 32 ? 0xffffffff : (uint32_t)blocks, lu->mode_block_descriptor);
    put_unaligned_be32(h->block_bytes, lu->mode_block_descriptor + 4);
    caching(lu, h);
    session_params(lu->tgt->tid, h);
    return 0;
}

void pms_identity_cache(bool on)
{
    if (!plug.lu || (plug.hello.wce != 0) == on)
        return;
    plug.hello.wce = on;
    caching(plug.lu, &plug.hello);
    ua_sense_add_other_it_nexus(0, plug.lu, ASC_MODE_PARAMETERS_CHANGED); /* SPC-4 6.11 */
}
