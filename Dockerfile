# Capstan in a container: the Debian package, installed. It runs as the user mpiuser (1000), whose
# home and /work are all that it may write; a folder that is mounted there must be writable for 1000,
# or the container be started as the folder's owner, with a home: --user "$(id -u):$(id -g)" -e HOME=/tmp
#
#   docker build -t capstan .
#   docker run --rm -v "$PWD:/work" capstan demo
#
# For NVIDIA GPUs, with the CUDA toolkit of the base image (then: docker run --gpus all --shm-size 8g):
#
#   docker build -t capstan-cuda --build-arg BASE=nvidia/cuda:12.8.1-devel-ubuntu24.04 \
#     --build-arg RUNTIME=nvidia/cuda:12.8.1-runtime-ubuntu24.04 --build-arg PACKAGE=cuda .
ARG BASE=debian:12
ARG RUNTIME=$BASE

FROM $BASE AS build
ARG PACKAGE=
COPY . /capstan
WORKDIR /capstan
RUN ./do package $PACKAGE

FROM $RUNTIME
COPY --from=build /capstan/build/package*/*.deb /tmp/
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends /tmp/*.deb && \
    rm -rf /tmp/*.deb /var/lib/apt/lists/*
# Ubuntu's images have a user 1000 of their own.
RUN if id ubuntu >/dev/null 2>&1; then userdel --remove ubuntu; fi && \
    useradd --uid 1000 --user-group --create-home --shell /bin/bash mpiuser && \
    install -d -o mpiuser -g mpiuser /work
WORKDIR /work
# By number, so that Kubernetes can tell that it is not root (runAsNonRoot).
USER 1000:1000
ENTRYPOINT ["capstan"]
CMD ["help"]
