/* thread.c: one state per thread and library, freed when the thread ends or the library is unloaded. */
#include <pthread.h>
#include <stdlib.h>

#include "internal.h"

/* All states, so that unloading can free those of threads that live on: their exit handler goes away with us. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;
static bool unloaded;
static wia_thread_t *states;

/* A fast way to what the key holds. */
static __thread wia_thread_t *current;

static void free_state(wia_thread_t *state)
{
    wia_tvm_free_sessions(state);
    free(state->text);
    free(state);
}

static void end_thread(void *value)
{
    wia_thread_t *state = (wia_thread_t *)value;
    wia_thread_t **link;

    pthread_mutex_lock(&lock);
    for (link = &states; *link != NULL; link = &(*link)->next)
        if (*link == state) {
            *link = state->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    current = NULL;
    free_state(state);
}

static void make_key(void)
{
    key_made = pthread_key_create(&key, end_thread) == 0;
}

__attribute__((destructor)) static void unload(void)
{
    pthread_mutex_lock(&lock);
    unloaded = true;
    if (key_made)
        pthread_key_delete(key);
    while (states != NULL) {
        wia_thread_t *state = states;

        states = state->next;
        free_state(state);
    }
    pthread_mutex_unlock(&lock);
}

wia_thread_t *wia_tvm_thread(void)
{
    wia_thread_t *state;

    if (unloaded)
        return NULL;
    if (current != NULL)
        return current;
    pthread_once(&once, make_key);
    state = key_made ? (wia_thread_t *)calloc(1u, sizeof *state) : NULL;
    if (state == NULL)
        return NULL;
    if (pthread_setspecific(key, state) != 0) {
        free(state);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    state->next = states;
    states = state;
    pthread_mutex_unlock(&lock);
    current = state;
    return state;
}
