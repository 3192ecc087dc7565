// Loaded before a program: no thread starts, as under a limit of processes, which a superuser has
// not.
#include <pthread.h>

#include <cerrno>

extern "C" int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) {
  return EAGAIN;
}
