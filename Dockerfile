# docker build -t halftape .
# docker run --rm -u "$(id -u)" -v "$PWD:/work" halftape            trains the digits in fp16, writes a page of what was lost
# docker run --rm -u "$(id -u)" -v "$PWD:/work" halftape sh -c 'cmake -S . -B build && cmake --build build'     builds yours
# With --target tools it is a system with what building, testing and editing Halftape itself needs.
ARG DEBIAN=debian:bookworm

FROM $DEBIAN AS tools
COPY scripts/setup /usr/local/bin/halftape-setup
RUN halftape-setup g++ clang cmake ninja-build ccache git python3 \
      libeigen3-dev libfmt-dev libcli11-dev zlib1g-dev libgloo-dev doctest-dev libmpfr-dev \
      valgrind gdb clang-format-14 clang-tidy-14 clangd pkg-config dpkg-dev file sudo \
 && rm -rf /var/lib/apt/lists/* && useradd --create-home --shell /bin/bash user && echo 'user ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/user

FROM tools AS packages
COPY . /halftape
RUN cd /halftape && HALFTAPE_CUDA=OFF scripts/packages

FROM $DEBIAN
COPY --from=packages /halftape/build/packages/*.deb /tmp/
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends g++ cmake make pkg-config /tmp/*.deb \
 && rm -rf /var/lib/apt/lists/* /tmp/*.deb && useradd --create-home user
USER user
WORKDIR /work
CMD ["halftape-lab", "digits"]
