// SPDX-License-Identifier: GPL-2.0-or-later
// pmsctl's HTTP client: taking answers apart, and a whole call against a socket that answers well, badly or
// not at all.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cmd/pmsctl/client.c"

#include <pthread.h>

static unsigned http;
static size_t at;

static int parse(const char *text)
{
    return pms_client_parse(text, strlen(text), &http, &at);
}

static void test_client_parse_when_whole_then_status_and_body(void **state)
{
    const char *text = "HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}";

    (void)state;
    assert_int_equal(parse(text), 0);
    assert_int_equal(http, 409);
    assert_string_equal(text + at, "{}");
}

static void test_client_parse_when_garbage_then_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "\r\n\r\n",
                                      "HTTP/1.1 200 OK\r\nno end",
                                      "HTTP/1.1 2x0 OK\r\n\r\n",
                                      "SSH-2.0-OpenSSH\r\n\r\n",
                                      "HTTP/1.1200\r\n\r\n"};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(parse(bad[i]), PMS_EPROTO);
}

// ---- A server of one call ----

struct server {
    int fd;
    unsigned wait_ms;
    const char *answer;
    char request[1024];
};

static void *serve(void *arg)
{
    struct server *s = arg;
    int fd = accept(s->fd, NULL, NULL);
    ssize_t n = recv(fd, s->request, sizeof(s->request) - 1, 0);

    s->request[n > 0 ? n : 0] = '\0';
    usleep(s->wait_ms * 1000);
    if (*s->answer)
        send(fd, s->answer, strlen(s->answer), MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static char path[64];
static int waits;

static void on_wait(struct pms_client *client, void *data)
{
    (void)client;
    (void)data;
    waits++;
}

static int call(struct server *s, json_t **answer)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    struct pms_client client = {.socket = path, .on_wait = on_wait};
    json_t *body = json_pack("{s:i}", "a", 1);
    pthread_t thread;
    int rv;

    waits = 0;
    snprintf(path, sizeof(path), "/tmp/pms-unit-client-%d", (int)getpid());
    unlink(path);
    strcpy(sun.sun_path, path);
    s->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
    assert_int_equal(listen(s->fd, 1), 0);
    assert_int_equal(pthread_create(&thread, NULL, serve, s), 0);
    rv = pms_client_call(&client, "POST", "/v1/x", body, &http, answer);
    pthread_join(thread, NULL);
    close(s->fd);
    unlink(path);
    json_decref(body);
    return rv;
}

static void test_client_call_when_answered_late_then_waits_and_tells_it(void **state)
{
    struct server s = {.wait_ms = 1200, .answer = "HTTP/1.1 200 OK\r\n\r\n{\"b\":2}"};
    json_t *answer = NULL;

    (void)state;
    assert_int_equal(call(&s, &answer), 0);
    assert_int_equal(http, 200);
    assert_int_equal(json_integer_value(json_object_get(answer, "b")), 2);
    assert_true(waits >= 1);
    assert_non_null(strstr(s.request, "POST /v1/x HTTP/1.1\r\n"));
    assert_non_null(strstr(s.request, "Content-Length: 7\r\n"));
    assert_non_null(strstr(s.request, "\r\n\r\n{\"a\":1}"));
    json_decref(answer);
}

static void test_client_call_when_not_answered_then_reset(void **state)
{
    struct server s = {.answer = ""};
    json_t *answer = NULL;

    (void)state;
    assert_int_equal(call(&s, &answer), -ECONNRESET);
    assert_null(answer);
}

static void test_client_call_when_answer_is_no_json_then_refused(void **state)
{
    struct server s = {.answer = "HTTP/1.1 200 OK\r\n\r\nhello"};
    json_t *answer = NULL;

    (void)state;
    assert_int_equal(call(&s, &answer), PMS_EPROTO);
    assert_null(answer);
}

static void test_client_call_when_nobody_listens_then_says_so(void **state)
{
    struct pms_client client = {.socket = "/tmp/pms-unit-no-such-socket"};
    json_t *answer = NULL;

    (void)state;
    assert_int_equal(pms_client_call(&client, "GET", "/", NULL, &http, &answer), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_parse_when_whole_then_status_and_body),
        cmocka_unit_test(test_client_parse_when_garbage_then_refused),
        cmocka_unit_test(test_client_call_when_answered_late_then_waits_and_tells_it),
        cmocka_unit_test(test_client_call_when_not_answered_then_reset),
        cmocka_unit_test(test_client_call_when_answer_is_no_json_then_refused),
        cmocka_unit_test(test_client_call_when_nobody_listens_then_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
