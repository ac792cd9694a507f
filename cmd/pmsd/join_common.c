// SPDX-License-Identifier: GPL-2.0-or-later
// What init, join and token creation have in common.
#include "base/check.h"
#include "base/err.h"
#include "base/json.h"
#include "cmd/pmsd/command.h"
#include "cmd/pmsd/join.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TOKEN_LIFE_S (24 * 3600)

int pms_join_node_fields(struct pms_req *req, char name[PMS_NAME_MAX + 1], struct sockaddr_storage *addr)
{
    const char *node = pms_json_str(pms_req_body(req), "node", NULL);
    const char *text = pms_json_str(pms_req_body(req), "addr", NULL);
    uint64_t id;

    if (node == NULL || *node == '\0' || strlen(node) > PMS_NAME_MAX || pms_id_parse(node, &id) == 0 ||
        strspn(node, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != strlen(node) ||
        strchr("._-", node[0]) != NULL) {
        pms_req_refuse(
            req, PMS_EUSAGE,
            "the node's name must be 1 to %d letters, digits, '.', '_' or '-', begin with a letter or "
            "digit and not look like an id",
            PMS_NAME_MAX);
        return PMS_EUSAGE;
    }
    if (text == NULL || pms_addr_parse(text, PMS_PORT_NODE, addr) != 0) {
        pms_req_refuse(req, PMS_EUSAGE, "the node's address must be numeric: ADDRESS or ADDRESS:PORT");
        return PMS_EUSAGE;
    }
    strcpy(name, node);
    return 0;
}

json_t *pms_versions_to_json(struct pms_versions v)
{
    json_t *obj = json_object();

    pms_json_set_u64(obj, "min", v.min);
    pms_json_set_u64(obj, "max", v.max);
    return obj;
}

struct pms_versions pms_versions_from_json(const json_t *obj)
{
    uint64_t min = 0, max = 0;

    if (pms_json_u64(obj, "min", &min) != 0 || pms_json_u64(obj, "max", &max) != 0 || min < 1 || min > max ||
        max > UINT8_MAX)
        return (struct pms_versions){1, 1};
    return (struct pms_versions){(uint8_t)min, (uint8_t)max};
}

int pms_join_addr_try(const struct sockaddr_storage *addr)
{
    int fd = socket(addr->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, rv;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    rv = bind(fd, (const struct sockaddr *)addr, pms_addr_len(addr)) == 0 && listen(fd, 1) == 0 ? 0 : -errno;
    close(fd);
    return rv;
}

json_t *pms_token_command(const struct pms_app *app, struct pms_token *token)
{
    json_t *cmd = pms_command_new("token_add");
    uint64_t now_s = (uint64_t)time(NULL);

    pms_token_random(token);
    pms_json_set_str(cmd, "id", token->id);
    pms_json_set_str(cmd, "secret", token->secret);
    pms_json_set_str(cmd, "by", app->node.name);
    pms_json_set_u64(cmd, "expires_s", now_s + TOKEN_LIFE_S);
    pms_json_set_u64(cmd, "now_s", now_s);
    return cmd;
}

json_t *pms_token_answer(const struct pms_app *app, const struct pms_token *token)
{
    char text[PMS_TOKEN_TEXT_SIZE], addr[PMS_ADDR_TEXT_SIZE], join[256];
    json_t *body = json_object();

    PMS_CHECK_MSG(body != NULL, "out of memory");
    pms_token_format(token, text);
    snprintf(join, sizeof(join), "pmsctl cluster join %s --token %s --node NAME --addr ADDRESS",
             pms_addr_format(&app->node.addr, addr), text);
    pms_json_set_str(body, "token", text);
    pms_json_set_str(body, "join", join);
    pms_json_set_u64(body, "expires_s", (uint64_t)time(NULL) + TOKEN_LIFE_S);
    return body;
}
