# Capstan in a container: the Debian package, installed.
#
#   docker build -t capstan .
#   docker run --rm -v "$PWD:/work" -w /work capstan demo
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
ENTRYPOINT ["capstan"]
CMD ["help"]
